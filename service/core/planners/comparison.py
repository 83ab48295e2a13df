"""Plans side by side: their totals and quantities aligned on scope and name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from service.core.estimates import PlanTotals, Quantity
from service.core.plans import ComparedQuantity, ComparedValue, PlanComparison, PlanSummary
from service.core.units import Per, Unit

TOTAL_UNITS: Mapping[str, Unit] = {
    "peak_gpu_count": "count",
    "gpu_hours": "gpu_hour",
    "amount": "currency",
    "cash_amount": "currency",
    "training_amount": "currency",
    "serving_amount": "currency",
}
"""Totals that are compared as quantities of the scope "plan"."""


@dataclass(frozen=True)
class PlanNumbers:
    """What is compared of one plan."""

    summary: PlanSummary
    """The plan as it stands in a list, with its totals."""
    quantities: Sequence[Quantity]
    """Its stored quantities."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What makes two numbers the same quantity; with another unit it is another one."""

    scope: str
    name: str
    unit: Unit
    per: Per


def compare_plans(baseline: PlanNumbers, others: Sequence[PlanNumbers]) -> PlanComparison:
    """Align every quantity of any of the plans, in the order in which it is first met.

    A quantity that a plan lacks is null there, as are its differences. The plans must share a
    currency; the caller refuses them otherwise.
    """
    base = _numbers(baseline)
    compared = [(plan.summary.id, _numbers(plan)) for plan in others]
    places = dict.fromkeys([*base, *(place for _, numbers in compared for place in numbers)])
    return PlanComparison(
        baseline_id=baseline.summary.id,
        plans=(baseline.summary, *(plan.summary for plan in others)),
        quantities=tuple(
            ComparedQuantity(
                scope=place.scope,
                name=place.name,
                unit=place.unit,
                per=place.per,
                baseline_value=base.get(place),
                values=tuple(
                    _compared(plan_id, numbers.get(place), base.get(place))
                    for plan_id, numbers in compared
                ),
            )
            for place in places
        ),
    )


def _numbers(plan: PlanNumbers) -> dict[_Place, float | None]:
    """Values by place; totals are sums of priced lines, so they stand before a noted quantity."""
    numbers = dict(_totals(plan.summary.totals))
    for quantity in plan.quantities:
        place = _Place(quantity.scope, quantity.name, quantity.unit, quantity.per)
        numbers.setdefault(place, quantity.value)
    return numbers


def _totals(totals: PlanTotals | None) -> Iterator[tuple[_Place, float | None]]:
    if totals is not None:
        for name, unit in TOTAL_UNITS.items():
            yield _Place("plan", name, unit, "plan"), float(getattr(totals, name))


def _compared(plan_id: UUID, value: float | None, baseline: float | None) -> ComparedValue:
    change = None if value is None or baseline is None else difference(value, baseline)
    return ComparedValue(
        plan_id=plan_id,
        value=value,
        difference=change,
        relative_difference_fraction=relative_difference_fraction(change, baseline),
    )


def difference(value: float, baseline: float) -> float:
    """Value minus baseline, subtracted as a reader does who sees both printed.

    Binary subtraction would show 0.09999999999999998 between 1.1 and 1.0.
    """
    return float(Decimal(repr(value)) - Decimal(repr(baseline)))


def relative_difference_fraction(change: float | None, baseline: float | None) -> float | None:
    """Difference over the baseline's value; None when that is missing, 0 or vanishingly small."""
    if change is None or not baseline:
        return None
    fraction = change / baseline
    return fraction if math.isfinite(fraction) else None
