"""Counts for a monitoring system; labels come from closed sets, never from a caller."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})

_requests = Counter(
    "gpuplan_http_requests_total", "Requests answered.", ["method", "route", "status"]
)
_seconds = Histogram(
    "gpuplan_http_request_duration_seconds", "Time to answer.", ["method", "route"]
)


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """Count one answered request; `route` is the template of the path."""
    method = method if method in METHODS else "other"
    _requests.labels(method, route, str(status)).inc()
    _seconds.labels(method, route).observe(seconds)
