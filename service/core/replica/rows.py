"""An architecture as arrays: what its layers cache, its experts, and what ranks hold again."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.architecture.attention import ChunkedAttention, FullAttention, LatentAttention
from service.core.architecture.model import LayerGroup, MixtureFeedForward, ModelArchitecture

ATTENTION_KERNELS = {"none": 0, "latent": 4}
"""Matrix products of a mixing layer: four for latent attention, else one in and one out."""


@dataclass(frozen=True)
class CacheRows:
    """What layers cache and attend to, one row for each kind of cached vector."""

    layer_count: Any
    elements: Any
    shards: Any
    span_tokens: Any
    """Tokens that are kept."""
    read_tokens: Any
    """Tokens that one decode step reads."""
    is_chunked: Any
    """True where the span is a fixed chunk and not a window that moves."""
    state_bytes: Any
    pair_flops: Any
    """Work of prefill for one query and one key."""
    decode_pair_flops: Any
    """Work of decode where it can bind: on the joint vector of latent attention."""
    is_key_and_value: Any
    """True where one cached vector is both key and value."""

    @property
    def has_windows(self) -> bool:
        """True when some layers keep a part of the sequence alone."""
        return bool(np.any(np.isfinite(self.span_tokens)))

    @property
    def has_unequal_layers(self) -> bool:
        """True when layers that cache tokens differ in what they keep of one."""
        return np.unique(self.elements[self.elements > 0]).size > 1

    @property
    def has_joint_vectors(self) -> bool:
        """True when one cached vector is both key and value in some layers."""
        return bool(np.any(self.is_key_and_value))


@dataclass(frozen=True)
class Allocation:
    """How an engine lays an architecture's cache out; its least is what `CacheRows` holds."""

    joint_vector_copies: Any
    """Times that a vector which is both key and value is kept."""
    window_full_length: Any
    """1 where layers with windows hold the whole sequence."""
    uniform_pages: Any
    """1 where every layer takes pages as wide as the widest layer's."""

    def of(self, rows: CacheRows) -> CacheRows:
        """What the engine allocates for the rows of an architecture."""
        copies = np.where(rows.is_key_and_value, np.max(self.joint_vector_copies), 1.0)
        elements, span = rows.elements * copies, rows.span_tokens
        if np.max(self.uniform_pages) > 0:
            elements = np.where(elements > 0, np.max(elements), 0.0)
        if np.max(self.window_full_length) > 0:
            span = np.full_like(span, np.inf)
        return replace(rows, elements=elements, span_tokens=span)


@dataclass(frozen=True)
class ExpertRows:
    """Routed experts, one row for each kind of layer that has them."""

    layer_count: Any
    expert_count: Any
    experts_per_token: Any
    parameter_count: Any
    """Weights of one expert."""
    geometric_width: Any


def cache_rows(
    architecture: ModelArchitecture, *, bytes_per_element: float, index_bytes: float
) -> CacheRows:
    """What layers cache and attend to, in elements of the cache's format.

    Args:
        architecture: The layers.
        bytes_per_element: Of the format that keys and values are kept in.
        index_bytes: Of an element of a sparse index, whatever that format.
    """
    rows: list[tuple[float, ...]] = []
    for group in architecture.layer_groups:
        mixing = group.attention
        span = float(mixing.span_tokens or np.inf)
        state = mixing.state_elements_per_sequence * architecture.state_bytes_per_element
        pair = mixing.score_flops_per_pair
        if isinstance(mixing, LatentAttention):
            index = mixing.index_cache_elements_per_token
            joint = mixing.cache_elements_per_token - index
            index_wide = index * index_bytes / bytes_per_element
            read = float(mixing.index_selected_tokens or np.inf)
            absorbed = mixing.absorbed_score_flops_per_pair
            rows.append((group.count, joint, 1, span, read, False, 0, pair, absorbed, False))
            rows.append((group.count, index_wide, 1, span, span, False, 0, 0, 0, False))
        else:
            elements, shards = mixing.cache_elements_per_token, mixing.cache_shard_count
            is_chunked = isinstance(mixing, ChunkedAttention)
            joint = isinstance(mixing, FullAttention) and mixing.values_are_keys
            whole = (group.count, elements, shards, span, span, is_chunked, state, pair, 0, joint)
            rows.append(whole)
    return CacheRows(*np.array(rows, dtype=float).T)


def expert_rows(architecture: ModelArchitecture) -> ExpertRows | None:
    """Routed experts by kind of layer; None without any."""
    hidden = architecture.hidden_size
    rows = [
        (
            group.count,
            block.num_experts,
            block.num_experts_per_token,
            block.expert_parameter_count(hidden),
            float(np.sqrt((block.expert_hidden_size or hidden) * block.moe_intermediate_size)),
        )
        for group in architecture.layer_groups
        if isinstance(block := group.feed_forward, MixtureFeedForward)
    ]
    return ExpertRows(*np.array(rows, dtype=float).T) if rows else None


def copied_rows(architecture: ModelArchitecture) -> tuple[Any, Any]:
    """Weights that ranks beyond a number of shards hold again, and that number."""
    hidden = architecture.hidden_size
    rows: list[tuple[float, float]] = [(0.0, 1.0)]
    for group in architecture.layer_groups:
        mixing = group.attention
        if isinstance(mixing, LatentAttention):
            down = mixing.q_lora_rank + mixing.kv_lora_rank + mixing.qk_rope_head_dim
            rows.append((group.count * (hidden * down + mixing.index_parameter_count), 1.0))
        elif isinstance(mixing, FullAttention):
            key_value = hidden * mixing.key_value_width
            rows.append((group.count * key_value, mixing.cache_shard_count))
    counts, shards = np.array(rows).T
    return counts, shards


def kernel_count(group: LayerGroup) -> int:
    """Matrix products of the layers of a group, routed experts apart. [count]"""
    block = group.feed_forward
    if isinstance(block, MixtureFeedForward):
        products = 1 + 2 * (block.num_shared_experts > 0)
    else:
        products = 2 * (block.kind == "dense")
    return group.count * (ATTENTION_KERNELS.get(group.attention.kind, 2) + products)


def padded_share(architecture: ModelArchitecture, multiple: float) -> float:
    """Routed weights as kept in memory over those of the architecture. [1]"""
    widths = [
        (group.count * block.routed_parameter_count(architecture.hidden_size), block)
        for group in architecture.layer_groups
        if isinstance(block := group.feed_forward, MixtureFeedForward)
    ]
    kept = sum(
        count
        * np.ceil(block.moe_intermediate_size / multiple)
        * multiple
        / block.moe_intermediate_size
        for count, block in widths
    )
    return float(kept / sum(count for count, _ in widths)) if widths else 1.0
