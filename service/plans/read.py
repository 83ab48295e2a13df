"""Plans, lines and quantities by page, and whole tables batch by batch."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from service.core.estimates import CostLine, Quantity
from service.core.plans import Plan, PlanSummary
from service.db.csv_rows import CsvRows
from service.plans import repository, versions
from service.plans.cursors import (
    PlanPlace,
    plan_cursor,
    read_plan_cursor,
    read_row_cursor,
    row_cursor,
)
from service.plans.errors import PlanNotFound
from service.plans.repository import OpenSession, PlanFilters, QuantityFilters, Session

Item = TypeVar("Item")

MAX_PAGE_LIMIT = 200
DEFAULT_PAGE_LIMIT = 50
BATCH_ROWS = 500
"""Rows of one batch of a stream: some milliseconds of work between two chances for others."""
COPIED_ROWS = 5_000
"""Rows of one batch that the database writes: some MB, and next to no work here."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, in order."""

    items: tuple[Item, ...]
    next_cursor: str | None
    """Where the next page begins; None on the last one."""


async def read_summary(session: Session, plan_id: UUID) -> PlanSummary:
    """Read one plan as it stands in a list. Raises PlanNotFound."""
    summaries = await repository.read_summaries(session, [plan_id])
    if plan_id not in summaries:
        raise PlanNotFound(plan_id)
    return summaries[plan_id]


async def read_plan(session: Session, plan_id: UUID) -> Plan:
    """Read one plan with its scenario. Raises PlanNotFound."""
    stored = await repository.find_body(session, plan_id)
    if stored is None:
        raise PlanNotFound(plan_id)
    return versions.read_plan(stored.body, stored.schema_version)


async def plan_page(
    session: Session, filters: PlanFilters, *, cursor: str | None, limit: int
) -> Page[PlanSummary]:
    """Read one page of the plans of a team, newest first. Raises InvalidCursor."""
    after = None if cursor is None else read_plan_cursor(cursor)
    # One more than asked for tells whether there is a next page.
    found = await repository.list_plans(session, filters, after=after, limit=limit + 1)
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page(items, plan_cursor(_place(items[-1])) if more else None)


def _place(plan: PlanSummary) -> PlanPlace:
    return plan.created_at, plan.id


async def line_page(
    session: Session, plan_id: UUID, *, cursor: str | None, limit: int
) -> Page[CostLine]:
    """Read one page of a plan's lines. Raises PlanNotFound, InvalidCursor."""
    after = 0 if cursor is None else read_row_cursor("lines", cursor)
    await read_summary(session, plan_id)
    found = await repository.read_lines(session, plan_id, after=after, limit=limit + 1)
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page(items, row_cursor("lines", items[-1].line_number) if more else None)


async def quantity_page(
    session: Session,
    plan_id: UUID,
    filters: QuantityFilters,
    *,
    cursor: str | None,
    limit: int,
) -> Page[Quantity]:
    """Read one page of a plan's quantities. Raises PlanNotFound, InvalidCursor."""
    after = 0 if cursor is None else read_row_cursor("quantities", cursor)
    await read_summary(session, plan_id)
    found = await repository.read_quantities(
        session, plan_id, filters, after=after, limit=limit + 1
    )
    items = tuple(quantity for _, quantity in found[:limit])
    more = len(found) > limit
    return Page(items, row_cursor("quantities", found[limit - 1][0]) if more else None)


async def named_quantities(session: Session, plan_id: UUID, names: Sequence[str]) -> list[Quantity]:
    """Read the quantities of a plan that have these names, in all scopes."""
    filters = QuantityFilters(names=tuple(names))
    found = await repository.read_quantities(session, plan_id, filters, after=0, limit=None)
    return [quantity for _, quantity in found]


async def stream_plans(
    open_session: OpenSession, filters: PlanFilters
) -> AsyncIterator[Sequence[PlanSummary]]:
    """Read all plans of a list, newest first.

    Each batch has a transaction of its own, as in the other streams: what is stored never changes,
    and a reader who is slow holds no connection.
    """
    after: PlanPlace | None = None
    while True:
        async with open_session() as session:
            plans = await repository.list_plans(session, filters, after=after, limit=BATCH_ROWS)
        if plans:
            yield plans
        if len(plans) < BATCH_ROWS:
            return
        after = _place(plans[-1])


async def stream_lines(
    open_session: OpenSession, plan_id: UUID
) -> AsyncIterator[Sequence[CostLine]]:
    """Read all lines of a plan; nothing for a plan that is not there."""
    after = 0
    while True:
        async with open_session() as session:
            lines = await repository.read_lines(session, plan_id, after=after, limit=BATCH_ROWS)
        if lines:
            yield lines
        if len(lines) < BATCH_ROWS:
            return
        after = lines[-1].line_number


async def stream_lines_csv(
    open_session: OpenSession, plan_id: UUID, rows: CsvRows
) -> AsyncIterator[bytes]:
    """Read all lines of a plan as rows of CSV; nothing for a plan that is not there.

    While one batch is sent the next is read: one more is held, and no connection for it.
    """

    async def batch(after: int) -> tuple[bytes, int]:
        async with open_session() as session:
            return await repository.copy_lines(
                session, plan_id, rows, after=after, limit=COPIED_ROWS
            )

    after, count = 0, COPIED_ROWS
    coming = asyncio.create_task(batch(after))
    try:
        while count == COPIED_ROWS:
            content, count = await coming
            after += count
            if count == COPIED_ROWS:
                coming = asyncio.create_task(batch(after))
            if count:
                yield content
    finally:
        coming.cancel()


async def stream_quantities(
    open_session: OpenSession, plan_id: UUID, filters: QuantityFilters
) -> AsyncIterator[Sequence[Quantity]]:
    """Read all quantities of a plan; nothing for a plan that is not there."""
    after = 0
    while True:
        async with open_session() as session:
            found = await repository.read_quantities(
                session, plan_id, filters, after=after, limit=BATCH_ROWS
            )
        if found:
            yield [quantity for _, quantity in found]
        if len(found) < BATCH_ROWS:
            return
        after = found[-1][0]
