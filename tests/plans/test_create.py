"""A plan is stored once, as the bytes that are answered, whole or not at all."""

import asyncio
import csv
import io
import json
import math
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy.exc import DBAPIError

from service.core.errors import UnknownKey
from service.db.reads import ReadPool
from service.exports.plan_lines import plan_line_columns
from service.exports.table import csv_bytes
from service.plans import repository
from service.plans.read import line_page, quantity_page, read_summary
from service.plans.repository import QuantityFilters
from tests.plans.examples import (
    ASSUMPTIONS,
    INFEASIBLE,
    JANUARY,
    JANUARY_AMOUNT,
    QUANTITIES,
    REQUEST,
    estimate,
    line,
    money,
    quantity,
    request,
)

TABLES = ("plan", "plan_line", "plan_quantity", "idempotency_key")


async def stored_lines(store, plan_id):
    async with store.session() as session:
        return (await line_page(session, plan_id, cursor=None, limit=200)).items


async def test_the_answer_is_the_request_resolved_and_the_estimate(store):
    made = await store.make(team="red")
    document = json.loads(made.body)
    plan_id = str(made.id)
    assert document["id"] == plan_id
    assert (document["schema_version"], document["team"]) == (1, "red")
    assert document["catalog_release"] == {"version": "2026.11.2", "digest": "sha256:two"}
    assert document["as_of_date"] == "2026-11-29"
    assert document["created_at"] == "2026-11-29T12:00:01Z"
    assert document["scenario"] == REQUEST["scenario"]  # as sent: no default is written into it
    assert document["totals"]["amount"] == str(JANUARY_AMOUNT)
    assert document["derived_from"] is None
    assert document["line_count"] == len(JANUARY)
    assert document["links"] == {
        "lines": f"/v1/plans/{plan_id}/lines",
        "quantities": f"/v1/plans/{plan_id}/quantities",
    }
    assert [one["name"] for one in document["assumptions"]] == [one.name for one in ASSUMPTIONS]
    assert {"lines", "quantities"}.isdisjoint(document)


async def test_every_read_gives_the_bytes_that_were_answered(store, database):
    made = await store.make()
    async with store.session() as session:
        assert (await repository.find_body(session, made.id)).body == made.body
    async with ReadPool(database.service_url) as pool:
        assert (await repository.read_body(pool, "red", made.id)).body == made.body
        assert await repository.read_body(pool, "blue", made.id) is None
        assert await repository.read_body(pool, "red", UUID(int=1)) is None


async def test_the_as_of_date_is_the_day_in_utc(store):
    tokyo = timezone(timedelta(hours=9))
    made = await store.make(now=datetime(2026, 11, 30, 8, tzinfo=tokyo))  # 23:00 the day before
    assert json.loads(made.body)["as_of_date"] == "2026-11-29"


async def test_a_release_and_a_day_that_are_named_are_kept(store):
    made = await store.make(request(catalog_release="2026.11.1", as_of_date="2025-06-30"))
    document = json.loads(made.body)
    assert document["catalog_release"]["version"] == "2026.11.1"
    assert document["as_of_date"] == "2025-06-30"


async def test_lines_and_quantities_come_back_as_they_were(store):
    made = await store.make()
    assert await stored_lines(store, made.id) == JANUARY
    async with store.session() as session:
        page = await quantity_page(session, made.id, QuantityFilters(), cursor=None, limit=200)
    assert page.items == QUANTITIES
    assert page.items[1].inputs == QUANTITIES[1].inputs


async def test_quantities_and_prices_are_printed_to_the_last_digit_that_counts(store):
    lines = (line(quantity=Decimal("597967.252881"), unit_price=Decimal("2.500000")),)
    made = await store.make(answer=estimate(lines))
    (stored,) = await stored_lines(store, made.id)
    document = json.loads(stored.model_dump_json())
    assert (document["quantity"], document["unit_price"]) == ("597967.252881", "2.5")
    assert (document["amount"], document["charge_period_start"]) == (
        "2620784.64",
        "2027-01-01T00:00:00Z",
    )


async def test_more_rows_than_one_statement_takes_keep_their_order(store, monkeypatch):
    monkeypatch.setattr(repository, "INSERT_ROWS", 4)
    lines = tuple(line(number, month=f"2027-{number:02}") for number in range(1, 11))
    quantities = tuple(quantity("plan", f"q{number}", float(number)) for number in range(9))
    made = await store.make(answer=estimate(lines, quantities))
    assert await stored_lines(store, made.id) == lines
    async with store.session() as session:
        found = await quantity_page(session, made.id, QuantityFilters(), cursor=None, limit=200)
    assert found.items == quantities


async def test_the_sums_of_the_csv_are_the_totals(store):
    made = await store.make()
    async with store.session() as session:
        plan = await read_summary(session, made.id)
        lines = (await line_page(session, made.id, cursor=None, limit=200)).items
    content = csv_bytes(plan_line_columns(plan), lines).decode()
    rows = list(csv.DictReader(io.StringIO(content, newline="")))
    totals = json.loads(made.body)["totals"]
    for name in ("amount", "cash_amount"):
        assert sum(Decimal(row[name]) for row in rows) == Decimal(totals[name]) == JANUARY_AMOUNT


async def test_an_infeasible_answer_is_a_plan_without_totals(store):
    made = await store.make(answer=INFEASIBLE)
    document = json.loads(made.body)
    assert (document["feasible"], document["totals"], document["line_count"]) == (False, None, 0)
    assert document["infeasibilities"][0]["nearest_fix"] == "two GPUs a replica"
    async with store.session() as session:
        summary = await read_summary(session, made.id)
    assert (summary.feasible, summary.totals, summary.currency) == (False, None, "USD")


async def test_the_largest_amounts_are_kept_to_the_cent(store):
    largest = line(**money("999999999999.99"), quantity=Decimal("999999999999.999999"))
    made = await store.make(answer=estimate((largest,)))
    assert await stored_lines(store, made.id) == (largest,)


NAMES = [
    "=cmd|' /C calc'!A0",
    "\tleading tab",
    'quote " comma , newline \n',
    "\u202egnp.txt",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "Cafe\u0301",
    "x" * 200,
    "\\u0000 {\"json\": [1]} ', '); DROP TABLE plan; --",
]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_stored_as_given(store, name):
    lines = (line(workload=name),)
    made = await store.make(request(name=name), answer=estimate(lines, (quantity(f"run:{name}"),)))
    assert json.loads(made.body)["name"] == name
    async with store.session() as session:
        assert (await read_summary(session, made.id)).name == name
        wanted = QuantityFilters(scope=f"run:{name}")
        page = await quantity_page(session, made.id, wanted, cursor=None, limit=1)
    assert page.items[0].scope == f"run:{name}"
    assert (await stored_lines(store, made.id))[0].workload == name


async def test_an_input_that_is_not_finite_is_null(store):
    made = await store.make(answer=estimate(quantities=(quantity(inputs={"x": math.inf}),)))
    async with store.session() as session:
        page = await quantity_page(session, made.id, QuantityFilters(), cursor=None, limit=1)
    assert page.items[0].inputs == {"x": None}


async def assert_nothing_stored(store):
    assert [await store.count(table) for table in TABLES] == [0, 0, 0, 0]


async def test_a_scenario_that_cannot_be_answered_leaves_nothing(store):
    def refuse(scenario, *, snapshot):
        raise UnknownKey("gpu", "h900", release="2026.11.1", pointer="/scenario")

    with pytest.raises(UnknownKey):
        await store.make(estimate=refuse, idempotency_key="k")
    await assert_nothing_stored(store)


async def test_a_failure_after_the_first_insert_leaves_nothing(store):
    # NUL cannot be in jsonb: the last of the three inserts fails.
    broken = estimate(quantities=(quantity(inputs={"x": "\x00"}),))
    with pytest.raises(DBAPIError):
        await store.make(answer=broken, idempotency_key="k")
    await assert_nothing_stored(store)


async def test_an_estimate_does_not_hold_the_event_loop(store):
    """The estimate ends only when the loop, in the meantime, has done something else."""
    loop_ran = threading.Event()
    threads = []

    def slow(scenario, *, snapshot):
        threads.append(threading.current_thread())
        assert loop_ran.wait(timeout=30)
        return estimate(), ASSUMPTIONS

    async def something_else():
        loop_ran.set()

    await asyncio.gather(store.make(estimate=slow), something_else())
    assert threads != [threading.main_thread()]


async def test_an_estimate_cannot_be_given_a_session_or_a_clock(store):
    """What it answers follows from the scenario and the snapshot alone."""
    given = []

    def watch(*arguments, **named):
        given.append((arguments, named))
        return estimate(), ASSUMPTIONS

    await store.make(estimate=watch)
    (((scenario,), named),) = given
    assert scenario == request().scenario
    assert set(named) == {"snapshot"}
