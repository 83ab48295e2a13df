"""What serving the model of a run takes, by the search that plans replicas."""

import numpy as np

from service.core.architecture.model import ModelArchitecture
from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.planners.serving_question import resolve_shape, traffic_of
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants
from service.core.replica.lookup import Lookup
from service.core.replica.search import Footprint, legal_tensor_parallel, smallest_layout
from service.core.replica.shape import Layout
from service.core.run.case import RunCase
from service.core.scenarios.demand import PeakRequestsLoad
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.scenarios.serving_service import ServingService
from service.core.units import BYTES_PER_GIB
from service.core.value import Value

SIXTEEN_BITS = "bf16"


class ServingBars(Value):
    """Training beside serving the same model, in GiB over all GPUs."""

    weights: float
    """Weights in 16 bit, to serve."""
    cache_per_sequence: float
    """Keys and values of one sequence of the run's length in 16 bit; windows are cut."""
    least_gpu_count: int | None
    """GPUs of the run's kind in the smallest replica that holds weights, engine and one sequence,
    laid out as in `serving-memory`; null where none does or the engine's constants are missing."""
    least_layout: ReplicaLayout | None
    """How that replica is spread."""
    training_total: float | None
    """Everything that the run holds on all its GPUs; null without a layout."""


def serving_bars(case: RunCase, training_gib: float | None) -> ServingBars | None:
    """Weights and one sequence's cache in 16 bit, and the smallest replica that holds them."""
    architecture, length = case.architecture, case.run.sequence_length_tokens
    if architecture is None or not architecture.has_layers:
        return None
    cached = ELEMENT_BYTES * sum(
        group.count
        * group.attention.cache_elements_per_token
        * min(length, group.attention.span_tokens or length)
        + group.count * group.attention.state_elements_per_sequence
        for group in architecture.layer_groups
    )
    weights = ELEMENT_BYTES * (architecture.parameter_count + architecture.tower_parameter_count)
    least = _smallest_replica(case, architecture)
    return ServingBars(
        weights=weights / BYTES_PER_GIB,
        cache_per_sequence=cached / BYTES_PER_GIB,
        least_gpu_count=None if least is None else int(least.gpu_count),
        least_layout=None if least is None else _asked(least),
        training_total=training_gib,
    )


def _asked(layout: Layout) -> ReplicaLayout:
    """The layout as a question about serving would name it."""
    return ReplicaLayout(
        tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        attention_data_parallel=layout.data_parallel,
    )


def _smallest_replica(case: RunCase, architecture: ModelArchitecture) -> Layout | None:
    """The replica that a service of one sequence of the run's length would get."""
    length = case.run.sequence_length_tokens
    # A model that is trained on longer sequences than it was made for then takes them.
    trained = architecture.model_copy(update={"max_context_tokens": None})
    service = ServingService(
        name=case.run.name,
        architecture=trained,
        gpu=case.run.gpu,
        weight_format=SIXTEEN_BITS,
        kv_cache_format=SIXTEEN_BITS,
        load=PeakRequestsLoad(kind="peak_requests", peak_requests_per_s=1.0),
        input_tokens_mean=length - 1,
        output_tokens_mean=1,
        sequence_tokens_p95=length,
    )
    recorder, quiet = case.recorder, case.recorder.off()
    try:
        with np.errstate(all="ignore"):
            return _found(service, case, recorder, quiet)
    except (InvalidScenario, NoConstants):
        return None


def _found(
    service: ServingService, case: RunCase, recorder: Recorder, quiet: Recorder
) -> Layout | None:
    shape = resolve_shape(service, case.gpu, quiet, case.pointer)
    if isinstance(shape, Infeasibility):
        return None
    needs = shape.needs(legal_tensor_parallel(shape), has_stages=True)
    memory = memory_constants(Lookup(recorder, {}), shape.gpu, needs)
    return smallest_layout(Footprint(shape, memory, traffic_of(service, quiet, "")), quiet)
