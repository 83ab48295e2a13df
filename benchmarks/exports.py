"""Speed and memory of a plan's lines as CSV against `COPY ... TO STDOUT` of the same rows.

    .venv/bin/python benchmarks/exports.py [LINES]        (1,000,000 unless given)

Fills one plan with lines, then reads them over HTTP through the service and by COPY on a bare
connection, rounds interleaved, and watches the resident memory of the worker meanwhile. Absolute
figures hold for one machine and one hour; the ratio is what to compare.
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx

sys.path.insert(0, str(Path(__file__).parent))

from plans import free_port, process, resident_mib

from service.db.embedded import OWNER_ROLE, SERVICE_ROLE, EmbeddedPostgres

ROUNDS = 3
TARGET_RATIO = 1 / 3
COLUMNS = """line_number, month, charge_period_start, charge_period_end, pool, workload_kind,
    workload, use, category, gpu, provider, region, site, purchase_kind, quantity, unit, unit_price,
    amount, cash_amount, currency, gpu_count, formula, price_source, price_as_of_date,
    price_verified"""
PLAN = "00000000-0000-7000-8000-000000000001"
FILL = f"""
    INSERT INTO plan_line (plan_id, team, {COLUMNS})
    SELECT '{PLAN}', 'local', n, '20' || 27 + n % 5 || '-01', timestamptz '2027-01-01 00:00Z',
        timestamptz '2027-02-01 00:00Z', 'serving', 'serving', 'assistant ' || n % 50, 'used',
        'gpu_rental', 'h100-sxm5-80gb', 'aws', 'us-east-1', NULL, 'on_demand', n + 0.125,
        'gpu_hour', 6.88, round((n + 0.125) * 6.88, 2), round((n + 0.125) * 6.88, 2), 'USD',
        n % 1000, 'GPU-hours of the month', 'aws-p5: price list, read on 2026-09-18',
        date '2026-09-18', true
    FROM generate_series(1, $1) AS n"""
PLAN_ROW = f"""
    INSERT INTO plan (id, team, name, created_at, schema_version, engine_version, catalog_version,
        catalog_digest, as_of_date, request_digest, feasible, currency, line_count, body)
    SELECT '{PLAN}', 'local', 'benchmark', now(), 1, '0', version, digest, '2026-11-29', '', false,
        'USD', $1, '' FROM catalog_release LIMIT 1"""


async def fill(owner: str, wanted: int) -> None:
    connection = await asyncpg.connect(owner)
    try:
        await connection.execute("SELECT set_config('gpuplan.team', 'local', false)")
        await connection.execute(PLAN_ROW, wanted)
        await connection.execute(FILL, wanted)
        await connection.execute("ANALYZE plan_line")
    finally:
        await connection.close()


async def copy(owner: str) -> tuple[float, int]:
    """Seconds and bytes of COPY."""
    connection = await asyncpg.connect(owner)
    await connection.execute("SELECT set_config('gpuplan.team', 'local', false)")
    size = 0

    async def take(part: bytes) -> None:
        nonlocal size
        size += len(part)

    started = time.perf_counter()
    await connection.copy_from_query(
        f"SELECT {COLUMNS} FROM plan_line WHERE plan_id = '{PLAN}' ORDER BY line_number",
        output=take,
        format="csv",
        header=True,
    )
    taken = time.perf_counter() - started
    await connection.close()
    return taken, size


def export(address: str) -> tuple[float, int]:
    """Seconds and bytes of the same rows over HTTP."""
    size, started = 0, time.perf_counter()
    with httpx.stream("GET", address, timeout=600) as answer:
        answer.raise_for_status()
        for part in answer.iter_raw():
            size += len(part)
    return time.perf_counter() - started, size


def watched(pid: int, found: list[float], stop: threading.Event) -> None:
    while not stop.wait(0.25):
        found.append(max(resident_mib(pid)))


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the database's user may enter, also where root runs this."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def report(ours: list[tuple[float, int]], theirs: list[tuple[float, int]], lines: int) -> None:
    ratios = [copied / exported for (exported, _), (copied, _) in zip(ours, theirs, strict=True)]
    for name, rounds in (("export", ours), ("COPY", theirs)):
        taken, size = statistics.median(t for t, _ in rounds), rounds[0][1]
        print(f"{name:8} {taken:6.1f} s  {lines / taken:9,.0f} lines/s  {size / 1e6:,.0f} MB")
    print(f"export / COPY  {statistics.median(ratios):.2f} (target >= {TARGET_RATIO:.2f})")


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    port = free_port()
    with open_folder() as folder, EmbeddedPostgres(folder) as postgres:
        owner = postgres.url(OWNER_ROLE)
        urls = {
            "DATABASE_URL": postgres.url(SERVICE_ROLE),
            "DATABASE_MIGRATION_URL": owner,
            "ACCESS_MODE": "open",
        }
        base = f"http://127.0.0.1:{port}"
        serve = [
            str(Path(sys.executable).with_name("gpuplan")),
            "serve",
            "--workers",
            "1",
            "--port",
        ]
        with process([*serve, str(port)], urls, f"{base}/health/ready") as pid:
            asyncio.run(fill(owner, wanted))
            address = f"{base}/v1/plans/{PLAN}/lines.csv"
            before, seen, stop = max(resident_mib(pid)), [], threading.Event()
            watcher = threading.Thread(target=watched, args=(pid, seen, stop))
            watcher.start()
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(export(address))
                theirs.append(asyncio.run(copy(owner)))
            stop.set()
            watcher.join()
    report(ours, theirs, wanted)
    print(f"resident memory of the worker  {before:.0f} MiB before, {max(seen):.0f} at most")
    print(f"of this program  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
