"""A replica in numbers: what an architecture in given formats asks of each GPU of a layout."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from service.core.architecture.attention import ChunkedAttention, FullAttention, LatentAttention
from service.core.architecture.model import LayerGroup, MixtureFeedForward, ModelArchitecture
from service.core.formulas import serving_memory
from service.core.hardware import ComputePrecision, Gpu, NumberFormat
from service.core.recorder import Recorder
from service.core.replica.constants import MemoryConstants, Needs

WIDE_BITS = 16
"""Embeddings, head, routers and towers of quantised models stay this wide."""
ATTENTION_KERNELS = {"none": 0, "latent": 4}
"""Matrix products of a mixing layer: four for latent attention, else one in and one out."""


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism: numbers, or arrays of all layouts of a sweep."""

    tensor_parallel: Any
    pipeline_parallel: Any

    @property
    def gpu_count(self) -> Any:
        """GPUs of one replica. [count]"""
        return self.tensor_parallel * self.pipeline_parallel


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


@dataclass(frozen=True)
class ExpertRows:
    """Routed experts, one row for each kind of layer that has them."""

    layer_count: Any
    expert_count: Any
    experts_per_token: Any
    parameter_count: Any
    """Weights of one expert."""
    geometric_width: Any


def _cache_rows(architecture: ModelArchitecture) -> CacheRows:
    rows: list[tuple[float, ...]] = []
    for group in architecture.layer_groups:
        mixing = group.attention
        span = float(mixing.span_tokens or np.inf)
        state = mixing.state_elements_per_sequence * architecture.state_bytes_per_element
        pair = mixing.score_flops_per_pair
        if isinstance(mixing, LatentAttention):
            index = mixing.index_cache_elements_per_token
            joint = mixing.cache_elements_per_token - index
            read = float(mixing.index_selected_tokens or np.inf)
            absorbed = mixing.absorbed_score_flops_per_pair
            rows.append((group.count, joint, 1, span, read, False, 0, pair, absorbed))
            rows.append((group.count, index, 1, span, span, False, 0, 0, 0))
        else:
            elements, shards = mixing.cache_elements_per_token, mixing.cache_shard_count
            is_chunked = isinstance(mixing, ChunkedAttention)
            rows.append((group.count, elements, shards, span, span, is_chunked, state, pair, 0))
    return CacheRows(*np.array(rows, dtype=float).T)


def _expert_rows(architecture: ModelArchitecture) -> ExpertRows | None:
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


def _copied_rows(architecture: ModelArchitecture) -> tuple[Any, Any]:
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


def _kernel_count(group: LayerGroup) -> int:
    block = group.feed_forward
    if isinstance(block, MixtureFeedForward):
        products = 1 + 2 * (block.num_shared_experts > 0)
    else:
        products = 2 * (block.kind == "dense")
    return group.count * (ATTENTION_KERNELS.get(group.attention.kind, 2) + products)


def _padded_share(architecture: ModelArchitecture, multiple: float) -> float:
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


@dataclass(frozen=True)
class ReplicaShape:
    """An architecture in given formats on a given GPU, resolved to arrays."""

    architecture: ModelArchitecture
    gpu: Gpu
    weight_format: NumberFormat
    kv_format: NumberFormat
    available_bytes: float
    """Memory of one GPU that programs can address."""
    expert_width_multiple: float
    weight_precision: ComputePrecision
    """Mode of the matrix unit for weights in the format."""

    @cached_property
    def cache(self) -> CacheRows:
        """Cached vectors of all layers."""
        return _cache_rows(self.architecture)

    @cached_property
    def experts(self) -> ExpertRows | None:
        """Routed experts of all layers; None for dense architectures."""
        return _expert_rows(self.architecture)

    @cached_property
    def _copied(self) -> tuple[Any, Any]:
        return _copied_rows(self.architecture)

    @property
    def wide_bytes(self) -> float:
        """Bytes of a weight outside the quantised layers. [B]"""
        return max(self.weight_format.bytes_per_element, WIDE_BITS / 8)

    @property
    def has_wide_layers(self) -> bool:
        """True when the format is the publisher's own 4-bit one: it holds routed experts alone."""
        is_native = self.weight_format.key == self.architecture.native_format
        return is_native and self.weight_format.bits < 8 and self.architecture.is_mixture

    @property
    def layer_bytes(self) -> float:
        """Bytes of a weight of the layers outside routed experts. [B]"""
        return self.wide_bytes if self.has_wide_layers else self.weight_format.bytes_per_element

    @cached_property
    def routed_bytes(self) -> float:
        """Bytes of a routed weight with its padding. [B]"""
        padding = _padded_share(self.architecture, self.expert_width_multiple)
        return self.weight_format.bytes_per_element * padding

    @cached_property
    def router_parameter_count(self) -> float:
        """Weights of all routers. [count]"""
        if self.experts is None:
            return 0.0
        rows = self.experts
        return float(np.sum(rows.layer_count * rows.expert_count) * self.architecture.hidden_size)

    @cached_property
    def layer_parameter_count(self) -> float:
        """Weights of all layers outside routed experts, routers included. [count]"""
        whole, hidden = self.architecture, self.architecture.hidden_size
        layers = sum(
            group.count * group.layer_parameter_count(hidden, whole.norm_width)
            for group in whole.layer_groups
        )
        return float(layers - whole.routed_parameter_count)

    @cached_property
    def kernel_count(self) -> int:
        """Matrix products of one pass through all layers, routed experts apart. [count]"""
        return sum(_kernel_count(group) for group in self.architecture.layer_groups)

    @cached_property
    def mixing_layer_count(self) -> int:
        """Layers that mix tokens. [count]"""
        groups = self.architecture.layer_groups
        return sum(group.count for group in groups if group.attention.kind != "none")

    @cached_property
    def collective_count(self) -> int:
        """All-reduces of one pass under tensor parallelism: one after each half layer. [count]"""
        halves = (
            (group, group.attention.kind, group.feed_forward.kind)
            for group in self.architecture.layer_groups
        )
        return sum(group.count * ((a != "none") + (f != "none")) for group, a, f in halves)

    def needs(self, tensor_parallel: tuple[int, ...], *, has_stages: bool) -> Needs:
        """Which constants layouts of these degrees need."""
        return Needs(
            kind="mixture" if self.architecture.is_mixture else "dense",
            dense_precision="bf16" if self.has_wide_layers else self.weight_precision,
            routed_precision=self.weight_precision,
            has_latent_attention=bool(np.any(self.cache.decode_pair_flops)),
            is_weight_only=self.is_weight_only,
            tensor_parallel=tensor_parallel,
            has_stages=has_stages,
            scale_up_gpu_count=self.scale_up_gpu_count,
        )

    @property
    def scale_up_gpu_count(self) -> int:
        """GPUs that the scale-up link joins; 1 where its bandwidth is not known. [count]"""
        return self.gpu.scale_up_domain_gpu_count if self.gpu.scale_up_bytes_per_s > 0 else 1

    @property
    def is_weight_only(self) -> bool:
        """True when kernels widen weights before they compute."""
        is_narrow = self.weight_format.bits < WIDE_BITS
        return self.weight_format.weight_only or (is_narrow and self.weight_precision == "bf16")

    def copied_parameter_count(self, tensor_parallel: Any) -> Any:
        """Weights of the layers that one rank holds beyond its even share. [count]"""
        counts, shards = self._copied
        ranks = np.asarray(tensor_parallel)[..., None]
        return np.sum(counts * (1 / np.minimum(shards, ranks) - 1 / ranks), axis=-1)

    def layer_parameters_per_gpu(self, tensor_parallel: Any) -> Any:
        """Weights outside routed experts that one rank multiplies. [count]"""
        even = self.layer_parameter_count / np.asarray(tensor_parallel)
        return even + self.copied_parameter_count(tensor_parallel)

    def weight_bytes_per_gpu(self, recorder: Recorder, layout: Layout) -> Any:
        """Weights on the fullest GPU. [B]"""
        whole, ranks = self.architecture, layout.tensor_parallel
        divided = (self.layer_parameter_count - self.router_parameter_count) * self.layer_bytes
        is_cut = np.asarray(layout.pipeline_parallel) > 1
        embedding = np.where(is_cut, whole.head_parameter_count, whole.embedding_parameter_count)
        copied = self.copied_parameter_count(ranks) * self.layer_bytes
        copied += self.router_parameter_count * self.wide_bytes
        outside = (embedding + whole.tower_parameter_count) * self.wide_bytes
        return recorder.evaluate(
            serving_memory.weight_bytes_per_gpu,
            divided_layer_bytes=divided + whole.routed_parameter_count * self.routed_bytes,
            copied_layer_bytes=copied,
            outside_layer_bytes=outside,
            stage_fraction=self.stage_fraction(layout),
            tensor_parallel=ranks,
        )

    def stage_fraction(self, layout: Layout) -> Any:
        """Share of the layers on the fullest stage. [1]"""
        return serving_memory.fullest_stage_fraction(
            num_hidden_layers=self.architecture.num_hidden_layers,
            pipeline_parallel=layout.pipeline_parallel,
        )

    def stage_layer_count(self, layout: Layout) -> Any:
        """Layers of each kind on the fullest stage, kinds in even shares. [count]"""
        return np.asarray(self.stage_fraction(layout))[..., None] * self.cache.layer_count

    def pool_bytes_per_gpu(
        self, recorder: Recorder, memory: MemoryConstants, layout: Layout, weight_bytes: Any
    ) -> tuple[Any, Any]:
        """What the engine keeps, and what is left for the cache, on the fullest GPU. [B]"""
        overhead = recorder.evaluate(
            serving_memory.engine_overhead_bytes_per_gpu,
            fixed_bytes=memory.overhead_bytes(layout.tensor_parallel),
            bytes_per_vocabulary_entry=memory.bytes_per_vocabulary_entry,
            vocab_size=self.architecture.vocab_size,
            class_bytes=memory.class_bytes,
        )
        pool = recorder.evaluate(
            serving_memory.kv_pool_bytes_per_gpu,
            available_bytes=self.available_bytes,
            memory_utilization_fraction=memory.utilization_fraction,
            weight_bytes=weight_bytes,
            overhead_bytes=overhead,
            free_memory_fraction=memory.free_fraction,
        )
        return overhead, pool

    def sequence_bytes_per_gpu(
        self, recorder: Recorder, memory: MemoryConstants, layout: Layout, tokens: Any
    ) -> Any:
        """Cache of one sequence on a GPU of the fullest stage. [B]"""
        rows = self.cache
        return recorder.evaluate(
            serving_memory.kv_cache_bytes_per_sequence,
            sequence_tokens=tokens,
            block_tokens=memory.block_tokens,
            layer_count=self.stage_layer_count(layout),
            cache_elements_per_token=rows.elements,
            cache_shard_count=rows.shards,
            span_tokens=rows.span_tokens,
            state_bytes=rows.state_bytes,
            tensor_parallel=layout.tensor_parallel,
            bytes_per_element=self.kv_format.bytes_per_element,
        )

    def token_bytes_per_gpu(self, recorder: Recorder, layout: Layout) -> Any:
        """Cache of one of a sequence's first tokens on a GPU of the fullest stage. [B/token]"""
        rows = self.cache
        return recorder.evaluate(
            serving_memory.kv_cache_bytes_per_token,
            layer_count=self.stage_layer_count(layout),
            cache_elements_per_token=rows.elements,
            cache_shard_count=rows.shards,
            tensor_parallel=layout.tensor_parallel,
            bytes_per_element=self.kv_format.bytes_per_element,
        )
