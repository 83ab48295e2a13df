"""What training and serving each cost, month by month: where the one overtakes the other shows."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from service.core.estimates import CostLine, WorkloadKind
from service.core.pricing import amounts_by, split_by_largest_remainder, total

Sides = tuple[Decimal, Decimal]
"""Amounts of training and of serving."""
_NOTHING: Mapping[WorkloadKind, Decimal] = {}


def amounts_by_side(lines: Iterable[CostLine]) -> Sides:
    """Amounts that training and serving cause; together they are the sum of the lines."""
    months = monthly_amounts_by_side(lines).values()
    return total(training for training, _ in months), total(serving for _, serving in months)


def monthly_amounts_by_side(lines: Iterable[CostLine]) -> dict[str, Sides]:
    """Amounts of each month that training and serving cause; together they are the month's.

    A line of a workload belongs to its kind. What a pool's workloads share is split, month by
    month and category by category, in proportion to what each kind used there in GPU-hours (redo
    included), to the cent by largest remainder. In a month without any use the pool's use over
    all months decides; a pool that nothing ever used is serving's, which alone holds GPUs in case.
    """
    lines = tuple(lines)
    used = _used_quantities(lines)
    sums = amounts_by(
        lines, lambda line: (line.month, line.pool, line.gpu, line.category, line.workload_kind)
    )
    months: dict[str, Sides] = {}
    for (month, *bill, kind), amount in sums.items():
        kinds = used.get((month, *bill), _NOTHING)
        if not any(kinds.values()):
            kinds = used.get(tuple(bill), _NOTHING)
        weights = [kinds.get("training", Decimal(0)), kinds.get("serving", Decimal(0))]
        if kind != "shared" or not any(weights):
            weights = [Decimal(kind == "training"), Decimal(kind != "training")]
        training, serving = split_by_largest_remainder(amount, weights)
        before = months.get(month, (Decimal(0), Decimal(0)))
        months[month] = (total((before[0], training)), total((before[1], serving)))
    return months


def _used_quantities(
    lines: Iterable[CostLine],
) -> Mapping[tuple[str, ...], Mapping[WorkloadKind, Decimal]]:
    """Used quantities of each bill by kind of workload, for its month and for all months.

    Within one bill quantities stand in the proportion of GPU-hours, whatever their unit.
    """
    used: dict[tuple[str, ...], dict[WorkloadKind, Decimal]] = {}
    for line in lines:
        if line.use in {"used", "redo"}:
            bill = (line.pool, line.gpu, line.category)
            for key in ((line.month, *bill), bill):
                kinds = used.setdefault(key, {})
                before = kinds.get(line.workload_kind, Decimal(0))
                kinds[line.workload_kind] = before + line.quantity
    return used
