"""A serving service as asked: the load, its objectives, the capacity and the headroom."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.scenarios.demand import DemandProfile, Load, TimeZone
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.replica_settings import ReplicaSettings
from service.core.value import (
    Count,
    CountOrZero,
    EntryName,
    IsoDate,
    Month,
    NonNegative,
    Number,
    Positive,
    PositiveFraction,
    Text,
    Value,
)


class Objectives(Value):
    """Latency that a service must hold."""

    ttft_p95_s: Positive | None = None
    """95th percentile of the time to first token in seconds."""
    tpot_mean_s: Positive | None = None
    """Mean time per output token after the first, in seconds."""


class EstimatedCapacity(Value):
    """Let the planner estimate what a replica serves."""

    kind: Literal["estimated"] = "estimated"
    """Kind of capacity."""


class MeasuredCapacity(Value):
    """What a replica serves, as measured."""

    kind: Literal["measured"]
    """Kind of capacity."""
    units_per_s_per_replica: Positive
    """Units per second of one replica."""
    gpu_count_per_replica: Annotated[Count, Field(le=100_000)]
    """GPUs of one replica."""


Capacity = TypeAliasType(
    "Capacity", Annotated[EstimatedCapacity | MeasuredCapacity, Field(discriminator="kind")]
)
"""How the capacity of a replica is known."""


class BurstHeadroom(Value):
    """Hold what a busy moment asks for above the mean of its hour."""

    percentile_fraction: Annotated[PositiveFraction, Field(lt=1)] = 0.99
    """Share of the windows whose load is held."""
    window_s: Annotated[Number, Field(ge=1, le=3600)] = 60.0
    """Length of a window: what is shorter waits in a queue."""
    over_mean_ratio: Annotated[Number, Field(ge=1, le=1000)] | None = None
    """Load at that percentile over the mean of its hour, as measured; null takes arrivals whose
    counts scatter as the catalog's `arrival_dispersion_ratio` says."""


class ForecastHeadroom(Value):
    """Hold more than is forecast."""

    error_fraction: Annotated[NonNegative, Field(le=10)] | None = None
    """Share by which the load may exceed its forecast; null takes the catalog's."""


class ColdStartHeadroom(Value):
    """Hold what the steepest rise of the day or week adds while a replica starts."""

    duration_s: Annotated[NonNegative, Field(le=604_800)] | None = None
    """Seconds from the wish for a replica to its first answer; null adds the time in which its
    weights are loaded to the catalog's time in which it starts."""
    weights_gb_per_replica: Positive | None = None
    """Weights that a replica loads in GB; null takes those of the estimated replica."""
    storage_gb_per_s_per_node: Positive | None = None
    """Speed at which one node reads weights; null takes the catalog's."""


class MaintenanceHeadroom(Value):
    """Hold what is taken out for upgrades and repairs that are planned."""

    out_fraction: Annotated[NonNegative, Field(le=0.9)] | None = None
    """Share of the replicas that is out at a time; null takes the catalog's."""


class FailureHeadroom(Value):
    """Hold as many spares as it takes for enough replicas to work at a time."""

    target_fraction: Annotated[PositiveFraction, Field(lt=1)] = 0.999
    """Share of the time in which enough work."""
    failures_per_1000_node_days: NonNegative | None = None
    """Failures of servers; null takes the catalog's."""
    repair_hours: Annotated[NonNegative, Field(le=8760)] | None = None
    """Hours until a failed server is back; null takes the catalog's."""


class ZoneHeadroom(Value):
    """Spread replicas evenly over zones, and outlive the loss of one of them."""

    zone_count: Annotated[Count, Field(ge=2, le=100)]
    """Zones in all."""


class Headroom(Value):
    """What is held above the need, on whole replicas.

    Held are the need with the named causes that are switched on, in the order in which they stand
    here; then the spare; then what the loss of a zone takes. All named causes are off by default.
    They do not replace the spare: where they stand for it, `spare_fraction` is given as 0.
    """

    target_utilization_fraction: PositiveFraction | None = None
    """Share of a replica's capacity that is planned on; null: 1.0 with a spare, 0.8 without."""
    spare_fraction: Annotated[NonNegative, Field(le=10)] | None = None
    """Replicas held above the need, as a share of the need; null: the catalog's 0.10."""
    spare_replica_count: CountOrZero = 0
    """Replicas held on top of that."""
    minimum_replica_count: Annotated[Count, Field(le=1_000_000)] = 1
    """Replicas needed even without load."""
    burst: BurstHeadroom | None = None
    """Busy moments within an hour; null holds nothing for them."""
    forecast_error: ForecastHeadroom | None = None
    """A load above its forecast; null holds nothing for it."""
    cold_start: ColdStartHeadroom | None = None
    """A load that rises while replicas start; null holds nothing for it."""
    maintenance: MaintenanceHeadroom | None = None
    """Planned work on nodes; null holds nothing for it."""
    failures: FailureHeadroom | None = None
    """Failed servers; null holds nothing for them."""
    zone_loss: ZoneHeadroom | None = None
    """Loss of one of several zones; null holds nothing for it."""


def check_busy_moments(load: Load, headroom: Headroom) -> None:
    """Refuse a load whose busiest interval is told twice."""
    if load.kind == "trace" and headroom.burst is not None:
        raise ValueError("headroom.burst and peak_over_mean are two answers to one: give one")


class ServingService(Value):
    """One service: replicas of a model behind one endpoint, through the day."""

    name: Text
    """Unique over all workloads: the key in comparisons and CSV."""
    architecture: ArchitectureRef | None = None
    """What is served; may be absent only when capacity is measured."""
    gpu: GpuRef
    """What it runs on."""
    unit_name: Text = "request"
    """What one unit of load is: request, image, prediction."""
    weight_format: EntryName | None = None
    """Number format of the weights; may be absent only when capacity is measured."""
    kv_cache_format: EntryName = "bf16"
    """Number format of the cache."""
    engine: EntryName | None = None
    """Serving engine and version; the catalog's default when null."""
    load: Load
    """Demand at its peak, over a day, of users, or of a trace."""
    input_tokens_mean: Annotated[NonNegative, Field(le=1e9)] | None = None
    """Mean prompt length; may be absent only when capacity is measured."""
    output_tokens_mean: Annotated[Number, Field(ge=1, le=1e9)] | None = None
    """Mean answer length; may be absent only when capacity is measured."""
    sequence_tokens_p95: Annotated[Positive, Field(le=1e9)] | None = None
    """95th percentile of prompt and answer together; twice the sum of the means when null."""
    demand_profile: DemandProfile = "flat"
    """Shape of the day or week in local time."""
    time_zone: TimeZone = "UTC"
    """IANA zone of the profile's hours."""
    growth_per_month_fraction: Annotated[Number, Field(gt=-1, le=10)] = 0.0
    """Growth of the peak from month to month."""
    first_month: Month | None = None
    """First month of service; the horizon's when null."""
    last_month: Month | None = None
    """Last month of service; the horizon's when null."""
    launch_date: IsoDate | None = None
    """First day of service (UTC), in place of `first_month`."""
    retirement_date: IsoDate | None = None
    """Last day of service (UTC), in place of `last_month`."""
    priority: Annotated[CountOrZero, Field(le=1000)] = 0
    """Where a given fleet is too small, services of a higher one are served first."""
    objectives: Objectives | None = None
    """Latency to hold; null sizes for throughput only, and an advisory says so."""
    capacity: Capacity = EstimatedCapacity()
    """How a replica's capacity is known."""
    replica: ReplicaSettings = ReplicaSettings()
    """How a replica is spread, loaded and sped up; left out where the capacity is measured."""
    headroom: Headroom = Headroom()
    """What is held above the need."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.capacity.kind == "estimated":
            needed = ("architecture", "weight_format", "input_tokens_mean", "output_tokens_mean")
            missing = [name for name in needed if getattr(self, name) is None]
            if missing:
                raise ValueError(f"{', '.join(missing)}: needed unless capacity.kind is measured")
        elif self.replica != ReplicaSettings():
            raise ValueError("replica: a measured capacity holds all that it says; leave it out")
        if self.load.kind == "daily_tokens" and not self.tokens_per_unit:
            raise ValueError("daily_tokens needs input_tokens_mean and output_tokens_mean")
        check_busy_moments(self.load, self.headroom)
        for month, day in (("first_month", "launch_date"), ("last_month", "retirement_date")):
            if getattr(self, month) is not None and getattr(self, day) is not None:
                raise ValueError(f"{month} and {day} are two answers to one question: give one")
        mean, tail = self.tokens_per_unit, self.sequence_tokens_p95
        if tail is not None and mean is not None and tail < mean:
            raise ValueError("sequence_tokens_p95 is below the mean input and output together")
        return self

    @property
    def tokens_per_unit(self) -> float | None:
        """Mean prompt and answer tokens together. [token]"""
        if self.input_tokens_mean is None or self.output_tokens_mean is None:
            return None
        return self.input_tokens_mean + self.output_tokens_mean
