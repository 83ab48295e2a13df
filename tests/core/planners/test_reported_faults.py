"""Faults that other tools were reported for: the right value, and the wrong one that was given."""

import pytest

from service.core.estimates import Range
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests.pool_builders import need, pools, run, service, snapshot

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
GPU = "h100-sxm5-80gb"


def plan(*services, months=1, start="2027-01", method=None):
    document = {
        "horizon": {"start_month": start, "month_count": months},
        "serving_services": [item | {"gpu": GPU} for item in services],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": method or {"kind": "rent", "price_per_gpu_hour": "2"}}],
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())[0]


def test_a_request_without_a_prompt_and_with_one_token_has_a_finite_rate():
    # An autoscaler divided by a service time of 0 and answered an infinite rate.
    estimated = {
        "name": "classifier",
        "architecture": "llama-3.1-8b",
        "weight_format": "bf16",
        "input_tokens_mean": 0,
        "output_tokens_mean": 1,
        "load": {"kind": "peak_requests", "peak_requests_per_s": 40},
    }
    (found,) = plan(estimated).serving_services
    assert 0 < found.units_per_s_per_replica < 1e6
    assert found.held_replica_count >= 1


def test_an_hour_without_traffic_falls_to_the_minimum():
    # An autoscaler read no traffic as no data and kept the 7 workers of the peak.
    busy = (1.0,) + (0.0,) * 23
    item = service(peak=7, capacity=1, gpus=1, demand_profile=busy, headroom=FULL)
    outcome = pools([], [item], months=1, multiple=1)
    needed = outcome.uses[0].hourly.serving_needed[:24].tolist()
    assert needed == [7] + [1] * 23


def test_whole_nodes_are_billed():
    # A scheduler asked for one node of 8 for 12 GPUs; two nodes, 16 GPUs, are billed.
    outcome = pools([need(run(gpu_count=12), gpu_count=12, hours=10)], months=1)
    (pool,) = outcome.pools
    assert (pool.node_count, pool.gpu_count, pool.allocated_gpu_hours) == (2, 16, 160)


@pytest.mark.parametrize(("per_instance", "held"), [(1, 2), (4, 4)])
def test_two_replicas_of_one_gpu_take_two_nodes_of_one_and_not_one_of_four(per_instance, held):
    # A provisioner chose a node of 4 for two replicas of one GPU each: two GPUs stood idle.
    items = [service(name, peak=1, capacity=1, gpus=1, headroom=FULL) for name in ("a", "b")]
    (pool,) = pools([], items, months=1, multiple=per_instance).pools
    assert pool.gpu_count == held
    assert pool.idle_gpu_hours == (held - 2) * 744


@pytest.mark.parametrize("start", ["2027-03", "2027-10"])
def test_local_days_of_23_and_25_hours_shift_nothing_after_them(start):
    # Profiles lost an hour in spring and gained NaN in autumn, and everything after it shifted.
    # Berlin's month has 743 or 745 hours of its own; in UTC it has 744, less or more at its ends.
    noon = tuple(float(hour == 12) for hour in range(24))
    item = service(
        peak=5, capacity=1, gpus=1, demand_profile=noon, time_zone="Europe/Berlin", headroom=FULL
    )
    needed = pools([], [item], start=start, months=1, multiple=1).uses[0].hourly.serving_needed
    assert needed.size == 744
    at_noon = (needed == 5).nonzero()[0] % 24
    # Noon is 11 h UTC in winter and 10 h UTC in summer, once on each of 31 days.
    assert sorted(set(at_noon.tolist())) == [10, 11]
    assert at_noon.size == 31


def test_local_midnight_moves_no_charge_to_another_month():
    # 1 May 0 h at UTC+2 was exported as 30 April 22 h and counted in April.
    item = service(time_zone="Europe/Berlin", demand_profile="office_assistant").model_dump()
    found = plan(item, start="2027-04", months=2)
    for line in found.lines:
        assert f"{line.charge_period_start:%Y-%m}" == line.month
        assert line.charge_period_start.utcoffset().total_seconds() == 0
    hours = {month.month: month.gpu_hours for month in found.months}
    size = found.pools[0].gpu_count
    assert hours == {"2027-04": size * 720, "2027-05": size * 744}


def test_a_range_of_capacity_stays_in_its_order_whatever_is_held():
    item = service(headroom={"failures": {}, "burst": {}})
    (found,) = pools([], [item], months=1, speed=Range(value=4, low=3, high=5)).services
    assert found.held_share.low <= 1 <= found.held_share.high
