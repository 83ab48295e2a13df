"""The tables, and what the role that serves may do with each.

Row-level security, triggers and functions are written in the migrations. Bulk inserts into tables
under row-level security go through INSERT: PostgreSQL refuses COPY there.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Numeric,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from service.db.base import Base

Money = Numeric(18, 2)
Precise = Numeric(24, 6)
Instant = DateTime(timezone=True)

SERVICE_PRIVILEGES = {
    "alembic_version": "SELECT",
    "catalog_release": "SELECT, INSERT, UPDATE (retired_at)",
    "catalog_entry": "SELECT, INSERT",
    "plan": "SELECT, INSERT",
    "plan_line": "SELECT, INSERT",
    "plan_quantity": "SELECT, INSERT",
    "idempotency_key": "SELECT, INSERT, UPDATE, DELETE",
    "price_book": "SELECT, INSERT, UPDATE, DELETE",
    "api_key": None,
}
"""What the role that serves is granted on each table; None: nothing at all."""

SERVICE_FUNCTIONS = ("find_api_key(bytea)",)
"""Functions that run as the owner of the tables, and that only the role that serves may call."""

TEAM_TABLES = ("plan", "plan_line", "plan_quantity", "idempotency_key", "price_book")
"""Tables whose rows belong to a team and are seen by that team alone."""


class CatalogRelease(Base):
    """One published state of the catalog. Only its retirement may be set later."""

    __tablename__ = "catalog_release"

    version: Mapped[str] = mapped_column(Text, primary_key=True)
    digest: Mapped[str] = mapped_column(Text, unique=True)
    published_at: Mapped[datetime] = mapped_column(Instant)
    retired_at: Mapped[datetime | None] = mapped_column(Instant)
    notes: Mapped[str] = mapped_column(Text)


class CatalogEntry(Base):
    """One entry of a release, as the document that was read from its file."""

    __tablename__ = "catalog_entry"

    release_version: Mapped[str] = mapped_column(
        Text, ForeignKey("catalog_release.version"), primary_key=True
    )
    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    position: Mapped[int]
    document: Mapped[Any] = mapped_column(JSONB)


class PlanRow(Base):
    """A stored plan: the bytes that were answered, beside the columns that lists filter by.

    Totals are null only where the plan is infeasible.
    """

    __tablename__ = "plan"

    id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    team: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Instant)
    schema_version: Mapped[int]
    engine_version: Mapped[str] = mapped_column(Text)
    catalog_version: Mapped[str] = mapped_column(Text, ForeignKey("catalog_release.version"))
    catalog_digest: Mapped[str] = mapped_column(Text)
    as_of_date: Mapped[date] = mapped_column(Date)
    request_digest: Mapped[str] = mapped_column(Text)
    derived_from: Mapped[UUID | None] = mapped_column(Uuid)
    feasible: Mapped[bool]
    peak_gpu_count: Mapped[int | None] = mapped_column(BigInteger)
    gpu_hours: Mapped[float | None] = mapped_column(Double)
    amount: Mapped[Decimal | None] = mapped_column(Money)
    cash_amount: Mapped[Decimal | None] = mapped_column(Money)
    training_amount: Mapped[Decimal | None] = mapped_column(Money)
    serving_amount: Mapped[Decimal | None] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(Text)
    line_count: Mapped[int]
    body: Mapped[bytes]

    __table_args__ = (
        CheckConstraint("team <> ''", name="team_is_named"),
        CheckConstraint(
            "NOT feasible OR (peak_gpu_count IS NOT NULL AND gpu_hours IS NOT NULL"
            " AND amount IS NOT NULL AND cash_amount IS NOT NULL"
            " AND training_amount IS NOT NULL AND serving_amount IS NOT NULL)",
            name="feasible_has_totals",
        ),
        UniqueConstraint("id", "team"),  # what refers to a plan belongs to its team
        ForeignKeyConstraint(["derived_from", "team"], ["plan.id", "plan.team"]),
        Index("ix_plan_team_created_at_id", "team", text("created_at DESC"), text("id DESC")),
    )


class PlanLine(Base):
    """One cost line of a plan."""

    __tablename__ = "plan_line"

    plan_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    line_number: Mapped[int] = mapped_column(primary_key=True)
    team: Mapped[str] = mapped_column(Text)
    month: Mapped[str] = mapped_column(Text)
    charge_period_start: Mapped[datetime] = mapped_column(Instant)
    charge_period_end: Mapped[datetime] = mapped_column(Instant)
    pool: Mapped[str] = mapped_column(Text)
    workload_kind: Mapped[str] = mapped_column(Text)
    workload: Mapped[str | None] = mapped_column(Text)
    use: Mapped[str] = mapped_column(Text)
    category: Mapped[str] = mapped_column(Text)
    gpu: Mapped[str | None] = mapped_column(Text)
    provider: Mapped[str | None] = mapped_column(Text)
    region: Mapped[str | None] = mapped_column(Text)
    site: Mapped[str | None] = mapped_column(Text)
    purchase_kind: Mapped[str | None] = mapped_column(Text)
    quantity: Mapped[Decimal] = mapped_column(Precise)
    unit: Mapped[str] = mapped_column(Text)
    unit_price: Mapped[Decimal] = mapped_column(Precise)
    amount: Mapped[Decimal] = mapped_column(Money)
    cash_amount: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(Text)
    gpu_count: Mapped[int | None] = mapped_column(BigInteger)
    formula: Mapped[str | None] = mapped_column(Text)
    price_source: Mapped[str | None] = mapped_column(Text)
    price_as_of_date: Mapped[date | None] = mapped_column(Date)
    price_verified: Mapped[bool | None]

    __table_args__ = (ForeignKeyConstraint(["plan_id", "team"], ["plan.id", "plan.team"]),)


class PlanQuantity(Base):
    """One named number of a plan, with the formula that made it, what went in, and its sources."""

    __tablename__ = "plan_quantity"

    plan_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    team: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    value: Mapped[float | None] = mapped_column(Double)
    low: Mapped[float | None] = mapped_column(Double)
    high: Mapped[float | None] = mapped_column(Double)
    unit: Mapped[str] = mapped_column(Text)
    per: Mapped[str] = mapped_column(Text)
    formula: Mapped[str] = mapped_column(Text)
    inputs: Mapped[dict[str, Any]] = mapped_column(JSONB)
    sources: Mapped[list[str]] = mapped_column(ARRAY(Text))

    __table_args__ = (
        ForeignKeyConstraint(["plan_id", "team"], ["plan.id", "plan.team"]),
        Index(None, "plan_id", "scope", "name"),
    )


class IdempotencyKey(Base):
    """A key under which a team has created a plan.

    The plan is checked at the end of the transaction, so that the key can be taken before it.
    """

    __tablename__ = "idempotency_key"

    team: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    request_digest: Mapped[str] = mapped_column(Text)
    plan_id: Mapped[UUID] = mapped_column(Uuid)
    created_at: Mapped[datetime] = mapped_column(Instant, server_default=func.now())

    __table_args__ = (
        ForeignKeyConstraint(
            ["plan_id", "team"],
            ["plan.id", "plan.team"],
            deferrable=True,
            initially="DEFERRED",
        ),
        Index(None, "team", "created_at"),  # to find those that have run out
    )


class PriceBookRow(Base):
    """Prices that a team has negotiated; plans keep a copy of what they use."""

    __tablename__ = "price_book"

    team: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    revision: Mapped[int]
    digest: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Instant)
    changed_at: Mapped[datetime] = mapped_column(Instant)
    document: Mapped[Any] = mapped_column(JSONB)

    __table_args__ = (CheckConstraint("team <> ''", name="team_is_named"),)


class ApiKeyRow(Base):
    """A key that was given to a team; of the key itself only the hash is kept.

    The role that serves cannot read this table: it asks `find_api_key` about one hash at a time.
    """

    __tablename__ = "api_key"

    id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    team: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    key_hash: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(Instant)
    expires_at: Mapped[datetime | None] = mapped_column(Instant)
    revoked_at: Mapped[datetime | None] = mapped_column(Instant)

    __table_args__ = (
        CheckConstraint("team <> ''", name="team_is_named"),
        CheckConstraint("cardinality(scopes) > 0", name="has_scopes"),
        CheckConstraint("length(key_hash) = 32", name="hash_is_sha256"),
    )
