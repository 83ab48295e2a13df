"""Time and memory of sizing pools: 20 services and 10 runs over 36 months, apart and shared.

    .venv/bin/python -m benchmarks.pools

Prints the best and the median of some rounds, and the memory that Python and numpy hold at most.
Workloads are measured ones, so what is timed is demand, pools and the choice of hours.
"""

import json
import resource
import statistics
import time
from datetime import date
from pathlib import Path

from service.catalog.resolve import snapshot_from_folder
from service.core.fleet.pools import estimate_pools
from service.core.fleet.pools_types import PoolsQuestion

CATALOG = Path(__file__).parent.parent / "catalog"
ROUNDS = 5
SERVICES, RUNS, MONTHS = 20, 10, 36
PRESETS = ("office_assistant", "consumer_evening", "global_app", "flat")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
GPU = "h100-sxm5-80gb"


def service(number: int) -> dict:
    week = [((hour * 7 + number) % 24) / 24 for hour in range(167)] + [1.0]
    return {
        "name": f"service {number}",
        "gpu": GPU,
        "load": {"kind": "peak_requests", "peak_requests_per_s": 20 + 7 * number},
        "capacity": {
            "kind": "measured",
            "units_per_s_per_replica": 4.0,
            "gpu_count_per_replica": 4,
        },
        "demand_profile": PRESETS[number % 4] if number % 5 else week,
        "time_zone": ZONES[number % 5],
        "growth_per_month_fraction": 0.01 * (number % 4),
        "headroom": {"burst": {}, "failures": {}, "maintenance": {}} if number % 2 else {},
    }


def run(number: int) -> dict:
    year, month = divmod(number * 3, 12)
    gpus = 128 + 64 * (number % 3)
    return {
        "name": f"run {number}",
        "gpu": GPU,
        "training_tokens": gpus * 1000 * 3600 * (900 + 200 * number),
        "sizing": {"kind": "gpu_count", "gpu_count": gpus},
        "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
        "start_date": f"{2027 + year}-{month + 1:02d}-01",
        "elastic": bool(number % 2),
    }


def question(fleet_gpu_count: int | None) -> PoolsQuestion:
    return PoolsQuestion.model_validate(
        {
            "horizon": {"start_month": "2027-01", "month_count": MONTHS},
            "serving_services": [service(number) for number in range(SERVICES)],
            "training_runs": [run(number) for number in range(RUNS)],
            "fleet_gpu_count": fleet_gpu_count,
        }
    )


def main() -> None:
    snapshot = snapshot_from_folder(CATALOG, date(2026, 11, 29))
    found = {}
    for name, fleet in (("smallest fleet", None), ("given fleet", 5000)):
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            answer = estimate_pools(question(fleet), snapshot)
            times.append(time.perf_counter() - start)
        found[name] = {
            "best_s": round(min(times), 3),
            "median_s": round(statistics.median(times), 3),
            "separate_gpus": answer.separate.peak_gpu_count,
            "shared_gpus": answer.shared.peak_gpu_count,
        }
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found | {"most_memory_mib": round(most, 1)}, indent=2))


if __name__ == "__main__":
    main()
