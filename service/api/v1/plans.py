"""Plans: listed and read."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, get
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from service.api.dependencies import RequestSession, SessionOpener
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, stream
from service.api.pages import DEFAULT_LIMIT, LINK_HEADER, Cursor, Limit, next_link
from service.api.problems import FieldProblem, ProblemError, ProblemKind, problem_responses
from service.core.plans import Plan, PlanSummary
from service.core.value import Value
from service.exports.filename import content_disposition
from service.exports.plans import PLAN_COLUMNS
from service.exports.table import cell_text, csv_stream
from service.plans import read
from service.plans.errors import PlanNotFound
from service.plans.identity import plan_etag
from service.plans.repository import PlanFilters

JSON = "application/json"
RFC_3339 = re.compile(r"[0-9-]{10}[Tt][0-9:]{8}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})")
NameContains = Annotated[
    str | None,
    QueryParameter(
        min_length=1, max_length=200, pattern=r"^[^\x00]*$", description="Part of the name."
    ),
]
Feasible = Annotated[bool | None, QueryParameter(description="Only those that are, or are not.")]
CatalogRelease = Annotated[
    str | None, QueryParameter(max_length=40, pattern=r"^[0-9.]+$", description="A version.")
]
CreatedAfter = Annotated[
    str | None,
    QueryParameter(description="Made after this time.", schema_extra={"format": "date-time"}),
]
CreatedBefore = Annotated[
    str | None,
    QueryParameter(description="Made before this time.", schema_extra={"format": "date-time"}),
]
RETIRED_HEADER = ResponseHeader(
    name="Catalog-Release-Retired-At",
    description="When the catalog release that the plan rests on was retired; absent while it is"
    " not. The plan itself never changes, so its bytes do not say so.",
    documentation_only=True,
)
DerivedFrom = Annotated[UUID | None, QueryParameter(description="Re-runs of this plan.")]


class PlanPage(Value):
    """Some plans, newest first."""

    items: tuple[PlanSummary, ...]
    """The plans of this page."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


def _instant(parameter: str, text: str | None) -> datetime | None:
    """Read a time of RFC 3339; Litestar's own reader takes bare numbers and times of no zone."""
    if text is None:
        return None
    if RFC_3339.fullmatch(text):
        # In UTC, as it is compared: a time of the first or last day may have no year there.
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    detail = (
        'This should be a time with its zone, such as "2027-01-31T12:00:00Z", in the years 1 to '
        "9999 of UTC."
    )
    raise ProblemError(
        ProblemKind.VALIDATION,
        "A parameter is not acceptable; see errors.",
        errors=[FieldProblem(parameter=parameter, detail=detail)],
    )


async def plan_filters(
    *,
    name_contains: NameContains = None,
    feasible: Feasible = None,
    catalog_release: CatalogRelease = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    derived_from: DerivedFrom = None,
) -> PlanFilters:
    """Read which plans a list should hold."""
    return PlanFilters(
        name_contains=name_contains,
        feasible=feasible,
        catalog_release=catalog_release,
        created_after=_instant("created_after", created_after),
        created_before=_instant("created_before", created_before),
        derived_from=derived_from,
    )


FILTERS = {"filters": Provide(plan_filters)}


@get(
    "/v1/plans",
    operation_id="list_plans",
    tags=["plans"],
    dependencies=FILTERS,
    responses=problem_responses(422),
    response_headers=[LINK_HEADER],
)
async def list_plans(
    request: Request[Any, Any, Any],
    session: RequestSession,
    filters: NamedDependency[PlanFilters],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[PlanPage]:
    """List plans, newest first."""
    page = await read.plan_page(session, filters, cursor=cursor, limit=limit)
    body = PlanPage(items=page.items, next_cursor=page.next_cursor)
    return Response(body, headers=next_link(request, page.next_cursor))


@get(
    "/v1/plans.csv",
    operation_id="export_plans_csv",
    tags=["plans"],
    dependencies=FILTERS,
    media_type=CSV,
    responses=problem_responses(422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plans_csv(
    open_session: SessionOpener,
    filters: NamedDependency[PlanFilters],
    form: WantedForm,
) -> Stream:
    """Export the list of plans, one row each."""
    plans = read.stream_plans(open_session, filters)
    parts = csv_stream(PLAN_COLUMNS, plans, form=form)
    return await stream(parts, content_disposition("plans"))


@get(
    "/v1/plans/{plan_id:uuid}",
    operation_id="get_plan",
    tags=["plans"],
    responses=problem_responses(404),
    response_headers=[RETIRED_HEADER],
)
async def get_plan(plan_id: FromPath[UUID], request: Request[Any, Any, Any]) -> Response[Plan]:
    """Read a plan: the bytes that were answered when it was made.

    What has changed since stands beside them: `Catalog-Release-Retired-At`, within a second.
    """
    # The one hot read: what it needs is looked up without the detour of dependencies.
    stored = await request.app.state.plan_bodies.find(request.auth.team, plan_id)
    if stored is None:
        raise PlanNotFound(plan_id)
    headers = {"ETag": plan_etag(plan_id, stored.schema_version)}
    if retired_at := await request.app.state.retirements.of_plan(stored.body):
        headers["Catalog-Release-Retired-At"] = cell_text(retired_at)
    answer: Response[Any] = Response(stored.body, media_type=JSON, headers=headers)
    return answer
