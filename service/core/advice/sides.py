"""What each workload costs, month by month: where serving overtakes training shows."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from service.core.estimates import CostLine, WorkloadKind
from service.core.pricing import amounts_by, split_by_largest_remainder, total
from service.core.scenarios.procurement import PoolKind

Sides = tuple[Decimal, Decimal]
"""Amounts of training and of serving."""
HeldFor = Mapping[tuple[str, PoolKind, str | None], Mapping[tuple[WorkloadKind, str], float]]
"""GPU-hours in nobody's name, by month, pool and GPU: the workloads for which they are held."""


class Charge(NamedTuple):
    """One month of one workload."""

    month: str
    kind: WorkloadKind
    workload: str


def charges(lines: Iterable[CostLine], held_for: HeldFor) -> dict[Charge, Decimal]:
    """Amounts that each workload causes in each month; together they are the sum of the lines.

    A line of a workload is its own. A line in nobody's name is split over the workloads for which
    its hours are held, category by category, to the cent by largest remainder:

    - idle hours of a shared pool, while it is held for all: by side as the most GPUs stand that
      training and serving hold at once, within a side as the most that each workload holds;
    - idle hours of a shared pool that is held for serving alone: by service in the same way;
    - hours of a pool that no workload of its own uses, because it is owned or stands between two
      services: by the GPUs that each run needs, or each service holds at its peak;
    - an unused commitment of a month without such hours: by all hours that each ever holds there.
    """
    sums = amounts_by(
        lines,
        lambda line: (
            line.month,
            line.workload_kind,
            line.workload,
            (line.pool, line.gpu),
            line.category,
        ),
    )
    parts: dict[Charge, list[Decimal]] = {}
    for (month, kind, workload, pool, _), amount in sums.items():
        if workload is not None:
            parts.setdefault(Charge(month, kind, workload), []).append(amount)
            continue
        held = held_for[month, *pool]
        shares = split_by_largest_remainder(
            amount, [Decimal(repr(hours)) for hours in held.values()]
        )
        for (owner_kind, owner), share in zip(held, shares, strict=True):
            parts.setdefault(Charge(month, owner_kind, owner), []).append(share)
    return {charge: total(amounts) for charge, amounts in parts.items()}


def amounts_by_workload(charged: Mapping[Charge, Decimal]) -> dict[str, Decimal]:
    """Amount of each workload over all months."""
    parts: dict[str, list[Decimal]] = {}
    for charge, amount in charged.items():
        parts.setdefault(charge.workload, []).append(amount)
    return {workload: total(amounts) for workload, amounts in parts.items()}


def amounts_by_side(charged: Mapping[Charge, Decimal]) -> Sides:
    """Amounts that training and serving cause; together they are the sum of the lines."""
    months = monthly_amounts_by_side(charged).values()
    return total(training for training, _ in months), total(serving for _, serving in months)


def monthly_amounts_by_side(charged: Mapping[Charge, Decimal]) -> dict[str, Sides]:
    """Amounts of each month that training and serving cause; together they are the month's."""
    months: dict[str, Sides] = {}
    for charge, amount in charged.items():
        training, serving = months.get(charge.month, (Decimal(0), Decimal(0)))
        if charge.kind == "training":
            training += amount
        else:
            serving += amount
        months[charge.month] = (total([training]), total([serving]))
    return months
