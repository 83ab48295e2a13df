"""Why a service has no replica: what ran out, by how much, and the nearest thing that works."""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from service.core.architecture.model import ModelArchitecture
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu, NumberFormat
from service.core.recorder import Recorder
from service.core.replica.search import (
    Footprint,
    Objectives,
    Room,
    Sweep,
    fitting_layouts,
    legal_data_parallel,
    legal_tensor_parallel,
    room_of,
)
from service.core.replica.shape import Layout, ReplicaShape
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.scenarios.serving_service import ServingService
from service.core.units import BYTES_PER_GIB

SIGNIFICANT = 3
"""Digits of a suggested value, rounded to the side that works."""


def no_matrix_rate(service: ServingService, gpu: Gpu, weights: NumberFormat) -> Infeasibility:
    """The GPU has no published rate for the format or for the 16-bit work beside it."""
    rates = gpu.peak_tflops.model_dump(exclude_none=True)
    return Infeasibility(
        workload=service.name,
        code="format",
        limit=f"matrix rate of {gpu.name} for {weights.key} weights and 16-bit work",
        needed=None,
        available=None,
        unit=None,
        nearest_fix=(
            f"{gpu.name} has dense rates for {', '.join(rates) or 'no mode'}: take a weight_format "
            "that computes in one of them, on a GPU that also has bf16 or fp16"
        ),
    )


def context_exceeded(
    service: ServingService, architecture: ModelArchitecture
) -> Infeasibility | None:
    """Sequences that are longer than the architecture was made for."""
    limit = architecture.max_context_tokens
    longest = max(service.sequence_tokens_p95 or 0.0, service.tokens_per_unit or 0.0)
    if limit is None or longest <= limit:
        return None
    return Infeasibility(
        workload=service.name,
        code="context",
        limit=f"max_context_tokens of {architecture.name}",
        needed=longest,
        available=limit,
        unit="token",
        nearest_fix=f"sequence_tokens_p95, and input and output together, of {limit} or less",
    )


def _layout_text(layout: Layout, index: Any = ()) -> str:
    tensor = int(np.asarray(layout.tensor_parallel)[index])
    pipeline = int(np.asarray(layout.pipeline_parallel)[index])
    ranks = int(np.broadcast_to(layout.data_parallel, np.shape(layout.tensor_parallel))[index])
    stages = f" and pipeline_parallel {pipeline}" if pipeline > 1 else ""
    spread = f" and attention_data_parallel {ranks}" if ranks > 1 else ""
    return f"tensor_parallel {tensor}{stages}{spread}"


def illegal_layout(layout: ReplicaLayout, shape: ReplicaShape, name: str) -> Infeasibility | None:
    """Why a given layout cannot be, with the nearest that can."""
    degrees, ranks = legal_tensor_parallel(shape), legal_data_parallel(shape)
    layers = shape.architecture.num_hidden_layers
    wanted = (
        ("tensor_parallel", layout.tensor_parallel, degrees),
        ("pipeline_parallel", layout.pipeline_parallel, tuple(range(1, layers + 1))),
        ("attention_data_parallel", layout.attention_data_parallel, ranks),
    )
    for field, degree, legal in wanted:
        if degree not in legal:
            nearest = min(legal, key=lambda n: (abs(np.log(n / degree)), -n))
            shown = ", ".join(map(str, legal)) if len(legal) <= 16 else f"1 to {legal[-1]}"
            fix = f"{field} {nearest}; legal are {shown}"
            return _illegal(shape, name, field, (degree, nearest), fix)
    joined = layout.tensor_parallel * layout.attention_data_parallel
    reach = shape.scale_up_gpu_count
    if layout.attention_data_parallel > 1 and joined > reach:
        # Tensor parallelism alone may go over the slower bus of a node: one rank is always left.
        fitting = (rank for rank in ranks if rank * layout.tensor_parallel <= reach)
        ranks_left = max(fitting, default=1)
        fix = f"attention_data_parallel {ranks_left} at tensor_parallel {layout.tensor_parallel}"
        field = "tensor_parallel times attention_data_parallel"
        return _illegal(shape, name, field, (joined, reach), fix)
    return None


def _illegal(
    shape: ReplicaShape, name: str, field: str, degrees: tuple[int, int], fix: str
) -> Infeasibility:
    held = shape.instance_gpu_count
    where = "" if held is None else f" in instances of {held} GPU{'s' if held > 1 else ''}"
    return Infeasibility(
        workload=name,
        code="layout",
        limit=f"{field} of {shape.architecture.name} on {shape.gpu.name}{where}",
        needed=degrees[0],
        available=degrees[1],
        unit="count",
        nearest_fix=fix,
    )


def instances_too_small(name: str, gpu: Gpu, group_and_instance: tuple[int, int]) -> Infeasibility:
    """Groups that talk in every layer would be cut by the edge of the largest instance."""
    group, instance = group_and_instance
    return Infeasibility(
        workload=name,
        code="layout",
        limit=f"GPUs of the largest instance with a price of {gpu.name}",
        needed=group,
        available=instance,
        unit="gpu",
        nearest_fix=(
            f"a price of instances of {group} or more {gpu.name}: set prices_per_gpu_hour of "
            f"{gpu.key}, which is then taken for nodes of {gpu.node_gpu_count}"
        ),
    )


def no_layout_fits(
    service: ServingService, footprint: Footprint, found: tuple[Layout, Room], recorder: Recorder
) -> Infeasibility:
    """No legal layout holds the weights, the engine and one long sequence on each GPU."""
    layout, room = found
    sequence = room.tail_sequence_bytes / footprint.memory.free_fraction
    needed = float((room.weight_bytes + room.overhead_bytes + sequence)[0])
    taken = float(footprint.memory.utilization_fraction) * footprint.shape.available_bytes
    return Infeasibility(
        workload=service.name,
        code="memory",
        limit=(
            f"weights, engine and one sequence of {footprint.traffic.sequence_tokens_p95:g} tokens "
            f"on each GPU at {_layout_text(layout, 0)}"
        ),
        needed=needed / BYTES_PER_GIB,
        available=taken / BYTES_PER_GIB,
        unit="GiB",
        nearest_fix=_layout_fix(service, footprint, recorder)
        or _memory_fix(footprint, recorder)
        or f"a GPU that gives an engine {needed / BYTES_PER_GIB:.1f} GiB or more, or shorter "
        "sequences",
    )


def layout_too_small(
    service: ServingService, footprint: Footprint, layout: Layout, recorder: Recorder
) -> Infeasibility:
    """One given layout does not hold the weights, the engine and one long sequence."""
    degrees = (layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel)
    alone = Layout(*(np.atleast_1d(np.asarray(degree)) for degree in degrees))
    found = alone, room_of(footprint, alone, recorder)
    return no_layout_fits(service, footprint, found, recorder)


def _layout_fix(service: ServingService, footprint: Footprint, recorder: Recorder) -> str | None:
    """The fewest GPUs that hold what a given layout does not."""
    if service.replica.layout is None:
        return None
    layout, room = fitting_layouts(footprint, recorder)
    if not np.any(room.fits):
        return None
    fewest = int(np.argmin(layout.gpu_count))
    return f"a layout of {_layout_text(layout, fewest)} fits, and so does none given"


def _memory_fix(footprint: Footprint, recorder: Recorder) -> str | None:
    """The widest narrower format of weights, or else of the cache, that fits somewhere."""
    shape = footprint.shape
    formats = sorted(
        recorder.snapshot.formats.values(), key=lambda f: (-f.bytes_per_element, f.key)
    )
    weights = (f for f in formats if f.bytes_per_element < shape.weight_format.bytes_per_element)
    caches = (f for f in formats if f.bytes_per_element < shape.kv_format.bytes_per_element)
    tried = chain(
        (("weight_format", f, replace(shape, weight_format=f)) for f in weights),
        (("kv_cache_format", f, replace(shape, kv_format=f)) for f in caches),
    )
    for field, narrower, changed in tried:
        layout, room = fitting_layouts(replace(footprint, shape=changed), recorder)
        if np.any(room.fits):
            smallest = int(np.argmin(layout.gpu_count))
            return f"{field} {narrower.key} fits at {_layout_text(layout, smallest)}"
    return None


def _rounded_up(value: float) -> float:
    """The next number above of a few digits, so that what is suggested works."""
    unit = 10.0 ** (np.floor(np.log10(value)) - SIGNIFICANT + 1)
    return float(f"{np.ceil(value / unit) * unit:.{SIGNIFICANT}g}")


def objectives_missed(
    service: ServingService,
    found: Sweep,
    objectives: Objectives,
    *,
    emptier: float | None = None,
) -> Infeasibility:
    """The objective that fails first: TPOT where one request alone misses it, else TTFT.

    What is suggested meets all objectives together.

    Args:
        service: What is asked.
        found: Layouts that fit, at rising numbers of requests.
        objectives: What must hold.
        emptier: A lower target utilisation at which all of them do, where there is one.
    """
    tpot = np.where(found.state.is_finite, found.state.tpot_mean_s, np.inf)
    ttft = found.state.ttft_p95_s
    is_slow = float(tpot.min()) > objectives.tpot_mean_s
    if is_slow:
        needed, limit, name = tpot.min(), objectives.tpot_mean_s, "tpot_mean_s"
    else:
        kept = np.where(tpot <= objectives.tpot_mean_s, ttft, np.inf)
        needed, limit, name = kept.min(), objectives.ttft_p95_s, "ttft_p95_s"
    return Infeasibility(
        workload=service.name,
        code="tpot" if is_slow else "ttft",
        limit=f"objectives.{name}",
        needed=None if np.isinf(needed) else float(needed),
        available=limit,
        unit="s",
        nearest_fix=_missed_fix(found, objectives, tpot, ttft, emptier),
    )


def _missed_fix(
    found: Sweep, objectives: Objectives, tpot: Any, ttft: Any, emptier: float | None
) -> str:
    """The objectives that the nearest state meets together, and the utilisation that would."""
    ways = []
    if emptier is not None:
        ways.append(
            f"headroom.target_utilization_fraction of {emptier:g} or less, at which all objectives "
            "hold"
        )
    over = np.maximum(tpot / objectives.tpot_mean_s, ttft / objectives.ttft_p95_s)
    if np.isfinite(over.min()):
        row, column = np.unravel_index(int(np.argmin(over)), over.shape)
        reached = {"tpot_mean_s": tpot[row, column], "ttft_p95_s": ttft[row, column]}
        asked = {key: getattr(objectives, key) for key in reached}
        missed = [
            f"objectives.{key} of {_rounded_up(float(value)):g} or more"
            for key, value in reached.items()
            if value > asked[key]
        ]
        count = int(found.running[row, column])
        ways.append(
            f"{' together with '.join(missed)}, which {_layout_text(found.layout, row)} reaches "
            f"with {count} running request{'s' if count > 1 else ''}; or a faster gpu or a "
            "narrower weight_format"
        )
    elif emptier is None:
        ways.append(
            "the planned utilisation leaves no capacity free, so the queue grows without end: set "
            "headroom.target_utilization_fraction below 1 or hold a spare"
        )
    return "; or ".join(ways)
