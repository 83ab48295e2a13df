"""What questions about one serving replica share."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from service.core.answers import EstimateQuestion
from service.core.scenarios.demand import DemandProfile, Load, PeakRequestsLoad
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.replica_settings import ReplicaLayout, ReplicaSettings
from service.core.scenarios.serving_service import Headroom, Objectives, ServingService
from service.core.value import CountOrZero, EntryName, NonNegative, Number, Positive

NAME = "replica"
"""Name of the service that a single estimate stands for."""
ONE_REQUEST = PeakRequestsLoad(kind="peak_requests", peak_requests_per_s=1.0)
"""Load where a question has none: nothing hangs on it."""


class TokenLengths(EstimateQuestion):
    """Lengths of requests."""

    input_tokens_mean: Annotated[NonNegative, Field(le=1e9)]
    """Mean prompt length."""
    output_tokens_mean: Annotated[Number, Field(ge=1, le=1e9)]
    """Mean answer length."""
    sequence_tokens_p95: Annotated[Positive, Field(le=1e9)] | None = None
    """95th percentile of prompt and answer together; twice the sum of the means when null."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        tail = self.sequence_tokens_p95
        if tail is not None and tail < self.input_tokens_mean + self.output_tokens_mean:
            raise ValueError("sequence_tokens_p95 is below the mean input and output together")
        return self


class ServedModel(TokenLengths):
    """What is served, in which formats, by which engine."""

    architecture: ArchitectureRef
    """What is served."""
    weight_format: EntryName
    """Number format of the weights."""
    kv_cache_format: EntryName = "bf16"
    """Number format of the cache."""
    engine: EntryName | None = None
    """Serving engine and version; the catalog's default when null."""

    @property
    def settings(self) -> ReplicaSettings:
        """What the question says about the replica, as a service says it."""
        said = ReplicaSettings.model_fields.keys() & type(self).model_fields.keys()
        return ReplicaSettings(**{name: getattr(self, name) for name in said})


class ReplicaQuestion(ServedModel):
    """A question about one replica on one kind of GPU."""

    gpu: GpuRef
    """What it runs on."""
    layout: ReplicaLayout | None = None
    """How the replica is spread; the fewest GPUs that hold it when null."""
    draft_architecture: ArchitectureRef | None = None
    """Draft model loaded beside the served one, in 16 bit."""
    adapter_parameter_count: CountOrZero = 0
    """Weights of all adapters that are loaded at once, in 16 bit."""


def as_service(
    question: ServedModel,
    gpu: GpuRef,
    *,
    settings: ReplicaSettings,
    objectives: Objectives | None = None,
    headroom: Headroom | None = None,
    load: Load = ONE_REQUEST,
    demand_profile: DemandProfile = "flat",
) -> ServingService:
    """The service that a question stands for."""
    return ServingService(
        name=NAME,
        architecture=question.architecture,
        gpu=gpu,
        weight_format=question.weight_format,
        kv_cache_format=question.kv_cache_format,
        engine=question.engine,
        load=load,
        demand_profile=demand_profile,
        input_tokens_mean=question.input_tokens_mean,
        output_tokens_mean=question.output_tokens_mean,
        sequence_tokens_p95=question.sequence_tokens_p95,
        objectives=objectives,
        replica=settings,
        headroom=headroom or Headroom(),
    )
