"""Services that begin and end on a day or in a month."""

import pytest

from service.core.scenarios.scenario import Scenario
from tests.pool_builders import RULE, pools, service

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def test_a_service_is_there_from_the_day_of_its_launch_to_the_day_of_its_retirement():
    # 10 to 20 January: 11 days of 40 GPUs, in a pool that is held no longer than that.
    item = service(
        peak=10, capacity=1, headroom=FULL, launch_date="2027-01-10", retirement_date="2027-01-20"
    )
    outcome = pools([], [item], months=2)
    (pool,) = outcome.pools
    assert pool.used_gpu_hours == 40 * 24 * 11
    assert pool.allocated_gpu_hours == 40 * 24 * 11
    (use,) = outcome.hour_uses
    assert (use.start.isoformat()[:10], use.end.isoformat()[:10]) == ("2027-01-10", "2027-01-21")
    assert outcome.services[0].units_served == 10 * 86_400 * 11


def test_hours_that_a_short_month_of_service_lacks_hold_nothing():
    # A week from Monday: only Sunday is busy, and the service ends on Saturday.
    week = (0.1,) * 144 + (1.0,) * 24
    item = service(
        peak=10,
        capacity=1,
        headroom=FULL,
        demand_profile=week,
        launch_date="2027-01-04",
        retirement_date="2027-01-09",
    )
    (pool,) = pools([], [item], months=1, multiple=1).pools
    assert pool.gpu_count == 4


def test_growth_counts_from_the_month_of_the_launch():
    item = service(
        peak=10,
        capacity=1,
        headroom=FULL,
        launch_date="2027-02-27",
        growth_per_month_fraction=1.0,
    )
    outcome = pools([], [item], months=4, multiple=4)
    assert outcome.serving_gpu_counts == (0, 160, 160, 160)
    (service_found,) = outcome.services
    assert service_found.needed_replica_count_peak == 40


def test_a_launch_in_place_of_a_month_and_not_beside_it():
    with pytest.raises(ValueError, match="give one"):
        service(first_month="2027-01", launch_date="2027-01-10")


@pytest.mark.parametrize(
    "days",
    [
        {"launch_date": "2026-12-31"},
        {"retirement_date": "2027-03-01"},
        {"launch_date": "2027-02-10", "retirement_date": "2027-02-09"},
    ],
)
def test_days_outside_the_horizon_are_refused(days):
    with pytest.raises(ValueError, match="not in the horizon"):
        Scenario.model_validate(
            {
                "horizon": {"start_month": "2027-01", "month_count": 2},
                "serving_services": [service(**days).model_dump()],
                "pooling": {"kind": "separate"},
                "procurement": [RULE],
            }
        )


def test_one_service_follows_another_in_the_same_pool():
    old = service("old", peak=10, capacity=1, headroom=FULL, retirement_date="2027-01-15")
    new = service("new", peak=4, capacity=1, headroom=FULL, launch_date="2027-01-16")
    outcome = pools([], [old, new], months=1)
    (pool,) = outcome.pools
    assert pool.gpu_count == 40  # never both at once
    assert pool.used_gpu_hours == 40 * 24 * 15 + 16 * 24 * 16
    assert pool.allocated_gpu_hours == 40 * 744
