"""The same run on other GPUs: what is carried over, what is paid, and why some cannot be had."""

import pytest

from service.core.errors import InvalidScenario
from tests.core.training_questions import a_run
from tests.core.training_runs import given, on

H100, B200, A100 = "h100-sxm5-80gb", "b200-sxm-180gb", "a100-sxm4-80gb"


def measured(rate):
    return {"kind": "measured", "tokens_per_s_per_gpu": rate}


def ranking(*keys, question=None, **fields):
    found = a_run(question={"ranked_gpus": keys} | (question or {}), **fields)
    return {one.gpu: one for one in found.ranking}


def test_the_own_gpu_is_ranked_as_the_run_is_answered():
    question = {"price_per_gpu_hour": "2.40", "ranked_gpus": [H100]}
    found = a_run(question=question, sizing=on(12), global_batch_tokens=12 * 8192)
    [own] = found.ranking
    assert own.amount == found.amount_in_whole_nodes
    assert own.gpu_count_in_whole_nodes == found.gpu_count_in_whole_nodes == 16
    assert own.wall_clock_hours == found.wall_clock_hours
    assert own.tokens_per_s_per_gpu == found.tokens_per_s_per_gpu
    assert (own.speed_basis, own.speed_scale) == ("mechanism", None)


def test_a_given_speed_is_carried_over_by_the_estimates_of_both_gpus():
    estimated = {key: a_run(gpu=key).tokens_per_s_per_gpu.value for key in (H100, B200)}
    rate = 0.8 * estimated[H100]
    found = ranking(H100, B200, speed=measured(rate))
    assert found[H100].tokens_per_s_per_gpu.value == pytest.approx(rate)
    assert found[H100].speed_scale is None
    row = found[B200]
    # As much below the estimate there as it is here.
    assert row.speed_scale == pytest.approx(0.8)
    assert row.tokens_per_s_per_gpu.value == pytest.approx(0.8 * estimated[B200])
    assert row.tokens_per_s_per_gpu.low < row.tokens_per_s_per_gpu.value
    # Its hours are those of that speed, which holds all slow phases: 1e12 tokens on 64 GPUs.
    same = a_run(gpu=B200, speed=measured(0.8 * estimated[B200]))
    assert row.wall_clock_hours.value == pytest.approx(same.wall_clock_hours.value, rel=1e-9)
    steady = 1e12 / (64 * 0.8 * estimated[B200] * 3600)
    assert row.wall_clock_hours.value == pytest.approx(steady / same.goodput_fraction, rel=1e-9)


def test_a_given_speed_above_the_peak_elsewhere_is_no_speed():
    # 98 % of the peak, were it true of the H100, is in proportion more than all of an A100's.
    here, there = (a_run(gpu=key).mfu_fraction for key in (H100, A100))
    share = 0.98
    row = ranking(A100, speed={"kind": "mfu", "mfu_fraction": share})[A100]
    assert there * share / here > 1
    assert row.days is None
    assert row.infeasibility.needed == pytest.approx(there * share / here, rel=0.05)
    assert row.infeasibility.available == 1


def test_a_speed_without_an_estimate_holds_for_its_own_gpu_alone():
    found = ranking(H100, B200, architecture=None, speed=measured(900))
    assert found[H100].days is not None
    assert found[B200].days is None
    assert found[B200].infeasibility.code == "no_constants"
    assert B200 in found[B200].failing_limit


def test_parts_that_only_serve_are_ranked_for_no_training():
    row = ranking("inferentia2-32gb")["inferentia2-32gb"]
    assert row.infeasibility.code == "no_constants"
    assert "Inferentia2" in row.failing_limit
    alone = a_run(gpu="inferentia2-32gb")
    assert [reason.code for reason in alone.infeasibilities] == ["no_constants"]
    # What somebody measured is taken at its word.
    assert a_run(gpu="inferentia2-32gb", architecture=None, speed=measured(100)).feasible


def test_a_gpu_that_fails_says_by_how_much_and_what_would_do():
    layout = given(sharding="zero_1", recompute="full")
    row = ranking("l4-24gb", layout=layout)["l4-24gb"]
    reason = row.infeasibility
    assert reason.code == "memory"
    assert row.failing_limit == reason.limit
    # Weights and gradients alone, 4 bytes of 8.03e9, are 29.9 GiB; the card has 24 GB.
    assert reason.needed > 29.9
    assert reason.available < 24
    assert reason.nearest_fix


def test_constants_of_a_class_are_marked():
    found = ranking(H100, "h20-96gb")
    # The catalog holds shares of the peak that were measured on the H100, and none of the H20.
    assert not found[H100].is_class_fallback
    assert found["h20-96gb"].is_class_fallback


def test_a_gpu_named_twice_is_refused():
    with pytest.raises(InvalidScenario) as refused:
        ranking(H100, B200, H100)
    assert refused.value.pointer == "/ranked_gpus/2"
