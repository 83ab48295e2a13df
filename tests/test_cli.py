"""The `gpuplan` command: what it asks for, and each failure is one clear line."""

import json
import re
import signal
import subprocess

import httpx
import psycopg
import pytest

from service import __version__, cli, launch
from tests.command import EXAMPLE, GPUPLAN, assert_one_line, run, serving


def test_serve_uses_the_database_that_it_is_given(server, tmp_path):
    with server.clone(template="template0") as empty:
        urls = {
            "DATABASE_URL": empty.service_url,
            "DATABASE_MIGRATION_URL": empty.owner_url,
        }
        with serving(tmp_path, **urls) as running:
            assert httpx.get(f"{running.url}/health/ready").status_code == 200
            assert running.stop(signal.SIGTERM) == 0
        with psycopg.connect(empty.service_url) as connection:
            assert connection.execute("SELECT count(*) FROM plan").fetchone() == (0,)


def test_keys_of_the_embedded_database_are_made_while_it_serves(open_folder):
    data = ["--data", str(open_folder / "data")]
    with serving(open_folder, *data, ACCESS_MODE="keys") as running:
        assert "gpuplan: each request needs an API key" in running.output
        assert f"curl -s {running.url}/v1/plans -H 'Authorization: Bearer KEY' " in running.output
        assert httpx.get(f"{running.url}/v1/plans").status_code == 401
        made = run("key", "create", *data, "--team", "red", "--name", "x", "--scope", "plan:read")
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert httpx.get(f"{running.url}/v1/plans", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "embedded", "mode"),
    [
        ("127.0.0.1", True, "open"),
        ("localhost", True, "open"),
        ("::1", True, "open"),
        ("0.0.0.0", True, "keys"),
        ("::", True, "keys"),
        ("192.0.2.7", True, "keys"),
        ("127.0.0.1", False, "keys"),
    ],
)
def test_keys_are_asked_for_except_on_loopback_with_the_embedded_database(host, embedded, mode):
    databases = launch.Databases("service", "owner", object() if embedded else None)
    assert launch._default_access_mode(host, databases) == mode


def test_a_given_database_asks_for_keys_unless_told_otherwise(database, tmp_path):
    for environment, status in (({}, 401), ({"ACCESS_MODE": "open"}, 200)):
        with serving(tmp_path, DATABASE_URL=database.service_url, **environment) as running:
            assert httpx.get(f"{running.url}/v1/plans").status_code == status


def test_an_impossible_access_mode_is_named():
    assert_one_line(run("serve", ACCESS_MODE="none"), 2, "ACCESS_MODE: ")


def test_the_restricted_role_alone_can_serve_a_migrated_database(database, tmp_path):
    with serving(tmp_path, DATABASE_URL=database.service_url) as running:
        assert httpx.get(f"{running.url}/health/ready").status_code == 200
        assert "two roles are safer" not in running.output


def test_one_role_for_everything_is_told_that_two_are_safer(server, tmp_path):
    with (
        server.clone(template="template0") as empty,
        serving(tmp_path, DATABASE_URL=empty.owner_url) as running,
    ):
        assert "both owns the tables and serves; two roles are safer" in running.output


def test_a_database_and_a_folder_contradict_each_other():
    refused = run("serve", "--data", "x", DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert_one_line(refused, 2, "DATABASE_URL names another database")


def test_a_database_that_is_not_there_is_named():
    refused = run("serve", "--port", "0", DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert_one_line(refused, 1, "cannot reach the database")


def test_migrate_brings_a_database_to_the_newest_revision(server):
    with server.clone(template="template0") as empty:
        urls = {"DATABASE_URL": empty.service_url, "DATABASE_MIGRATION_URL": empty.owner_url}
        done = run("migrate", **urls)
        assert (done.returncode, done.stderr) == (0, "")
        again = run("migrate", **urls)
        assert again.stdout == done.stdout
        assert re.fullmatch(r"gpuplan: the database is at revision \d{4}\n", done.stdout)


def test_migrate_without_a_database_asks_for_one():
    assert_one_line(run("migrate"), 2, "set DATABASE_URL")


def test_a_role_that_may_not_migrate_is_told_so(server):
    with server.clone(template="template0") as empty:
        refused = run("migrate", DATABASE_URL=empty.service_url)
    assert_one_line(refused, 1, "cannot migrate: permission denied")


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["serve", "--port", "70000"], ["serve", "--workers", "0"], ["openapi"]],
)
def test_a_wrong_use_ends_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: gpuplan" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gpuplan {__version__}\n"


@pytest.fixture
def plan(capsys):
    """`gpuplan plan` in this process: the exit code and what was printed."""

    def run_here(path):
        exit_code = cli.main(["plan", str(path)])
        printed = capsys.readouterr()
        return subprocess.CompletedProcess([], exit_code, printed.out, printed.err)

    return run_here


def test_plan_prints_the_plan_of_a_request_without_a_server(plan):
    done = plan(EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    # 576 GPUs at 6.88 USD an hour: the totals that the contract states for this request.
    assert printed["totals"]["peak_gpu_count"] == 576
    assert printed["totals"]["gpu_hours"] == pytest.approx(1158607.252881, abs=1e-6)
    assert printed["totals"]["amount"] == "7971217.90"
    assert printed["line_count"] == 26
    assert printed["catalog_release"]["version"] == "unpublished"


def changed_example(folder, **changes):
    request = json.loads(EXAMPLE.read_text())
    path = folder / "scenario.json"
    path.write_text(json.dumps({**request, **changes}))
    return path


def test_a_fault_in_the_request_is_named_by_its_place(plan, tmp_path):
    scenario = json.loads(EXAMPLE.read_text())["scenario"]
    del scenario["pooling"]
    path = changed_example(tmp_path, scenario=scenario, name="")
    done = plan(path)
    assert done.returncode == 2
    assert re.search(rf"^gpuplan: {path}: /name: ", done.stderr, re.MULTILINE)
    assert re.search(rf"^{path}: /scenario/pooling: ", done.stderr, re.MULTILINE)


def test_a_published_release_needs_a_server(plan, tmp_path):
    path = changed_example(tmp_path, catalog_release="2026.11.1")
    assert_one_line(plan(path), 2, "/catalog_release must be latest")


def test_a_key_that_the_catalog_does_not_hold_is_named(plan, tmp_path):
    scenario = json.loads(EXAMPLE.read_text())["scenario"]
    scenario["training_runs"][0]["gpu"] = "no-such-gpu"
    path = changed_example(tmp_path, scenario=scenario)
    assert_one_line(plan(path), 2, "no-such-gpu")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file or directory"),
        ("{", "The body is not JSON"),
        ('{"name": NaN}', "NaN is not a JSON number"),
    ],
)
def test_a_file_that_is_no_request_is_refused(plan, tmp_path, content, complaint):
    path = tmp_path / "scenario.json"
    if content is not None:
        path.write_text(content)
    assert_one_line(plan(path), 2, complaint)


def test_a_reader_that_has_had_enough_is_no_fault():
    with subprocess.Popen(
        [GPUPLAN, "plan", str(EXAMPLE)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
