"""A replica in numbers: what an architecture in given formats asks of each GPU of a layout."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from service.core.architecture.attention import LatentAttention
from service.core.architecture.model import ModelArchitecture
from service.core.formulas import serving_memory
from service.core.formulas.communication import LARGEST_SERVER_GPU_COUNT
from service.core.hardware import ComputePrecision, Gpu, NumberFormat
from service.core.recorder import Recorder
from service.core.replica.constants import MemoryConstants, Needs
from service.core.replica.rows import (
    CacheRows,
    ExpertRows,
    cache_rows,
    copied_rows,
    expert_rows,
    kernel_count,
    padded_share,
)
from service.core.units import BYTES_PER_GB

WIDE_BITS = 16
"""Embeddings, head, routers and towers of quantised models stay this wide."""


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism: numbers, or arrays of all layouts of a sweep."""

    tensor_parallel: Any
    pipeline_parallel: Any
    data_parallel: Any = 1
    """Ranks that attend to sequences of their own; routed experts are spread over all of them."""

    @property
    def gpu_count(self) -> Any:
        """GPUs of one replica. [count]"""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    def taken(self, index: Any) -> "Layout":
        """The layouts at these places of the arrays."""
        return Layout(
            self.tensor_parallel[index], self.pipeline_parallel[index], self.data_parallel[index]
        )

    @property
    def expert_ranks(self) -> Any:
        """Ranks that share the routed experts of one stage. [count]"""
        return self.tensor_parallel * self.data_parallel


@dataclass(frozen=True)
class Device:
    """What speed depends on in a GPU: numbers, or arrays of many GPUs."""

    layer_peak_flop_per_s: Any
    """Dense peak in the mode of the weights."""
    wide_peak_flop_per_s: Any
    bandwidth_bytes_per_s: Any
    scale_up_bytes_per_s: Any
    scale_up_gpu_count: Any
    """GPUs that the scale-up link joins; 1 where its bandwidth is not known."""
    pcie_bytes_per_s: Any

    def slowed(self, compute_factor: float) -> "Device":
        """The same with compute at a share of its peak, as under a power cap."""
        return replace(
            self,
            layer_peak_flop_per_s=self.layer_peak_flop_per_s * compute_factor,
            wide_peak_flop_per_s=self.wide_peak_flop_per_s * compute_factor,
        )


def instance_reach(gpu: Gpu, instance_gpu_count: int | None) -> int:
    """GPUs that may talk in every layer where instances have this many. [count]

    A group of tensor parallelism must not be cut by the edge of an instance: between instances
    there is the network alone. Racks whose link joins more than a server's GPUs are sold in smaller
    instances that share that link; but where the usual node has one GPU, such a rack is the
    exception, and one GPU that is rented alone has no link.
    """
    widest = max(gpu.scale_up_domain_gpu_count, gpu.node_gpu_count)
    is_rack = gpu.scale_up_domain_gpu_count > LARGEST_SERVER_GPU_COUNT and gpu.node_gpu_count > 1
    return widest if instance_gpu_count is None or is_rack else min(instance_gpu_count, widest)


def matrix_mode(gpu: Gpu, weights: NumberFormat) -> ComputePrecision | None:
    """Mode of the matrix unit that multiplies such weights: the format's own, else its fallback."""
    own: ComputePrecision = "bf16" if weights.weight_only else weights.compute_precision
    modes = [own] if weights.weight_only or weights.is_native_on(gpu) else []
    modes.append(weights.minimum_compute_fallback)
    found = next((mode for mode in modes if gpu.peak_flop_per_s(mode) is not None), None)
    return "bf16" if found == "fp16" else found


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
    index_bytes_per_element: float
    """Bytes of an element that a sparse index caches."""
    weight_precision: ComputePrecision
    """Mode of the matrix unit for weights in the format."""
    instance_gpu_count: int | None = None
    """GPUs of one instance; None where nothing says how they are held together."""

    @cached_property
    def cache(self) -> CacheRows:
        """Cached vectors of all layers."""
        return cache_rows(
            self.architecture,
            bytes_per_element=self.kv_format.bytes_per_element,
            index_bytes=self.index_bytes_per_element,
        )

    @cached_property
    def experts(self) -> ExpertRows | None:
        """Routed experts of all layers; None for dense architectures."""
        return expert_rows(self.architecture)

    @cached_property
    def _copied(self) -> tuple[Any, Any]:
        return copied_rows(self.architecture)

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
        padding = padded_share(self.architecture, self.expert_width_multiple)
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
        return sum(kernel_count(group) for group in self.architecture.layer_groups)

    @cached_property
    def mixing_layer_count(self) -> int:
        """Layers that mix tokens. [count]"""
        groups = self.architecture.layer_groups
        return sum(group.count for group in groups if group.attention.kind != "none")

    @cached_property
    def indexed_layer_count(self) -> int:
        """Layers whose sparse attention chooses tokens by an index. [count]"""
        groups = self.architecture.layer_groups
        return sum(
            group.count
            for group in groups
            if isinstance(group.attention, LatentAttention)
            and group.attention.index_selected_tokens is not None
        )

    @cached_property
    def device(self) -> Device:
        """What speed depends on in the GPU."""
        gpu = self.gpu
        return Device(
            layer_peak_flop_per_s=gpu.peak_flop_per_s(self.weight_precision),
            wide_peak_flop_per_s=gpu.peak_flop_per_s("bf16") or np.inf,
            bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
            scale_up_bytes_per_s=gpu.scale_up_bytes_per_s,
            scale_up_gpu_count=self.scale_up_gpu_count,
            pcie_bytes_per_s=(gpu.pcie_gb_per_s_per_direction or 0.0) * BYTES_PER_GB,
        )

    @cached_property
    def collective_count(self) -> int:
        """All-reduces of one pass under tensor parallelism: one after each half layer. [count]"""
        halves = (
            (group, group.attention.kind, group.feed_forward.kind)
            for group in self.architecture.layer_groups
        )
        return sum(group.count * ((a != "none") + (f != "none")) for group, a, f in halves)

    def needs(
        self,
        tensor_parallel: tuple[int, ...],
        *,
        has_stages: bool,
        expert_ranks: tuple[int, ...] = (),
    ) -> Needs:
        """Which constants layouts of these degrees need."""
        return Needs(
            kind="mixture" if self.architecture.is_mixture else "dense",
            dense_precision="bf16" if self.has_wide_layers else self.weight_precision,
            routed_precision=self.weight_precision,
            has_latent_attention=bool(np.any(self.cache.decode_pair_flops)),
            has_sparse_index=self.indexed_layer_count > 0,
            has_windows=self.cache.has_windows,
            has_unequal_layers=self.cache.has_unequal_layers and not self.indexed_layer_count,
            has_joint_vectors=self.cache.has_joint_vectors,
            is_weight_only=self.is_weight_only,
            tensor_parallel=tensor_parallel,
            has_stages=has_stages,
            expert_ranks=expert_ranks,
            scale_up_gpu_count=self.scale_up_gpu_count,
        )

    @property
    def scale_up_gpu_count(self) -> int:
        """GPUs that the scale-up link joins; 1 where its bandwidth is not known. [count]

        Instances end it, unless it is a rack's: then it joins instances, too.
        """
        gpu = self.gpu
        joined = gpu.scale_up_domain_gpu_count if gpu.scale_up_bytes_per_s > 0 else 1
        return min(joined, self.instance_reach)

    @property
    def instance_reach(self) -> int:
        """GPUs that may talk in every layer: those of one instance, or of a rack's link. [count]"""
        return instance_reach(self.gpu, self.instance_gpu_count)

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
            divided_layer_bytes=divided
            + whole.routed_parameter_count * self.routed_bytes / layout.data_parallel,
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
        """Cache that the engine holds for one sequence on a GPU of the fullest stage. [B]"""
        rows = memory.allocation.of(self.cache)
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

    def sequence_bytes(self, tokens: float) -> float:
        """Cache of one sequence over all GPUs, without copies and unfilled blocks. [B]"""
        rows = self.cache
        return float(
            serving_memory.kv_cache_bytes_per_sequence(
                sequence_tokens=tokens,
                block_tokens=1,
                layer_count=rows.layer_count,
                cache_elements_per_token=rows.elements,
                cache_shard_count=rows.shards,
                span_tokens=rows.span_tokens,
                state_bytes=rows.state_bytes,
                tensor_parallel=1,
                bytes_per_element=self.kv_format.bytes_per_element,
            )
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
