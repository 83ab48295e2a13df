"""Add API keys, which the role that serves can look up one at a time and never list."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Runs as the owner of the table: the role that serves has no privilege on it. The fixed search path
# keeps whoever calls it from putting a table of their own in the place of ours.
FIND_API_KEY = """
CREATE FUNCTION find_api_key(shown_hash bytea)
RETURNS TABLE (team text, scopes text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT api_key.team, api_key.scopes FROM api_key
    WHERE api_key.key_hash = shown_hash AND api_key.revoked_at IS NULL
        AND (api_key.expires_at IS NULL OR api_key.expires_at > now())
$$
"""


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("team <> ''", name=op.f("ck_api_key_team_is_named")),
        sa.CheckConstraint("cardinality(scopes) > 0", name=op.f("ck_api_key_has_scopes")),
        sa.CheckConstraint("length(key_hash) = 32", name=op.f("ck_api_key_hash_is_sha256")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_key_key_hash")),
    )
    # Without a policy: nobody but the owner sees a row, even where a privilege is granted.
    op.execute("ALTER TABLE api_key ENABLE ROW LEVEL SECURITY")
    op.execute(FIND_API_KEY)
    # Anybody may run a new function unless told otherwise.
    op.execute("REVOKE ALL ON FUNCTION find_api_key(bytea) FROM PUBLIC")


def downgrade() -> None:
    op.execute("DROP FUNCTION find_api_key(bytea)")
    op.drop_table("api_key")
