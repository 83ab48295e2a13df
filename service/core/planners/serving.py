"""From a serving service to one replica: its layout, memory and speed, or why there is none.

A sweep over legal layouts and numbers of running requests finds the layout with the fewest GPUs
for the load; the answer is then computed once more with every constant varied, which gives the
ranges, and once with the recorder on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility, Range, ServingMemory
from service.core.hardware import Gpu
from service.core.hours.service_demand import held_replicas_at_peak, resolved_headroom
from service.core.parallelism import ParallelLayout
from service.core.planners.workloads import ReplicaCapacity
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants, serving_constants
from service.core.replica.lookup import Lookup, engine_qualifiers, spread, widened
from service.core.replica.passes import Traffic
from service.core.replica.published import record_choice, record_rates
from service.core.replica.refusals import (
    no_layout_fits,
    no_matrix_rate,
    objectives_missed,
)
from service.core.replica.search import (
    Choice,
    Footprint,
    Objectives,
    Room,
    cheapest,
    fitting_layouts,
    legal_data_parallel,
    legal_tensor_parallel,
    refined,
    room_of,
    sequence_capacity,
    sweep,
)
from service.core.replica.shape import ReplicaShape, matrix_mode
from service.core.replica.speed import Speed
from service.core.run.memory import available_bytes
from service.core.scenarios.serving_service import MeasuredCapacity, ServingService
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB
from service.core.value import MAX_TOKENS


@dataclass(frozen=True)
class _Question:
    """A service with everything resolved that its replica depends on."""

    service: ServingService
    shape: ReplicaShape
    traffic: Traffic
    objectives: Objectives
    engine: dict[str, str]
    recorder: Recorder
    gpu_multiple: int
    month_count: int

    def lookup(self, recorder: Recorder) -> Lookup:
        return Lookup(recorder, self.engine)

    def held_replicas(self, units_per_s: Any) -> Any:
        """Replicas held at the busiest hour by replicas of these capacities. [count]"""
        return held_replicas_at_peak(
            self.service, units_per_s, month_count=self.month_count, recorder=self.recorder
        )


def plan_replica(
    service: ServingService,
    *,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    gpu_multiple: int,
    pointer: str,
    month_count: int = 1,
) -> ReplicaCapacity | tuple[Infeasibility, ...]:
    """Lay out one replica of a service and say what it serves, or why it cannot.

    Args:
        service: What is asked.
        snapshot: Catalog of the plan.
        recorder: Takes the quantities and assumptions of the answer.
        gpu_multiple: GPUs that are rented or bought at once.
        pointer: JSON pointer of the service in the request.
        month_count: Months of service; the load of the busiest one decides the layout.

    Raises:
        CoreError: If the request names what the catalog does not hold, or contradicts itself.
    """
    recorder = recorder.within(f"service:{service.name}")
    gpu = snapshot.gpu(service.gpu, pointer=f"{pointer}/gpu")
    if isinstance(service.capacity, MeasuredCapacity):
        _check_keys(service, snapshot, pointer)
        return _measured(service, service.capacity, gpu, recorder)
    shape = resolve_shape(service, gpu, recorder, pointer)
    if isinstance(shape, Infeasibility):
        return (shape,)
    engine: dict[str, str] = {}
    if service.engine is not None:
        engine = engine_qualifiers(snapshot, service.engine, pointer=f"{pointer}/engine")
    question = _Question(
        service=service,
        shape=shape,
        traffic=traffic_of(service, recorder, pointer),
        objectives=_objectives(service),
        engine=engine,
        recorder=recorder,
        gpu_multiple=gpu_multiple,
        month_count=month_count,
    )
    try:
        with np.errstate(all="ignore"):  # sizes beyond reason are answered below, not warned of
            return _plan(question, pointer)
    except NoConstants as missing:
        return (no_constants(service, gpu, missing),)


def _check_keys(service: ServingService, snapshot: CatalogSnapshot, pointer: str) -> None:
    """Refuse keys that the catalog does not hold, also where a measurement makes them idle."""
    if service.architecture is not None:
        snapshot.architecture(service.architecture, pointer=f"{pointer}/architecture")
    for field in ("weight_format", "kv_cache_format"):
        key = getattr(service, field)
        if key is not None:
            snapshot.number_format(key, pointer=f"{pointer}/{field}")
    if service.engine is not None:
        engine_qualifiers(snapshot, service.engine, pointer=f"{pointer}/engine")


def no_constants(service: ServingService, gpu: Gpu, missing: NoConstants) -> Infeasibility:
    """A class of GPUs of which no constant was ever measured."""
    """A class of GPUs that no constant was ever measured of."""
    return Infeasibility(
        workload=service.name,
        code="no_constants",
        limit=f"measured constants of GPU class {gpu.gpu_class}",
        needed=None,
        available=None,
        unit=None,
        nearest_fix=(
            f'{missing.message}: give capacity {{"kind": "measured"}} with the units per second '
            "of one replica, or a gpu_class that has constants"
        ),
    )


def _measured(
    service: ServingService, capacity: MeasuredCapacity, gpu: Gpu, recorder: Recorder
) -> ReplicaCapacity:
    """A measured replica passes through: nothing about it is estimated."""
    recorder.note("units_per_s_per_replica", capacity.units_per_s_per_replica)
    recorder.note("gpu_count_per_replica", capacity.gpu_count_per_replica)
    return ReplicaCapacity(
        service=service,
        gpu=gpu,
        gpu_count_per_replica=capacity.gpu_count_per_replica,
        units_per_s_per_replica=Range.exactly(capacity.units_per_s_per_replica),
    )


def _given(value: Any) -> Any:
    """A field that the scenario's own checks require with estimated capacity."""
    if value is None:
        raise InvalidScenario("estimated capacity needs architecture, formats and lengths")
    return value


def resolve_shape(
    service: ServingService, gpu: Gpu, recorder: Recorder, pointer: str
) -> ReplicaShape | Infeasibility:
    """Architecture, formats and GPU of a service, or the rate that the GPU lacks."""
    snapshot = recorder.snapshot
    architecture = snapshot.architecture(
        _given(service.architecture), pointer=f"{pointer}/architecture"
    )
    weights = snapshot.number_format(
        _given(service.weight_format), pointer=f"{pointer}/weight_format"
    )
    cache = snapshot.number_format(service.kv_cache_format, pointer=f"{pointer}/kv_cache_format")
    if not architecture.has_layers:
        raise InvalidScenario(
            f"{architecture.name} is known by its published totals alone; give its layers, or "
            "give capacity as measured",
            pointer=f"{pointer}/architecture",
        )
    mode = matrix_mode(gpu, weights)
    if mode is None or gpu.peak_flop_per_s("bf16") is None:
        return no_matrix_rate(service, gpu, weights)
    look = Lookup(recorder, {})
    return ReplicaShape(
        architecture=architecture,
        gpu=gpu,
        weight_format=weights,
        kv_format=cache,
        available_bytes=available_bytes(gpu, recorder),
        expert_width_multiple=look.exact("expert_width_multiple", weights.key.replace(".", "_"))
        if architecture.is_mixture
        else 1.0,
        weight_precision=mode,
    )


def traffic_of(service: ServingService, recorder: Recorder, pointer: str) -> Traffic:
    """Lengths of a service's requests, and how full its replicas are planned to be."""
    mean = _given(service.tokens_per_unit)
    headroom = resolved_headroom(service, recorder, pointer=f"{pointer}/headroom")
    return Traffic(
        input_tokens_mean=_given(service.input_tokens_mean),
        output_tokens_mean=_given(service.output_tokens_mean),
        sequence_tokens_p95=service.sequence_tokens_p95 or 2 * mean,
        utilization_fraction=headroom.held_utilization_fraction,
    )


def _objectives(service: ServingService) -> Objectives:
    """What is asked for; a request of one token has no gap between tokens to hold."""
    asked = service.objectives
    has_gaps = _given(service.output_tokens_mean) > 1
    ttft = asked.ttft_p95_s if asked else None
    tpot = asked.tpot_mean_s if asked and has_gaps else None
    return Objectives(ttft or np.inf, tpot or np.inf)


def _plan(question: _Question, pointer: str) -> ReplicaCapacity | tuple[Infeasibility, ...]:
    shape, quiet = question.shape, question.recorder.off()
    degrees, data_ranks = legal_tensor_parallel(shape), legal_data_parallel(shape)
    groups = tuple({t * d for t in degrees for d in data_ranks if d > 1})
    needs = shape.needs(degrees, has_stages=True, expert_ranks=groups)
    look = question.lookup(quiet)
    footprint = Footprint(shape, memory_constants(look, shape.gpu, needs), question.traffic)
    constants = serving_constants(look, shape.gpu, needs)
    layout, room = fitting_layouts(footprint, quiet)
    if not np.all(room.fits):
        memory_constants(question.lookup(question.recorder), shape.gpu, needs)
        return (no_layout_fits(question.service, footprint, (layout, room), quiet),)
    speed = Speed(shape, constants, question.traffic, quiet)
    found = sweep(speed, footprint.memory, layout, room)
    if not np.any(found.state.is_finite):
        raise InvalidScenario("no finite speed follows from these sizes", pointer=pointer)
    fine = refined(speed, found, question.objectives)
    choice = cheapest(
        fine, question.objectives, question.gpu_multiple, held_replicas=question.held_replicas
    )
    if choice is None:
        return (objectives_missed(question.service, found, question.objectives),)
    return _answer(question, choice)


def _answer(question: _Question, choice: Choice) -> ReplicaCapacity:
    """The chosen replica with its ranges, and every number that it stands on."""
    shape, traffic = question.shape, question.traffic
    look = question.lookup(question.recorder)
    needs = choice.needs(shape)
    footprint = Footprint(shape, memory_constants(look, shape.gpu, needs), traffic)
    constants = serving_constants(look, shape.gpu, needs)
    bands = _bands(question, choice, look.varied())
    recorder = question.recorder.ranged(bands)
    room = room_of(footprint, choice.layout, recorder)
    state = Speed(shape, constants, traffic, recorder).at(
        choice.layout, choice.running, choice.slots(footprint.memory)
    )
    tokens, at_p95 = sequence_capacity(footprint, choice.layout, room.pool_bytes, recorder)
    record_choice(
        recorder,
        choice,
        sequences_at_p95=at_p95,
        output_tokens_per_s=float(state.units_per_s) * traffic.output_tokens_mean,
    )
    record_rates(recorder, shape, choice, state)
    return ReplicaCapacity(
        service=question.service,
        gpu=shape.gpu,
        gpu_count_per_replica=choice.layout.gpu_count,
        units_per_s_per_replica=bands["units_per_s_per_replica"],
        layout=ParallelLayout(
            tensor_parallel=choice.tensor_parallel,
            pipeline_parallel=choice.pipeline_parallel,
            data_parallel=choice.data_parallel,
            expert_parallel=int(choice.layout.expert_ranks) if choice.data_parallel > 1 else 1,
        ),
        memory=_memory(room, shape),
        kv_cache_tokens_per_replica=int(tokens) if tokens <= MAX_TOKENS else None,
        concurrency_per_replica=choice.running,
        ttft_p95_s=bands.get("ttft_p95_s"),
        tpot_mean_s=_tpot(question, bands),
    )


def _bands(question: _Question, choice: Choice, look: Lookup) -> dict[str, Range]:
    """Ranges of the numbers that are known before they are evaluated.

    Speeds take what measured results scatter about the estimate; what they are made of takes each
    constant at its low and high end in turn. A measured result holds the uncertainty of every
    constant, so the two are not added.
    """
    shape, layout, quiet = question.shape, choice.layout, question.recorder.off()
    needs = choice.needs(shape)
    footprint = Footprint(shape, memory_constants(look, shape.gpu, needs), question.traffic)
    constants = serving_constants(look, shape.gpu, needs)
    room = room_of(footprint, layout, quiet)
    state = Speed(shape, constants, question.traffic, quiet).at(
        layout, float(choice.running), choice.slots(footprint.memory)
    )
    residual, wider = constants.residual, _band_factor(choice, look, shape)
    bands = {
        "kv_pool_bytes_per_gpu": spread(room.pool_bytes),
        "decode_step_s": spread(state.decode_step_s),
        "prefill_share_s": spread(state.prefill_share_s),
        "prefill_s": spread(state.prefill_s),
        "tpot_mean_s": widened(spread(state.tpot_mean_s[0] * residual.tpot), wider),
        "units_per_s_per_replica": widened(spread(state.units_per_s[0] * residual.units), wider),
    }
    if question.traffic.utilization_fraction < 1:
        waiting = state.ttft_p95_s[0] * residual.loaded_ttft
        bands["ttft_p95_s"] = widened(spread(waiting), wider)
    return bands


def _band_factor(choice: Choice, look: Lookup, shape: ReplicaShape) -> float:
    """How much wider a band is, in logarithms, where results are few or memory is tight."""
    wider = look.exact("gpu_class_band_factor", shape.gpu.gpu_class)
    is_tight = choice.is_memory_bound and choice.running < look.exact("few_sequences_count")
    return wider * look.exact("unstated_band_factor") if is_tight else wider


def _tpot(question: _Question, bands: dict[str, Range]) -> Range | None:
    """The published TPOT; none where a request has one token and so no gap between tokens."""
    if question.traffic.output_tokens_mean > 1:
        return bands["tpot_mean_s"]
    question.recorder.note("tpot_mean_s", None)
    return None


def _memory(room: Room, shape: ReplicaShape) -> ServingMemory:
    return ServingMemory(
        weights=float(room.weight_bytes) / BYTES_PER_GIB,
        kv_cache=float(room.pool_bytes) / BYTES_PER_GIB,
        overhead=float(room.overhead_bytes) / BYTES_PER_GIB,
        available=shape.available_bytes / BYTES_PER_GIB,
    )
