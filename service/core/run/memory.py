"""Memory of a training run: what the fullest GPU holds under one layout or under many."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from service.core.estimates import TrainingMemory, Verdict
from service.core.formulas import training_memory, training_time
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.hardware import Gpu
from service.core.parallelism.axes import RECOMPUTES, LayoutAxes
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.parts import ModelParts, StateBytes, StateModel
from service.core.scenarios.stacks import STACKS, LossKind, SoftwareStack, StackTraits, stack_of
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import PER_TENSOR_RECIPES, STATE_RECIPES
from service.core.units import BYTES_PER_GIB

COARSE_TERMS = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "overhead",
    "total",
)
"""Parts that add up to the total, and the total."""
RESIDUAL = "training_memory_residual_factor"
"""Assumption: measured peak over estimated total."""
DROPOUT_MASKS = 2
"""Masks over the hidden width that each layer keeps, one byte an element."""

define_quantity(
    "training_textbook_activation_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="34 · tokens · hidden / tensor parallel, for the layers and micro-batches in flight",
    sources=("Korthikanti et al., arXiv 2205.05198, equation 4",),
)
define_quantity(
    "training_memory_available_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="memory that programs can address",
)


@dataclass(frozen=True)
class MemoryTerms:
    """Bytes of one GPU, part by part, for one layout or many."""

    weights: Any
    """With those gathered from other GPUs."""
    gradients: Any
    """With those not yet reduced."""
    optimizer: Any
    activations: Any
    logits: Any
    overhead: Any
    total: Any
    gathered_weights: Any
    """Of the weights: held only while layers are computed."""
    unreduced_gradients: Any
    """Of the gradients: held until they are reduced."""
    master_weights: Any
    """Of the optimizer: what it updates; the rest are moments."""
    framework: Any
    """Of the overhead: context, workspaces, and a copy of the weights at the update."""
    collective_buffers: Any
    """Of the overhead: buffers of groups, buckets, and of hand-over between stages."""
    host: Any
    """Beside all these: host memory of the state that left the GPU."""

    def gib(self, names: Iterable[str]) -> dict[str, float]:
        """Some parts of one layout. [GiB]"""
        return {name: float(getattr(self, name)) / BYTES_PER_GIB for name in names}


@dataclass(frozen=True)
class MemoryModel:
    """Everything that decides the memory of a run beside its layout."""

    run: TrainingRun
    parts: ModelParts
    state: StateBytes
    gpu: Gpu
    named_stack: SoftwareStack | None = None
    """None: the usual one of the layout."""
    loss: LossKind | None = None
    """None: what the stack usually has."""

    def terms(self, axes: LayoutAxes, recorder: Recorder) -> MemoryTerms:
        """Memory of the fullest GPU: on the first pipeline stage or on the last. [B]"""
        return per_stack(axes, self.named_stack, lambda a, stack: self.on_stack(a, recorder, stack))

    def on_stack(self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits) -> MemoryTerms:
        """Memory of the fullest GPU on one stack. [B]

        Stages between hold fewer micro-batches than the first and neither of the tables.
        """
        if np.ndim(axes.pipeline) == 0:
            stage = self._fuller_stage(axes, recorder.off(), stack)
            return self.on_stage(axes, recorder, stack, stage=stage)
        last = axes.pipeline - 1
        ends = self.on_stage(axes, recorder.off(), stack, stage=np.stack((0 * last, last)))
        is_first = ends.total[0] >= ends.total[1]
        columns = {field.name: getattr(ends, field.name) for field in fields(MemoryTerms)}
        return MemoryTerms(
            **{
                name: np.where(is_first, *held) if np.ndim(held) > 1 else held
                for name, held in columns.items()
            }
        )

    def _fuller_stage(self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits) -> int:
        """The first pipeline stage of one layout, or the last where that holds more."""
        last = int(axes.pipeline) - 1
        if last == 0:
            return 0
        ends = self.on_stage(axes, recorder, stack, stage=np.array((0, last)))
        return 0 if ends.total[0] >= ends.total[1] else last

    def on_stage(
        self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, *, stage: Any
    ) -> MemoryTerms:
        """Memory of a GPU of one pipeline stage, or of many of one layout. [B]"""
        state = self._states.terms(axes, recorder, stack, stage)
        logits = self._logits(axes, recorder, stack, stage)
        activations = self._activations(axes, recorder, logits, stack, stage)
        held = {name: state[name] for name in ("weights", "gradients", "optimizer")}
        held |= {"activations": activations, "logits": logits}
        updated = self._update_bytes(axes, stack, stage)
        framework = BYTES_PER_GIB * recorder.assume("training_context_gib").value
        framework = framework + np.maximum(0.0, updated - activations - logits)
        buffers = self._group_bytes(axes, recorder, stack) + self._buffer_bytes(axes, stack)
        overhead = recorder.evaluate(
            training_memory.overhead_bytes,
            other_bytes=sum(held.values()),
            fragmentation_fraction=recorder.assume("training_fragmentation_fraction").value,
            fixed_bytes=framework + buffers,
        )
        held["overhead"] = overhead
        return MemoryTerms(
            **state | held,
            total=self._total(held, recorder),
            framework=framework,
            collective_buffers=buffers,
        )

    @staticmethod
    def _total(held: dict[str, Any], recorder: Recorder) -> Any:
        """All parts, recorded with the band in which measured peaks lie about it. [B]"""
        total = training_memory.memory_bytes(**held)
        if recorder.is_on:
            band = recorder.assume(RESIDUAL)
            low, high = float(total) * band.low, float(total) * band.high
            recorder.evaluate(training_memory.memory_bytes, low=low, high=high, **held)
        return total

    @property
    def _states(self) -> StateModel:
        return StateModel(
            parts=self.parts,
            state=self.state,
            node_gpu_count=self.gpu.node_gpu_count,
            offload=self.run.offload,
            trains_adapter=self.run.adapter is not None,
        )

    def _buffer_bytes(self, axes: LayoutAxes, stack: StackTraits) -> Any:
        """Inputs and outputs that a pipeline keeps for every micro-batch in flight. [B]"""
        one = ELEMENT_BYTES * self._tokens(axes) * self.parts.hidden_size
        in_flight = np.minimum(axes.pipeline, axes.micro_batch_count)
        return np.where(np.greater(axes.pipeline, 1), stack.pipeline_buffers * one * in_flight, 0.0)

    def _group_bytes(self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits) -> Any:
        """Buckets, and buffers of every kind of group that collectives run in. [B]"""
        degrees = (axes.data, axes.tensor, axes.pipeline, axes.context, axes.expert)
        groups = sum(np.greater(degree, 1).astype(float) for degree in degrees)
        first = recorder.assume("training_first_group_gib").value
        more = recorder.assume("training_further_group_gib").value
        buckets = recorder.assume("training_buckets_gib").value if stack.has_buckets else 0.0
        return BYTES_PER_GIB * (buckets + np.where(groups > 0, first + more * (groups - 1.0), 0.0))

    def _update_bytes(self, axes: LayoutAxes, stack: StackTraits, stage: Any) -> Any:
        """What an optimizer that updates all weights at once holds beside them, at the step. [B]

        One more copy of the weights that it updates, while no activations are held.
        """
        trains_adapter = self.run.adapter is not None
        by_tensor = trains_adapter or self.run.state_recipe in PER_TENSOR_RECIPES
        if not stack.updates_at_once or by_tensor or self.run.offload != "none":
            return 0.0
        recipe = STATE_RECIPES[self.run.state_recipe]
        width = recipe.master_bytes or recipe.weight_bytes
        layers, experts, outer = self._states.held(axes, stage)
        shards = np.where(axes.zero_stage >= 1, axes.shard_count(self.gpu.node_gpu_count), 1)
        return width * (layers + outer + experts) / shards

    def _tokens(self, axes: LayoutAxes) -> Any:
        """Tokens of one micro-batch on one GPU. [token]"""
        return axes.micro_batch_sequences * self.run.sequence_length_tokens / axes.context

    def _logits(self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, stage: Any) -> Any:
        loss, tokens = self.loss or stack.loss, self._tokens(axes)
        if loss == "chunked":
            tokens = np.minimum(tokens, recorder.assume("loss_chunk_tokens").value)
        width: Any = recorder.assume("bytes_per_logit", loss).value
        divided = self.loss or stack.divided_loss
        if divided is not None and np.any(np.greater(axes.tensor, 1)):
            parted = recorder.assume("bytes_per_logit", divided).value
            width = np.where(np.greater(axes.tensor, 1), parted, width)[()]
        return recorder.evaluate(
            training_memory.logits_bytes,
            tokens=tokens * np.equal(stage, axes.pipeline - 1),
            vocab_size=self.parts.vocab_size,
            bytes_per_logit=width,
            tensor_parallel=axes.tensor,
        )

    def _activations(
        self,
        axes: LayoutAxes,
        recorder: Recorder,
        logits: Any,
        stack: StackTraits,
        stage: Any,
    ) -> Any:
        parts = self.parts
        masks = parts.hidden_size * DROPOUT_MASKS * stack.has_dropout
        eager = 0.0 if stack.is_fused else parts.unfused_bytes
        split = {
            "residual_bytes": parts.residual_bytes + masks,
            "inner_bytes": parts.inner_bytes + eager,
            "tensor_parallel": axes.tensor,
            "sequence_parallel": axes.sequence_parallel,
        }
        scores = parts.score_bytes if stack.attention == "stored" else 0.0
        whole = training_memory.activation_bytes_per_token(**split, score_bytes=scores)
        lean = training_memory.activation_bytes_per_token(**split)
        inputs = training_memory.activation_bytes_per_token(
            **split | {"residual_bytes": ELEMENT_BYTES * parts.hidden_size, "inner_bytes": 0.0}
        )
        half = recorder.assume("half_recompute_kept_fraction").value
        kept = [whole, lean, half * lean, inputs]
        rebuilt = [0.0 * whole, whole - lean, whole, whole]
        chosen = [np.equal(axes.recompute, index) for index in range(len(RECOMPUTES))]
        chunk_layers, in_flight = self.in_flight(axes, stage)
        return recorder.evaluate(
            training_memory.activation_bytes,
            kept_bytes_per_token=np.select(chosen, kept)[()],
            rebuilt_bytes_per_token=np.select(chosen, rebuilt)[()],
            micro_batch_tokens=self._tokens(axes),
            chunk_layer_count=chunk_layers,
            chunks_in_flight=in_flight,
            logits_bytes=logits,
        )

    def in_flight(self, axes: LayoutAxes, stage: Any) -> tuple[Any, Any]:
        """Layers of a chunk, and chunks whose activations a stage holds at once."""
        layers = training_time.stage_layer_count(
            layer_count=self.parts.layer_count, pipeline_parallel=axes.pipeline, stage_index=stage
        )
        in_flight = training_time.chunks_in_flight(
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
            micro_batch_count=axes.micro_batch_count,
            stage_index=stage,
        )
        return layers / axes.virtual, in_flight

    def exact_activation_bytes(self, axes: LayoutAxes, recorder: Recorder) -> float:
        """What the first stage would keep without recompute, summed from the layers. [B]"""
        traits = STACKS[self.named_stack or stack_of(bool(axes.is_split))]
        return float(self._activations(replace(axes, recompute=0), recorder, 0.0, traits, 0))

    def textbook_activation_bytes(self, axes: LayoutAxes) -> Any:
        """What the first stage would keep without recompute by the textbook count. [B]"""
        chunk_layers, in_flight = self.in_flight(axes, 0)
        layer = training_memory.textbook_activation_bytes_per_layer(
            sequence_tokens=self.run.sequence_length_tokens / axes.context,
            micro_batch_sequences=axes.micro_batch_sequences,
            hidden_size=self.parts.hidden_size,
            tensor_parallel=axes.tensor,
            sequence_parallel=axes.sequence_parallel,
        )
        return layer * chunk_layers * in_flight

    def answer(self, axes: LayoutAxes, recorder: Recorder) -> TrainingMemory:
        """Memory of the fullest GPU under one layout, its total with a band, recorded. [GiB]"""
        terms = self.terms(axes, recorder)
        total, band = float(terms.total), recorder.assume(RESIDUAL)
        available = available_bytes(self.gpu, recorder)
        recorder.note("training_memory_available_bytes_per_gpu", available)
        recorder.note(
            "training_textbook_activation_bytes_per_gpu", self.textbook_activation_bytes(axes)
        )
        return TrainingMemory(
            **terms.gib(COARSE_TERMS),
            total_low=total * band.low / BYTES_PER_GIB,
            total_high=total * band.high / BYTES_PER_GIB,
            available=available / BYTES_PER_GIB,
            verdict=verdict(total / available, recorder),
        )


def per_stack(
    axes: LayoutAxes,
    named: SoftwareStack | None,
    evaluate: Callable[[LayoutAxes, StackTraits], MemoryTerms],
) -> MemoryTerms:
    """Evaluate each layout on the named stack, or on the one that its degrees need."""
    vendor = axes.is_split
    if named is not None or np.ndim(vendor) == 0:
        return evaluate(axes, STACKS[named or stack_of(bool(vendor))])
    names = [field.name for field in fields(MemoryTerms)]
    columns = {name: np.empty(vendor.shape) for name in names}
    for is_vendor in (False, True):
        mask = vendor == is_vendor
        if mask.any():
            terms = evaluate(axes.take(mask), STACKS[stack_of(is_vendor)])
            for name in names:
                columns[name][mask] = getattr(terms, name)
    return MemoryTerms(**columns)


def available_bytes(gpu: Gpu, recorder: Recorder) -> float:
    """Memory that programs can address; an assumption only where nobody published it. [B]"""
    published = gpu.memory_cuda_mib or gpu.memory_reported_mib
    name = "gddr_usable_fraction" if gpu.memory_kind == "gddr" else "hbm_usable_fraction"
    usable = 1.0 if published else recorder.assume(name).value
    return gpu.available_memory_bytes(hbm_fraction=usable, gddr_fraction=usable)


def verdict(used_fraction: float, recorder: Recorder) -> Verdict:
    """Green, amber or red by the share of the available memory that is used."""
    if used_fraction < recorder.assume("memory_green_fraction").value:
        return "green"
    return "amber" if used_fraction < recorder.assume("memory_amber_fraction").value else "red"
