"""Lists by page that stay whole while plans are added; lines and quantities by page and stream."""

import csv
import io
import resource
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from service.core.plans import ReplanRequest
from service.db.csv_rows import CsvRows
from service.db.session import POOL_SIZE, make_engine
from service.exports.plan_lines import plan_line_columns
from service.plans import read, repository
from service.plans.create import Making
from service.plans.errors import InvalidCursor, PlanNotFound
from service.plans.read import (
    line_page,
    plan_page,
    quantity_page,
    read_summary,
    stream_lines,
    stream_lines_csv,
    stream_plans,
    stream_quantities,
)
from service.plans.replan import replan
from service.plans.repository import PlanFilters, QuantityFilters
from tests.plans.conftest import Store, estimator, load_snapshot
from tests.plans.examples import INFEASIBLE, JANUARY, NOON, estimate, line, money, quantity, request

ALL = PlanFilters()
UNKNOWN = UUID(int=1)


async def names(store, filters=ALL, *, team="red"):
    async with store.session(team) as session:
        page = await plan_page(session, filters, cursor=None, limit=200)
    return [plan.name for plan in page.items]


async def make_named(store, *wanted, **arguments):
    return [await store.make(request(name=name), **arguments) for name in wanted]


async def pages_of(read_page):
    """Every page, following the cursors."""
    cursor, pages = None, []
    while True:
        page = await read_page(cursor)
        pages.append(page.items)
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


async def test_plans_come_newest_first(store):
    await make_named(store, "a", "b", "c")
    assert await names(store) == ["c", "b", "a"]


async def test_a_list_shows_what_the_plan_says(store):
    made = await store.make(request(as_of_date="2026-01-31"))
    async with store.session() as session:
        plan = await read_summary(session, made.id)
    assert plan.id == made.id
    assert plan.created_at == NOON + timedelta(seconds=1)
    assert (plan.catalog_release, plan.as_of_date.isoformat()) == ("2026.11.2", "2026-01-31")
    assert plan.totals == estimate().totals


async def test_two_teams_see_nothing_of_each_other(store):
    (theirs,) = await make_named(store, "theirs", team="blue")
    await make_named(store, "ours", team="red")
    assert await names(store, team="red") == ["ours"]
    assert await names(store, team="blue") == ["theirs"]
    async with store.session("red") as session:
        for read_it in (
            read_summary(session, theirs.id),
            line_page(session, theirs.id, cursor=None, limit=1),
            quantity_page(session, theirs.id, QuantityFilters(), cursor=None, limit=1),
        ):
            with pytest.raises(PlanNotFound):
                await read_it
        assert await repository.find_body(session, theirs.id) is None
    assert [rows async for rows in stream_lines(store.opener("red"), theirs.id)] == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ALL, ["100%_Done", "Über", "base"]),
        (PlanFilters(name_contains="ÜB"), ["Über"]),
        (PlanFilters(name_contains="as"), ["base"]),
        (PlanFilters(name_contains="%"), ["100%_Done"]),
        (PlanFilters(name_contains="0__d"), []),
        (PlanFilters(feasible=True), ["Über", "base"]),
        (PlanFilters(feasible=False), ["100%_Done"]),
        (PlanFilters(catalog_release="2026.11.1"), ["Über"]),
        (PlanFilters(catalog_release="1999.1.1"), []),
        (PlanFilters(created_after=NOON + timedelta(seconds=1)), ["100%_Done", "Über"]),
        (PlanFilters(created_before=NOON + timedelta(seconds=3)), ["Über", "base"]),
        (PlanFilters(derived_from=UNKNOWN), []),
        (PlanFilters(name_contains="e", feasible=False), ["100%_Done"]),
    ],
)
async def test_a_list_can_be_filtered(store, filters, expected):
    await store.make(request(name="base"))
    await store.make(request(name="Über", catalog_release="2026.11.1"))
    await store.make(request(name="100%_Done"), answer=INFEASIBLE)
    assert await names(store, filters) == expected


async def test_the_plans_derived_from_one_can_be_listed(store):
    original, _ = await make_named(store, "base", "other")
    await replan(
        store.opener(),
        original.id,
        ReplanRequest(name="again"),
        Making(
            team="red",
            estimate=estimator(estimate()),
            load_snapshot=load_snapshot,
            hold=store.locks.hold,
            **store.next_identity(),
        ),
    )
    assert await names(store, PlanFilters(derived_from=original.id)) == ["again"]


async def test_pages_hold_every_plan_once_while_plans_are_added(store):
    await make_named(store, *"abcdefg")

    async def page(cursor):
        async with store.session() as session:
            found = await plan_page(session, ALL, cursor=cursor, limit=2)
        await store.make(request(name="added meanwhile"))
        return found

    pages = await pages_of(page)
    assert [[plan.name for plan in items] for items in pages] == [
        ["g", "f"],
        ["e", "d"],
        ["c", "b"],
        ["a"],
    ]


async def test_plans_of_one_instant_are_told_apart_by_their_ids(store):
    for name in "abcde":
        await store.make(request(name=name), now=NOON)

    async def page(cursor):
        async with store.session() as session:
            return await plan_page(session, ALL, cursor=cursor, limit=2)

    found = [plan for items in await pages_of(page) for plan in items]
    assert sorted(plan.name for plan in found) == list("abcde")
    assert [plan.id for plan in found] == sorted((plan.id for plan in found), reverse=True)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_the_last_page_has_no_cursor_even_when_it_is_full(store, count):
    await make_named(store, *"ab"[:count])
    async with store.session() as session:
        page = await plan_page(session, ALL, cursor=None, limit=2)
    assert (len(page.items), page.next_cursor) == (count, None)


async def test_lines_are_read_by_page(store):
    made = await store.make()

    async def page(cursor):
        async with store.session() as session:
            return await line_page(session, made.id, cursor=cursor, limit=2)

    assert await pages_of(page) == [JANUARY[:2], JANUARY[2:]]


SCOPES = [quantity(f"run:{run}", name) for run in "ab" for name in ("hours", "tokens")]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (QuantityFilters(), SCOPES),
        (QuantityFilters(scope="run:a"), SCOPES[:2]),
        (QuantityFilters(name="tokens"), SCOPES[1::2]),
        (QuantityFilters(scope="run:b", name="hours"), [SCOPES[2]]),
        (QuantityFilters(scope="run:"), []),
    ],
)
async def test_quantities_are_filtered_and_read_by_page(store, filters, expected):
    made = await store.make(answer=estimate(quantities=tuple(SCOPES)))

    async def page(cursor):
        async with store.session() as session:
            return await quantity_page(session, made.id, filters, cursor=cursor, limit=1)

    pages = await pages_of(page)
    assert [one for items in pages for one in items] == expected
    streamed = [
        one async for rows in stream_quantities(store.opener(), made.id, filters) for one in rows
    ]
    assert streamed == expected


async def test_an_unknown_plan_has_no_pages(store):
    async with store.session() as session:
        with pytest.raises(PlanNotFound):
            await line_page(session, UNKNOWN, cursor=None, limit=1)
        with pytest.raises(PlanNotFound):
            await quantity_page(session, UNKNOWN, QuantityFilters(), cursor=None, limit=1)


async def test_a_malformed_cursor_is_refused_before_anything_is_read(store):
    made = await store.make()
    async with store.session() as session:
        for read_it in (
            plan_page(session, ALL, cursor="?", limit=1),
            line_page(session, made.id, cursor="?", limit=1),
            quantity_page(session, made.id, QuantityFilters(), cursor="?", limit=1),
        ):
            with pytest.raises(InvalidCursor):
                await read_it


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 4])
async def test_streams_give_everything_whatever_the_size_of_a_batch(store, monkeypatch, batch_rows):
    monkeypatch.setattr(read, "BATCH_ROWS", batch_rows)
    made = await store.make()
    await make_named(store, "b", "c")
    lines = [row async for rows in stream_lines(store.opener(), made.id) for row in rows]
    assert tuple(lines) == JANUARY
    plans = [plan async for plans in stream_plans(store.opener(), ALL) for plan in plans]
    assert [plan.name for plan in plans] == ["c", "b", "2027 base case"]


async def test_readers_who_are_slow_hold_no_connection(store, database, monkeypatch):
    monkeypatch.setattr(read, "BATCH_ROWS", 1)
    made = await store.make()
    pooled = Store(make_engine(database.service_url))
    # More than the pool has connections: streams that kept one would leave the rest waiting.
    streams = [stream_lines(pooled.opener(), made.id) for _ in range(POOL_SIZE + 1)]
    for stream in streams:
        assert len(await anext(stream)) == 1
    for stream in streams:
        await stream.aclose()
    await pooled.engine.dispose()


LINE_COUNT = 100_000
FLAT_BYTES = 16 * 2**20


def resident_bytes():
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


async def test_a_long_table_is_streamed_in_flat_memory(store):
    one = line(quantity=Decimal(1), **money("0.01"))
    made = await store.make(answer=estimate((one,) * LINE_COUNT))
    async with store.session() as session:
        plan = await read_summary(session, made.id)
    total, line_count, byte_count = Decimal(0), 0, 0
    before = most = resident_bytes()
    columns = tuple(column.name for column in plan_line_columns(plan))
    rows = CsvRows(columns[: columns.index("plan_id")])
    async for chunk in stream_lines_csv(store.opener(), made.id, rows):
        most = max(most, resident_bytes())
        byte_count += len(chunk)
        for row in csv.reader(io.StringIO(chunk.decode(), newline="")):
            line_count += 1
            assert row[0] == str(line_count)
            total += Decimal(row[17])
    assert line_count == LINE_COUNT
    assert total == plan.totals.amount == Decimal("1000.00")  # 100,000 x 0.01
    assert most - before < FLAT_BYTES < byte_count
