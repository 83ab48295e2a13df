"""What planners hand to one another: a run's need, a replica's capacity, a pool's use of hours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import (
    HeadroomPart,
    Infeasibility,
    PoolSize,
    Range,
    ServingMemory,
    SpeedBasis,
    TrainingMemory,
    Use,
    WorkloadKind,
)
from service.core.formulas.calendar import midnight
from service.core.formulas.demand import FLOAT_NOISE, whole_instances_gpu_count
from service.core.hardware import Gpu
from service.core.hours.bands import around, scaled, together
from service.core.hours.harvest import HOUR_NOISE
from service.core.hours.headroom import ReplicaSize
from service.core.parallelism import ParallelLayout
from service.core.recorder import Recorder
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun
from service.core.units import BYTES_PER_GIB

LAST_MOMENT = midnight(date(2100, 12, 31))
"""Last day of the calendar that requests and answers share."""


@dataclass(frozen=True)
class RunNeed:
    """What one training run needs when it has its GPUs to itself."""

    run: TrainingRun
    gpu: Gpu
    gpu_count: int
    layout: ParallelLayout | None
    memory: TrainingMemory | None
    model_flops: float | None
    mfu_fraction: float | None
    speed_basis: SpeedBasis
    steady_hours: float
    """Hours at steady speed without any failure, times the run multiplier."""
    goodput_fraction: float
    wall_clock_hours: Range
    """Hours from start to finish, the run multiplier included."""
    checkpoint_bytes: float | None
    checkpoint_interval_s: float
    restart_s: float
    start: datetime
    checkpoint_write_s: float = 0.0
    """Write of an asynchronous save, during which a stop falls back on the one before."""

    @property
    def gpus_per_copy(self) -> int:
        """GPUs of one whole model copy; the whole run when its layout is not known. [count]"""
        return self.gpu_count if self.layout is None else self.layout.gpus_per_copy

    @property
    def finish(self) -> datetime:
        """When the run ends on GPUs of its own; at the latest with the calendar."""
        last = datetime.max.replace(tzinfo=self.start.tzinfo)
        hours = self.wall_clock_hours.value
        if hours >= (last - self.start) / timedelta(hours=1):
            return last
        return self.start + timedelta(hours=hours)

    @property
    def gpu_hours(self) -> float:
        """GPUs times wall clock. [gpu_hour]"""
        return self.gpu_count * self.wall_clock_hours.value


@dataclass(frozen=True)
class ReplicaCapacity:
    """What one replica of a service serves, and how it is laid out."""

    service: ServingService
    gpu: Gpu
    gpu_count_per_replica: int
    units_per_s_per_replica: Range
    layout: ParallelLayout | None = None
    memory: ServingMemory | None = None
    kv_cache_tokens_per_replica: int | None = None
    concurrency_per_replica: int | None = None
    ttft_p95_s: Range | None = None
    tpot_mean_s: Range | None = None

    @property
    def size(self) -> ReplicaSize:
        """What decides how long it starts and how it fails."""
        weights = None if self.memory is None else self.memory.weights * BYTES_PER_GIB
        return ReplicaSize(self.gpu, self.gpu_count_per_replica, weights)


@dataclass(frozen=True)
class HourUse:
    """GPU-hours of one month, pool, workload and use: what is priced as one line."""

    month: str
    start: datetime
    """Start of the charge within the month, UTC."""
    end: datetime
    """End of the charge within the month, UTC, not included."""
    pool: PoolKind
    gpu: Gpu
    workload_kind: WorkloadKind
    workload: str | None
    use: Use
    gpu_hours: float
    gpu_count: int
    """Most GPUs that the line covers at once."""
    held_for: Mapping[tuple[WorkloadKind, str], float] = field(default_factory=dict)
    """The same GPU-hours by the workloads for which they are held, where `workload` is None."""
    power_cap_fraction: float = 1.0
    """Power that the workload's GPUs may draw over their limit."""


@dataclass(frozen=True)
class ServiceReplicas:
    """Replicas of one service at its busiest, and the units it serves."""

    capacity: ReplicaCapacity
    needed_replica_count_peak: int
    held_replica_count: int
    gpu_count: int
    """GPUs of the held replicas, rounded up to whole instances where the pool is its own."""
    units_served: float
    """Units over all months of the service."""
    headroom: tuple[HeadroomPart, ...]
    """What is held above the need in the busiest hour, by cause."""
    ideal_gpu_hours: float
    """GPU-hours of replicas that are always just as many as the demand fills, parts included."""
    needed_share: Range
    """GPU-hours needed over the typical ones, by the range of a replica's capacity."""
    held_share: Range
    """GPUs held over the typical ones, by the same range."""


@dataclass(frozen=True)
class RunHours:
    """What a run does in each of its hours."""

    first: int
    """Its first hour in the horizon."""
    gpus: NDArray[np.int64]
    """GPUs that it holds."""
    used: NDArray[np.float64]
    """GPU-hours of progress."""
    redo: NDArray[np.float64]
    """GPU-hours of redo and restart."""
    returned: NDArray[np.int64]
    """GPUs that it gives back at the start of the hour."""


@dataclass(frozen=True)
class RunSchedule:
    """When one run really runs, given its pool."""

    need: RunNeed
    finish: datetime
    gpu_hours: float
    """GPU-hours that it holds, redo included."""
    hours: RunHours | None = field(default=None, compare=False)
    """Its hours within the horizon; None where it has no pool."""

    @property
    def hours_taken(self) -> Range:
        """Hours from its start to its end in its pool. [h]"""
        value, band = (
            (self.finish - self.need.start) / timedelta(hours=1),
            self.need.wall_clock_hours,
        )
        stretch = value / band.value
        return Range(value=value, low=band.low * stretch, high=band.high * stretch)


@dataclass(frozen=True)
class HeldGpus:
    """GPUs held in each hour of the horizon; in an hour with a change, the most of it."""

    training: NDArray[np.int64]
    """By runs, whole instances included where the pool is theirs."""
    serving: NDArray[np.int64]
    """By services, their spare and whole instances included where the pool is theirs."""
    allocated: NDArray[np.int64]
    """By the pool."""


@dataclass(frozen=True)
class HourlyWork:
    """GPU-hours of a pool in each hour of the horizon: of what it holds, all that is not idle."""

    allocated: NDArray[np.float64]
    """Held by the pool."""
    serving_held: NDArray[np.int64]
    """Held by services, their spare included."""
    serving_needed: NDArray[np.int64]
    """Needed by services."""
    training_used: NDArray[np.float64]
    """Progress of runs."""
    redo: NDArray[np.float64]
    """Redo and restarts of runs after preemptions."""

    @property
    def idle(self) -> NDArray[np.float64]:
        """Held without need: spare of services, and what no run takes."""
        rest = self.allocated - self.serving_needed - self.training_used - self.redo
        noise = HOUR_NOISE + FLOAT_NOISE * self.allocated
        return np.where(np.abs(rest) <= noise, 0.0, rest)


@dataclass(frozen=True)
class PoolUse:
    """One pool over time."""

    kind: PoolKind
    gpu: Gpu
    held_gpu_count: int
    """Most GPUs that it must hold at once, before whole instances."""
    needed_peak_gpu_count: int
    """Most GPUs that its workloads need at once, without spare."""
    hours: float
    """Hours in which it is held."""
    hour_uses: tuple[HourUse, ...]
    """By month, workload and use; together they are all GPU-hours that it holds."""
    services: tuple[ServiceReplicas, ...]
    runs: tuple[RunSchedule, ...]
    held: HeldGpus
    hourly: HourlyWork
    preempted_gpu_count_per_day: float = 0.0
    fixed: frozenset[WorkloadKind] = frozenset()
    """Kinds of work whose GPUs are held all the time, however fast they turn out to be."""
    existing_gpu_count: int = 0
    """GPUs of the pool that are there already."""
    harvested_gpu_hours: float = 0.0
    """GPU-hours that runs get only because serving does not hold its peak all the time."""


@dataclass(frozen=True)
class PoolsOutcome:
    """All pools of a plan over time, or what they lack."""

    pools: tuple[PoolSize, ...]
    hour_uses: tuple[HourUse, ...]
    """Ordered as lines are: by month, pool, workload and use."""
    services: tuple[ServiceReplicas, ...]
    """In the order of the request."""
    runs: tuple[RunSchedule, ...]
    """In the order of the request."""
    training_gpu_counts: tuple[int, ...]
    """Most GPUs that training holds at once, by month."""
    serving_gpu_counts: tuple[int, ...]
    """Most GPUs that serving holds at once, by month."""
    peak_gpu_count: int
    """Most GPUs that all pools hold at once."""
    loads: Mapping[tuple[PoolKind, str], NDArray[np.int64]] = field(compare=False)
    """GPUs that each pool holds in each hour of the horizon, by its kind and GPU."""
    allocated_gpu_hours: tuple[Range, ...]
    """GPU-hours that each pool holds, with their range."""
    uses: tuple[PoolUse, ...] = field(compare=False, default=())
    """Each pool hour by hour, in the order of `pools`."""
    infeasibilities: tuple[Infeasibility, ...] = ()


def gpu_hours_by_use(pool: PoolUse) -> dict[Use, float]:
    """GPU-hours of a pool that are used, redone and idle. [gpu_hour]"""
    hours: dict[Use, float] = {"used": 0.0, "redo": 0.0, "idle": 0.0}
    for item in pool.hour_uses:
        hours[item.use] += item.gpu_hours
    return hours


def gpu_hour_ranges(pool: PoolUse) -> tuple[Range, Range]:
    """GPU-hours held and used, with the ranges that wall clocks and capacities give them.

    The hours of a run go with its wall clock, those of a service with the replicas that it holds
    and needs; runs and services err independently. Hours that a fleet of a given size has for
    nobody are exact.
    """
    by_use = gpu_hours_by_use(pool)
    held: dict[tuple[WorkloadKind, str], float] = {}
    used: dict[tuple[WorkloadKind, str], float] = {}
    for item in pool.hour_uses:
        own = {(item.workload_kind, item.workload): item.gpu_hours} if item.workload else {}
        for owner, hours in (own or item.held_for).items():
            held[owner] = held.get(owner, 0.0) + hours
            if item.use == "used":
                used[owner] = used.get(owner, 0.0) + hours
    clocks = {("training", run.need.run.name): run.need.wall_clock_hours for run in pool.runs}
    named = {("serving", item.capacity.service.name): item for item in pool.services}
    holding = clocks | {owner: item.held_share for owner, item in named.items()}
    needing = clocks | {owner: item.needed_share for owner, item in named.items()}
    exact = Range.exactly(1.0)
    return (
        around(
            sum(by_use.values()),
            together(
                scaled(hours, exact if owner[0] in pool.fixed else holding[owner])
                for owner, hours in held.items()
            ),
        ),
        around(
            by_use["used"],
            together(scaled(hours, needing[owner]) for owner, hours in used.items()),
        ),
    )


def noted_size(pool: PoolUse, gpu_multiple: int, recorder: Recorder) -> int:
    """Existing GPUs of a pool, and whole instances beside them. [count]"""
    added = recorder.evaluate(
        whole_instances_gpu_count,
        gpu_count=pool.held_gpu_count - pool.existing_gpu_count,
        gpu_count_per_instance=gpu_multiple,
    )
    size = int(pool.existing_gpu_count + added)
    if pool.existing_gpu_count:
        recorder.note("existing_gpu_count", pool.existing_gpu_count)
        recorder.note("pool_gpu_count", size)
    return size
