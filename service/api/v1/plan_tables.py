"""What stands under a plan: its cost lines and its quantities, by page and as files."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from service.api.dependencies import RequestSession, SessionOpener
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, stream
from service.api.pages import DEFAULT_LIMIT, LINK_HEADER, Cursor, Limit, next_link
from service.api.problems import problem_responses
from service.core.estimates import CostLine, Quantity
from service.core.value import Value
from service.db.csv_rows import CsvRows
from service.exports.filename import content_disposition
from service.exports.plan_lines import LINE_FIELDS, plan_constants, plan_line_columns
from service.exports.plan_quantities import plan_quantity_columns
from service.exports.table import FORMULA_START, cell_text, csv_bytes, csv_stream, with_head
from service.plans import read
from service.plans.repository import QuantityFilters

Scope = Annotated[
    str | None,
    QueryParameter(
        name="scope",
        max_length=220,
        pattern=r"^[^\x00]*$",
        description="plan, pool:NAME, run:NAME or service:NAME.",
    ),
]
Name = Annotated[
    str | None,
    QueryParameter(max_length=200, pattern=r"^[^\x00]*$", description="A published name."),
]


class LinePage(Value):
    """Some cost lines of a plan, in order."""

    items: tuple[CostLine, ...]
    """The lines of this page."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


class QuantityPage(Value):
    """Some quantities of a plan, in order."""

    items: tuple[Quantity, ...]
    """The quantities of this page."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


async def quantity_filters(quantity_scope: Scope = None, name: Name = None) -> QuantityFilters:
    """Read which quantities are wanted."""
    return QuantityFilters(scope=quantity_scope, name=name)


FILTERS = {"filters": Provide(quantity_filters)}


@get(
    "/v1/plans/{plan_id:uuid}/lines",
    operation_id="list_plan_lines",
    tags=["plans"],
    responses=problem_responses(404, 422),
    response_headers=[LINK_HEADER],
)
async def list_plan_lines(
    request: Request[Any, Any, Any],
    plan_id: FromPath[UUID],
    session: RequestSession,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[LinePage]:
    """List a plan's priced lines: month, pool, workload, category and use."""
    page = await read.line_page(session, plan_id, cursor=cursor, limit=limit)
    body = LinePage.model_construct(items=page.items, next_cursor=page.next_cursor)
    return Response(body, headers=next_link(request, page.next_cursor))


@get(
    "/v1/plans/{plan_id:uuid}/lines.csv",
    operation_id="export_plan_lines_csv",
    tags=["plans"],
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_lines_csv(
    plan_id: FromPath[UUID],
    open_session: SessionOpener,
    form: WantedForm,
) -> Stream:
    """Export a plan's priced lines; the sum of `amount` is the plan's total."""
    async with open_session() as session:
        plan = await read.read_summary(session, plan_id)
    rows = CsvRows(
        names=LINE_FIELDS,
        ending=tuple(cell_text(column.cell(None)) for column in plan_constants(plan)),
        formula_start=FORMULA_START,
        separator=form.separator,
        decimal_point=form.decimal_point,
    )
    head = csv_bytes(plan_line_columns(plan), (), form=form)
    parts = with_head(head, read.stream_lines_csv(open_session, plan_id, rows))
    return await stream(parts, content_disposition(plan.name, "lines"))


@get(
    "/v1/plans/{plan_id:uuid}/quantities",
    operation_id="list_plan_quantities",
    tags=["plans"],
    dependencies=FILTERS,
    responses=problem_responses(404, 422),
    response_headers=[LINK_HEADER],
)
async def list_plan_quantities(
    request: Request[Any, Any, Any],
    plan_id: FromPath[UUID],
    session: RequestSession,
    filters: NamedDependency[QuantityFilters],
    *,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[QuantityPage]:
    """List the numbers that a plan stands on, each with its formula, inputs and sources."""
    page = await read.quantity_page(session, plan_id, filters, cursor=cursor, limit=limit)
    body = QuantityPage.model_construct(items=page.items, next_cursor=page.next_cursor)
    return Response(body, headers=next_link(request, page.next_cursor))


@get(
    "/v1/plans/{plan_id:uuid}/quantities.csv",
    operation_id="export_plan_quantities_csv",
    tags=["plans"],
    dependencies=FILTERS,
    media_type=CSV,
    responses=problem_responses(404, 422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_quantities_csv(
    plan_id: FromPath[UUID],
    open_session: SessionOpener,
    filters: NamedDependency[QuantityFilters],
    form: WantedForm,
) -> Stream:
    """Export the numbers that a plan stands on, one row each."""
    async with open_session() as session:
        plan = await read.read_summary(session, plan_id)
    quantities = read.stream_quantities(open_session, plan_id, filters)
    parts = csv_stream(plan_quantity_columns(plan), quantities, form=form)
    return await stream(parts, content_disposition(plan.name, "quantities"))
