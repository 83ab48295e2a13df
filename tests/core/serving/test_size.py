"""Sizing over kinds of GPU: ranks, costs and effects agree with arithmetic and with one another."""

from decimal import Decimal

import pytest

from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

GPUS = ["h100-sxm5-80gb", "b200-sxm-180gb", "mi300x-192gb", "l40s-48gb", "gaudi3-128gb"]


def answer(snapshot, **changes):
    asked = {
        "architecture": "llama-3.3-70b",
        "weight_format": "fp8",
        "engine": "vllm-0.18",
        "load": {"kind": "peak_requests", "peak_requests_per_s": 40},
        "input_tokens_mean": 1500,
        "output_tokens_mean": 400,
        "objectives": {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05},
        "gpus": GPUS,
    }
    return estimate_serving_size(ServingSizeQuestion(**asked | changes), snapshot)


def test_the_cheapest_comes_first_and_each_holds_the_objectives(snapshot):
    found = answer(snapshot)
    costs = [option.cost_per_million_tokens for option in found.options]
    assert costs == sorted(costs)
    assert all(option.tpot_mean_s.value <= 0.05 for option in found.options)
    assert all(option.ttft_p95_s.value <= 2.0 for option in found.options)
    named = {option.gpu for option in found.options} | {item.gpu for item in found.rejected}
    assert named == set(GPUS)
    assert {item.gpu: item.reason.code for item in found.rejected}["gaudi3-128gb"] == "no_constants"


def test_input_and_output_share_the_whole_cost(snapshot):
    for option in answer(snapshot).options:
        apart = 1500 * option.cost_per_million_input_tokens
        apart += 400 * option.cost_per_million_output_tokens
        assert apart == pytest.approx(1900 * option.cost_per_million_tokens)


def test_the_cost_of_tokens_is_the_bill_over_the_tokens(snapshot):
    found = answer(snapshot, prices_per_gpu_hour={"h100-sxm5-80gb": "2.00"}, gpus=GPUS[:1])
    [option] = found.options
    assert option.amount_per_hour == option.gpu_count * Decimal(2)
    # 40 requests a second of 1,900 tokens for 3,600 seconds.
    tokens = 40 * 1900 * 3600
    expected = float(option.amount_per_hour) / tokens * 1e6
    assert option.cost_per_million_tokens == pytest.approx(expected)
    assert option.price_source == "given in the request"
    assert option.gpu_count % 8 == 0


@pytest.mark.parametrize(
    ("load", "peak", "mean"),
    [
        ({"kind": "peak_requests", "peak_requests_per_s": 40}, 40, 40),
        # 1.9e9 tokens a day of 1,900 each over 86,400 s.
        ({"kind": "daily_tokens", "tokens_per_day": 1.9e9}, 1e6 / 86400, 1e6 / 86400),
        # 36,000 people, a tenth active, ten requests an hour each.
        (
            {
                "kind": "users",
                "user_count": 36_000,
                "active_fraction": 0.1,
                "requests_per_active_user_hour": 10,
            },
            10,
            10,
        ),
        # The conversation trace of 2023: 5.53 requests a second, the busiest minute 1.53 times it.
        ({"kind": "trace", "requests_per_s_mean": 5.53, "peak_over_mean": 1.53}, 8.4609, 5.53),
    ],
)
def test_every_kind_of_load_has_a_peak_and_a_mean(snapshot, load, peak, mean):
    found = answer(snapshot, load=load, gpus=GPUS[:1])
    assert found.peak_requests_per_s == pytest.approx(peak)
    assert found.mean_requests_per_s == pytest.approx(mean)


def test_effects_are_multiplied_and_capped(snapshot):
    found = answer(snapshot, optimisations={"distilled_architecture": "llama-3.1-8b"})
    *parts, together = found.effects
    product = 1.0
    for part in parts:
        assert 0 < part.cost_factor <= 1
        product *= part.cost_factor
    most = snapshot.assumption("optimisation_saving_maximum_fraction").value
    assert together.cost_factor == pytest.approx(max(product, 1 - most))
    assert product < 1 - most  # an eighth of the weights and the rest: the cap binds here


def test_the_frontier_trades_throughput_for_pace(snapshot):
    points = answer(snapshot).frontier
    paces = [point.tokens_per_s_per_user for point in points]
    outputs = [point.output_tokens_per_s_per_gpu for point in points]
    assert paces == sorted(paces, reverse=True)
    assert outputs == sorted(outputs)


def test_less_power_serves_no_more(snapshot):
    whole = {o.gpu: o for o in answer(snapshot).options}
    for option in answer(snapshot, power_cap_fraction=0.5).options:
        assert option.gpu_count >= whole[option.gpu].gpu_count


def test_objectives_out_of_reach_are_refused_by_how_much(snapshot):
    found = answer(snapshot, objectives={"tpot_mean_s": 0.001})
    assert not found.feasible
    assert {item.reason.code for item in found.rejected} <= {"tpot", "no_constants", "memory"}
    missed = next(item.reason for item in found.rejected if item.reason.code == "tpot")
    assert missed.needed > missed.available == 0.001


def test_many_gpus_at_once_are_each_gpu_alone(snapshot):
    together = {o.gpu: o for o in answer(snapshot).options}
    for gpu, option in together.items():
        [alone] = answer(snapshot, gpus=[gpu]).options
        assert alone == option


@pytest.mark.parametrize("cause", ["failures", "cold_start"])
def test_a_cause_that_a_size_cannot_hold_is_refused_and_not_left_out(snapshot, cause):
    with pytest.raises(ValueError, match=f"{cause} is held in plans"):
        answer(snapshot, headroom={cause: {}})
