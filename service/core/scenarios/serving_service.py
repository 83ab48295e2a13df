"""A serving service as asked: the load, its objectives, the capacity and the headroom."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.scenarios.demand import DailyTokensLoad, DemandProfile, PeakRequestsLoad, TimeZone
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.replica_settings import ReplicaSettings
from service.core.value import (
    Count,
    CountOrZero,
    Key,
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


class Headroom(Value):
    """What is held above the need, on whole replicas."""

    target_utilization_fraction: PositiveFraction | None = None
    """Share of a replica's capacity that is planned on; null: 1.0 with a spare, 0.8 without."""
    spare_fraction: Annotated[NonNegative, Field(le=10)] | None = None
    """Replicas held above the need, as a share of the need; null: the catalog's 0.10."""
    spare_replica_count: CountOrZero = 0
    """Replicas held on top of that."""
    minimum_replica_count: Annotated[Count, Field(le=1_000_000)] = 1
    """Replicas needed even without load."""


Load = TypeAliasType(
    "Load", Annotated[PeakRequestsLoad | DailyTokensLoad, Field(discriminator="kind")]
)
"""How much a service is asked for."""


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
    weight_format: Key | None = None
    """Number format of the weights; may be absent only when capacity is measured."""
    kv_cache_format: Key = "bf16"
    """Number format of the cache."""
    engine: Key | None = None
    """Serving engine and version; the catalog's default when null."""
    load: Load
    """Demand at its peak or over a day."""
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
