"""Locks of numbers between all workers, held without a transaction or a connection for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg

TAKE = "SELECT pg_try_advisory_lock($1)"
RELEASE = "SELECT pg_advisory_unlock($1)"
ANSWER_LIMIT_S = 5.0
LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


class WorkerLocks:
    """Locks that a worker holds by one connection of its own, opened when first needed.

    They end with the process, or with the connection: then another worker may take a number that is
    still held here. They keep work from being done twice; what is stored needs its own guard.
    """

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]]) -> None:
        self._connect = connect
        self._connection: asyncpg.Connection | None = None
        self._asking = asyncio.Lock()
        self._held: set[int] = set()

    @asynccontextmanager
    async def hold(self, number: int) -> AsyncIterator[bool]:
        """Hold a number (64 bits, signed) for the block; False when somebody holds it already."""
        if number in self._held:  # one connection is given a lock as often as it asks
            yield False
            return
        self._held.add(number)
        try:
            yield await self._ask(TAKE, number)
        finally:
            # Also after a question that was given up, which may have been answered all the same.
            await asyncio.shield(self._release(number))

    async def close(self) -> None:
        """Close the connection, and so free what is held."""
        if self._connection is not None:
            self._connection.terminate()

    async def _release(self, number: int) -> None:
        try:
            with suppress(*LOST):
                await self._ask(RELEASE, number)
        finally:
            self._held.discard(number)

    async def _ask(self, statement: str, number: int) -> bool:
        async with self._asking, asyncio.timeout(ANSWER_LIMIT_S):
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            try:
                return bool(await self._connection.fetchval(statement, number))
            except LOST:
                self._connection.terminate()
                raise
