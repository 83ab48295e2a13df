"""Migrations go up, down and up again to the same schema: the one that the tables declare."""

import io
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.db.errors import DatabaseError
from service.db.migrate import (
    MigrationStatus,
    expected_revision,
    migrate,
    migration_config,
    migration_connection,
    migration_status,
)
from service.db.session import make_engine
from service.db.tables import SERVICE_PRIVILEGES, TEAM_TABLES, PlanRow

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = ScriptDirectory.from_config(migration_config())
REVISIONS = [script.revision for script in reversed(list(SCRIPTS.walk_revisions()))]

# Everything that a migration of ours can make, as text that two states can be compared by.
SCHEMA = """
SELECT 'column', table_name, column_name, data_type, is_nullable, column_default,
    numeric_precision::text, numeric_scale::text
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid),
    condeferrable::text, NULL, NULL, NULL
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT 'index', tablename, indexname, indexdef, NULL, NULL, NULL, NULL
FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'type', typname, typtype::text, NULL, NULL, NULL, NULL, NULL
FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype IN ('e', 'd')
UNION ALL
SELECT 'policy', tablename, policyname, cmd, qual, with_check, roles::text, permissive
FROM pg_policies WHERE schemaname = 'public'
UNION ALL
SELECT 'table', relname, relrowsecurity::text, relforcerowsecurity::text, NULL, NULL, NULL, NULL
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), NULL, NULL, NULL, NULL
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, pg_get_functiondef(oid), NULL, NULL, NULL, NULL, NULL
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


@pytest.fixture
def empty_database(server):
    with server.clone(template="template0") as clone:
        yield clone


def schema(url):
    """What stands in a database, less Alembic's own table."""
    with psycopg.connect(url) as connection:
        return {row for row in connection.execute(SCHEMA) if row[1] != "alembic_version"}


def move(url, revision, direction):
    with migration_connection(url) as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        direction(config, revision)


def test_the_history_is_one_line_numbered_in_order():
    assert [f"{number:04}" for number in range(1, len(REVISIONS) + 1)] == REVISIONS
    assert SCRIPTS.get_heads() == [REVISIONS[-1]]


def test_every_migration_can_be_taken_back_and_repeated(empty_database):
    url = empty_database.owner_url
    for number, revision in enumerate(REVISIONS):
        before = schema(url)
        move(url, revision, command.upgrade)
        after = schema(url)
        assert after != before
        move(url, REVISIONS[number - 1] if number else "base", command.downgrade)
        assert schema(url) == before
        move(url, revision, command.upgrade)
        assert schema(url) == after


def test_the_migrations_make_the_tables_that_the_code_declares(database):
    with migration_connection(database.owner_url) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, PlanRow.metadata) == []


def test_four_processes_can_migrate_at_once(empty_database):
    program = "import sys; from service.db.migrate import migrate; migrate(*sys.argv[1:])"
    arguments = [
        sys.executable,
        "-c",
        program,
        empty_database.owner_url,
        empty_database.service_url,
    ]

    def run(_):
        return subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(4) as threads:
        assert [done.stderr for done in threads.map(run, range(4)) if done.returncode] == []
    with psycopg.connect(empty_database.service_url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
            (REVISIONS[-1],)
        ]


async def test_the_status_tells_what_is_missing(empty_database):
    engine = make_engine(empty_database.owner_url, pooled=False)
    before = await migration_status(engine)
    assert before == MigrationStatus(None, REVISIONS[-1])
    assert not before.is_current
    migrate(empty_database.owner_url)
    assert (await migration_status(engine)).is_current
    assert expected_revision() == REVISIONS[-1]


def test_every_table_says_what_the_role_that_serves_may_do(database):
    with psycopg.connect(database.owner_url) as connection:
        tables = {
            row[0]
            for row in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        }
    assert tables == set(SERVICE_PRIVILEGES)


def test_every_table_with_a_team_is_walled_off(database):
    with psycopg.connect(database.owner_url) as connection:
        walled = connection.execute(
            "SELECT relname FROM pg_class WHERE relforcerowsecurity AND relrowsecurity"
        )
        assert {row[0] for row in walled} == set(TEAM_TABLES)
    have_team = {n for n, table in PlanRow.metadata.tables.items() if "team" in table.columns}
    unreadable = {name for name, privileges in SERVICE_PRIVILEGES.items() if privileges is None}
    assert set(TEAM_TABLES) == have_team - unreadable


def test_a_role_that_is_above_row_level_security_may_not_serve(server, database):
    name = f"{server.template}_above"
    server.execute("CREATE ROLE {} LOGIN BYPASSRLS", name)
    try:
        with pytest.raises(DatabaseError, match="row-level security"):
            migrate(database.owner_url, f"postgresql://{name}@/ignored")
    finally:
        server.execute("DROP ROLE {}", name)


def test_a_role_that_the_owner_may_not_make_is_asked_for(database):
    with pytest.raises(DatabaseError, match="CREATE ROLE"):
        migrate(database.owner_url, "postgresql://gpuplan_missing_role@/ignored")


def test_the_role_that_serves_is_made_where_it_is_missing(server):
    name = f"{server.template}_new"
    server.execute("ALTER ROLE {} CREATEROLE", server.owner)
    try:
        with server.clone(template="template0") as clone:
            service_url = clone.service_url.replace(server.service, name)
            migrate(clone.owner_url, service_url)
            with psycopg.connect(service_url) as connection:
                assert connection.execute("SELECT count(*) FROM plan").fetchone() == (0,)
    finally:
        server.execute("ALTER ROLE {} NOCREATEROLE", server.owner)
        server.execute("DROP ROLE {}", name)


def test_an_address_without_a_role_is_refused(database):
    with pytest.raises(DatabaseError, match="must name its role"):
        migrate(database.owner_url, "postgresql:///gpuplan")


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(DatabaseError, match="cannot reach the database"):
        migrate("postgresql://nobody@127.0.0.1:1/nothing")


@pytest.mark.parametrize("number", range(len(REVISIONS)))
def test_the_linter_of_migrations_finds_nothing(number):
    """One at a time: in a file of several transactions it takes the first alone for one."""
    squawk = shutil.which("squawk", path=Path(sys.executable).parent)
    assert squawk, "the extra `lint` installs it"
    config = migration_config()
    config.output_buffer = io.StringIO()
    before = REVISIONS[number - 1] if number else "base"
    command.upgrade(config, f"{before}:{REVISIONS[number]}", sql=True)
    # Positions fit 32 bits; the length of the column in Alembic's own table is Alembic's choice.
    excluded = "--exclude=prefer-bigint-over-int,prefer-text-field"
    statements = config.output_buffer.getvalue()
    checked = subprocess.run(
        [squawk, excluded], input=statements, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
