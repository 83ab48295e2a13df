"""What planners hand to one another: a run's need, a replica's capacity, a pool's use of hours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import (
    Infeasibility,
    PoolSize,
    Range,
    ServingMemory,
    SpeedBasis,
    TrainingMemory,
    Use,
    WorkloadKind,
)
from service.core.hardware import Gpu
from service.core.parallelism import ParallelLayout
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun


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
    needed_share: Range
    """GPU-hours needed over the typical ones, by the range of a replica's capacity."""
    held_share: Range
    """GPUs held over the typical ones, by the same range."""


@dataclass(frozen=True)
class RunSchedule:
    """When one run really runs, given its pool."""

    need: RunNeed
    finish: datetime
    gpu_hours: float
    """GPU-hours that it holds, redo included."""


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
    preempted_gpu_count_per_day: float = 0.0
    fixed: frozenset[WorkloadKind] = frozenset()
    """Kinds of work whose GPUs are held all the time, however fast they turn out to be."""


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
    infeasibilities: tuple[Infeasibility, ...] = ()
