"""What a service needs and holds through the hours of a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from service.core.estimates import HeadroomCause, HeadroomPart, Infeasibility, Range
from service.core.formulas.calendar import midnight
from service.core.formulas.demand import (
    growth_factor,
    held_replica_count,
    needed_replica_count,
    peak_units_per_s,
    users_units_per_s,
)
from service.core.hours.bands import scaled
from service.core.hours.headroom import ReplicaSize, ResolvedHeadroom, resolved_headroom
from service.core.hours.timeline import Amounts, Counts, Timeline
from service.core.recorder import Recorder
from service.core.scenarios.demand import profile_factors
from service.core.scenarios.serving_service import ServingService
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR
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
    hours: slice
    """Hours of the horizon in which it serves."""
    often: Counts
    """How often each local hour falls into each month of service."""
    needed: Counts
    """Replicas needed, one row for each month of service."""
    held: Counts
    """Replicas held, their spare included."""
    ideal_gpu_hours: float
    """GPU-hours of replicas that are always just as many as the demand fills, parts included."""
    headroom: tuple[HeadroomPart, ...]
    """What is held above the need in the busiest hour, by cause."""
    units_served: float
    """Units over all its months."""
    needed_share: Range
    """Replica-hours needed over the typical ones, by the range of a replica's capacity."""
    held_share: Range
    """Replicas held at the peak over the typical ones, by the same range."""

    @property
    def _months(self) -> slice:
        return slice(self.first, self.stop)

    def used_gpu_hours(self) -> Amounts:
        """GPU-hours of needed replicas in each month of the horizon. [gpu_hour]"""
        result = np.zeros(len(self.timeline.months))
        result[self._months] = (self.often * self.needed).sum(axis=1) * self.gpu_count_per_replica
        return result

    def monthly(self, replicas: Counts) -> Counts:
        """Most GPUs of the replicas in each month of the horizon. [count]"""
        result = np.zeros(len(self.timeline.months), dtype=np.int64)
        result[self._months] = replicas.max(axis=1) * self.gpu_count_per_replica
        return result

    @cached_property
    def hourly_needed(self) -> Counts:
        """GPUs of needed replicas in each hour of the horizon. [count]"""
        return self._hourly(self.needed)

    @cached_property
    def hourly_held(self) -> Counts:
        """GPUs of held replicas in each hour of the horizon. [count]"""
        return self._hourly(self.held)

    def _hourly(self, replicas: Counts) -> Counts:
        timeline, service = self.timeline, self.service
        local = timeline.cycle(service.time_zone, replicas.shape[1])[0][self.hours]
        month = timeline.month_of_hour[self.hours] - self.first
        result = np.zeros(timeline.hour_count, dtype=np.int64)
        result[self.hours] = replicas[month, local] * self.gpu_count_per_replica
        return result


def service_demand(
    service: ServingService,
    *,
    units_per_s_per_replica: Range,
    replica: ReplicaSize,
    timeline: Timeline,
    recorder: Recorder,
    pointer: str,
) -> ServiceDemand | Infeasibility:
    """Turn the load of a service into replicas, or say that they are beyond counting."""
    hours = _hours_of(service, timeline)
    first, stop = _months_of(hours, timeline)
    demand = _demand_by_cycle_hour(service, stop - first, recorder)
    often = timeline.often(service.time_zone, demand.shape[1], hours)[first:stop]
    headroom = resolved_headroom(service, recorder, pointer=f"{pointer}/headroom", replica=replica)
    serving = _Serving(demand, headroom.rise(demand), often, headroom)
    needed, held = serving.replicas(units_per_s_per_replica.value)
    gpu_count = float(held.max()) * replica.gpu_count
    if not gpu_count <= MAX_COUNT:
        return _beyond_counting(service, gpu_count)
    parts = _record(serving, units_per_s_per_replica, replica.gpu_count, recorder)
    return ServiceDemand(
        service=service,
        gpu_count_per_replica=replica.gpu_count,
        timeline=timeline,
        first=first,
        stop=stop,
        hours=hours,
        often=often,
        needed=needed.astype(np.int64),
        held=held.astype(np.int64),
        ideal_gpu_hours=float(
            (often * demand).sum() / units_per_s_per_replica.value * replica.gpu_count
        ),
        headroom=parts,
        units_served=float((often * demand).sum() * SECONDS_PER_HOUR),
        **_shares(serving, units_per_s_per_replica),
    )


def _hours_of(service: ServingService, timeline: Timeline) -> slice:
    """Hours of the horizon in which a service is there."""
    edges = timeline.edges
    start, stop = int(edges[0]), int(edges[-1])
    if service.first_month is not None:
        start = int(edges[timeline.months.index(service.first_month)])
    if service.last_month is not None:
        stop = int(edges[timeline.months.index(service.last_month) + 1])
    if service.launch_date is not None:
        start = int(timeline.hour_of(midnight(service.launch_date)))
    if service.retirement_date is not None:
        stop = int(timeline.hour_of(midnight(service.retirement_date))) + HOURS_PER_DAY
    return slice(start, stop)


def _months_of(hours: slice, timeline: Timeline) -> tuple[int, int]:
    """Number of the first month of these hours, and of the one after their last."""
    first, last = timeline.month_of_hour[[hours.start, hours.stop - 1]].tolist()
    return first, last + 1


@dataclass(frozen=True)
class _Serving:
    """Demand by month and local hour; hours that a month of service does not have serve nothing."""

    demand: Amounts
    rise: Amounts
    often: Counts
    headroom: ResolvedHeadroom

    def replicas(self, units_per_s: float) -> tuple[Amounts, Amounts]:
        """Replicas needed and held by such a capacity. [count]"""
        stages = _by_cause(self.demand, units_per_s, self.headroom, self.rise)
        there = self.often > 0
        return stages[0][1] * there, stages[-1][1] * there

    @property
    def busiest(self) -> tuple[float, float]:
        """Demand of the busiest hour, and by how much it rises in that month. [unit/s]"""
        month, hour = np.unravel_index(
            np.where(self.often > 0, self.demand, -1.0).argmax(), self.demand.shape
        )
        return float(self.demand[month, hour]), float(self.rise[month, 0])


def _by_cause(
    demand: Any, units_per_s: Any, headroom: ResolvedHeadroom, rise: Any
) -> list[tuple[HeadroomCause | None, Amounts]]:
    """Replicas as each cause adds to them; beyond floats where one serves next to nothing."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return headroom.held_by_cause(demand, units_per_s, rise)


def _shares(serving: _Serving, speed: Range) -> dict[str, Range]:
    """Needed and held replicas over the typical ones: the faster a replica, the fewer they are."""
    if speed.low == speed.high:
        return {"needed_share": Range.exactly(1.0), "held_share": Range.exactly(1.0)}
    found = []
    for units_per_s in (speed.value, speed.high, speed.low):
        needed, held = np.minimum(serving.replicas(units_per_s), MAX_COUNT)
        found.append((float((serving.often * needed).sum()), float(held.max())))
    (needed, held), (needed_low, held_low), (needed_high, held_high) = found
    return {
        "needed_share": scaled(1.0, Range(value=needed, low=needed_low, high=needed_high)),
        "held_share": scaled(1.0, Range(value=held, low=held_low, high=held_high)),
    }


def units_by_month(
    service: ServingService, *, timeline: Timeline, recorder: Recorder
) -> tuple[Amounts, float]:
    """Units that are asked for in each month of the horizon, and their mean over their peak."""
    hours = _hours_of(service, timeline)
    first, stop = _months_of(hours, timeline)
    demand = _demand_by_cycle_hour(service, stop - first, recorder)
    often = timeline.often(service.time_zone, demand.shape[1], hours)[first:stop]
    units = np.zeros(len(timeline.months))
    units[first:stop] = (often * demand).sum(axis=1) * SECONDS_PER_HOUR
    return units, float(demand[0].mean() / demand[0].max())


def held_replicas_at_peak(
    service: ServingService, units_per_s_per_replica: Any, *, month_count: int, recorder: Recorder
) -> Any:
    """Replicas that a service holds in its busiest hour, for one capacity or many. [count]

    Spares against failures and cold starts are left out: they hang on the layout that is sought.
    """
    quiet = recorder.off()
    peak = float(_demand_by_cycle_hour(service, month_count, quiet).max())
    headroom = resolved_headroom(service, quiet, pointer="")
    return _by_cause(peak, units_per_s_per_replica, headroom, 0.0)[-1][1]


def busiest_and_mean_units_per_s(
    service: ServingService, recorder: Recorder
) -> tuple[float, float]:
    """Load of the first month: of its busiest hour, or interval of a trace, and of a mean hour.

    Both in units per second.
    """
    demand = _demand_by_cycle_hour(service, 1, recorder)[0]
    busiest = float(demand.max())
    headroom = resolved_headroom(service, recorder.off(), pointer="")
    if service.load.kind == "trace" and headroom.burst is not None:
        busiest = float(headroom.burst.of(busiest))
    return busiest, float(demand.mean())


def _demand_by_cycle_hour(service: ServingService, month_count: int, recorder: Recorder) -> Amounts:
    """Units a second, one row for each month of service. [unit/s]"""
    factors = np.array(profile_factors(service.demand_profile))
    load = service.load
    peak: float
    if load.kind == "daily_tokens":
        factors = factors / factors.max()
        peak = recorder.evaluate(
            peak_units_per_s,
            tokens_per_day=load.tokens_per_day,
            mean_over_peak_fraction=float(factors.mean()),
            tokens_per_unit=service.tokens_per_unit,
        )
    elif load.kind == "users":
        factors = factors / factors.max()
        peak = recorder.evaluate(
            users_units_per_s,
            user_count=load.user_count,
            active_fraction=load.active_fraction,
            requests_per_active_user_hour=load.requests_per_active_user_hour,
        )
    elif load.kind == "trace":
        factors = factors / factors.mean()
        peak = load.requests_per_s_mean
    else:
        peak = load.peak_requests_per_s
    growth = growth_factor(
        growth_per_month_fraction=service.growth_per_month_fraction,
        month_count=np.arange(month_count),
    )
    demand: Amounts = peak * np.outer(growth, factors)
    return demand


def _record(
    serving: _Serving, speed: Range, gpu_count_per_replica: int, recorder: Recorder
) -> tuple[HeadroomPart, ...]:
    """Note the replicas of the busiest hour: the faster a replica may be, the fewer they are."""
    headroom, (peak, rise) = serving.headroom, serving.busiest
    bounds = _by_cause(peak, [speed.high, speed.low], headroom, rise)
    (needed_low, needed_high), (held_low, held_high) = (
        np.minimum(bounds[index][1], MAX_COUNT) for index in (0, -1)
    )
    recorder.evaluate(
        needed_replica_count,
        low=needed_low,
        high=needed_high,
        demand_units_per_s=peak,
        units_per_s_per_replica=speed.value,
        target_utilization_fraction=headroom.target_utilization_fraction,
        minimum_replica_count=headroom.minimum_replica_count,
    )
    stages = _by_cause(peak, speed.value, headroom, rise)
    spared = dict(zip([cause for cause, _ in stages[1:]], stages, strict=False))["spare"][1]
    recorder.evaluate(
        held_replica_count,
        low=held_low,
        high=held_high,
        needed_replica_count=float(spared),
        spare_fraction=headroom.spare_fraction,
        spare_replica_count=headroom.spare_replica_count,
    )
    if headroom.zone_count is not None:
        recorder.note("held_replica_count", float(stages[-1][1]), low=held_low, high=held_high)
    return tuple(_parts(stages, gpu_count_per_replica, recorder))


def _parts(
    stages: Sequence[tuple[HeadroomCause | None, Amounts]],
    gpu_count_per_replica: int,
    recorder: Recorder,
) -> Iterator[HeadroomPart]:
    """What each cause adds in the busiest hour."""
    for (_, before), (cause, after) in pairwise(stages):
        if cause is not None:
            added = int(after - before)
            recorder.note(f"{cause}_headroom_gpu_count", added * gpu_count_per_replica)
            yield HeadroomPart(
                cause=cause, replica_count=added, gpu_count=added * gpu_count_per_replica
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
