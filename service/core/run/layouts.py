"""Ways to spread a training run over GPUs: one or many at once, which are legal, which are near."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario
from service.core.formulas.training_time import stage_share
from service.core.parallelism import GivenLayout, ParallelLayout, Recompute, canonical_sharding

SHARDINGS = ("none", "zero_1", "zero_2", "zero_3", "hybrid")
ZERO_STAGES = np.array([0, 1, 2, 3, 3])
"""Stage of each sharding scheme; hybrid is stage 3 inside one node."""
HYBRID = SHARDINGS.index("hybrid")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "half", "full")
FULL = RECOMPUTES.index("full")
MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
VIRTUAL_STAGES = (1, 2, 4, 8)
MOST_TENSOR, MOST_PIPELINE, MOST_CONTEXT, MOST_EXPERT = 64, 128, 64, 512
MOST_COPIES = 1_000_000
MOST_CANDIDATES = 1_000_000
"""Bounds of the search: wider than any layout in use, and small enough to answer in seconds."""
UNSHARDED_GRADIENTS = (0, 1)
"""Schemes that keep gradients whole over a pipeline's many micro-batches."""


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

    @property
    def gpu_count(self) -> Any:
        """GPUs of all copies. [count]"""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def data_group(self) -> Any:
        """GPUs that hold the same weights and share the optimizer. [count]"""
        return self.data * self.context

    @property
    def zero_stage(self) -> Any:
        """Sharding stage, 0 to 3."""
        return ZERO_STAGES[self.sharding]

    @property
    def is_full_recompute(self) -> Any:
        """True where the whole forward pass is repeated."""
        return np.equal(self.recompute, FULL)

    @property
    def is_split(self) -> Any:
        """True where layers, stages or experts are split: memory is then as the vendor's stack."""
        return np.greater(self.tensor * self.pipeline * self.expert, 1)

    @property
    def is_vendor_tuned(self) -> Any:
        """True where a step runs as fast as on the vendor's stack.

        Whole copies that leave weights and gradients whole need no sharded stack, so splitting a
        model buys no better kernels than they have.
        """
        return self.is_split | np.less(self.zero_stage, 2)

    def shard_count(self, node_gpu_count: int) -> Any:
        """GPUs that share a sharded part: all copies, or those of one node. [count]"""
        in_node = np.maximum(1, node_gpu_count // self.tensor)
        inside = np.minimum(self.data_group, in_node)
        return np.where(np.equal(self.sharding, HYBRID), inside, self.data_group)[()]

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
        )


@dataclass(frozen=True)
class Condition:
    """One rule of legality on one or many layouts."""

    limit: str
    holds: Any
    needed: Any
    available: Any


@dataclass(frozen=True)
class LayoutRules:
    """What a model, its batch and its GPU allow."""

    head_counts: tuple[int, ...]
    key_value_head_counts: tuple[int, ...]
    expert_counts: tuple[int, ...]
    layer_count: int
    sequence_tokens: int
    batch_sequences: int
    scale_up_gpu_count: int
    imbalance_factor: float
    """Largest unevenness of a pipeline that the automatic choice considers."""
    context_tokens: float
    """Fewest tokens of a context-parallel rank that the automatic choice considers."""
    recomputes: tuple[int, ...]
    """Recompute choices that differ for this model."""
    pointer: str
    """JSON pointer of the layout in the request."""

    def conditions(self, axes: LayoutAxes, gpu_count: int) -> list[Condition]:
        """Every rule that a layout must keep, in the order in which a fault is reported."""
        return [
            *self._of_the_heads(axes),
            *self._of_the_layers(axes),
            *self._of_the_batch(axes, gpu_count),
        ]

    def _of_the_heads(self, axes: LayoutAxes) -> list[Condition]:
        tensor = axes.tensor
        heads = [np.mod(count, tensor) == 0 for count in self.head_counts]
        # Beyond the key and value heads, whole heads are copied.
        shared = [
            (np.mod(count, tensor) == 0) | (np.mod(tensor, count) == 0)
            for count in self.key_value_head_counts
        ]
        return [
            Condition(
                "tensor_parallel within the scale-up domain",
                np.less_equal(tensor, self.scale_up_gpu_count),
                tensor,
                self.scale_up_gpu_count,
            ),
            Condition(
                "tensor_parallel divides the attention heads",
                np.logical_and.reduce([np.greater(tensor, 0), *heads]),
                tensor,
                min(self.head_counts, default=0),
            ),
            Condition(
                "tensor_parallel divides the key and value heads, or is a multiple of them",
                np.logical_and.reduce([np.greater(tensor, 0), *shared]),
                tensor,
                min(self.key_value_head_counts, default=0),
            ),
        ]

    def _of_the_layers(self, axes: LayoutAxes) -> list[Condition]:
        chunks, expert = axes.pipeline * axes.virtual, axes.expert
        experts = [np.mod(count, expert) == 0 for count in self.expert_counts or (1,)]
        return [
            Condition(
                # Embedding and head count as layers: balanced pipelines give the end stages less.
                "a layer for every pipeline chunk",
                np.less_equal(chunks, self.layer_count + 2),
                chunks,
                self.layer_count,
            ),
            Condition(
                "context_parallel divides the sequence",
                np.mod(self.sequence_tokens, axes.context) == 0,
                axes.context,
                self.sequence_tokens,
            ),
            Condition(
                "expert_parallel divides the routed experts",
                np.logical_and.reduce(experts),
                expert,
                min(self.expert_counts, default=1),
            ),
        ]

    def _of_the_batch(self, axes: LayoutAxes, gpu_count: int) -> list[Condition]:
        per_step = axes.data * axes.micro_batch_sequences
        plain = np.equal(axes.virtual, 1)
        return [
            Condition(
                "whole model copies in gpu_count",
                np.equal(axes.gpu_count, gpu_count),
                axes.tensor * axes.pipeline * axes.context,
                gpu_count,
            ),
            Condition(
                "expert_parallel divides data_parallel · context_parallel",
                np.mod(axes.data_group, axes.expert) == 0,
                axes.expert,
                axes.data_group,
            ),
            Condition(
                "micro_batch_sequences · data_parallel divides the global batch",
                np.mod(self.batch_sequences, per_step) == 0,
                per_step,
                self.batch_sequences,
            ),
            Condition(
                "interleaved stages divide the micro-batches",
                plain | (np.mod(axes.micro_batch_count, axes.pipeline) == 0),
                axes.pipeline,
                axes.micro_batch_count,
            ),
        ]

    def fault(self, axes: LayoutAxes, gpu_count: int) -> Condition | None:
        """The first rule that one layout breaks."""
        return next((c for c in self.conditions(axes, gpu_count) if not c.holds), None)

    def degrees(self) -> LayoutAxes:
        """Model splits worth considering, whatever the GPU count: one copy of the model each.

        Raises:
            InvalidScenario: If there are more than can be searched.
        """
        heads = _divisors(self.head_counts or (2**20,), MOST_TENSOR)
        tensors = [t for t in heads if t <= self.scale_up_gpu_count]
        pipelines = [
            p for p in range(1, min(self.layer_count, MOST_PIPELINE) + 1) if self._is_balanced(p)
        ]
        contexts = [
            2**k
            for k in range(MOST_CONTEXT.bit_length())
            if k == 0 or self.sequence_tokens >= 2**k * self.context_tokens
        ]
        experts = _divisors(self.expert_counts, MOST_EXPERT) if self.expert_counts else [1]
        choices = (tensors, pipelines, VIRTUAL_STAGES, contexts, experts)
        self._check_size(prod(len(choice) for choice in choices))
        columns = _columns(product(*choices))
        tensor, pipeline, virtual, context, expert = columns
        # Embedding and head may count as layers: the end stages then hold one layer less.
        chunks = pipeline * virtual
        whole = (self.layer_count % chunks == 0) | ((self.layer_count + 2) % chunks == 0)
        even = (virtual == 1) | ((pipeline > 1) & whole)
        ones = np.ones_like(tensor)
        axes = LayoutAxes(tensor, pipeline, virtual, context, expert, *[ones] * 5)
        return axes.take(even)

    def _check_size(self, candidate_count: int) -> None:
        if candidate_count > MOST_CANDIDATES:
            raise InvalidScenario(
                f"the automatic choice would have to judge {candidate_count:,} layouts, more than "
                f"{MOST_CANDIDATES:,}: name the layout",
                pointer=self.pointer,
            )

    def _is_balanced(self, pipeline: int) -> bool:
        share = stage_share(layer_count=self.layer_count, pipeline_parallel=pipeline)
        return bool(share * pipeline <= self.imbalance_factor)

    def candidates(
        self, degrees: LayoutAxes, gpu_count: int, *, leanest: bool = False
    ) -> LayoutAxes:
        """Every legal layout of these splits on so many GPUs, or those that hold least.

        Raises:
            InvalidScenario: If there are more than can be searched.
        """
        copy = degrees.tensor * degrees.pipeline * degrees.context
        data = gpu_count // copy
        usable = (gpu_count % copy == 0) & (self.batch_sequences % np.maximum(data, 1) == 0)
        splits, data = degrees.take(usable), data[usable]
        micro_batches, recomputes = ((1,), (FULL,)) if leanest else (MICRO_BATCHES, self.recomputes)
        choices = _columns(product(range(len(SHARDINGS)), micro_batches, recomputes))
        self._check_size(len(data) * len(choices[0]))
        split, choice = np.indices((len(data), len(choices[0]))).reshape(2, -1)
        sharding, micro_batch, recompute = (column[choice] for column in choices)
        spread = splits.take(split)
        data = data[split]
        axes = LayoutAxes(
            tensor=spread.tensor,
            pipeline=spread.pipeline,
            virtual=spread.virtual,
            context=spread.context,
            expert=spread.expert,
            data=data,
            sharding=sharding,
            micro_batch_sequences=micro_batch,
            micro_batch_count=self.batch_sequences // (data * micro_batch),
            recompute=recompute,
        )
        whole = np.isin(axes.sharding, UNSHARDED_GRADIENTS) | (axes.pipeline == 1)
        alone = (axes.data_group > 1) | (axes.sharding == 0)
        axes = axes.take(whole & alone & (axes.micro_batch_count > 0))
        holds = [condition.holds for condition in self.conditions(axes, gpu_count)]
        return axes.take(np.logical_and.reduce(holds))

    def usable_gpu_counts(self, degrees: LayoutAxes) -> list[int]:
        """GPU counts on which at least one of these splits is legal, ascending."""
        copies = np.unique(degrees.tensor * degrees.pipeline * degrees.context)
        batches = np.array(_divisors((self.batch_sequences,), MOST_COPIES))
        return [int(count) for count in np.unique(np.outer(copies, batches))]


def given_degrees(given: GivenLayout) -> LayoutAxes:
    """The split that a request names, as arrays of one."""
    one = np.ones(1, dtype=int)
    return LayoutAxes(
        tensor=one * given.tensor_parallel,
        pipeline=one * given.pipeline_parallel,
        virtual=one * given.virtual_pipeline_stages,
        context=one * given.context_parallel,
        expert=one * given.expert_parallel,
        data=one,
        sharding=one * SHARDINGS.index(canonical_sharding(given.sharding)),
        micro_batch_sequences=one * given.micro_batch_sequences,
        micro_batch_count=one,
        recompute=one * RECOMPUTES.index(given.recompute),
        sequence_parallel=one * given.sequence_parallel > 0,
    )


def on_gpus(given: GivenLayout, gpu_count: int, batch_sequences: int) -> LayoutAxes:
    """A named layout on so many whole copies; the caller checks that the copies are whole."""
    copy = given.tensor_parallel * given.pipeline_parallel * given.context_parallel
    data = max(1, gpu_count // copy)
    split = given_degrees(given).take(0)
    per_step = data * given.micro_batch_sequences
    return LayoutAxes(
        **{f.name: getattr(split, f.name) for f in fields(split)}
        | {"data": data, "micro_batch_count": max(1, batch_sequences // per_step)}
    )


def nearest(candidates: LayoutAxes, given: GivenLayout) -> LayoutAxes | None:
    """The candidate whose degrees differ least, by the sum of their logarithmic distances."""
    if len(candidates.tensor) == 0:
        return None
    wanted = given_degrees(given)
    names = ("tensor", "pipeline", "virtual", "context", "expert", "micro_batch_sequences")
    distance = sum(
        abs(np.log(getattr(candidates, name)) - np.log(getattr(wanted, name))) for name in names
    )
    distance = distance + 0.01 * (candidates.sharding != wanted.sharding)
    distance = distance + 0.01 * (candidates.recompute != wanted.recompute)
    return candidates.take(int(np.argmin(distance)))


def described(layout: ParallelLayout) -> str:
    """A layout in words, degrees above one only."""
    degrees = (
        "tensor_parallel",
        "pipeline_parallel",
        "virtual_pipeline_stages",
        "context_parallel",
        "expert_parallel",
    )
    parts = [f"{name} {size}" for name in degrees if (size := getattr(layout, name)) > 1]
    parts.append(f"data_parallel {layout.data_parallel}")
    parts.append(f"micro_batch_sequences {layout.micro_batch_sequences}")
    return f"{', '.join(parts)}, sharding {layout.sharding}, recompute {layout.recompute}"


def _divisors(counts: tuple[int, ...], most: int) -> list[int]:
    """Common divisors of all counts, up to a bound."""
    common = int(np.gcd.reduce(counts))
    tried = np.arange(1, min(common, most) + 1)
    return [int(divisor) for divisor in tried[common % tried == 0]]


def _columns(rows: Iterable[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    return [np.array(column) for column in zip(*rows, strict=True)]
