"""Plans side by side: what is aligned, and what a difference means."""

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.estimates import PlanTotals
from service.core.planners.comparison import (
    TOTAL_UNITS,
    PlanNumbers,
    compare_plans,
    difference,
    relative_difference_fraction,
)
from tests.plans.examples import quantity, summary


def numbers(number, *quantities, **changed):
    return PlanNumbers(summary(number, **changed), quantities)


def infeasible(number, *quantities):
    return numbers(number, *quantities, feasible=False, totals=None)


def totals(**changed):
    values = {
        "peak_gpu_count": 576,
        "gpu_hours": 1000.0,
        "amount": Decimal("6880.00"),
        "cash_amount": Decimal("6880.00"),
        "currency": "USD",
        "training_amount": Decimal("6880.00"),
        "serving_amount": Decimal("0.00"),
        **changed,
    }
    return PlanTotals(**values)


def by_place(comparison):
    return {(one.scope, one.name): one for one in comparison.quantities}


def test_totals_come_first_as_quantities_of_the_plan():
    comparison = compare_plans(numbers(1, quantity("run:a", "x")), [numbers(2)])
    names = [(one.scope, one.name) for one in comparison.quantities]
    assert names == [*(("plan", name) for name in TOTAL_UNITS), ("run:a", "x")]


def test_a_total_stands_before_a_noted_quantity_of_its_name():
    noted = quantity("plan", "gpu_hours", 999.0, unit="gpu_hour", per="plan")
    comparison = compare_plans(numbers(1, noted, totals=totals()), [numbers(2, noted)])
    assert by_place(comparison)["plan", "gpu_hours"].baseline_value == 1000.0
    assert len(comparison.quantities) == len(TOTAL_UNITS)


def test_totals_are_compared_to_the_cent():
    # 7,000.10 - 6,880.00 = 120.10, and 120.10 / 6,880 = 0.0174564...
    cheaper, dearer = totals(), totals(amount=Decimal("7000.10"))
    comparison = compare_plans(numbers(1, totals=cheaper), [numbers(2, totals=dearer)])
    amount = by_place(comparison)["plan", "amount"]
    assert (amount.baseline_value, amount.unit) == (6880.0, "currency")
    (value,) = amount.values
    assert (value.value, value.difference) == (7000.1, 120.1)
    assert value.relative_difference_fraction == pytest.approx(120.1 / 6880)


def test_every_total_of_a_plan_is_compared():
    assert set(TOTAL_UNITS) == set(PlanTotals.model_fields) - {"currency"}


def test_quantities_are_aligned_on_scope_and_name_whatever_their_order():
    first = [quantity("run:a", "x", 1.0), quantity("run:b", "x", 10.0)]
    second = [quantity("run:b", "x", 30.0), quantity("run:a", "x", 2.0)]
    aligned = by_place(compare_plans(infeasible(1, *first), [infeasible(2, *second)]))
    assert [one.values[0].difference for one in aligned.values()] == [1.0, 20.0]


def test_what_a_plan_lacks_is_null_there():
    base, other = quantity("run:a", "x", 1.0), quantity("run:b", "x", 2.0)
    aligned = by_place(compare_plans(infeasible(1, base), [infeasible(2, other)]))
    gone, added = aligned["run:a", "x"], aligned["run:b", "x"]
    assert (gone.baseline_value, gone.values[0].value, gone.values[0].difference) == (
        1.0,
        None,
        None,
    )
    assert (added.baseline_value, added.values[0].value) == (None, 2.0)
    assert added.values[0].difference is None
    assert added.values[0].relative_difference_fraction is None


def test_an_unbounded_value_has_no_difference():
    base, other = quantity("run:a", "x", None), quantity("run:a", "x", 2.0)
    (one,) = compare_plans(infeasible(1, base), [infeasible(2, other)]).quantities
    assert (one.baseline_value, one.values[0].value, one.values[0].difference) == (None, 2.0, None)


def test_two_units_are_never_subtracted():
    base = quantity("run:a", "x", 1.0, unit="h")
    other = quantity("run:a", "x", 3600.0, unit="s")
    rows = compare_plans(infeasible(1, base), [infeasible(2, other)]).quantities
    assert [(row.unit, row.baseline_value, row.values[0].value) for row in rows] == [
        ("h", 1.0, None),
        ("s", None, 3600.0),
    ]


def test_other_plans_keep_the_order_asked_for():
    comparison = compare_plans(numbers(5), [numbers(3), numbers(9), numbers(1)])
    asked = [UUID(int=number) for number in (5, 3, 9, 1)]
    assert comparison.baseline_id == asked[0]
    assert [plan.id for plan in comparison.plans] == asked
    assert [value.plan_id for value in comparison.quantities[0].values] == asked[1:]


@pytest.mark.parametrize(
    ("value", "baseline", "expected"),
    [(1.1, 1.0, 0.1), (0.3, 0.1, 0.2), (7971217.90, 7971217.89, 0.01), (1e30, 1e30, 0.0)],
)
def test_a_difference_is_that_of_the_printed_numbers(value, baseline, expected):
    assert difference(value, baseline) == expected


@pytest.mark.parametrize(
    ("change", "baseline", "expected"),
    [
        (-2.0, 10.0, -0.2),
        (2.0, -10.0, -0.2),
        (5.0, 0.0, None),
        (5.0, -0.0, None),
        (None, 10.0, None),
        (5.0, None, None),
        (1e30, 5e-324, None),  # beyond the largest double
    ],
)
def test_a_relative_difference_needs_a_baseline(change, baseline, expected):
    assert relative_difference_fraction(change, baseline) == expected


NUMBERS = st.floats(-1e30, 1e30) | st.none()


@given(NUMBERS, NUMBERS)
def test_any_two_values_can_be_compared(first, second):
    plans = [infeasible(n, quantity("run:a", "x", v)) for n, v in ((1, first), (2, second))]
    (forth,) = compare_plans(plans[0], plans[1:]).quantities
    (back,) = compare_plans(plans[1], plans[:1]).quantities
    if first is None or second is None:
        assert forth.values[0].difference is back.values[0].difference is None
    else:
        assert forth.values[0].difference == -back.values[0].difference
