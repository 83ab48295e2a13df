"""Why a replica cannot be had, and what is named instead works."""

import re

import pytest

from service.core.errors import InvalidScenario, UnknownKey
from service.core.hardware import Gpu
from tests.core.serving_plans import POINTER, plan, recorded, refusal


def test_a_pace_out_of_reach_says_what_is_reached_and_that_works(snapshot):
    reason = refusal(snapshot, objectives={"tpot_mean_s": 0.001})
    assert (reason.code, reason.unit, reason.available) == ("tpot", "s", 0.001)
    assert reason.needed > 0.001
    suggested = float(re.search(r"tpot_mean_s of ([0-9.e-]+)", reason.nearest_fix)[1])
    assert plan(snapshot, objectives={"tpot_mean_s": suggested}).concurrency_per_replica >= 1


def test_a_first_token_out_of_reach_says_what_is_reached_and_that_works(snapshot):
    objectives = {"ttft_p95_s": 0.05, "tpot_mean_s": 0.05}
    reason = refusal(snapshot, objectives=objectives)
    assert reason.code == "ttft"
    suggested = float(re.search(r"ttft_p95_s of ([0-9.e-]+)", reason.nearest_fix)[1])
    answer = plan(snapshot, objectives={**objectives, "ttft_p95_s": suggested})
    assert answer.ttft_p95_s.value <= suggested


def applied(reason, objectives):
    """The objectives with every one that a fix names at the value that it names."""
    named = re.findall(r"objectives\.(\w+) of ([0-9.e-]+)", reason.nearest_fix)
    return {**objectives, **{name: float(value) for name, value in named}}


@pytest.mark.parametrize(
    "objectives",
    [
        {"tpot_mean_s": 0.001, "ttft_p95_s": 0.05},
        {"tpot_mean_s": 0.001, "ttft_p95_s": 5.0},
        {"tpot_mean_s": 0.05, "ttft_p95_s": 0.05},
        {"tpot_mean_s": 0.001, "ttft_p95_s": 0.15},
    ],
)
def test_what_a_fix_names_meets_all_objectives_together(snapshot, objectives):
    reason = refusal(snapshot, objectives=objectives)
    easier = applied(reason, objectives)
    assert easier != objectives
    answer = plan(snapshot, objectives=easier)
    assert answer.tpot_mean_s.value <= easier["tpot_mean_s"]
    assert answer.ttft_p95_s.value <= easier["ttft_p95_s"]


def test_a_wait_that_a_full_fleet_makes_names_the_utilisation_that_works(snapshot):
    # At 0.99 of all capacity even one request a replica waits long for its slot; at a lower
    # utilisation the same objective holds.
    full = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
    objectives = {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05}
    reason = refusal(snapshot, headroom=full, objectives=objectives)
    assert reason.code == "ttft"
    target = re.search(r"target_utilization_fraction of ([0-9.]+)", reason.nearest_fix)
    emptier = {**full, "target_utilization_fraction": float(target[1])}
    answer = plan(snapshot, headroom=emptier, objectives=objectives)
    assert answer.ttft_p95_s.value <= 2.0
    assert answer.tpot_mean_s.value <= 0.05


def test_a_sequence_longer_than_the_architecture_takes_is_refused_by_name(snapshot):
    # Llama 3.3 70B was made for 131,072 tokens.
    reason = refusal(snapshot, sequence_tokens_p95=131_073)
    assert (reason.code, reason.unit) == ("context", "token")
    assert (reason.needed, reason.available) == (131_073, 131_072)
    assert "131072" in reason.nearest_fix
    assert plan(snapshot, sequence_tokens_p95=131_072).gpu_count_per_replica >= 1


def test_means_longer_than_the_architecture_takes_are_refused_too(snapshot):
    reason = refusal(snapshot, input_tokens_mean=131_000, sequence_tokens_p95=None)
    assert reason.code == "context"


def test_an_unstated_tail_stops_at_the_context_of_the_architecture(snapshot):
    # Twice the mean would be 200,800 tokens.
    answer = plan(snapshot, input_tokens_mean=100_000, sequence_tokens_p95=None)
    assert answer.gpu_count_per_replica >= 1


def test_weights_that_fit_nowhere_name_the_format_and_layout_that_do(snapshot):
    # 405B in 16 bit over 4 ranks and 16 stages of 16 GB cards.
    asked = {"architecture": "llama-3.1-405b", "gpu": "t4-16gb", "weight_format": "bf16"}
    reason = refusal(snapshot, **asked)
    assert (reason.code, reason.unit) == ("memory", "GiB")
    assert reason.needed > reason.available
    field, key, ranks, stages = re.search(
        r"(weight_format|kv_cache_format) (\S+) fits at tensor_parallel (\d+) and "
        r"pipeline_parallel (\d+)",
        reason.nearest_fix,
    ).groups()
    answer = plan(snapshot, **{**asked, field: key})
    assert answer.memory.kv_cache > 0
    assert answer.gpu_count_per_replica <= int(ranks) * int(stages) * 4


def test_a_sequence_that_fits_nowhere_asks_for_more_memory_or_shorter_sequences(snapshot):
    listed = snapshot.architectures["llama-3.1-8b"]
    endless = listed.model_copy(update={"max_context_tokens": None})
    reason = refusal(snapshot, architecture=endless, gpu="t4-16gb", sequence_tokens_p95=1e9)
    assert reason.code == "memory"
    assert "shorter sequences" in reason.nearest_fix


def test_a_class_without_constants_is_no_number(snapshot):
    reason = refusal(snapshot, gpu="trainium2-96gb")
    assert reason.code == "no_constants"
    assert "trainium" in reason.limit
    assert "measured" in reason.nearest_fix


def test_a_gpu_without_a_matrix_rate_is_a_format_refusal(snapshot):
    bare = Gpu(
        name="vector card",
        gpu_class="hopper",
        memory_gb=80,
        memory_bandwidth_gb_per_s=1000,
        peak_tflops={"fp32": 10},
    )
    reason = refusal(snapshot, gpu=bare)
    assert reason.code == "format"
    assert "fp32" in reason.nearest_fix


def test_weights_in_a_format_that_the_chip_lacks_compute_in_its_fallback(snapshot):
    # An A100 has no FP8 mode: weights stay 8 bit in memory and are widened to 16.
    answer, quantities, assumptions = recorded(snapshot, gpu="a100-sxm4-80gb")
    assert answer.memory.weights * answer.gpu_count_per_replica * 2**30 < 80e9
    assert "weight_only_extra_bytes_per_parameter" in assumptions
    assert quantities["ridge_flop_per_byte"].value == pytest.approx(312e12 / 2.039e12)


# Bad requests


@pytest.mark.parametrize(
    ("changes", "kind", "field"),
    [
        ({"weight_format": "fp9"}, UnknownKey, "weight_format"),
        ({"kv_cache_format": "fp9"}, UnknownKey, "kv_cache_format"),
        ({"architecture": "gpt-9"}, UnknownKey, "architecture"),
        ({"gpu": "x100"}, UnknownKey, "gpu"),
        ({"engine": "vllm-0.1"}, UnknownKey, "engine"),
    ],
)
def test_an_unknown_key_points_at_its_field(snapshot, changes, kind, field):
    with pytest.raises(kind) as refused:
        plan(snapshot, **changes)
    assert refused.value.pointer == f"{POINTER}/{field}"


def test_an_architecture_without_layers_is_refused_by_name(snapshot):
    totals = snapshot.architecture("llama-3.1-8b").model_dump()
    totals |= {"layer_groups": (), "parameter_count_basis": "published"}
    with pytest.raises(InvalidScenario, match="layers") as refused:
        plan(snapshot, architecture=totals)
    assert refused.value.pointer == f"{POINTER}/architecture"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("running_requests_maximum.vllm-0_2", 20_000),
        ("gemm_compute_fraction.hopper.fp8", 0),
        ("kv_allocated_output_fraction", -1),
        ("target_utilization_fraction.with_spare", 1.5),
    ],
)
def test_an_override_that_cannot_be_is_refused(snapshot, name, value):
    with pytest.raises(InvalidScenario) as refused:
        plan(snapshot, overrides={name: value}, engine="vllm-0.7")
    assert refused.value.pointer.startswith("/scenario/assumption_overrides")


def test_a_memory_too_slow_for_any_number_is_refused(snapshot):
    card = snapshot.gpu("h100-sxm5-80gb").model_copy(update={"memory_bandwidth_gb_per_s": 5e-324})
    with pytest.raises(InvalidScenario, match="finite"):
        plan(snapshot, gpu=card)


def test_a_memory_faster_than_any_is_answered(snapshot):
    card = snapshot.gpu("h100-sxm5-80gb").model_copy(update={"memory_bandwidth_gb_per_s": 1e30})
    assert plan(snapshot, gpu=card).units_per_s_per_replica.value > 0
