"""Constants that a replica is computed with: those of its engine, its GPU class, its links."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from service.core.hardware import ComputePrecision, Gpu
from service.core.replica.lookup import Lookup
from service.core.replica.rows import Allocation
from service.core.scenarios.replica_settings import ReplicaSettings

Kind = Literal["dense", "mixture"]
Link = Literal["scale_up", "pcie"]


LATENCY_RANKS = 4
"""Ranks for which the latency of an all-reduce is given."""


@dataclass(frozen=True)
class Needs:
    """What a replica really uses, so that an answer lists no constant beside it."""

    kind: Kind
    dense_precision: ComputePrecision
    routed_precision: ComputePrecision
    has_latent_attention: bool
    has_sparse_index: bool
    has_windows: bool
    has_unequal_layers: bool
    has_joint_vectors: bool
    is_weight_only: bool
    tensor_parallel: tuple[int, ...]
    """Degrees that are looked at; one alone in the answer."""
    has_stages: bool
    """True when any layout has pipeline stages."""
    expert_ranks: tuple[int, ...]
    """Ranks that share experts in layouts whose ranks have sequences of their own."""
    scale_up_gpu_count: int
    """GPUs that the scale-up link joins; beyond them ranks talk over PCIe."""

    def uses_link(self, link: Link) -> bool:
        """True when any of the degrees talks over this link."""
        is_within = link == "scale_up"
        groups = self.tensor_parallel + self.expert_ranks
        return any((t <= self.scale_up_gpu_count) == is_within for t in groups if t > 1)


@dataclass(frozen=True)
class KernelConstants:
    """Matrix products of one precision."""

    fixed_s: Any
    compute_fraction: Any
    bandwidth_fraction: Any
    overlap_exponent: Any


@dataclass(frozen=True)
class ExpertConstants:
    """Grouped products of routed experts."""

    kernel: KernelConstants
    fixed_s: Any
    relative_fraction: Any
    bandwidth_fraction: Any
    overlap_exponent: Any
    width_at_half_speed: Any
    padding_tokens: Any
    independent_fraction: Any


@dataclass(frozen=True)
class AttentionConstants:
    """Attention over the cache and over prompts."""

    decode_fixed_s: Any
    decode_bandwidth_fraction: Any
    latent_compute_fraction: Any
    prefill_compute_fraction: Any
    prefill_half_tokens: Any
    index_layer_s: Any


@dataclass(frozen=True)
class LinkConstants:
    """Collectives over one kind of link."""

    latency_s: Any
    bandwidth_fraction: Any
    latency_growth: Any

    def hop_share(self, ranks: Any) -> Any:
        """Latency of so many ranks over that of four: it grows with each doubling."""
        doublings = np.log2(np.maximum(ranks, 1.0) / LATENCY_RANKS)
        return np.maximum(1.0 + self.latency_growth * doublings, 0.0)


@dataclass(frozen=True)
class ExchangeConstants:
    """Tokens on their way to experts of other ranks and back."""

    latency_s: Any
    bytes_per_element: Any


@dataclass(frozen=True)
class EngineConstants:
    """Host time and batching of the engine."""

    layer_s: Any
    step_s: Any
    sequence_s: Any
    request_s: Any
    prompt_s: Any
    loaded_request_s: Any
    launch_layer_s: Any
    launch_tensor_parallel_factor: Any
    steps_waited: Any
    chunk_tokens_maximum: Any
    stage_loss_fraction: Any
    other_rank_fraction: Any
    prefill_in_step_fraction: Any
    prefill_slowdown: Any
    sampling_passes: Any
    loaded_ttft_slope: Any
    weight_only_extra_bytes: Any
    weight_only_half_tokens: Any
    arrival_squared_variation: Any


@dataclass(frozen=True)
class MemoryConstants:
    """How the engine divides a GPU's memory."""

    utilization_fraction: Any
    free_fraction: Any
    overhead_one_bytes: Any
    overhead_many_bytes: Any
    bytes_per_vocabulary_entry: Any
    class_bytes: Any
    block_tokens: float
    allocation: Allocation
    allocated_output_fraction: Any
    running_requests_maximum: float

    def overhead_bytes(self, tensor_parallel: Any) -> Any:
        """Part of the overhead that depends on tensor parallelism alone. [B]"""
        return np.where(tensor_parallel > 1, self.overhead_many_bytes, self.overhead_one_bytes)


@dataclass(frozen=True)
class ResidualFactors:
    """What measured results still scatter around the estimate."""

    units: Any
    tpot: Any
    one_stream: Any
    ttft: Any
    loaded_ttft: Any


@dataclass(frozen=True)
class ServingConstants:
    """Everything but architecture, GPU and traffic that decides speed."""

    dense: KernelConstants
    wide: KernelConstants
    experts: ExpertConstants | None
    attention: AttentionConstants
    scale_up: LinkConstants | None
    pcie: LinkConstants | None
    exchange: ExchangeConstants | None
    engine: EngineConstants
    residual: ResidualFactors


def _kernel(look: Lookup, gpu: Gpu, precision: ComputePrecision) -> KernelConstants:
    """Kernel timings of the class, times what whole serving results ask of it."""
    return KernelConstants(
        fixed_s=look("gemm_fixed_us", gpu.gpu_class, precision)
        * look("gemm_fixed_relative_fraction"),
        compute_fraction=look("gemm_compute_fraction", gpu.gpu_class, precision)
        * look("compute_rate_factor", gpu.gpu_class),
        bandwidth_fraction=look("gemm_bandwidth_fraction", gpu.gpu_class, precision)
        * look("memory_rate_factor", gpu.gpu_class),
        overlap_exponent=look("gemm_overlap_exponent", gpu.gpu_class, precision),
    )


def _experts(look: Lookup, gpu: Gpu, precision: ComputePrecision) -> ExpertConstants:
    return ExpertConstants(
        kernel=_kernel(look, gpu, precision),
        fixed_s=look("expert_fixed_us"),
        relative_fraction=look("expert_compute_relative_fraction")
        * look("expert_class_fraction", gpu.gpu_class, precision),
        bandwidth_fraction=look("expert_bandwidth_fraction", gpu.gpu_class, precision)
        * look("memory_rate_factor", gpu.gpu_class),
        overlap_exponent=look("expert_overlap_exponent"),
        width_at_half_speed=look("expert_width_at_half_speed"),
        padding_tokens=look("expert_padding_tokens"),
        independent_fraction=look("expert_independent_fraction"),
    )


def _attention(look: Lookup, gpu: Gpu, needs: Needs) -> AttentionConstants:
    return AttentionConstants(
        decode_fixed_s=look("decode_attention_fixed_us", gpu.gpu_class),
        decode_bandwidth_fraction=look("decode_attention_bandwidth_fraction", gpu.gpu_class)
        * look("memory_rate_factor", gpu.gpu_class),
        latent_compute_fraction=look("latent_attention_compute_fraction", gpu.gpu_class)
        if needs.has_latent_attention
        else 1.0,
        prefill_compute_fraction=look("prefill_attention_compute_fraction", gpu.gpu_class),
        prefill_half_tokens=look("prefill_attention_half_tokens"),
        index_layer_s=look("sparse_index_layer_us") if needs.has_sparse_index else 0.0,
    )


def _link(look: Lookup, gpu: Gpu, needs: Needs, link: Link) -> LinkConstants | None:
    if not needs.uses_link(link):
        return None
    return LinkConstants(
        latency_s=look("all_reduce_latency_us", link, gpu.gpu_class)
        * look("all_reduce_latency_factor", link),
        bandwidth_fraction=look("link_bandwidth_fraction", link, gpu.gpu_class),
        latency_growth=look("all_reduce_latency_growth_fraction", link),
    )


def _engine(look: Lookup, needs: Needs) -> EngineConstants:
    is_split = max(needs.tensor_parallel) > 1
    return EngineConstants(
        layer_s=look("host_layer_us"),
        step_s=look("host_step_ms"),
        sequence_s=look("host_sequence_us"),
        request_s=look("host_request_ms"),
        prompt_s=look("host_prompt_ms"),
        loaded_request_s=look("host_loaded_request_ms"),
        launch_layer_s=look("launch_layer_ms"),
        launch_tensor_parallel_factor=look("launch_tensor_parallel_factor") if is_split else 1.0,
        steps_waited=look("steps_waited_count"),
        chunk_tokens_maximum=look("prefill_chunk_tokens_maximum"),
        stage_loss_fraction=look("pipeline_stage_loss_fraction") if needs.has_stages else 0.0,
        other_rank_fraction=look("host_other_rank_fraction") if needs.expert_ranks else 0.0,
        prefill_in_step_fraction=look("prefill_in_step_fraction"),
        prefill_slowdown=look("prefill_slowdown_factor"),
        sampling_passes=look("sampling_passes_count"),
        loaded_ttft_slope=look("loaded_ttft_slope_fraction"),
        weight_only_extra_bytes=look("weight_only_extra_bytes_per_parameter")
        if needs.is_weight_only
        else 0.0,
        weight_only_half_tokens=look("weight_only_half_tokens") if needs.is_weight_only else 1.0,
        arrival_squared_variation=look("arrival_squared_variation"),
    )


def _allocation(look: Lookup, needs: Needs) -> Allocation:
    geometry = "unequal" if needs.has_unequal_layers else "equal"
    return Allocation(
        joint_vector_copies=look.exact("kv_joint_vector_copies_count")
        if needs.has_joint_vectors
        else 1.0,
        window_full_length=look.exact("kv_window_full_length_fraction", geometry)
        if needs.has_windows
        else 0.0,
        uniform_pages=look.exact("kv_uniform_pages_fraction") if needs.has_unequal_layers else 0.0,
    )


def memory_constants(look: Lookup, gpu: Gpu, needs: Needs) -> MemoryConstants:
    """Constants of memory; the overhead of cards below the large ones does not depend on TP."""
    one = many = per_entry = extra = 0.0
    is_large = gpu.memory_gb >= look.exact("large_card_memory_gb")
    if is_large:
        if min(needs.tensor_parallel) == 1:
            one = look("engine_overhead_gib", "tp_one", needs.kind)
        if max(needs.tensor_parallel) > 1:
            many = look("engine_overhead_gib", "tp_many", needs.kind)
        per_entry = look("engine_overhead_mib_per_1000_vocabulary")
        extra = look("engine_overhead_class_gib", gpu.gpu_class, needs.kind)
    else:
        one = many = look("engine_overhead_small_card_gib")
    return MemoryConstants(
        utilization_fraction=look("memory_utilization_fraction"),
        free_fraction=look("free_memory_fraction"),
        overhead_one_bytes=one,
        overhead_many_bytes=many,
        bytes_per_vocabulary_entry=per_entry,
        class_bytes=extra,
        block_tokens=look.exact("kv_block_tokens"),
        allocation=_allocation(look, needs),
        allocated_output_fraction=look("kv_allocated_output_fraction"),
        running_requests_maximum=look.exact(
            "running_requests_maximum", "large_card" if is_large else "small_card", gpu.gpu_class
        ),
    )


def with_settings(constants: ServingConstants, settings: ReplicaSettings) -> ServingConstants:
    """Constants of an engine that is set up otherwise than by default."""
    engine = constants.engine
    if settings.prefill_chunk_tokens is not None:
        engine = replace(engine, chunk_tokens_maximum=float(settings.prefill_chunk_tokens))
    if settings.prompts_join_steps is not None:
        engine = replace(engine, prefill_in_step_fraction=float(settings.prompts_join_steps))
    return replace(constants, engine=engine)


def serving_constants(look: Lookup, gpu: Gpu, needs: Needs) -> ServingConstants:
    """Constants of speed; layers and experts in their own precision, the head in 16 bit.

    Raises:
        NoConstants: If the catalog holds no kernel constants of the GPU's class.
    """
    experts = _experts(look, gpu, needs.routed_precision) if needs.kind == "mixture" else None
    return ServingConstants(
        dense=_kernel(look, gpu, needs.dense_precision),
        wide=_kernel(look, gpu, "bf16"),
        experts=experts,
        exchange=ExchangeConstants(
            latency_s=look("expert_exchange_latency_us"),
            bytes_per_element=look("expert_exchange_bytes"),
        )
        if needs.kind == "mixture" and needs.expert_ranks
        else None,
        attention=_attention(look, gpu, needs),
        scale_up=_link(look, gpu, needs, "scale_up"),
        pcie=_link(look, gpu, needs, "pcie"),
        engine=_engine(look, needs),
        residual=ResidualFactors(
            units=look("units_residual_factor", needs.kind),
            tpot=look("tpot_residual_factor", needs.kind),
            one_stream=look("one_stream_residual_factor", needs.kind),
            ttft=look("ttft_residual_factor", needs.kind),
            loaded_ttft=look("loaded_ttft_residual_factor", needs.kind),
        ),
    )
