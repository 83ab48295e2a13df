"""Whether the process lives, and whether it can answer."""

from __future__ import annotations

import asyncio
from typing import Literal

from litestar import get
from litestar.datastructures import State

from service.api.problems import problem_responses, unavailable
from service.core.value import Value
from service.db.migrate import migration_status

READY_LIMIT_S = 2.0


class Health(Value):
    """A process that is well."""

    status: Literal["ok"]
    """Always "ok"; a process that is not well answers with a problem."""


@get(
    "/health/live",
    operation_id="get_liveness",
    tags=["health"],
    responses=problem_responses(),
    sync_to_thread=False,
)
def get_liveness() -> Health:
    """Tell that the process lives.

    Nothing beside the process itself is looked at.
    """
    return Health(status="ok")


@get(
    "/health/ready",
    operation_id="get_readiness",
    tags=["health"],
    responses=problem_responses(),
)
async def get_readiness(state: State) -> Health:
    """Tell that requests can be answered.

    The database is reached, by a connection that no other request waits for, and is at the revision
    that this code was written for.
    """
    async with asyncio.timeout(READY_LIMIT_S):  # its end is an OSError, which answers 503
        status = await migration_status(state.readiness_engine)
    if not status.is_current:
        raise unavailable(
            f"The database is at revision {status.applied}, this code needs {status.expected}."
        )
    return Health(status="ok")
