"""Pools that one kind of work has to itself: of runs while they run, of services all the time.

What is owned, or there already, is held over the whole horizon, whoever uses it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import Use, WorkloadKind
from service.core.formulas.demand import FLOAT_NOISE
from service.core.hardware import Gpu
from service.core.hours.harvest import HOUR_NOISE
from service.core.hours.holding import Holding
from service.core.hours.service_demand import ServiceDemand
from service.core.hours.timeline import Amounts, Counts, Timeline
from service.core.pooling.workloads import (
    HeldGpus,
    HourlyWork,
    HourUse,
    PoolUse,
    ReplicaCapacity,
    RunHours,
    RunNeed,
    RunSchedule,
    ServiceReplicas,
)
from service.core.pricing import split_by_largest_remainder
from service.core.scenarios.procurement import PoolKind

Served = tuple[ReplicaCapacity, ServiceDemand]
Owner = tuple[WorkloadKind, str]
"""A workload: its kind and its name."""


@dataclass(frozen=True)
class PoolMonth:
    """Writes down what the hours of one pool did in one month."""

    pool: PoolKind
    gpu: Gpu
    timeline: Timeline
    month: int

    def use(
        self,
        kind: WorkloadKind,
        workload: str | None,
        use: Use,
        *,
        gpu_hours: float,
        gpu_count: int,
        first: float = 0.0,
        last: float = inf,
        held_for: Mapping[Owner, float] | None = None,
    ) -> HourUse:
        """GPU-hours of one use between two hours of the horizon, where they lie in the month."""
        start, end = self.timeline.charge_period(self.month, first, last)
        return HourUse(
            month=self.timeline.months[self.month],
            start=start,
            end=end,
            pool=self.pool,
            gpu=self.gpu,
            workload_kind=kind,
            workload=workload,
            use=use,
            gpu_hours=float(gpu_hours),
            gpu_count=int(gpu_count),
            held_for=held_for or {},
        )


def without_noise(idle_gpu_hours: Amounts, held_gpu_hours: Amounts) -> Amounts:
    """Idle hours of each month, where what floats leave of nothing is none. [gpu_hour]"""
    noise = HOUR_NOISE + held_gpu_hours * FLOAT_NOISE
    return np.where(idle_gpu_hours <= noise, 0.0, idle_gpu_hours)


def in_proportion(gpu_hours: float, peaks: Mapping[Owner, float]) -> dict[Owner, float]:
    """GPU-hours by workload, as their peak holdings stand to one another. [gpu_hour]"""
    together = sum(peaks.values())
    return {who: gpu_hours * peak / together for who, peak in peaks.items() if gpu_hours * peak}


def replicas_of(served: Served, *, gpu_count: int) -> ServiceReplicas:
    """A service at its busiest, on so many GPUs."""
    capacity, demand = served
    return ServiceReplicas(
        capacity=capacity,
        needed_replica_count_peak=int(demand.needed.max()),
        held_replica_count=int(demand.held.max()),
        gpu_count=gpu_count,
        units_served=demand.units_served,
        headroom=demand.headroom,
        ideal_gpu_hours=demand.ideal_gpu_hours,
        needed_share=demand.needed_share,
        held_share=demand.held_share,
    )


def whole_shares(gpu_count: int, weights: Sequence[int]) -> list[int]:
    """Split whole GPUs in proportion to weights, by largest remainder. [count]"""
    shares = split_by_largest_remainder(
        Decimal(gpu_count), [Decimal(weight) for weight in weights], step=Decimal(1)
    )
    return [int(share) for share in shares]


def plan_serving_pool(
    gpu: Gpu, services: Sequence[Served], *, holding: Holding, timeline: Timeline
) -> PoolUse:
    """Hold the serving GPUs of the busiest hour from the first hour of service to the last.

    Owned and existing GPUs are held in all months. In each hour every service holds its need with
    its spare; services whose peaks fall into different hours so hold less together than the sum of
    their peaks.
    """
    demands = [demand for _, demand in services]
    held = np.array([demand.monthly(demand.held) for demand in demands])
    in_hold: Counts = np.sum([demand.hourly_held for demand in demands], axis=0)
    held_count = int(in_hold.max())
    size = int(holding.whole(held_count))
    always = holding.always(size)
    served = slice(min(d.hours.start for d in demands), max(d.hours.stop for d in demands))
    by_hour = np.full(timeline.hour_count, always, dtype=np.int64)
    by_hour[served] = size
    own = len(services) == 1
    in_need: Counts = np.sum([demand.hourly_needed for demand in demands], axis=0)
    return PoolUse(
        kind="serving",
        gpu=gpu,
        held_gpu_count=held_count,
        needed_peak_gpu_count=int(in_need.max()),
        hours=float(np.count_nonzero(by_hour)),
        hour_uses=tuple(_serving_uses(gpu, demands, held, by_hour)),
        services=tuple(
            replicas_of(served, gpu_count=size if own else int(most))
            for served, most in zip(services, held.max(axis=1), strict=True)
        ),
        runs=(),
        held=HeldGpus(np.zeros_like(by_hour), by_hour, by_hour),
        hourly=HourlyWork(
            allocated=by_hour.astype(np.float64),
            serving_held=in_hold,
            serving_needed=in_need,
            training_used=np.zeros(by_hour.size),
            redo=np.zeros(by_hour.size),
        ),
        existing_gpu_count=min(size, holding.existing_gpu_count),
    )


def _serving_uses(
    gpu: Gpu, demands: Sequence[ServiceDemand], held: Counts, by_hour: Counts
) -> Iterator[HourUse]:
    """Used and idle hours; idle is shared as each service would leave it, holding its own peak."""
    timeline, size = demands[0].timeline, int(by_hour.max())
    used = np.array([demand.used_gpu_hours() for demand in demands])
    most = [demand.monthly(demand.needed) for demand in demands]
    least = np.array([timeline.by_month(d.hourly_needed, np.minimum) for d in demands])
    allocated, hours = timeline.by_month(by_hour), timeline.by_month(np.sign(by_hour))
    span = np.flatnonzero(by_hour)[[0, -1]] + (0, 1)
    peaks: dict[Owner, float] = {
        ("serving", demand.service.name): float(own.max())
        for demand, own in zip(demands, held, strict=True)
    }
    for month in np.flatnonzero(allocated).tolist():
        here = PoolMonth("serving", gpu, timeline, month)
        charge = partial(here.use, "serving", first=float(span[0]), last=float(span[1]))
        weights, idle = held[:, month].tolist(), float(allocated[month] - used[:, month].sum())
        if not any(weights):
            shared, count = in_proportion(idle, peaks), idle / hours[month]
            yield charge(None, "idle", gpu_hours=idle, gpu_count=ceil(count), held_for=shared)
            continue
        shares = np.array(whole_shares(max(size, sum(weights)), weights))
        alone = shares * hours[month] - used[:, month]
        idle_most = np.minimum(shares - least[:, month], size - least[:, month].sum())
        for index in np.flatnonzero(weights).tolist():
            charged = partial(charge, demands[index].service.name)
            busy = used[index, month]
            yield charged("used", gpu_hours=busy, gpu_count=most[index][month])
            if idle > 0 and alone[index] > 0:
                own = alone[index] * (idle / alone.sum())
                yield charged("idle", gpu_hours=own, gpu_count=idle_most[index])


def _starts(needs: Sequence[RunNeed], timeline: Timeline) -> Amounts:
    """Hour in which each run starts: of one that follows another, to the digit when that ends.

    Moments are whole microseconds, so two runs in sequence would else overlap by a part of one,
    and for it hold the GPUs of both.
    """
    starts: dict[str, float] = {}
    ends: dict[str | None, float] = {}
    for need in sorted(needs, key=lambda need: need.start):
        name = need.run.name
        starts[name] = ends.get(need.run.after, timeline.hour_of(need.start))
        ends[name] = starts[name] + need.wall_clock_hours.value
    return np.array([starts[need.run.name] for need in needs])


@dataclass(frozen=True)
class _Stretches:
    """The horizon cut wherever a month begins or a run starts or ends."""

    hours: Amounts
    month: Counts
    running: NDArray[np.bool_]
    """Whether each run runs, one row for each run."""
    held: Counts
    """GPUs held, in whole instances."""


def plan_training_pool(
    gpu: Gpu, needs: Sequence[RunNeed], *, holding: Holding, timeline: Timeline
) -> PoolUse:
    """Hold the GPUs of the runs while they run, added ones in whole instances of all that run.

    Owned and existing GPUs are held over the whole horizon; what no run holds of them is idle in
    nobody's name.
    GPUs that whole instances add are idle in the name of the runs, in proportion to their GPUs.
    """
    starts = _starts(needs, timeline)
    lengths = np.array([need.wall_clock_hours.value for need in needs])
    ends = np.minimum(starts + lengths, timeline.hour_count)
    lasting = np.where(starts + lengths <= timeline.hour_count + HOUR_NOISE, ends - starts, lengths)
    cuts = np.unique(np.concatenate((timeline.edges, starts, ends)))
    running = (starts[:, None] <= cuts[:-1]) & (cuts[1:] <= ends[:, None])
    needed: Counts = np.array([need.gpu_count for need in needs], dtype=np.int64) @ running
    held = holding.whole(needed)
    always = holding.always(int(held.max()))
    by_hour = _most_by_hour(cuts, np.maximum(held, always), timeline)
    month = np.searchsorted(timeline.edges, cuts[:-1], side="right") - 1
    stretches = _Stretches(np.diff(cuts), month, running, held)
    uses = list(_training_uses(gpu, needs, timeline, stretches))
    if always:
        uses += _between_runs(gpu, needs, timeline, stretches, always)
    schedules = tuple(map(partial(_alone, timeline), needs, starts.tolist(), lasting.tolist()))
    return PoolUse(
        kind="training",
        gpu=gpu,
        held_gpu_count=int(needed.max()),
        needed_peak_gpu_count=int(needed.max()),
        hours=float(stretches.hours[(always > 0) | (needed > 0)].sum()),
        hour_uses=tuple(sorted(uses, key=lambda use: use.month)),
        services=(),
        runs=schedules,
        held=HeldGpus(by_hour, np.zeros_like(by_hour), by_hour),
        hourly=HourlyWork(
            allocated=_by_hour(cuts, np.maximum(held, always), timeline),
            serving_held=np.zeros_like(by_hour),
            serving_needed=np.zeros_like(by_hour),
            training_used=_by_hour(cuts, needed, timeline),
            redo=np.zeros(by_hour.size),
        ),
        fixed=frozenset({"training"} if holding.owned else ()),
        existing_gpu_count=min(int(held.max()), holding.existing_gpu_count),
    )


def _alone(timeline: Timeline, need: RunNeed, start: float, hours: float) -> RunSchedule:
    """A run on GPUs of its own; what would outlive the horizon as if it went on."""
    end = start + hours
    work = _by_hour(np.array([start, end]), np.array([need.gpu_count]), timeline)
    inside = slice(int(start), ceil(min(end, timeline.hour_count)))
    alone = RunHours(
        first=inside.start,
        gpus=np.full(inside.stop - inside.start, need.gpu_count),
        used=work[inside],
        redo=np.zeros(inside.stop - inside.start),
        returned=np.zeros(inside.stop - inside.start, dtype=np.int64),
    )
    if end > timeline.hour_count + HOUR_NOISE:
        return RunSchedule(need, need.finish, need.gpu_hours, alone)
    return RunSchedule(need, timeline.moment(end), need.gpu_count * hours, alone)


def _most_by_hour(cuts: Amounts, counts: Counts, timeline: Timeline) -> Counts:
    """Most GPUs in each hour of the horizon that are held between cuts. [count]"""
    most = np.zeros(timeline.hour_count, dtype=np.int64)
    for first, last, count in zip(cuts[:-1], cuts[1:], counts, strict=True):
        hours = slice(int(first), ceil(last))
        most[hours] = np.maximum(most[hours], count)
    return most


def _by_hour(cuts: Amounts, counts: Counts, timeline: Timeline) -> Amounts:
    """GPU-hours in each hour of the horizon of GPUs held between cuts. [gpu_hour]"""
    until = np.concatenate(([0.0], np.cumsum(np.diff(cuts) * counts)))
    marks = np.interp(np.arange(timeline.hour_count + 1), cuts, until)
    return np.diff(marks)


def _training_uses(
    gpu: Gpu, needs: Sequence[RunNeed], timeline: Timeline, stretches: _Stretches
) -> Iterator[HourUse]:
    idle = _idle_gpus(needs, stretches)
    for month in range(len(timeline.months)):
        here, inside = PoolMonth("training", gpu, timeline, month), stretches.month == month
        for index, need in enumerate(needs):
            hours = stretches.hours * (stretches.running[index] & inside)
            if not hours.any():
                continue
            first = timeline.hour_of(need.start)
            charged = partial(
                here.use,
                "training",
                need.run.name,
                first=first,
                last=first + need.wall_clock_hours.value,
            )
            used = need.gpu_count * float(hours.sum())
            yield charged("used", gpu_hours=used, gpu_count=need.gpu_count)
            spare = idle[index] * (hours > 0)
            if spare.any():
                yield charged("idle", gpu_hours=float(hours @ spare), gpu_count=int(spare.max()))


def _between_runs(
    gpu: Gpu, needs: Sequence[RunNeed], timeline: Timeline, stretches: _Stretches, always: int
) -> Iterator[HourUse]:
    """What no run holds of the GPUs that stay: idle, and each run's by the GPUs it needs."""
    peaks: dict[Owner, float] = {("training", need.run.name): need.gpu_count for need in needs}
    free = np.maximum(always - stretches.held, 0)
    idle = without_noise(
        np.bincount(stretches.month, weights=free * stretches.hours).astype(np.float64),
        (always * timeline.month_hours).astype(np.float64),
    )
    for month in np.flatnonzero(idle).tolist():
        yield PoolMonth("training", gpu, timeline, month).use(
            "training",
            None,
            "idle",
            gpu_hours=idle[month],
            gpu_count=free[stretches.month == month].max(),
            held_for=in_proportion(float(idle[month]), peaks),
        )


def _idle_gpus(needs: Sequence[RunNeed], stretches: _Stretches) -> Counts:
    """GPUs that whole instances add in each stretch, shared out among the runs of it."""
    idle = np.zeros(stretches.running.shape, dtype=np.int64)
    for stretch, held in enumerate(stretches.held.tolist()):
        running = stretches.running[:, stretch].tolist()
        weights = [need.gpu_count * runs for need, runs in zip(needs, running, strict=True)]
        if held > sum(weights):
            idle[:, stretch] = whole_shares(held - sum(weights), weights)
    return idle
