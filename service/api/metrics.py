"""Counts for a monitoring system; labels come from closed sets, never from a caller."""

from __future__ import annotations

from functools import cache

from litestar import Response, get
from litestar.datastructures import State
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from service.access.scopes import Scope
from service.api.access import OPEN_ON_LOOPBACK, needs

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"})

_requests = Counter(
    "gpuplan_http_requests_total", "Requests answered.", ["method", "route", "status"]
)
_seconds = Histogram(
    "gpuplan_http_request_duration_seconds", "Time to answer.", ["method", "route"]
)


@cache
def _series(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return _requests.labels(method, route, str(status)), _seconds.labels(method, route)


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """Count one answered request; `route` is the template of the path."""
    requests, times = _series(method if method in METHODS else "other", route, status)
    requests.inc()
    times.observe(seconds)


@get(
    "/metrics",
    include_in_schema=False,
    sync_to_thread=True,
    opt={**needs(Scope.PLAN_READ), OPEN_ON_LOOPBACK: True},
)
def get_metrics(state: State) -> Response[bytes]:
    """Send the counts of all workers where they share a folder, else of this process."""
    registry = REGISTRY
    if state.metrics_folder is not None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=state.metrics_folder)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
