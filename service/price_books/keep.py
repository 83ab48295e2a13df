"""Writing price books: a book changes only for whoever has seen its last state."""

import json
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256

from service.core.prices import PriceBook, PriceBookContent, PriceBookRequest
from service.core.snapshot import CatalogSnapshot
from service.price_books import repository
from service.price_books.errors import PriceBookChanged, PriceBookExists, PriceBookNotFound
from service.price_books.repository import Session

ANY_STATE = "*"
"""Stands for whatever state a book is in (RFC 9110, 13.1.1)."""


def entity_tag(book: PriceBook) -> str:
    """Strong tag of one state of a book."""
    made = f"{book.created_at.isoformat()} {book.revision} {book.digest}"
    return f'"{sha256(made.encode()).hexdigest()[:32]}"'


def digest_of(content: PriceBookContent) -> str:
    """Digest of note and rows: SHA-256 over JSON with sorted keys."""
    document = content.model_dump(mode="json", include={"note", "rows"})
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


async def read(session: Session, key: str) -> PriceBook:
    """Read a book. Raises PriceBookNotFound."""
    book = await repository.find_price_book(session, key)
    if book is None:
        raise PriceBookNotFound(key)
    return book


async def create(
    session: Session,
    request: PriceBookRequest,
    *,
    team: str,
    snapshot: CatalogSnapshot,
    now: datetime,
) -> PriceBook:
    """Keep a new book.

    Raises:
        PriceBookExists: the team has a book of that key.
        UnknownKey: a row's GPU is not in the catalog: the row would never be used.
    """
    _check_gpus(request, snapshot)
    book = PriceBook(
        key=request.key,
        note=request.note,
        rows=request.rows,
        revision=1,
        digest=digest_of(request),
        created_at=now,
        changed_at=now,
    )
    if not await repository.insert_price_book(session, team, book):
        raise PriceBookExists(request.key)
    return book


async def replace(
    session: Session,
    key: str,
    content: PriceBookContent,
    *,
    known: Collection[str],
    snapshot: CatalogSnapshot,
    now: datetime,
) -> PriceBook:
    """Put new rows in the place of a book's; plans that were made with the old ones stay.

    Args:
        session: Transaction of the team.
        key: Name of the book.
        content: What it holds from now on.
        known: Tags of the states that the caller has seen.
        snapshot: Catalog that knows the GPUs.
        now: The time.

    Raises:
        PriceBookNotFound, PriceBookChanged: there is no such book, or in another state.
        UnknownKey: a row's GPU is not in the catalog.
    """
    old = await _seen(session, key, known)
    _check_gpus(content, snapshot)
    book = old.model_copy(
        update={
            "note": content.note,
            "rows": content.rows,
            "revision": old.revision + 1,
            "digest": digest_of(content),
            "changed_at": now,
        }
    )
    if not await repository.update_price_book(session, book):
        raise PriceBookChanged(key)
    return book


async def drop(session: Session, key: str, *, known: Collection[str]) -> None:
    """Drop a book; plans that were made with it stay.

    Raises:
        PriceBookNotFound, PriceBookChanged: there is no such book, or in another state.
    """
    book = await _seen(session, key, known)
    if not await repository.delete_price_book(session, key, revision=book.revision):
        raise PriceBookChanged(key)


async def _seen(session: Session, key: str, known: Collection[str]) -> PriceBook:
    book = await read(session, key)
    if ANY_STATE not in known and entity_tag(book) not in known:
        raise PriceBookChanged(key)
    return book


def _check_gpus(content: PriceBookContent, snapshot: CatalogSnapshot) -> None:
    for index, row in enumerate(content.rows):
        snapshot.gpu(row.gpu, pointer=f"/rows/{index}/gpu")
