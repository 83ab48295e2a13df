"""From a serving service to one replica: its layout, memory and speed, or why there is none.

A sweep over legal layouts and numbers of running requests finds the layout with the fewest GPUs
for the load; the answer is then computed once more with every constant varied, which gives the
ranges, and once with the recorder on.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility, Range, ServingMemory
from service.core.hardware import Gpu
from service.core.hours.service_demand import held_replicas_at_peak
from service.core.parallelism import ParallelLayout
from service.core.planners.serving_question import (
    beside_of,
    check_keys,
    compute_factor_of,
    emptier_target,
    no_constants,
    objectives_of,
    resolve_shape,
    traffic_of,
)
from service.core.pooling.workloads import ReplicaCapacity
from service.core.recorder import Recorder
from service.core.replica.bands import band_factor, is_tight
from service.core.replica.beside import Beside
from service.core.replica.constants import (
    Needs,
    memory_constants,
    serving_constants,
    with_settings,
)
from service.core.replica.lookup import Lookup, engine_qualifiers, spread, widened
from service.core.replica.many import ManyReplicas, sweep_many
from service.core.replica.passes import Traffic
from service.core.replica.published import record_choice, record_rates
from service.core.replica.refusals import (
    illegal_layout,
    no_layout_fits,
    objectives_missed,
)
from service.core.replica.search import (
    Choice,
    Footprint,
    Objectives,
    Room,
    cheapest,
    fitting_layouts,
    legal_tensor_parallel,
    room_of,
    sequence_capacity,
)
from service.core.replica.shape import ReplicaShape
from service.core.replica.speed import Speed
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
    beside: Beside
    compute_factor: float

    def lookup(self, recorder: Recorder) -> Lookup:
        return Lookup(recorder, self.engine)

    def footprint(self, look: Lookup, needs: Needs) -> Footprint:
        memory = memory_constants(look, self.shape.gpu, needs)
        return Footprint(self.shape, memory, self.traffic, self.beside)

    def speed(self, look: Lookup, needs: Needs, recorder: Recorder) -> Speed:
        settings = self.service.replica
        constants = with_settings(serving_constants(look, self.shape.gpu, needs), settings)
        device = self.shape.device.slowed(self.compute_factor)
        return Speed(self.shape, constants, self.traffic, recorder, device, settings)

    def swept(self, traffic: Traffic) -> ManyReplicas:
        """Every legal layout at rising numbers of requests."""
        return sweep_many(
            [self.shape],
            look=self.lookup(self.recorder.off()),
            traffic=traffic,
            objectives=self.objectives,
            settings=self.service.replica,
            compute_factor=self.compute_factor,
            beside=self.beside,
        )

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
    check_keys(service, snapshot, pointer, replica_pointer=f"{pointer}/replica")
    if isinstance(service.capacity, MeasuredCapacity):
        return _measured(service, service.capacity, gpu, recorder)
    engine: dict[str, str] = {}
    if service.engine is not None:
        engine = engine_qualifiers(snapshot, service.engine, pointer=f"{pointer}/engine")
    shape = resolve_shape(service, gpu, recorder, pointer)
    if isinstance(shape, Infeasibility):
        return (shape,)
    question = _Question(
        service=service,
        shape=replace(shape, instance_gpu_count=gpu_multiple),
        traffic=traffic_of(service, recorder, pointer),
        objectives=objectives_of(service),
        engine=engine,
        recorder=recorder,
        gpu_multiple=gpu_multiple,
        month_count=month_count,
        beside=beside_of(service.replica, recorder, f"{pointer}/replica"),
        compute_factor=compute_factor_of(service.replica, recorder),
    )
    try:
        with np.errstate(all="ignore"):  # sizes beyond reason are answered below, not warned of
            return _plan(question, pointer)
    except NoConstants as missing:
        return (no_constants(service, gpu, missing),)


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


def _plan(question: _Question, pointer: str) -> ReplicaCapacity | tuple[Infeasibility, ...]:
    service, shape = question.service, question.shape
    refusal = None
    if service.replica.layout is not None:
        refusal = illegal_layout(service.replica.layout, shape, service.name)
    if refusal is not None:
        return (refusal,)
    try:
        many = question.swept(question.traffic)
    except InvalidScenario as error:
        error.pointer = error.pointer or pointer
        raise
    if many.rows_of(0).size == 0:
        return (_roomless(question, many),)
    choice = cheapest(
        many.best_of(0),
        question.objectives,
        question.gpu_multiple,
        held_replicas=question.held_replicas,
    )
    if choice is None:
        emptier = _emptier(question)
        found = many.of(0)
        return (objectives_missed(service, found, question.objectives, emptier=emptier),)
    return _answer(question, choice)


def _emptier(question: _Question) -> float | None:
    """The highest lower target utilisation, of those tried, at which all objectives hold."""

    def holds(utilization: float) -> bool:
        traffic = replace(question.traffic, utilization_fraction=utilization)
        found = question.swept(traffic).best_of(0)
        return cheapest(found, question.objectives, question.gpu_multiple) is not None

    return emptier_target(question.service, question.objectives, question.recorder.off(), holds)


def _roomless(question: _Question, many: ManyReplicas) -> Infeasibility:
    """Weights, engine and one long sequence find no room: the roomiest layout, and what would."""
    shape, quiet = question.shape, question.recorder.off()
    layout = many.found.layout
    needs = shape.needs(legal_tensor_parallel(shape), has_stages=True)
    memory_constants(question.lookup(question.recorder), shape.gpu, needs)
    footprint = question.footprint(question.lookup(quiet), needs)
    given = question.service.replica.layout
    if given is None:
        layout, room = fitting_layouts(footprint, quiet)
    else:
        room = room_of(footprint, layout, quiet)
    return no_layout_fits(question.service, footprint, (layout, room), quiet)


def _answer(question: _Question, choice: Choice) -> ReplicaCapacity:
    """The chosen replica with its ranges, and every number that it stands on."""
    shape, traffic = question.shape, question.traffic
    look = question.lookup(question.recorder)
    footprint = question.footprint(look, choice.needs(shape))
    speed = question.speed(look, choice.needs(shape), question.recorder)
    bands = _bands(question, choice, look.varied())
    recorder = question.recorder.ranged(bands)
    room = room_of(footprint, choice.layout, recorder)
    _record_beside(question, choice, footprint, recorder)
    state = replace(speed, recorder=recorder).at(
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
        gpu_count_per_replica=choice.gpu_count,
        units_per_s_per_replica=bands["units_per_s_per_replica"],
        layout=ParallelLayout(
            tensor_parallel=choice.tensor_parallel,
            pipeline_parallel=choice.pipeline_parallel,
            data_parallel=choice.data_parallel,
            expert_parallel=int(choice.layout.expert_ranks) if choice.data_parallel > 1 else 1,
        ),
        memory=_memory(room, shape),
        kv_cache_tokens_per_replica=int(tokens) if tokens <= MAX_TOKENS else None,
        concurrency_per_replica=choice.concurrency,
        ttft_p95_s=bands.get("ttft_p95_s"),
        tpot_mean_s=_tpot(question, bands),
    )


def _record_beside(
    question: _Question, choice: Choice, footprint: Footprint, recorder: Recorder
) -> None:
    if not question.beside.weight_bytes:
        return
    length = max(question.traffic.sequence_tokens_mean, 1.0)
    drafted = footprint.draft_sequence_bytes_per_gpu(choice.layout, length)
    question.beside.record(recorder, choice.tensor_parallel, drafted)


def _bands(question: _Question, choice: Choice, look: Lookup) -> dict[str, Range]:
    """Ranges of the numbers that are known before they are evaluated.

    Speeds take what measured results scatter about the estimate; what they are made of takes each
    constant at its low and high end in turn. A measured result holds the uncertainty of every
    constant, so the two are not added.
    """
    shape, layout, quiet = question.shape, choice.layout, question.recorder.off()
    footprint = question.footprint(look, choice.needs(shape))
    speed = question.speed(look, choice.needs(shape), quiet)
    room = room_of(footprint, layout, quiet)
    state = speed.at(layout, float(choice.running), choice.slots(footprint.memory))
    residual = speed.constants.residual
    wider = band_factor(look, shape.gpu, is_tight=is_tight(look, choice))
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
