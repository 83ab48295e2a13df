"""Every address of the service."""

from __future__ import annotations

from litestar.types import ControllerRouterHandler

from service.api.docs_page import get_docs_page, get_docs_part, get_openapi
from service.api.metrics import get_metrics
from service.api.v1.health import get_liveness, get_readiness

ROUTE_HANDLERS: tuple[ControllerRouterHandler, ...] = (
    get_liveness,
    get_readiness,
    get_metrics,
    get_openapi,
    get_docs_page,
    get_docs_part,
)
