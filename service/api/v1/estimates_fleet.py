"""Single questions about a fleet: what a trace asks for, and pools apart beside pools shared."""

from __future__ import annotations

from datetime import UTC, datetime

from litestar import post
from litestar.params import JSONBody

from service.api.dependencies import SessionOpener
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.fleet import demand, pools
from service.core.fleet.demand import DemandAnswer, DemandQuestion
from service.core.fleet.pools_types import PoolsAnswer, PoolsQuestion
from service.plans.estimate import answer_estimate


@post(
    "/v1/estimates/demand",
    operation_id="estimate_demand",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_demand(
    data: JSONBody[DemandQuestion], open_session: SessionOpener
) -> DemandAnswer:
    """Reduce a measured trace to the profile, peak and lengths of a service."""
    return await answer_estimate(
        open_session,
        data,
        demand.estimate_demand,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/pools",
    operation_id="estimate_pools",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_pools(data: JSONBody[PoolsQuestion], open_session: SessionOpener) -> PoolsAnswer:
    """Size the same workloads in pools apart and in one that they share, hour by hour."""
    return await answer_estimate(
        open_session,
        data,
        pools.estimate_pools,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )
