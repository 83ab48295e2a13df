"""Price books: what a team has negotiated, kept by the team and named by its scenarios."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from litestar import Request, Response, delete, get, post, put
from litestar.datastructures import ResponseHeader
from litestar.params import FromPath, JSONBody, PathParameter

from service.access.scopes import Scope
from service.api.access import needs
from service.api.dependencies import RequestCaller, RequestSession
from service.api.pages import (
    DEFAULT_LIMIT,
    LINK_HEADER,
    Cursor,
    Limit,
    decode_cursor,
    next_link,
    page_of,
)
from service.api.preconditions import IfMatch, seen_states
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.prices import PriceBook, PriceBookContent, PriceBookRequest
from service.core.snapshot import CatalogSnapshot
from service.core.value import KEY_PATTERN, Value
from service.price_books import keep, repository
from service.price_books.repository import Session

COLLECTION = "price_books"
LOCATION_HEADER = ResponseHeader(
    name="Location", description="Address of the new price book.", documentation_only=True
)
BookKey = Annotated[
    str, PathParameter(pattern=KEY_PATTERN, description="Name of the book in the team.")
]


class PriceBookPage(Value):
    """Some price books of the team, by key."""

    items: tuple[PriceBook, ...]
    """The price books of this page."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


def _answer(book: PriceBook, *, status_code: int = 200, **headers: str) -> Response[PriceBook]:
    tagged = {"ETag": keep.entity_tag(book), **headers}
    return Response(book, status_code=status_code, headers=tagged)


async def _latest(session: Session, now: datetime) -> CatalogSnapshot:
    return await load_snapshot(session, "latest", now.date())


@get(
    "/v1/price-books",
    operation_id="list_price_books",
    tags=["price books"],
    responses=problem_responses(422),
    response_headers=[LINK_HEADER],
)
async def list_price_books(
    request: Request[Any, Any, Any],
    session: RequestSession,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[PriceBookPage]:
    """List the team's price books, by key."""
    after = decode_cursor(COLLECTION, cursor, str)
    found = await repository.list_price_books(session, after=after, limit=limit + 1)
    items, more = page_of(COLLECTION, found, limit, lambda book: book.key)
    body = PriceBookPage(items=tuple(items), next_cursor=more)
    return Response(body, headers=next_link(request, more))


@get(
    "/v1/price-books/{key:str}",
    operation_id="get_price_book",
    tags=["price books"],
    responses=problem_responses(404),
)
async def get_price_book(key: FromPath[BookKey], session: RequestSession) -> Response[PriceBook]:
    """Read a price book.

    Its `ETag` is what a change of it has to name.
    """
    return _answer(await keep.read(session, key))


@post(
    "/v1/price-books",
    operation_id="create_price_book",
    tags=["price books"],
    opt=needs(Scope.PLAN_WRITE),
    responses=problem_responses(409, 413, 415, 422),
    response_headers=[LOCATION_HEADER],
)
async def create_price_book(
    data: JSONBody[PriceBookRequest], session: RequestSession, caller: RequestCaller
) -> Response[PriceBook]:
    """Keep the prices that the team has negotiated.

    A scenario names the book in `price_book`; its prices then stand above the catalog's.
    """
    now = datetime.now(UTC)
    snapshot = await _latest(session, now)
    book = await keep.create(session, data, team=caller.team, snapshot=snapshot, now=now)
    return _answer(book, status_code=201, Location=f"/v1/price-books/{book.key}")


@put(
    "/v1/price-books/{key:str}",
    operation_id="replace_price_book",
    tags=["price books"],
    opt=needs(Scope.PLAN_WRITE),
    responses=problem_responses(404, 412, 413, 415, 422, 428),
)
async def replace_price_book(
    key: FromPath[BookKey],
    data: JSONBody[PriceBookContent],
    session: RequestSession,
    if_match: IfMatch = None,
) -> Response[PriceBook]:
    """Replace what a price book holds.

    Plans that were made with it never change: each keeps a copy of what it uses.
    """
    now = datetime.now(UTC)
    known = seen_states(if_match, "price book")
    snapshot = await _latest(session, now)
    book = await keep.replace(session, key, data, known=known, snapshot=snapshot, now=now)
    return _answer(book)


@delete(
    "/v1/price-books/{key:str}",
    operation_id="delete_price_book",
    tags=["price books"],
    opt=needs(Scope.PLAN_WRITE),
    responses=problem_responses(404, 412, 422, 428),
)
async def delete_price_book(
    key: FromPath[BookKey], session: RequestSession, if_match: IfMatch = None
) -> None:
    """Drop a price book.

    Plans that were made with it never change: each keeps a copy of what it uses.
    """
    await keep.drop(session, key, known=seen_states(if_match, "price book"))
