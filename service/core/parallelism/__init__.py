"""How a model is spread over GPUs, and which spreads are legal."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import TypeAliasType

from service.core.value import Count, Flag, Size, TokenCount, Value

Sharding = Literal["none", "zero_1", "zero_2", "zero_3", "hybrid"]
"""What data-parallel ranks share; "hybrid" shards everything inside a node only."""
Recompute = Literal["none", "selective", "half", "full"]
"""What the backward pass computes again instead of keeping it: the core of attention ("selective"),
every second layer or matrix ("half"), or everything."""

SHARDING_ALIASES: dict[str, Sharding] = {
    "ddp": "none",
    "no_shard": "none",
    "zero_0": "none",
    "shard_grad_op": "zero_2",
    "full_shard": "zero_3",
    "hybrid_shard": "hybrid",
}
"""Names of the same thing in other stacks."""


def _spelled(name: Any) -> Any:
    """A scheme in our spelling: FULL_SHARD, ZeRO-3 and zero3 as other stacks write them."""
    if not isinstance(name, str):
        return name
    return re.sub("^zero_?([0-3])$", r"zero_\1", name.lower().replace("-", "_"))


ShardingName = Annotated[
    Literal[
        "none",
        "zero_1",
        "zero_2",
        "zero_3",
        "hybrid",
        "ddp",
        "no_shard",
        "zero_0",
        "shard_grad_op",
        "full_shard",
        "hybrid_shard",
    ],
    BeforeValidator(_spelled),
]
"""Names that are taken, in any case."""


def canonical_sharding(name: ShardingName) -> Sharding:
    """Return our one name for a sharding scheme."""
    return SHARDING_ALIASES.get(name, name)  # type: ignore[arg-type]


class AutoLayout(Value):
    """Let the planner choose: the fastest legal layout that fits."""

    kind: Literal["auto"] = "auto"
    """Kind of the choice."""


class GivenLayout(Value):
    """A layout named in the request; refused with the nearest legal one when it is illegal."""

    kind: Literal["given"]
    """Kind of the choice."""
    tensor_parallel: Size = 1
    """GPUs over which each layer is split."""
    pipeline_parallel: Size = 1
    """Stages into which the layers are cut."""
    virtual_pipeline_stages: Size = 1
    """Model chunks per stage in an interleaved schedule."""
    context_parallel: Size = 1
    """GPUs over which one sequence is split."""
    expert_parallel: Size = 1
    """GPUs over which routed experts are spread."""
    expert_tensor_parallel: Size | None = None
    """GPUs over which each routed expert is split; as many as tensor_parallel when null."""
    sharding: ShardingName = "zero_1"
    """What data-parallel ranks share; other stacks' names are taken as they write them."""
    micro_batch_sequences: Size = 1
    """Sequences of one micro-batch."""
    recompute: Recompute = "selective"
    """What the backward pass computes again. `none`: nothing, all activations are kept;
    `selective`: the core of attention, which saves stored scores and is nothing where the stack
    stores none; `half`: every second layer or matrix, a little less than half is kept; `full`:
    everything, 2 bytes of each element of a layer's input are kept, for one more forward pass."""
    sequence_parallel: Flag = True
    """True when tensor-parallel ranks also split norms and residuals along the sequence."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.virtual_pipeline_stages > 1 and self.pipeline_parallel == 1:
            raise ValueError("virtual_pipeline_stages needs pipeline_parallel above 1")
        return self


LayoutChoice = TypeAliasType(
    "LayoutChoice", Annotated[AutoLayout | GivenLayout, Field(discriminator="kind")]
)
"""How a run's layout is decided."""


class ParallelLayout(Value):
    """A resolved layout: the degrees that a run or a replica really uses."""

    tensor_parallel: Size
    """GPUs over which each layer is split."""
    pipeline_parallel: Size
    """Stages into which the layers are cut."""
    virtual_pipeline_stages: Size = 1
    """Model chunks per stage in an interleaved schedule."""
    context_parallel: Size = 1
    """GPUs over which one sequence is split."""
    data_parallel: Count
    """Copies of the model."""
    expert_parallel: Size = 1
    """GPUs over which routed experts are spread."""
    sharding: Sharding = "none"
    """What data-parallel ranks share."""
    micro_batch_sequences: Size = 1
    """Sequences of one micro-batch."""
    micro_batch_count: TokenCount = 1
    """Micro-batches of one step on one copy of the model (gradient accumulation)."""
    recompute: Recompute = "none"
    """What the backward pass computes again."""
    sequence_parallel: Flag = True
    """True when tensor-parallel ranks also split norms and residuals along the sequence."""
    expert_tensor_parallel: Size | None = None
    """GPUs over which each routed expert is split, where it is not tensor_parallel."""

    @property
    def gpus_per_copy(self) -> int:
        """GPUs of one whole copy of the model. [count]"""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def gpu_count(self) -> int:
        """GPUs of all copies. [count]"""
        return self.gpus_per_copy * self.data_parallel
