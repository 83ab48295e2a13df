"""Teams see their own rows alone, whatever SQL the service's role runs; what is published stays."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from service.db.reads import ReadPool
from service.db.session import STATEMENT_LIMIT_MS, make_engine, team_session
from service.db.tables import (
    TEAM_TABLES,
    CatalogEntry,
    CatalogRelease,
    IdempotencyKey,
    PlanLine,
    PlanQuantity,
    PlanRow,
    PriceBookRow,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
RESTRICT_VIOLATION = "23001"


async def add_release(engine, version="2026.11.1"):
    async with engine.begin() as connection:
        await connection.execute(
            insert(CatalogRelease).values(
                version=version, digest=f"sha256:{version}", published_at=NOON, notes="first"
            )
        )
        await connection.execute(
            insert(CatalogEntry).values(
                release_version=version, kind="gpu", key="h100", position=1, document={"a": 1}
            )
        )


def plan_values(team, **changed):
    return {
        "id": uuid4(),
        "team": team,
        "name": "base case",
        "created_at": NOON,
        "schema_version": 1,
        "engine_version": "0.1.0",
        "catalog_version": "2026.11.1",
        "catalog_digest": "sha256:2026.11.1",
        "as_of_date": date(2026, 11, 29),
        "request_digest": "sha256:request",
        "feasible": True,
        "peak_gpu_count": 576,
        "gpu_hours": 1158607.252881,
        "amount": Decimal("7971217.90"),
        "cash_amount": Decimal("7971217.90"),
        "training_amount": Decimal("4114014.70"),
        "serving_amount": Decimal("3857203.20"),
        "currency": "USD",
        "line_count": 1,
        "body": b'{"name": "base case"}',
        **changed,
    }


async def add_plan(engine, team, **changed) -> UUID:
    """A plan with a line, a quantity and a key, so that each table of a team has a row."""
    values = plan_values(team, **changed)
    reference = {"plan_id": values["id"], "team": team}
    async with team_session(engine, team) as session:
        await session.execute(insert(PlanRow).values(values))
        await session.execute(
            insert(PlanLine).values(
                **reference,
                line_number=1,
                month="2027-01",
                charge_period_start=NOON,
                charge_period_end=NOON,
                pool="training",
                workload_kind="training",
                use="used",
                category="gpu_rental",
                quantity=1,
                unit="gpu_hour",
                unit_price=1,
                amount=1,
                cash_amount=1,
                currency="USD",
            )
        )
        await session.execute(
            insert(PlanQuantity).values(
                **reference,
                position=1,
                scope="plan",
                name="gpu_hours",
                unit="h",
                per="plan",
                formula="sum",
                inputs={},
                sources=[],
            )
        )
        await session.execute(
            insert(IdempotencyKey).values(**reference, key="k", request_digest="sha256:request")
        )
        await session.execute(
            insert(PriceBookRow).values(
                team=team,
                key="k",
                revision=1,
                digest="sha256:book",
                created_at=NOON,
                changed_at=NOON,
                document={},
            )
        )
    return values["id"]


async def sqlstate_of(engine, team, statement):
    with pytest.raises(DBAPIError) as caught:
        async with team_session(engine, team) as session:
            await session.execute(statement)
    return caught.value.orig.sqlstate


@pytest.mark.parametrize("table", TEAM_TABLES)
async def test_a_team_sees_its_own_rows_alone(engine, table):
    await add_release(engine)
    await add_plan(engine, "red")
    await add_plan(engine, "blue")
    for team in ("red", "blue"):
        async with team_session(engine, team) as session:
            rows = await session.execute(text(f"SELECT team FROM {table}"))
            assert rows.scalars().all() == [team]


@pytest.mark.parametrize("table", TEAM_TABLES)
async def test_without_a_team_no_row_is_seen(engine, table):
    await add_release(engine)
    await add_plan(engine, "red")
    async with engine.connect() as connection:
        assert await connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0


async def test_the_owner_of_the_tables_is_held_to_the_team_as_well(engine, database):
    await add_release(engine)
    await add_plan(engine, "red")
    owner = make_engine(database.owner_url, pooled=False)
    async with team_session(owner, "blue") as session:
        assert await session.scalar(select(func.count()).select_from(PlanRow)) == 0


async def test_a_row_of_another_team_cannot_be_written(engine):
    await add_release(engine)
    refused = insert(PlanRow).values(plan_values("blue"))
    assert await sqlstate_of(engine, "red", refused) == "42501"  # insufficient privilege


async def test_a_plan_cannot_derive_from_the_plan_of_another_team(engine):
    await add_release(engine)
    theirs = await add_plan(engine, "blue")
    with pytest.raises(IntegrityError):
        await add_plan(engine, "red", derived_from=theirs)


async def test_keys_of_two_teams_do_not_meet(engine):
    await add_release(engine)
    await add_plan(engine, "red")
    await add_plan(engine, "blue")  # the same key "k"
    with pytest.raises(IntegrityError):
        await add_plan(engine, "red")


async def test_the_team_ends_with_its_transaction(database):
    engine = make_engine(database.service_url)  # pooled: the next use has the same connection
    await add_release(engine)
    await add_plan(engine, "red")
    async with engine.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(PlanRow)) == 0
    await engine.dispose()


async def test_a_session_that_raises_leaves_nothing(engine):
    await add_release(engine)
    with pytest.raises(ZeroDivisionError):
        async with team_session(engine, "red") as session:
            await session.execute(insert(PlanRow).values(plan_values("red")))
            raise ZeroDivisionError
    async with team_session(engine, "red") as session:
        assert await session.scalar(select(func.count()).select_from(PlanRow)) == 0


async def test_a_feasible_plan_has_totals_and_an_infeasible_one_need_not(engine):
    await add_release(engine)
    await add_plan(engine, "red", feasible=False, amount=None, cash_amount=None)
    with pytest.raises(IntegrityError):
        await add_plan(engine, "blue", amount=None)


async def test_statements_are_cut_off(engine):
    async with engine.connect() as connection:
        shown = await connection.scalar(text("SHOW statement_timeout"))
    assert shown == f"{STATEMENT_LIMIT_MS // 1000}s"


@pytest.mark.parametrize("role", ["service_url", "owner_url"])
@pytest.mark.parametrize("table", [PlanRow, PlanLine, PlanQuantity])
async def test_a_stored_plan_never_changes(engine, database, role, table):
    await add_release(engine)
    await add_plan(engine, "red")
    user = make_engine(getattr(database, role), pooled=False)
    # The service's role lacks the privilege; the owner meets the trigger.
    expected = RESTRICT_VIOLATION if role == "owner_url" else "42501"
    for statement in (update(table).values(team="red"), delete(table)):
        assert await sqlstate_of(user, "red", statement) == expected


async def test_a_catalog_entry_never_changes(engine, database):
    await add_release(engine)
    for url, expected in (
        (database.owner_url, RESTRICT_VIOLATION),
        (database.service_url, "42501"),
    ):
        user = make_engine(url, pooled=False)
        for statement in (update(CatalogEntry).values(position=2), delete(CatalogEntry)):
            assert await sqlstate_of(user, "red", statement) == expected


async def test_a_release_can_be_retired_and_nothing_else(engine, database):
    await add_release(engine)
    async with engine.begin() as connection:
        await connection.execute(update(CatalogRelease).values(retired_at=NOON))
    owner = make_engine(database.owner_url, pooled=False)
    for statement in (update(CatalogRelease).values(notes="other"), delete(CatalogRelease)):
        assert await sqlstate_of(owner, "red", statement) == RESTRICT_VIOLATION
    async with engine.connect() as connection:
        release = (await connection.execute(select(CatalogRelease.__table__))).one()
    assert (release.retired_at, release.notes) == (NOON, "first")


async def test_the_hot_read_gives_the_stored_bytes_to_their_team_alone(engine, database):
    await add_release(engine)
    plan = await add_plan(engine, "red", body=b'{"name": "\xc3\xbc"}')
    async with ReadPool(database.service_url) as pool:
        query = "SELECT * FROM read_plan_body($1, $2)"
        row = await pool.fetch_row(query, "red", plan)
        assert (row["body"], row["request_digest"]) == (b'{"name": "\xc3\xbc"}', "sha256:request")
        assert await pool.fetch_row(query, "blue", plan) is None
        assert await pool.fetch_row(query, "red", uuid4()) is None
        # The connection keeps no team: the next statement on it sees nothing.
        assert list(await pool.fetch_row("SELECT count(*) FROM plan")) == [0]


async def test_the_role_that_serves_is_below_row_level_security(database):
    connection = await asyncpg.connect(database.service_url)
    row = await connection.fetchrow(
        "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles"
        " WHERE rolname = current_user"
    )
    await connection.close()
    assert list(row) == [False, False, False, False]
