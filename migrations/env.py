"""Runs migrations over a locked connection, or prints them as SQL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from service.db.migrate import migration_connection
from service.db.tables import PlanRow
from service.settings import Settings

METADATA = PlanRow.metadata


def run(connection: Connection) -> None:
    """Run the migrations, each in a transaction of its own."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        compare_type=True,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    """Run over the connection handed in, or over one of our own."""
    given = context.config.attributes.get("connection")
    if given is not None:
        run(given)
        return
    url = Settings.from_environment().migration_url
    if url is None:
        raise SystemExit("set DATABASE_MIGRATION_URL or DATABASE_URL to the database to migrate.")
    with migration_connection(url) as connection:
        run(connection)


def print_offline() -> None:
    """Print the migrations as SQL, for review and for linters."""
    context.configure(
        dialect_name="postgresql",
        target_metadata=METADATA,
        literal_binds=True,
        transaction_per_migration=True,
    )
    context.execute("SET lock_timeout = '5s'")
    context.execute("SET statement_timeout = '60s'")
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    print_offline()
else:
    run_online()
