"""The floor of the read benchmark: the same row by a bare driver, through the same server.

Two addresses of a minimal application: one hands out the bytes of a plan as the driver returns
them, the other proves that the server is up.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.params import FromPath

SELECT = "SELECT body FROM plan WHERE id = $1"


@get("/plans/{plan_id:uuid}", media_type="application/json")
async def bare_plan(state: State, plan_id: FromPath[UUID]) -> Response[bytes]:
    return Response(await state.pool.fetchval(SELECT, plan_id), media_type="application/json")


@asynccontextmanager
async def database(app: Litestar) -> AsyncIterator[None]:
    # The team is a setting of the connection here, so that one SELECT is one statement.
    settings = {"gpuplan.team": "local"}
    url = os.environ["DATABASE_URL"]
    async with asyncpg.create_pool(url, min_size=1, max_size=8, server_settings=settings) as pool:
        app.state.pool = pool
        yield


def create_app() -> Litestar:
    return Litestar([bare_plan], lifespan=[database], openapi_config=None, logging_config=None)
