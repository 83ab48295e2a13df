"""The cheapest layout, batch and number of replicas for a load, over all kinds of GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.core.answers import recorder_for, shared_fields
from service.core.errors import NoConstants
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.planners.serving_question import (
    beside_of,
    emptier_target,
    no_constants,
    resolve_shape,
)
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants, serving_constants
from service.core.replica.lookup import Lookup
from service.core.replica.many import ManyReplicas
from service.core.replica.refusals import (
    illegal_layout,
    instances_too_small,
    layout_too_small,
    no_layout_fits,
    objectives_missed,
)
from service.core.replica.search import Footprint, fitting_layouts, legal_tensor_parallel, meets
from service.core.replica.shape import Layout, ReplicaShape, instance_reach
from service.core.serving.size_case import (
    Offer,
    Sizing,
    offers_of,
    resolve_sizing,
    rows_by_gpu,
)
from service.core.serving.size_effects import effects_of, frontier_of, power_cap_of
from service.core.serving.size_hosted import hosted_of
from service.core.serving.size_options import MAXIMUM_PER_HOUR, Sized, option_of, sized_gpus
from service.core.serving.size_types import (
    Rejected,
    ServingSizeAnswer,
    ServingSizeQuestion,
    SizeOption,
)
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB
from service.core.value import MAX_COUNT

Ranked = list[tuple[SizeOption, Sized]]
SOUGHT_COUNT = 8
"""GPUs up to which the formats that would fit are looked for: it takes a search for each."""


@dataclass
class _Candidates:
    """GPUs with a price, a matrix rate and constants, and what the others lack."""

    shapes: list[ReplicaShape]
    offers: list[tuple[Offer, ...]]
    rejected: list[Rejected]


def estimate_serving_size(
    question: ServingSizeQuestion, snapshot: CatalogSnapshot
) -> ServingSizeAnswer:
    """Rank kinds of GPU by the cost of a million tokens at the stated load.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    recorder = recorder_for(question, snapshot)
    with np.errstate(all="ignore"):
        return _size(question, recorder)


def _size(question: ServingSizeQuestion, recorder: Recorder) -> ServingSizeAnswer:
    snapshot = recorder.snapshot
    keys = question.gpus if question.gpus is not None else tuple(snapshot.gpus)
    gpus = [snapshot.gpu(key, pointer=f"/gpus/{place}") for place, key in enumerate(keys)]
    sizing = resolve_sizing(question, gpus[0], recorder)
    candidates = _candidates(sizing, gpus)
    ranked: Ranked = []
    if candidates.shapes:
        reaches = [
            tuple({instance_reach(shape.gpu, offer.gpu_multiple) for offer in offers})
            for shape, offers in zip(candidates.shapes, candidates.offers, strict=True)
        ]
        many = sizing.sweep(candidates.shapes, reaches=reaches)
        ranked = _ranked(sizing, many, candidates)
    return _answer(sizing, ranked, candidates.rejected, recorder)


def _ranked(sizing: Sizing, many: ManyReplicas, candidates: _Candidates) -> Ranked:
    """GPUs that serve, the cheapest first; those that do not go to the rejected."""
    found = sized_gpus(sizing, many, candidates.offers)
    ranked: Ranked = []
    for place, shape in enumerate(many.shapes):
        sized = found.get(place)
        if isinstance(sized, Sized):
            ranked.append((option_of(sizing, many, sized), sized))
            continue
        offers = candidates.offers[place]
        if sized is not None:
            reason = _beyond_counting(sizing, sized)
        else:
            reason = _not_served(sizing, many, place, max(offer.gpu_multiple for offer in offers))
        candidates.rejected.append(Rejected(gpu=shape.gpu.key, reason=reason))
    ranked.sort(key=lambda item: (item[0].cost_per_million_tokens, item[0].gpu))
    return ranked


def _not_served(
    sizing: Sizing, many: ManyReplicas, place: int, instance_gpu_count: int
) -> Infeasibility:
    """What keeps a GPU from serving: memory, the size of its instances, or the objectives."""
    gpu = many.shapes[place].gpu
    if many.rows_of(place).size == 0:
        return _no_room(sizing, many, place, instance_gpu_count)
    reach = instance_reach(gpu, instance_gpu_count)
    whole = many.best_of(place)
    groups = whole.layout.expert_ranks[meets(whole.state, sizing.objectives)[:, 0]]
    if groups.size and groups.min() > reach:
        return instances_too_small(sizing.service.name, gpu, (int(groups.min()), reach))
    if many.rows_of(place, reach).size == 0:
        return _no_room(sizing, many, place, instance_gpu_count)
    emptier = _emptier(sizing, many, place, reach)
    return objectives_missed(
        sizing.service, many.of(place, reach), sizing.objectives, emptier=emptier
    )


def _emptier(sizing: Sizing, many: ManyReplicas, place: int, reach: int) -> float | None:
    """A lower target utilisation at which all objectives hold, where few GPUs are asked for."""
    if len(many.shapes) > SOUGHT_COUNT:
        return None

    def holds(utilization: float) -> bool:
        traffic = replace(sizing.traffic, utilization_fraction=utilization)
        found = replace(sizing, traffic=traffic).sweep([many.shapes[place]], reaches=[(reach,)])
        return bool(np.any(meets(found.best_of(0, reach).state, sizing.objectives)))

    return emptier_target(sizing.service, sizing.objectives, sizing.recorder, holds)


def _answer(
    sizing: Sizing, ranked: Ranked, rejected: Sequence[Rejected], recorder: Recorder
) -> ServingSizeAnswer:
    best = ranked[0] if ranked else None
    if best is not None:
        look = Lookup(recorder, sizing.look.engine)
        shape, needs = best[1].shape, best[1].choice.needs(best[1].shape)
        memory_constants(look, shape.gpu, needs)
        serving_constants(look, shape.gpu, needs)
    for _, sized in ranked:
        gpu = sized.shape.gpu
        recorder.rest_on(gpu.key, gpu.provenance)
        recorder.rest_on_price(sized.offer.source, verified=sized.offer.verified)
    nearest_first = sorted((item.reason for item in rejected), key=_distance)
    return ServingSizeAnswer(
        frontier=frontier_of(sizing, best[1]) if best else (),
        effects=effects_of(sizing, *best) if best else (),
        power_cap=power_cap_of(sizing, best[1]) if best else None,
        hosted=hosted_of(sizing, best[1] if best else None),
        **shared_fields(recorder, infeasibilities=() if best else tuple(nearest_first)),
        peak_requests_per_s=sizing.peak,
        mean_requests_per_s=sizing.mean,
        options=tuple(option for option, _ in ranked),
        rejected=tuple(rejected),
    )


def _distance(reason: Infeasibility) -> float:
    """By what factor a limit is passed: the least first, what has no numbers last."""
    if not reason.needed or not reason.available:
        return float("inf")
    return reason.needed / reason.available


def _candidates(sizing: Sizing, gpus: Sequence[Gpu]) -> _Candidates:
    snapshot = sizing.recorder.snapshot
    rows = rows_by_gpu(snapshot)
    found = _Candidates([], [], [])
    for gpu in gpus:
        shape = _shape(sizing, gpu)
        offers = offers_of(sizing.question, gpu, rows.get(gpu.key, ()), snapshot)
        if isinstance(shape, Infeasibility):
            found.rejected.append(Rejected(gpu=gpu.key, reason=shape))
        elif isinstance(offers, Infeasibility):
            found.rejected.append(Rejected(gpu=gpu.key, reason=offers))
        else:
            found.shapes.append(shape)
            found.offers.append(offers)
    return found


def _shape(sizing: Sizing, gpu: Gpu) -> ReplicaShape | Infeasibility:
    shape = resolve_shape(sizing.service, gpu, sizing.recorder, "")
    if isinstance(shape, Infeasibility):
        return shape
    if not sizing.recorder.has_assumption("gemm_fixed_us", gpu.gpu_class):
        missing = NoConstants(f"the catalog holds no constants of {gpu.gpu_class}")
        return no_constants(sizing.service, gpu, missing)
    given = sizing.service.replica.layout
    refusal = None if given is None else illegal_layout(given, shape, sizing.service.name)
    return shape if refusal is None else refusal


def _beyond_counting(sizing: Sizing, gpus: float) -> Infeasibility:
    return Infeasibility(
        workload=sizing.service.name,
        code="fleet",
        limit=f"fleet of {MAX_COUNT} GPUs or {MAXIMUM_PER_HOUR:g} USD an hour",
        needed=gpus if np.isfinite(gpus) else None,
        available=float(MAX_COUNT),
        unit="gpu",
        nearest_fix="less load, fewer spare replicas, or shorter requests",
    )


def _no_room(
    sizing: Sizing, many: ManyReplicas, place: int, instance_gpu_count: int
) -> Infeasibility:
    """What the roomiest layout lacks; what would fit is looked for where few GPUs are asked for."""
    shape = replace(many.shapes[place], instance_gpu_count=instance_gpu_count)
    if len(many.shapes) <= SOUGHT_COUNT:
        look = sizing.look
        needs = shape.needs(legal_tensor_parallel(shape), has_stages=True)
        memory = memory_constants(look, shape.gpu, needs)
        beside = beside_of(sizing.service.replica, look.recorder, "")
        footprint = Footprint(shape, memory, sizing.traffic, beside)
        given = sizing.service.replica.layout
        if given is not None:
            spread = Layout(
                given.tensor_parallel, given.pipeline_parallel, given.attention_data_parallel
            )
            return layout_too_small(sizing.service, footprint, spread, look.recorder)
        fitting = fitting_layouts(footprint, look.recorder)
        return no_layout_fits(sizing.service, footprint, fitting, look.recorder)
    needed, available = many.roomiest(place)
    return Infeasibility(
        workload=sizing.service.name,
        code="memory",
        limit="weights, engine and one sequence at the 95th percentile on each GPU",
        needed=needed / BYTES_PER_GIB,
        available=available / BYTES_PER_GIB,
        unit="GiB",
        nearest_fix=f"gpus of {shape.gpu.key} alone, to have the formats that fit named; "
        "or shorter sequences, or another GPU",
    )
