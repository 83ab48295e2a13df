import asyncpg
import httpx
import pytest
import structlog
from litestar import Litestar, get
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.api.problems import EXCEPTION_HANDLERS, ProblemError, ProblemKind, database_problem

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("23505", ProblemKind.CONFLICT),
        ("23503", ProblemKind.CONFLICT),
        ("22021", ProblemKind.VALIDATION),
        ("22003", ProblemKind.VALIDATION),
        ("40001", ProblemKind.UNAVAILABLE),
        ("40P01", ProblemKind.UNAVAILABLE),
        ("55P03", ProblemKind.UNAVAILABLE),
        ("57014", ProblemKind.UNAVAILABLE),
        ("57P01", ProblemKind.UNAVAILABLE),
        ("08006", ProblemKind.UNAVAILABLE),
        ("53300", ProblemKind.UNAVAILABLE),
        ("0A000", ProblemKind.UNAVAILABLE),
        ("42P01", ProblemKind.INTERNAL),
        ("", ProblemKind.INTERNAL),
    ],
)
def test_database_errors_are_told_apart_by_their_sqlstate(sqlstate, kind):
    assert database_problem(sqlstate).kind is kind


async def answer_to(error):
    @get("/")
    async def fail() -> None:
        raise error

    app = Litestar([fail], exception_handlers=EXCEPTION_HANDLERS, logging_config=None)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with structlog.testing.capture_logs() as entries:
            return await client.get("/"), entries


def wrapped(error, *, invalidated=False):
    return DBAPIError("INSERT secret", {}, error, connection_invalidated=invalidated)


@pytest.mark.parametrize(
    ("error", "status", "is_logged"),
    [
        (wrapped(asyncpg.UniqueViolationError("secret")), 409, False),
        (wrapped(asyncpg.CharacterNotInRepertoireError("secret")), 422, False),
        (wrapped(asyncpg.DeadlockDetectedError("secret")), 503, True),
        (wrapped(ValueError("secret"), invalidated=True), 503, True),
        (wrapped(asyncpg.UndefinedTableError("secret")), 500, True),
        (asyncpg.SerializationError("secret"), 503, True),
        (asyncpg.InvalidCachedStatementError("secret"), 503, True),
        (asyncpg.InterfaceError("secret"), 503, True),
        (PoolTimeout("secret"), 503, True),
        (ConnectionRefusedError("secret"), 503, True),
        (TimeoutError("secret"), 503, True),
        (ZeroDivisionError("secret"), 500, True),
        (RecursionError("secret"), 500, True),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_a_failure_is_a_problem_that_tells_no_secrets(error, status, is_logged):
    response, entries = await answer_to(error)
    assert response.status_code == response.json()["status"] == status
    assert response.headers["content-type"] == "application/problem+json"
    assert "secret" not in response.text
    assert ("retry-after" in response.headers) == (status == 503)
    assert bool(entries) == is_logged


async def test_a_problem_lists_at_most_a_hundred_errors():
    error = ProblemError(ProblemKind.VALIDATION, "x", errors=[])
    assert "errors" not in (await answer_to(error))[0].json()
