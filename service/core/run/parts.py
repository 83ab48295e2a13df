"""What a model is made of for training: weights by how they are divided, and what a token keeps."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.architecture.attention import ChunkedAttention, LatentAttention
from service.core.architecture.model import (
    DenseFeedForward,
    LayerGroup,
    MixtureFeedForward,
    ModelArchitecture,
)
from service.core.formulas import flops, parameters, training_memory, training_time
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.parallelism.axes import LayoutAxes
from service.core.recorder import Recorder
from service.core.scenarios.stacks import StackTraits
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import STATE_RECIPES, Offload

FP32_BYTES = 4.0
NORM_CAST_BYTES = 4.0
"""Of one element of a norm that is not fused: 2 more for its input, 2 for it before the scale."""
SCORE_BYTES = 5.0
"""Stored score: softmax and dropout output in 16 bit, and a dropout mask."""


@dataclass(frozen=True)
class ModelParts:
    """What training divides, replicates or keeps, summed over the layers of an architecture."""

    hidden_size: int
    vocab_size: int
    layer_count: int
    mixture_layer_count: int
    divided_parameter_count: int
    """Weights of layers that tensor parallelism divides."""
    replicated_parameter_count: int
    """Norms, routers and scales: whole on every rank of a tensor-parallel group."""
    routed_parameter_count: int
    input_parameter_count: int
    """Embeddings, and towers that are trained, on the first stage."""
    output_parameter_count: int
    """Final norm and head on the last stage; the head is there even when it is tied."""
    is_tied: bool
    residual_bytes: float
    """Kept around the layer for one token, mean over the layers."""
    inner_bytes: float
    """Kept inside the layer for one token, mean over the layers."""
    unfused_bytes: float
    """Kept beside that by stacks that fuse nothing, mean over the layers."""
    score_bytes: float
    """Scores of one token where they are stored, mean over the layers."""
    key_value_width: int
    """Keys and values of one token, summed over the layers."""
    routed_hidden_width: int
    """Experts per token times their hidden size, summed over the layers."""

    @property
    def layer_parameter_count(self) -> int:
        """Weights of all layers. [count]"""
        return (
            self.divided_parameter_count
            + self.replicated_parameter_count
            + self.routed_parameter_count
        )


def visible_tokens(group: LayerGroup, sequence_tokens: int) -> float:
    """Mean keys that a query of these layers sees in training. [token]"""
    attention = group.attention
    if isinstance(attention, ChunkedAttention):
        return float(
            flops.visible_tokens_in_chunks(
                sequence_tokens=sequence_tokens, chunk_tokens=attention.chunk_tokens
            )
        )
    return float(
        flops.visible_tokens(
            sequence_tokens=sequence_tokens, span_tokens=_span(group, sequence_tokens)
        )
    )


def attention_forward_flops_per_token(
    architecture: ModelArchitecture, sequence_tokens: int
) -> float:
    """Forward attention work of one token over all layers; linear layers have none. [FLOP]"""
    return float(
        sum(
            group.count
            * flops.attention_forward_flops_per_token(
                score_flops_per_pair=group.attention.score_flops_per_pair,
                visible_tokens=visible_tokens(group, sequence_tokens),
            )
            for group in architecture.layer_groups
        )
    )


def _span(group: LayerGroup, sequence_tokens: int) -> int:
    attention = group.attention
    selected = attention.index_selected_tokens if isinstance(attention, LatentAttention) else None
    return min(sequence_tokens, attention.span_tokens or selected or sequence_tokens)


def _replicated(architecture: ModelArchitecture, group: LayerGroup) -> int:
    block = group.feed_forward
    router = block.num_experts if isinstance(block, MixtureFeedForward) else 0
    norms = group.norm_count * architecture.norm_width
    return norms + group.extra_parameter_count + router * architecture.hidden_size


def _routed_width(architecture: ModelArchitecture, group: LayerGroup) -> int:
    block = group.feed_forward
    if not isinstance(block, MixtureFeedForward):
        return 0
    return block.num_experts_per_token * (block.expert_hidden_size or architecture.hidden_size)


def _residual_bytes(architecture: ModelArchitecture, group: LayerGroup) -> float:
    """A norm keeps its input and its output; experts keep what was sent to them and back."""
    norms = 2 * group.norm_count * architecture.hidden_size
    return ELEMENT_BYTES * (norms + 2 * _routed_width(architecture, group))


def _inner_bytes(group: LayerGroup) -> float:
    """Queries, keys, values, the mixed output, and each inner width of the feed-forward block."""
    mixing = group.attention
    elements = mixing.query_width + mixing.key_value_width + mixing.output_width
    block = group.feed_forward
    if isinstance(block, DenseFeedForward | MixtureFeedForward):
        elements += block.matrix_count * block.active_width
    return ELEMENT_BYTES * elements


def _unfused_bytes(architecture: ModelArchitecture, group: LayerGroup) -> float:
    """What separate kernels keep beside that: the product of a gate, and what a norm casts.

    A norm by the root of the mean square, as gated architectures have, computes in FP32: it keeps
    its input in 4 bytes instead of 2, and what it has divided beside what it has scaled.
    """
    if not getattr(group.feed_forward, "gated", False):
        return 0.0
    norms = NORM_CAST_BYTES * group.norm_count * architecture.hidden_size
    return norms + ELEMENT_BYTES * group.feed_forward.active_width


def adapter_parameter_count(architecture: ModelArchitecture, rank: int) -> int:
    """Adapters on every attention projection and every feed-forward matrix that all tokens pass.

    Routed experts get none: a token passes few of them, and adapters of all would outgrow the rest.
    """
    hidden = architecture.hidden_size
    total = 0
    for group in architecture.layer_groups:
        mixing, block = group.attention, group.feed_forward
        pairs = [(hidden, mixing.query_width), (2 * hidden, mixing.key_value_width)]
        pairs.append((mixing.output_width, hidden))
        pairs = [pair for pair in pairs if 0 not in pair]
        if isinstance(block, DenseFeedForward):
            pairs += [(hidden, block.intermediate_size)] * block.matrix_count
        if isinstance(block, MixtureFeedForward):
            shared = block.matrix_count * block.num_shared_experts
            pairs += [(hidden, block.shared_intermediate_size)] * shared
        total += group.count * sum(
            int(parameters.adapter_parameter_count(rank=rank, input_width=i, output_width=o))
            for i, o in pairs
        )
    return total


def model_parts(architecture: ModelArchitecture, sequence_tokens: int) -> ModelParts:
    """Sum an architecture's layers into what training divides, replicates and keeps."""
    groups = architecture.layer_groups
    layers = architecture.num_hidden_layers
    width = architecture.norm_width
    hidden = architecture.hidden_size
    routed = architecture.routed_parameter_count
    replicated = sum(g.count * _replicated(architecture, g) for g in groups)
    every = sum(g.count * g.layer_parameter_count(hidden, width) for g in groups)
    towers = sum(tower.parameter_count for tower in architecture.towers if tower.trained)
    positions = architecture.learned_position_count * hidden
    scores = sum(g.count * g.attention.num_heads * _span(g, sequence_tokens) for g in groups)
    return ModelParts(
        hidden_size=hidden,
        vocab_size=architecture.vocab_size,
        layer_count=layers,
        mixture_layer_count=sum(
            g.count for g in groups if isinstance(g.feed_forward, MixtureFeedForward)
        ),
        divided_parameter_count=every - replicated - routed,
        replicated_parameter_count=replicated,
        routed_parameter_count=routed,
        input_parameter_count=architecture.head_parameter_count + positions + towers,
        output_parameter_count=architecture.head_parameter_count + width,
        is_tied=architecture.tie_word_embeddings,
        residual_bytes=sum(g.count * _residual_bytes(architecture, g) for g in groups) / layers,
        inner_bytes=sum(g.count * _inner_bytes(g) for g in groups) / layers,
        unfused_bytes=sum(g.count * _unfused_bytes(architecture, g) for g in groups) / layers,
        score_bytes=SCORE_BYTES * scores / layers,
        key_value_width=sum(g.count * g.attention.key_value_width for g in groups),
        routed_hidden_width=sum(g.count * _routed_width(architecture, g) for g in groups),
    )


@dataclass(frozen=True)
class StateBytes:
    """Bytes that training keeps for one parameter of the model, adapters included."""

    weight: float
    outer_weight: float
    """Weights of embedding, head and towers."""
    gradient: float
    master: float
    moment: float

    @property
    def optimizer(self) -> float:
        """Master copy and moments. [B]"""
        return self.master + self.moment

    @property
    def total(self) -> float:
        """All parts of a layer's parameter. [B]"""
        return self.weight + self.gradient + self.optimizer


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
            recipe.weight_bytes,
            recipe.weight_bytes,
            recipe.gradient_bytes,
            recipe.master_bytes,
            recipe.moment_bytes,
        )
    trained = adapter_parameters or adapter_parameter_count(architecture, run.adapter.rank)
    share = trained / architecture.parameter_count
    base, outer = ELEMENT_BYTES, ELEMENT_BYTES
    if run.adapter.kind == "qlora":
        quantized = ("double_quantized",) if run.adapter.double_quantization else ()
        base = recorder.assume("qlora_bytes_per_parameter", *quantized).value
        outer = recorder.assume("qlora_outer_bytes_per_parameter").value
    added = share * recipe.weight_bytes
    return StateBytes(
        base + added,
        outer + added,
        share * recipe.gradient_bytes,
        share * recipe.master_bytes,
        share * recipe.moment_bytes,
    )


@dataclass(frozen=True)
class StateModel:
    """What one GPU holds of weights, gradients and optimizer, and what its host holds for it."""

    parts: ModelParts
    state: StateBytes
    node_gpu_count: int
    offload: Offload
    trains_adapter: bool

    def held(self, axes: LayoutAxes, stage: Any) -> tuple[Any, Any, Any]:
        """Parameters of layers, of routed experts and of the rest on one GPU of a stage."""
        parts, stages = self.parts, axes.pipeline
        layers = parts.divided_parameter_count / axes.tensor + parts.replicated_parameter_count
        share, expert_share = (
            training_time.stage_layer_count(
                layer_count=count, pipeline_parallel=stages, stage_index=stage
            )
            / max(1, count)
            for count in (parts.layer_count, parts.mixture_layer_count)
        )
        experts = parts.routed_parameter_count / axes.expert_division
        head = parts.vocab_size * parts.hidden_size if parts.is_tied else 0
        outer = (
            np.equal(stage, 0) * parts.input_parameter_count
            + np.equal(stage, stages - 1) * parts.output_parameter_count
            - np.equal(stages, 1) * head
        )
        return share * layers, expert_share * experts, outer / axes.tensor

    def terms(
        self, axes: LayoutAxes, recorder: Recorder, stack: StackTraits, stage: Any
    ) -> dict[str, Any]:
        """Each part on one GPU of a stage, and what its host holds. [B]"""
        layers, experts, outer = self.held(axes, stage)
        common, state = layers + outer, self.state
        groups = self._groups(axes)
        held = {"parameter_count": common, "expert_parameter_count": experts, **groups}
        width = (layers * state.weight + outer * state.outer_weight) / np.maximum(common, 1.0)
        weights = recorder.evaluate(training_memory.weight_bytes, bytes_per_parameter=width, **held)
        gradients = recorder.evaluate(
            training_memory.gradient_bytes, bytes_per_parameter=state.gradient, **held
        )
        optimizer = recorder.evaluate(
            training_memory.optimizer_bytes, bytes_per_parameter=state.optimizer, **held
        )
        gathered, unreduced = self._whole(axes, recorder, stack, (layers, experts, outer))
        no_weights = self.offload == "optimizer_and_parameters"
        no_optimizer = self.offload != "none"
        # Whole gradients are reduced on the GPU; a share of them follows the optimizer.
        no_gradients = no_optimizer & (axes.zero_stage >= 2)
        left = optimizer * no_optimizer + gradients * no_gradients + weights * no_weights
        return {
            "weights": weights * (not no_weights) + gathered,
            "gradients": gradients * (1 - no_gradients) + unreduced,
            "optimizer": optimizer * (not no_optimizer),
            "gathered_weights": gathered,
            "unreduced_gradients": unreduced,
            "master_weights": optimizer * (not no_optimizer) * self._master_share,
            "host": self._host_bytes(recorder, left),
        }

    @property
    def _master_share(self) -> float:
        return self.state.master / self.state.optimizer if self.state.optimizer else 0.0

    def _groups(self, axes: LayoutAxes) -> dict[str, Any]:
        return {
            "shard_count": axes.shard_count(self.node_gpu_count),
            "expert_shard_count": axes.expert_shard_count(self.node_gpu_count),
            "zero_stage": axes.zero_stage,
        }

    def _whole(
        self,
        axes: LayoutAxes,
        recorder: Recorder,
        stack: StackTraits,
        held: tuple[Any, Any, Any],
    ) -> tuple[Any, Any]:
        """Weights and gradients held whole for a while, beside the GPU's own shares. [B]

        Plain sharded stacks hold two layers of weights and one of gradients whole, and what is
        outside the layers; under a pipeline they keep the whole stage for all micro-batches.
        """
        layers, experts, outer = held
        state, groups, alone = self.state, self._groups(axes), np.equal(axes.pipeline, 1)
        two = np.where(alone, np.minimum(1.0, 2.0 / self.parts.layer_count), 1.0)[()]
        one = np.where(alone, 1.0 / self.parts.layer_count, 1.0)[()]
        waiting = self._waiting_bytes(axes, stack)
        gathered = recorder.evaluate(
            training_memory.gathered_weight_bytes,
            own_on_host=self.offload == "optimizer_and_parameters",
            live_bytes=two * layers * state.weight + outer * state.outer_weight,
            expert_live_bytes=two * experts * state.weight,
            **groups,
        )
        unreduced = recorder.evaluate(
            training_memory.unreduced_gradient_bytes,
            own_on_host=self.offload != "none",
            live_bytes=one * (layers + outer) * waiting,
            expert_live_bytes=one * experts * waiting,
            **groups,
        )
        return gathered, unreduced

    def _waiting_bytes(self, axes: LayoutAxes, stack: StackTraits) -> Any:
        """Bytes of a whole gradient until it is reduced: wider where micro-batches add up. [B]"""
        plain = self.state.gradient
        if not stack.accumulates_in_fp32 or self.trains_adapter:
            return plain
        return np.where(np.equal(axes.pipeline, 1), plain, max(plain, FP32_BYTES))[()]

    def _host_bytes(self, recorder: Recorder, left: Any) -> Any:
        if self.offload == "none":
            return 0.0 * left
        return recorder.evaluate(
            training_memory.host_bytes,
            offloaded_bytes=left,
            buffer_factor=recorder.assume("offload_host_buffer_factor").value,
        )
