"""The `gpuplan` command: it serves until told to stop, and each failure is one clear line."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest

from service import __version__, cli, launch

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLE = CHECKOUT / "openapi" / "examples" / "create_plan.request.json"
GPUPLAN = Path(sys.executable).with_name("gpuplan")
ADDRESS = re.compile(r"^gpuplan: serving on (http://127\.0\.0\.1:\d+)$", re.MULTILINE)
START_LIMIT_S = 90
STOP_LIMIT_S = 60
OWN_DATABASE = {"DATABASE_URL": "", "DATABASE_MIGRATION_URL": "", "ACCESS_MODE": ""}


class Serving:
    """A running `gpuplan serve`."""

    def __init__(self, process, log):
        self.process = process
        self._log = log
        self.url = self._wait_for_address()

    @property
    def output(self):
        return self._log.read_text()

    def _wait_for_address(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := ADDRESS.search(self.output):
                return found[1]
            time.sleep(0.05)
        pytest.fail(f"no address was printed:\n{self.output}")

    def stop(self, signal_number):
        self.process.send_signal(signal_number)
        return self.process.wait(STOP_LIMIT_S)


@contextlib.contextmanager
def started(folder, *arguments, **environment):
    """A `gpuplan serve` that may still be starting."""
    with (folder / "serve.log").open("wb") as output:
        process = subprocess.Popen(
            [GPUPLAN, "serve", "--port", "0", "--workers", "1", *arguments],
            env={**os.environ, **OWN_DATABASE, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_LIMIT_S)


@contextlib.contextmanager
def serving(folder, *arguments, **environment):
    with started(folder, *arguments, **environment) as process:
        yield Serving(process, folder / "serve.log")


def run(*arguments, **environment):
    return subprocess.run(
        [GPUPLAN, *arguments],
        env={**os.environ, **OWN_DATABASE, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_LIMIT_S,
    )


def assert_one_line(done, exit_code, pattern):
    assert done.returncode == exit_code, done.stderr
    assert re.fullmatch(f"gpuplan: .*{pattern}.*\n", done.stderr), done.stderr
    assert done.stdout == ""


def pids_of(data):
    """Processes whose command line names the data folder: the launcher and the database."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(data).encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found


def database_pid(data):
    return int((data / "cluster" / "postmaster.pid").read_text().splitlines()[0])


def wait_until_nothing_runs(data):
    deadline = time.monotonic() + STOP_LIMIT_S
    while pids_of(data) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pids_of(data) == set()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_where_it_serves_and_ends_whole_when_told(open_folder, signal_number):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        assert httpx.get(f"{running.url}/health/ready").json() == {"status": "ok"}
        assert "gpuplan: open: whoever reaches this address acts as team 'local'" in running.output
        assert f"documentation at {running.url}/docs\n" in running.output
        assert f"curl -s {running.url}/v1/plans " in running.output
        assert httpx.get(f"{running.url}/docs").status_code == 200
        assert running.stop(signal_number) == 0
        wait_until_nothing_runs(data)
        with pytest.raises(httpx.ConnectError):
            httpx.get(running.url)


def test_a_request_in_flight_is_answered_before_the_end_and_its_plan_survives(open_folder):
    data = open_folder / "data"
    body = EXAMPLE.read_bytes()
    with serving(open_folder, "--data", str(data)) as running:
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=60)
        connection.putrequest("POST", "/v1/plans")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:-1])
        time.sleep(0.5)  # the worker has begun to read
        running.process.terminate()
        time.sleep(0.5)
        connection.send(body[-1:])
        answer = connection.getresponse()
        created = answer.read()
        connection.close()
        assert answer.status == 201, created
        assert running.process.wait(STOP_LIMIT_S) == 0
    with serving(open_folder, "--data", str(data)) as running:
        assert httpx.get(running.url + answer.headers["Location"]).content == created


@pytest.mark.parametrize(
    "moment", ["catalog release", ""], ids=["workers start", "database starts"]
)
def test_a_signal_during_the_start_ends_it_soon(open_folder, moment):
    data = open_folder / "data"
    log = open_folder / "serve.log"
    with started(open_folder, "--data", str(data)) as process:
        deadline = time.monotonic() + START_LIMIT_S
        while not (data.exists() and moment in log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        assert process.wait(STOP_LIMIT_S) == 0
        # No request is under way, so the time for requests to end is not spent.
        assert "refused to gracefully stop" not in log.read_text()
        assert "serving on" not in log.read_text()
        wait_until_nothing_runs(data)


def test_nothing_is_left_when_the_launcher_is_killed(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        running.process.kill()
        running.process.wait()
        wait_until_nothing_runs(data)
        deadline = time.monotonic() + STOP_LIMIT_S
        with pytest.raises(httpx.ConnectError):
            while time.monotonic() < deadline:
                httpx.get(f"{running.url}/health/live")


def test_the_service_ends_when_its_database_does(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        os.kill(database_pid(data), signal.SIGKILL)
        assert running.process.wait(STOP_LIMIT_S) == 1
        assert "gpuplan: the database ended by itself" in running.output


def descendants(pid):
    """Processes that a process has started, and those that they have."""
    children = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        waiting.extend(new := children.get(waiting.pop(), []))
        found.extend(new)
    return found


def workers_of(running):
    """Processes below the server's own, forked from it and so of the same command line."""

    def serves(pid):
        with contextlib.suppress(OSError):
            return b"service.app:create_app" in Path(f"/proc/{pid}/cmdline").read_bytes()

    found = [pid for pid in descendants(running.process.pid) if serves(pid)]
    return [pid for server in found for pid in descendants(server) if pid in found]


def post_plan(url, key):
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return httpx.post(f"{url}/v1/plans", content=EXAMPLE.read_bytes(), headers=headers, timeout=60)


def test_the_service_outlives_the_end_of_one_of_its_workers(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data), "--workers", "2") as running:
        made = post_plan(running.url, "before")
        assert made.status_code == 201
        before = workers_of(running)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + STOP_LIMIT_S
        while len(after := workers_of(running)) < 2 or before[0] in after:
            assert time.monotonic() < deadline
            assert running.process.poll() is None, running.output
            time.sleep(0.1)
        for _ in range(20):  # each on a connection of its own, to whichever worker takes it
            with contextlib.suppress(httpx.TransportError):  # while the new one starts
                assert httpx.get(running.url + made.headers["Location"]).content == made.content
        assert post_plan(running.url, "after").status_code == 201
        assert post_plan(running.url, "before").content == made.content
        assert running.stop(signal.SIGTERM) == 0


def test_what_was_answered_is_stored_once_whatever_is_killed(open_folder):
    """Service and database end at once, in the middle of requests, with no time to tidy up."""
    data = open_folder / "data"
    answered, sent = {}, set()

    def send(url, sender):
        with contextlib.suppress(httpx.TransportError):
            for number in range(1000):
                key = f"{sender}-{number}"
                sent.add(key)
                response = post_plan(url, key)
                if response.status_code != 201:
                    return
                answered[key] = response.content

    with serving(open_folder, "--data", str(data), "--workers", "2") as running:
        with ThreadPoolExecutor(4) as threads:
            senders = [threads.submit(send, running.url, sender) for sender in range(4)]
            deadline = time.monotonic() + STOP_LIMIT_S
            while len(answered) < 8 and time.monotonic() < deadline:
                time.sleep(0.01)
            for pid in [database_pid(data), running.process.pid, *descendants(running.process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for sender in senders:
                sender.result(timeout=STOP_LIMIT_S)
        running.process.wait(STOP_LIMIT_S)
        wait_until_nothing_runs(data)
    assert len(answered) >= 8
    with serving(open_folder, "--data", str(data)) as running:
        stored = httpx.get(f"{running.url}/v1/plans", params={"limit": 200}).json()["items"]
        ids = [plan["id"] for plan in stored]
        assert len(ids) <= len(sent)  # an answer may have been lost on its way
        for content in answered.values():
            made = json.loads(content)
            assert made["id"] in ids
            assert httpx.get(f"{running.url}/v1/plans/{made['id']}").content == content
        again = {key: post_plan(running.url, key) for key in sent}
        assert {response.status_code for response in again.values()} == {201}
        assert {key: again[key].content for key in answered} == answered
        stored = httpx.get(f"{running.url}/v1/plans", params={"limit": 200}).json()["items"]
        assert len(stored) == len(sent)


def test_a_second_service_on_the_same_data_is_refused(open_folder):
    data = open_folder / "data"
    with serving(open_folder, "--data", str(data)) as running:
        refused = run("serve", "--port", "0", "--data", str(data))
        assert_one_line(refused, 1, f"in use by process {running.process.pid}")
        assert httpx.get(f"{running.url}/health/ready").status_code == 200


def test_a_taken_port_is_refused(open_folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = run("serve", "--port", str(port), "--data", str(open_folder / "data"))
    assert_one_line(refused, 1, f"cannot serve on 127.0.0.1 port {port}")
    assert not (open_folder / "data").exists()


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
