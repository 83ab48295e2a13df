"""Speed of a replica: what each feature must do to it, whatever the constants."""

import pytest

from service.core.serving.performance import (
    ServingPerformanceQuestion,
    estimate_serving_performance,
)
from service.core.serving.roofline import RooflineQuestion, estimate_roofline

BASE = {
    "architecture": "llama-3.3-70b",
    "weight_format": "fp8",
    "kv_cache_format": "fp8",
    "engine": "vllm-0.18",
    "input_tokens_mean": 1500,
    "output_tokens_mean": 400,
    "layout": {"tensor_parallel": 4},
}


def answer(snapshot, **changes):
    asked = BASE | {"gpu": "h100-sxm5-80gb", "running_requests": 16} | changes
    return estimate_serving_performance(ServingPerformanceQuestion(**asked), snapshot)


def test_every_result_has_a_range_and_names_its_weakest_assumption(snapshot):
    found = answer(snapshot, burst_requests=32)
    names = {used.name for used in found.assumptions}
    for result in ("tpot_mean_s", "units_per_s", "ttft_unloaded_s", "ttft_p95_s", "ttft_burst_s"):
        band = getattr(found, result)
        assert band.low < band.value < band.high
        assert band.weakest_assumption in names


def test_the_terms_of_a_step_are_the_step(snapshot):
    found = answer(snapshot)
    decode = sum(term.seconds for term in found.terms if term.phase == "decode")
    assert decode == pytest.approx(found.decode_step_s.value)
    prefill = sum(term.seconds for term in found.terms if term.phase == "prefill")
    assert prefill == pytest.approx(found.ttft_unloaded_s.value)


def test_waiting_rises_from_the_idle_replica_to_the_mean_to_the_tail(snapshot):
    found = answer(snapshot)
    assert found.ttft_unloaded_s.value < found.ttft_mean_s.value < found.ttft_p95_s.value
    fuller = answer(snapshot, utilization_fraction=0.95)
    assert fuller.ttft_p95_s.value > found.ttft_p95_s.value
    # Fewer than one request in twenty waits here: their wait is in the mean, not in the tail.
    rare = answer(snapshot, input_tokens_mean=100, running_requests=1)
    assert rare.ttft_unloaded_s.value < rare.ttft_mean_s.value <= rare.ttft_p95_s.value


def test_a_held_prefix_shortens_the_first_token_and_lifts_throughput(snapshot):
    plain, cached = answer(snapshot), answer(snapshot, prefix_cache_hit_fraction=0.8)
    assert cached.ttft_unloaded_s.value < plain.ttft_unloaded_s.value
    assert cached.units_per_s.value > plain.units_per_s.value
    assert cached.decode_step_s.value == plain.decode_step_s.value


def test_drafts_pay_only_while_they_are_accepted(snapshot):
    def pace(acceptance):
        draft = {"draft_tokens": 4, "acceptance_fraction": acceptance}
        return answer(snapshot, running_requests=1, speculation=draft).tpot_mean_s.value

    alone = answer(snapshot, running_requests=1).tpot_mean_s.value
    assert pace(0.8) < alone < pace(0.0)
    # Nothing is faster than all five tokens of a step at the price of one step.
    assert pace(1.0) > alone / 5


def test_prompts_that_join_steps_take_less_from_them(snapshot):
    joined = answer(snapshot, prompts_join_steps=True)
    apart = answer(snapshot, prompts_join_steps=False)
    assert joined.tpot_mean_s.value < apart.tpot_mean_s.value


def test_copies_apart_send_the_cache_of_a_prompt(snapshot):
    together = answer(snapshot)
    found = answer(snapshot, disaggregation={"transfer_gb_per_s": 50})
    # 1,500 tokens at 163,840 B each over 50 GB/s.
    pools = found.pools
    assert pools.kv_transfer_s == pytest.approx(1500 * 163_840 / 50e9)
    balance = pools.decode_units_per_s_per_copy / pools.prefill_units_per_s_per_copy
    assert pools.prefill_copies_per_decode_copy == pytest.approx(balance)
    # No prompt interferes with a step, and the slower side bounds the replica.
    assert found.tpot_mean_s.value == found.decode_step_s.value
    rates = (
        pools.prefill_copies * pools.prefill_units_per_s_per_copy,
        pools.decode_copies * pools.decode_units_per_s_per_copy,
    )
    assert found.units_per_s.value == pytest.approx(min(rates))
    copies = pools.prefill_copies + pools.decode_copies
    assert found.gpu_count_per_replica == copies * together.gpu_count_per_replica


def test_more_requests_than_fit_are_refused_with_the_number_that_does(snapshot):
    found = answer(snapshot, running_requests=8000)
    [refusal] = found.infeasibilities
    assert refusal.code == "memory"
    assert answer(snapshot, running_requests=int(refusal.available)).feasible


def test_points_stand_under_their_ceilings(snapshot):
    asked = BASE | {"gpus": ["h100-sxm5-80gb", "l40s-48gb", "gaudi3-128gb"], "running_requests": 8}
    found = estimate_roofline(RooflineQuestion(**asked), snapshot)
    # H100 SXM: 989 TFLOPS over 3.35 TB/s.
    ridge = next(c for c in found.ceilings if c.precision == "bf16").ridge_flop_per_byte
    assert ridge == pytest.approx(989.4 / 3.35, rel=1e-3)
    for point in found.points:
        assert point.attainable_flop_per_s > 0
        is_memory = point.intensity_flop_per_byte < point.ridge_flop_per_byte
        assert point.bound == ("memory" if is_memory else "compute")
        assert point.attainable_flop_per_s <= max(
            ceiling.peak_flop_per_s for ceiling in found.ceilings if ceiling.gpu == point.gpu
        )
    assert found.feasible
    # No kernel of that class was ever measured: its points have their place, and no estimate.
    estimated = {point.gpu: point.estimated_flop_per_s is not None for point in found.points}
    assert estimated == {"h100-sxm5-80gb": True, "l40s-48gb": True, "gaudi3-128gb": False}


def test_any_phase_and_kernel_on_every_gpu_of_the_catalog(snapshot):
    asked = BASE | {"gpus": list(snapshot.gpus), "layout": None}
    asked |= {"phases": ["decode"], "kernels": ["attention"]}
    found = estimate_roofline(RooflineQuestion(**asked), snapshot)
    assert {(point.phase, point.kernel) for point in found.points} == {("decode", "attention")}
    placed = {point.gpu for point in found.points}
    named = {snapshot.gpu(key).name: key for key in snapshot.gpus}
    refused = {named[part.workload] for part in found.infeasibilities}
    assert placed | refused == set(snapshot.gpus)
    assert placed.isdisjoint(refused)
    assert {part.code for part in found.infeasibilities} <= {"memory", "format"}
    # Decode over grouped heads: 2 operations for each query head and element of a key or a value,
    # of 64 heads over 8 that are cached, in bytes: 64 / 8 · 2 = 16 FLOP/B in 8 bit, 8 in 16 bit.
    width = {"bf16": 8, "fp8": 16}[BASE.get("kv_cache_format", "bf16")]
    for point in found.points:
        assert point.intensity_flop_per_byte == pytest.approx(width, rel=0.01)


def test_a_roof_rises_with_the_bandwidth_and_is_flat_from_its_ridge(snapshot):
    asked = BASE | {"gpus": ["b200-sxm-180gb", "t4-16gb"]}
    found = estimate_roofline(RooflineQuestion(**asked), snapshot)
    assert {c.precision for c in found.ceilings if c.gpu == "b200-sxm-180gb"} >= {
        "tf32",
        "bf16",
        "fp8",
        "fp6",
        "fp4",
        "int8",
    }
    for ceiling in found.ceilings:
        (left, low), (ridge, top), (right, end) = ceiling.line
        assert low / left == pytest.approx(ceiling.bandwidth_bytes_per_s)
        assert top / ridge == pytest.approx(ceiling.bandwidth_bytes_per_s)
        assert top == end == ceiling.peak_flop_per_s
        assert left < ridge < right


def test_attention_of_a_prompt_by_hand(snapshot):
    asked = BASE | {"gpus": ["h100-sxm5-80gb"], "layout": {"tensor_parallel": 4}}
    points = estimate_roofline(RooflineQuestion(**asked), snapshot).points
    [point] = [p for p in points if (p.phase, p.kernel) == ("prefill", "attention")]
    # 64 heads of width 128: 4·64·128 FLOP for each pair and layer, half of the pairs under the
    # causal mask; the cache of 2·8·128 elements a token and layer is written and read once.
    tokens = BASE["input_tokens_mean"]
    element = {"bf16": 2, "fp8": 1}[BASE.get("kv_cache_format", "bf16")]
    expected = 4 * 64 * 128 * tokens / 2 / (2 * 2 * 8 * 128 * element)
    assert point.intensity_flop_per_byte == pytest.approx(expected, rel=0.01)


def test_decode_of_few_requests_is_bound_by_memory_and_prefill_by_compute(snapshot):
    points = {(p.phase, p.kernel): p for p in answer(snapshot, running_requests=4).roofline}
    assert points["decode", "all"].bound == "memory"
    assert points["prefill", "all"].bound == "compute"
    # 2 operations for each weight of one byte and each of the 4 requests.
    assert points["decode", "layers"].intensity_flop_per_byte == pytest.approx(8)
