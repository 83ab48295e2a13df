"""Releases and their entries in the database: written once, read for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime
from typing import Any

from sqlalchemy import ARRAY, Integer, Select, cast, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from service.catalog.content import (
    KINDS,
    CatalogContent,
    Kind,
    entry_key,
    from_document,
    to_document,
)
from service.catalog.release import LATEST, Release, UnknownRelease
from service.core.errors import UnknownKey
from service.db.reads import ReadPool
from service.db.tables import CatalogEntry, CatalogRelease

Session = AsyncSession
"""A session over one transaction; who opened it commits."""

PUBLISHING = 0x67_70_75_70
"""Key of the lock that lets one publisher in at a time."""

_VERSION_NUMBERS = cast(func.string_to_array(CatalogRelease.version, "."), ARRAY(Integer))


def _release(row: CatalogRelease) -> Release:
    return Release(
        version=row.version,
        digest=row.digest,
        published_at=row.published_at,
        retired_at=row.retired_at,
        notes=row.notes,
    )


async def list_releases(
    session: Session, *, limit: int, before: str | None = None
) -> list[Release]:
    """Releases, the newest first, retired ones too; those older than `before` where it is given."""
    query = select(CatalogRelease).order_by(_VERSION_NUMBERS.desc()).limit(limit)
    if before is not None:
        bound = cast(func.string_to_array(before, "."), ARRAY(Integer))
        query = query.where(bound > _VERSION_NUMBERS)
    return [_release(row) for row in await session.scalars(query)]


async def read_retirements(pool: ReadPool) -> dict[str, datetime]:
    """When each retired release was retired, by version."""
    statement = (
        "SELECT array_agg(version) AS versions, array_agg(retired_at) AS days"
        " FROM catalog_release WHERE retired_at IS NOT NULL"
    )
    row = await pool.fetch_row(statement)
    if row is None or row["versions"] is None:
        return {}
    return dict(zip(row["versions"], row["days"], strict=True))


async def find_release(
    session: Session, choice: str, *, pointer: str = "", lock: bool = False
) -> Release:
    """The release of a version, or the newest that is not retired for "latest".

    With `lock` nobody else changes it before the transaction ends.

    Raises:
        UnknownRelease: There is none.
    """
    query = select(CatalogRelease)
    if choice == LATEST:
        query = query.where(CatalogRelease.retired_at.is_(None))
        query = query.order_by(_VERSION_NUMBERS.desc()).limit(1)
    else:
        query = query.where(CatalogRelease.version == choice)
    row = await session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise UnknownRelease(choice, pointer=pointer)
    return _release(row)


async def find_release_of_digest(session: Session, digest: str) -> Release | None:
    """The release of this content, if it was ever published."""
    row = await session.scalar(select(CatalogRelease).where(CatalogRelease.digest == digest))
    return None if row is None else _release(row)


async def count_entries(session: Session, version: str) -> dict[Kind, int]:
    """Entries of each kind in a release."""
    query = (
        select(CatalogEntry.kind, func.count())
        .where(CatalogEntry.release_version == version)
        .group_by(CatalogEntry.kind)
    )
    rows = await session.execute(query)
    counts: dict[str, int] = dict(rows.all())
    return {kind: counts.get(kind, 0) for kind in KINDS}


def _entries(version: str, kind: Kind) -> Select[Any]:
    return (
        select(CatalogEntry.position, CatalogEntry.document)
        .where(CatalogEntry.release_version == version, CatalogEntry.kind == kind)
        .order_by(CatalogEntry.position)
    )


async def list_entries(
    session: Session, version: str, kind: Kind, *, limit: int, after: int = -1
) -> list[tuple[int, Any]]:
    """Entries of one kind as core values, each with its position, from after a position on."""
    query = _entries(version, kind).where(CatalogEntry.position > after).limit(limit)
    rows = await session.execute(query)
    return [(position, from_document(kind, document)) for position, document in rows]


async def stream_entries(session: Session, version: str, kind: Kind) -> AsyncIterator[Any]:
    """Every entry of one kind as core values, without holding them all."""
    async for _, document in await session.stream(_entries(version, kind)):
        yield from_document(kind, document)


async def get_entry(
    session: Session, version: str, kind: Kind, key: str, *, pointer: str = ""
) -> Any:
    """One entry as its core value.

    Raises:
        UnknownKey: The release has no such entry.
    """
    query = select(CatalogEntry.document).where(
        CatalogEntry.release_version == version,
        CatalogEntry.kind == kind,
        CatalogEntry.key == key,
    )
    document = await session.scalar(query)
    if document is None:
        noun = kind.removesuffix("s").replace("_", " ")
        raise UnknownKey(noun, key, release=version, pointer=pointer)
    return from_document(kind, document)


async def load_documents(session: Session, version: str) -> dict[Kind, list[Any]]:
    """Every entry of a release as it is stored, kind by kind."""
    query = (
        select(CatalogEntry.kind, CatalogEntry.document)
        .where(CatalogEntry.release_version == version)
        .order_by(CatalogEntry.kind, CatalogEntry.position)
    )
    documents: dict[Kind, list[Any]] = {kind: [] for kind in KINDS}
    for kind, document in await session.execute(query):
        documents[kind].append(document)
    return documents


async def lock_publishing(session: Session) -> None:
    """Wait until no other transaction publishes; held to the end of this one."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PUBLISHING})


async def next_version(session: Session, today: date) -> str:
    """The next calendar version of the month: year, month, number in the month from 1."""
    month = f"{today.year}.{today.month}"
    number = cast(func.split_part(CatalogRelease.version, ".", 3), Integer)
    query = select(func.max(number)).where(CatalogRelease.version.like(f"{month}.%"))
    return f"{month}.{(await session.scalar(query) or 0) + 1}"


async def insert_release(session: Session, release: Release, content: CatalogContent) -> None:
    """Write a release and all its entries."""
    await session.execute(insert(CatalogRelease).values(**release.model_dump()))
    rows: list[dict[str, Any]] = []
    positions = dict.fromkeys(KINDS, 0)
    for kind, value in content.entries():
        rows.append(
            {
                "release_version": release.version,
                "kind": kind,
                "key": entry_key(value),
                "position": positions[kind],
                "document": to_document(value),
            }
        )
        positions[kind] += 1
    await session.execute(insert(CatalogEntry), rows)


async def retire_release(session: Session, release: Release, now: datetime) -> Release:
    """Take a release out of "latest"; it stays readable under its version."""
    statement = update(CatalogRelease).where(CatalogRelease.version == release.version)
    await session.execute(statement.values(retired_at=now))
    return release.model_copy(update={"retired_at": now})
