"""All SQL on API keys.

The service asks one question, by hash, through a function of the database. Everything else is for
the role that owns the tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.access.scopes import Caller
from service.db.errors import DatabaseError
from service.db.migrate import migration_status
from service.db.reads import ReadPool
from service.db.session import make_engine
from service.db.tables import ApiKeyRow

Connection = AsyncConnection
"""A connection in a transaction, as the role that owns the tables."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: all but the key itself."""

    id: UUID
    team: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    """The first moment at which it no longer works."""
    revoked_at: datetime | None


INSUFFICIENT_PRIVILEGE = "42501"
_COLUMNS = (
    ApiKeyRow.id,
    ApiKeyRow.team,
    ApiKeyRow.name,
    ApiKeyRow.scopes,
    ApiKeyRow.created_at,
    ApiKeyRow.expires_at,
    ApiKeyRow.revoked_at,
)


@asynccontextmanager
async def owner_transaction(url: str) -> AsyncIterator[Connection]:
    """Open a transaction as the role that owns the tables; it commits at the end of the block.

    Raises:
        DatabaseError: the database cannot be reached, is not migrated, or the role is another one.
    """
    engine = make_engine(url, pooled=False)
    try:
        status = await migration_status(engine)
        if not status.is_current:
            raise DatabaseError(
                f"the database is at revision {status.applied}, this code needs "
                f"{status.expected}: run `gpuplan migrate` first."
            )
        async with engine.begin() as connection:
            yield connection
    except (OSError, asyncpg.PostgresError) as error:
        raise DatabaseError(f"cannot reach the database: {error}") from error
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != INSUFFICIENT_PRIVILEGE:
            raise
        raise DatabaseError(
            "the role of DATABASE_URL may not manage keys; set DATABASE_MIGRATION_URL to the role "
            "that owns the tables."
        ) from error


def _api_key(row: Row[*tuple[Any, ...]]) -> ApiKey:
    key = ApiKey(*row)
    return replace(key, scopes=tuple(key.scopes))


async def find_caller(pool: ReadPool, key_hash: bytes) -> Caller | None:
    """Find whose key this is; None when it is unknown, expired or revoked."""
    row = await pool.fetch_row("SELECT team, scopes FROM find_api_key($1)", key_hash)
    return None if row is None else Caller(row["team"], frozenset(row["scopes"]))


async def insert_key(connection: Connection, key: ApiKey, key_hash: bytes) -> None:
    """Keep a new key by its hash."""
    await connection.execute(
        insert(ApiKeyRow).values(
            id=key.id,
            team=key.team,
            name=key.name,
            scopes=list(key.scopes),
            key_hash=key_hash,
            created_at=key.created_at,
            expires_at=key.expires_at,
        )
    )


async def list_keys(connection: Connection, team: str | None) -> Sequence[ApiKey]:
    """List the keys of a team, or of all teams, in the order in which they were made."""
    query = select(*_COLUMNS).order_by(ApiKeyRow.team, ApiKeyRow.created_at, ApiKeyRow.id)
    if team is not None:
        query = query.where(ApiKeyRow.team == team)
    rows = await connection.execute(query)
    return [_api_key(row) for row in rows]


async def revoke_key(connection: Connection, key_id: UUID, now: datetime) -> ApiKey | None:
    """Revoke a key; the moment of the first time stays. None when there is no such key."""
    statement = (
        update(ApiKeyRow)
        .where(ApiKeyRow.id == key_id)
        .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, now))
        .returning(*_COLUMNS)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else _api_key(row)
