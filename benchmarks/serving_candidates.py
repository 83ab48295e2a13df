"""How many layouts and batch sizes the vectorised core computes per second on one core.

.venv/bin/python benchmarks/serving_candidates.py
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from datetime import date
from pathlib import Path

import numpy as np

from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from service.core.replica.constants import serving_constants
from service.core.replica.lookup import Lookup
from service.core.replica.passes import Traffic
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import Speed

ROOT = Path(__file__).resolve().parents[1]
CANDIDATES = 20_000
ROUNDS = 20
FLOOR_PER_S = 200_000


def rate(architecture: str) -> float:
    """Candidates per second, each with decode, prefill, waiting and throughput."""
    snapshot = snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))
    recorder = Recorder(snapshot).off()
    gpu = snapshot.gpu("h200-sxm-141gb")
    shape = ReplicaShape(
        architecture=snapshot.architecture(architecture),
        gpu=gpu,
        weight_format=snapshot.number_format("fp8"),
        kv_format=snapshot.number_format("fp8"),
        available_bytes=gpu.available_memory_bytes(hbm_fraction=1, gddr_fraction=1),
        expert_width_multiple=1,
        weight_precision="fp8",
        index_bytes_per_element=1,
    )
    needs = shape.needs((1, 2, 4, 8), has_stages=False, expert_ranks=(8,))
    constants = serving_constants(Lookup(recorder, {}), gpu, needs)
    speed = Speed(shape, constants, Traffic(2000, 500, 5000, 0.7), recorder)
    ranks = np.resize([1, 2, 4, 8], CANDIDATES)
    layout = Layout(ranks, np.ones(CANDIDATES, int), 8 // ranks)
    running = np.resize(np.arange(1, 513), CANDIDATES).astype(float)
    speed.at(layout, running, 1024.0)
    started = time.perf_counter()
    for _ in range(ROUNDS):
        speed.at(layout, running, 1024.0)
    return CANDIDATES * ROUNDS / (time.perf_counter() - started)


def main() -> None:
    """Print the rate of a dense and of a sparse architecture; fail below the floor."""
    for architecture in ("llama-3.3-70b", "deepseek-v3"):
        found = rate(architecture)
        print(f"{architecture}: {found:,.0f} candidates/s on one core")
        if found < FLOOR_PER_S:
            raise SystemExit(f"below {FLOOR_PER_S:,} candidates/s")


if __name__ == "__main__":
    main()
