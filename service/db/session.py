"""Connections that carry the team: one transaction a request, under row-level security."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

STATEMENT_LIMIT_MS = 15_000
"""A statement that runs longer is cancelled: no request may hold a connection for ever."""

POOL_SIZE = 8
"""Connections a worker keeps at most, in each of its two pools."""

POOL_WAIT_S = 3.0
"""How long a request waits for a connection before it is told to come back."""

SET_TEAM = text("SELECT set_config('gpuplan.team', :team, true)")


def _connection_arguments() -> dict[str, Any]:
    return {
        "timeout": 10.0,
        "server_settings": {
            "application_name": "gpuplan",
            "statement_timeout": str(STATEMENT_LIMIT_MS),
            "timezone": "UTC",
        },
    }


async def connect(url: str) -> asyncpg.Connection:
    """Open a connection; asyncpg reads the address, whose options SQLAlchemy does not all know."""
    return await asyncpg.connect(url, **_connection_arguments())


def make_engine(url: str, *, pooled: bool = True, size: int = POOL_SIZE) -> AsyncEngine:
    """An engine on asyncpg for an address in any of PostgreSQL's forms.

    Args:
        url: the address, such as `postgresql://role@host/database`.
        pooled: keep connections; without, each use opens its own, which tests with an event loop
            each need.
        size: connections that are kept at most.
    """
    pool: dict[str, Any] = (
        {"pool_size": size, "max_overflow": 0, "pool_timeout": POOL_WAIT_S}
        if pooled
        else {"poolclass": NullPool}
    )
    return create_async_engine("postgresql+asyncpg://", async_creator=partial(connect, url), **pool)


@asynccontextmanager
async def team_session(engine: AsyncEngine, team: str) -> AsyncIterator[AsyncSession]:
    """A session over one transaction in which only this team's rows are seen and written.

    Commits at the end of the block, rolls back when the block raises.
    """
    async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
        await session.execute(SET_TEAM, {"team": team})
        yield session
