"""Exports opened by a spreadsheet program: sums, types, dates, negative numbers, hostile names.

The lines are those of the contract's January, 2,948,382.72 in all, and a credit of -12.50.
"""

import io
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from uuid import UUID

import openpyxl
import pytest

from service.exports.plan_lines import plan_line_columns
from service.exports.table import CsvForm, csv_bytes
from service.exports.workbook import plan_workbook
from service.plans.create import make_plan
from tests.exports.bought_plans import bought_plan
from tests.exports.libreoffice import ENGLISH, GERMAN, needs_libreoffice, reopened
from tests.plans.examples import (
    ASSUMPTIONS,
    JANUARY,
    JANUARY_AMOUNT,
    NOON,
    estimate,
    line,
    money,
    request,
    snapshot,
    summary,
)

NAME = "=1+1"
CREDIT = line(
    4,
    workload=NAME,
    month="2027-02",
    charge_period_start=datetime(2027, 2, 1, tzinfo=UTC),
    charge_period_end=datetime(2027, 3, 1, tzinfo=UTC),
    category="credit",
    quantity=Decimal(1),
    unit_price=Decimal("-12.5"),
    price_as_of_date=date(2026, 9, 18),
    **money("-12.50"),
)
LINES = (*JANUARY, CREDIT)
TOTAL = JANUARY_AMOUNT + Decimal("-12.50")


def plan(lines=LINES):
    return make_plan(
        request(name=NAME),
        estimate(lines),
        ASSUMPTIONS,
        snapshot=snapshot(),
        plan_id=UUID(int=1),
        team="local",
        now=NOON,
    )


def by_header(sheet):
    header, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def sums(sheet):
    """Amounts of the sheet of sums by their label."""
    return {row[0]: row[1] for row in sheet.iter_rows(values_only=True) if row[0]}


@needs_libreoffice
@pytest.mark.parametrize(
    ("form", "language"),
    [
        (CsvForm(), ENGLISH),
        (CsvForm(byte_order_mark=True), ENGLISH),
        (CsvForm(byte_order_mark=True, decimal_comma=True), GERMAN),
    ],
)
def test_a_spreadsheet_reads_sums_types_dates_and_names_of_the_csv(tmp_path, form, language):
    source = tmp_path / "lines.csv"
    source.write_bytes(csv_bytes(plan_line_columns(summary(name=NAME)), LINES, form=form))
    book = reopened(source, tmp_path, separator=form.separator, language=language)
    rows = by_header(book.active)
    first, *_, credit = rows
    assert sum(Decimal(str(row["amount"])) for row in rows) == TOTAL
    assert (credit["amount"], credit["unit_price"]) == (-12.5, -12.5)
    assert first["quantity"] == 380_928
    assert credit["price_as_of_date"] == datetime(2026, 9, 18)  # noqa: DTZ001 a cell has no zone
    assert credit["workload"].lstrip("'") == credit["plan_name"].lstrip("'") == NAME
    assert next(iter(first)) == "line_number"  # no byte-order mark before it


@needs_libreoffice
def test_a_spreadsheet_recalculates_the_sums_of_the_workbook(tmp_path):
    """Saved again without the values that came with the formulas, so that none can be shown."""
    bare = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(), LINES)))
    source = tmp_path / "plan.xlsx"
    bare.save(source)
    book = reopened(source, tmp_path)
    found = sums(book["Summary"])
    assert found["total"] == pytest.approx(float(TOTAL), abs=0.001)
    assert found["2027-01"] == pytest.approx(float(JANUARY_AMOUNT), abs=0.001)
    assert found["2027-02"] == found["credit"] == -12.5
    assert found["serving"] == pytest.approx(327_598.08, abs=0.001)  # 152,708.48 + 174,889.60
    credit = by_header(book["Lines"])[-1]
    assert credit["workload"] == NAME
    assert credit["charge_period_end"] == datetime(2027, 3, 1)  # noqa: DTZ001 a cell has no zone


def test_the_sample_is_bought_in_every_way():
    _, _, lines = bought_plan()
    assert {line.purchase_kind for line in lines} == {"owned", "hosted", "committed_1yr", "spot"}
    assert {line.use for line in lines} == {"used", "idle", "redo", "unused_commitment"}
    units = {line.unit for line in lines if line.purchase_kind == "hosted"}
    assert {f"million_{kind}_tokens" for kind in ("input", "cached_input", "output")} == units
    assert any(line.formula.startswith("sunk") for line in lines)
    hardware = [each for each in lines if each.category == "hardware" and each.cash_amount]
    assert len({line.month for line in hardware}) > 1  # bought in more than one month
    assert {line.workload for line in lines} >= {"-1+2", "=1+1", "@bought"}


@needs_libreoffice
@pytest.mark.parametrize(
    ("form", "language"),
    [(CsvForm(), ENGLISH), (CsvForm(byte_order_mark=True, decimal_comma=True), GERMAN)],
)
def test_a_spreadsheet_sums_a_plan_bought_in_every_way_to_its_totals(tmp_path, form, language):
    """Each line again by the spreadsheet's numbers: the digits that a double identifies."""
    bought, listed, lines = bought_plan()
    source = tmp_path / "lines.csv"
    source.write_bytes(csv_bytes(plan_line_columns(listed), lines, form=form))
    book = reopened(source, tmp_path, separator=form.separator, language=language)
    rows = by_header(book.active)
    assert len(rows) == len(lines)
    for name in ("amount", "cash_amount"):
        assert sum(Decimal(str(row[name])) for row in rows) == getattr(bought.totals, name)
    for row, each in zip(rows, lines, strict=True):
        exact = Decimal(str(row["quantity"])) * Decimal(str(row["unit_price"]))
        assert exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN) == each.amount
        assert (row["workload"] or "").lstrip("'") == (each.workload or "")
        assert row["plan_name"].lstrip("'") == bought.name


@needs_libreoffice
def test_a_spreadsheet_recalculates_the_workbook_of_a_plan_bought_in_every_way(tmp_path):
    bought, _, lines = bought_plan()
    bare = openpyxl.load_workbook(io.BytesIO(plan_workbook(bought, lines)))
    source = tmp_path / "plan.xlsx"
    bare.save(source)
    book = reopened(source, tmp_path)
    labels = {row[0]: row[1:3] for row in book["Summary"].iter_rows(values_only=True) if row[0]}
    assert labels["total"] == pytest.approx(
        (float(bought.totals.amount), float(bought.totals.cash_amount)), abs=0.001
    )
    for month in bought.months:
        assert labels[month.month][0] == pytest.approx(float(month.amount), abs=0.001)
    tokens = sum(line.amount for line in lines if line.category == "hosted_tokens")
    assert labels["hosted_tokens"][0] == pytest.approx(float(tokens), abs=0.001)
    assert {row["workload"] for row in by_header(book["Lines"])} >= {"-1+2", "=1+1", "@bought"}


def test_the_workbook_shows_values_to_readers_that_do_not_calculate():
    content = io.BytesIO(plan_workbook(plan(), LINES))
    assert sums(openpyxl.load_workbook(content, data_only=True)["Summary"])["total"] == float(TOTAL)


def test_totals_of_the_workbook_are_formulas_over_its_lines():
    book = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(), LINES)))
    assert book.sheetnames == ["Summary", "Inputs", "Lines"]
    found = sums(book["Summary"])
    assert found["total"] == "=SUM(Lines!$R$2:$R$5)"
    assert book["Lines"]["R1"].value == "amount"
    labels = {"2027-01", "2027-02", "training", "serving", "gpu_rental", "credit", "used", "idle"}
    assert all(found[label].startswith("=SUMPRODUCT(") for label in labels)


def test_every_text_of_the_workbook_is_text_and_every_number_a_number():
    book = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(), LINES)))
    *_, credit = by_header(book["Lines"])
    assert credit["workload"] == NAME
    assert book["Lines"].cell(5, 7).data_type == "s"
    assert (credit["amount"], credit["quantity"], credit["gpu_count"]) == (-12.5, 1, 512)
    assert credit["price_verified"] is True
    assert credit["provider"] is None
    assert book["Summary"]["B1"].value == NAME
    assert book["Summary"]["B1"].data_type == "s"


def test_inputs_have_a_sheet_of_their_own():
    book = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(), LINES)))
    cells = {row[0]: row[1] for row in book["Inputs"].iter_rows(values_only=True) if row[0]}
    assert cells["/scenario/horizon/start_month"] == "2027-01"
    assert cells["/scenario/serving_services/0/load/peak_requests_per_s"] == 40
    assert cells["/scenario/procurement/0/method/price_per_gpu_hour"] == "6.88"
    assert cells["spare_fraction"] == 0.1


def test_a_plan_without_lines_still_has_a_workbook():
    book = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(()), ())), data_only=True)
    assert sums(book["Summary"])["total"] == 0


def test_the_workbook_of_a_plan_is_stamped_with_the_plan_s_time():
    """So that it is the same file, and has the same tag, whenever it is made."""
    stamps = openpyxl.load_workbook(io.BytesIO(plan_workbook(plan(), LINES))).properties
    assert stamps.created.replace(tzinfo=UTC) == NOON
    assert stamps.modified.replace(tzinfo=UTC) == NOON
