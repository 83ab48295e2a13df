"""How a service of a plan is started, and what its metrics should show."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil, floor
from typing import Any, Final

from service.core.estimates import Quantity, Range, ServingServiceEstimate
from service.core.launch.alerts import alerts
from service.core.launch.answer import ExpectedValue, WorkloadLaunch
from service.core.launch.engines import ReplicaToStart, engine_of, metrics_of, started
from service.core.launch.line import NotLaunchable, Started, line_fields
from service.core.launch.torchrun import processes_per_node
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.scenarios.serving_service import ServingService

UNNAMED_ENGINE: Final = "vllm-0.20"
"""Engine whose constants the catalog gives where a request names none."""
UNNAMED_NOTE: Final = "The request names no engine; the plan took the constants of vLLM 0.20."
SHORT_NOTE: Final = (
    "The longest request is the plan's 95th percentile of lengths, since the catalog does not hold "
    "the architecture's own limit: longer ones are refused."
)
RATE: Final = "units_per_s_per_replica"
"""Quantity that gives the range of a replica's capacity."""
FREE_FRACTION: Final = {"tensorrt-llm"}
"""Engines whose option is a share of what is free after the weights."""


def launch_service(
    asked: ServingService,
    estimate: ServingServiceEstimate,
    quantities: Mapping[str, Quantity],
    recorder: Recorder,
) -> WorkloadLaunch:
    """How a service is started and watched.

    Args:
        asked: The service as the plan's request has it.
        estimate: Its answer.
        quantities: Those that its thresholds need and the plan holds, by name.
        recorder: Looks assumptions up, with the overrides of the plan.
    """
    name = asked.engine or UNNAMED_ENGINE
    node_gpu_count = recorder.snapshot.gpu(asked.gpu).node_gpu_count
    per_node = processes_per_node(estimate.gpu_count_per_replica, node_gpu_count)
    return WorkloadLaunch(
        **line_fields(lambda: _line(asked, estimate, recorder, name, per_node)),
        workload=asked.name,
        workload_kind="serving",
        node_count=estimate.gpu_count_per_replica // per_node,
        gpu_count_per_node=per_node,
        replica_count=estimate.held_replica_count,
        layout=estimate.layout,
        expected=tuple(_expected(estimate, quantities)),
        alerts=tuple(alerts(asked, estimate, quantities, metrics_of(name))),
    )


def _line(
    asked: ServingService,
    estimate: ServingServiceEstimate,
    recorder: Recorder,
    name: str,
    per_node: int,
) -> Started:
    layout = estimate.layout
    if layout is None or asked.architecture is None or estimate.concurrency_per_replica is None:
        raise NotLaunchable(
            "capacity was given as measured: start replicas as they were measured, the plan knows "
            "no layout of them"
        )
    engine, version = engine_of(name)
    architecture = recorder.snapshot.architecture(asked.architecture)
    ranks = layout.data_parallel
    look = _lookup(asked, recorder)
    notes = [UNNAMED_NOTE] if asked.engine is None else []
    notes += [SHORT_NOTE] if architecture.max_context_tokens is None else []
    line = started(
        engine,
        ReplicaToStart(
            asked=asked,
            layout=layout,
            version=version,
            node_count=estimate.gpu_count_per_replica // per_node,
            running_requests=ceil(estimate.concurrency_per_replica / ranks),
            rank_count=ranks,
            longest_tokens=_longest(asked, estimate, architecture.max_context_tokens),
            memory_fraction=look.exact(
                "free_memory_fraction" if engine in FREE_FRACTION else "memory_utilization_fraction"
            ),
            chunk_tokens=int(look.exact("prefill_chunk_tokens_maximum")),
            is_native=asked.weight_format == architecture.native_format,
        ),
    )
    return replace(line, notes=(*line.notes, *notes))


def _lookup(asked: ServingService, recorder: Recorder) -> Lookup:
    """Constants of the engine as the plan took them."""
    engine = (
        {}
        if asked.engine is None
        else engine_qualifiers(recorder.snapshot, asked.engine, pointer="")
    )
    return Lookup(recorder.off(), engine)


def _longest(asked: ServingService, estimate: ServingServiceEstimate, limit: int | None) -> int:
    """Tokens of the longest request: what the architecture takes and the cache holds.

    A request lives on one rank, so it has that rank's part of the replica's cache.
    """
    tail = asked.sequence_tokens_p95 or 2 * (asked.tokens_per_unit or 1)
    wanted = ceil(tail) if limit is None else limit
    if estimate.kv_cache_tokens_per_replica is None or estimate.layout is None:
        return wanted
    ranks = estimate.layout.data_parallel
    return min(wanted, floor(estimate.kv_cache_tokens_per_replica / ranks))


def _expected(
    estimate: ServingServiceEstimate, quantities: Mapping[str, Quantity]
) -> Iterator[ExpectedValue]:
    rate = Range.exactly(estimate.units_per_s_per_replica)
    held = quantities.get(RATE)
    if held is not None and held.low is not None and held.high is not None:
        rate = Range(value=rate.value, low=held.low, high=held.high)
    meaning = "units that one replica finishes a second at full load"
    yield _value("units_per_s_per_replica", rate, "unit/s", meaning)
    if estimate.concurrency_per_replica is not None:
        running = Range.exactly(float(estimate.concurrency_per_replica))
        meaning = "requests that run at once on one replica at full load"
        yield _value("concurrency_per_replica", running, "count", meaning)
    if estimate.tpot_mean_s is not None:
        meaning = "mean time per token after the first"
        yield _value("tpot_mean_s", estimate.tpot_mean_s, "s", meaning)


def _value(name: Any, band: Range, unit: Any, shown_as: str) -> ExpectedValue:
    return ExpectedValue(
        name=name, value=band.value, low=band.low, high=band.high, unit=unit, shown_as=shown_as
    )
