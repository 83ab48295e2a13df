"""Money is rounded once, half-even, and what is split sums to what it was split from."""

import csv
import doctest
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import pricing
from service.core.errors import InvalidScenario
from service.core.hardware import Gpu, PeakRates
from service.core.pooling.workloads import HourUse
from service.core.pricing import (
    CENT,
    MILLIONTH,
    AmountTooLarge,
    Terms,
    UnitPrice,
    amounts_by,
    amounts_of,
    cost_of_units,
    cost_per_million_tokens,
    money,
    price_line,
    priced,
    printed,
    split_bill,
    split_by_largest_remainder,
    total,
)
from service.core.value import decimal_text

GPU = Gpu(
    key="h100-sxm5-80gb",
    name="H100",
    memory_gb=80,
    memory_bandwidth_gb_per_s=3350,
    peak_tflops=PeakRates(bf16=989),
)
DOLLARS = Terms(currency="USD", purchase_kind="on_demand", provider="aws", region="us-east-1")

quantities = st.decimals(min_value=0, max_value=10**8, places=6)
unit_prices = st.decimals(min_value=Decimal("0.000001"), max_value=5000, places=6)
weight_lists = st.lists(st.decimals(min_value=0, max_value=10**6, places=6), min_size=1).filter(any)


def hours(gpu_hours, *, workload="assistant", use="used", month="2027-01"):
    return HourUse(
        month=month,
        start=datetime(2027, 1, 1, tzinfo=UTC),
        end=datetime(2027, 2, 1, tzinfo=UTC),
        pool="serving",
        gpu=GPU,
        workload_kind="serving",
        workload=workload,
        use=use,
        gpu_hours=gpu_hours,
        gpu_count=64,
    )


def rented(gpu_hours, price="6.88", **facts):
    return price_line(
        hours(gpu_hours, **facts),
        DOLLARS,
        line_number=1,
        category="gpu_rental",
        quantity=gpu_hours,
        unit="gpu_hour",
        price=UnitPrice(Decimal(price), "list", date(2026, 9, 6)),
        formula="GPU-hours of the month",
    )


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(pricing).failed == 0


@pytest.mark.parametrize(
    ("gpu_hours", "price", "amount"),
    [
        # Lines of the published example: hours x 6.88.
        (380928.0, "6.88", "2620784.64"),
        (22196.0, "6.88", "152708.48"),
        (25420.0, "6.88", "174889.60"),
        # 0.642627 x 8 GPUs x 158 min = 21.0666... GPU-hours: 13.5380088 (opencost PR#762).
        (8 * 158 / 60, "0.642627", "13.54"),
        # 8 x A4000 for 1.28 in all is 0.16 a GPU: per GPU, not per instance (dstack#1890).
        (8.0, "0.16", "1.28"),
        # GPT-2 1.6B: 8 x H100 for 24 h at 3.50 a GPU-hour (llm.c discussion 677).
        (192.0, "3.50", "672.00"),
        # 4 nodes x 730 h x 0.0276 = 80.592 (infracost#477).
        (2920.0, "0.0276", "80.59"),
        # One node of four GPUs bought where two of one would do: 3.248 an hour more, and a month of
        # 720 h (karpenter#1149); in one of 744 h it is 2,416.51.
        (720.0, "3.248", "2338.56"),
        (744.0, "3.248", "2416.51"),
        # A year of 40.30 an hour, all upfront (FOCUS_Spec PR#1877).
        (8760.0, "40.30", "353028.00"),
        # Two spot nodes of 0.1348 against one of 0.2903: 0.0207 less, a year (provider-aws#5304).
        (8760.0, "0.0207", "181.33"),
    ],
)
def test_an_amount_is_quantity_times_unit_price(gpu_hours, price, amount):
    line = rented(gpu_hours, price)
    assert str(line.amount) == amount
    assert line.cash_amount == line.amount


def test_a_line_prints_plain_digits():
    line = rented(380928.0, "6.880")
    assert decimal_text(line.quantity) == "380928"
    assert decimal_text(line.unit_price) == "6.88"
    assert decimal_text(line.amount) == "2620784.64"


def test_a_line_carries_where_its_price_comes_from():
    line = rented(1.0)
    assert (line.price_source, line.price_as_of_date, line.price_verified) == (
        "list",
        date(2026, 9, 6),
        True,
    )
    assert (line.provider, line.region, line.purchase_kind) == ("aws", "us-east-1", "on_demand")


def test_the_printed_quantity_is_priced_and_not_the_float_behind_it():
    # 1/3 prints 0.333333; times 3,000,000 that is 999,999.00, not 1,000,000.00.
    line = rented(1 / 3, "3000000")
    assert str(line.quantity) == "0.333333"
    assert str(line.amount) == "999999.00"


@pytest.mark.parametrize(
    ("exact", "rounded"),
    # Binary round(7.825, 2) is 7.83 (erpnext#8501, kimai#6039).
    [
        ("7.825", "7.82"),
        ("7.835", "7.84"),
        ("0.005", "0.00"),
        ("0.015", "0.02"),
        ("-0.005", "0.00"),
    ],
)
def test_cents_are_rounded_half_even(exact, rounded):
    assert str(money(Decimal(exact))) == rounded
    assert str(money(float(exact))) == rounded


def test_sums_of_tenths_carry_no_binary_dust():
    assert str(total(Decimal("0.27") for _ in range(3))) == "0.81"  # not 0.8099999999999999


TOO_LARGE = [1e12, -1e12, 1e300, float("inf"), float("nan"), Decimal("1e40"), Decimal("1e200")]


@pytest.mark.parametrize("number", TOO_LARGE)
def test_what_does_not_fit_into_twelve_digits_is_refused(number):
    with pytest.raises(InvalidScenario, match="twelve digits"):
        printed(number)
    with pytest.raises(InvalidScenario, match="twelve digits"):
        money(number)


@pytest.mark.parametrize(
    ("quantity", "unit_price", "amount"),
    [
        # Units are taken at six decimals, as those of a line: 0.1234565 is even at 0.123456.
        (0.1234565, "1000000", "123456.00"),
        (380928.0, "6.88", "2620784.64"),
        # A quantity may have more digits than an amount.
        (2.5e12, "0.01", "25000000000.00"),
    ],
)
def test_units_of_an_estimate_cost_what_a_line_would(quantity, unit_price, amount):
    assert str(cost_of_units(quantity, Decimal(unit_price))) == amount


@pytest.mark.parametrize("quantity", [1e12, 1e300, float("inf"), float("nan")])
def test_an_amount_that_is_too_large_says_what_it_is_of(quantity):
    with pytest.raises(AmountTooLarge) as refused, amounts_of("the run", pointer="/run"):
        cost_of_units(quantity, Decimal("2.00"))
    assert refused.value.message == "the run has more than twelve digits before the point"
    assert refused.value.pointer == "/run"


def test_a_number_that_rounds_up_to_thirteen_digits_is_refused():
    with pytest.raises(InvalidScenario):
        money(Decimal("999999999999.999"))


def test_a_spreadsheet_sums_the_printed_lines_to_the_total():
    lines = [rented(22196.123456), rented(25420.9, "2.123457", use="idle"), rented(0.1, "0.01")]
    file = io.StringIO()
    csv.writer(file).writerows([decimal_text(line.amount)] for line in lines)
    cents = sum(round(Fraction(cell) * 100) for (cell,) in csv.reader(file.getvalue().splitlines()))
    assert Fraction(str(total(line.amount for line in lines))) * 100 == cents


def test_groups_sum_to_the_total():
    lines = [rented(10.5), rented(3.3, workload="other"), rented(7.7, use="idle")]
    groups = amounts_by(lines, lambda line: line.workload)
    # 10.5 x 6.88 = 72.24 and 7.7 x 6.88 = 52.976; 3.3 x 6.88 = 22.704.
    assert groups == {"assistant": Decimal("125.22"), "other": Decimal("22.70")}
    assert total(groups.values()) == total(line.amount for line in lines)


def test_the_cost_of_a_million_tokens_is_in_cents():
    # 2.00 an hour at 85 tokens/s: 306,000 tokens an hour (gmicloud.ai): 6.5359.
    assert str(cost_per_million_tokens(Decimal("2.00"), 306_000)) == "6.54"
    assert cost_per_million_tokens(Decimal("2.00"), 0) is None
    assert cost_per_million_tokens(Decimal("1000000.00"), 1e-9) is None


def test_a_third_of_a_dollar_each_leaves_no_cent_over():
    assert split_by_largest_remainder(Decimal("1.00"), [Decimal(1)] * 3) == (
        Decimal("0.34"),
        Decimal("0.33"),
        Decimal("0.33"),
    )


def test_the_largest_remainder_gets_the_cent():
    # 10.00 over 1 : 2 : 3 is 1.666.., 3.333.., 5.0: the cent goes to the first.
    weights = [Decimal(1), Decimal(2), Decimal(3)]
    shares = split_by_largest_remainder(Decimal("10.00"), weights)
    assert [str(share) for share in shares] == ["1.67", "3.33", "5.00"]
    assert split_by_largest_remainder(Decimal("-10.00"), weights) == tuple(-s for s in shares)


@pytest.mark.parametrize(
    ("amount", "weights"), [("1.00", []), ("1.00", [0]), ("1.00", [-1, 2]), ("0.005", [1])]
)
def test_what_cannot_be_split_is_an_error(amount, weights):
    with pytest.raises(ValueError, match="weights of zero and above"):
        split_by_largest_remainder(Decimal(amount), [Decimal(weight) for weight in weights])


@given(
    amount=st.decimals(min_value=-(10**9), max_value=10**9, places=2),
    weights=weight_lists,
)
def test_shares_sum_to_the_total_and_are_within_a_cent_of_their_part(amount, weights):
    shares = split_by_largest_remainder(amount, weights)
    assert sum(shares) == amount
    for share, weight in zip(shares, weights, strict=True):
        part = Fraction(amount) * Fraction(weight) / sum(map(Fraction, weights))
        assert abs(Fraction(share) - part) < Fraction(CENT)


@given(quantity=quantities, unit_price=unit_prices, weights=weight_lists)
def test_priced_shares_of_a_bill_sum_to_the_bill(quantity, unit_price, weights):
    shares = split_bill(quantity, unit_price, weights)
    assert sum(priced(share, unit_price) for share in shares) == priced(quantity, unit_price)
    # Each share is its part, moved by less than what a cent buys, and half a step of rounding.
    slack = Fraction(CENT) / Fraction(unit_price) * 2 + Fraction(MILLIONTH)
    for share, weight in zip(shares, weights, strict=True):
        part = Fraction(quantity) * Fraction(weight) / sum(map(Fraction, weights))
        assert abs(Fraction(share) - part) <= slack


def test_a_bill_in_dear_units_is_still_priced_line_by_line():
    # A millionth of such a unit costs 5,000, so no quantity prices to half of 1 unit to the cent.
    shares = split_bill(Decimal(1), Decimal("4999999999.99"), [Decimal(1), Decimal(2)])
    assert shares == (Decimal("0.333333"), Decimal("0.666667"))


@given(
    lines=st.lists(
        st.tuples(st.floats(0, 1e7), st.decimals(min_value="0.000001", max_value=1000, places=6)),
        max_size=20,
    )
)
def test_amounts_are_never_negative_and_sum_to_the_total(lines):
    priced_lines = [rented(hours_, str(price)) for hours_, price in lines]
    assert all(line.amount >= 0 for line in priced_lines)
    for line in priced_lines:
        exact = Fraction(line.quantity) * Fraction(line.unit_price)
        assert abs(Fraction(line.amount) - exact) <= Fraction(CENT) / 2
    cents = sum(int(line.amount * 100) for line in priced_lines)
    assert int(total(line.amount for line in priced_lines) * 100) == cents


@given(few=st.floats(0, 1e7), more=st.floats(0, 1e7), price=unit_prices)
def test_more_hours_are_never_cheaper(few, more, price):
    few, more = sorted((few, more))
    assert rented(few, str(price)).amount <= rented(more, str(price)).amount
