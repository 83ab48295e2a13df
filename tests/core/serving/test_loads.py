"""Every kind of load is one and the same in a size and in a plan, from next to nothing upwards."""

import pytest
from pydantic import ValidationError

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.serving_service import ServingService
from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

H100 = "h100-sxm5-80gb"
SERVED = {
    "architecture": "llama-3.1-8b",
    "weight_format": "bf16",
    "engine": "vllm-0.18",
    "input_tokens_mean": 1000,
    "output_tokens_mean": 200,
}
USERS = {
    "kind": "users",
    "user_count": 7_200_000,
    "active_fraction": 0.5,
    "requests_per_active_user_hour": 1,
}
TRACE = {"kind": "trace", "requests_per_s_mean": 500, "peak_over_mean": 2}
OFFICE_DAY = [0.25] * 12 + [0.75] * 12


def size(snapshot, load, **changes):
    price = {H100: "200.00"}
    asked = SERVED | {"load": load, "gpus": [H100], "prices_per_gpu_hour": price} | changes
    return estimate_serving_size(ServingSizeQuestion(**asked), snapshot)


def plan(snapshot, load, **changes):
    service = SERVED | {"name": "assistant", "gpu": H100, "load": load} | changes
    scenario = Scenario(
        horizon={"start_month": "2027-01", "month_count": 1},
        serving_services=[service],
        pooling={"kind": "separate"},
        procurement=[{"method": {"kind": "rent", "price_per_gpu_hour": "200.00"}}],
    )
    return estimate_fleet(scenario, snapshot=snapshot)[0]


@pytest.mark.parametrize(
    ("load", "profile", "peak", "mean"),
    [
        # 7.2e6 people, half of them active, one request each in the hour: 1,000 a second.
        (USERS, "flat", 1000, 1000),
        (USERS, OFFICE_DAY, 1000, 1000 * (0.25 + 0.75) / 2 / 0.75),
        # The mean of the profile's hours is the trace's; what is above the busiest is a burst.
        (TRACE, "flat", 1000, 500),
        (TRACE, OFFICE_DAY, 1000, 500),
        # Hours that stand 4 times above the mean are more than the 2 that the trace saw.
        (TRACE, [1.0] * 6 + [0.0] * 18, 2000, 500),
        # The rate where the profile is 1, which this one never reaches.
        ({"kind": "peak_requests", "peak_requests_per_s": 1000}, [0.5] * 24, 500, 500),
        ({"kind": "peak_requests", "peak_requests_per_s": 1000}, OFFICE_DAY, 750, 500),
    ],
)
def test_a_load_is_the_same_in_a_size_and_in_a_plan(snapshot, load, profile, peak, mean):
    sized = size(snapshot, load, demand_profile=profile)
    assert sized.peak_requests_per_s == pytest.approx(peak)
    assert sized.mean_requests_per_s == pytest.approx(mean)
    planned = plan(snapshot, load, demand_profile=profile)
    [option], [service] = sized.options, planned.serving_services
    assert service.held_replica_count == option.held_replica_count
    # 31 days of 86,400 s of 1,200 tokens each, in the bill for a million of them.
    tokens = mean * 31 * 86_400 * 1200
    total = float(planned.totals.amount)
    assert float(service.cost_per_million_tokens) == pytest.approx(total / tokens * 1e6, rel=0.01)


@pytest.mark.parametrize(
    "load",
    [
        {"kind": "daily_tokens", "tokens_per_day": 1e-9},
        {
            "kind": "users",
            "user_count": 1,
            "active_fraction": 1e-12,
            "requests_per_active_user_hour": 1e-12,
        },
        {"kind": "trace", "requests_per_s_mean": 1e-12, "peak_over_mean": 1},
        {"kind": "peak_requests", "peak_requests_per_s": 1e-12},
    ],
)
@pytest.mark.parametrize("profile", ["flat", [1e-12] * 168])
def test_next_to_no_load_takes_one_replica_and_its_spare(snapshot, load, profile):
    [option] = size(snapshot, load, demand_profile=profile).options
    assert option.held_replica_count == 2
    assert plan(snapshot, load, demand_profile=profile).serving_services[0].held_replica_count == 2


def test_a_load_beyond_counting_is_said_to_be_so(snapshot):
    load = {"kind": "trace", "requests_per_s_mean": 1e12, "peak_over_mean": 1000}
    for profile in ("flat", [0.001] * 168):
        [reason] = size(snapshot, load, demand_profile=profile).infeasibilities
        assert reason.code == "fleet"
        planned = plan(snapshot, load, demand_profile=profile)
        assert [reason.code for reason in planned.infeasibilities] == ["fleet"]


def test_the_busiest_interval_of_a_trace_is_told_once():
    with pytest.raises(ValidationError, match="two answers"):
        ServingService(**SERVED, name="a", gpu=H100, load=TRACE, headroom={"burst": {}})
    with pytest.raises(ValidationError, match="two answers"):
        ServingSizeQuestion(**SERVED, load=TRACE, headroom={"burst": {}})


def test_ranks_beside_a_group_over_a_bus_are_refused_with_the_one_that_is_left(snapshot):
    # Four A5000 share a node's bus, and only two of them a bridge.
    asked = SERVED | {"architecture": "minimax-m2.5", "weight_format": "nf4"}
    layout = {"tensor_parallel": 4, "attention_data_parallel": 2}
    question = asked | {"load": TRACE, "gpus": ["rtx-a5000-24gb"], "layout": layout}
    [reason] = estimate_serving_size(ServingSizeQuestion(**question), snapshot).infeasibilities
    assert reason.nearest_fix == "attention_data_parallel 1 at tensor_parallel 4"
    assert ReplicaLayout(tensor_parallel=4).attention_data_parallel == 1
