"""All SQL on price books: values in, values out, on a session that already carries its team."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.prices import PriceBook
from service.db.tables import PriceBookRow

Session = AsyncSession
"""A session over one transaction of one team, as `team_session` opens it."""

_COLUMNS = (
    PriceBookRow.key,
    PriceBookRow.revision,
    PriceBookRow.digest,
    PriceBookRow.created_at,
    PriceBookRow.changed_at,
    PriceBookRow.document,
)


def _book(row: Row[*tuple[Any, ...]]) -> PriceBook:
    values = dict(row._mapping)  # noqa: SLF001 documented, and underscored for columns' sake
    return PriceBook(**values.pop("document"), **values)


async def find_price_book(session: Session, key: str) -> PriceBook | None:
    """Read a price book of the team."""
    row = (await session.execute(select(*_COLUMNS).where(PriceBookRow.key == key))).one_or_none()
    return None if row is None else _book(row)


async def list_price_books(
    session: Session, *, after: str | None, limit: int
) -> Sequence[PriceBook]:
    """Read price books of the team by key, from the one after a key."""
    query = select(*_COLUMNS).order_by(PriceBookRow.key).limit(limit)
    if after is not None:
        query = query.where(PriceBookRow.key > after)
    return [_book(row) for row in await session.execute(query)]


async def insert_price_book(session: Session, team: str, book: PriceBook) -> bool:
    """Store a new price book; False when the team has one of that key already.

    Waits for a transaction that is storing the same key.
    """
    statement = postgresql.insert(PriceBookRow).values(team=team, key=book.key, **_values(book))
    written = await session.execute(statement.on_conflict_do_nothing().returning(PriceBookRow.key))
    return written.one_or_none() is not None


async def update_price_book(session: Session, book: PriceBook) -> bool:
    """Store the next revision of a price book; False when it is not in the one before."""
    written = await session.execute(
        update(PriceBookRow)
        .where(PriceBookRow.key == book.key, PriceBookRow.revision == book.revision - 1)
        .values(**_values(book))
        .returning(PriceBookRow.key)
    )
    return written.one_or_none() is not None


async def delete_price_book(session: Session, key: str, *, revision: int) -> bool:
    """Drop a price book; False when it is not in that revision."""
    gone = await session.execute(
        delete(PriceBookRow)
        .where(PriceBookRow.key == key, PriceBookRow.revision == revision)
        .returning(PriceBookRow.key)
    )
    return gone.one_or_none() is not None


def _values(book: PriceBook) -> dict[str, datetime | int | str | Any]:
    return {
        "revision": book.revision,
        "digest": book.digest,
        "created_at": book.created_at,
        "changed_at": book.changed_at,
        "document": book.model_dump(mode="json", include={"note", "rows"}),
    }
