"""Making plans: of a scenario, and again of a stored plan's scenario."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from litestar import Response, post
from litestar.datastructures import ResponseHeader
from litestar.params import FromPath, HeaderParameter, JSONBody

from service.access.scopes import Caller, Scope
from service.api.access import needs
from service.api.dependencies import NumberHolder, RequestCaller, SessionOpener
from service.api.problems import problem_responses
from service.catalog.snapshots import load_plannable_snapshot
from service.core.planners.plan import estimate_fleet
from service.core.plans import Plan, PlanRequest, ReplanRequest
from service.plans import create, replan
from service.plans.idempotency import KEY_PATTERN, HoldNumber
from service.plans.identity import ID_RANDOM_BYTES, time_ordered_id

LOCATION_HEADER = ResponseHeader(
    name="Location", description="Address of the new plan.", documentation_only=True
)
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        pattern=KEY_PATTERN,
        description="Names this request: sent again within 24 hours, it makes no second plan.",
    ),
]


def _making(caller: Caller, hold: HoldNumber, idempotency_key: str | None) -> create.Making:
    now = datetime.now(UTC)
    return create.Making(
        team=caller.team,
        now=now,
        plan_id=time_ordered_id(now, secrets.token_bytes(ID_RANDOM_BYTES)),
        estimate=estimate_fleet,
        load_snapshot=load_plannable_snapshot,
        hold=hold,
        idempotency_key=idempotency_key,
    )


def _answer_new(stored: create.StoredPlan) -> Response[Any]:
    headers = {"Location": f"/v1/plans/{stored.id}", "ETag": stored.etag}
    return Response(stored.body, status_code=201, media_type="application/json", headers=headers)


@post(
    "/v1/plans",
    operation_id="create_plan",
    tags=["plans"],
    opt=needs(Scope.PLAN_WRITE),
    responses=problem_responses(409, 413, 415, 422),
    response_headers=[LOCATION_HEADER],
)
async def create_plan(
    data: JSONBody[PlanRequest],
    open_session: SessionOpener,
    hold: NumberHolder,
    *,
    caller: RequestCaller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Plan]:
    """Estimate a scenario and keep the answer as a plan.

    What cannot be built is a plan too: `feasible` is false, and `infeasibilities` says what ran
    out, by how much, and what would work.
    """
    making = _making(caller, hold, idempotency_key)
    return _answer_new(await create.create_plan(open_session, data, making))


@post(
    "/v1/plans/{plan_id:uuid}/replans",
    operation_id="create_replan",
    tags=["plans"],
    opt=needs(Scope.PLAN_READ, Scope.PLAN_WRITE),
    responses=problem_responses(404, 409, 413, 415, 422),
    response_headers=[LOCATION_HEADER],
)
async def create_replan(
    plan_id: FromPath[UUID],
    data: JSONBody[ReplanRequest],
    open_session: SessionOpener,
    hold: NumberHolder,
    *,
    caller: RequestCaller,
    idempotency_key: IdempotencyKey = None,
) -> Response[Plan]:
    """Run a plan's scenario again on another catalog release or as of another day.

    The answer is a new plan that names the old one in `derived_from`; the old one stays as it is.
    """
    making = _making(caller, hold, idempotency_key)
    return _answer_new(await replan.replan(open_session, plan_id, data, making))
