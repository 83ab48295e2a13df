"""Single questions about money: owning a fleet, and training against serving."""

from __future__ import annotations

from datetime import UTC, datetime

from litestar import post
from litestar.params import JSONBody

from service.api.dependencies import SessionOpener
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.money import crossover, fleet_ownership
from service.core.money.crossover import CrossoverAnswer, CrossoverQuestion
from service.core.money.fleet_ownership_types import OwnershipAnswer, OwnershipQuestion
from service.plans.estimate import answer_estimate


@post(
    "/v1/estimates/ownership",
    operation_id="estimate_ownership",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_ownership(
    data: JSONBody[OwnershipQuestion], open_session: SessionOpener
) -> OwnershipAnswer:
    """Cost a fleet that is bought and run, beside renting the same hours."""
    return await answer_estimate(
        open_session,
        data,
        fleet_ownership.estimate_ownership,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/crossover",
    operation_id="estimate_crossover",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_crossover(
    data: JSONBody[CrossoverQuestion], open_session: SessionOpener
) -> CrossoverAnswer:
    """Find the days on which all serving so far has taken as much as the training."""
    return await answer_estimate(
        open_session,
        data,
        crossover.estimate_crossover,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )
