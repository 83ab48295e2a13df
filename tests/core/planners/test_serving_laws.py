"""Laws of the serving planner over the whole range of what people ask."""

from datetime import date
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.catalog.resolve import snapshot_from_folder
from service.core.planners.serving import plan_replica
from service.core.pooling.workloads import ReplicaCapacity
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants, serving_constants
from service.core.replica.lookup import Lookup
from service.core.replica.passes import Traffic
from service.core.replica.search import Footprint, packed_gpu_count, room_of
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import Speed
from service.core.scenarios.serving_service import ServingService

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
ARCHITECTURES = (
    "llama-3.1-8b",
    "llama-3.3-70b",
    "gpt-oss-20b",
    "deepseek-v3",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "jamba-v0.1",
)
GPUS = ("h100-sxm5-80gb", "a100-sxm4-80gb", "b200-sxm-180gb", "l40s-48gb", "mi300x-192gb")
ENGINES = (None, "vllm-0.7", "vllm-0.18", "sglang-0.5", "tensorrt-llm-1.0")
MULTIPLE = 8
laws = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)


@st.composite
def services(draw, *, ttft=True):
    """A service with any of the kinds of layers, formats and limits."""
    tpot = draw(st.none() | st.floats(0.005, 0.3))
    wait = draw(st.none() | st.floats(0.1, 20)) if ttft else None
    prompt, answer = draw(st.integers(0, 50_000)), draw(st.integers(1, 4000))
    return {
        "name": "service",
        "architecture": draw(st.sampled_from(ARCHITECTURES)),
        "gpu": draw(st.sampled_from(GPUS)),
        "engine": draw(st.sampled_from(ENGINES)),
        "weight_format": draw(st.sampled_from(("bf16", "fp8", "int4", "nvfp4"))),
        "kv_cache_format": draw(st.sampled_from(("bf16", "fp8", "q8_0"))),
        "load": {"kind": "peak_requests", "peak_requests_per_s": draw(st.floats(0.1, 1e4))},
        "input_tokens_mean": prompt,
        "output_tokens_mean": answer,
        "sequence_tokens_p95": draw(st.floats(1, 4)) * (prompt + answer),
        "objectives": {"tpot_mean_s": tpot, "ttft_p95_s": wait},
        "headroom": {"target_utilization_fraction": draw(st.none() | st.floats(0.1, 1))},
        "replica": draw(replicas()),
    }


def replicas():
    """What a service may say of its replicas, mostly nothing."""
    share = st.integers(0, 100).map(lambda percent: percent / 100)
    draft = st.fixed_dictionaries({"draft_tokens": st.integers(1, 8), "acceptance_fraction": share})
    transfer = st.fixed_dictionaries({"transfer_gb_per_s": st.floats(0.1, 1000)})
    return st.fixed_dictionaries(
        {},
        optional={
            "prefix_cache_hit_fraction": share.filter(lambda hit: hit < 1),
            "speculation": draft,
            "disaggregation": transfer,
            "adapter_parameter_count": st.integers(0, 1_000_000_000),
            "prefill_chunk_tokens": st.integers(16, 32_768),
            "prompts_join_steps": st.booleans(),
            "power_cap_fraction": st.floats(0.3, 1),
        },
    )


def plan(asked, snapshot):
    recorder = Recorder(snapshot)
    answer = plan_replica(
        ServingService(**asked),
        snapshot=snapshot,
        recorder=recorder,
        gpu_multiple=MULTIPLE,
        pointer="/scenario/serving_services/0",
    )
    return answer, recorder


def gpus_per_unit(answer):
    taken = packed_gpu_count(np.array(answer.gpu_count_per_replica), MULTIPLE)
    return float(taken) / answer.units_per_s_per_replica.value


def held_gpu_count(asked, answer):
    """GPUs held at the service's own peak, with the default spare of a tenth."""
    utilization = asked["headroom"]["target_utilization_fraction"] or 1.0
    capacity = answer.units_per_s_per_replica.value * utilization
    needed = max(1, ceil(asked["load"]["peak_requests_per_s"] / capacity * (1 - 1e-12)))
    taken = packed_gpu_count(np.array(answer.gpu_count_per_replica), MULTIPLE)
    return int(taken) * ceil(needed * 1.1 * (1 - 1e-12))


@laws
@given(asked=services())
def test_the_same_question_has_the_same_answer(asked, snapshot):
    (first, one), (second, two) = plan(asked, snapshot), plan(asked, snapshot)
    assert first == second
    assert one.quantities() == two.quantities()
    assert one.assumptions() == two.assumptions()


@settings(laws, max_examples=10)
@given(asked=services())
def test_the_snapshot_is_never_modified(asked, snapshot):
    plan(asked, snapshot)
    assert snapshot == snapshot_from_folder(CATALOG, date(2026, 11, 29))


@laws
@given(asked=services())
def test_an_answer_meets_every_limit_and_a_refusal_says_by_how_much_it_fails(asked, snapshot):
    answer, _ = plan(asked, snapshot)
    objectives = asked["objectives"]
    if not isinstance(answer, ReplicaCapacity):
        for reason in answer:
            assert reason.nearest_fix
            assert reason.needed is None or reason.needed > reason.available
        return
    memory = answer.memory
    assert memory.weights + memory.overhead + memory.kv_cache <= memory.available * (1 + 1e-9)
    assert answer.concurrency_per_replica >= 1
    copies, rest = divmod(answer.gpu_count_per_replica, answer.layout.gpu_count)
    assert rest == 0
    assert copies > 1 if "disaggregation" in asked["replica"] else copies == 1
    ranges = [answer.units_per_s_per_replica, answer.tpot_mean_s, answer.ttft_p95_s]
    assert all(band.low <= band.value <= band.high for band in ranges if band is not None)
    if answer.tpot_mean_s and objectives["tpot_mean_s"]:
        assert answer.tpot_mean_s.value <= objectives["tpot_mean_s"] * (1 + 1e-9)
    if objectives["ttft_p95_s"]:
        assert answer.ttft_p95_s.value <= objectives["ttft_p95_s"] * (1 + 1e-9)


@laws
@given(asked=services(ttft=False), factor=st.floats(1, 10))
def test_a_looser_pace_never_takes_more_gpus_for_the_same_load(asked, factor, snapshot):
    assume(asked["objectives"]["tpot_mean_s"])
    assume("disaggregation" not in asked["replica"])  # copies come in whole groups
    tight, _ = plan(asked, snapshot)
    assume(isinstance(tight, ReplicaCapacity))
    looser = {"tpot_mean_s": asked["objectives"]["tpot_mean_s"] * factor}
    loose, _ = plan({**asked, "objectives": looser}, snapshot)
    assert gpus_per_unit(loose) <= gpus_per_unit(tight) * (1 + 1e-9)


@laws
@given(asked=services(ttft=False), factor=st.floats(1, 10))
def test_faster_memory_never_takes_more_gpus_for_the_same_load(asked, factor, snapshot):
    assume("disaggregation" not in asked["replica"])  # copies come in whole groups
    slow, _ = plan(asked, snapshot)
    assume(isinstance(slow, ReplicaCapacity))
    card = snapshot.gpu(asked["gpu"])
    faster = {"memory_bandwidth_gb_per_s": card.memory_bandwidth_gb_per_s * factor}
    fast, _ = plan({**asked, "gpu": card.model_copy(update=faster)}, snapshot)
    assert held_gpu_count(asked, fast) <= held_gpu_count(asked, slow)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("ranks", [1, 4])
def test_faster_memory_never_slows_a_layout_and_longer_requests_never_fit_more(
    snapshot, architecture, ranks
):
    recorder, layout = Recorder(snapshot).off(), Layout(ranks, 1)
    running, tpot = np.array([1.0, 8.0, 64.0, 512.0]), []
    for factor in (1, 2, 8):
        card = snapshot.gpu("b200-sxm-180gb")
        gpu = card.model_copy(
            update={"memory_bandwidth_gb_per_s": card.memory_bandwidth_gb_per_s * factor}
        )
        shape = ReplicaShape(
            architecture=snapshot.architecture(architecture),
            gpu=gpu,
            weight_format=snapshot.number_format("fp8"),
            kv_format=snapshot.number_format("bf16"),
            available_bytes=gpu.available_memory_bytes(hbm_fraction=1, gddr_fraction=1),
            expert_width_multiple=1.0,
            index_bytes_per_element=1.03125,
            weight_precision="fp8",
        )
        needs = shape.needs((ranks,), has_stages=False)
        constants = serving_constants(Lookup(recorder, {}), gpu, needs)
        traffic = Traffic(1000, 200, 2400, 0.8)
        tpot.append(Speed(shape, constants, traffic, recorder).at(layout, running).tpot_mean_s)
    assert np.all(np.diff(tpot, axis=0) <= 0)  # faster memory
    assert np.all(np.diff(tpot, axis=1) >= 0)  # more requests
    memory = memory_constants(Lookup(recorder, {}), gpu, needs)
    limits = [
        float(
            room_of(
                Footprint(shape, memory, Traffic(n, 200, 2 * n, 0.8)), layout, recorder
            ).running_limit
        )
        for n in (200, 1000, 1001, 30_000)
    ]
    assert limits == sorted(limits, reverse=True)
