"""Owned pools that grow: their GPUs are bought as needed, and held from then on.

Pools are planned with all their GPUs in all months; what has not been bought yet is taken off the
hours in nobody's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, floor
from types import MappingProxyType

import numpy as np

from service.core.costs.existing import ExistingLot
from service.core.costs.owned import Purchase
from service.core.costs.terms import Ownership, ResolvedProcurement
from service.core.estimates import PoolSize, Range
from service.core.formulas.calendar import month_index
from service.core.hours.holding import Holding
from service.core.hours.timeline import Counts, Timeline
from service.core.pooling.workloads import HourUse, PoolsOutcome, PoolUse
from service.core.recorder import Recorder
from service.core.scenarios.procurement import PoolKind

PoolKey = tuple[PoolKind, str]
"""A pool and the key of its GPU."""
Staged = Mapping[PoolKey, tuple[int, ...]]
"""GPUs that each pool has by month."""
SHARE_NOISE = 1e-9
"""Share of a month's idle hours below which what is left is rounding noise."""


def staged_counts(
    outcome: PoolsOutcome,
    procurement: Mapping[PoolKey, ResolvedProcurement],
    timeline: Timeline,
    *,
    is_given: bool,
) -> Staged:
    """GPUs by month: the most needed so far, or in the months by which they are bought ahead.

    Args:
        outcome: The pools with all their GPUs in all months.
        procurement: How each pool's GPUs are paid for.
        timeline: Months of the plan.
        is_given: Whether the size of the fleet is given: then all of it is bought at once.
    """
    counts: dict[PoolKey, tuple[int, ...]] = {}
    sizes = {(pool.name, pool.gpu): pool.gpu_count for pool in outcome.pools}
    for use in outcome.uses:
        key = (use.kind, use.gpu.key)
        found = procurement.get(key)
        if is_given or found is None or not isinstance(found.terms, Ownership):
            continue
        if not found.terms.is_bought_as_needed:
            continue
        holding = Holding(found.gpu_multiple, existing_gpu_count=use.existing_gpu_count)
        needed = holding.whole(timeline.by_month(_needed(use, sizes[key], timeline), np.maximum))
        so_far = np.minimum(np.maximum.accumulate(needed), sizes[key])
        months = np.arange(len(so_far)) + found.terms.purchase_lead_months
        counts[key] = tuple(so_far[np.minimum(months, len(so_far) - 1)].tolist())
    return counts


def _needed(use: PoolUse, size: int, timeline: Timeline) -> Counts:
    """GPUs in each hour: what services hold with their spare, and what runs need while they run.

    Runs of a shared pool take all of it.
    """
    needed = use.hourly.serving_held.copy()
    for run in use.runs:
        first = floor(timeline.hour_of(run.need.start))
        hours = slice(first, ceil(timeline.hour_of(run.finish)))
        if use.kind == "shared":
            needed[hours] = size
        else:
            needed[hours] += run.need.gpu_count
    return needed


def with_staged(
    outcome: PoolsOutcome, staged: Staged, timeline: Timeline, recorder: Recorder
) -> PoolsOutcome:
    """The same pools, less the hours of what has not been bought yet."""
    if not staged:
        return outcome
    sizes = {(pool.name, pool.gpu): pool.gpu_count for pool in outcome.pools}
    lengths = timeline.month_hours.tolist()
    missing = {
        key: [(sizes[key] - count) * hours for count, hours in zip(counts, lengths, strict=True)]
        for key, counts in staged.items()
    }
    idle = _idle_by_month(outcome.hour_uses)
    uses = [_less(use, missing, idle, timeline.months) for use in outcome.hour_uses]
    off = {key: float(sum(hours)) for key, hours in missing.items()}
    pools = tuple(
        _smaller(pool, off.get((pool.name, pool.gpu), 0.0), outcome.pools, recorder)
        for pool in outcome.pools
    )
    return replace(
        outcome,
        pools=pools,
        hour_uses=tuple(use for use in uses if use is not None),
        training_gpu_counts=_held(outcome.training_gpu_counts, "training", staged, sizes),
        serving_gpu_counts=_held(outcome.serving_gpu_counts, "serving", staged, sizes),
        allocated_gpu_hours=tuple(
            _lower(hours, off.get((pool.name, pool.gpu), 0.0))
            for hours, pool in zip(outcome.allocated_gpu_hours, outcome.pools, strict=True)
        ),
    )


def _less(
    use: HourUse,
    missing: Mapping[PoolKey, Sequence[int]],
    idle: Mapping[tuple[str, PoolKey], tuple[float, float]],
    months: Sequence[str],
) -> HourUse | None:
    """Idle hours less those of GPUs not bought yet; None where none are left.

    They are taken off the hours in nobody's name first, then off what is idle in the name of runs
    and services, in proportion.
    """
    hours = missing.get((use.pool, use.gpu.key))
    if hours is None or use.use != "idle":
        return use
    off = float(hours[months.index(use.month)])
    nobodys, named = idle[use.month, (use.pool, use.gpu.key)]
    of_named = max(off - nobodys, 0.0)
    share = min(off, nobodys) / nobodys if use.workload is None else of_named / named
    if share >= 1 - SHARE_NOISE:
        return None
    held_for = {who: part * (1 - share) for who, part in use.held_for.items()}
    return replace(use, gpu_hours=use.gpu_hours * (1 - share), held_for=held_for)


def _idle_by_month(
    uses: Sequence[HourUse],
) -> dict[tuple[str, PoolKey], tuple[float, float]]:
    """Idle GPU-hours of each month and pool, in nobody's name and in a workload's."""
    idle: dict[tuple[str, PoolKey], tuple[float, float]] = {}
    for use in uses:
        if use.use == "idle":
            key = use.month, (use.pool, use.gpu.key)
            nobodys, named = idle.get(key, (0.0, 0.0))
            is_nobodys = use.workload is None
            idle[key] = (
                nobodys + use.gpu_hours * is_nobodys,
                named + use.gpu_hours * (not is_nobodys),
            )
    return idle


def _smaller(pool: PoolSize, off: float, pools: Sequence[PoolSize], recorder: Recorder) -> PoolSize:
    if not off:
        return pool
    alone = sum(each.name == pool.name for each in pools) == 1
    scope = recorder.within(f"pool:{pool.name if alone else f'{pool.name}:{pool.gpu}'}")
    allocated, idle = pool.allocated_gpu_hours - off, pool.idle_gpu_hours - off
    scope.note("allocated_gpu_hours", allocated)
    scope.note("idle_gpu_hours", idle)
    return pool.model_copy(update={"allocated_gpu_hours": allocated, "idle_gpu_hours": idle})


def _held(
    counts: Sequence[int], side: PoolKind, staged: Staged, sizes: Mapping[PoolKey, int]
) -> tuple[int, ...]:
    """Most GPUs that a side holds by month, in a pool of its own those bought so far."""
    fewer = [
        sum(sizes[key] - each[month] for key, each in staged.items() if key[0] == side)
        for month in range(len(counts))
    ]
    return tuple(count - less for count, less in zip(counts, fewer, strict=True))


def _lower(hours: Range, off: float) -> Range:
    return Range(value=hours.value - off, low=hours.low - off, high=hours.high - off)


def purchases_of(
    pools: Sequence[PoolSize],
    procurement: Mapping[PoolKey, ResolvedProcurement],
    first_month: str,
    *,
    staged: Mapping[PoolKey, Sequence[int]] = MappingProxyType({}),
    existing: Mapping[PoolKey, Sequence[ExistingLot]] = MappingProxyType({}),
) -> dict[PoolKey, tuple[Purchase, ...]]:
    """When the GPUs of each owned pool are bought, beyond those that are there already."""
    purchases: dict[PoolKey, tuple[Purchase, ...]] = {}
    for pool in pools:
        key = (pool.name, pool.gpu)
        found = procurement.get(key)
        if found is None or not isinstance(found.terms, Ownership):
            continue
        bought = found.terms.purchase_month
        month = 0 if bought is None else min(0, month_index(bought) - month_index(first_month))
        there = sum(lot.gpu_count for lot in existing.get(key, ()))
        counts = [max(0, count - there) for count in staged.get(key, (pool.gpu_count,))]
        more = [count - before for before, count in pairwise((0, *counts))]
        purchases[key] = tuple(
            Purchase(month + number, count) for number, count in enumerate(more) if count > 0
        )
    return purchases
