"""What the layers below refuse, as problems: they know nothing of HTTP."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response

from service.api.problems import FieldProblem, ProblemError, ProblemKind, respond
from service.catalog.release import ReleaseChanged, UnknownRelease
from service.core.errors import CoreError, NotWritable, UnknownKey
from service.plans.errors import (
    CannotCompare,
    IdempotencyKeyReused,
    InvalidCursor,
    InvalidIdempotencyKey,
    PlanError,
    PlanNotFound,
    RequestInFlight,
    TookTooLong,
    TooMuchAtOnce,
)
from service.price_books.errors import (
    PriceBookChanged,
    PriceBookError,
    PriceBookExists,
    PriceBookNotFound,
)

PRICE_BOOK_PROBLEMS: dict[type[PriceBookError], ProblemKind] = {
    PriceBookNotFound: ProblemKind.NOT_FOUND,
    PriceBookExists: ProblemKind.CONFLICT,
    PriceBookChanged: ProblemKind.STALE_STATE,
}
PLAN_PROBLEMS: dict[type[PlanError], tuple[ProblemKind, str | None]] = {
    PlanNotFound: (ProblemKind.NOT_FOUND, None),
    InvalidCursor: (ProblemKind.VALIDATION, "cursor"),
    InvalidIdempotencyKey: (ProblemKind.VALIDATION, "Idempotency-Key"),
    IdempotencyKeyReused: (ProblemKind.IDEMPOTENCY_KEY_REUSED, "Idempotency-Key"),
    RequestInFlight: (ProblemKind.REQUEST_IN_FLIGHT, "Idempotency-Key"),
    TooMuchAtOnce: (ProblemKind.UNAVAILABLE, None),
    TookTooLong: (ProblemKind.ESTIMATE_TOOK_TOO_LONG, None),
    CannotCompare: (ProblemKind.VALIDATION, "plans"),
}
"""The problem of each refusal, and the parameter that is at fault."""
RETRY_AFTER_S: dict[type[PlanError], int] = {RequestInFlight: 1, TooMuchAtOnce: 5, TookTooLong: 60}
"""When what was refused may be tried again."""


def _sentence(message: str) -> str:
    """A message as a sentence; a name that it begins with keeps its case."""
    first = message.split(maxsplit=1)[0] if message.split() else ""
    start = message[:1].upper() if first.isalpha() else message[:1]
    return f"{start}{message[1:].rstrip('.')}."


def answer_core_error(request: Request[Any, Any, Any], error: CoreError) -> Response[bytes]:
    """Answer what the core or the catalog refuses."""
    detail = _sentence(error.message)
    if isinstance(error, ReleaseChanged):
        return respond(request, ProblemError(ProblemKind.STALE_STATE, detail))
    unknown = isinstance(error, UnknownKey | UnknownRelease)
    if unknown and (request.method == "GET" or not error.pointer):
        return respond(request, ProblemError(ProblemKind.NOT_FOUND, detail))
    kind = ProblemKind.UNKNOWN_KEY if unknown else ProblemKind.VALIDATION
    field = FieldProblem(pointer=error.pointer, detail=detail)
    return respond(request, ProblemError(kind, detail, errors=[field]))


def answer_plan_error(request: Request[Any, Any, Any], error: PlanError) -> Response[bytes]:
    """Answer what the store of plans refuses."""
    kind, parameter = PLAN_PROBLEMS[type(error)]
    detail = _sentence(error.message)
    fields = [FieldProblem(parameter=parameter, detail=detail)] if parameter else []
    retry_after_s = RETRY_AFTER_S.get(type(error))
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return respond(request, ProblemError(kind, detail, errors=fields, headers=headers))


def answer_not_writable(request: Request[Any, Any, Any], error: NotWritable) -> Response[bytes]:
    """Answer what a stored plan cannot be written as."""
    return respond(request, ProblemError(ProblemKind.CONFLICT, _sentence(error.message)))


def answer_price_book_error(
    request: Request[Any, Any, Any], error: PriceBookError
) -> Response[bytes]:
    """Answer what the store of price books refuses."""
    kind = PRICE_BOOK_PROBLEMS[type(error)]
    return respond(request, ProblemError(kind, _sentence(error.message)))


REFUSAL_HANDLERS: dict[int | type[Exception], Any] = {
    CoreError: answer_core_error,
    PlanError: answer_plan_error,
    NotWritable: answer_not_writable,
    PriceBookError: answer_price_book_error,
}
