"""Layouts that the search judges in a second on one core, beside a peer, and answers by the API.

    .venv/bin/python -m benchmarks.layouts

Judging is memory and speed of each layout; the formulas work element by element, which numpy does
on one core; seconds are those of the processor. The peer is `llm-analysis`, asked for the same
degrees one by one; it is measured where it can be imported (`pip install --no-deps llm-analysis
fire termcolor` into a folder on PYTHONPATH). An answer is Llama 3.1 405B on 16,384 GPUs, without
and with the service around it, beside an estimate that searches nothing.
"""

import importlib
import logging
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path
from time import perf_counter, process_time

import httpx
import numpy as np

from benchmarks.plans import free_port, process
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from service.core.run.case import resolve
from service.core.run.choice import choose, rate_of
from service.core.scenarios.training_run import TrainingRun

CATALOG = Path(__file__).resolve().parents[1] / "catalog"
ROUNDS = 5
PEER_LAYOUTS = 400
REQUESTS = 15
RUN_405B = {
    "name": "run",
    "architecture": "llama-3.1-405b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**13,
    "global_batch_tokens": 2**24,
    "sizing": {"kind": "gpu_count", "gpu_count": 16384},
}
WANTED_ANSWER_MS = 150
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
        start = process_time()
        for some in axes:
            case.layouts.memory.terms(some, quiet)
            rate_of(case, some, quiet)
        best = min(best, process_time() - start)
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


def peer_per_s(snapshot):
    """Layouts of 70B on 1,024 GPUs that the peer judges in a second; None where it is absent."""
    try:
        analysis = importlib.import_module("llm_analysis.analysis")
        config = importlib.import_module("llm_analysis.config")
    except ImportError:
        return None
    logging.disable(logging.CRITICAL)
    case = case_of(
        snapshot,
        architecture="llama-3.1-70b",
        global_batch_tokens=4096 * 16384,
        sequence_length_tokens=4096,
        sizing={"kind": "gpu_count", "gpu_count": 1024},
    )
    axes = case.layouts.rules.candidates(case.layouts.degrees, 1024)
    model = config.ModelConfig(
        "70b", 80, 64, 8192, 128256, 8192, 8, ffn_embed_dim=28672, expansion_ratio=3.5
    )
    gpu = config.get_gpu_config_by_name("h100-sxm-80gb")
    dtype = config.get_dtype_config_by_name("w16a16e16")
    chosen = [axes.take(int(i)) for i in np.linspace(0, len(axes.tensor) - 1, PEER_LAYOUTS)]
    start, judged = process_time(), 0
    for one in chosen:
        degrees = config.ParallelismConfig(int(one.tensor), int(one.pipeline), int(one.data))
        try:
            analysis.LLMAnalysis(model, gpu, dtype, degrees, flops_efficiency=0.5).training(
                batch_size_per_gpu=int(one.micro_batch_sequences),
                gradient_accumulation_steps=int(one.micro_batch_count),
                seq_len=4096,
                total_num_tokens=10**13,
                ds_zero=analysis.DSZeRO(min(3, int(one.zero_stage))),
            )
        except AssertionError:
            continue  # what does not fit in memory ends in a refusal, which is an answer, too
        finally:
            judged += 1
    return judged / (process_time() - start)


def served_ms():
    """Median of whole answers by the API: plain estimates of memory and of layouts."""
    port = free_port()
    serve = [str(Path(sys.executable).parent / "gpuplan"), "serve", "--workers", "1"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the database runs under another user where this is root
        address = f"http://127.0.0.1:{port}"
        command = [*serve, "--port", str(port), "--data", f"{folder}/postgres"]
        with process(command, {}, f"{address}/health/ready"):
            asked = {"goodput": {"gpu": "h100-sxm5-80gb", "gpu_count": 16384}}
            asked |= {f"training-{kind}": {"run": RUN_405B} for kind in ("memory", "layouts")}
            return {kind: _median_ms(address, kind, body) for kind, body in asked.items()}


def _median_ms(address, kind, body):
    times = []
    for _ in range(REQUESTS):
        start = perf_counter()
        answer = httpx.post(f"{address}/v1/estimates/{kind}", json=body, timeout=60)
        times.append(perf_counter() - start)
        answer.raise_for_status()
    return statistics.median(times) * 1e3


def main():
    snapshot = snapshot_from_folder(CATALOG, date(2026, 11, 29))
    for architecture in ("llama-3.1-70b", "llama-3.1-405b", "deepseek-v3"):
        count, per_s = judged_per_s(snapshot, architecture)
        verdict = "reached" if per_s >= WANTED_PER_S else "MISSED"
        print(f"{architecture:16} {count:7,} layouts, {per_s:10,.0f} a second ({verdict})")
    peer = peer_per_s(snapshot)
    print("llm-analysis     " + ("is not installed" if peer is None else f"{peer:,.0f} a second"))
    print(f"405B on 16,384 GPUs: {answer_s(snapshot) * 1e3:.1f} ms without the service")
    for kind, taken in served_ms().items():
        verdict = "reached" if taken < WANTED_ANSWER_MS else "MISSED"
        print(f"405B on 16,384 GPUs, {kind} by the API: {taken:.0f} ms ({verdict})")


if __name__ == "__main__":
    main()
