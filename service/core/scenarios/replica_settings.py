"""How one replica of a service is spread, loaded and sped up, beyond formats and engine."""

from typing import Annotated

from pydantic import Field

from service.core.scenarios.refs import ArchitectureRef
from service.core.value import CountOrZero, Flag, Fraction, Number, Positive, Size, Value

MAXIMUM_DEGREE = 100_000

Degree = Annotated[Size, Field(le=MAXIMUM_DEGREE)]
PowerCap = Annotated[Number, Field(ge=0.3, le=1)]
"""Power over the GPU's limit: below a third clocks no longer follow a power law."""


class ReplicaLayout(Value):
    """How one replica is spread over its GPUs; refused with the nearest legal one when illegal."""

    tensor_parallel: Degree = 1
    """GPUs over which each layer is split."""
    pipeline_parallel: Degree = 1
    """Stages into which the layers are cut."""
    attention_data_parallel: Degree = 1
    """Ranks that attend to sequences of their own, while experts are spread over all of them."""


class Speculation(Value):
    """A draft that proposes tokens which the served model checks in one step."""

    draft_tokens: Annotated[Size, Field(le=32)]
    """Tokens drafted before each check."""
    acceptance_fraction: Fraction
    """Chance that a drafted token is accepted."""
    draft_cost_fraction: Fraction = 0.05
    """Time of one drafted token over one step of the served model."""


class Disaggregation(Value):
    """Prompts and answers on copies of their own, with the cache sent between them."""

    transfer_gb_per_s: Positive
    """Bandwidth at which the cache of one prompt is sent, GB/s."""


class ReplicaSettings(Value):
    """What a service says about its replicas; everything is the engine's own way when left out."""

    layout: ReplicaLayout | None = None
    """How a replica is spread; the cheapest legal layout when null."""
    draft_architecture: ArchitectureRef | None = None
    """Draft model loaded beside the served one, in 16 bit."""
    adapter_parameter_count: CountOrZero = 0
    """Weights of all adapters that are loaded at once, in 16 bit."""
    prefix_cache_hit_fraction: Annotated[Fraction, Field(lt=1)] = 0.0
    """Share of each prompt whose cache is held already."""
    prefill_chunk_tokens: Annotated[Size, Field(ge=16, le=1_000_000)] | None = None
    """Most prompt tokens that pass together; the engine's default when null."""
    prompts_join_steps: Flag | None = None
    """True where prompt tokens pass together with decoded ones; the engine's way when null."""
    speculation: Speculation | None = None
    """Speculative decoding; none when null."""
    disaggregation: Disaggregation | None = None
    """Prefill and decode on copies of their own; together when null."""
    power_cap_fraction: PowerCap = 1.0
    """Power that GPUs may draw over their limit; compute slows down, memory does not."""
