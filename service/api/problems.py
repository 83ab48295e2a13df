"""Problem documents (RFC 9457): the one shape in which the service says no.

The list of problem types is closed; `openapi/README.md` says what a caller can do about each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import structlog
from asyncpg import InterfaceError, PostgresError
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.openapi.datastructures import ResponseSpec
from pydantic import Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from service.core.value import Value

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
FAILED = "The service failed; its log names the cause."
UNREACHABLE_CLASSES = frozenset({"08", "28", "3D", "53", "57"})
REQUEST_ID = "gpuplan.request_id"
"""Key of the request's id in the ASGI scope."""

log = structlog.get_logger(__name__)


class ProblemKind(Enum):
    """A problem type: its name, its status and its title."""

    MALFORMED_BODY = ("malformed-body", 400, "The body is not acceptable JSON")
    MALFORMED_QUERY = ("malformed-query", 400, "The query string is not acceptable")
    MALFORMED_REQUEST = ("malformed-request", 400, "The request is not acceptable")
    UNAUTHENTICATED = ("unauthenticated", 401, "The request needs a valid API key")
    MISSING_SCOPE = ("missing-scope", 403, "The API key does not allow this")
    NOT_FOUND = ("not-found", 404, "There is nothing at this address")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "The method does not apply here")
    CONFLICT = ("conflict", 409, "The request contradicts what is stored")
    REQUEST_IN_FLIGHT = ("request-in-flight", 409, "The same request is still being worked on")
    STALE_STATE = ("stale-state", 412, "What the request would change has changed since")
    BODY_TOO_LARGE = ("body-too-large", 413, "The body is too large")
    UNSUPPORTED_MEDIA_TYPE = ("unsupported-media-type", 415, "The body's media type is not read")
    WRONG_HOST = ("wrong-host", 421, "The service does not answer under this host name")
    VALIDATION = ("validation", 422, "A value is not acceptable")
    UNKNOWN_KEY = ("unknown-key", 422, "The catalog release has no such entry")
    IDEMPOTENCY_KEY_REUSED = (
        "idempotency-key-reused",
        422,
        "The idempotency key belongs to another request",
    )
    PRECONDITION_REQUIRED = (
        "precondition-required",
        428,
        "The request must say which state it changes",
    )
    INTERNAL = ("internal", 500, "The service failed")
    ESTIMATE_TOOK_TOO_LONG = (
        "estimate-took-too-long",
        503,
        "The estimate was not done in time",
    )
    UNAVAILABLE = ("unavailable", 503, "The service cannot answer now")

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.uri = f"/problems/{slug}"
        self.status = status
        self.title = title


class FieldProblem(Value):
    """One field or parameter that is at fault."""

    pointer: str | None = None
    """JSON pointer (RFC 6901) into the request's body."""
    parameter: str | None = None
    """Name of the query or header parameter."""
    detail: str
    """What is wrong with it, with the bound where there is one."""


class Problem(Value):
    """A problem document (RFC 9457)."""

    type: str = Field(json_schema_extra={"enum": [kind.uri for kind in ProblemKind]})
    """Stable name of the kind of problem, from a closed list."""
    title: str
    """What the type means, the same for every occurrence."""
    status: int = Field(ge=400, le=599)
    """The HTTP status."""
    detail: str
    """What is wrong this time, and what to do about it."""
    errors: tuple[FieldProblem, ...] = ()
    """Each field at fault; at most 100 are listed."""
    request_id: str | None = None
    """Name of this request in the service's log."""


MAX_LISTED_ERRORS = 100


class ProblemError(HTTPException):
    """Raised anywhere above the core to answer with a problem document."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail=detail, status_code=kind.status, headers=dict(headers or {}))
        self.kind = kind
        self.errors = tuple(errors)


def problem_responses(*statuses: int) -> dict[int, ResponseSpec]:
    """Declare the problems of a handler: those named, and those that any request may meet."""
    always = (400, 421, 500, 503)
    titles: dict[int, list[str]] = {}
    for kind in ProblemKind:
        titles.setdefault(kind.status, []).append(kind.title)
    return {
        status: ResponseSpec(
            data_container=Problem,
            description=", or: ".join(titles[status]) + ".",
            generate_examples=False,
        )
        for status in sorted({*always, *statuses})
    }


def problem_document(error: ProblemError, request_id: str | None) -> bytes:
    """Encode the document; absent members are left out."""
    problem = Problem(
        type=error.kind.uri,
        title=error.kind.title,
        status=error.kind.status,
        detail=error.detail,
        errors=error.errors[:MAX_LISTED_ERRORS],
        request_id=request_id,
    )
    return problem.model_dump_json(exclude_none=True, exclude_defaults=True).encode()


def respond(request: Request[Any, Any, Any], error: ProblemError) -> Response[bytes]:
    """Answer a request with a problem."""
    return Response(
        content=problem_document(error, request.scope.get(REQUEST_ID)),  # type: ignore[arg-type]
        status_code=error.kind.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=error.headers,
    )


def _log_failure(request: Request[Any, Any, Any], event: str, error: Exception) -> None:
    log.error(event, request_id=request.scope.get(REQUEST_ID), exc_info=error)


def unavailable(detail: str) -> ProblemError:
    """Build the problem of a service that may answer a moment later."""
    return ProblemError(
        ProblemKind.UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER_S)}
    )


def _parameter_problem(request: Request[Any, Any, Any], error: ValidationException) -> ProblemError:
    """Turn Litestar's findings on parameters into a problem; bodies never come this way."""
    found = [entry for entry in error.extra or () if isinstance(entry, dict)]
    if any(entry.get("source") == "path" for entry in found):
        return ProblemError(ProblemKind.NOT_FOUND, "The address holds a name that cannot exist.")
    parameters = request.route_handler.parsed_fn_signature.parameters
    errors = []
    for entry in found:
        name = entry.get("key")
        definition = parameters[name].kwarg_definition if name in parameters else None
        public = getattr(definition, "name", None) or name
        errors.append(FieldProblem(parameter=public, detail=entry["message"]))
    detail = "A parameter is not acceptable; see errors." if errors else error.detail
    return ProblemError(ProblemKind.VALIDATION, detail, errors=errors)


def _http_problem(request: Request[Any, Any, Any], error: HTTPException) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case ValidationException():
            return _parameter_problem(request, error)
        case NotFoundException():
            return ProblemError(ProblemKind.NOT_FOUND, "There is nothing at this address.")
        case MethodNotAllowedException():
            methods = (error.headers or {})["allow"].split(", ")
            allow = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            detail = f"This address takes {allow}."
            return ProblemError(ProblemKind.METHOD_NOT_ALLOWED, detail, headers={"Allow": allow})
        case HTTPException(status_code=413):
            limit = request.app.request_max_body_size
            detail = f"The body is larger than {limit:,} bytes, the most that is read."
            return ProblemError(ProblemKind.BODY_TOO_LARGE, detail)
        case HTTPException(status_code=status) if status < 500:
            return ProblemError(ProblemKind.MALFORMED_REQUEST, error.detail)
    return ProblemError(ProblemKind.INTERNAL, FAILED)


def database_problem(sqlstate: str) -> ProblemError:
    """Map an error of the database by its SQLSTATE (Postgres, appendix A)."""
    if sqlstate.startswith("23"):
        return ProblemError(
            ProblemKind.CONFLICT, "What the request would store contradicts what is there."
        )
    if sqlstate.startswith("22"):
        return ProblemError(
            ProblemKind.VALIDATION, "The request holds a value that the database cannot keep."
        )
    # 40001, 40P01, 55P03: lost a race; 0A000: a prepared statement from before a migration, good
    # again on the next try; 08, 28, 3D, 53, 57: unreachable, locked, gone, out of room, stopping.
    if sqlstate in {"40001", "40P01", "55P03", "0A000"} or sqlstate[:2] in UNREACHABLE_CLASSES:
        return unavailable("The database could not take the request now; try again.")
    return ProblemError(ProblemKind.INTERNAL, FAILED)


def answer_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what Litestar or a handler refused."""
    problem = _http_problem(request, error)
    if problem.kind is ProblemKind.INTERNAL:
        _log_failure(request, "request_failed", error)
    return respond(request, problem)


def answer_database_error(
    request: Request[Any, Any, Any], error: DBAPIError | PostgresError
) -> Response[bytes]:
    """Answer an error of the database, whether it came through SQLAlchemy or not."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    problem = database_problem(getattr(cause, "sqlstate", None) or "")
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        problem = unavailable("The connection to the database was lost; try again.")
    if problem.kind.status >= 500:
        _log_failure(request, "database_error", error)
    return respond(request, problem)


def answer_unreachable_database(
    request: Request[Any, Any, Any], error: Exception
) -> Response[bytes]:
    """Answer when no connection is free in time, or none can be made."""
    _log_failure(request, "database_unreachable", error)
    return respond(request, unavailable("The database cannot be reached now; try again."))


def answer_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer a defect of the service; the cause goes to the log, never to the caller."""
    _log_failure(request, "request_failed", error)
    return respond(request, ProblemError(ProblemKind.INTERNAL, FAILED))


EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    HTTPException: answer_http_error,
    DBAPIError: answer_database_error,
    PostgresError: answer_database_error,
    InterfaceError: answer_unreachable_database,
    PoolTimeout: answer_unreachable_database,
    OSError: answer_unreachable_database,
    Exception: answer_unexpected_error,
}
