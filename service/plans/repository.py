"""All SQL on plans: values in, values out, on a session that already carries its team."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    TextClause,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.estimates import CostLine, FleetEstimate, PlanTotals, Quantity
from service.core.plans import Plan, PlanSummary
from service.db.csv_rows import CsvRows, copy_csv
from service.db.reads import ReadPool
from service.db.tables import CatalogRelease, IdempotencyKey, PlanLine, PlanQuantity, PlanRow
from service.plans.cursors import PlanPlace

Session = AsyncSession
"""A session over one transaction of one team, as `team_session` opens it."""

AnyRow = Row[*tuple[Any, ...]]

INSERT_ROWS = 5_000
"""Rows of one statement: bounds its text, and the copy the server makes of it, to some MB."""
DROPPED_KEYS = 100
"""Keys that one request drops at most."""

_LINES: TypeAdapter[Sequence[CostLine]] = TypeAdapter(Sequence[CostLine])
_QUANTITIES: TypeAdapter[Sequence[Quantity]] = TypeAdapter(Sequence[Quantity])


class OpenSession(Protocol):
    """Opens a session of the team that asks."""

    def __call__(self) -> AbstractAsyncContextManager[Session]:
        """Open it; it ends with the block."""


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A plan as the bytes that were answered when it was made."""

    body: bytes
    schema_version: int


@dataclass(frozen=True, slots=True)
class PlanFilters:
    """Which plans a list holds; None takes all."""

    name_contains: str | None = None
    """Part of the name, whatever its case."""
    feasible: bool | None = None
    catalog_release: str | None = None
    created_after: datetime | None = None
    """Not included."""
    created_before: datetime | None = None
    """Not included."""
    derived_from: UUID | None = None


@dataclass(frozen=True, slots=True)
class QuantityFilters:
    """Which quantities of a plan are wanted; None takes all."""

    scope: str | None = None
    name: str | None = None
    names: tuple[str, ...] | None = None
    """Any of these."""


@dataclass(frozen=True, slots=True)
class KeptKey:
    """What an idempotency key stands for."""

    fingerprint: str
    plan_id: UUID


def _bulk_insert(model: type[PlanLine | PlanQuantity], *, number: str) -> TextClause:
    """Insert rows given as one JSON array of objects: one statement, where COPY is refused.

    The column `number` counts the objects of the array from 1, after those of arrays before.
    """
    table = model.__tablename__
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    given = [c for c in model.__table__.columns if c.name not in {"plan_id", "team", number}]
    typed = ", ".join(f"{c.name} {c.type.compile(dialect)}" for c in given)
    names = ", ".join(c.name for c in given)
    return text(
        f"INSERT INTO {table} (plan_id, team, {number}, {names})"  # noqa: S608 our own names
        f" SELECT CAST(:plan_id AS uuid), CAST(:team AS text),"
        f" CAST(:offset AS integer) + ordinality, {names}"
        f" FROM ROWS FROM (json_to_recordset(CAST(:rows AS json)) AS ({typed})) WITH ORDINALITY"
    )


_INSERT_LINES = _bulk_insert(PlanLine, number="line_number")
_INSERT_QUANTITIES = _bulk_insert(PlanQuantity, number="position")


async def insert_plan(session: Session, plan: Plan, body: bytes, answer: FleetEstimate) -> None:
    """Store a plan as its bytes, and the lines and quantities of its estimate as rows."""
    await session.execute(insert(PlanRow).values(_plan_values(plan, body)))
    owner = {"plan_id": plan.id, "team": plan.team}
    for offset in range(0, len(answer.lines), INSERT_ROWS):
        rows = _LINES.dump_json(answer.lines[offset : offset + INSERT_ROWS]).decode()
        await session.execute(_INSERT_LINES, {**owner, "offset": offset, "rows": rows})
    for offset in range(0, len(answer.quantities), INSERT_ROWS):
        rows = _QUANTITIES.dump_json(answer.quantities[offset : offset + INSERT_ROWS]).decode()
        await session.execute(_INSERT_QUANTITIES, {**owner, "offset": offset, "rows": rows})


def _plan_values(plan: Plan, body: bytes) -> dict[str, Any]:
    totals = {} if plan.totals is None else plan.totals.model_dump(exclude={"currency"})
    return {
        "id": plan.id,
        "team": plan.team,
        "name": plan.name,
        "created_at": plan.created_at,
        "schema_version": plan.schema_version,
        "engine_version": plan.engine_version,
        "catalog_version": plan.catalog_release.version,
        "catalog_digest": plan.catalog_release.digest,
        "as_of_date": plan.as_of_date,
        "request_digest": plan.request_digest,
        "derived_from": plan.derived_from,
        "feasible": plan.feasible,
        "currency": plan.scenario.currency,
        "line_count": plan.line_count,
        "body": body,
        **totals,
    }


async def read_body(pool: ReadPool, team: str, plan_id: UUID) -> StoredBody | None:
    """Read a plan's bytes in one round trip, without a session: the one hot read."""
    statement = "SELECT body, schema_version FROM read_plan_body($1, $2)"
    row = await pool.fetch_row(statement, team, plan_id)
    return None if row is None else StoredBody(*row)


async def find_body(session: Session, plan_id: UUID) -> StoredBody | None:
    """Read a plan's bytes inside a transaction."""
    query = select(PlanRow.body, PlanRow.schema_version).where(PlanRow.id == plan_id)
    row = (await session.execute(query)).one_or_none()
    return None if row is None else StoredBody(*row)


_SUMMARY = select(
    PlanRow.id,
    PlanRow.name,
    PlanRow.created_at,
    PlanRow.catalog_version.label("catalog_release"),
    CatalogRelease.retired_at.label("catalog_release_retired_at"),
    PlanRow.as_of_date,
    PlanRow.engine_version,
    PlanRow.derived_from,
    PlanRow.feasible,
    PlanRow.currency,
    PlanRow.peak_gpu_count,
    PlanRow.gpu_hours,
    PlanRow.amount,
    PlanRow.cash_amount,
    PlanRow.training_amount,
    PlanRow.serving_amount,
).join(CatalogRelease, CatalogRelease.version == PlanRow.catalog_version)


def _summary(row: AnyRow) -> PlanSummary:
    values = dict(row._mapping)  # noqa: SLF001 documented, and underscored for columns' sake
    totals = {name: values.pop(name) for name in PlanTotals.model_fields if name != "currency"}
    known = PlanTotals(**totals, currency=row.currency) if row.feasible else None
    return PlanSummary(**values, totals=known)


async def read_summaries(session: Session, plan_ids: Sequence[UUID]) -> dict[UUID, PlanSummary]:
    """Read plans as they stand in a list; those that the team lacks are left out."""
    rows = await session.execute(_SUMMARY.where(PlanRow.id.in_(plan_ids)))
    return {row.id: _summary(row) for row in rows}


async def list_plans(
    session: Session, filters: PlanFilters, *, after: PlanPlace | None, limit: int
) -> list[PlanSummary]:
    """List plans, newest first, from the place after a given one."""
    query = _SUMMARY.where(*_conditions(filters))
    if after is not None:
        query = query.where(tuple_(PlanRow.created_at, PlanRow.id) < after)
    ordered = query.order_by(PlanRow.created_at.desc(), PlanRow.id.desc()).limit(limit)
    return [_summary(row) for row in await session.execute(ordered)]


def _conditions(filters: PlanFilters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.name_contains is not None:
        wanted = func.lower(filters.name_contains)
        conditions.append(func.strpos(func.lower(PlanRow.name), wanted) > 0)
    if filters.feasible is not None:
        conditions.append(PlanRow.feasible.is_(filters.feasible))
    if filters.catalog_release is not None:
        conditions.append(PlanRow.catalog_version == filters.catalog_release)
    if filters.created_after is not None:
        conditions.append(PlanRow.created_at > filters.created_after)
    if filters.created_before is not None:
        conditions.append(PlanRow.created_at < filters.created_before)
    if filters.derived_from is not None:
        conditions.append(PlanRow.derived_from == filters.derived_from)
    return conditions


def _columns(model: type[PlanLine | PlanQuantity]) -> Select[Any]:
    columns = model.__table__.columns
    return select(*(c for c in columns if c.name not in {"plan_id", "team"}))


_LINE_COLUMNS = _columns(PlanLine)
_QUANTITY_COLUMNS = _columns(PlanQuantity)


async def read_lines(session: Session, plan_id: UUID, *, after: int, limit: int) -> list[CostLine]:
    """Read lines in order, from the one after a line number.

    Line numbers have no gaps, so a range of them stands for the limit: with `LIMIT`, the planner
    sorts all the rest of a plan for every batch until the table is next analysed.
    """
    wanted = PlanLine.line_number.between(after + 1, after + limit)
    query = _LINE_COLUMNS.where(PlanLine.plan_id == plan_id, wanted).order_by(PlanLine.line_number)
    return [_line(row) for row in await session.execute(query)]


def _line(row: AnyRow) -> CostLine:
    """Make a line of a row; it was checked when it was stored, so it is not checked again.

    The table holds six decimals of every quantity and price; none is printed beyond the last digit
    that counts.
    """
    values = dict(row._mapping)  # noqa: SLF001 see `_summary`
    values["quantity"] = row.quantity.normalize()
    values["unit_price"] = row.unit_price.normalize()
    return CostLine.model_construct(**values)


async def copy_lines(
    session: Session, plan_id: UUID, rows: CsvRows, *, after: int, limit: int
) -> tuple[bytes, int]:
    """Read lines as rows of CSV and say how many, from the one after a line number."""
    condition = "plan_id = $1 AND line_number BETWEEN $2 AND $3 ORDER BY line_number"
    return await copy_csv(session, PlanLine, rows, condition, plan_id, after + 1, after + limit)


async def read_quantities(
    session: Session, plan_id: UUID, filters: QuantityFilters, *, after: int, limit: int | None
) -> list[tuple[int, Quantity]]:
    """Read quantities with their positions, in order, from the one after a position.

    Without a limit, all of them.
    """
    query = _QUANTITY_COLUMNS.where(PlanQuantity.plan_id == plan_id, PlanQuantity.position > after)
    if filters.scope is not None:
        query = query.where(PlanQuantity.scope == filters.scope)
    if filters.name is not None:
        query = query.where(PlanQuantity.name == filters.name)
    if filters.names is not None:
        query = query.where(PlanQuantity.name.in_(filters.names))
    rows = await session.execute(query.order_by(PlanQuantity.position).limit(limit))
    return [(row.position, _quantity(row)) for row in rows]


def _quantity(row: AnyRow) -> Quantity:
    values = dict(row._mapping)  # noqa: SLF001 see `_summary`
    del values["position"]
    values["sources"] = tuple(row.sources)
    return Quantity.model_construct(**values)


async def find_key(session: Session, team: str, key: str, *, since: datetime) -> KeptKey | None:
    """Find what a key has stood for since a time."""
    query = select(IdempotencyKey.request_digest, IdempotencyKey.plan_id).where(
        IdempotencyKey.team == team,
        IdempotencyKey.key == key,
        IdempotencyKey.created_at > since,
    )
    row = (await session.execute(query)).one_or_none()
    return None if row is None else KeptKey(*row)


async def keep_key(
    session: Session, team: str, key: str, kept: KeptKey, *, now: datetime, since: datetime
) -> bool:
    """Let a key stand for a plan; False when it has stood for another one since a time.

    Waits for a transaction that is keeping the same key.
    """
    values = {"request_digest": kept.fingerprint, "plan_id": kept.plan_id, "created_at": now}
    statement = postgresql.insert(IdempotencyKey).values(team=team, key=key, **values)
    written = await session.execute(
        statement.on_conflict_do_update(
            index_elements=["team", "key"], set_=values, where=IdempotencyKey.created_at <= since
        ).returning(IdempotencyKey.plan_id)
    )
    return written.one_or_none() is not None


async def drop_keys(session: Session, team: str, *, until: datetime) -> None:
    """Drop some keys that were kept up to a time.

    Those that another transaction is dropping are left to it: none waits for another.
    """
    expired = (
        select(IdempotencyKey.team, IdempotencyKey.key)
        .where(IdempotencyKey.team == team, IdempotencyKey.created_at <= until)
        .order_by(IdempotencyKey.created_at)
        .limit(DROPPED_KEYS)
        .with_for_update(skip_locked=True)
    )
    await session.execute(
        delete(IdempotencyKey).where(tuple_(IdempotencyKey.team, IdempotencyKey.key).in_(expired))
    )
