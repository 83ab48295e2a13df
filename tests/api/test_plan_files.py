"""Every file of a plan, summed by an independent reader, gives the totals that the plan answers."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest

ROOT = Path(__file__).resolve().parents[2]
RENTED = json.loads((ROOT / "openapi" / "examples" / "create_plan.request.json").read_bytes())
METHOD = {
    "kind": "own",
    "purchase_price_per_gpu": "30000.01",
    "network_price_per_gpu": "3333.33",
    "useful_life_years": 3,
    "residual_fraction": 0.07,
}
OWNED = {
    **RENTED,
    "name": "=owned",
    "scenario": {**RENTED["scenario"], "procurement": [{"method": METHOD}]},
}


COMMITTED = {
    "kind": "rent",
    "provider": "aws",
    "commitment": "committed_1yr",
    "price_per_gpu_hour": "4.24",
    "gpu_count_per_instance": 8,
}
MIX = {
    "kind": "mix",
    "committed": COMMITTED,
    "rest": {"kind": "rent", "commitment": "spot", "price_per_gpu_hour": "5.07"},
    "committed_gpu_count": 48,
    "paid_upfront": True,
}
MIXED = {
    **RENTED,
    "name": "mixed",
    "scenario": {**RENTED["scenario"], "procurement": [{"method": MIX}]},
}


@pytest.fixture(params=[RENTED, OWNED, MIXED], ids=["rented", "owned", "mixed"])
def plan(request, client):
    answer = client.post("/v1/plans", json=request.param)
    assert answer.status_code == 201, answer.text
    return answer.json()


def table(client, plan, name, *, separator=",", **query):
    answer = client.get(f"/v1/plans/{plan['id']}/{name}.csv", params=query)
    assert answer.status_code == 200, answer.text
    text = io.StringIO(answer.content.decode("utf-8-sig"), newline="")
    return list(csv.DictReader(text, delimiter=separator, strict=True))


def total(rows, name):
    return sum(Decimal(row[name].replace(",", ".")) for row in rows)


def totals(plan):
    return Decimal(plan["totals"]["amount"]), Decimal(plan["totals"]["cash_amount"])


@pytest.mark.parametrize("name", ["lines", "summary"])
def test_amounts_sum_to_the_totals(client, plan, name):
    rows = table(client, plan, name)
    assert (total(rows, "amount"), total(rows, "cash_amount")) == totals(plan)


def test_the_other_form_holds_the_same_amounts(client, plan):
    query = {"decimal_comma": "true", "byte_order_mark": "true"}
    rows = table(client, plan, "lines", separator=";", **query)
    assert "," in rows[0]["amount"]
    assert (total(rows, "amount"), total(rows, "cash_amount")) == totals(plan)


def test_months_sum_to_the_total_of_their_view(client, plan):
    accrual, cash = (table(client, plan, "months", view=view) for view in ("accrual", "cash"))
    assert (total(accrual, "amount"), total(cash, "amount")) == totals(plan)
    for month in plan["months"]:
        assert total(accrual, month["month"]) == Decimal(month["amount"])


def test_effective_and_billed_costs_sum_to_the_totals(client, plan):
    rows = table(client, plan, "focus")
    assert (total(rows, "EffectiveCost"), total(rows, "BilledCost")) == totals(plan)


def test_the_workbook_holds_the_lines_and_their_sums(client, plan):
    answer = client.get(f"/v1/plans/{plan['id']}/workbook.xlsx")
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    book = openpyxl.load_workbook(io.BytesIO(answer.content), data_only=True)
    cells = {row[0]: row[1:3] for row in book["Summary"].iter_rows(values_only=True) if row[0]}
    assert cells["total"] == tuple(float(amount) for amount in totals(plan))
    assert cells["name"][0] == plan["name"]
    assert book["Lines"].max_row == plan["line_count"] + 1


def test_files_of_a_plan_that_is_not_there_are_not_found(client):
    for name in ("summary.csv", "months.csv", "focus.csv", "workbook.xlsx"):
        answer = client.get(f"/v1/plans/00000000-0000-7000-8000-000000000000/{name}")
        assert answer.status_code == 404


def test_a_commitment_is_paid_before_it_is_used(client):
    """48 GPUs of each of two pools for a year at 4.24: 2 x 48 x 8,760 x 4.24 = 3,565,670.40."""
    plan = client.post("/v1/plans", json=MIXED).json()
    rows = table(client, plan, "lines")
    committed = [row for row in rows if row["purchase_kind"] == "committed_1yr"]
    january = [row for row in committed if row["month"] == "2027-01"]
    assert total(committed, "amount") == total(january, "cash_amount") == Decimal("3565670.40")
    assert any(row["use"] == "unused_commitment" for row in committed)
    assert any(row["use"] == "redo" and row["workload"] == "pretrain-70b" for row in rows)
