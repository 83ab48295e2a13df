"""What one token costs in a training step, summed over the layers of an architecture."""

from dataclasses import dataclass

from service.core.architecture.model import (
    DenseFeedForward,
    LayerGroup,
    MixtureFeedForward,
    ModelArchitecture,
)
from service.core.formulas import flops
from service.core.run.parts import visible_tokens

HIDDEN_PASSES = 36
"""Elements of the hidden width read or written by norms, residuals and rotations of one layer,
forward and backward."""
INNER_PASSES = 9
"""Elements of the inner width read or written by gates and activations, forward and backward."""


@dataclass(frozen=True)
class RoutedWork:
    """Routed experts of the layers that have them."""

    layer_count: int
    expert_count: int
    experts_per_token: int
    hidden_size: int
    """Width in which the experts work."""
    active_parameter_count: int
    """Weights of routed experts that one token passes, all layers."""
    held_parameter_count: int
    """Weights of all routed experts, all layers."""

    @property
    def hidden_width(self) -> int:
        """Elements that one token sends to its experts, all layers. [count]"""
        return self.layer_count * self.experts_per_token * self.hidden_size


@dataclass(frozen=True)
class StepWork:
    """Counts of one token over all layers, and of the head."""

    hidden_size: int
    vocab_size: int
    layer_count: int
    gemm_parameter_count: float
    """Weights outside routed experts that every token multiplies, without the head."""
    gemm_width: float
    """Elements that these matrices read and write for one token."""
    gemm_matrix_count: float
    """Matrices, each a kernel."""
    attention_flops: float
    """Forward attention work under a causal mask. [FLOP]"""
    attention_span_flops: float
    """The same, each layer's over the tokens that a query can reach. [FLOP/token]"""
    score_count: float
    """Scores of one query over all heads and layers, masked or not."""
    hidden_passes: float
    """Elements of the hidden width that pass memory outside matrices."""
    inner_passes: float
    """Elements of inner widths that pass memory outside matrices."""
    key_value_width: float
    """Elements of keys and values."""
    outer_parameter_count: int
    """Embedding, and head when it is not tied."""
    routed: RoutedWork | None

    @property
    def head_parameter_count(self) -> int:
        """Weights of the head, tied or not. [count]"""
        return self.hidden_size * self.vocab_size


def step_work(
    architecture: ModelArchitecture, sequence_tokens: int, *, recurrent_pass_factor: float
) -> StepWork:
    """Sum an architecture's layers into what a step computes and moves for one token."""
    hidden, groups = architecture.hidden_size, architecture.layer_groups
    attention = [
        (
            g.count
            * flops.attention_forward_flops_per_token(
                score_flops_per_pair=g.attention.score_flops_per_pair,
                visible_tokens=visible_tokens(g, sequence_tokens),
            ),
            min(sequence_tokens, g.attention.span_tokens or sequence_tokens),
        )
        for g in groups
    ]
    return StepWork(
        hidden_size=hidden,
        vocab_size=architecture.vocab_size,
        layer_count=architecture.num_hidden_layers,
        gemm_parameter_count=sum(g.count * _common(g, hidden) for g in groups),
        gemm_width=sum(g.count * _gemm_width(g, hidden) for g in groups),
        gemm_matrix_count=sum(g.count * _matrix_count(g) for g in groups),
        attention_flops=sum(work for work, _ in attention),
        attention_span_flops=sum(work / span for work, span in attention),
        score_count=sum(
            g.count * g.attention.num_heads * span
            for g, (_, span) in zip(groups, attention, strict=True)
        ),
        hidden_passes=sum(
            g.count * HIDDEN_PASSES * hidden * _recurrent(g, recurrent_pass_factor) for g in groups
        ),
        inner_passes=sum(g.count * INNER_PASSES * g.feed_forward.active_width for g in groups),
        key_value_width=sum(g.count * g.attention.key_value_width for g in groups),
        outer_parameter_count=architecture.embedding_parameter_count,
        routed=_routed(architecture),
    )


def _recurrent(group: LayerGroup, factor: float) -> float:
    """Scans of recurrent layers pass memory more often than the norms of others."""
    return factor if group.attention.state_elements_per_sequence > 0 else 1.0


def _common(group: LayerGroup, hidden: int) -> int:
    """Weights of one layer that every token multiplies."""
    block = group.feed_forward
    whole = group.attention.parameter_count(hidden) + block.parameter_count(hidden)
    return whole - block.routed_parameter_count(hidden)


def _gemm_width(group: LayerGroup, hidden: int) -> float:
    """Elements that go into and come out of one layer's matrices."""
    mixing, block = group.attention, group.feed_forward
    width = hidden + mixing.query_width + mixing.key_value_width + mixing.output_width + hidden
    inner = 0
    if isinstance(block, DenseFeedForward):
        inner = block.intermediate_size
    elif isinstance(block, MixtureFeedForward):
        inner = block.num_shared_experts * block.shared_intermediate_size
    matrices = getattr(block, "matrix_count", 0)
    return width + (2 * hidden + matrices * inner if inner else 0)


def _matrix_count(group: LayerGroup) -> int:
    block = group.feed_forward
    inner = 0 if not hasattr(block, "matrix_count") else block.matrix_count - 1
    return 2 + inner


def _routed(architecture: ModelArchitecture) -> RoutedWork | None:
    """Routed experts; layers whose geometry differs are described by the largest group."""
    found = [
        (g.count, g.feed_forward)
        for g in architecture.layer_groups
        if isinstance(g.feed_forward, MixtureFeedForward)
    ]
    if not found:
        return None
    _, block = max(found, key=lambda item: item[0])
    hidden = architecture.hidden_size
    return RoutedWork(
        layer_count=sum(count for count, _ in found),
        expert_count=block.num_experts,
        experts_per_token=block.num_experts_per_token,
        hidden_size=block.expert_hidden_size or hidden,
        active_parameter_count=sum(
            count * b.num_experts_per_token * b.expert_parameter_count(hidden) for count, b in found
        ),
        held_parameter_count=sum(count * b.routed_parameter_count(hidden) for count, b in found),
    )
