"""Speed and memory of plans: create, read, and the floor of a read, in one run.

    .venv/bin/python -m benchmarks.plans        (needs `wrk`, Debian package)

Prints the median time of POST /v1/plans (2 runs + 3 services over 36 months), the requests/s of
GET /v1/plans/{id} over those of a bare driver's SELECT of the same row, rounds interleaved, and
the resident memory of a worker. Plans are read again and again, as a worker keeps them, and each
in its turn out of more than a worker keeps, so that every read goes to the database. Absolute
figures hold for one machine and one hour; the ratio is what to compare.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

from service.db.embedded import OWNER_ROLE, SERVICE_ROLE, EmbeddedPostgres
from service.plans.bodies import KEPT_BYTES

ROOT = Path(__file__).parent.parent
SCENARIO = ROOT / "tests/baseline/scenarios/two_runs_three_services_36_months.json"
CREATED_PLANS = 30
ROUNDS = 8
ROUND_S = 2
CONNECTIONS = 32
KEPT_TIMES = 3
"""Plans that are read in turn, over those that a worker keeps."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], environment: dict[str, str], address: str) -> Iterator[int]:
    """Run a server for the length of the block; yields its process id once it answers."""
    with Path(os.devnull).open("wb") as nowhere:  # a terminal would slow the one that logs
        server = subprocess.Popen(
            command, env=os.environ | environment, cwd=ROOT, stdout=nowhere, stderr=nowhere
        )
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(address, timeout=1).status_code < 500:
                    break
            time.sleep(0.1)
        yield server.pid
    finally:
        server.terminate()
        server.wait(timeout=60)


IN_TURN = """
local ids, at = {}, math.random(0, 1000000)
for id in io.lines(os.getenv("PLAN_IDS")) do ids[#ids + 1] = id end
request = function()
  at = at + 1
  return wrk.format("GET", wrk.path .. ids[at % #ids + 1])
end
init = function() math.randomseed(os.time()) at = math.random(0, #ids) end
"""
"""Asks for each plan of a list in its turn, from a random one on."""


def requests_per_s(address: str, *options: str, **environment: str) -> float:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{ROUND_S}s", *options, address]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    ).stdout
    if "Non-2xx" in printed:
        sys.exit(printed)
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", printed)[1])


def resident_mib(pid: int) -> list[float]:
    """Resident memory of the service's Python processes, parent first. [MiB]"""
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = [int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if "postgres" not in Path(f"/proc/{child}/cmdline").read_text():
            sizes += resident_mib(int(child))
    return sizes


def create(base: str) -> tuple[str, list[float]]:
    body = {"name": "benchmark", "scenario": json.loads(SCENARIO.read_bytes())}
    times, location = [], ""
    with httpx.Client(base_url=base, timeout=60) as client:
        for _ in range(CREATED_PLANS):
            started = time.perf_counter()
            answer = client.post("/v1/plans", json=body)
            times.append(time.perf_counter() - started)
            answer.raise_for_status()
            location = answer.headers["location"]
    return location, times[3:]


def copy_plan(url: str, plan: str, count: int) -> list[str]:
    """Store the same plan under other ids."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('gpuplan.team', 'local', true)")
        columns = connection.execute("SELECT * FROM plan LIMIT 0").description
        names = ", ".join(column.name for column in columns if column.name != "id")
        found = connection.execute(
            f"INSERT INTO plan (id, {names}) SELECT gen_random_uuid(), {names}"
            " FROM plan, generate_series(1, %s) WHERE id = %s RETURNING id",
            (count, plan),
        )
        return [str(identity) for (identity,) in found]


def main() -> None:
    if shutil.which("wrk") is None:
        sys.exit("benchmarks/plans.py needs wrk: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # as root the database runs as another user
        measure(Path(folder) / "postgres")


def distinct(url: str, plan: str, base: str, floor: str, folder: Path) -> list[tuple[float, float]]:
    """Requests/s of ours and of the floor over plans that no worker keeps all of."""
    with httpx.Client(base_url=base) as client:
        size = len(client.get(f"/v1/plans/{plan}").content)
    ids, script = folder / "ids", folder / "in_turn.lua"
    ids.write_text("\n".join(copy_plan(url, plan, KEPT_TIMES * KEPT_BYTES // size)))
    script.write_text(IN_TURN)
    options = ("-s", str(script))
    return [
        (
            requests_per_s(f"{base}/v1/plans/", *options, PLAN_IDS=str(ids)),
            requests_per_s(f"{floor}/plans/", *options, PLAN_IDS=str(ids)),
        )
        for _ in range(ROUNDS)
    ]


def measure(folder: Path) -> None:
    ports = free_port(), free_port()
    with EmbeddedPostgres(folder) as postgres:
        urls = {
            "DATABASE_URL": postgres.url(SERVICE_ROLE),
            "DATABASE_MIGRATION_URL": postgres.url(OWNER_ROLE),
            "ACCESS_MODE": "open",
        }
        base, floor = (f"http://127.0.0.1:{port}" for port in ports)
        serve = [str(Path(sys.executable).parent / "gpuplan"), "serve", "--workers", "1", "--port"]
        bare = [sys.executable, "-m", "granian", "--interface", "asgi", "--factory", "--port"]
        application = "benchmarks.bare_select:create_app"
        with process([*serve, str(ports[0])], urls, f"{base}/health/ready") as pid:
            location, times = create(base)
            command = [*bare, str(ports[1]), "--no-ws", application]
            with process(command, urls, f"{floor}/plans/0"):
                plan = location.rpartition("/")[2]
                kept = [
                    (requests_per_s(f"{base}{location}"), requests_per_s(f"{floor}/plans/{plan}"))
                    for _ in range(ROUNDS)
                ]
                in_turn = distinct(postgres.url(SERVICE_ROLE), plan, base, floor, folder.parent)
            memory = resident_mib(pid)
    print(f"POST /v1/plans        median {statistics.median(times) * 1000:.1f} ms (target < 80)")
    for name, pairs in (("kept by the worker", kept), ("each in its turn  ", in_turn)):
        ratios = [ours / bare for ours, bare in pairs]
        print(
            f"GET / bare SELECT     {name} median {statistics.median(ratios):.2f} (target >= 0.70)"
        )
        print(f"                      pairs  {', '.join(f'{a:.0f}/{b:.0f}' for a, b in pairs)}")
    print(f"resident MiB          {', '.join(f'{size:.0f}' for size in memory)} (target < 250)")


if __name__ == "__main__":
    main()
