"""The FOCUS file: columns and spelling of the specification, and the validator of its makers.

The validator needs older versions of pandas and numpy than the service, so it lives in a virtual
environment of its own that `.ci/run` makes.
"""

import csv
import io
import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from service.exports.focus import FOCUS_FORM, focus_charges, focus_columns
from service.exports.table import csv_bytes
from tests.exports.bought_plans import bought_plan
from tests.plans.examples import JANUARY, JANUARY_AMOUNT, line, money, serving_line, summary

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = shutil.which(
    os.environ.get("FOCUS_VALIDATOR", ROOT / ".focus-validator" / "bin" / "focus-validator")
)
UPFRONT = line(
    4, purchase_kind="committed_1yr", amount=Decimal("500.00"), cash_amount=Decimal("6000.00")
)
UNUSED = serving_line(
    5,
    purchase_kind="committed_1yr",
    use="unused_commitment",
    workload=None,
    workload_kind="shared",
    amount=Decimal("250.00"),
    cash_amount=Decimal("0.00"),
)
OWNED = line(
    6,
    charge_period_end=datetime(2027, 1, 18, 15, 54, 17, 246816, tzinfo=UTC),
    purchase_kind="owned",
    category="power",
    unit="kWh",
    site="dc-1",
    **money("-12.50"),
)
LINES = (*JANUARY, UPFRONT, UNUSED, OWNED)
# Column IDs of FOCUS 1.0 that must be there for a provider with regions, resources, SKUs,
# sub-accounts, tags and commitments.
SPECIFIED = {
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart"),
    *("CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName"),
    *("CommitmentDiscountStatus", "CommitmentDiscountType", "ConsumedQuantity", "ConsumedUnit"),
    *("ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost"),
    *("ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName"),
    *("PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType"),
    *("ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName"),
    "Tags",
}
# Rules of validator 1.0.0 that contradict FOCUS 1.0: the specification says ProviderName,
# PublisherName, InvoiceIssuerName and ResourceId, and has ChargeCategory where the rule of
# SkuPriceId reads ChargeType, a column of version 0.5.
FAULTY_RULES = (
    "Provider_Required",
    "Publisher_Required",
    "InvoiceIssuer_Required",
    "ResourceID_Required",
    "SkuPriceId_Nullable",
)
needs_validator = pytest.mark.skipif(
    VALIDATOR is None,
    reason="focus-validator is not installed: .ci/run puts it into .focus-validator",
)


def content(lines=LINES):
    return csv_bytes(focus_columns(summary()), focus_charges(lines), form=FOCUS_FORM)


def rows(lines=LINES):
    return list(csv.DictReader(io.StringIO(content(lines).decode(), newline=""), strict=True))


def test_columns_are_those_of_the_specification_and_others_begin_with_x():
    names = set(rows()[0])
    assert names >= SPECIFIED
    assert all(re.fullmatch(r"x_[A-Z][A-Za-z]+", name) for name in names - SPECIFIED)


def test_effective_and_billed_cost_sum_to_the_two_totals_of_the_plan():
    effective = JANUARY_AMOUNT + Decimal("500.00") + Decimal("250.00") + Decimal("-12.50")
    billed = JANUARY_AMOUNT + Decimal("6000.00") + Decimal("-12.50")
    assert sum(Decimal(row["EffectiveCost"]) for row in rows()) == effective
    assert sum(Decimal(row["BilledCost"]) for row in rows()) == billed


def test_what_is_paid_upfront_is_a_purchase_beside_its_use():
    use, purchase = rows([UPFRONT])
    assert (use["ChargeCategory"], use["BilledCost"], use["EffectiveCost"]) == (
        "Usage",
        "0.00",
        "500.00",
    )
    assert (purchase["ChargeCategory"], purchase["BilledCost"], purchase["EffectiveCost"]) == (
        "Purchase",
        "6000.00",
        "0.00",
    )
    assert purchase["ConsumedQuantity"] == purchase["ConsumedUnit"] == "NULL"
    assert purchase["ChargeFrequency"] == "One-Time"


def test_an_unused_commitment_says_so():
    (row,) = rows([UNUSED])
    assert (row["PricingCategory"], row["CommitmentDiscountStatus"]) == ("Committed", "Unused")
    assert (row["BilledCost"], row["EffectiveCost"]) == ("0.00", "250.00")


def test_absent_values_are_null_and_none_is_empty():
    for row in rows():
        assert "" not in row.values()
        assert row["ChargeClass"] == "NULL"
    first = rows()[0]
    assert first["CommitmentDiscountId"] == first["RegionId"] == "NULL"


def test_times_costs_and_tags_have_the_specified_formats():
    for row in rows():
        for name in (
            "BillingPeriodStart",
            "BillingPeriodEnd",
            "ChargePeriodStart",
            "ChargePeriodEnd",
        ):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name])
        assert row["BillingPeriodStart"] == "2027-01-01T00:00:00Z"
        assert row["BillingPeriodEnd"] == "2027-02-01T00:00:00Z"  # the first instant after it
        assert re.fullmatch(r"-?\d+\.\d\d", row["BilledCost"])
        assert json.loads(row["Tags"])["use"] in {"used", "idle", "unused_commitment"}
    assert b"\xef\xbb\xbf" not in content()


def validated(folder, data):
    """What the validator prints of a file."""
    source, skipped = folder / "focus.csv", folder / "skipped.yaml"
    source.write_bytes(data)
    skipped.write_text("".join(["overrides:\n", *(f"- {rule}\n" for rule in FAULTY_RULES)]))
    command = [VALIDATOR, "--data-file", str(source), "--override-file", str(skipped)]
    command += ["--validate-version", "1.0"]
    # It finds its list of currencies by a path from the folder that it is installed in.
    (packages,) = Path(VALIDATOR).parents[1].glob("lib/python3.*/site-packages")
    printed = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False)
    return printed.stdout + printed.stderr


@needs_validator
def test_the_validator_of_the_specification_finds_no_fault(tmp_path):
    report = validated(tmp_path, content())
    assert "Validation succeeded." in report, report


def bought():
    """The file of a plan that is bought in every way, and its totals."""
    plan, listed, lines = bought_plan()
    data = csv_bytes(focus_columns(listed), list(focus_charges(lines)), form=FOCUS_FORM)
    return plan.totals, data


def test_a_plan_bought_in_every_way_is_a_bill_of_its_totals():
    totals, data = bought()
    found = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    assert sum(Decimal(row["EffectiveCost"]) for row in found) == totals.amount
    assert sum(Decimal(row["BilledCost"]) for row in found) == totals.cash_amount
    tokens = {row["PricingUnit"] for row in found if row["ServiceName"] == "hosted_tokens"}
    assert tokens == {
        "Million Input-Tokens",
        "Million Cached-Input-Tokens",
        "Million Output-Tokens",
    }
    sunk = [
        row for row in found if row["ServiceName"] == "hardware" and row["BilledCost"] == "0.00"
    ]
    assert sunk
    assert {row["ChargeCategory"] for row in sunk} == {"Usage"}


@needs_validator
def test_the_validator_finds_no_fault_in_a_plan_bought_in_every_way(tmp_path):
    report = validated(tmp_path, bought()[1])
    assert "Validation succeeded." in report, report


@needs_validator
@pytest.mark.parametrize(
    ("right", "wrong"), [(b"Compute", b"Computing"), (b"T00:00:00Z", b""), (b"USD", b"US$")]
)
def test_the_validator_finds_faults_that_are_there(tmp_path, right, wrong):
    assert "Validation failed!" in validated(tmp_path, content().replace(right, wrong))
