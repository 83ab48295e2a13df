"""The question: what must run, how the fleet is shared, how it is bought, over which months."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import AssumptionName
from service.core.formulas.calendar import month_index, month_of
from service.core.hardware import ComputePrecision, Gpu
from service.core.parallelism import AutoLayout, LayoutChoice
from service.core.scenarios.demand import DailyTokensLoad, DemandProfile, PeakRequestsLoad, TimeZone
from service.core.scenarios.procurement import ProcurementRule
from service.core.scenarios.stacks import LossKind, SoftwareStack
from service.core.scenarios.training_state import StateRecipeName
from service.core.value import (
    LAST_MONTH,
    Count,
    CountOrZero,
    Currency,
    Flag,
    IsoDate,
    Key,
    Month,
    NonNegative,
    Number,
    Positive,
    PositiveFraction,
    Size,
    Text,
    TokenCount,
    Value,
)


def key_or_inline(value: Any) -> str:
    """Tag of a field that takes a catalog key or an object; decides which branch is checked."""
    return "key" if isinstance(value, str) else "inline"


GpuRef = TypeAliasType(
    "GpuRef",
    Annotated[
        Annotated[Key, Tag("key")] | Annotated[Gpu, Tag("inline")], Discriminator(key_or_inline)
    ],
)
"""A GPU by catalog key, or described in the request."""
ArchitectureRef = TypeAliasType(
    "ArchitectureRef",
    Annotated[
        Annotated[Key, Tag("key")] | Annotated[ModelArchitecture, Tag("inline")],
        Discriminator(key_or_inline),
    ],
)
"""An architecture by catalog key, or described in the request."""


class Horizon(Value):
    """The months that a plan covers, with their real lengths; the last is 2099-12 at most."""

    start_month: Month
    """First month."""
    month_count: Annotated[Count, Field(le=120)]
    """Months in all; the last of them may be 2099-12 at most."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last_month > LAST_MONTH:
            raise ValueError(f"the last month would be {self.last_month}, beyond {LAST_MONTH}")
        return self

    @property
    def last_month(self) -> str:
        """Last month of the horizon."""
        return month_of(month_index(self.start_month) + self.month_count - 1)

    @property
    def months(self) -> tuple[str, ...]:
        """All months in order."""
        first = month_index(self.start_month)
        return tuple(month_of(first + offset) for offset in range(self.month_count))


class GpuCountSizing(Value):
    """Use this many GPUs; the finish date is the answer."""

    kind: Literal["gpu_count"]
    """Kind of sizing."""
    gpu_count: Count
    """GPUs of the run."""


class FinishBySizing(Value):
    """Finish by this day; the GPU count is the answer."""

    kind: Literal["finish_by"]
    """Kind of sizing."""
    finish_date: IsoDate
    """Last day on which the run may still be running."""


Sizing = TypeAliasType(
    "Sizing", Annotated[GpuCountSizing | FinishBySizing, Field(discriminator="kind")]
)
"""What is given for a run, and so what is solved for."""


class EstimatedSpeed(Value):
    """Let the planner estimate the speed."""

    kind: Literal["estimated"] = "estimated"
    """Kind of speed."""
    software_stack: SoftwareStack | None = None
    """Training stack; null takes the vendor-tuned one for layouts that split layers, stages or
    experts, and sharded PyTorch for others."""
    software_year: Annotated[float, Field(ge=2018, le=2100)] | None = None
    """Year of the software, such as 2025.5; null takes the newest that was measured. Decides the
    speed of mixtures, which software moves faster than hardware."""


class MfuSpeed(Value):
    """Model FLOPs (6PT, recompute ignored) over the dense peak of the compute precision."""

    kind: Literal["mfu"]
    """Kind of speed."""
    mfu_fraction: PositiveFraction
    """Model FLOPs utilisation; holds everything that slows a step."""


class HfuSpeed(Value):
    """Executed FLOPs (8PT under full recompute) over the dense peak of the compute precision."""

    kind: Literal["hfu"]
    """Kind of speed."""
    hfu_fraction: PositiveFraction
    """Hardware FLOPs utilisation; holds everything that slows a step."""


class MeasuredTrainingSpeed(Value):
    """Tokens per second and GPU as measured; holds everything that slows a step."""

    kind: Literal["measured"]
    """Kind of speed."""
    tokens_per_s_per_gpu: Positive
    """Measured tokens per second and GPU."""


TrainingSpeed = TypeAliasType(
    "TrainingSpeed",
    Annotated[
        EstimatedSpeed | MfuSpeed | HfuSpeed | MeasuredTrainingSpeed, Field(discriminator="kind")
    ],
)
"""How the speed of a run is known."""


class Adapter(Value):
    """Train a low-rank adapter instead of all weights."""

    kind: Literal["lora", "qlora"]
    """qlora keeps the frozen base in 4 bits."""
    rank: Annotated[Size, Field(le=4096)] = 16
    """Rank of the adapter."""


class Reliability(Value):
    """How often a run fails and what a failure costs; null takes the catalog's assumption."""

    failures_per_1000_node_days: NonNegative | None = None
    """Unexpected stops per 1,000 node-days."""
    checkpoint_interval_s: Positive | None = None
    """Seconds between checkpoints."""
    checkpoint_save_s: NonNegative | None = None
    """Seconds for which saving stops the run."""
    restart_s: NonNegative | None = None
    """Seconds from a failure to the next step."""


class TrainingRun(Value):
    """One training run: a lock-step job on one kind of GPU."""

    name: Text
    """Unique over all workloads: the key in comparisons and CSV."""
    architecture: ArchitectureRef | None = None
    """What is trained; may be absent only when the speed is measured."""
    gpu: GpuRef
    """What it runs on."""
    training_tokens: TokenCount
    """Tokens to train on."""
    sequence_length_tokens: Annotated[Count, Field(le=100_000_000)] = 8192
    """Tokens of one sequence."""
    global_batch_tokens: TokenCount = 4_194_304
    """Tokens of one optimizer step."""
    state_recipe: StateRecipeName = "mixed_bf16_adam_bf16_gradients"
    """Weights, gradients and optimizer state: 16 bytes a parameter by default."""
    adapter: Adapter | None = None
    """Low-rank adapter; null trains all weights."""
    loss: LossKind | None = None
    """How many copies of the logits the loss makes; null takes what the stack usually has."""
    compute_precision: ComputePrecision = "bf16"
    """Precision of the matrix unit, whose dense peak utilisation is measured against."""
    layout: LayoutChoice = AutoLayout()
    """How the model is spread over GPUs."""
    sizing: Sizing
    """What is given, and so what is solved for."""
    speed: TrainingSpeed = EstimatedSpeed()
    """How the speed is known."""
    start_date: IsoDate | None = None
    """First day; the first day of the horizon when null."""
    reliability: Reliability = Reliability()
    """Failures and checkpoints."""
    run_multiplier: Annotated[Positive, Field(le=1000)] = 1.0
    """Multiplies the hours: ablations and failed runs."""
    elastic: Flag = False
    """True when a preemption takes only the GPUs it needs instead of restarting the whole run."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.architecture is None and self.speed.kind != "measured":
            raise ValueError("architecture may be absent only when speed.kind is measured")
        if self.global_batch_tokens < self.sequence_length_tokens:
            raise ValueError("global_batch_tokens is below sequence_length_tokens")
        return self


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
    headroom: Headroom = Headroom()
    """What is held above the need."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.capacity.kind == "estimated":
            needed = ("architecture", "weight_format", "input_tokens_mean", "output_tokens_mean")
            missing = [name for name in needed if getattr(self, name) is None]
            if missing:
                raise ValueError(f"{', '.join(missing)}: needed unless capacity.kind is measured")
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


class SeparatePooling(Value):
    """Training and serving each have a pool of their own."""

    kind: Literal["separate"]
    """Kind of pooling."""


class SharedPooling(Value):
    """Serving takes what each hour needs, training the rest."""

    kind: Literal["shared"]
    """Kind of pooling."""
    fleet_gpu_count: Count | None = None
    """Size of the fleet; null asks for the smallest that serves every hour and ends each run."""


Pooling = TypeAliasType(
    "Pooling", Annotated[SeparatePooling | SharedPooling, Field(discriminator="kind")]
)
"""How training and serving share GPUs."""


class Scenario(Value):
    """The whole question of a plan."""

    horizon: Horizon
    """Months that the plan covers."""
    currency: Currency = "USD"
    """Currency of all amounts; prices in another one are refused."""
    training_runs: Annotated[tuple[TrainingRun, ...], Field(max_length=50)] = ()
    """Runs to train."""
    serving_services: Annotated[tuple[ServingService, ...], Field(max_length=50)] = ()
    """Services to run."""
    pooling: Pooling
    """How the two share GPUs."""
    procurement: Annotated[tuple[ProcurementRule, ...], Field(min_length=1, max_length=50)]
    """How GPUs are paid for: the first rule that matches a pool and GPU holds."""
    assumption_overrides: Annotated[
        dict[AssumptionName, Number], Field(max_length=200, default_factory=dict)
    ]
    """Other values for named assumptions of the catalog."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [run.name for run in self.training_runs]
        names += [service.name for service in self.serving_services]
        if not names:
            raise ValueError("at least one training run or serving service is needed")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"workload names are not unique: {', '.join(map(repr, repeated))}")
        for service in self.serving_services:
            first = service.first_month or self.horizon.start_month
            last = service.last_month or self.horizon.last_month
            if not self.horizon.start_month <= first <= last <= self.horizon.last_month:
                raise ValueError(f"{service.name!r}: first_month..last_month is not in the horizon")
        return self
