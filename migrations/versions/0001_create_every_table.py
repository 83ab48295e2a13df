"""Create every table, the walls between teams, and the immutability of what is published."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEAM_TABLES = ("plan", "plan_line", "plan_quantity", "idempotency_key")
IMMUTABLE_TABLES = ("catalog_entry", "plan", "plan_line", "plan_quantity")

# Restrict violation: a class 23 error, as every refusal by a constraint.
REFUSE_CHANGE = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % never change', TG_TABLE_NAME USING ERRCODE = '23001';
END
$$
"""
ALLOW_RETIREMENT = """
CREATE FUNCTION allow_retirement_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) - 'retired_at' = to_jsonb(OLD) - 'retired_at' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a release never changes; it can only be retired' USING ERRCODE = '23001';
END
$$
"""
# One statement, so one round trip without an explicit transaction: the setting lasts as long as it.
READ_PLAN_BODY = """
CREATE FUNCTION read_plan_body(reading_team text, wanted_plan uuid)
RETURNS TABLE (body bytea, request_digest text, schema_version integer)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('gpuplan.team', reading_team, true);
    RETURN QUERY
        SELECT plan.body, plan.request_digest, plan.schema_version
        FROM plan WHERE plan.id = wanted_plan;
END
$$
"""


def protect() -> None:
    """Row-level security by team, and triggers that refuse change."""
    for table in TEAM_TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")  # holds for the owner, too
        op.execute(
            f"CREATE POLICY team_only ON {table} "
            "USING (team = current_setting('gpuplan.team', true))"
        )
    op.execute(REFUSE_CHANGE)
    for table in IMMUTABLE_TABLES:
        op.execute(
            f"CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    op.execute(ALLOW_RETIREMENT)
    op.execute(
        "CREATE TRIGGER allow_retirement_only BEFORE UPDATE OR DELETE ON catalog_release "
        "FOR EACH ROW EXECUTE FUNCTION allow_retirement_only()"
    )
    op.execute(READ_PLAN_BODY)


def upgrade() -> None:
    op.create_table(
        "catalog_release",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_catalog_release")),
        sa.UniqueConstraint("digest", name=op.f("uq_catalog_release_digest")),
    )
    op.create_table(
        "catalog_entry",
        sa.Column("release_version", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["release_version"],
            ["catalog_release.version"],
            name=op.f("fk_catalog_entry_release_version_catalog_release"),
        ),
        sa.PrimaryKeyConstraint("release_version", "kind", "key", name=op.f("pk_catalog_entry")),
    )
    op.create_table(
        "plan",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("engine_version", sa.Text(), nullable=False),
        sa.Column("catalog_version", sa.Text(), nullable=False),
        sa.Column("catalog_digest", sa.Text(), nullable=False),
        sa.Column("as_of_date", sa.Date(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("derived_from", sa.Uuid(), nullable=True),
        sa.Column("feasible", sa.Boolean(), nullable=False),
        sa.Column("peak_gpu_count", sa.BigInteger(), nullable=True),
        sa.Column("gpu_hours", sa.Double(), nullable=True),
        sa.Column("amount", sa.Numeric(precision=18, scale=2), nullable=True),
        sa.Column("cash_amount", sa.Numeric(precision=18, scale=2), nullable=True),
        sa.Column("training_amount", sa.Numeric(precision=18, scale=2), nullable=True),
        sa.Column("serving_amount", sa.Numeric(precision=18, scale=2), nullable=True),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("line_count", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("team <> ''", name=op.f("ck_plan_team_is_named")),
        sa.CheckConstraint(
            "NOT feasible OR (peak_gpu_count IS NOT NULL AND gpu_hours IS NOT NULL"
            " AND amount IS NOT NULL AND cash_amount IS NOT NULL"
            " AND training_amount IS NOT NULL AND serving_amount IS NOT NULL)",
            name=op.f("ck_plan_feasible_has_totals"),
        ),
        sa.ForeignKeyConstraint(
            ["catalog_version"],
            ["catalog_release.version"],
            name=op.f("fk_plan_catalog_version_catalog_release"),
        ),
        sa.ForeignKeyConstraint(
            ["derived_from", "team"],
            ["plan.id", "plan.team"],
            name=op.f("fk_plan_derived_from_team_plan"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan")),
        sa.UniqueConstraint("id", "team", name=op.f("uq_plan_id_team")),
    )
    op.create_index(
        "ix_plan_team_created_at_id",
        "plan",
        ["team", sa.literal_column("created_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_table(
        "idempotency_key",
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["plan_id", "team"],
            ["plan.id", "plan.team"],
            name=op.f("fk_idempotency_key_plan_id_team_plan"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("team", "key", name=op.f("pk_idempotency_key")),
    )
    op.create_index(
        op.f("ix_idempotency_key_team_created_at"),
        "idempotency_key",
        ["team", "created_at"],
        unique=False,
    )
    op.create_table(
        "plan_line",
        sa.Column("plan_id", sa.Uuid(), nullable=False),
        sa.Column("line_number", sa.Integer(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("charge_period_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("charge_period_end", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("workload_kind", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=True),
        sa.Column("use", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("site", sa.Text(), nullable=True),
        sa.Column("purchase_kind", sa.Text(), nullable=True),
        sa.Column("quantity", sa.Numeric(precision=24, scale=6), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("unit_price", sa.Numeric(precision=24, scale=6), nullable=False),
        sa.Column("amount", sa.Numeric(precision=18, scale=2), nullable=False),
        sa.Column("cash_amount", sa.Numeric(precision=18, scale=2), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.BigInteger(), nullable=True),
        sa.Column("formula", sa.Text(), nullable=True),
        sa.Column("price_source", sa.Text(), nullable=True),
        sa.Column("price_as_of_date", sa.Date(), nullable=True),
        sa.Column("price_verified", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(
            ["plan_id", "team"],
            ["plan.id", "plan.team"],
            name=op.f("fk_plan_line_plan_id_team_plan"),
        ),
        sa.PrimaryKeyConstraint("plan_id", "line_number", name=op.f("pk_plan_line")),
    )
    op.create_table(
        "plan_quantity",
        sa.Column("plan_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("per", sa.Text(), nullable=False),
        sa.Column("formula", sa.Text(), nullable=False),
        sa.Column("inputs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("sources", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan_id", "team"],
            ["plan.id", "plan.team"],
            name=op.f("fk_plan_quantity_plan_id_team_plan"),
        ),
        sa.PrimaryKeyConstraint("plan_id", "position", name=op.f("pk_plan_quantity")),
    )
    op.create_index(
        op.f("ix_plan_quantity_plan_id_scope_name"),
        "plan_quantity",
        ["plan_id", "scope", "name"],
        unique=False,
    )
    protect()


def downgrade() -> None:
    op.execute("DROP FUNCTION read_plan_body(text, uuid)")
    op.drop_index(op.f("ix_plan_quantity_plan_id_scope_name"), table_name="plan_quantity")
    op.drop_table("plan_quantity")
    op.drop_table("plan_line")
    op.drop_index(op.f("ix_idempotency_key_team_created_at"), table_name="idempotency_key")
    op.drop_table("idempotency_key")
    op.drop_index("ix_plan_team_created_at_id", table_name="plan")
    op.drop_table("plan")
    op.drop_table("catalog_entry")
    op.drop_table("catalog_release")
    op.execute("DROP FUNCTION refuse_change()")
    op.execute("DROP FUNCTION allow_retirement_only()")
