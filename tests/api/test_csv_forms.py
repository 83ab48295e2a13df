"""Every table in either form: `,` and point, or `;` and comma, with a byte-order mark or none."""

import csv
import io
from decimal import Decimal

import pytest

from service.api.openapi import build_spec, query_parameters
from tests.api.plans_made import EXAMPLE, create, request

SPEC = build_spec()
TABLES = {
    operation["operationId"]
    for item in SPEC["paths"].values()
    for operation in item.values()
    if any("text/csv" in each.get("content", {}) for each in operation["responses"].values())
}
# Its form is the specification's own.
FIXED = {"export_plan_focus_csv"}


def test_every_table_but_the_bill_takes_both_forms():
    parameters = query_parameters(SPEC)
    takes = {
        name for name in TABLES if {"byte_order_mark", "decimal_comma"} <= set(parameters[name])
    }
    assert takes == TABLES - FIXED


@pytest.fixture(scope="module")
def addresses(server_url):
    import httpx

    with httpx.Client(base_url=server_url, timeout=30) as client:
        first = create(client, EXAMPLE).json()["id"]
        rent = {"kind": "rent", "price_per_gpu_hour": "5.123456"}
        other = create(client, request(name="=2+3", procurement=[{"method": rent}])).json()["id"]
    return {
        "prices": "/v1/catalog/releases/latest/prices.csv",
        "comparison": f"/v1/comparisons.csv?plans={first},{other}",
        "charge-back": f"/v1/plans/{other}/charge-back.csv",
        "lines": f"/v1/plans/{other}/lines.csv",
    }


def rows_of(content, delimiter):
    text = content.decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("prices", "price_per_gpu_hour"),
        ("comparison", "difference"),
        ("charge-back", "amount"),
        ("lines", "unit_price"),
    ],
)
def test_both_forms_hold_the_same_numbers(client, addresses, name, column):
    address = addresses[name]
    plain = client.get(address)
    join = "&" if "?" in address else "?"
    other = client.get(f"{address}{join}decimal_comma=true&byte_order_mark=true")
    assert (plain.status_code, other.status_code) == (200, 200), plain.text
    assert not plain.content.startswith(b"\xef\xbb\xbf")
    assert other.content.count(b"\xef\xbb\xbf") == 1
    numbers = [Decimal(row[column] or 0) for row in rows_of(plain.content, ",")]
    others = [Decimal(row[column].replace(",", ".") or 0) for row in rows_of(other.content, ";")]
    assert numbers == others
    assert any(number % 1 for number in numbers)


def test_a_plan_named_like_a_formula_is_guarded_and_its_negative_numbers_are_not(client, addresses):
    rows = rows_of(client.get(addresses["comparison"]).content, ",")
    assert {row["plan_name"] for row in rows} == {"'=2+3"}
    negative = [row["difference"] for row in rows if row["difference"].startswith("-")]
    assert negative
    assert all(Decimal(number) < 0 for number in negative)
