"""What a service needs and holds through the hours of a plan."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Range
from service.core.formulas.demand import (
    growth_factor,
    held_replica_count,
    needed_replica_count,
    peak_units_per_s,
)
from service.core.hours.bands import scaled
from service.core.hours.timeline import Amounts, Counts, Timeline
from service.core.recorder import Recorder
from service.core.scenarios.demand import profile_factors
from service.core.scenarios.serving_service import ServingService
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_COUNT


@dataclass(frozen=True)
class ServiceDemand:
    """What one service needs and holds: by month of service and local hour of its profile."""

    service: ServingService
    gpu_count_per_replica: int
    timeline: Timeline
    first: int
    """Number of its first month in the horizon."""
    stop: int
    """Number of the month after its last."""
    needed: Counts
    """Replicas needed, one row for each month of service."""
    held: Counts
    """Replicas held, their spare included."""
    units_served: float
    """Units over all its months."""
    needed_share: Range
    """Replica-hours needed over the typical ones, by the range of a replica's capacity."""
    held_share: Range
    """Replicas held at the peak over the typical ones, by the same range."""

    @property
    def _hours(self) -> Counts:
        service = self.service
        return self.timeline.cycle(service.time_zone, self.needed.shape[1])[1][self._months]

    @property
    def _months(self) -> slice:
        return slice(self.first, self.stop)

    def used_gpu_hours(self) -> Amounts:
        """GPU-hours of needed replicas in each month of the horizon. [gpu_hour]"""
        result = np.zeros(len(self.timeline.months))
        result[self._months] = (self._hours * self.needed).sum(axis=1) * self.gpu_count_per_replica
        return result

    def monthly(self, replicas: Counts, most: np.ufunc = np.maximum) -> Counts:
        """Most (or fewest) GPUs of the replicas in each month of the horizon. [count]"""
        result = np.zeros(len(self.timeline.months), dtype=np.int64)
        result[self._months] = most.reduce(replicas, axis=1) * self.gpu_count_per_replica
        return result

    def hourly(self, replicas: Counts) -> Counts:
        """GPUs of the replicas in each hour of the horizon. [count]"""
        timeline, service = self.timeline, self.service
        hours = slice(*timeline.edges[[self.first, self.stop]])
        local = timeline.cycle(service.time_zone, replicas.shape[1])[0][hours]
        month = np.repeat(np.arange(len(replicas)), timeline.month_hours[self._months])
        result = np.zeros(timeline.hour_count, dtype=np.int64)
        result[hours] = replicas[month, local] * self.gpu_count_per_replica
        return result


def service_demand(
    service: ServingService,
    *,
    units_per_s_per_replica: Range,
    gpu_count_per_replica: int,
    timeline: Timeline,
    recorder: Recorder,
    pointer: str,
) -> ServiceDemand | Infeasibility:
    """Turn the load of a service into replicas, or say that they are beyond counting."""
    first = timeline.months.index(service.first_month or timeline.months[0])
    stop = timeline.months.index(service.last_month or timeline.months[-1]) + 1
    demand = _demand_by_cycle_hour(service, stop - first, recorder)
    headroom = resolved_headroom(service, recorder, pointer=f"{pointer}/headroom")
    needed, held = _replicas(demand, units_per_s_per_replica.value, headroom)
    gpu_count = float(held.max()) * gpu_count_per_replica
    if not gpu_count <= MAX_COUNT:
        return _beyond_counting(service, gpu_count)
    _record(units_per_s_per_replica, float(demand.max()), headroom, recorder)
    hours = timeline.cycle(service.time_zone, demand.shape[1])[1][first:stop]
    return ServiceDemand(
        service=service,
        gpu_count_per_replica=gpu_count_per_replica,
        timeline=timeline,
        first=first,
        stop=stop,
        needed=needed.astype(np.int64),
        held=held.astype(np.int64),
        units_served=float((hours * demand).sum() * SECONDS_PER_HOUR),
        **_shares(demand, hours, units_per_s_per_replica, headroom),
    )


def _shares(
    demand: Amounts, hours: Counts, speed: Range, headroom: "ResolvedHeadroom"
) -> dict[str, Range]:
    """Needed and held replicas over the typical ones: the faster a replica, the fewer they are."""
    if speed.low == speed.high:
        return {"needed_share": Range.exactly(1.0), "held_share": Range.exactly(1.0)}
    found = []
    for units_per_s in (speed.value, speed.high, speed.low):
        needed, held = np.minimum(_replicas(demand, units_per_s, headroom), MAX_COUNT)
        found.append((float((hours * needed).sum()), float(held.max())))
    (needed, held), (needed_low, held_low), (needed_high, held_high) = found
    return {
        "needed_share": scaled(1.0, Range(value=needed, low=needed_low, high=needed_high)),
        "held_share": scaled(1.0, Range(value=held, low=held_low, high=held_high)),
    }


def units_by_month(
    service: ServingService, *, timeline: Timeline, recorder: Recorder
) -> tuple[Amounts, float]:
    """Units that are asked for in each month of the horizon, and their mean over their peak."""
    first = timeline.months.index(service.first_month or timeline.months[0])
    stop = timeline.months.index(service.last_month or timeline.months[-1]) + 1
    demand = _demand_by_cycle_hour(service, stop - first, recorder)
    hours = timeline.cycle(service.time_zone, demand.shape[1])[1][first:stop]
    units = np.zeros(len(timeline.months))
    units[first:stop] = (hours * demand).sum(axis=1) * SECONDS_PER_HOUR
    return units, float(demand[0].mean() / demand[0].max())


def held_replicas_at_peak(
    service: ServingService, units_per_s_per_replica: Any, *, month_count: int, recorder: Recorder
) -> Any:
    """Replicas that a service holds in its busiest hour, for one capacity or many. [count]"""
    quiet = recorder.off()
    peak = float(_demand_by_cycle_hour(service, month_count, quiet).max())
    headroom = resolved_headroom(service, quiet, pointer="")
    return _replicas(peak, units_per_s_per_replica, headroom)[1]


def _demand_by_cycle_hour(service: ServingService, month_count: int, recorder: Recorder) -> Amounts:
    """Units a second, one row for each month of service. [unit/s]"""
    factors = np.array(profile_factors(service.demand_profile))
    load = service.load
    if load.kind == "daily_tokens":
        factors = factors / factors.max()
        peak = recorder.evaluate(
            peak_units_per_s,
            tokens_per_day=load.tokens_per_day,
            mean_over_peak_fraction=float(factors.mean()),
            tokens_per_unit=service.tokens_per_unit,
        )
    else:
        peak = load.peak_requests_per_s
    growth = growth_factor(
        growth_per_month_fraction=service.growth_per_month_fraction,
        month_count=np.arange(month_count),
    )
    demand: Amounts = peak * np.outer(growth, factors)
    return demand


@dataclass(frozen=True)
class ResolvedHeadroom:
    """What is held above the need, as resolved."""

    target_utilization_fraction: float
    spare_fraction: float
    spare_replica_count: int
    minimum_replica_count: int

    @property
    def held_utilization_fraction(self) -> float:
        """Demand over the capacity of all held replicas, before either is rounded up. [1]"""
        return self.target_utilization_fraction / (1 + self.spare_fraction)


def resolved_headroom(
    service: ServingService, recorder: Recorder, *, pointer: str
) -> ResolvedHeadroom:
    """What a service holds above its need: as given, or by the catalog's rule."""
    given = service.headroom
    spare = recorder.assume_given(
        "spare_fraction", given.spare_fraction, override_at=f"{pointer}/spare_fraction"
    )
    has_spare = spare > 0 or given.spare_replica_count > 0
    target = recorder.assume_given(
        "target_utilization_fraction",
        given.target_utilization_fraction,
        "with_spare" if has_spare else "without_spare",
        override_at=f"{pointer}/target_utilization_fraction",
    )
    if spare < 0:
        raise InvalidScenario(
            f"spare_fraction is {spare:g}, below 0",
            pointer="/scenario/assumption_overrides/spare_fraction",
        )
    if not 0 < target <= 1:
        raise InvalidScenario(
            f"target_utilization_fraction is {target:g}, not above 0 and at most 1",
            pointer="/scenario/assumption_overrides",
        )
    return ResolvedHeadroom(target, spare, given.spare_replica_count, given.minimum_replica_count)


def _replicas(
    demand_units_per_s: Any, units_per_s_per_replica: Any, headroom: ResolvedHeadroom
) -> tuple[Amounts, Amounts]:
    """Replicas needed and held; beyond floats where a replica serves next to nothing."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        needed = needed_replica_count(
            demand_units_per_s=demand_units_per_s,
            units_per_s_per_replica=np.asarray(units_per_s_per_replica),
            target_utilization_fraction=headroom.target_utilization_fraction,
            minimum_replica_count=headroom.minimum_replica_count,
        )
        held = held_replica_count(
            needed_replica_count=needed,
            spare_fraction=headroom.spare_fraction,
            spare_replica_count=headroom.spare_replica_count,
        )
    return needed, held


def _record(speed: Range, peak: float, headroom: ResolvedHeadroom, recorder: Recorder) -> None:
    """Note the replicas of the busiest hour: the faster a replica may be, the fewer they are."""
    bounds = np.minimum(_replicas(peak, [speed.high, speed.low], headroom), MAX_COUNT)
    (needed_low, needed_high), (held_low, held_high) = bounds
    needed = recorder.evaluate(
        needed_replica_count,
        low=needed_low,
        high=needed_high,
        demand_units_per_s=peak,
        units_per_s_per_replica=speed.value,
        target_utilization_fraction=headroom.target_utilization_fraction,
        minimum_replica_count=headroom.minimum_replica_count,
    )
    recorder.evaluate(
        held_replica_count,
        low=held_low,
        high=held_high,
        needed_replica_count=needed,
        spare_fraction=headroom.spare_fraction,
        spare_replica_count=headroom.spare_replica_count,
    )


def _beyond_counting(service: ServingService, gpu_count: float) -> Infeasibility:
    return Infeasibility(
        workload=service.name,
        code="fleet",
        limit="largest fleet that a plan counts",
        needed=gpu_count if np.isfinite(gpu_count) else None,
        available=MAX_COUNT,
        unit="gpu",
        nearest_fix=(
            "A load, growth or replica capacity with which the service holds at most "
            f"{MAX_COUNT} GPUs at its busiest."
        ),
    )
