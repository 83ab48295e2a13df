"""Time of POST /v1/estimates/serving-size over all GPUs of the catalog, through the real API.

    .venv/bin/python -m benchmarks.serving_size

Prints median and worst time of each architecture, what the worker computed in it (its CPU time:
the same on a machine that others use, too), and how many GPUs serve. Fails where a median is above
the target.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.plans import free_port, process
from service.db.embedded import OWNER_ROLE, SERVICE_ROLE, EmbeddedPostgres

TARGET_MS = 150.0
REQUESTS = 20
SERVED = {
    "llama-3.1-8b": "bf16",
    "llama-3.3-70b": "fp8",
    "llama-3.1-405b": "fp8",
    "deepseek-v3": "fp8",
    "gpt-oss-120b": "mxfp4",
}


def question(architecture: str, weight_format: str) -> dict[str, object]:
    return {
        "architecture": architecture,
        "weight_format": weight_format,
        "engine": "vllm-0.18",
        "load": {"kind": "peak_requests", "peak_requests_per_s": 40},
        "input_tokens_mean": 1500,
        "output_tokens_mean": 400,
        "objectives": {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05},
    }


def cpu_s(pid: int) -> float:
    """CPU time of the service's Python processes so far. [s]"""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    total = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if "postgres" not in Path(f"/proc/{child}/cmdline").read_text():
            total += cpu_s(int(child))
    return total


def measure(client: httpx.Client, pid: int, architecture: str, weight_format: str) -> float:
    """Print one architecture's times; the median. [ms]"""
    body = question(architecture, weight_format)
    answer = client.post("/v1/estimates/serving-size", json=body)
    answer.raise_for_status()
    times, before = [], cpu_s(pid)
    for _ in range(REQUESTS):
        started = time.perf_counter()
        client.post("/v1/estimates/serving-size", json=body).raise_for_status()
        times.append((time.perf_counter() - started) * 1000)
    computed = (cpu_s(pid) - before) / REQUESTS * 1000
    median, found = statistics.median(times), answer.json()
    print(
        f"{architecture:16} median {median:6.1f} ms, worst {max(times):6.1f} ms, "
        f"CPU {computed:5.1f} ms; {len(found['options'])} of "
        f"{len(found['options']) + len(found['rejected'])} kinds of GPU serve"
    )
    return median


def main() -> None:
    """Start a service of one worker and ask it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # as root the database runs as another user
        with EmbeddedPostgres(Path(folder) / "postgres") as postgres:
            urls = {
                "DATABASE_URL": postgres.url(SERVICE_ROLE),
                "DATABASE_MIGRATION_URL": postgres.url(OWNER_ROLE),
                "ACCESS_MODE": "open",
            }
            port = free_port()
            base = f"http://127.0.0.1:{port}"
            program = str(Path(sys.executable).parent / "gpuplan")
            serve = [program, "serve", "--workers", "1", "--port", str(port)]
            with (
                process(serve, urls, f"{base}/health/ready") as pid,
                httpx.Client(base_url=base, timeout=60) as client,
            ):
                medians = [measure(client, pid, *served) for served in SERVED.items()]
    if max(medians) > TARGET_MS:
        sys.exit(f"above {TARGET_MS:g} ms")


if __name__ == "__main__":
    main()
