"""What services need and hold: headroom without named causes, profiles, zones and weeks."""

import pytest

from tests.pool_builders import pools, recorder, service

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def held_and_needed(**headroom):
    """Replicas of a load of 100 on replicas of 10."""
    notes = recorder()
    outcome = pools([], [service(peak=100, capacity=10, headroom=headroom)], into=notes)
    (replicas,) = outcome.services
    used = {item.name: item.value for item in notes.assumptions()}
    return replicas.needed_replica_count_peak, replicas.held_replica_count, used


def test_without_a_word_on_headroom_a_tenth_is_spare_and_replicas_are_planned_full():
    # ⌈100/10⌉ = 10, ⌈10 · 1.1⌉ = 11
    assert held_and_needed() == (
        10,
        11,
        {"spare_fraction": 0.10, "target_utilization_fraction.with_spare": 1.0},
    )


def test_without_a_spare_replicas_are_planned_to_four_fifths():
    # ⌈100/(10 · 0.8)⌉ = 13, all held
    assert held_and_needed(spare_fraction=0.0) == (
        13,
        13,
        {"spare_fraction": 0.0, "target_utilization_fraction.without_spare": 0.8},
    )


def test_a_spare_count_comes_on_top_of_the_fraction():
    # 10 needed; ⌈10 · 1.25⌉ + 2 = 15
    assert held_and_needed(spare_fraction=0.25, spare_replica_count=2)[:2] == (10, 15)
    assert held_and_needed(spare_fraction=0.0, spare_replica_count=1)[:2] == (10, 11)


def test_an_hour_without_load_needs_the_minimum():
    quiet = (1.0,) + (0.0,) * 23
    served = service(
        peak=10, capacity=1, gpus=1, demand_profile=quiet, headroom={"minimum_replica_count": 2}
    )
    (pool,) = pools([], [served], months=1).pools
    # 10 for one hour, 2 for 23, 31 days.
    assert pool.used_gpu_hours == (10 + 23 * 2) * 31


def test_daily_tokens_become_a_peak_by_the_mean_of_the_profile():
    # 86,400 · 100 tokens a day, 100 a unit: 86,400 units; half the hours at half load: mean 0.75,
    # so the peak is 1/0.75 = 4/3 units/s: 14 replicas of 0.1 and 7 in quiet hours.
    served = service(
        capacity=0.1,
        gpus=1,
        load={"kind": "daily_tokens", "tokens_per_day": 8.64e6},
        input_tokens_mean=60,
        output_tokens_mean=40,
        demand_profile=(1.0,) * 12 + (0.5,) * 12,
        headroom=FULL,
    )
    outcome = pools([], [served], months=1)
    assert outcome.services[0].needed_replica_count_peak == 14
    assert outcome.pools[0].used_gpu_hours == (12 * 14 + 12 * 7) * 31
    assert outcome.services[0].units_served == pytest.approx(86400 * 31)


@pytest.mark.parametrize(
    ("month", "hours_at_peak"),
    [
        ("2027-03", 30),  # 28 March jumps from 2 h to 3 h: 31 days less one
        ("2027-10", 32),  # 31 October has 2 h twice
        ("2027-05", 31),
    ],
)
def test_clock_changes_skip_and_repeat_local_hours(month, hours_at_peak):
    at_two = tuple(float(hour == 2) for hour in range(24))
    served = service(
        peak=5, capacity=1, gpus=1, demand_profile=at_two, time_zone="Europe/Berlin", headroom=FULL
    )
    (pool,) = pools([], [served], start=month, months=1).pools
    hours = pool.allocated_gpu_hours / pool.gpu_count
    assert pool.used_gpu_hours == 5 * hours_at_peak + 1 * (hours - hours_at_peak)


def test_a_week_begins_on_monday_at_midnight_local_time():
    mondays = (1.0,) * 24 + (0.0,) * 144
    served = service(
        peak=3, capacity=1, gpus=1, demand_profile=mondays, time_zone="Asia/Tokyo", headroom=FULL
    )
    (pool,) = pools([], [served], start="2027-02", months=1).pools
    # February 2027 begins on a Monday. Tokyo's Mondays begin on Sunday 15 h UTC: 9 hours of the
    # first lie in January, and 9 of 1 March in February, so there are four Mondays of 24 hours.
    assert pool.used_gpu_hours == 3 * 96 + 1 * (28 * 24 - 96)
