"""Any plan's files, summed by another reader, are its totals to the cent.

The reader knows CSV and decimals and nothing of the project: it splits rows, finds columns by name
and adds.
"""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.money.charge_back import Charges, charge_back
from service.core.planners.plan import estimate_fleet
from service.core.plans import PlanRequest, PlanSummary
from service.exports.charge_back import charge_back_columns
from service.exports.focus import FOCUS_FORM, focus_charges, focus_columns
from service.exports.plan_lines import plan_line_columns
from service.exports.plan_pivots import month_table, workload_table
from service.exports.table import CsvForm, csv_bytes
from service.plans.create import make_plan
from tests import strategies
from tests.core.planners.test_plan_laws import laws as all_laws
from tests.core.planners.test_plan_laws import snapshot

laws = settings(all_laws, max_examples=25)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
HALVES = CsvForm(decimal_comma=True, byte_order_mark=True)


def planned(document):
    request = PlanRequest.model_validate({"name": "=1+1", "scenario": document})
    answer, used = estimate_fleet(request.scenario, snapshot=snapshot())
    identity = {"plan_id": UUID(int=1), "team": "red", "now": NOON}
    plan = make_plan(request, answer, used, snapshot=snapshot(), **identity)
    summary = PlanSummary(
        **plan.model_dump(
            include={
                "id",
                "name",
                "created_at",
                "as_of_date",
                "engine_version",
                "derived_from",
                "feasible",
            }
        ),
        catalog_release=plan.catalog_release.version,
        currency=plan.scenario.currency,
        totals=plan.totals,
    )
    return plan, summary, answer.lines


def column_sums(content, *names, delimiter=","):
    """The independent reader: sums of the named columns."""
    text = content.decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    header, body = rows[0], rows[1:]
    places = [header.index(name) for name in names]
    return [
        sum((Decimal(row[place].replace(",", ".") or 0) for row in body), Decimal(0))
        for place in places
    ]


@laws
@given(document=strategies.scenarios(procurement=strategies.procurements()))
def test_the_lines_of_any_plan_sum_to_its_totals_in_either_form(document):
    plan, summary, lines = planned(document)
    if not plan.feasible:
        assert lines == ()
        return
    totals = [plan.totals.amount, plan.totals.cash_amount]
    columns = plan_line_columns(summary)
    assert column_sums(csv_bytes(columns, lines), "amount", "cash_amount") == totals
    other = csv_bytes(columns, lines, form=HALVES)
    assert column_sums(other, "amount", "cash_amount", delimiter=";") == totals


@laws
@given(document=strategies.scenarios(procurement=strategies.procurements()))
def test_quantity_times_unit_price_is_the_amount_of_each_row(document):
    plan, summary, lines = planned(document)
    content = csv_bytes(plan_line_columns(summary), lines).decode()
    for row in csv.DictReader(io.StringIO(content, newline="")):
        exact = Decimal(row["quantity"]) * Decimal(row["unit_price"])
        assert abs(Decimal(row["amount"]) - exact) <= Decimal("0.005"), (plan.scenario, row)


@laws
@given(document=strategies.scenarios(procurement=strategies.procurements()))
def test_summary_months_and_focus_sum_to_the_totals(document):
    plan, summary, lines = planned(document)
    if not plan.feasible:
        return
    amount, cash = plan.totals.amount, plan.totals.cash_amount
    content = csv_bytes(*workload_table(summary, lines))
    assert column_sums(content, "amount", "cash_amount") == [amount, cash]
    for view, expected in (("accrual", amount), ("cash", cash)):
        content = csv_bytes(*month_table(summary, lines, view))
        # Months before the first and after the last line have no column.
        first_line = content.decode().partition("\r\n")[0].split(",")
        by_month = column_sums(content, *set(first_line) & set(plan.scenario.horizon.months))
        assert column_sums(content, "amount") == [expected]
        assert sum(by_month) == expected
    bill = csv_bytes(focus_columns(summary), list(focus_charges(lines)), form=FOCUS_FORM)
    assert column_sums(bill, "EffectiveCost", "BilledCost") == [amount, cash]


@laws
@given(
    document=strategies.scenarios(procurement=strategies.procurements()),
    by=st.sampled_from(("allocation", "usage")),
)
def test_a_charge_back_bears_the_whole_amount_in_either_view(document, by):
    plan, summary, lines = planned(document)
    if not plan.feasible:
        return
    charges = Charges()
    charges.add(lines)
    charged = charge_back(plan, charges, by)
    content = csv_bytes(charge_back_columns(summary, charged), charged.rows)
    used, idle, amount = column_sums(content, "used_amount", "idle_amount", "amount")
    assert amount == used + idle == plan.totals.amount
    busy = sum(line.amount for line in lines if line.use in {"used", "redo"})
    assert used == busy
    assert all(row.idle_amount >= 0 for row in charged.rows)
