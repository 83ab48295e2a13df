"""Pages of a collection: an opaque cursor, and the link to what comes next."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from litestar import Request
from litestar.datastructures import ResponseHeader
from litestar.params import QueryParameter

from service.api.problems import FieldProblem, ProblemError, ProblemKind

Item = TypeVar("Item")
Position = TypeVar("Position")

DEFAULT_LIMIT = 50
MAX_LIMIT = 200

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="Items of one page at most.")]
Cursor = Annotated[
    str | None,
    QueryParameter(
        max_length=200, description="`next_cursor` of the page before; none for the first page."
    ),
]
LINK_HEADER = ResponseHeader(
    name="Link",
    description='Address of the next page, `rel="next"`; absent on the last page.',
    documentation_only=True,
)


def encode_cursor(collection: str, position: object) -> str:
    """Write where a page ended; callers hand it back and never look inside."""
    return urlsafe_b64encode(f"{collection}:{position}".encode()).decode().rstrip("=")


def page_of(
    collection: str, found: Sequence[Item], limit: int, place: Callable[[Item], object]
) -> tuple[Sequence[Item], str | None]:
    """Cut one page of what was found, one more than its limit at most; the cursor of the next.

    Args:
        collection: Name that its cursors bear.
        found: Items from the page's first on.
        limit: Items of the page.
        place: Where an item stands, as `decode_cursor` reads it.
    """
    items = found[:limit]
    return items, encode_cursor(collection, place(items[-1])) if len(found) > limit else None


def decode_cursor(
    collection: str, cursor: str | None, parse: Callable[[str], Position]
) -> Position | None:
    """Read where the page before ended; None for the first page.

    Raises:
        ProblemError: the cursor is none of this collection.
    """
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        name, _, position = text.partition(":")
        if name == collection and encode_cursor(collection, position) == cursor:
            return parse(position)
    except ValueError:  # neither base64, nor UTF-8, nor a position
        pass
    detail = "This is no cursor of this collection; take `next_cursor` of the page before."
    raise ProblemError(
        ProblemKind.VALIDATION,
        "A parameter is not acceptable; see errors.",
        errors=[FieldProblem(parameter="cursor", detail=detail)],
    )


def next_link(
    request: Request[Any, Any, Any], next_cursor: str | None, *, path: str | None = None
) -> dict[str, str]:
    """Make the Link header of a page (RFC 8288): the same question, one page on.

    Args:
        request: the question.
        next_cursor: where the next page begins; None on the last one.
        path: address that stays the same while pages are read, where the request's own does not.
    """
    if next_cursor is None:
        return {}
    parameters = {**request.query_params.dict(), "cursor": [next_cursor]}
    query = urlencode(sorted(parameters.items()), doseq=True)
    return {"Link": f'<{path or request.url.path}?{query}>; rel="next"'}
