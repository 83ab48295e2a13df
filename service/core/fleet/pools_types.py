"""Question and answer about pools: apart and shared side by side, hour by hour."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from service.core.answers import EstimateAnswer, EstimateQuestion
from service.core.estimates import (
    Infeasibility,
    PoolSize,
    ServingCounts,
    ServingServiceEstimate,
)
from service.core.scenarios.existing import ExistingGpus
from service.core.scenarios.scenario import Horizon, check_existing, check_workloads
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun
from service.core.value import Count, Month, Value


class PoolsQuestion(EstimateQuestion):
    """Workloads, and the fleet that they share or divide."""

    horizon: Horizon
    """Months that are looked at."""
    training_runs: Annotated[tuple[TrainingRun, ...], Field(max_length=50)] = ()
    """Runs to train."""
    serving_services: Annotated[tuple[ServingService, ...], Field(max_length=50)] = ()
    """Services to run."""
    fleet_gpu_count: Count | None = None
    """Size of the fleet in both modes, rounded up to whole instances; null finds the smallest of
    each."""
    existing_gpus: Annotated[tuple[ExistingGpus, ...], Field(max_length=50)] = ()
    """GPUs that are owned already: used first."""
    gpu_count_per_instance: Annotated[Count, Field(le=100_000)] | None = None
    """GPUs that are added at once; null takes the GPU's usual node."""
    series_month: Month | None = None
    """Month whose typical day or week is shown; the first of the horizon when null."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_workloads(self.horizon, self.training_runs, self.serving_services)
        check_existing(self.horizon, self.existing_gpus)
        for run in self.training_runs:
            if run.sizing.kind == "budget":
                raise ValueError(
                    f"{run.name!r}: pools are sized without prices, so no amount sizes a run; give "
                    "gpu_count or finish_by"
                )
        if self.series_month is not None and self.series_month not in self.horizon.months:
            raise ValueError("series_month is not in the horizon")
        return self


class HourSeries(Value):
    """A typical day, or week from Monday, of one pool in UTC hours: means over a month, to plot.

    In each hour needed, training, redo and idle GPUs are together those that the pool holds.
    """

    allocated_gpus: tuple[float, ...]
    """Held by the pool."""
    serving_held_gpus: tuple[float, ...]
    """Held by services, their spare included."""
    serving_needed_gpus: tuple[float, ...]
    """Needed by services."""
    training_gpus: tuple[float, ...]
    """Progress of runs."""
    redo_gpus: tuple[float, ...]
    """Redo and restarts of runs after preemptions."""
    idle_gpus: tuple[float, ...]
    """Held without need."""


class PoolInMode(Value):
    """One pool of a mode."""

    size: PoolSize
    """Size, hours and use."""
    allocated_fraction: float
    """GPU-hours that services and runs hold over those of the pool."""
    busy_fraction: float
    """GPU-hours that services need and runs progress in over those of the pool."""
    harvested_gpu_hours: float
    """GPU-hours that runs get only because serving does not hold its peak all the time."""
    series: HourSeries
    """Its typical hours."""


class RunInMode(Value):
    """One run in the pools of a mode."""

    name: str
    """Name of the run."""
    finish: datetime
    """When it ends, UTC; beyond the horizon, when it would at its mean pace, at most at the end of
    2100, which stands for never."""
    gpu_hours: float
    """GPU-hours that it holds, redo included."""
    preemption_count: int
    """Hours at whose start it gives GPUs back."""
    preempted_gpu_count: int
    """GPUs that it gives back in all."""
    redo_gpu_hours: float
    """GPU-hours in which it repeats what preemptions made it lose."""
    restart_gpu_hours: float
    """GPU-hours in which it restarts after them."""
    cost_gpu_hours_per_preemption: float
    """Redo and restart of a mean preemption."""
    finished_fraction_per_day: float
    """Share of its work that is done on a mean day from its start to its end; 0 for never."""
    finished_fraction_by_month: tuple[float, ...]
    """Share of its work that is done in each month of the horizon."""


class GpusLeft(Value):
    """GPUs that serving leaves to training, over the hours in which any are held."""

    least: int
    """In the hour with the fewest."""
    mean: float
    """On average."""
    most: int
    """In the hour with the most."""


class ModeEstimate(Value):
    """The pools of one mode: apart, or shared."""

    feasible: bool
    """False when anything ran out in this mode."""
    infeasibilities: tuple[Infeasibility, ...]
    """What ran out."""
    peak_gpu_count: int | None
    """Most GPUs that all pools hold at once; null where no pool could be sized."""
    idle_gpu_hours: float | None
    """GPU-hours that are held without need; null where no pool could be sized."""
    training_left: GpusLeft | None
    """GPUs that serving leaves to training; null where no pool could be sized."""
    pools: tuple[PoolInMode, ...]
    """Pools of equal GPUs."""
    training_runs: tuple[RunInMode, ...]
    """Each run in these pools."""


class PoolsAnswer(EstimateAnswer):
    """Pools apart beside pools shared."""

    serving_counts: tuple[ServingCounts, ...]
    """Five counts of serving, by kind of GPU."""
    serving_services: tuple[ServingServiceEstimate, ...]
    """Needed and held replicas of each service, its headroom by cause; without amounts."""
    series_month: Month
    """Month of the typical hours."""
    separate: ModeEstimate | None
    """Each side with a pool of its own; null when no workload could be planned."""
    shared: ModeEstimate | None
    """One pool for both; null when no workload could be planned."""
    saved_gpu_count: int | None
    """GPUs that sharing saves at the peak; null unless both modes are feasible and their sizes are
    what is looked for, no `fleet_gpu_count` being given."""
