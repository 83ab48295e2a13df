"""Who bears what a plan costs: by what is held for each workload, or by what each uses."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from service.api.dependencies import SessionOpener
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, download
from service.api.problems import problem_responses
from service.core.money.charge_back import ChargeBack, ChargeBasis, Charges, charge_back
from service.core.plans import Plan, PlanSummary
from service.exports.charge_back import charge_back_columns
from service.exports.filename import content_disposition
from service.exports.table import csv_bytes
from service.plans import read
from service.plans.repository import OpenSession

By = Annotated[
    ChargeBasis,
    QueryParameter(
        description="Whether what is idle is borne by those for whom it is held (allocation), or "
        "by those who use the pool, in proportion (usage)."
    ),
]


async def _charged(
    open_session: OpenSession, plan_id: UUID, by: ChargeBasis
) -> tuple[Plan, PlanSummary, ChargeBack]:
    async with open_session() as session:
        plan = await read.read_plan(session, plan_id)
        summary = await read.read_summary(session, plan_id)
    charges = Charges()
    async for lines in read.stream_lines(open_session, plan_id):
        charges.add(lines)
    return plan, summary, charge_back(plan, charges, by)


@get(
    "/v1/plans/{plan_id:uuid}/charge-back",
    operation_id="get_plan_charge_back",
    tags=["plans"],
    responses=problem_responses(404, 422),
)
async def get_plan_charge_back(
    plan_id: FromPath[UUID], open_session: SessionOpener, by: By = "allocation"
) -> ChargeBack:
    """Say which run or service bears how much of each pool.

    The rows are together the plan's amount, to the cent, in either view.
    """
    _, _, charged = await _charged(open_session, plan_id, by)
    return charged


@get(
    "/v1/plans/{plan_id:uuid}/charge-back.csv",
    operation_id="export_plan_charge_back_csv",
    tags=["plans"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_charge_back_csv(
    plan_id: FromPath[UUID],
    open_session: SessionOpener,
    form: WantedForm,
    by: By = "allocation",
) -> Response[Any]:
    """Export which run or service bears how much of each pool."""
    plan, summary, charged = await _charged(open_session, plan_id, by)
    content = csv_bytes(charge_back_columns(summary, charged), charged.rows, form=form)
    return download(content, content_disposition(plan.name, f"charge-back-{by}"))
