"""The application: everything is wired here, by one function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import msgspec
import structlog
from litestar import Litestar
from litestar.datastructures import State

from service.access.scopes import Caller, Scope
from service.api.edge import wrap
from service.api.json_body import StrictBodies, StrictRequest
from service.api.openapi import build_spec, query_parameters, to_yaml
from service.api.problems import EXCEPTION_HANDLERS
from service.api.refusals import REFUSAL_HANDLERS
from service.api.request_checks import request_checks
from service.api.routes import ROUTE_HANDLERS
from service.catalog.repository import read_retirements
from service.db.errors import DatabaseError
from service.db.locks import WorkerLocks
from service.db.reads import ReadPool
from service.db.session import connect, make_engine
from service.plans.beside import WORKSHOP
from service.plans.bodies import PlanBodies, Retirements
from service.plans.repository import read_body
from service.settings import DEFAULT_TEAM, Settings

OPEN_CALLER = Caller(DEFAULT_TEAM, frozenset(Scope))
"""Whoever calls in open mode."""


def configure_logging() -> None:
    """Write one JSON object a line: a time, a level, an event and its fields."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, _log_line],
        logger_factory=structlog.BytesLoggerFactory(),
        cache_logger_on_first_use=True,
    )


_ENCODER = msgspec.json.Encoder(enc_hook=repr)


def _log_line(_logger: Any, level: str, event: Any) -> bytes:
    """Write one event with level and time; what has no form in JSON is written as its text.

    One step for each line, since every request writes one.
    """
    event["level"] = level
    event["timestamp"] = datetime.now(UTC)
    return _ENCODER.encode(event)


def _database(url: str | None) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        if url is None:
            raise DatabaseError("DATABASE_URL is not set: the service needs its database.")
        engine, readiness_engine = make_engine(url), make_engine(url, size=1)
        locks = WorkerLocks(partial(connect, url))
        try:
            async with ReadPool(url) as read_pool:
                app.state.update(
                    engine=engine,
                    readiness_engine=readiness_engine,
                    locks=locks,
                    read_pool=read_pool,
                    plan_bodies=PlanBodies(partial(read_body, read_pool)),
                    retirements=Retirements(partial(read_retirements, read_pool)),
                )
                yield
        finally:
            await locks.close()
            await readiness_engine.dispose()
            await engine.dispose()

    return lifespan


def create_app(settings: Settings | None = None) -> Litestar:
    """Make the application; without settings they are read from the environment."""
    if settings is None:
        settings = Settings.from_environment()
        configure_logging()
    WORKSHOP.limit_s = settings.estimate_limit_s
    is_open = settings.access_mode == "open"
    spec = build_spec(is_open=is_open)
    app = Litestar(
        ROUTE_HANDLERS,
        before_request=request_checks(query_parameters(spec)),
        exception_handlers={**EXCEPTION_HANDLERS, **REFUSAL_HANDLERS},
        lifespan=[_database(settings.database_url)],
        logging_config=None,
        openapi_config=None,
        plugins=[StrictBodies()],
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_bytes,
        state=State(
            {
                "openapi_yaml": cache(lambda: to_yaml(spec)),
                "metrics_folder": settings.prometheus_multiproc_dir,
                "open_caller": OPEN_CALLER if is_open else None,
            }
        ),
    )
    app.asgi_handler = wrap(app.asgi_handler, allowed_hosts=settings.allowed_hosts)
    return app
