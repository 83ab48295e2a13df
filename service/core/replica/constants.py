"""Constants that a replica is computed with: those of its engine, its GPU class, its links.

The same lookups serve twice: once for typical values, once with every constant at its low and at
its high end in turn, so that one pass over arrays shows what each contributes to a range.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from service.core.assumptions import AssumptionUsed
from service.core.errors import CoreError, InvalidScenario
from service.core.estimates import Range
from service.core.hardware import ComputePrecision, Gpu
from service.core.recorder import GIVEN, Recorder
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB, BYTES_PER_MIB

Kind = Literal["dense", "mixture"]
Link = Literal["scale_up", "pcie"]
ENGINE_BASE = "engine_overhead_gib"
"""An engine is known when the catalog holds its overhead."""
OVERRIDE_FACTOR = 1000
"""An override further than this from the catalog's value is taken for a mistaken unit."""
_ENGINE = re.compile(r"([a-z][a-z0-9-]*?)-([0-9]+(?:_[0-9]+)*)")
_SCALE = {
    "_us": 1e-6,
    "_ms": 1e-3,
    "_gib": BYTES_PER_GIB,
    "_mib_per_1000_vocabulary": BYTES_PER_MIB / 1000,
}


def _engine_and_version(text: str) -> tuple[str, tuple[int, ...]] | None:
    found = _ENGINE.fullmatch(text)
    if found is None:
        return None
    return found[1], tuple(int(part) for part in found[2].split("_"))


def engine_qualifiers(snapshot: CatalogSnapshot, engine: str, *, pointer: str) -> dict[str, str]:
    """Qualifier of an engine for each assumption that knows it: the newest not above its version.

    Raises:
        CoreError: If the catalog holds no overhead of this engine or of an older version.
    """
    wanted = _engine_and_version(engine.replace(".", "_"))
    newest: dict[str, tuple[tuple[int, ...], str]] = {}
    known: set[str] = set()
    for name in snapshot.assumptions:
        base, *qualifiers = name.split(".")
        held = _engine_and_version(qualifiers[0]) if qualifiers else None
        if held is None:
            continue
        if base == ENGINE_BASE:
            known.add(qualifiers[0].replace("_", "."))
        if wanted and held[0] == wanted[0] and held[1] <= wanted[1]:
            newest[base] = max(newest.get(base, ((), "")), (held[1], qualifiers[0]))
    if ENGINE_BASE not in newest:
        raise CoreError(
            f"no engine {engine!r} in catalog release {snapshot.release.version}; known, each with "
            f"later versions: {', '.join(sorted(known))}",
            pointer=pointer,
        )
    return {base: qualifier for base, (_, qualifier) in newest.items()}


@dataclass(frozen=True)
class Lookup:
    """Looks constants up in core units and remembers which assumptions they came from."""

    recorder: Recorder
    engine: Mapping[str, str]
    used: dict[str, AssumptionUsed] = field(default_factory=dict)
    places: Mapping[str, int] | None = None
    """Where each uncertain assumption is varied; None for typical values alone."""

    def __call__(self, name: str, *qualifiers: str) -> Any:
        """A number, or an array of its typical value with its low and high end in their places."""
        found, scale = self._found(name, qualifiers)
        self.used[found.name] = found
        if self.places is None:
            return found.value * scale
        values = np.full(2 * len(self.places) + 1, found.value)
        if found.name in self.places:
            values[self.places[found.name]] = found.low
            values[self.places[found.name] + len(self.places)] = found.high
        return values * scale

    def exact(self, name: str, *qualifiers: str) -> float:
        """A threshold or a setting: a choice that is made once, not varied for a range."""
        found, scale = self._found(name, qualifiers)
        return found.value * scale

    def _found(self, name: str, qualifiers: tuple[str, ...]) -> tuple[AssumptionUsed, float]:
        engine = self.engine.get(name)
        own = qualifiers if engine is None else (engine, *qualifiers)
        found = self.recorder.assume(name, *own)
        if found.source == GIVEN:
            self._check(found)
        return found, next((s for suffix, s in _SCALE.items() if name.endswith(suffix)), 1.0)

    def _check(self, found: AssumptionUsed) -> None:
        """Refuses an override that no formula can take, or that must be another unit."""
        listed = self.recorder.snapshot.assumptions[found.name]
        most = max(listed.value * OVERRIDE_FACTOR, listed.high)
        if listed.name.split(".")[0].endswith("_fraction") and listed.high <= 1:
            most = 1.0
        least = listed.value / OVERRIDE_FACTOR
        if not least <= found.value <= (most or OVERRIDE_FACTOR):
            raise InvalidScenario(
                f"{found.name} is {found.value:g} {found.unit}; it must lie between {least:g} and "
                f"{most or OVERRIDE_FACTOR:g}",
                pointer=found.override_at,
            )

    def varied(self) -> "Lookup":
        """The same lookups with each uncertain assumption so far at its two ends in turn."""
        uncertain = sorted(name for name, used in self.used.items() if used.low < used.high)
        places = {name: place for place, name in enumerate(uncertain, start=1)}
        return Lookup(self.recorder.off(), self.engine, {}, places)


def spread(values: Any) -> Range:
    """Range of a result from its typical value and its values with one constant varied at a time.

    Constants are taken as independent: their logarithmic effects add in squares, those that
    lower the result apart from those that raise it.
    """
    value = float(values[0])
    if value <= 0:
        return Range(value=value, low=float(values.min()), high=float(values.max()))
    with np.errstate(divide="ignore"):
        ends = np.log(values[1:] / value).reshape(2, -1)
    up = np.sqrt(np.sum(np.maximum(ends.max(axis=0), 0.0) ** 2))
    down = np.sqrt(np.sum(np.minimum(ends.min(axis=0), 0.0) ** 2))
    return Range(value=value, low=value * float(np.exp(-down)), high=value * float(np.exp(up)))


@dataclass(frozen=True)
class Needs:
    """What a replica really uses, so that an answer lists no constant beside it."""

    kind: Kind
    dense_precision: ComputePrecision
    routed_precision: ComputePrecision
    has_latent_attention: bool
    is_weight_only: bool
    tensor_parallel: tuple[int, ...]
    """Degrees that are looked at; one alone in the answer."""
    has_stages: bool
    """True when any layout has pipeline stages."""
    scale_up_gpu_count: int
    """GPUs that the scale-up link joins; beyond them ranks talk over PCIe."""

    def uses_link(self, link: Link) -> bool:
        """True when any of the degrees talks over this link."""
        is_within = link == "scale_up"
        return any(
            (t <= self.scale_up_gpu_count) == is_within for t in self.tensor_parallel if t > 1
        )


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


@dataclass(frozen=True)
class AttentionConstants:
    """Attention over the cache and over prompts."""

    decode_fixed_s: Any
    decode_bandwidth_fraction: Any
    latent_compute_fraction: Any
    prefill_compute_fraction: Any
    prefill_half_tokens: Any


@dataclass(frozen=True)
class LinkConstants:
    """Collectives over one kind of link."""

    latency_s: Any
    bandwidth_fraction: Any


@dataclass(frozen=True)
class EngineConstants:
    """Host time and batching of the engine."""

    layer_s: Any
    step_s: Any
    sequence_s: Any
    request_s: Any
    loaded_request_s: Any
    launch_layer_s: Any
    launch_tensor_parallel_factor: Any
    steps_waited: Any
    chunk_tokens_maximum: Any
    stage_loss_fraction: Any
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
    ttft: Any


@dataclass(frozen=True)
class ServingConstants:
    """Everything but architecture, GPU and traffic that decides speed."""

    dense: KernelConstants
    wide: KernelConstants
    experts: ExpertConstants | None
    attention: AttentionConstants
    scale_up: LinkConstants | None
    pcie: LinkConstants | None
    engine: EngineConstants
    residual: ResidualFactors


def _kernel(look: Lookup, gpu: Gpu, precision: ComputePrecision) -> KernelConstants:
    return KernelConstants(
        fixed_s=look("gemm_fixed_us", gpu.gpu_class, precision),
        compute_fraction=look("gemm_compute_fraction", gpu.gpu_class, precision),
        bandwidth_fraction=look("gemm_bandwidth_fraction", gpu.gpu_class, precision),
        overlap_exponent=look("gemm_overlap_exponent", gpu.gpu_class, precision),
    )


def _experts(look: Lookup, gpu: Gpu, precision: ComputePrecision) -> ExpertConstants:
    return ExpertConstants(
        kernel=_kernel(look, gpu, precision),
        fixed_s=look("expert_fixed_us"),
        relative_fraction=look("expert_compute_relative_fraction", gpu.gpu_class, precision),
        bandwidth_fraction=look("expert_bandwidth_fraction", gpu.gpu_class, precision),
        overlap_exponent=look("expert_overlap_exponent"),
        width_at_half_speed=look("expert_width_at_half_speed"),
        padding_tokens=look("expert_padding_tokens"),
    )


def _attention(look: Lookup, gpu: Gpu, needs: Needs) -> AttentionConstants:
    return AttentionConstants(
        decode_fixed_s=look("decode_attention_fixed_us", gpu.gpu_class),
        decode_bandwidth_fraction=look("decode_attention_bandwidth_fraction", gpu.gpu_class),
        latent_compute_fraction=look("latent_attention_compute_fraction", gpu.gpu_class)
        if needs.has_latent_attention
        else 1.0,
        prefill_compute_fraction=look("prefill_attention_compute_fraction", gpu.gpu_class),
        prefill_half_tokens=look("prefill_attention_half_tokens"),
    )


def _link(look: Lookup, gpu: Gpu, needs: Needs, link: Link) -> LinkConstants | None:
    if not needs.uses_link(link):
        return None
    return LinkConstants(
        latency_s=look("all_reduce_latency_us", link, gpu.gpu_class),
        bandwidth_fraction=look("link_bandwidth_fraction", link, gpu.gpu_class),
    )


def _engine(look: Lookup, needs: Needs) -> EngineConstants:
    is_split = max(needs.tensor_parallel) > 1
    return EngineConstants(
        layer_s=look("host_layer_us"),
        step_s=look("host_step_ms"),
        sequence_s=look("host_sequence_us"),
        request_s=look("host_request_ms"),
        loaded_request_s=look("host_loaded_request_ms"),
        launch_layer_s=look("launch_layer_ms"),
        launch_tensor_parallel_factor=look("launch_tensor_parallel_factor") if is_split else 1.0,
        steps_waited=look("steps_waited_count"),
        chunk_tokens_maximum=look("prefill_chunk_tokens_maximum"),
        stage_loss_fraction=look("pipeline_stage_loss_fraction") if needs.has_stages else 0.0,
        weight_only_extra_bytes=look("weight_only_extra_bytes_per_parameter")
        if needs.is_weight_only
        else 0.0,
        weight_only_half_tokens=look("weight_only_half_tokens") if needs.is_weight_only else 1.0,
        arrival_squared_variation=look("arrival_squared_variation"),
    )


def memory_constants(look: Lookup, gpu: Gpu, needs: Needs) -> MemoryConstants:
    """Constants of memory; the overhead of cards below the large ones does not depend on TP."""
    one = many = per_entry = extra = 0.0
    if gpu.memory_gb >= look.exact("large_card_memory_gb"):
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
        allocated_output_fraction=look("kv_allocated_output_fraction"),
        running_requests_maximum=look.exact("running_requests_maximum"),
    )


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
        attention=_attention(look, gpu, needs),
        scale_up=_link(look, gpu, needs, "scale_up"),
        pcie=_link(look, gpu, needs, "pcie"),
        engine=_engine(look, needs),
        residual=ResidualFactors(
            units=look("units_residual_factor", needs.kind),
            tpot=look("tpot_residual_factor", needs.kind),
            ttft=look("ttft_residual_factor", needs.kind),
        ),
    )
