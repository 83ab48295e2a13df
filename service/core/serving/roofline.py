"""Kernels and phases of an architecture on the rooflines of GPUs, ready to plot."""

from dataclasses import replace
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field

from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.estimates import Infeasibility
from service.core.formulas import roofline
from service.core.hardware import ComputePrecision, Gpu, GpuClass
from service.core.recorder import Recorder
from service.core.replica.passes import Pass
from service.core.replica.shape import Layout
from service.core.replica.speed import Speed
from service.core.scenarios.refs import GpuRef
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.serving.case import Case, resolve_case
from service.core.serving.questions import ReplicaQuestion, ServedModel
from service.core.snapshot import CatalogSnapshot
from service.core.value import Count, Key, Text, Value

LOWEST_INTENSITY = 0.1
HIGHEST_INTENSITY = 100_000.0
"""Ends of the drawn ceilings, FLOP/B."""
STAND_IN: GpuClass = "hopper"
"""Class whose constants lay out a replica where a GPU's own class has none: operations and bytes
are the same on every GPU, and no time is estimated from it."""
Phase = Literal["decode", "prefill"]
Kernel = Literal["all", "layers", "experts", "head", "attention"]
PHASES: tuple[Phase, ...] = ("decode", "prefill")
KERNELS: tuple[Kernel, ...] = ("all", "layers", "experts", "head", "attention")


class KernelPoint(Value):
    """One kernel or phase: its work for each byte, what is attainable, and what is estimated."""

    gpu: Key
    """The GPU."""
    phase: Phase
    """Decode: one step of all running requests. Prefill: one prompt."""
    kernel: Kernel
    """Part of the phase; "all" is the whole of it."""
    intensity_flop_per_byte: float
    """Operations for each byte moved."""
    ridge_flop_per_byte: float
    """Intensity from which compute is the limit."""
    attainable_flop_per_s: float
    """min(peak, intensity · bandwidth) of one GPU."""
    estimated_flop_per_s: float | None
    """What the estimate's time makes of it, kernels and fixed times included; null where nothing
    was measured of the GPU's class."""
    bound: Literal["memory", "compute"]
    """What limits it."""


class Ceiling(Value):
    """Roof of one GPU in one mode of its matrix unit."""

    gpu: Key
    """The GPU."""
    name: Text
    """Its trade name."""
    precision: ComputePrecision
    """Mode of the matrix unit; of the vector unit for fp32."""
    peak_flop_per_s: float
    """Dense peak: the flat part."""
    bandwidth_bytes_per_s: float
    """Memory bandwidth: the slope."""
    ridge_flop_per_byte: float
    """Where they meet."""
    line: tuple[tuple[float, float], ...]
    """Points (FLOP/B, FLOP/s) of the roof, for logarithmic axes."""


class RooflineQuestion(ServedModel):
    """Where phases and kernels of an architecture stand on the rooflines of GPUs."""

    gpus: Annotated[tuple[GpuRef, ...], Field(min_length=1, max_length=100)]
    """GPUs to draw."""
    layout: ReplicaLayout | None = None
    """How a replica is spread; the fewest GPUs that hold it, for each GPU, when null."""
    running_requests: Annotated[Count, Field(le=8192)] = 1
    """Requests that decode together."""
    phases: Annotated[tuple[Phase, ...], Field(min_length=1, max_length=2)] = PHASES
    """Phases to place."""
    kernels: Annotated[tuple[Kernel, ...], Field(min_length=1, max_length=5)] = KERNELS
    """Kernels to place; those that an architecture does not have are left out."""


class RooflineAnswer(EstimateAnswer):
    """Points and ceilings ready to plot on logarithmic axes."""

    points: tuple[KernelPoint, ...]
    """Phases and kernels on each GPU."""
    ceilings: tuple[Ceiling, ...]
    """Roofs of each GPU."""


def estimate_roofline(question: RooflineQuestion, snapshot: CatalogSnapshot) -> RooflineAnswer:
    """Place phases and kernels on the roofline of each GPU.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    recorder = recorder_for(question, snapshot)
    points: list[KernelPoint] = []
    ceilings: list[Ceiling] = []
    refused: list[Infeasibility] = []
    with np.errstate(all="ignore"):
        for index, reference in enumerate(question.gpus):
            gpu = snapshot.gpu(reference, pointer=f"/gpus/{index}")
            ceilings += ceilings_of(gpu)
            placed, missing = _points_on(question, gpu, recorder)
            points += placed
            refused += missing
    shared = shared_fields(recorder, infeasibilities=tuple(refused))
    return RooflineAnswer(**shared, points=tuple(points), ceilings=tuple(ceilings))


def _points_on(
    question: RooflineQuestion, gpu: Gpu, recorder: Recorder
) -> tuple[list[KernelPoint], list[Infeasibility]]:
    """The points that are asked for on one GPU, or why its memory or modes hold none."""
    asked = {"gpus", "running_requests", "architecture", "phases", "kernels"}
    shared = question.model_dump(exclude=asked) | {"architecture": question.architecture}
    case = resolve_case(ReplicaQuestion(**shared, gpu=gpu), recorder.off())
    is_measured = isinstance(case, Case) or case[0].code != "no_constants"
    if not is_measured:
        alike = gpu.model_copy(update={"gpu_class": STAND_IN})
        case = resolve_case(ReplicaQuestion(**shared, gpu=alike), recorder.off())
    if not isinstance(case, Case):
        return [], [part.model_copy(update={"workload": gpu.name}) for part in case]
    look = case.lookup(recorder if is_measured else recorder.off())
    points = phase_points(case.speed(look, recorder.off()), case.layout, question.running_requests)
    none = {} if is_measured else {"estimated_flop_per_s": None}
    return [
        point.model_copy(update=none)
        for point in points
        if point.phase in question.phases and point.kernel in question.kernels
    ], []


def ceilings_of(gpu: Gpu) -> list[Ceiling]:
    """The roof of a GPU for each mode of its matrix unit."""
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    found = []
    for mode in get_args(ComputePrecision):
        peak = gpu.peak_flop_per_s(mode)
        if peak is None:
            continue
        ridge = float(
            roofline.ridge_flop_per_byte(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
        )
        found.append(
            Ceiling(
                gpu=gpu.key,
                name=gpu.name,
                precision=mode,
                peak_flop_per_s=peak,
                bandwidth_bytes_per_s=bandwidth,
                ridge_flop_per_byte=ridge,
                line=(
                    (LOWEST_INTENSITY, LOWEST_INTENSITY * bandwidth),
                    (ridge, peak),
                    (max(HIGHEST_INTENSITY, ridge), peak),
                ),
            )
        )
    return found


def phase_points(speed: Speed, layout: Layout, running: float) -> tuple[KernelPoint, ...]:
    """Decode and prefill of one replica, whole and by kernel."""
    together = running / layout.pipeline_parallel
    batch = together / layout.data_parallel
    tokens = max(speed.traffic.computed_prompt_tokens, 1.0)
    parts: list[tuple[Phase, Kernel, Pass]] = [
        ("decode", "layers", speed.layers(layout, batch)),
        ("decode", "experts", speed.experts(layout, together)),
        ("decode", "head", speed.head(layout, batch)),
        ("decode", "attention", speed.decode_attention(layout, batch)),
        ("prefill", "layers", speed.layers(layout, tokens)),
        ("prefill", "experts", speed.experts(layout, tokens)),
        ("prefill", "head", speed.head(layout, 1)),
        ("prefill", "attention", _prompt_attention(speed, layout)),
    ]
    state = speed.without_waiting(layout, running)
    parts.append(("decode", "all", state.decode))
    parts.append(("prefill", "all", state.prefill))
    return tuple(
        _point(speed, phase, kernel, work) for phase, kernel, work in parts if work.flops > 0
    )


def _prompt_attention(speed: Speed, layout: Layout) -> Pass:
    """Attention of a prompt with the least traffic that it can have: its cache, written and read.

    References:
        Dao et al., FlashAttention, arXiv 2205.14135: scores never leave the chip.
    """
    work, prompt = speed.prompt_attention(layout), max(speed.traffic.input_tokens_mean, 1.0)
    cached = speed.shape.sequence_bytes(prompt) / layout.tensor_parallel
    return replace(work, moved_bytes=2 * cached)


def _point(speed: Speed, phase: Phase, kernel: Kernel, work: Pass) -> KernelPoint:
    device = speed.device
    is_wide = kernel in {"head", "attention"} or speed.shape.has_wide_layers
    peak = device.wide_peak_flop_per_s if is_wide else device.layer_peak_flop_per_s
    bandwidth = device.bandwidth_bytes_per_s
    intensity = float(work.flops / work.moved_bytes)
    ridge = roofline.ridge_flop_per_byte(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    return KernelPoint(
        gpu=speed.shape.gpu.key,
        phase=phase,
        kernel=kernel,
        intensity_flop_per_byte=intensity,
        ridge_flop_per_byte=float(ridge),
        attainable_flop_per_s=float(
            roofline.attainable_flop_per_s(
                intensity_flop_per_byte=intensity,
                peak_flop_per_s=peak,
                bandwidth_bytes_per_s=bandwidth,
            )
        ),
        estimated_flop_per_s=float(work.flops / work.seconds),
        bound="memory" if intensity < ridge else "compute",
    )
