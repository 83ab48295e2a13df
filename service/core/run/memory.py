"""Memory of a training run: what the fullest GPU holds under one layout or under many."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from service.core.architecture.model import ModelArchitecture
from service.core.estimates import TrainingMemory, Verdict
from service.core.formulas import training_memory, training_time
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.hardware import Gpu
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.layouts import RECOMPUTES, LayoutAxes
from service.core.run.parts import ModelParts, adapter_parameter_count
from service.core.scenarios.stacks import STACKS, LossKind, SoftwareStack, StackTraits, stack_of
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import STATE_RECIPES
from service.core.units import BYTES_PER_GIB

FP32_BYTES = 4.0
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
class StateBytes:
    """Bytes that training keeps for one parameter of the model, adapters included."""

    weight: float
    outer_weight: float
    """Weights of embedding, head and towers."""
    gradient: float
    optimizer: float


def state_bytes(
    run: TrainingRun,
    architecture: ModelArchitecture,
    recorder: Recorder,
    *,
    adapter_parameters: int | None = None,
) -> StateBytes:
    """Bytes per parameter of the model: all of the recipe, or a frozen base and its adapter.

    Args:
        run: Names the recipe and the adapter.
        architecture: What is trained.
        recorder: Looks the widths of a quantised base up.
        adapter_parameters: Weights of the adapter, where they are known better than by its rank.
    """
    recipe = STATE_RECIPES[run.state_recipe]
    if run.adapter is None:
        return StateBytes(
            recipe.weight_bytes, recipe.weight_bytes, recipe.gradient_bytes, recipe.optimizer_bytes
        )
    trained = adapter_parameters or adapter_parameter_count(architecture, run.adapter.rank)
    share = trained / architecture.parameter_count
    base, outer = ELEMENT_BYTES, ELEMENT_BYTES
    if run.adapter.kind == "qlora":
        base = recorder.assume("qlora_bytes_per_parameter").value
        outer = recorder.assume("qlora_outer_bytes_per_parameter").value
    added = share * recipe.weight_bytes
    return StateBytes(
        base + added, outer + added, share * recipe.gradient_bytes, share * recipe.optimizer_bytes
    )


@dataclass(frozen=True)
class MemoryTerms:
    """Bytes of one GPU, part by part, for one layout or many."""

    weights: Any
    gradients: Any
    optimizer: Any
    activations: Any
    logits: Any
    overhead: Any
    total: Any


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
        """Memory of the fullest GPU on one stack. [B]"""
        first = self.on_stage(axes, recorder.off(), stack, is_first=True)
        last = self.on_stage(axes, recorder.off(), stack, is_first=False)
        fuller = first.total >= last.total
        if np.ndim(fuller) == 0:
            return self.on_stage(axes, recorder, stack, is_first=bool(fuller))
        names = [field.name for field in fields(MemoryTerms)]
        return MemoryTerms(
            **{name: np.where(fuller, getattr(first, name), getattr(last, name)) for name in names}
        )

    def on_stage(
        self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, *, is_first: bool
    ) -> MemoryTerms:
        """Memory of a GPU of the first or of the last pipeline stage. [B]"""
        weights, gradients, optimizer = self._state(axes, recorder, stack, is_first=is_first)
        logits = self._logits(axes, recorder, stack, is_first=is_first)
        activations = self._activations(axes, recorder, logits, stack, is_first=is_first)
        temporary = self._update_bytes(axes, stack, is_first=is_first)
        overhead = recorder.evaluate(
            training_memory.overhead_bytes,
            other_bytes=weights + gradients + optimizer + activations + logits,
            fragmentation_fraction=recorder.assume("training_fragmentation_fraction").value,
            fixed_bytes=self._fixed_bytes(axes, recorder, stack)
            + self._buffer_bytes(axes, stack)
            + np.maximum(0.0, temporary - activations - logits),
        )
        parts = {
            "weights": weights,
            "gradients": gradients,
            "optimizer": optimizer,
            "activations": activations,
            "logits": logits,
            "overhead": overhead,
        }
        return MemoryTerms(**parts, total=recorder.evaluate(training_memory.memory_bytes, **parts))

    def _buffer_bytes(self, axes: LayoutAxes, stack: StackTraits) -> Any:
        """Inputs and outputs that a pipeline keeps for every micro-batch in flight. [B]"""
        one = ELEMENT_BYTES * self._tokens(axes) * self.parts.hidden_size
        in_flight = np.minimum(axes.pipeline, axes.micro_batch_count)
        return np.where(np.greater(axes.pipeline, 1), stack.pipeline_buffers * one * in_flight, 0.0)

    def _fixed_bytes(self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits) -> Any:
        """Context and workspaces, and buffers of every kind of group that collectives run in."""
        degrees = (axes.data, axes.tensor, axes.pipeline, axes.context, axes.expert)
        groups = sum(np.greater(degree, 1).astype(float) for degree in degrees)
        fixed = recorder.assume("training_context_gib").value
        first = recorder.assume("training_first_group_gib").value
        more = recorder.assume("training_further_group_gib").value
        if stack.has_buckets:
            fixed = fixed + recorder.assume("training_buckets_gib").value
        return BYTES_PER_GIB * (fixed + np.where(groups > 0, first + more * (groups - 1.0), 0.0))

    def _update_bytes(self, axes: LayoutAxes, stack: StackTraits, *, is_first: bool) -> Any:
        """What an optimizer that updates all weights at once holds beside them, at the step. [B]

        One more copy of the weights that it updates, while no activations are held.
        """
        if not stack.updates_at_once or self.run.adapter is not None:
            return 0.0
        recipe = STATE_RECIPES[self.run.state_recipe]
        width = recipe.master_bytes or recipe.weight_bytes
        layers, experts, outer = self._held(axes, is_first=is_first)
        shards = np.where(axes.zero_stage >= 1, axes.shard_count(self.gpu.node_gpu_count), 1)
        return width * (layers + outer + experts) / shards

    def _held(self, axes: LayoutAxes, *, is_first: bool) -> tuple[Any, Any, Any]:
        """Parameters of layers, of routed experts and of the rest on one GPU of a stage."""
        parts, stages = self.parts, axes.pipeline
        share = training_time.stage_share(layer_count=parts.layer_count, pipeline_parallel=stages)
        layers = parts.divided_parameter_count / axes.tensor + parts.replicated_parameter_count
        expert_share = training_time.stage_share(
            layer_count=parts.mixture_layer_count, pipeline_parallel=stages
        )
        experts = parts.routed_parameter_count / (axes.tensor * axes.expert)
        head = parts.vocab_size * parts.hidden_size if parts.is_tied else 0
        whole = parts.input_parameter_count + parts.output_parameter_count - head
        end = parts.input_parameter_count if is_first else parts.output_parameter_count
        outer = np.where(np.equal(stages, 1), whole, end)[()] / axes.tensor
        return share * layers, expert_share * experts, outer

    def _state(
        self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, *, is_first: bool
    ) -> tuple[Any, ...]:
        """Weights, gradients and optimizer, with what is borrowed of other ranks' shards. [B]

        Plain sharded stacks hold two layers of weights and one of gradients whole, and what is
        outside the layers; under a pipeline they keep the whole stage for all micro-batches.
        """
        layers, experts, outer = self._held(axes, is_first=is_first)
        state, stage = self.state, axes.zero_stage
        shards = axes.shard_count(self.gpu.node_gpu_count)
        groups = {
            "shard_count": shards,
            "expert_shard_count": np.maximum(1, shards // axes.expert),
            "zero_stage": stage,
        }
        common = layers + outer
        held = {"parameter_count": common, "expert_parameter_count": experts, **groups}
        alone = np.equal(axes.pipeline, 1)
        two = np.where(alone, np.minimum(1.0, 2.0 / self.parts.layer_count), 1.0)[()]
        one = np.where(alone, 1.0 / self.parts.layer_count, 1.0)[()]
        waiting = self._waiting_bytes(axes, stack)
        width = (layers * state.weight + outer * state.outer_weight) / common
        weights = recorder.evaluate(
            training_memory.weight_bytes, bytes_per_parameter=width, **held
        ) + recorder.evaluate(
            training_memory.gathered_weight_bytes,
            live_bytes=two * layers * state.weight + outer * state.outer_weight,
            expert_live_bytes=two * experts * state.weight,
            **groups,
        )
        gradients = recorder.evaluate(
            training_memory.gradient_bytes, bytes_per_parameter=state.gradient, **held
        ) + recorder.evaluate(
            training_memory.unreduced_gradient_bytes,
            live_bytes=one * common * waiting,
            expert_live_bytes=one * experts * waiting,
            **groups,
        )
        optimizer = recorder.evaluate(
            training_memory.optimizer_bytes, bytes_per_parameter=state.optimizer, **held
        )
        return weights, gradients, optimizer

    def _waiting_bytes(self, axes: LayoutAxes, stack: StackTraits) -> Any:
        """Bytes of a whole gradient until it is reduced: wider where micro-batches add up. [B]"""
        plain = self.state.gradient
        if not stack.accumulates_in_fp32 or self.run.adapter is not None:
            return plain
        return np.where(np.equal(axes.pipeline, 1), plain, max(plain, FP32_BYTES))[()]

    def _tokens(self, axes: LayoutAxes) -> Any:
        """Tokens of one micro-batch on one GPU. [token]"""
        return axes.micro_batch_sequences * self.run.sequence_length_tokens / axes.context

    def _logits(
        self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, *, is_first: bool
    ) -> Any:
        holds_head = np.equal(axes.pipeline, 1) if is_first else True
        return recorder.evaluate(
            training_memory.logits_bytes,
            tokens=self._tokens(axes) * holds_head,
            vocab_size=self.parts.vocab_size,
            bytes_per_logit=recorder.assume("bytes_per_logit", self.loss or stack.loss).value,
            tensor_parallel=axes.tensor,
        )

    def _activations(
        self,
        axes: LayoutAxes,
        recorder: Recorder,
        logits: Any,
        stack: StackTraits,
        *,
        is_first: bool,
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
        chunk_layers, in_flight = self._in_flight(axes, is_first=is_first)
        return recorder.evaluate(
            training_memory.activation_bytes,
            kept_bytes_per_token=np.select(chosen, kept)[()],
            rebuilt_bytes_per_token=np.select(chosen, rebuilt)[()],
            micro_batch_tokens=self._tokens(axes),
            chunk_layer_count=chunk_layers,
            chunks_in_flight=in_flight,
            logits_bytes=logits,
        )

    def _in_flight(self, axes: LayoutAxes, *, is_first: bool) -> tuple[Any, Any]:
        """Layers of a chunk, and chunks whose activations a stage holds at once."""
        share = training_time.stage_share(
            layer_count=self.parts.layer_count, pipeline_parallel=axes.pipeline
        )
        in_flight = training_time.chunks_in_flight(
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
            micro_batch_count=axes.micro_batch_count,
            stage_index=0 if is_first else axes.pipeline - 1,
        )
        return share * self.parts.layer_count / axes.virtual, in_flight

    def textbook_activation_bytes(self, axes: LayoutAxes) -> Any:
        """What the first stage would keep without recompute by the textbook count. [B]"""
        chunk_layers, in_flight = self._in_flight(axes, is_first=True)
        layer = training_memory.textbook_activation_bytes_per_layer(
            sequence_tokens=self.run.sequence_length_tokens / axes.context,
            micro_batch_sequences=axes.micro_batch_sequences,
            hidden_size=self.parts.hidden_size,
            tensor_parallel=axes.tensor,
            sequence_parallel=axes.sequence_parallel,
        )
        return layer * chunk_layers * in_flight

    def answer(self, axes: LayoutAxes, recorder: Recorder) -> TrainingMemory:
        """Memory of the fullest GPU under one layout, recorded. [GiB]"""
        terms = self.terms(axes, recorder)
        available = available_bytes(self.gpu, recorder)
        recorder.note("training_memory_available_bytes_per_gpu", available)
        recorder.note(
            "training_textbook_activation_bytes_per_gpu", self.textbook_activation_bytes(axes)
        )
        gib = {f.name: float(getattr(terms, f.name)) / BYTES_PER_GIB for f in fields(MemoryTerms)}
        return TrainingMemory(
            **gib,
            available=available / BYTES_PER_GIB,
            verdict=verdict(float(terms.total) / available, recorder),
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
