"""Wide tables: what is summed across them is what the lines sum to."""

import csv
import io
from decimal import Decimal

import pytest

from service.exports.plan_pivots import month_table, workload_table
from service.exports.table import csv_bytes
from tests.plans.examples import JANUARY, JANUARY_AMOUNT, line, money, serving_line, summary

# A purchase: 750.00 of depreciation in January and March, all cash in January, none in February.
OWNED = {"category": "hardware", "purchase_kind": "owned", "unit": "gpu_month"}
PURCHASE = (
    line(4, **OWNED, amount=Decimal("750.00"), cash_amount=Decimal("40000.00")),
    line(5, **OWNED, amount=Decimal("750.00"), cash_amount=Decimal("-0.01"), month="2027-03"),
    serving_line(6, workload=None, workload_kind="shared", use="idle", **money("0.07")),
)
LINES = (*JANUARY, *PURCHASE)
AMOUNT = JANUARY_AMOUNT + Decimal("1500.07")
CASH = JANUARY_AMOUNT + Decimal("40000.06")


def read(table):
    text = csv_bytes(*table).decode()
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def summed(rows, name):
    return sum(Decimal(row[name]) for row in rows)


def test_workloads_have_a_row_each_and_uses_and_categories_side_by_side():
    rows = read(workload_table(summary(), LINES))
    assert [(row["pool"], row["workload"]) for row in rows] == [
        ("training", "pretrain-70b"),
        ("serving", "assistant"),
        ("serving", ""),
    ]
    training, assistant, nobody = rows
    assert training["hardware_amount"] == "1500.00"
    assert training["gpu_rental_amount"] == "2620784.64"
    assert (assistant["used_amount"], assistant["idle_amount"]) == ("152708.48", "174889.60")
    assert (nobody["workload_kind"], nobody["amount"], nobody["storage_amount"]) == (
        "shared",
        "0.07",
        "0.00",
    )


def test_columns_of_the_wide_tables_sum_to_the_totals():
    rows = read(workload_table(summary(), LINES))
    assert summed(rows, "amount") == AMOUNT
    assert summed(rows, "cash_amount") == CASH
    for ending in ("used", "idle", "redo", "unused_commitment"):
        expected = sum(one.amount for one in LINES if one.use == ending)
        assert summed(rows, f"{ending}_amount") == expected
    categories = [name for name in rows[0] if name in {"gpu_rental_amount", "hardware_amount"}]
    assert sum(summed(rows, name) for name in categories) == AMOUNT


@pytest.mark.parametrize(("view", "total"), [("accrual", AMOUNT), ("cash", CASH)])
def test_months_are_columns_without_gaps_and_sum_to_the_totals(view, total):
    rows = read(month_table(summary(), LINES, view))
    months = [name for name in rows[0] if name.startswith("2027-")]
    assert months == ["2027-01", "2027-02", "2027-03"]
    assert sum(summed(rows, month) for month in months) == summed(rows, "amount") == total
    assert summed(rows, "2027-02") == 0


def test_amounts_of_one_row_stand_in_the_months_in_which_they_fall():
    rows = read(month_table(summary(), PURCHASE[:2], "cash"))
    (row,) = rows
    assert (row["2027-01"], row["2027-02"], row["2027-03"]) == ("40000.00", "0.00", "-0.01")


def test_a_plan_without_lines_has_a_header_alone():
    assert read(workload_table(summary(), ())) == []
    assert read(month_table(summary(), (), "accrual")) == []
