"""The `gpuplan` command in processes of its own, and what it leaves behind."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

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
