"""Connections for reads that are one statement each: the hot ones, without a session."""

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, Self

import asyncpg

from service.db.session import POOL_SIZE, POOL_WAIT_S, connect


class ReadPool:
    """Lends a connection for the length of one statement that leaves no state.

    asyncpg's own pool resets a connection that comes back, which costs a round trip, and gives it
    back in a task of its own, which costs as much as the rest of a read.
    """

    def __init__(self, url: str, *, size: int = POOL_SIZE) -> None:
        self._connect = partial(connect, url)
        self._places = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection] = []
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Open the first connection, so that a database out of reach is told at the start."""
        self._idle.append(await self._connect())
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what is idle; what is lent is closed when it comes back."""
        self._is_open = False
        while self._idle:
            await self._idle.pop().close()

    async def fetch_row(self, statement: str, *given: Any) -> asyncpg.Record | None:
        """Read one row by a single statement.

        Raises:
            TimeoutError: no connection is free in time.
            InterfaceError: the pool is closed.
        """
        if not self._is_open:
            raise asyncpg.InterfaceError("the pool of connections is closed")
        await self._take_place()
        try:
            return await self._fetch(await self._connection(), statement, given)
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        if self._places.locked():
            async with asyncio.timeout(POOL_WAIT_S):
                await self._places.acquire()
        else:
            await self._places.acquire()

    async def _connection(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    async def _fetch(
        self, connection: asyncpg.Connection, statement: str, given: tuple[Any, ...]
    ) -> asyncpg.Record | None:
        is_usable = False
        try:
            row: asyncpg.Record | None = await connection.fetchrow(statement, *given)
            is_usable = True
        except asyncpg.PostgresError:
            is_usable = True  # a refusal ends the statement alone
            raise
        finally:
            if is_usable and self._is_open:
                self._idle.append(connection)
            else:  # cancelled within the statement, or broken: nothing else may run on it
                connection.terminate()
        return row
