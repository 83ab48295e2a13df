"""`gpuplan key`: the key on standard output once, everything else beside it."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from service.access.keys import hash_of
from service.access.repository import find_caller
from service.access.scopes import Caller
from service.db.reads import ReadPool

GPUPLAN = Path(sys.executable).with_name("gpuplan")
CREATE = ["create", "--team", "red", "--name", "notebook", "--scope", "plan:read"]
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def run(*arguments, owner_url="", service_url=""):
    environment = {"DATABASE_URL": service_url, "DATABASE_MIGRATION_URL": owner_url}
    return subprocess.run(
        [GPUPLAN, "key", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


@pytest.fixture
def key(database):
    """Runs `gpuplan key` on the database of the test."""

    def run_on_database(*arguments):
        return run(*arguments, owner_url=database.owner_url, service_url=database.service_url)

    return run_on_database


def key_id(created):
    return re.search(ID, created.stderr)[0]


async def test_create_prints_the_key_and_nothing_else(key, database):
    done = key(*CREATE, "--scope", "plan:write")
    assert done.returncode == 0
    assert re.fullmatch(r"gpuplan_[0-9a-f]{40}\n", done.stdout)
    assert re.fullmatch(f"gpuplan: key {ID} of team red, shown this once:\n", done.stderr)
    async with ReadPool(database.service_url) as pool:
        caller = await find_caller(pool, hash_of(done.stdout.strip()))
    assert caller == Caller("red", frozenset({"plan:read", "plan:write"}))


async def test_a_key_expires_at_the_start_of_the_day_that_is_given(key, database):
    assert key(*CREATE, "--expires", TOMORROW).returncode == 0
    connection = await asyncpg.connect(database.owner_url)
    expires_at = await connection.fetchval("SELECT expires_at FROM api_key")
    await connection.close()
    assert expires_at.isoformat() == f"{TOMORROW}T00:00:00+00:00"


def test_list_shows_all_but_the_key(key):
    created = key(*CREATE, "--expires", TOMORROW)
    key("create", "--team", "blue", "--name", "ci", "--scope", "plan:read", "plan:write")
    done = key("list")
    today = datetime.now(UTC).date().isoformat()
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["ID", "TEAM", "NAME", "SCOPES", "CREATED", "EXPIRES", "STATE"]
    assert lines[1].split()[1:] == ["blue", "ci", "plan:read,plan:write", today, "never", "good"]
    assert lines[2].split() == [
        *(key_id(created), "red", "notebook", "plan:read", today, TOMORROW, "good")
    ]
    assert "gpuplan_" not in done.stdout
    assert key("list", "--team", "red").stdout.count("\n") == 2


def test_a_revoked_key_is_listed_as_such(key):
    created = key(*CREATE)
    revoked = key("revoke", key_id(created))
    assert revoked.stdout == f"gpuplan: key {key_id(created)} of team red (notebook) is revoked\n"
    assert key("list").stdout.splitlines()[1].endswith("  revoked")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["revoke", "00000000-0000-0000-0000-000000000000"], "there is no key 0000"),
        ([*CREATE, "--expires", "2020-01-01"], "would never work"),
        (["create", "--team", "Red", "--name", "x", "--scope", "plan:read"], "no name of a team"),
    ],
)
def test_what_cannot_be_done_is_one_line(key, arguments, message):
    done = key(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"gpuplan: .*{message}.*\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["create", "--team", "red", "--name", "x"],
        ["create", "--team", "red", "--name", "x", "--scope", "plan:all"],
        [*CREATE, "--expires", "tomorrow"],
        ["revoke", "12"],
    ],
)
def test_a_wrong_use_ends_with_two(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: gpuplan key" in done.stderr


def test_the_restricted_role_cannot_make_keys(database):
    done = run(*CREATE, service_url=database.service_url)
    assert done.returncode == 1
    assert re.fullmatch("gpuplan: .*set DATABASE_MIGRATION_URL.*\n", done.stderr)


def test_keys_of_the_embedded_database_are_made_while_nothing_serves(open_folder):
    data = ["--data", str(open_folder / "data")]
    made = run(*CREATE, *data)
    assert made.returncode == 0, made.stderr
    assert key_id(made) in run("list", *data).stdout
