"""What a model is made of for training: weights by how they are divided, and what a token keeps."""

from dataclasses import dataclass

from service.core.architecture.attention import ChunkedAttention, LatentAttention
from service.core.architecture.model import (
    DenseFeedForward,
    LayerGroup,
    MixtureFeedForward,
    ModelArchitecture,
)
from service.core.formulas import flops, training_memory
from service.core.formulas.communication import ELEMENT_BYTES

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


def _unfused_bytes(group: LayerGroup) -> float:
    """Queries and keys before their rotation, and the product of a gate."""
    mixing, block = group.attention, group.feed_forward
    gated = getattr(block, "gated", False)
    elements = mixing.query_width + mixing.key_value_width / 2 + gated * block.active_width
    return ELEMENT_BYTES * elements


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
            int(training_memory.adapter_parameter_count(rank=rank, input_width=i, output_width=o))
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
        unfused_bytes=sum(g.count * _unfused_bytes(g) for g in groups) / layers,
        score_bytes=SCORE_BYTES * scores / layers,
        key_value_width=sum(g.count * g.attention.key_value_width for g in groups),
        routed_hidden_width=sum(g.count * _routed_width(architecture, g) for g in groups),
    )
