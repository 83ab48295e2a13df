"""When to worry about a service: thresholds from the plan's own numbers, as PromQL."""

import json
from collections.abc import Iterator, Mapping
from math import floor
from typing import Final

from service.core.estimates import Quantity, Range, ServingServiceEstimate
from service.core.launch.answer import AlertName, AlertRule
from service.core.launch.engines import Metrics
from service.core.scenarios.serving_service import ServingService
from service.core.units import Unit

WINDOW: Final = "5m"
UNITS: Final[dict[AlertName, Unit]] = {
    "time_to_first_token": "s",
    "waiting_requests": "count",
    "kv_cache_use": "1",
}
CACHED: Final = ("concurrency_at_mean_length", "concurrency_at_p95_length")
"""Quantities of a service from which the threshold of its cache follows."""


def alerts(
    asked: ServingService,
    estimate: ServingServiceEstimate,
    quantities: Mapping[str, Quantity],
    metrics: Metrics | None,
) -> Iterator[AlertRule]:
    """Rules of one service; none where the plan holds no number to compare with."""
    first = _first_token(asked, estimate.ttft_p95_s)
    if first is not None:
        threshold_s, reason = first
        yield _rule("time_to_first_token", threshold_s, reason, asked, metrics)
        rate = estimate.units_per_s_per_replica
        waiting = max(1, floor(rate * threshold_s))
        reason = (
            f"a replica that takes {rate:g} {asked.unit_name}/s needs {threshold_s:g} s for "
            f"{waiting} in its queue: the last of a longer one waits beyond the threshold of the "
            "first token"
        )
        yield _rule("waiting_requests", waiting, reason, asked, metrics)
    cached = _cache_use(estimate, quantities)
    if cached is not None:
        yield _rule("kv_cache_use", *cached, asked, metrics)


def _rule(
    name: AlertName, threshold: float, reason: str, asked: ServingService, metrics: Metrics | None
) -> AlertRule:
    metric = None if metrics is None else getattr(metrics, name)
    # A label's value in PromQL is quoted as in Go, of which JSON's strings are a part.
    series = f"{metric}{{model_name={json.dumps(asked.name, ensure_ascii=False)}}}"
    watched = f"max({series})"
    if name == "time_to_first_token":
        buckets = series.replace(f"{metric}{{", f"{metric}_bucket{{", 1)
        watched = f"histogram_quantile(0.95, sum by (le) (rate({buckets}[{WINDOW}])))"
    return AlertRule(
        name=name,
        threshold=threshold,
        unit=UNITS[name],
        reason=reason,
        metric=metric,
        metric_source=None if metrics is None else metrics.source,
        expression=None if metric is None else f"{watched} > {threshold:.6g}",
    )


def _first_token(asked: ServingService, planned: Range | None) -> tuple[float, str] | None:
    objective = None if asked.objectives is None else asked.objectives.ttft_p95_s
    if objective is not None:
        return objective, "the objective of the request: objectives.ttft_p95_s"
    if planned is None:
        return None
    return planned.high, "upper end of the plan's own ttft_p95_s: no objective was given"


def _cache_use(
    estimate: ServingServiceEstimate, quantities: Mapping[str, Quantity]
) -> tuple[float, str] | None:
    """Share of the cache beyond which a replica holds more than was planned.

    Planned requests at the length that 95 % of them stay below, but never so much that another
    request of mean length would no longer fit: from there on the engine queues or evicts.
    """
    held = [quantities[name].value for name in CACHED if name in quantities]
    running = estimate.concurrency_per_replica
    if running is None or len(held) < len(CACHED) or None in held:
        return None
    mean, tail = (float(each or 0) for each in held)
    if mean <= 1 or tail < 1:
        return None
    return min(1 - 1 / mean, running / tail), (
        f"{running} requests run at once as planned; the cache holds {mean:.6g} of mean length and "
        f"{tail:.6g} at the 95th percentile of lengths"
    )
