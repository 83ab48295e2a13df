"""What a service says, resolved to the terms in which a replica is computed."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.hours.headroom import resolved_headroom
from service.core.recorder import Recorder
from service.core.replica.beside import NOTHING_BESIDE, Beside
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.passes import Traffic
from service.core.replica.refusals import context_exceeded, no_matrix_rate
from service.core.replica.search import Objectives
from service.core.replica.shape import ReplicaShape, matrix_mode
from service.core.run.memory import available_bytes
from service.core.scenarios.replica_settings import ReplicaSettings
from service.core.scenarios.serving_service import ServingService
from service.core.snapshot import CatalogSnapshot

EMPTIER_TARGETS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Target utilisations that are tried where the wait for the first token is too long."""


def check_keys(
    service: ServingService, snapshot: CatalogSnapshot, pointer: str, *, replica_pointer: str
) -> None:
    """Refuse keys that the catalog does not hold, also where nothing comes to use them."""
    if service.architecture is not None:
        snapshot.architecture(service.architecture, pointer=f"{pointer}/architecture")
    for field in ("weight_format", "kv_cache_format"):
        key = getattr(service, field)
        if key is not None:
            snapshot.number_format(key, pointer=f"{pointer}/{field}")
    if service.engine is not None:
        engine_qualifiers(snapshot, service.engine, pointer=f"{pointer}/engine")
    draft = service.replica.draft_architecture
    if draft is not None:
        snapshot.architecture(draft, pointer=f"{replica_pointer}/draft_architecture")


def no_constants(service: ServingService, gpu: Gpu, missing: NoConstants) -> Infeasibility:
    """A class of GPUs of which no constant was ever measured."""
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


def _given(value: Any) -> Any:
    """A field that the scenario's own checks require with estimated capacity."""
    if value is None:
        raise InvalidScenario("estimated capacity needs architecture, formats and lengths")
    return value


def resolve_shape(
    service: ServingService, gpu: Gpu, recorder: Recorder, pointer: str
) -> ReplicaShape | Infeasibility:
    """Architecture, formats and GPU of a service, or the length or rate that is lacking."""
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
    too_long = context_exceeded(service, architecture)
    if too_long is not None:
        return too_long
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
        index_bytes_per_element=look.exact("sparse_index_bytes_per_element")
        if architecture.has_sparse_index
        else 1.0,
        expert_width_multiple=look.exact("expert_width_multiple", weights.key.replace(".", "_"))
        if architecture.is_mixture
        else 1.0,
        weight_precision=mode,
    )


def traffic_of(service: ServingService, recorder: Recorder, pointer: str) -> Traffic:
    """Lengths of a service's requests, and how full its replicas are planned to be."""
    mean = _given(service.tokens_per_unit)
    headroom = resolved_headroom(service, recorder, pointer=f"{pointer}/headroom")
    architecture = recorder.snapshot.architecture(
        _given(service.architecture), pointer=f"{pointer}/architecture"
    )
    longest = architecture.max_context_tokens or np.inf
    return Traffic(
        input_tokens_mean=_given(service.input_tokens_mean),
        output_tokens_mean=_given(service.output_tokens_mean),
        sequence_tokens_p95=service.sequence_tokens_p95 or float(min(2 * mean, longest)),
        utilization_fraction=headroom.held_utilization_fraction,
        cached_prompt_fraction=service.replica.prefix_cache_hit_fraction,
    )


def beside_of(settings: ReplicaSettings, recorder: Recorder, pointer: str) -> Beside:
    """Draft model and adapters of one replica.

    Raises:
        InvalidScenario: If no layers of the draft model are known: its cache follows from them.
    """
    draft = None
    count = float(settings.adapter_parameter_count)
    if settings.draft_architecture is not None:
        draft = recorder.snapshot.architecture(
            settings.draft_architecture, pointer=f"{pointer}/draft_architecture"
        )
        if not draft.has_layers:
            raise InvalidScenario(
                f"{draft.name} is known by its published totals alone; give its layers, which "
                "its cache follows from",
                pointer=f"{pointer}/draft_architecture",
            )
        count += draft.parameter_count
    if count == 0:
        return NOTHING_BESIDE
    return Beside(recorder.assume("draft_and_adapter_bytes_per_parameter").value * count, draft)


def compute_factor_of(settings: ReplicaSettings, recorder: Recorder) -> float:
    """Speed of compute under a power cap over that without. [1]"""
    if settings.power_cap_fraction >= 1:
        return 1.0
    exponent = recorder.assume("power_cap_compute_exponent").value
    return float(settings.power_cap_fraction**exponent)


def emptier_target(
    service: ServingService,
    objectives: Objectives,
    recorder: Recorder,
    holds: Callable[[float], bool],
) -> float | None:
    """The highest lower target utilisation, of those tried, at which all objectives hold.

    Args:
        service: What is asked, with its headroom.
        objectives: What must hold.
        recorder: Gives assumptions.
        holds: Whether they do at a share of the capacity that is held.
    """
    if np.isinf(objectives.ttft_p95_s):
        return None
    headroom = resolved_headroom(service, recorder, pointer="/headroom")
    lower = [t for t in EMPTIER_TARGETS if t < headroom.target_utilization_fraction]
    # Waits rise with utilisation, so the first target that holds parts those that do from others.
    place = bisect_left(lower, True, key=lambda t: holds(t / (1 + headroom.spare_fraction)))
    return lower[place] if place < len(lower) else None


def objectives_of(service: ServingService) -> Objectives:
    """What is asked for; a request of one token has no gap between tokens to hold."""
    asked = service.objectives
    has_gaps = _given(service.output_tokens_mean) > 1
    ttft = asked.ttft_p95_s if asked else None
    tpot = asked.tpot_mean_s if asked and has_gaps else None
    return Objectives(ttft or np.inf, tpot or np.inf)
