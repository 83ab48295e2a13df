"""Degrees of one layout or of many at once, as numbers or arrays."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from service.core.parallelism import ParallelLayout, Recompute

SHARDINGS = ("none", "zero_1", "zero_2", "zero_3", "hybrid")
ZERO_STAGES = np.array([0, 1, 2, 3, 3])
"""Stage of each sharding scheme; hybrid is stage 3 inside one node."""
HYBRID = SHARDINGS.index("hybrid")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "half", "full")
FULL = RECOMPUTES.index("full")


@dataclass(frozen=True)
class LayoutAxes:
    """Degrees of one layout (plain numbers) or of many (arrays of one length)."""

    tensor: Any
    pipeline: Any
    virtual: Any
    context: Any
    expert: Any
    data: Any
    sharding: Any
    """Index into SHARDINGS."""
    micro_batch_sequences: Any
    micro_batch_count: Any
    recompute: Any
    """Index into RECOMPUTES."""
    sequence_parallel: Any = True
    expert_tensor: Any = None
    """GPUs over which each expert is split; as the layers when None."""

    @cached_property
    def gpu_count(self) -> Any:
        """GPUs of all copies. [count]"""
        return self.tensor * self.pipeline * self.context * self.data

    @cached_property
    def data_group(self) -> Any:
        """GPUs that hold the same weights and share the optimizer. [count]"""
        return self.data * self.context

    @cached_property
    def expert_division(self) -> Any:
        """GPUs over which the routed experts of a stage are divided. [count]"""
        split = self.tensor if self.expert_tensor is None else self.expert_tensor
        return split * self.expert

    @cached_property
    def zero_stage(self) -> Any:
        """Sharding stage, 0 to 3."""
        return ZERO_STAGES[self.sharding]

    @cached_property
    def is_full_recompute(self) -> Any:
        """True where the whole forward pass is repeated."""
        return np.equal(self.recompute, FULL)

    @cached_property
    def is_split(self) -> Any:
        """True where layers, stages or experts are split: memory is then as the vendor's stack."""
        return np.greater(self.tensor * self.pipeline * self.expert, 1)

    @cached_property
    def is_vendor_tuned(self) -> Any:
        """True where a step runs as fast as on the vendor's stack.

        Whole copies that leave weights and gradients whole need no sharded stack, so splitting a
        model buys no better kernels than they have.
        """
        return self.is_split | np.less(self.zero_stage, 2)

    def shard_count(self, node_gpu_count: int) -> Any:
        """GPUs that share a sharded part: all copies, or those of one node. [count]"""
        if node_gpu_count not in self._shard_counts:
            in_node = np.maximum(1, node_gpu_count // self.tensor)
            inside = np.minimum(self.data_group, in_node)
            is_inside = np.equal(self.sharding, HYBRID)
            self._shard_counts[node_gpu_count] = np.where(is_inside, inside, self.data_group)[()]
        return self._shard_counts[node_gpu_count]

    @cached_property
    def _shard_counts(self) -> dict[int, Any]:
        """Known so far, by the GPUs of a node: each term of memory and time asks for them."""
        return {}

    def expert_shard_count(self, node_gpu_count: int) -> Any:
        """GPUs that share a sharded part of the experts that they all hold. [count]"""
        return np.maximum(1, self.shard_count(node_gpu_count) * self.tensor // self.expert_division)

    def take(self, index: Any) -> "LayoutAxes":
        """The layouts at an index or under a mask."""
        picked = {f.name: getattr(self, f.name) for f in fields(self)}
        return LayoutAxes(
            **{
                name: column[index] if isinstance(column, np.ndarray) else column
                for name, column in picked.items()
            }
        )

    def layout(self) -> ParallelLayout:
        """The one layout of these axes."""
        return ParallelLayout(
            tensor_parallel=int(self.tensor),
            pipeline_parallel=int(self.pipeline),
            virtual_pipeline_stages=int(self.virtual),
            context_parallel=int(self.context),
            data_parallel=int(self.data),
            expert_parallel=int(self.expert),
            sharding=SHARDINGS[int(self.sharding)],  # type: ignore[arg-type]
            micro_batch_sequences=int(self.micro_batch_sequences),
            micro_batch_count=int(self.micro_batch_count),
            recompute=RECOMPUTES[int(self.recompute)],
            sequence_parallel=bool(self.sequence_parallel),
            expert_tensor_parallel=None if self.expert_tensor is None else int(self.expert_tensor),
        )
