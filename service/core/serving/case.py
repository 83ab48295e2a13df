"""A question about a replica, resolved: its shape, engine, layout and memory."""

from dataclasses import dataclass

from service.core.errors import NoConstants
from service.core.estimates import Infeasibility
from service.core.planners.serving_question import (
    beside_of,
    check_keys,
    compute_factor_of,
    no_constants,
    resolve_shape,
    traffic_of,
)
from service.core.recorder import Recorder
from service.core.replica.constants import (
    ServingConstants,
    memory_constants,
    serving_constants,
    with_settings,
)
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.passes import Traffic
from service.core.replica.refusals import illegal_layout, no_layout_fits
from service.core.replica.search import (
    Footprint,
    Room,
    fitting_layouts,
    legal_tensor_parallel,
    room_of,
    smallest_layout,
)
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import Speed
from service.core.scenarios.serving_service import ServingService
from service.core.serving.questions import ReplicaQuestion, as_service


@dataclass(frozen=True)
class Case:
    """One replica with everything resolved."""

    service: ServingService
    shape: ReplicaShape
    traffic: Traffic
    engine: dict[str, str]
    layout: Layout
    footprint: Footprint
    compute_factor: float
    """Speed of compute under a power cap over that without."""
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
        found = serving_constants(look, self.shape.gpu, needs)
        return with_settings(found, self.service.replica)

    def speed(self, look: Lookup, recorder: Recorder, traffic: Traffic | None = None) -> Speed:
        """Speed of the replica with the constants of a lookup."""
        return Speed(
            self.shape,
            self.constants(look),
            traffic or self.traffic,
            recorder,
            self.shape.device.slowed(self.compute_factor),
            self.service.replica,
        )

    def room(self, recorder: Recorder) -> Room:
        """Memory of the fullest GPU, draft model and adapters beside the weights."""
        return room_of(self.footprint, self.layout, recorder)


def resolve_case(question: ReplicaQuestion, recorder: Recorder) -> Case | tuple[Infeasibility, ...]:
    """Resolve a question, or say why there is no such replica.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    snapshot = recorder.snapshot
    gpu = snapshot.gpu(question.gpu, pointer="/gpu")
    service = as_service(question, question.gpu, settings=question.settings)
    check_keys(service, snapshot, "", replica_pointer="")
    engine: dict[str, str] = {}
    if service.engine is not None:
        engine = engine_qualifiers(snapshot, service.engine, pointer="/engine")
    shape = resolve_shape(service, gpu, recorder, "")
    if isinstance(shape, Infeasibility):
        return (shape,)
    try:
        return _laid_out(service, shape, engine, recorder)
    except NoConstants as missing:
        return (no_constants(service, gpu, missing),)


def _laid_out(
    service: ServingService,
    shape: ReplicaShape,
    engine: dict[str, str],
    recorder: Recorder,
) -> Case | tuple[Infeasibility, ...]:
    traffic = traffic_of(service, recorder, "")
    needs = shape.needs(legal_tensor_parallel(shape), has_stages=True)
    memory = memory_constants(Lookup(recorder.off(), engine), shape.gpu, needs)
    beside = beside_of(service.replica, recorder, "")
    footprint = Footprint(shape, memory, traffic, beside)
    layout = _layout(service, footprint, recorder)
    if not isinstance(layout, Layout):
        return layout
    case = Case(
        service=service,
        shape=shape,
        traffic=traffic,
        engine=engine,
        layout=layout,
        footprint=footprint,
        compute_factor=compute_factor_of(service.replica, recorder),
        recorder=recorder,
    )
    case.constants(case.lookup(recorder.off()))  # refused here where the class has none
    return case


def _layout(
    service: ServingService, footprint: Footprint, recorder: Recorder
) -> Layout | tuple[Infeasibility, ...]:
    """The layout as given, or the fewest GPUs that hold the replica."""
    given = service.replica.layout
    if given is not None:
        refusal = illegal_layout(given, footprint.shape, service.name)
        if refusal is not None:
            return (refusal,)
        return Layout(given.tensor_parallel, given.pipeline_parallel, given.attention_data_parallel)
    smallest = smallest_layout(footprint, recorder)
    if smallest is None:
        roomiest = fitting_layouts(footprint, recorder)
        return (no_layout_fits(service, footprint, roomiest, recorder.off()),)
    return smallest
