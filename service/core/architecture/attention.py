"""Kinds of sequence mixing in a layer; each knows its weights, its cache and its score work."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from service.core.formulas import parameters
from service.core.value import CountOrZero, Flag, NonNegative, Size, SizeOrZero, Value


class _Mixing(Value):
    """What planners ask of every kind; the defaults fit a layer that keeps no cache."""

    def parameter_count(self, hidden_size: int) -> int:
        """Weights of the layer's projections. [count]"""
        raise NotImplementedError

    @property
    def num_heads(self) -> int:
        """Heads that tensor parallelism must divide; 0 when it need not divide any."""
        return 0

    @property
    def cache_elements_per_token(self) -> int:
        """Cached elements of one token, all heads, keys and values together. [count]"""
        return 0

    @property
    def cache_shard_count(self) -> int:
        """Number of tensor-parallel ranks over which the cache can be divided."""
        return 1

    @property
    def span_tokens(self) -> int | None:
        """Tokens that a query can see at most; None when it sees the whole context."""
        return None

    @property
    def state_elements_per_sequence(self) -> int:
        """Elements of a fixed recurrent state, whatever the context. [count]"""
        return 0

    @property
    def score_flops_per_pair(self) -> int:
        """Forward FLOP of scores and weighted sum for one query and one key. [FLOP]"""
        return 0

    @property
    def query_width(self) -> int:
        """Elements of all query heads of one token. [count]"""
        return 0

    @property
    def key_value_width(self) -> int:
        """Elements of all key heads and all value heads of one token. [count]"""
        return 0

    @property
    def output_width(self) -> int:
        """Elements of one token before the output projection. [count]"""
        return self.query_width


class FullAttention(_Mixing):
    """Attention over the whole context: multi-head, grouped-query or multi-query by head counts."""

    kind: Literal["full"] = "full"
    """Kind of the layer."""
    num_attention_heads: Size
    """Query heads."""
    num_key_value_heads: Size
    """Key and value heads, not heads per group: equal to query heads for MHA, 1 for MQA."""
    head_dim: Size
    """Width of one query or key head as configured; never hidden size over heads."""
    value_head_dim: Size | None = None
    """Width of one value head; the same as `head_dim` when null."""
    values_are_keys: Flag = False
    """True when one projection makes both, so that one vector per head is cached."""
    query_gate: Flag = False
    """True when an output gate doubles the query projection."""
    query_key_value_bias: Flag = False
    """True when query, key and value projections carry a bias."""
    output_bias: Flag = False
    """True when the output projection carries a bias."""

    def parameter_count(self, hidden_size: int) -> int:
        """Weights and biases of the four projections, and of the gate. [count]"""
        count = parameters.attention_parameter_count(
            hidden_size=hidden_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            value_head_dim=self._value_dim,
        )
        count += self.query_gate * hidden_size * self.query_width
        count -= self.values_are_keys * hidden_size * self.num_key_value_heads * self._value_dim
        count += self.query_key_value_bias * (self.query_width + self.key_value_width)
        return int(count + self.output_bias * hidden_size)

    @property
    def _value_dim(self) -> int:
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def num_heads(self) -> int:
        """Query heads. [count]"""
        return self.num_attention_heads

    @property
    def query_width(self) -> int:
        """H·d. [count]"""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """H_kv·(d + d_v). [count]"""
        return self.num_key_value_heads * (self.head_dim + self._value_dim)

    @property
    def output_width(self) -> int:
        """H·d_v. [count]"""
        return self.num_attention_heads * self._value_dim

    @property
    def cache_elements_per_token(self) -> int:
        """One key and one value vector per KV head, or one vector that is both. [count]"""
        both = self.values_are_keys * self.num_key_value_heads * self._value_dim
        return self.key_value_width - both

    @property
    def cache_shard_count(self) -> int:
        """KV heads: beyond them tensor parallelism copies heads."""
        return self.num_key_value_heads

    @property
    def score_flops_per_pair(self) -> int:
        """2·H·(d + d_v). [FLOP]"""
        return 2 * self.num_attention_heads * (self.head_dim + self._value_dim)


class WindowAttention(FullAttention):
    """Attention over the last `window_tokens` tokens."""

    kind: Literal["window"] = "window"  # type: ignore[assignment]
    """Kind of the layer."""
    window_tokens: Size
    """Tokens that a query sees."""

    @property
    def span_tokens(self) -> int | None:
        """The window. [token]"""
        return self.window_tokens


class ChunkedAttention(FullAttention):
    """Attention inside fixed chunks of the sequence."""

    kind: Literal["chunked"] = "chunked"  # type: ignore[assignment]
    """Kind of the layer."""
    chunk_tokens: Size
    """Length of a chunk."""

    @property
    def span_tokens(self) -> int | None:
        """The chunk. [token]"""
        return self.chunk_tokens


class LatentAttention(_Mixing):
    """Multi-head latent attention: one joint compressed vector and a rotary part are cached."""

    kind: Literal["latent"] = "latent"
    """Kind of the layer."""
    num_attention_heads: Size
    """Query heads."""
    q_lora_rank: SizeOrZero = 0
    """Rank of the query bottleneck; 0 when queries are projected directly."""
    kv_lora_rank: Size
    """Rank of the joint key and value vector that is cached."""
    qk_nope_head_dim: Size
    """Width of a head's part without rotary position."""
    qk_rope_head_dim: Size
    """Width of the shared rotary part, cached too."""
    v_head_dim: Size
    """Width of one value head."""
    index_parameter_count: CountOrZero = 0
    """Weights of a sparse-attention indexer, per layer."""
    index_selected_tokens: Size | None = None
    """Tokens that a query attends to after the indexer; null when it attends to all."""
    index_cache_elements_per_token: SizeOrZero = 0
    """Elements that the indexer caches for a token."""

    def parameter_count(self, hidden_size: int) -> int:
        """Weights of all projections and of the indexer. [count]"""
        count = parameters.latent_attention_parameter_count(
            hidden_size=hidden_size,
            num_attention_heads=self.num_attention_heads,
            q_lora_rank=self.q_lora_rank,
            kv_lora_rank=self.kv_lora_rank,
            qk_nope_head_dim=self.qk_nope_head_dim,
            qk_rope_head_dim=self.qk_rope_head_dim,
            v_head_dim=self.v_head_dim,
        )
        return int(count) + self.index_parameter_count

    @property
    def num_heads(self) -> int:
        """Query heads. [count]"""
        return self.num_attention_heads

    @property
    def cache_elements_per_token(self) -> int:
        """r_kv + d_rope, keys and values together: no factor 2. [count]"""
        return self.kv_lora_rank + self.qk_rope_head_dim + self.index_cache_elements_per_token

    @property
    def score_flops_per_pair(self) -> int:
        """2·H·(d_nope + d_rope + d_v), the unabsorbed form of prefill and training. [FLOP]"""
        width = self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim
        return 2 * self.num_attention_heads * width

    @property
    def absorbed_score_flops_per_pair(self) -> int:
        """2·H·(2·r_kv + d_rope): decode works on the cached vectors themselves. [FLOP]"""
        return 2 * self.num_attention_heads * (2 * self.kv_lora_rank + self.qk_rope_head_dim)

    @property
    def query_width(self) -> int:
        """H·(d_nope + d_rope). [count]"""
        return self.num_attention_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)

    @property
    def key_value_width(self) -> int:
        """Keys and values after they are expanded to all heads. [count]"""
        return self.query_width + self.output_width

    @property
    def output_width(self) -> int:
        """H·d_v. [count]"""
        return self.num_attention_heads * self.v_head_dim


class GatedDeltaAttention(_Mixing):
    """Linear attention with a gated delta rule: a fixed state instead of a growing cache."""

    kind: Literal["linear"] = "linear"
    """Kind of the layer."""
    num_key_heads: Size
    """Key (and query) heads."""
    key_head_dim: Size
    """Width of a key head."""
    num_value_heads: Size
    """Value heads."""
    value_head_dim: Size
    """Width of a value head."""
    conv_kernel: SizeOrZero = 4
    """Taps of the short convolution over query, key and value."""

    def parameter_count(self, hidden_size: int) -> int:
        """Weights of projections, gates and convolution. [count]"""
        return int(
            parameters.gated_delta_parameter_count(
                hidden_size=hidden_size,
                num_key_heads=self.num_key_heads,
                key_head_dim=self.key_head_dim,
                num_value_heads=self.num_value_heads,
                value_head_dim=self.value_head_dim,
                conv_kernel=self.conv_kernel,
            )
        )

    @property
    def state_elements_per_sequence(self) -> int:
        """H_v·d_k·d_v and the convolution's last inputs. [count]"""
        recurrent = self.num_value_heads * self.key_head_dim * self.value_head_dim
        return recurrent + self.conv_kernel * (self.query_width + self.key_value_width)

    @property
    def query_width(self) -> int:
        """H_k·d_k. [count]"""
        return self.num_key_heads * self.key_head_dim

    @property
    def key_value_width(self) -> int:
        """H_k·d_k + H_v·d_v. [count]"""
        return self.query_width + self.output_width

    @property
    def output_width(self) -> int:
        """H_v·d_v. [count]"""
        return self.num_value_heads * self.value_head_dim


class StateSpace(_Mixing):
    """Mamba-2 layer: a fixed state per head instead of a cache."""

    kind: Literal["state_space"] = "state_space"
    """Kind of the layer."""
    num_heads_ssm: Size
    """Heads."""
    head_dim: Size
    """Width of a head."""
    state_size: Size
    """State elements per channel."""
    num_groups: Size = 1
    """Groups that share the two state matrices."""
    conv_kernel: SizeOrZero = 4
    """Taps of the short convolution."""

    def parameter_count(self, hidden_size: int) -> int:
        """Weights of projections and convolution. [count]"""
        return int(
            parameters.state_space_parameter_count(
                hidden_size=hidden_size,
                num_heads=self.num_heads_ssm,
                head_dim=self.head_dim,
                state_size=self.state_size,
                num_groups=self.num_groups,
                conv_kernel=self.conv_kernel,
            )
        )

    @property
    def state_elements_per_sequence(self) -> int:
        """heads·head_dim·N and the convolution's last inputs. [count]"""
        inner = self.num_heads_ssm * self.head_dim
        conv = self.conv_kernel * (inner + 2 * self.num_groups * self.state_size)
        return inner * self.state_size + conv

    @property
    def query_width(self) -> int:
        """heads·head_dim. [count]"""
        return self.num_heads_ssm * self.head_dim


class NoMixing(_Mixing):
    """A layer without attention of any kind."""

    kind: Literal["none"] = "none"
    """Kind of the layer."""

    def parameter_count(self, hidden_size: int) -> int:
        """No weights. [count]"""
        return 0


class OpaqueMixing(_Mixing):
    """A layer of another kind, described by its counts alone."""

    kind: Literal["opaque"] = "opaque"
    """Kind of the layer."""
    name: Literal["mamba_1", "lightning_attention", "other"] = "other"
    """What it is, where it has a name."""
    layer_parameter_count: CountOrZero
    """Weights of the layer's mixing part."""
    state_elements: CountOrZero = 0
    """Elements of the fixed state per sequence."""
    inner_width: NonNegative = 0
    """Elements of one token inside the layer."""

    def parameter_count(self, hidden_size: int) -> int:
        """The count as given. [count]"""
        return self.layer_parameter_count

    @property
    def state_elements_per_sequence(self) -> int:
        """As given. [count]"""
        return self.state_elements

    @property
    def query_width(self) -> int:
        """As given. [count]"""
        return int(self.inner_width)


Attention = TypeAliasType(
    "Attention",
    Annotated[
        FullAttention
        | WindowAttention
        | ChunkedAttention
        | LatentAttention
        | GatedDeltaAttention
        | StateSpace
        | NoMixing
        | OpaqueMixing,
        Field(discriminator="kind"),
    ],
)
"""What mixes the tokens of a layer."""
