"""Layouts that the search judges in a second on one core: memory and speed of each.

    python benchmarks/layouts.py

Also times one whole answer: Llama 3.1 405B on 16,384 GPUs. The formulas work
element by element, which numpy does on one core.
"""

from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np

from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from service.core.run.case import resolve
from service.core.run.choice import choose, rate_of
from service.core.scenarios.training_run import TrainingRun

CATALOG = Path(__file__).resolve().parents[1] / "catalog"
ROUNDS = 5
WANTED_PER_S = 200_000


def case_of(snapshot, **fields):
    run = TrainingRun.model_validate(
        {"name": "run", "gpu": "h100-sxm5-80gb", "training_tokens": 10**13} | fields
    )
    return resolve(run, snapshot=snapshot, recorder=Recorder(snapshot), gpu_multiple=8, pointer="")


def judged_per_s(snapshot, architecture):
    """Layouts on 1,024 to 16,384 GPUs, repeated until the arrays are long."""
    case = case_of(
        snapshot,
        architecture=architecture,
        global_batch_tokens=4096 * 16384,
        sequence_length_tokens=4096,
        sizing={"kind": "gpu_count", "gpu_count": 1024},
    )
    rules, degrees, quiet = case.layouts.rules, case.layouts.degrees, case.recorder.off()
    axes = [rules.candidates(degrees, count) for count in (1024, 2048, 4096, 8192, 16384)]
    count = sum(len(a.tensor) for a in axes)
    best = np.inf
    for _ in range(ROUNDS):
        start = perf_counter()
        for some in axes:
            case.layouts.memory.terms(some, quiet)
            rate_of(case, some, quiet)
        best = min(best, perf_counter() - start)
    return count, count / best


def answer_s(snapshot):
    """One choice for 405B on 16,384 GPUs, the run resolved and its layouts listed."""
    best = np.inf
    for _ in range(ROUNDS):
        start = perf_counter()
        case = case_of(
            snapshot,
            architecture="llama-3.1-405b",
            global_batch_tokens=2**24,
            sizing={"kind": "gpu_count", "gpu_count": 16384},
        )
        choose(case, 16384)
        best = min(best, perf_counter() - start)
    return best


def main():
    snapshot = snapshot_from_folder(CATALOG, date(2026, 11, 29))
    for architecture in ("llama-3.1-70b", "llama-3.1-405b", "deepseek-v3"):
        count, per_s = judged_per_s(snapshot, architecture)
        verdict = "reached" if per_s >= WANTED_PER_S else "MISSED"
        print(f"{architecture:16} {count:7,} layouts, {per_s:10,.0f} a second ({verdict})")
    print(f"405B on 16,384 GPUs: {answer_s(snapshot) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
