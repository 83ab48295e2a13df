"""Lines that the database writes as CSV are those that the columns of the table would write."""

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from service.db.csv_rows import CsvRows
from service.exports.plan_lines import LINE_FIELDS, plan_constants, plan_line_columns
from service.exports.table import FORMULA_START, CsvForm, cell_text, csv_bytes
from service.plans import read
from service.plans.read import read_summary, stream_lines, stream_lines_csv
from tests.plans.examples import JANUARY, estimate, line, request

HOSTILE = (
    line(1, workload="=cmd|' /C calc'!A0", provider="@SUM(1)", region="'=1", site="'"),
    line(2, workload='a "quote", a comma; and\na line\r\nand another\rend', price_source=""),
    line(3, workload="\uff1d1+1", unit_price=Decimal("-0.000001"), quantity=Decimal("12.5")),
    line(4, workload=" =1+1", provider="\ufeff=1+1", region="\u200b@SUM(1)", site="\u3000-1"),
    line(5, workload="\u202e\xa0+1", provider="'\xad=1", region=" plain", site="\u4e2d"),
    line(6, gpu_count=None, price_as_of_date=date(2026, 9, 18), price_verified=False),
    line(7, amount=Decimal("-12.50"), cash_amount=Decimal(0), workload="Ünïcode €"),
    line(
        8, workload="\\.", charge_period_end=datetime(2027, 1, 18, 15, 54, 17, 246816, tzinfo=UTC)
    ),
)
FORMS = [CsvForm(), CsvForm(decimal_comma=True)]


def rows_wanted(plan, form):
    return CsvRows(
        names=LINE_FIELDS,
        ending=tuple(cell_text(column.cell(None)) for column in plan_constants(plan)),
        formula_start=FORMULA_START,
        separator=form.separator,
        decimal_point=form.decimal_point,
    )


def parsed(content, form):
    text = io.StringIO(content.decode("utf-8"), newline="")
    return list(csv.reader(text, delimiter=form.separator, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("copied_rows", [1, 2, 5_000])
async def test_the_database_writes_what_the_columns_say(store, monkeypatch, form, copied_rows):
    monkeypatch.setattr(read, "COPIED_ROWS", copied_rows)
    made = await store.make(request(name="=plan, \n1"), answer=estimate(HOSTILE))
    async with store.session() as session:
        plan = await read_summary(session, made.id)
    wanted = rows_wanted(plan, form)
    written = [part async for part in stream_lines_csv(store.opener(), made.id, wanted)]
    lines = [each async for batch in stream_lines(store.opener(), made.id) for each in batch]
    _, *expected = parsed(csv_bytes(plan_line_columns(plan), lines, form=form), form)
    assert parsed(b"".join(written), form) == expected
    assert b"".join(written).endswith(b"\r\n")


async def test_rows_without_a_line_break_inside_end_in_cr_lf(store):
    made = await store.make()
    async with store.session() as session:
        plan = await read_summary(session, made.id)
    parts = stream_lines_csv(store.opener(), made.id, rows_wanted(plan, CsvForm()))
    content = b"".join([part async for part in parts])
    assert content.count(b"\r\n") == content.count(b"\n") == len(JANUARY)


async def test_nobody_exports_the_lines_of_another_team(store):
    theirs = await store.make(team="blue")
    parts = stream_lines_csv(store.opener("red"), theirs.id, CsvRows(("month", "amount")))
    assert [part async for part in parts] == []
