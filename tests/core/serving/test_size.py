"""Sizing over kinds of GPU: ranks, costs and effects agree with arithmetic and with one another."""

import re
from decimal import Decimal

import pytest

from service.core.errors import CoreError
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


def test_objectives_out_of_reach_are_refused_by_how_much_the_nearest_first(snapshot):
    found = answer(snapshot, objectives={"tpot_mean_s": 0.001})
    assert not found.feasible
    assert {item.reason.code for item in found.rejected} <= {"tpot", "no_constants", "memory"}
    missed = [reason for reason in found.infeasibilities if reason.code == "tpot"]
    assert all(reason.needed > reason.available == 0.001 for reason in missed)
    assert [reason.needed for reason in missed] == sorted(reason.needed for reason in missed)


@pytest.mark.parametrize("objective", ["tpot_mean_s", "ttft_p95_s"])
def test_what_would_meet_the_objectives_does(snapshot, objective):
    found = answer(snapshot, objectives={objective: 0.001})
    nearest = next(reason for reason in found.infeasibilities if reason.needed is not None)
    # "objectives.tpot_mean_s of 0.00789 or more, which tensor_parallel 8 reaches …"
    assert nearest.nearest_fix.startswith(f"objectives.{objective} of ")
    reached = float(nearest.nearest_fix.split()[2])
    assert answer(snapshot, objectives={objective: reached}).feasible


def applied(reason, objectives):
    """The objectives with every one that a fix names at the value that it names."""
    named = re.findall(r"objectives\.(\w+) of ([0-9.e-]+)", reason.nearest_fix)
    return objectives | {name: float(value) for name, value in named}


@pytest.mark.parametrize(
    "objectives",
    [
        {"tpot_mean_s": 0.001, "ttft_p95_s": 0.05},
        {"tpot_mean_s": 0.05, "ttft_p95_s": 0.05},
        {"tpot_mean_s": 0.001, "ttft_p95_s": 5.0},
    ],
)
def test_what_a_refused_gpu_is_told_meets_all_objectives_together(snapshot, objectives):
    card = "h100-sxm5-80gb"
    found = answer(snapshot, gpus=[card], objectives=objectives)
    [reason] = found.infeasibilities
    easier = applied(reason, objectives)
    assert easier != objectives
    [option] = answer(snapshot, gpus=[card], objectives=easier).options
    assert option.tpot_mean_s.value <= easier["tpot_mean_s"]
    assert option.ttft_p95_s.value <= easier["ttft_p95_s"]


def test_a_refused_gpu_is_told_the_utilisation_at_which_all_objectives_hold(snapshot):
    card, full = "h100-sxm5-80gb", {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
    objectives = {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05}
    [reason] = answer(snapshot, gpus=[card], objectives=objectives, headroom=full).infeasibilities
    assert reason.code == "ttft"
    target = float(re.search(r"target_utilization_fraction of ([0-9.]+)", reason.nearest_fix)[1])
    emptier = full | {"target_utilization_fraction": target}
    [option] = answer(snapshot, gpus=[card], objectives=objectives, headroom=emptier).options
    assert option.ttft_p95_s.value <= 2.0
    assert option.tpot_mean_s.value <= 0.05


def test_weights_that_fit_nowhere_are_told_what_would(snapshot):
    # Kimi K2 in bf16 is 2 TB: sixteen stages of four cards of 24 GB, 1.5 TB, do not hold it.
    card = "rtx-a5000-24gb"
    asked = {"gpus": [card], "prices_per_gpu_hour": {card: "0.30"}, "objectives": None}
    asked |= {"architecture": "kimi-k2"}
    found = answer(snapshot, weight_format="bf16", **asked)
    [reason] = found.infeasibilities
    assert reason.code == "memory"
    assert reason.needed > reason.available
    field, name, *_ = reason.nearest_fix.split()
    assert field == "weight_format"
    assert answer(snapshot, weight_format=name, **asked).feasible


def test_a_power_cap_costs_speed_and_saves_energy(snapshot):
    whole, capped = answer(snapshot), answer(snapshot, power_cap_fraction=0.6)
    assert whole.power_cap is None
    cost = capped.power_cap
    exponent = snapshot.assumption("power_cap_compute_exponent").value
    load = snapshot.assumption("power_load_fraction").value
    assert cost.compute_rate_fraction == pytest.approx(0.6**exponent)
    # Memory is not slowed, so that no more is lost than compute loses.
    assert cost.compute_rate_fraction <= cost.units_per_s_fraction < 1
    drawn = min(load, 0.6) / load
    assert cost.energy_per_token_fraction == pytest.approx(drawn / cost.units_per_s_fraction)


def test_copies_apart_name_the_gain_that_makes_a_group_larger(snapshot):
    def names(**changes):
        return {used.name for used in answer(snapshot, **changes).assumptions}

    apart = names(disaggregation={"transfer_gb_per_s": 50})
    assert "copies_apart_least_gain_factor" in apart
    assert "copies_apart_least_gain_factor" not in names()


def test_energy_and_its_inverse_by_hand(snapshot):
    load = snapshot.assumption("power_load_fraction").value
    for option in answer(snapshot).options:
        watts = option.gpu_count * snapshot.gpu(option.gpu).thermal_design_power_w * load
        # 40 requests a second of 400 answer tokens each.
        assert option.joules_per_output_token == pytest.approx(watts / 16_000)
        assert option.output_tokens_per_s_per_watt == pytest.approx(16_000 / watts)


def test_each_optimisation_is_a_line_in_dollars(snapshot):
    found = answer(
        snapshot,
        weight_format="bf16",
        optimisations={"distilled_architecture": "llama-3.1-8b"},
        gpus=["h100-sxm5-80gb"],
    )
    assert [effect.name for effect in found.effects] == [
        "weight_format",
        "kv_cache_format",
        "prefix_cache",
        "speculation",
        "distilled_model",
        "all",
    ]
    [option] = found.options
    for effect in found.effects:
        # An hour's bill, for the 730 hours of a mean month.
        saved = float(option.amount_per_hour) * 730 * (1 - effect.cost_factor)
        assert float(effect.saved_per_month) == pytest.approx(saved, abs=0.01)


def test_an_optimisation_that_is_in_use_saves_nothing_again(snapshot):
    draft = {"draft_tokens": 3, "acceptance_fraction": 0.7}
    found = answer(snapshot, speculation=draft, prefix_cache_hit_fraction=0.5)
    names = {effect.name for effect in found.effects}
    assert names.isdisjoint({"speculation", "prefix_cache"})


def test_no_prompt_and_one_token_divide_nothing_by_zero(snapshot):
    found = answer(snapshot, input_tokens_mean=0, output_tokens_mean=1)
    assert found.options
    for option in found.options:
        assert 0 < option.units_per_s_per_replica.value < 1e6
        # Answers of one token have no gap between tokens: null, and not 0.
        assert option.tpot_mean_s is None
        assert option.cost_per_million_tokens > 0


def test_one_users_speed_is_not_the_throughput(snapshot):
    # Bandwidth over bytes of weights is the pace of one stream: 3,350 GB/s over 70.6 GB and four
    # GPUs is at most 190 tokens a second; a replica serves many streams at once.
    points = answer(snapshot, gpus=["h100-sxm5-80gb"]).frontier
    fastest, fullest = points[0], points[-1]
    group = fastest.layout.tensor_parallel
    assert fastest.tokens_per_s_per_user < 3350 / 70.6 * group
    assert fullest.output_tokens_per_s_per_gpu > 3 * fastest.output_tokens_per_s_per_gpu


def test_many_gpus_at_once_are_each_gpu_alone(snapshot):
    together = {o.gpu: o for o in answer(snapshot).options}
    for gpu, option in together.items():
        [alone] = answer(snapshot, gpus=[gpu]).options
        assert alone == option


@pytest.mark.parametrize("cause", ["failures", "cold_start"])
def test_a_cause_that_a_size_cannot_hold_is_refused_and_not_left_out(snapshot, cause):
    with pytest.raises(ValueError, match=f"{cause} is held in plans"):
        answer(snapshot, headroom={cause: {}})


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"gpus": ["h100"]}, "/gpus/0"),
        ({"prices_per_gpu_hour": {"h100": "2.00"}}, "/prices_per_gpu_hour/h100"),
        ({"weight_format": "fp7"}, "/weight_format"),
        ({"architecture": "llama-9"}, "/architecture"),
        ({"draft_architecture": "llama-9"}, "/draft_architecture"),
        ({"engine": "nothing-1.0"}, "/engine"),
        ({"optimisations": {"weight_format": "fp7"}}, "/optimisations/weight_format"),
        ({"optimisations": {"kv_cache_format": "fp7"}}, "/optimisations/kv_cache_format"),
        (
            {"optimisations": {"distilled_architecture": "llama-9"}},
            "/optimisations/distilled_architecture",
        ),
    ],
)
@pytest.mark.parametrize("objectives", [None, {"tpot_mean_s": 1e-9}], ids=["served", "unserved"])
def test_an_unknown_key_points_at_its_field(snapshot, changes, pointer, objectives):
    with pytest.raises(CoreError) as error:
        answer(snapshot, **changes, objectives=objectives)
    assert error.value.pointer == pointer


def test_no_gpus_are_not_all_gpus(snapshot):
    with pytest.raises(ValueError, match="at least 1 item"):
        answer(snapshot, gpus=[])


def test_an_illegal_layout_is_refused_with_the_nearest_legal_one(snapshot):
    found = answer(snapshot, layout={"tensor_parallel": 7})
    assert not found.options
    reason = next(item.reason for item in found.rejected if item.gpu == "h100-sxm5-80gb")
    assert (reason.code, reason.needed, reason.available) == ("layout", 7, 8)
    nearest = {"tensor_parallel": int(reason.available)}
    served = {option.gpu for option in answer(snapshot, layout=nearest).options}
    assert "h100-sxm5-80gb" in served
