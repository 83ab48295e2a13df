"""Ways to spread a training run over GPUs: one or many at once, which are legal, which are near."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidScenario
from service.core.formulas.communication import LARGEST_SERVER_GPU_COUNT
from service.core.formulas.training_time import stage_share
from service.core.parallelism import GivenLayout, canonical_sharding
from service.core.parallelism.axes import FULL, HYBRID, RECOMPUTES, SHARDINGS, LayoutAxes
from service.core.value import MAX_COUNT

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
VIRTUAL_STAGES = range(1, 21)
MOST_TENSOR, MOST_PIPELINE, MOST_CONTEXT, MOST_EXPERT = 64, 128, 64, 128
MOST_COPIES = 1_000_000
MOST_CANDIDATES = 1_000_000
MOST_TRIED_PER_CANDIDATE = 20
"""Bounds of the search: wider than any layout in use, and small enough to answer in seconds.

Experts were trained over 64 GPUs (DeepSeek-V3, arXiv 2412.19437, section 3.2) and at most twice
that; a layout that a request names may spread them further.
"""
BATCH_RULES = (
    "micro_batch_sequences · data_parallel divides the global batch",
    "interleaved stages divide the micro-batches",
)
"""Rules that another global batch can keep."""
UNSHARDED_GRADIENTS = (0, 1)
"""Schemes that keep gradients whole over a pipeline's many micro-batches."""


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
    instance_gpu_count: int
    """GPUs that are rented or bought at once: a tensor-parallel group that is chosen does not leave
    them, unless the scale-up link does."""
    offloads_weights: bool
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
                "a layer for every pipeline chunk, embedding and head counted",
                np.less_equal(chunks, self.layer_count + 2),
                chunks,
                self.layer_count + 2,
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
                "expert_parallel divides data_parallel · context_parallel"
                if axes.expert_tensor is None
                else "expert_tensor_parallel · expert_parallel divides the GPUs of a stage",
                np.mod(axes.data_group * axes.tensor, axes.expert_division) == 0,
                axes.expert if axes.expert_tensor is None else axes.expert_division,
                axes.data_group * (1 if axes.expert_tensor is None else axes.tensor),
            ),
            Condition(
                "sharding zero_3 or hybrid for parameters that are kept on the host",
                np.greater_equal(axes.zero_stage, 3 * self.offloads_weights),
                3,
                axes.zero_stage,
            ),
            Condition(
                BATCH_RULES[0],
                np.mod(self.batch_sequences, per_step) == 0,
                per_step,
                self.batch_sequences,
            ),
            Condition(
                BATCH_RULES[1],
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

        Tensor-parallel groups fill the scale-up domain, or the instance, without a rest.

        Raises:
            InvalidScenario: If there are more than can be searched.
        """
        heads = _divisors(self.head_counts or (2**20,), MOST_TENSOR)
        # A group that does not divide the domain, or the instance, lies over two of them somewhere.
        tensors = [t for t in heads if self._tensor_limit % t == 0]
        pipelines = [
            p for p in range(1, min(self.layer_count, MOST_PIPELINE) + 1) if self._is_balanced(p)
        ]
        contexts = [
            2**k
            for k in range(MOST_CONTEXT.bit_length())
            if k == 0 or self.sequence_tokens >= 2**k * self.context_tokens
        ]
        experts = _divisors(self.expert_counts, MOST_EXPERT) if self.expert_counts else [1]
        stages, chunks = _crossed(pipelines, VIRTUAL_STAGES)
        woven = np.flatnonzero(self._is_woven_evenly(stages, chunks))
        choices = (tensors, woven, contexts, experts)
        self._check_size(prod(len(choice) for choice in choices))
        tensor, schedule, context, expert = _crossed(*choices)
        ones = np.ones_like(tensor)
        return LayoutAxes(tensor, stages[schedule], chunks[schedule], context, expert, *[ones] * 5)

    def _is_woven_evenly(self, pipeline: Any, virtual: Any) -> Any:
        """True for plain stages, and for chunks of equally many layers."""
        chunks = pipeline * virtual
        # Embedding and head may count as layers: the end stages then hold one layer less.
        is_even = (self.layer_count % chunks == 0) | ((self.layer_count + 2) % chunks == 0)
        return (virtual == 1) | ((pipeline > 1) & is_even)

    @property
    def _tensor_limit(self) -> int:
        spans_instances = self.scale_up_gpu_count > LARGEST_SERVER_GPU_COUNT
        within = self.scale_up_gpu_count if spans_instances else self.instance_gpu_count
        return min(self.scale_up_gpu_count, within)

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
        usable &= data * degrees.context % degrees.expert == 0
        splits, data = degrees.take(usable), data[usable]
        micro_batches, recomputes = ((1,), (FULL,)) if leanest else (MICRO_BATCHES, self.recomputes)
        choices = _crossed(range(len(SHARDINGS)), micro_batches, recomputes)
        split, choice = np.nonzero(self._worth_trying(splits, data, choices[0], choices[1]))
        self._check_size(len(split))
        sharding, micro_batch, recompute = (column[choice] for column in choices)
        data = data[split]
        axes = replace(
            splits.take(split),
            data=data,
            sharding=sharding,
            micro_batch_sequences=micro_batch,
            micro_batch_count=self.batch_sequences // (data * micro_batch),
            recompute=recompute,
        )
        return axes.take(self.legal(axes, gpu_count))

    def _worth_trying(self, splits: LayoutAxes, data: Any, sharding: Any, micro_batch: Any) -> Any:
        """Which choices (columns) fit which splits (rows), before whole layouts are made of them.

        Raises:
            InvalidScenario: If there are more than can be searched.
        """
        self._check_size(len(data) * len(sharding) // MOST_TRIED_PER_CANDIDATE)
        # Under a pipeline, gradients wait whole for all micro-batches.
        whole = np.isin(sharding, UNSHARDED_GRADIENTS) | (splits.pipeline == 1)[:, None]
        alone = (data * splits.context > 1)[:, None] | (sharding == 0)
        divides = self.batch_sequences % (data[:, None] * micro_batch) == 0
        return whole & alone & divides

    def lighter(self, axes: LayoutAxes) -> LayoutAxes:
        """One layout with more sharding, smaller micro-batches, more recompute, itself first.

        Or with sequence parallelism, where tensor parallelism leaves it out.

        Under a pipeline, gradients wait whole for all micro-batches: more than zero_1 is not tried.
        """
        given, batch = int(axes.sharding), int(axes.micro_batch_sequences)
        highest = SHARDINGS.index("zero_1" if axes.pipeline > 1 else "zero_3")
        further = (highest,) if given == HYBRID else range(given + 1, highest + 1)
        smaller = [size for size in reversed(MICRO_BATCHES) if size < batch]
        again = [index for index in self.recomputes if index > axes.recompute]
        unsplit = axes.tensor > 1 and not axes.sequence_parallel
        sequence_parallel = (bool(axes.sequence_parallel), *([True] if unsplit else []))
        sharding, micro_batch, recompute, split = _crossed(
            (given, *further), (batch, *smaller), (int(axes.recompute), *again), sequence_parallel
        )
        return self._varied(
            axes,
            sharding=sharding,
            micro_batch_sequences=micro_batch,
            recompute=recompute,
            sequence_parallel=split > 0,
        )

    def less_interleaved(self, axes: LayoutAxes) -> LayoutAxes:
        """One layout with fewer chunks a stage, most first, down to plain stages."""
        most = min(int(axes.virtual) - 1, (self.layer_count + 2) // int(axes.pipeline))
        return self._varied(axes, virtual=np.arange(most, 0, -1))

    def wider(self, axes: LayoutAxes) -> LayoutAxes:
        """One layout with more copies, fewest first."""
        sequences = self.batch_sequences // int(axes.micro_batch_sequences)
        more = [copies for copies in _divisors((sequences,), MOST_COPIES) if copies > axes.data]
        return self._varied(axes, data=np.array(more, dtype=int))

    def _varied(self, axes: LayoutAxes, **columns: Any) -> LayoutAxes:
        """Many layouts that differ from one in some columns; micro-batches follow."""
        size = len(next(iter(columns.values())))
        same = {
            field.name: np.full(size, value)
            for field in fields(axes)
            if (value := getattr(axes, field.name)) is not None
        }
        varied = LayoutAxes(**same | columns)
        counts = self.batch_sequences // (varied.data * varied.micro_batch_sequences)
        return replace(varied, micro_batch_count=np.maximum(1, counts))

    def legal(self, axes: LayoutAxes, gpu_count: Any) -> Any:
        """True where a layout breaks no rule."""
        return np.logical_and.reduce([c.holds for c in self.conditions(axes, gpu_count)])

    def usable_gpu_counts(self, degrees: LayoutAxes) -> list[int]:
        """GPU counts on which at least one of these splits is legal, ascending."""
        copies = np.unique(degrees.tensor * degrees.pipeline * degrees.context)
        batches = np.array(_divisors((self.batch_sequences,), MOST_COPIES))
        counts = np.unique(np.outer(copies, batches))
        return [int(count) for count in counts[counts <= MAX_COUNT]]


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
        expert_tensor=given.expert_tensor_parallel and one * given.expert_tensor_parallel,
    )


def on_gpus(given: GivenLayout, gpu_count: int, batch_sequences: int) -> LayoutAxes:
    """A named layout on so many whole copies; the caller checks that the copies are whole."""
    copy = given.tensor_parallel * given.pipeline_parallel * given.context_parallel
    data = max(1, gpu_count // copy)
    per_step = data * given.micro_batch_sequences
    degrees = given_degrees(given)
    # Plain numbers do not overflow, however large the degrees that a request names.
    named = {f.name: getattr(degrees, f.name) for f in fields(degrees)}
    split = {name: None if column is None else column.item() for name, column in named.items()}
    changed = {"data": data, "micro_batch_count": max(1, batch_sequences // per_step)}
    return LayoutAxes(**split | changed)


def _divisors(counts: tuple[int, ...], most: int) -> list[int]:
    """Common divisors of all counts, up to a bound."""
    common = int(np.gcd.reduce(counts))
    tried = np.arange(1, min(common, most) + 1)
    return [int(divisor) for divisor in tried[common % tried == 0]]


def _crossed(*choices: Sequence[int] | NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Every choice of each with every choice of the others: one column each, the last fastest."""
    grid = np.meshgrid(*(np.asarray(choice, dtype=int) for choice in choices), indexing="ij")
    return [column.ravel() for column in grid]
