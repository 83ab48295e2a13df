"""What an infeasible answer names as its fix works when it is applied, over a grid of questions."""

import re
from itertools import product

import pytest

from service.core.planners.serving import plan_replica
from service.core.pooling.workloads import ReplicaCapacity
from service.core.recorder import Recorder
from service.core.scenarios.serving_service import ServingService
from service.core.serving.memory import ServingMemoryQuestion, estimate_serving_memory
from service.core.serving.performance import (
    ServingPerformanceQuestion,
    estimate_serving_performance,
)
from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

DEGREE = re.compile(r"(tensor_parallel|pipeline_parallel|attention_data_parallel) (\d+)")
FORMAT = re.compile(r"(weight_format|kv_cache_format) (\S+) fits at")
LENGTH = re.compile(r"input and output together, of (\d+) or less")
OBJECTIVE = re.compile(r"objectives\.(\w+) of (\S+) or more")
UTILIZATION = re.compile(r"target_utilization_fraction of (\S+) or less")
RUNNING = re.compile(r"running_requests of at most (\d+)")
STEPS = 7
"""Limits that may come to light one after another."""

ARCHITECTURES = ("llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "deepseek-v3", "qwen3-32b")
GPUS = (
    "h100-sxm5-80gb",
    "rtx-4090-24gb",
    "t4-16gb",
    "gb200-nvl72",
    "mi300x-192gb",
    "rtx-a5000-24gb",
)
LAYOUTS = (
    {"tensor_parallel": 1},
    {"tensor_parallel": 3},
    {"tensor_parallel": 4, "attention_data_parallel": 2},
    {"tensor_parallel": 7, "pipeline_parallel": 500},
    {"tensor_parallel": 2, "pipeline_parallel": 3, "attention_data_parallel": 64},
)


def fixed(asked, fix):
    """The question with the first way that a fix names."""
    if found := FORMAT.search(fix):
        layout = {name: int(degree) for name, degree in DEGREE.findall(fix)}
        return asked | {found[1]: found[2], "layout": layout}
    if found := LENGTH.search(fix):
        length = int(found[1])
        means = {"input_tokens_mean": length * 0.4, "output_tokens_mean": length * 0.1}
        return asked | means | {"sequence_tokens_p95": length}
    if found := RUNNING.search(fix):
        return asked | {"running_requests": int(found[1])}
    degrees = DEGREE.findall(fix.split(";")[0])
    if degrees:
        held = {} if fix.startswith("a layout of") else asked["layout"]
        return asked | {"layout": held | {name: int(degree) for name, degree in degrees}}
    return None


def settles(asked, answer):
    """Fixes that were followed to come to an answer; -1 where only another GPU would have one."""
    for step in range(STEPS):
        reasons = answer(asked)
        if not reasons:
            return step
        reason = reasons[0]
        assert reason.nearest_fix
        if reason.code in {"format", "no_constants"} or "a GPU that gives" in reason.nearest_fix:
            return -1  # another GPU is a question of its own
        changed = fixed(asked, reason.nearest_fix)
        assert changed is not None, (asked, reason)
        assert changed != asked, (asked, reason)
        asked = changed
    raise AssertionError((asked, reasons))


@pytest.mark.parametrize("kind", ["memory", "performance", "plan"])
def test_fixes_of_memory_layout_and_length_work(snapshot, kind):
    def answer(asked):
        if kind == "memory":
            question = ServingMemoryQuestion(**asked)
            return estimate_serving_memory(question, snapshot).infeasibilities
        if kind == "performance":
            question = ServingPerformanceQuestion(**{"running_requests": 512} | asked)
            return estimate_serving_performance(question, snapshot).infeasibilities
        said = {name: value for name, value in asked.items() if name != "layout"}
        load = {"kind": "peak_requests", "peak_requests_per_s": 1}
        service = ServingService(
            **said, name="a", load=load, replica={"layout": asked.get("layout")}
        )
        found = plan_replica(
            service, snapshot=snapshot, recorder=Recorder(snapshot), gpu_multiple=8, pointer=""
        )
        return () if isinstance(found, ReplicaCapacity) else found

    mended = 0
    for architecture, gpu, layout, tokens in product(ARCHITECTURES, GPUS, LAYOUTS, (1000, 100_000)):
        asked = {
            "architecture": architecture,
            "gpu": gpu,
            "layout": layout,
            "weight_format": "bf16",
            "input_tokens_mean": tokens,
            "output_tokens_mean": tokens / 10,
        }
        mended += settles(asked, answer) > 0
    assert mended >= 100


def test_fixes_of_objectives_work(snapshot):
    mended = 0
    for architecture, gpu, ttft, tpot, target in product(
        ("llama-3.1-8b", "llama-3.3-70b"),
        ("h100-sxm5-80gb", "l40s-48gb"),
        (0.01, 0.05, 2.0),
        (0.0005, 0.002, 0.05),
        (None, 0.99),
    ):
        asked = {
            "architecture": architecture,
            "weight_format": "fp8",
            "input_tokens_mean": 3000,
            "output_tokens_mean": 200,
            "gpus": [gpu],
            "prices_per_gpu_hour": {gpu: "2.00"},
            "load": {"kind": "peak_requests", "peak_requests_per_s": 4},
            "objectives": {"ttft_p95_s": ttft, "tpot_mean_s": tpot},
            "headroom": {"target_utilization_fraction": target},
        }
        found = estimate_serving_size(ServingSizeQuestion(**asked), snapshot)
        if found.feasible:
            continue
        [reason] = found.infeasibilities
        assert reason.code in {"ttft", "tpot"}
        laxer = {name: float(value) for name, value in OBJECTIVE.findall(reason.nearest_fix)}
        assert laxer, reason
        asked["objectives"] |= laxer
        assert estimate_serving_size(ServingSizeQuestion(**asked), snapshot).feasible, reason
        mended += 1
    assert mended >= 20
