"""Brings a database to the newest revision, and gives the role that serves what it needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.errors import DatabaseError
from service.db.tables import SERVICE_FUNCTIONS, SERVICE_PRIVILEGES

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
ADVISORY_LOCK_KEY = 7_239_411_508  # any number that no other program of the same database uses

log = logging.getLogger("gpuplan")

ONE_ROLE = text(
    "SELECT EXISTS (SELECT FROM pg_tables WHERE tablename = 'plan' AND tableowner = current_user),"
    " rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
)


@dataclass(frozen=True)
class MigrationStatus:
    """The revision a database is at, and the one this code was written for."""

    applied: str | None
    expected: str

    @property
    def is_current(self) -> bool:
        """Whether the database is at the revision this code was written for."""
        return self.applied == self.expected


def migration_config() -> Config:
    """The configuration under which every migration runs, from here and from tests."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


@cache
def expected_revision() -> str:
    """The newest revision of this code."""
    head = ScriptDirectory.from_config(migration_config()).get_current_head()
    if head is None:
        raise DatabaseError(f"{MIGRATIONS} has no migrations.")
    return head


@contextmanager
def migration_connection(url: str) -> Iterator[Connection]:
    """A connection that alone may migrate its database; others wait for it to close.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool
    )
    try:
        connection = engine.connect()
    except DBAPIError as error:
        raise DatabaseError(f"cannot reach the database: {_first_line(error)}") from error
    with connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK_KEY})
        # A migration gives up rather than make all others queue behind it.
        connection.execute(text("SET lock_timeout = '5s'"))
        connection.commit()  # the lock is the connection's; migrations begin their own transactions
        yield connection


def migrate(url: str, service_url: str | None = None) -> None:
    """Bring a database to the newest revision; does nothing to one that is there.

    Args:
        url: address for the role that owns the tables.
        service_url: address for the role that serves; it is made if it is missing, and granted what
            it needs. None, or the owner's own role: one role does both.

    Raises:
        DatabaseError: the database cannot be reached, or the role that serves cannot be used.
    """
    with migration_connection(url) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except DBAPIError as error:
            raise DatabaseError(f"cannot migrate: {_first_line(error)}") from error
        if service_url is not None:
            _grant_service_role(connection, service_url)
            connection.commit()


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]


def _grant_service_role(connection: Connection, service_url: str) -> None:
    address = conninfo_to_dict(service_url)
    if not address.get("user"):
        raise DatabaseError("DATABASE_URL must name its role: postgresql://role@host/database.")
    role = str(address["user"])
    if role == connection.scalar(text("SELECT current_user")):
        _warn_about_one_role(connection, role)
        return
    _ensure_role(connection, role, address.get("password"))
    for table, privileges in SERVICE_PRIVILEGES.items():
        if privileges is not None:
            statement = sql.SQL("GRANT " + privileges + " ON {} TO {}")
            _execute(connection, statement.format(sql.Identifier(table), sql.Identifier(role)))
    for function in SERVICE_FUNCTIONS:
        statement = sql.SQL("GRANT EXECUTE ON FUNCTION " + function + " TO {}")
        _execute(connection, statement.format(sql.Identifier(role)))


def _warn_about_one_role(connection: Connection, role: str) -> None:
    owns, is_above = connection.execute(ONE_ROLE).one()
    if is_above:
        log.warning(
            "the role %r is above row-level security: nothing keeps teams apart. Set "
            "DATABASE_MIGRATION_URL to it, and DATABASE_URL to a restricted role.",
            role,
        )
    elif owns:
        log.warning("the role %r both owns the tables and serves; two roles are safer.", role)


def _ensure_role(connection: Connection, role: str, password: object) -> None:
    found = connection.execute(
        text("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = :role"), {"role": role}
    ).one_or_none()
    if found is None:
        statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        try:
            _execute(connection, statement.format(sql.Identifier(role), sql.Literal(password)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatabaseError(
                f"the role {role!r} of DATABASE_URL is missing, and the role of "
                "DATABASE_MIGRATION_URL may not make it. Make it with CREATE ROLE ... LOGIN."
            ) from error
    elif found[0]:
        raise DatabaseError(
            f"the role {role!r} of DATABASE_URL is above row-level security (SUPERUSER or "
            "BYPASSRLS): teams would see each other's plans. Name a restricted role."
        )


def _execute(connection: Connection, statement: sql.Composed) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101  migration_connection() made it
    driver.execute(statement)


async def migration_status(engine: AsyncEngine) -> MigrationStatus:
    """Compare the revision of a database with the one this code was written for."""
    async with engine.connect() as connection:
        applied = None
        if await connection.scalar(text("SELECT to_regclass('alembic_version') IS NOT NULL")):
            applied = await connection.scalar(text("SELECT version_num FROM alembic_version"))
    return MigrationStatus(applied, expected_revision())
