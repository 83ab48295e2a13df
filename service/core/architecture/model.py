"""A model architecture: layer groups, from which parameters, FLOPs and caches are summed."""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.architecture.attention import Attention
from service.core.formulas import parameters
from service.core.value import (
    Count,
    CountOrZero,
    Flag,
    Key,
    LongText,
    Positive,
    Provenance,
    Size,
    SizeOrZero,
    Text,
    TokenCount,
    Value,
)

ParameterCountBasis = Literal["computed", "published"]


class DenseFeedForward(Value):
    """One feed-forward block that every token passes."""

    kind: Literal["dense"] = "dense"
    """Kind of the block."""
    intermediate_size: Size
    """Inner width."""
    gated: Flag = True
    """True for three matrices (gate, up, down), false for two."""
    bias: Flag = False
    """True when the matrices carry biases."""

    @property
    def matrix_count(self) -> int:
        """Matrices of the block. [count]"""
        return 3 if self.gated else 2

    def parameter_count(self, hidden_size: int) -> int:
        """All weights and biases. [count]"""
        count = parameters.feed_forward_parameter_count(
            hidden_size=hidden_size,
            intermediate_size=self.intermediate_size,
            matrix_count=self.matrix_count,
        )
        biases = (self.matrix_count - 1) * self.intermediate_size + hidden_size
        return int(count + self.bias * biases)

    def active_parameter_count(self, hidden_size: int) -> int:
        """Weights that one token passes: all of them. [count]"""
        return self.parameter_count(hidden_size)

    def routed_parameter_count(self, hidden_size: int) -> int:
        """Weights in routed experts: none. [count]"""
        return 0

    @property
    def active_width(self) -> int:
        """Inner width that one token passes. [count]"""
        return self.intermediate_size


class MixtureFeedForward(Value):
    """Routed experts, with or without experts that every token passes."""

    kind: Literal["mixture"] = "mixture"
    """Kind of the block."""
    num_experts: Size
    """Routed experts; all of them live in memory."""
    num_experts_per_token: Size
    """Routed experts that one token passes."""
    moe_intermediate_size: Size
    """Inner width of one routed expert."""
    num_shared_experts: SizeOrZero = 0
    """Experts that every token passes."""
    shared_intermediate_size: SizeOrZero = 0
    """Inner width of one shared expert."""
    expert_hidden_size: Size | None = None
    """Width in which routed experts work when it is not the hidden size; adds two projections."""
    gated: Flag = True
    """True for three matrices per expert, false for two."""
    shared_gate: Flag = False
    """True when a gate of one output weighs the shared experts."""
    bias: Flag = False
    """True when the experts' matrices and the router carry biases."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.num_experts_per_token > self.num_experts:
            raise ValueError("num_experts_per_token is above num_experts")
        if (self.num_shared_experts == 0) != (self.shared_intermediate_size == 0):
            raise ValueError("num_shared_experts and shared_intermediate_size go together")
        return self

    @property
    def matrix_count(self) -> int:
        """Matrices of one expert. [count]"""
        return 3 if self.gated else 2

    def expert_parameter_count(self, hidden_size: int) -> int:
        """Weights of one routed expert. [count]"""
        width = self.expert_hidden_size or hidden_size
        count = self.matrix_count * width * self.moe_intermediate_size
        biases = (self.matrix_count - 1) * self.moe_intermediate_size + width
        return count + self.bias * biases

    def routed_parameter_count(self, hidden_size: int) -> int:
        """Weights of all routed experts: the part that expert parallelism divides. [count]"""
        return self.num_experts * self.expert_parameter_count(hidden_size)

    def _always_on_parameter_count(self, hidden_size: int) -> int:
        router = hidden_size * self.num_experts + self.bias * self.num_experts
        latent = 2 * hidden_size * (self.expert_hidden_size or 0)
        shared = self.num_shared_experts * self.matrix_count * hidden_size
        shared *= self.shared_intermediate_size
        return router + latent + shared + self.shared_gate * hidden_size

    def parameter_count(self, hidden_size: int) -> int:
        """Router, all routed and all shared experts. [count]"""
        return self._always_on_parameter_count(hidden_size) + self.routed_parameter_count(
            hidden_size
        )

    def active_parameter_count(self, hidden_size: int) -> int:
        """Router, shared experts and the routed experts that one token passes. [count]"""
        routed = self.num_experts_per_token * self.expert_parameter_count(hidden_size)
        return self._always_on_parameter_count(hidden_size) + routed

    @property
    def active_width(self) -> int:
        """Inner width that one token passes, over routed and shared experts. [count]"""
        routed = self.num_experts_per_token * self.moe_intermediate_size
        return routed + self.num_shared_experts * self.shared_intermediate_size


class NoFeedForward(Value):
    """A layer without a feed-forward block."""

    kind: Literal["none"] = "none"
    """Kind of the block."""

    def parameter_count(self, hidden_size: int) -> int:
        """No weights. [count]"""
        return 0

    def active_parameter_count(self, hidden_size: int) -> int:
        """No weights. [count]"""
        return 0

    def routed_parameter_count(self, hidden_size: int) -> int:
        """No weights. [count]"""
        return 0

    @property
    def active_width(self) -> int:
        """No width. [count]"""
        return 0


FeedForward = TypeAliasType(
    "FeedForward",
    Annotated[DenseFeedForward | MixtureFeedForward | NoFeedForward, Field(discriminator="kind")],
)
"""The feed-forward block of a layer."""


class LayerGroup(Value):
    """Layers of one geometry; an architecture with per-layer geometry has one group per kind."""

    count: Size
    """Layers of this kind."""
    attention: Attention
    """What mixes tokens."""
    feed_forward: FeedForward
    """What widens and narrows each token."""
    norm_count: SizeOrZero = 2
    """Norms over the hidden size in each layer."""
    extra_parameter_count: CountOrZero = 0
    """Weights of each layer that no field above describes (norms over heads, sinks, scales)."""

    def layer_parameter_count(self, hidden_size: int, norm_width: int) -> int:
        """Weights of one layer. [count]"""
        mixing = self.attention.parameter_count(hidden_size)
        block = self.feed_forward.parameter_count(hidden_size)
        return mixing + block + self.norm_count * norm_width + self.extra_parameter_count

    def layer_active_parameter_count(self, hidden_size: int, norm_width: int) -> int:
        """Weights of one layer that one token passes. [count]"""
        idle = self.feed_forward.parameter_count(
            hidden_size
        ) - self.feed_forward.active_parameter_count(hidden_size)
        return self.layer_parameter_count(hidden_size, norm_width) - idle


class Tower(Value):
    """Weights beside the decoder: vision or audio encoder, draft or multi-token head."""

    name: Text
    """What it is."""
    parameter_count: TokenCount
    """Its weights."""
    trained: Flag = True
    """True when training updates it."""
    served: Flag = True
    """True when a serving engine loads it."""


class ModelArchitecture(Value):
    """Everything that sizes a model, without its weights."""

    key: Key = "inline"
    """Stable key; "inline" when it is described in a request."""
    name: Text
    """Trade name."""
    hidden_size: Size
    """Width of the residual stream."""
    vocab_size: Size
    """Rows of the embedding."""
    tie_word_embeddings: Flag
    """True when input embedding and output head are one matrix."""
    layer_groups: Annotated[tuple[LayerGroup, ...], Field(max_length=200)]
    """Layers by geometry; empty only when `parameter_count_basis` is "published"."""
    norm_bias: Flag = False
    """True when norms carry a bias (layer norm)."""
    learned_position_count: SizeOrZero = 0
    """Rows of a learned position embedding."""
    towers: Annotated[tuple[Tower, ...], Field(max_length=20)] = ()
    """Weights beside the decoder."""
    max_context_tokens: Count | None = None
    """Longest context that the model was made for."""
    native_format: Key = "bf16"
    """Number format of the published weights."""
    parameter_count_basis: ParameterCountBasis = "computed"
    """`published` when the layers cannot be described and counts are taken from the publisher."""
    published_parameter_count: TokenCount | None = None
    """Total as published, for comparison or, with basis "published", for use."""
    published_active_parameter_count: TokenCount | None = None
    """Active per token as published."""
    count_note: LongText | None = None
    """Why computed and published totals differ by more than 1 %."""
    released: Text | None = None
    """Month of release."""
    licence: Text | None = None
    """Licence of the weights."""
    state_bytes_per_element: Positive = 2.0
    """Bytes of one element of a recurrent state."""
    provenance: Provenance = Provenance()
    """Where these facts come from."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        published = self.parameter_count_basis == "published"
        if published and self.published_parameter_count is None:
            raise ValueError('basis "published" needs published_parameter_count')
        if not published and not self.layer_groups:
            raise ValueError('layer_groups may be empty only with basis "published"')
        return self

    @property
    def has_layers(self) -> bool:
        """True when counts are summed from layers; planners that need layers refuse others."""
        return self.parameter_count_basis == "computed"

    @property
    def norm_width(self) -> int:
        """Weights of one norm over the hidden size. [count]"""
        return self.hidden_size * (2 if self.norm_bias else 1)

    @cached_property
    def num_hidden_layers(self) -> int:
        """Layers of all groups. [count]"""
        return sum(group.count for group in self.layer_groups)

    @cached_property
    def embedding_parameter_count(self) -> int:
        """Input embedding and head; one matrix when they are tied. [count]"""
        return int(
            parameters.embedding_parameter_count(
                vocab_size=self.vocab_size,
                hidden_size=self.hidden_size,
                tie_word_embeddings=int(self.tie_word_embeddings),
            )
        )

    @property
    def head_parameter_count(self) -> int:
        """Weights of the head matmul: V·h whether tied or not. [count]"""
        return self.vocab_size * self.hidden_size

    @cached_property
    def _outside_layers(self) -> int:
        positions = self.learned_position_count * self.hidden_size
        return self.embedding_parameter_count + positions + self.norm_width

    @cached_property
    def parameter_count(self) -> int:
        """Weights of the decoder, all experts, without towers. [count]"""
        if not self.has_layers:
            return int(self.published_parameter_count or 0)
        layers = sum(
            group.count * group.layer_parameter_count(self.hidden_size, self.norm_width)
            for group in self.layer_groups
        )
        return self._outside_layers + layers

    @cached_property
    def active_parameter_count(self) -> int:
        """Weights that one token passes, embedding and head included. [count]"""
        if not self.has_layers:
            published = self.published_active_parameter_count or self.published_parameter_count
            return int(published or 0)
        layers = sum(
            group.count * group.layer_active_parameter_count(self.hidden_size, self.norm_width)
            for group in self.layer_groups
        )
        return self._outside_layers + layers

    @cached_property
    def matmul_active_parameter_count(self) -> int:
        """Active weights that multiply: without the input lookup, with the head. [count]"""
        if not self.has_layers:
            return self.active_parameter_count
        positions = self.learned_position_count * self.hidden_size
        lookup = positions + (0 if self.tie_word_embeddings else self.head_parameter_count)
        return self.active_parameter_count - lookup

    @cached_property
    def routed_parameter_count(self) -> int:
        """Weights in routed experts: the part that expert parallelism divides. [count]"""
        return sum(
            group.count * group.feed_forward.routed_parameter_count(self.hidden_size)
            for group in self.layer_groups
        )

    @property
    def is_mixture(self) -> bool:
        """True when any layer has routed experts."""
        return self.routed_parameter_count > 0

    @property
    def has_sparse_index(self) -> bool:
        """True when some layers choose the tokens that they attend to by an index."""
        return any(
            getattr(group.attention, "index_selected_tokens", None) is not None
            for group in self.layer_groups
        )

    @cached_property
    def tower_parameter_count(self) -> int:
        """Weights of all towers that are served. [count]"""
        return sum(tower.parameter_count for tower in self.towers if tower.served)

    @cached_property
    def head_counts(self) -> tuple[int, ...]:
        """Distinct head counts that tensor parallelism must divide."""
        heads = {group.attention.num_heads for group in self.layer_groups}
        return tuple(sorted(heads - {0}))

    @cached_property
    def experts_per_token(self) -> int:
        """Routed experts that one token passes in a layer: the most of any, 1 without experts."""
        blocks = (group.feed_forward for group in self.layer_groups)
        passed = (b.num_experts_per_token for b in blocks if isinstance(b, MixtureFeedForward))
        return max(passed, default=1)

    @cached_property
    def expert_counts(self) -> tuple[int, ...]:
        """Distinct numbers of routed experts that expert parallelism must divide."""
        blocks = (group.feed_forward for group in self.layer_groups)
        return tuple(sorted({b.num_experts for b in blocks if isinstance(b, MixtureFeedForward)}))
