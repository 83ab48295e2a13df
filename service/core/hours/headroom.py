"""What a service holds above its need: by named cause, each as replicas of its own."""

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario
from service.core.estimates import HeadroomCause
from service.core.formulas.demand import (
    cold_start_s,
    held_replica_count,
    needed_replica_count,
    steepest_rise_units_per_s,
)
from service.core.formulas.queueing import burst_units_per_s
from service.core.formulas.reliability import (
    availability_fraction,
    count_beside_maintenance,
    count_over_zones,
    failures_per_day,
    node_count_with_spares,
)
from service.core.hardware import Gpu
from service.core.hours.timeline import Amounts
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.demand import profile_factors
from service.core.scenarios.serving_service import (
    BurstHeadroom,
    ColdStartHeadroom,
    FailureHeadroom,
    Headroom,
    ServingService,
)
from service.core.units import BYTES_PER_GB, SECONDS_PER_HOUR

for _cause, _formula in (
    ("burst", "replicas for a busy window over those for the mean of its hour"),
    ("forecast_error", "replicas for the load times 1 + error over those for the load"),
    ("cold_start", "replicas for the steepest rise of the load while one starts"),
    ("maintenance", "⌈replicas / (1 - share out)⌉ over the replicas"),
    ("failures", "spares with which enough servers work with the wanted probability"),
    ("spare", "⌈replicas · (1 + spare fraction)⌉ + spare count over the replicas"),
    ("zone_loss", "zones · ⌈replicas / (zones - 1)⌉ over the replicas"),
):
    define_quantity(
        f"{_cause}_headroom_gpu_count",
        unit="count",
        per="service",
        formula=f"({_formula}) · GPUs per replica, in the busiest hour",
    )
define_quantity(
    "cold_start_s",
    unit="s",
    per="replica",
    formula="start + weights that one node loads / rate at which it reads them, or as given",
)
LEAST_AVAILABILITY = 0.5
LONGEST_START_S = 604_800.0
"""A week, after which a load that repeats by the week has risen as far as it does."""


@dataclass(frozen=True)
class ReplicaSize:
    """What of a replica decides how long it starts and how it fails."""

    gpu: Gpu
    gpu_count: int
    weight_bytes_per_gpu: float | None = None
    """Unknown where the replica was measured."""

    @property
    def gpus_on_node(self) -> int:
        """GPUs of the replica that share a node. [count]"""
        return min(self.gpu_count, self.gpu.node_gpu_count)


@dataclass(frozen=True)
class _Burst:
    percentile_fraction: float
    window_s: float
    over_mean_ratio: float | None
    arrival_dispersion_ratio: float

    def of(self, demand: Any) -> Any:
        """Demand of a busy window. [unit/s]"""
        if self.over_mean_ratio is not None:
            return demand * self.over_mean_ratio
        return burst_units_per_s(
            demand_units_per_s=demand,
            percentile_fraction=self.percentile_fraction,
            window_s=self.window_s,
            arrival_dispersion_ratio=self.arrival_dispersion_ratio,
        )


@dataclass(frozen=True)
class _Failures:
    """Replicas fail with what they stand on: several with one node, or each with all its nodes."""

    target_fraction: float
    unit_availability_fraction: float
    replicas_per_unit: int

    def held(self, replicas: Any) -> Any:
        """Replicas of which enough work. [count]"""
        counts, places = np.unique(np.ceil(replicas / self.replicas_per_unit), return_inverse=True)
        with_spares = node_count_with_spares(
            needed_count=counts,
            availability_fraction=self.unit_availability_fraction,
            target_fraction=self.target_fraction,
        )
        spares = (with_spares - counts)[places].reshape(np.shape(replicas))
        return replicas + spares * self.replicas_per_unit


@dataclass(frozen=True)
class ResolvedHeadroom:
    """What is held above the need, as resolved; a cause that is off holds nothing."""

    target_utilization_fraction: float
    spare_fraction: float
    spare_replica_count: int
    minimum_replica_count: int
    burst: _Burst | None = None
    forecast_error_fraction: float = 0.0
    cold_start_s: float = 0.0
    maintenance_out_fraction: float = 0.0
    failures: _Failures | None = None
    zone_count: int | None = None

    @property
    def held_utilization_fraction(self) -> float:
        """Demand over the capacity of needed and spare replicas, before they are rounded up. [1]

        Replicas that named causes hold do not count: latency is to hold while those are lost.
        """
        return self.target_utilization_fraction / (1 + self.spare_fraction)

    def needed(self, demand: Any, units_per_s_per_replica: Any) -> Any:
        """Replicas that a demand needs. [count]"""
        return needed_replica_count(
            demand_units_per_s=demand,
            units_per_s_per_replica=np.asarray(units_per_s_per_replica),
            target_utilization_fraction=self.target_utilization_fraction,
            minimum_replica_count=self.minimum_replica_count,
        )

    def held_by_cause(
        self, demand: Any, units_per_s_per_replica: Any, rise: Any = 0.0
    ) -> list[tuple[HeadroomCause | None, Amounts]]:
        """Replicas needed (no cause), and held once each cause that is on is added. [count]

        Args:
            demand: Units a second.
            units_per_s_per_replica: Capacity; one or many.
            rise: Units a second by which the demand rises while a replica starts.
        """
        needed = partial(self.needed, units_per_s_per_replica=units_per_s_per_replica)
        found: list[tuple[HeadroomCause | None, Amounts]] = [(None, needed(demand))]
        if self.burst is not None:
            demand = self.burst.of(demand)
            found.append(("burst", needed(demand)))
        if self.forecast_error_fraction:
            demand = demand * (1 + self.forecast_error_fraction)
            found.append(("forecast_error", needed(demand)))
        if self.cold_start_s:
            found.append(("cold_start", needed(demand + rise)))
        held = found[-1][1]
        if self.maintenance_out_fraction:
            held = count_beside_maintenance(
                replica_count=held, out_fraction=self.maintenance_out_fraction
            )
            found.append(("maintenance", held))
        if self.failures is not None:
            held = self.failures.held(held)
            found.append(("failures", held))
        held = held_replica_count(
            needed_replica_count=held,
            spare_fraction=self.spare_fraction,
            spare_replica_count=self.spare_replica_count,
        )
        found.append(("spare", held))
        if self.zone_count is not None:
            held = count_over_zones(replica_count=held, zone_count=self.zone_count)
            found.append(("zone_loss", held))
        return found

    def rise(self, demand: Amounts) -> Amounts:
        """Most by which each month's demand rises while a replica starts. [unit/s]"""
        if not self.cold_start_s:
            return np.zeros((len(demand), 1))
        return np.asarray(
            steepest_rise_units_per_s(demand_units_per_s=demand, duration_s=self.cold_start_s)
        )[:, None]


def resolved_headroom(
    service: ServingService,
    recorder: Recorder,
    *,
    pointer: str,
    replica: ReplicaSize | None = None,
) -> ResolvedHeadroom:
    """What a service holds above its need: as given, or by the catalog's rule.

    Args:
        service: What is asked.
        recorder: Takes the assumptions that are used.
        pointer: JSON pointer of the headroom.
        replica: What a replica stands on; without it, causes that depend on it are left out.

    Raises:
        InvalidScenario: If an override is out of its bounds, or a cause lacks what it needs.
    """
    given = service.headroom
    spare, target = _spare_and_target(given, recorder, pointer)
    look = _Look(given, recorder, pointer)
    return ResolvedHeadroom(
        target,
        spare,
        given.spare_replica_count,
        given.minimum_replica_count,
        burst=_burst(service, look),
        forecast_error_fraction=look.fraction("forecast_error", "error_fraction", 10.0),
        cold_start_s=(
            0.0
            if given.cold_start is None or replica is None
            else look.cold_start(given.cold_start, replica)
        ),
        maintenance_out_fraction=look.fraction("maintenance", "out_fraction", 0.9),
        failures=(
            None
            if given.failures is None or replica is None
            else look.failures(given.failures, replica)
        ),
        zone_count=None if given.zone_loss is None else given.zone_loss.zone_count,
    )


def _burst(service: ServingService, look: "_Look") -> _Burst | None:
    """Busy moments as asked for, or what a trace saw above the busiest hour of the profile."""
    asked, load = service.headroom.burst, service.load
    if load.kind != "trace":
        return None if asked is None else look.burst(asked)
    factors = profile_factors(service.demand_profile)
    ratio = load.peak_over_mean / (max(factors) * len(factors) / sum(factors))
    return _Burst(1.0, SECONDS_PER_HOUR, ratio, 1.0) if ratio > 1 else None


def _spare_and_target(given: Headroom, recorder: Recorder, pointer: str) -> tuple[float, float]:
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
    return spare, target


@dataclass(frozen=True)
class _Look:
    """Looks up what the named causes of one service need."""

    given: Headroom
    recorder: Recorder
    pointer: str

    def _assumed(self, name: str, given: float | None, field: str) -> float:
        return self.recorder.assume_given(name, given, override_at=f"{self.pointer}/{field}")

    def fraction(self, cause: str, field: str, highest: float) -> float:
        """A share of a cause; 0 where the cause is off."""
        asked = getattr(self.given, cause)
        if asked is None:
            return 0.0
        name = {"error_fraction": "forecast_error_fraction", "out_fraction": "maintenance_fraction"}
        found = self._assumed(name[field], getattr(asked, field), f"{cause}/{field}")
        if not 0 <= found <= highest:
            raise InvalidScenario(
                f"{name[field]} must be from 0 to {highest:g}",
                pointer=f"{self.recorder.override_pointer}/{name[field]}",
            )
        return found

    def burst(self, asked: BurstHeadroom) -> _Burst:
        """How far a busy window is above the mean of its hour."""
        scatter = 1.0
        if asked.over_mean_ratio is None:
            scatter = self.recorder.assume("arrival_dispersion_ratio").value
        return _Burst(asked.percentile_fraction, asked.window_s, asked.over_mean_ratio, scatter)

    def cold_start(self, asked: ColdStartHeadroom, replica: ReplicaSize) -> float:
        """Seconds until a replica that is wanted answers."""
        seconds = asked.duration_s
        if seconds is None:
            weight_bytes = self._weight_bytes_per_node(asked, replica)
            rate = self._assumed(
                "weight_load_gb_per_s_per_node",
                asked.storage_gb_per_s_per_node,
                "cold_start/storage_gb_per_s_per_node",
            )
            seconds = cold_start_s(
                replica_start_s=self.recorder.assume("replica_start_s").value,
                weight_bytes_per_node=weight_bytes,
                storage_bytes_per_s=rate * BYTES_PER_GB,
            )
        if seconds > LONGEST_START_S:
            raise InvalidScenario(
                f"a replica would start for {seconds:.3g} s, longer than a week: give the size of "
                "its weights and the speed of its storage, or duration_s",
                pointer=f"{self.pointer}/cold_start",
            )
        self.recorder.note("cold_start_s", seconds)
        return float(seconds)

    def _weight_bytes_per_node(self, asked: ColdStartHeadroom, replica: ReplicaSize) -> float:
        if asked.weights_gb_per_replica is not None:
            share = replica.gpus_on_node / replica.gpu_count
            return asked.weights_gb_per_replica * BYTES_PER_GB * share
        if replica.weight_bytes_per_gpu is None:
            raise InvalidScenario(
                "the weights of a measured replica are not known: give duration_s, or "
                "weights_gb_per_replica",
                pointer=f"{self.pointer}/cold_start",
            )
        return replica.weight_bytes_per_gpu * replica.gpus_on_node

    def failures(self, asked: FailureHeadroom, replica: ReplicaSize) -> _Failures:
        """How replicas fail: rates are those of servers, of which a large node has several."""
        rate = self._assumed(
            "failures_per_1000_node_days",
            asked.failures_per_1000_node_days,
            "failures/failures_per_1000_node_days",
        )
        hours = self._assumed("server_repair_hours", asked.repair_hours, "failures/repair_hours")
        node_gpus = replica.gpu.node_gpu_count
        server = self.recorder.assume("failure_server_gpu_count").value
        nodes = ceil(replica.gpu_count / node_gpus)
        working = availability_fraction(
            failures_per_day=failures_per_day(
                failures_per_1000_node_days=rate, node_count=ceil(node_gpus / server)
            ),
            repair_hours=hours,
        )
        if not working**nodes > LEAST_AVAILABILITY:
            raise InvalidScenario(
                f"with such failures and repairs a replica works {working**nodes:.3g} of the time: "
                "no spares make up for half and less",
                pointer=f"{self.pointer}/failures",
            )
        return _Failures(
            target_fraction=asked.target_fraction,
            unit_availability_fraction=float(working**nodes),
            replicas_per_unit=max(1, node_gpus // replica.gpu_count),
        )
