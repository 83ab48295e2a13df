"""Add price books, in which a team keeps the prices that it has negotiated."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "price_book",
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint("team <> ''", name=op.f("ck_price_book_team_is_named")),
        sa.PrimaryKeyConstraint("team", "key", name=op.f("pk_price_book")),
    )
    op.execute("ALTER TABLE price_book ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE price_book FORCE ROW LEVEL SECURITY")  # holds for the owner, too
    op.execute(
        "CREATE POLICY team_only ON price_book USING (team = current_setting('gpuplan.team', true))"
    )


def downgrade() -> None:
    op.drop_table("price_book")
