"""Connections of the hot reads: lent for one statement, replaced when broken, bounded in number."""

import asyncio

import asyncpg
import pytest

from service.db import reads
from service.db.reads import ReadPool

pytestmark = pytest.mark.anyio
WHO = "SELECT pg_backend_pid()"


@pytest.fixture
async def pool(database):
    async with ReadPool(database.service_url, size=2) as pool:
        yield pool


async def value(pool, statement, *given):
    [found] = await pool.fetch_row(statement, *given)
    return found


async def test_one_connection_serves_reads_in_a_row(pool):
    assert len({await value(pool, WHO) for _ in range(5)}) == 1


async def test_a_refused_statement_leaves_the_connection_as_it_was(pool):
    before = await value(pool, WHO)
    with pytest.raises(asyncpg.UndefinedTableError):
        await pool.fetch_row("SELECT * FROM nowhere")
    assert await value(pool, WHO) == before


async def test_a_cancelled_read_gives_its_connection_to_nobody(pool):
    before = await value(pool, WHO)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await pool.fetch_row("SELECT pg_sleep(5)")
    assert await value(pool, WHO) != before
    assert await value(pool, "SELECT 1 + $1::int", 1) == 2


async def test_a_connection_that_the_server_ended_is_replaced(pool, database):
    before = await value(pool, WHO)
    owner = await asyncpg.connect(database.service_url)
    assert await owner.fetchval("SELECT pg_terminate_backend($1)", before)
    await owner.close()
    await asyncio.sleep(0.1)  # the end of the connection arrives
    assert await value(pool, WHO) != before


async def test_no_more_connections_are_open_than_allowed(pool):
    pids = await asyncio.gather(
        *(value(pool, "SELECT pg_backend_pid() FROM pg_sleep(0.02)") for _ in range(8))
    )
    assert len(set(pids)) == 2


async def test_who_waits_too_long_is_told(pool, monkeypatch):
    monkeypatch.setattr(reads, "POOL_WAIT_S", 0.05)
    busy = [asyncio.create_task(pool.fetch_row("SELECT pg_sleep(0.5)")) for _ in range(2)]
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        await pool.fetch_row(WHO)
    await asyncio.gather(*busy)
    assert await value(pool, WHO)


async def test_a_closed_pool_says_so(database):
    async with ReadPool(database.service_url) as pool:
        assert await value(pool, WHO)
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await pool.fetch_row(WHO)
