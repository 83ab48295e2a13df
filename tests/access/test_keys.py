"""Keys are random, shown once, kept as a hash, and good until they expire or are revoked."""

import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.access.errors import AccessError, KeyNotFound
from service.access.keys import KEY_PATTERN, create_key, hash_of, revoke_key
from service.access.repository import find_caller, list_keys, owner_transaction
from service.access.scopes import Caller, Scope
from service.db.errors import DatabaseError
from service.db.reads import ReadPool
from service.db.session import make_engine, team_session

NOW = datetime.now(UTC)
READ = (Scope.PLAN_READ,)


class Keys:
    """The keys of one database: managed as the owner, looked up as the service."""

    def __init__(self, database):
        self.database = database

    async def create(self, team="red", **changed):
        values = {"name": "notebook", "scopes": READ, "now": NOW, **changed}
        async with owner_transaction(self.database.owner_url) as connection:
            return await create_key(connection, team=team, **values)

    async def list(self, team=None):
        async with owner_transaction(self.database.owner_url) as connection:
            return await list_keys(connection, team)

    async def revoke(self, key_id, now=NOW):
        async with owner_transaction(self.database.owner_url) as connection:
            return await revoke_key(connection, key_id, now=now)

    async def caller(self, secret):
        async with ReadPool(self.database.service_url) as pool:
            return await find_caller(pool, hash_of(secret))


@pytest.fixture
def keys(database):
    return Keys(database)


async def test_a_key_is_found_by_itself_alone(keys):
    red = await keys.create("red", scopes=(Scope.PLAN_WRITE, Scope.PLAN_READ))
    blue = await keys.create("blue", scopes=(Scope.CATALOG_WRITE,))
    assert await keys.caller(red.secret) == Caller("red", frozenset({"plan:read", "plan:write"}))
    assert await keys.caller(blue.secret) == Caller("blue", frozenset({"catalog:write"}))
    assert await keys.caller(red.secret[:-1] + ("0" if red.secret[-1] != "0" else "1")) is None


async def test_keys_have_a_known_form_and_at_least_128_random_bits(keys):
    made = [(await keys.create()).secret for _ in range(8)]
    assert len(set(made)) == 8
    for secret in made:
        prefix, random = secret.split("_")
        assert prefix == "gpuplan"
        assert re.fullmatch("[0-9a-f]+", random)
        assert 4 * len(random) >= 128  # 4 bits a hexadecimal digit
        assert KEY_PATTERN.fullmatch(secret)


async def test_of_a_key_only_its_hash_is_kept(keys, database):
    made = await keys.create()
    connection = await asyncpg.connect(database.owner_url)
    row = await connection.fetchrow("SELECT * FROM api_key")
    await connection.close()
    assert row["key_hash"] == sha256(made.secret.encode()).digest()
    assert made.secret not in str(dict(row))
    assert made.secret.split("_")[1] not in str(dict(row))


@pytest.mark.parametrize(("days", "works"), [(-1, False), (1, True)])
async def test_a_key_works_until_it_expires(keys, days, works):
    made_at = NOW - timedelta(days=2)
    made = await keys.create(now=made_at, expires_at=NOW + timedelta(days=days))
    assert (await keys.caller(made.secret) is not None) is works


async def test_a_revoked_key_works_no_more_and_the_others_do(keys):
    first, second = await keys.create(), await keys.create()
    revoked = await keys.revoke(first.key.id)
    assert revoked.revoked_at == NOW
    assert await keys.caller(first.secret) is None
    assert await keys.caller(second.secret) is not None


async def test_revoking_twice_keeps_the_first_moment(keys):
    made = await keys.create()
    await keys.revoke(made.key.id)
    again = await keys.revoke(made.key.id, NOW + timedelta(hours=1))
    assert again.revoked_at == NOW


async def test_a_key_that_is_not_there_cannot_be_revoked(keys):
    unknown = uuid4()
    with pytest.raises(KeyNotFound, match=str(unknown)):
        await keys.revoke(unknown)


async def test_the_list_holds_the_keys_of_the_team_that_is_asked_for(keys):
    red = [await keys.create("red", name=name) for name in ("one", "two")]
    blue = await keys.create("blue", expires_at=NOW + timedelta(days=1))
    assert {key.id for key in await keys.list("red")} == {each.key.id for each in red}
    assert [key.team for key in await keys.list()] == ["blue", "red", "red"]
    assert await keys.list("blue") == [blue.key]
    assert await keys.list("green") == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"team": ""}, "name of a team"),
        ({"team": "Red"}, "name of a team"),
        ({"team": "red blue"}, "name of a team"),
        ({"team": "r" * 64}, "name of a team"),
        ({"name": ""}, "name of a key"),
        ({"name": "a\nb"}, "name of a key"),
        ({"name": "n" * 101}, "name of a key"),
        ({"scopes": ()}, "at least one scope"),
        ({"expires_at": NOW}, "never work"),
    ],
)
async def test_a_key_of_a_wrong_form_is_not_made(keys, changed, message):
    with pytest.raises(AccessError, match=message):
        await keys.create(**changed)
    assert await keys.list() == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM api_key",
        "SELECT team FROM api_key",
        "UPDATE api_key SET revoked_at = NULL",
        "DELETE FROM api_key",
        "INSERT INTO api_key SELECT gen_random_uuid(), 'a', 'b', '{c}', sha256('x'), now()",
        "TRUNCATE api_key",
    ],
)
async def test_the_role_that_serves_can_do_nothing_with_the_table_of_keys(keys, engine, statement):
    await keys.create("red")
    for team in ("red", "blue"):
        with pytest.raises(DBAPIError) as refused:
            async with team_session(engine, team) as session:
                await session.execute(text(statement))
        assert refused.value.orig.sqlstate == "42501"  # insufficient privilege


async def test_a_privilege_granted_by_mistake_shows_no_row(keys, engine, database, server):
    await keys.create("red")
    owner = make_engine(database.owner_url, pooled=False)
    async with owner.begin() as connection:
        await connection.execute(text(f'GRANT SELECT ON api_key TO "{server.service}"'))
    async with team_session(engine, "red") as session:
        assert await session.scalar(text("SELECT count(*) FROM api_key")) == 0


async def test_a_role_without_the_service_s_grants_cannot_look_keys_up(keys, database, server):
    made = await keys.create()
    name = f"{server.template}_stranger"
    server.execute(f"CREATE ROLE {{}} LOGIN PASSWORD '{server.password}'", name)
    try:
        stranger = database.service_url.replace(server.service, name)
        async with ReadPool(stranger) as pool:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await find_caller(pool, hash_of(made.secret))
    finally:
        server.execute("DROP ROLE {}", name)


async def test_a_table_of_the_caller_does_not_stand_in_for_the_table_of_keys(database, keys):
    """The function runs as the owner, so whose tables it reads must not be the caller's choice."""
    connection = await asyncpg.connect(database.service_url)
    await connection.execute(
        "CREATE TEMP TABLE api_key AS SELECT 'blue' AS team, '{plan:read}'::text[] AS scopes,"
        " sha256('x') AS key_hash, NULL::timestamptz AS revoked_at, NULL::timestamptz AS expires_at"
    )
    assert await connection.fetch("SELECT * FROM find_api_key(sha256('x'))") == []
    await connection.close()


async def test_the_restricted_role_is_told_which_role_manages_keys(database):
    with pytest.raises(DatabaseError, match="DATABASE_MIGRATION_URL"):
        async with owner_transaction(database.service_url) as connection:
            await list_keys(connection, None)


async def test_a_database_without_the_tables_is_to_be_migrated(server):
    with (
        server.clone(template="template0") as empty,
        pytest.raises(DatabaseError, match="gpuplan migrate"),
    ):
        async with owner_transaction(empty.owner_url):
            pass


async def test_a_database_that_is_not_there_is_named():
    with pytest.raises(DatabaseError, match="cannot reach the database"):
        async with owner_transaction("postgresql://nobody@127.0.0.1:1/nothing"):
            pass
