"""A plan for those who work in spreadsheets, read bills or bear its cost."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import UUID

from litestar import Response, get
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from service.api.dependencies import SessionOpener
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, download, stream
from service.api.problems import ProblemError, ProblemKind, problem_responses
from service.core.estimates import CostLine
from service.core.money.charge_back import ChargeBack, ChargeBasis, Charges, charge_back
from service.core.plans import Plan, PlanSummary
from service.exports import workbook
from service.exports.charge_back import charge_back_columns
from service.exports.filename import content_disposition
from service.exports.focus import FOCUS_FORM, focus_charges, focus_columns
from service.exports.plan_pivots import View, month_table, workload_table
from service.exports.table import csv_bytes, csv_stream
from service.plans import read
from service.plans.beside import run_beside_the_loop
from service.plans.repository import OpenSession

AmountView = Annotated[
    View,
    QueryParameter(description="Amounts as they are incurred (accrual), or as they are paid."),
]


By = Annotated[
    ChargeBasis,
    QueryParameter(
        description="Whether what is idle is borne by those for whom it is held (allocation), or "
        "by those who use the pool, in proportion (usage)."
    ),
]


async def _all_lines(open_session: OpenSession, plan_id: UUID) -> list[CostLine]:
    return [line async for lines in read.stream_lines(open_session, plan_id) for line in lines]


@get(
    "/v1/plans/{plan_id:uuid}/summary.csv",
    operation_id="export_plan_summary_csv",
    tags=["plans"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_summary_csv(
    plan_id: FromPath[UUID],
    open_session: SessionOpener,
    form: WantedForm,
) -> Response[Any]:
    """Export a plan's cost by workload, uses and categories side by side."""
    async with open_session() as session:
        plan = await read.read_summary(session, plan_id)
    lines = await _all_lines(open_session, plan_id)
    columns, rows = await run_beside_the_loop(workload_table, plan, lines)
    content = csv_bytes(columns, rows, form=form)
    return download(content, content_disposition(plan.name, "summary"))


@get(
    "/v1/plans/{plan_id:uuid}/months.csv",
    operation_id="export_plan_months_csv",
    tags=["plans"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_months_csv(
    plan_id: FromPath[UUID],
    open_session: SessionOpener,
    form: WantedForm,
    view: AmountView = "accrual",
) -> Response[Any]:
    """Export a plan's cost with a column for each month."""
    async with open_session() as session:
        plan = await read.read_summary(session, plan_id)
    lines = await _all_lines(open_session, plan_id)
    columns, rows = await run_beside_the_loop(month_table, plan, lines, view)
    content = csv_bytes(columns, rows, form=form)
    return download(content, content_disposition(plan.name, "months"))


@get(
    "/v1/plans/{plan_id:uuid}/focus.csv",
    operation_id="export_plan_focus_csv",
    tags=["plans"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_focus_csv(plan_id: FromPath[UUID], open_session: SessionOpener) -> Stream:
    """Export a plan's cost in the shape of FOCUS 1.0, as if it were a bill."""
    async with open_session() as session:
        plan = await read.read_summary(session, plan_id)
    lines = read.stream_lines(open_session, plan_id)
    charges = (list(focus_charges(batch)) async for batch in lines)
    parts = csv_stream(focus_columns(plan), charges, form=FOCUS_FORM)
    return await stream(parts, content_disposition(plan.name, "focus"))


@get(
    "/v1/plans/{plan_id:uuid}/workbook.xlsx",
    operation_id="export_plan_workbook",
    tags=["plans"],
    media_type=workbook.MEDIA_TYPE,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_workbook(
    plan_id: FromPath[UUID], open_session: SessionOpener
) -> Response[Any]:
    """Export a plan as a workbook: live sums, inputs and lines."""
    async with open_session() as session:
        plan = await read.read_plan(session, plan_id)
    if plan.line_count >= workbook.ROW_LIMIT:
        detail = (
            f"A sheet has {workbook.ROW_LIMIT:,} rows, the plan more lines: take its lines.csv."
        )
        raise ProblemError(ProblemKind.VALIDATION, detail)
    lines = await _all_lines(open_session, plan_id)
    content = await run_beside_the_loop(partial(workbook.plan_workbook, plan, lines))
    disposition = content_disposition(plan.name, suffix="xlsx")
    return Response(
        content, media_type=workbook.MEDIA_TYPE, headers={"Content-Disposition": disposition}
    )


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
