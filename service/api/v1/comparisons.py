"""Plans side by side."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, get
from litestar.params import QueryParameter

from service.api.dependencies import RequestSession
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, download
from service.api.problems import problem_responses
from service.core.plans import PlanComparison
from service.exports.comparison import COMPARISON_COLUMNS, comparison_rows
from service.exports.filename import content_disposition
from service.exports.table import csv_bytes
from service.plans.compare import compare

ID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
PlanIds = Annotated[
    str,
    QueryParameter(
        pattern=f"^{ID}(,{ID}){{1,9}}$",
        description="Ids of 2 to 10 plans, with commas between; all of one currency.",
    ),
]
Baseline = Annotated[
    UUID | None,
    QueryParameter(description="Id of the plan to compare with; the first of them when absent."),
]


def _ids(plans: str) -> list[UUID]:
    return [UUID(each) for each in plans.split(",")]


@get(
    "/v1/comparisons",
    operation_id="compare_plans",
    tags=["comparisons"],
    responses=problem_responses(404, 422),
)
async def compare_plans(
    session: RequestSession, plans: PlanIds, baseline: Baseline = None
) -> PlanComparison:
    """Compare plans with a baseline, quantity by quantity."""
    return await compare(session, _ids(plans), baseline=baseline)


@get(
    "/v1/comparisons.csv",
    operation_id="export_comparison_csv",
    tags=["comparisons"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_comparison_csv(
    session: RequestSession,
    form: WantedForm,
    plans: PlanIds,
    baseline: Baseline = None,
) -> Response[Any]:
    """Export a comparison, one row for each quantity and each plan beside the baseline."""
    comparison = await compare(session, _ids(plans), baseline=baseline)
    rows = comparison_rows(comparison)
    content = csv_bytes(COMPARISON_COLUMNS, rows, form=form)
    return download(content, content_disposition("comparison"))
