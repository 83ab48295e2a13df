"""A question about a replica, resolved: its shape, engine, layout and memory."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.errors import NoConstants
from service.core.estimates import Infeasibility
from service.core.planners.serving import (
    no_constants,
    resolve_shape,
    traffic_of,
)
from service.core.recorder import Recorder
from service.core.replica.constants import ServingConstants, memory_constants, serving_constants
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.passes import Traffic
from service.core.replica.refusals import no_layout_fits
from service.core.replica.search import (
    Footprint,
    Room,
    fitting_layouts,
    legal_data_parallel,
    legal_tensor_parallel,
    room_of,
)
from service.core.replica.shape import Layout, ReplicaShape
from service.core.scenarios.serving_service import ServingService
from service.core.serving.questions import NAME, ReplicaLayout, ReplicaQuestion, as_service

EXTRA_BYTES = 2
"""Bytes of a weight of draft models and adapters."""


@dataclass(frozen=True)
class Case:
    """One replica with everything resolved."""

    service: ServingService
    shape: ReplicaShape
    traffic: Traffic
    engine: dict[str, str]
    layout: Layout
    footprint: Footprint
    extra_bytes: float
    """Draft model and adapters on one GPU."""
    recorder: Recorder

    def lookup(self, recorder: Recorder) -> Lookup:
        """Constants of the engine."""
        return Lookup(recorder, self.engine)

    def constants(self, look: Lookup) -> ServingConstants:
        """Constants of speed that this layout needs."""
        layout = self.layout
        needs = self.shape.needs(
            (int(layout.tensor_parallel),),
            has_stages=layout.pipeline_parallel > 1,
            expert_ranks=(int(layout.expert_ranks),) if layout.data_parallel > 1 else (),
        )
        return serving_constants(look, self.shape.gpu, needs)

    def room(self, recorder: Recorder) -> Room:
        """Memory of the fullest GPU, with draft model and adapters taken out of the pool."""
        return _less(
            room_of(self.footprint, self.layout, recorder), self.footprint, self.extra_bytes
        )


def _less(room: Room, footprint: Footprint, extra_bytes: Any) -> Room:
    pool = room.pool_bytes - footprint.memory.free_fraction * extra_bytes
    return replace(room, pool_bytes=np.maximum(pool, 0.0))


def resolve_case(question: ReplicaQuestion, recorder: Recorder) -> Case | tuple[Infeasibility, ...]:
    """Resolve a question, or say why there is no such replica.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    snapshot = recorder.snapshot
    gpu = snapshot.gpu(question.gpu, pointer="/gpu")
    service = as_service(question, question.gpu)
    shape = resolve_shape(service, gpu, recorder, "")
    if isinstance(shape, Infeasibility):
        return (shape,)
    engine: dict[str, str] = {}
    if service.engine is not None:
        engine = engine_qualifiers(snapshot, service.engine, pointer="/engine")
    try:
        return _laid_out(question, service, shape, engine, recorder)
    except NoConstants as missing:
        return (no_constants(service, gpu, missing),)


def _laid_out(
    question: ReplicaQuestion,
    service: ServingService,
    shape: ReplicaShape,
    engine: dict[str, str],
    recorder: Recorder,
) -> Case | tuple[Infeasibility, ...]:
    traffic = traffic_of(service, recorder, "")
    needs = shape.needs(legal_tensor_parallel(shape), has_stages=True)
    memory = memory_constants(Lookup(recorder.off(), engine), shape.gpu, needs)
    footprint = Footprint(shape, memory, traffic)
    extra = _extra_bytes(question, recorder)
    layout = _layout(question, footprint, extra, recorder)
    if not isinstance(layout, Layout):
        return layout
    case = Case(
        service=service,
        shape=shape,
        traffic=traffic,
        engine=engine,
        layout=layout,
        footprint=footprint,
        extra_bytes=extra / layout.tensor_parallel,
        recorder=recorder,
    )
    case.constants(case.lookup(recorder.off()))  # refused here where the class has none
    return case


def _layout(
    question: ReplicaQuestion, footprint: Footprint, extra: float, recorder: Recorder
) -> Layout | tuple[Infeasibility, ...]:
    """The layout as given, or the fewest GPUs that hold the replica."""
    given = question.layout
    if given is not None:
        refusal = _illegal(given, footprint.shape)
        if refusal is not None:
            return (refusal,)
        return Layout(given.tensor_parallel, given.pipeline_parallel, given.attention_data_parallel)
    layouts, room = fitting_layouts(footprint, recorder)
    room = _less(room, footprint, extra / layouts.tensor_parallel)
    if not np.any(room.fits):
        service = as_service(question, question.gpu)
        return (no_layout_fits(service, footprint, (layouts, room), recorder.off()),)
    fits = np.flatnonzero(room.fits)
    fewest = fits[np.argmin(layouts.gpu_count[fits])]
    return Layout(
        int(layouts.tensor_parallel[fewest]),
        int(layouts.pipeline_parallel[fewest]),
        int(layouts.data_parallel[fewest]),
    )


def _extra_bytes(question: ReplicaQuestion, recorder: Recorder) -> float:
    count = float(question.adapter_parameter_count)
    if question.draft_architecture is not None:
        draft = recorder.snapshot.architecture(
            question.draft_architecture, pointer="/draft_architecture"
        )
        count += draft.parameter_count
    return EXTRA_BYTES * count


def _illegal(layout: ReplicaLayout, shape: ReplicaShape) -> Infeasibility | None:
    """Why a given layout cannot be, with the nearest that can."""
    degrees, ranks = legal_tensor_parallel(shape), legal_data_parallel(shape)
    layers = shape.architecture.num_hidden_layers
    wanted = (
        ("tensor_parallel", layout.tensor_parallel, degrees),
        ("pipeline_parallel", layout.pipeline_parallel, tuple(range(1, layers + 1))),
        ("attention_data_parallel", layout.attention_data_parallel, ranks),
    )
    for name, degree, legal in wanted:
        if degree in legal:
            continue
        nearest = min(legal, key=lambda n: (abs(np.log(n / degree)), -n))
        shown = ", ".join(map(str, legal)) if len(legal) <= 16 else f"1 to {legal[-1]}"
        return Infeasibility(
            workload=NAME,
            code="layout",
            limit=f"{name} of {shape.architecture.name} on {shape.gpu.name}",
            needed=degree,
            available=nearest,
            unit="count",
            nearest_fix=f"{name} {nearest}; legal are {shown}",
        )
    return None
