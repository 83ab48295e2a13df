"""Speed and memory of plans: create, read, and the floor of a read, in one run.

    .venv/bin/python -m benchmarks.plans        (needs `wrk`, Debian package)

Prints the median time of POST /v1/plans (2 runs + 3 services over 36 months), the requests/s of
GET /v1/plans/{id} over those of a bare driver's SELECT of the same row, rounds interleaved, and
the resident memory of a worker. Absolute figures hold for one machine and one hour; the ratio is
what to compare.
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

from service.db.embedded import OWNER_ROLE, SERVICE_ROLE, EmbeddedPostgres

ROOT = Path(__file__).parent.parent
SCENARIO = ROOT / "tests/baseline/scenarios/two_runs_three_services_36_months.json"
CREATED_PLANS = 30
ROUNDS = 8
ROUND_S = 2
CONNECTIONS = 32


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


def requests_per_s(address: str) -> float:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{ROUND_S}s", address]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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


def main() -> None:
    if shutil.which("wrk") is None:
        sys.exit("benchmarks/plans.py needs wrk: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # as root the database runs as another user
        measure(Path(folder) / "postgres")


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
                pairs = [
                    (requests_per_s(f"{base}{location}"), requests_per_s(f"{floor}/plans/{plan}"))
                    for _ in range(ROUNDS)
                ]
            memory = resident_mib(pid)
    ratios = [ours / bare for ours, bare in pairs]
    print(f"POST /v1/plans        median {statistics.median(times) * 1000:.1f} ms (target < 80)")
    print(f"GET / bare SELECT     median {statistics.median(ratios):.2f} (target >= 0.70)")
    print(f"                      pairs  {', '.join(f'{a:.0f}/{b:.0f}' for a, b in pairs)}")
    print(f"resident MiB          {', '.join(f'{size:.0f}' for size in memory)} (target < 250)")


if __name__ == "__main__":
    main()
