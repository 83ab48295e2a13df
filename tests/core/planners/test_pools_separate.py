"""Pools apart: the rules of rounding and holding."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.core.errors import InvalidScenario
from service.core.estimates import Range
from tests.pool_builders import gpu, need, pools, recorder, run, service

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def test_ranges_of_runs_and_replicas_reach_the_hours_of_their_pools():
    notes = recorder()
    served = service(peak=40, capacity=4, gpus=4, headroom=FULL)
    trained = need(run(gpu_count=64), gpu_count=64, hours=100)
    trained = replace(trained, wall_clock_hours=Range(value=100, low=90, high=120))
    fast = Range(value=4.0, low=2.0, high=5.0)
    pools([trained], [served], months=1, multiple=4, into=notes, speed=fast)
    kept = {(q.scope, q.name): (q.low, q.value, q.high) for q in notes.quantities()}
    # 64 GPUs for 90, 100 and 120 hours.
    assert kept["pool:training", "allocated_gpu_hours"] == pytest.approx((5760, 6400, 7680))
    # 40/5 = 8, 40/4 = 10 and 40/2 = 20 replicas of 4 GPUs for 744 h.
    hours = (8 * 4 * 744, 10 * 4 * 744, 20 * 4 * 744)
    assert kept["pool:serving", "allocated_gpu_hours"] == pytest.approx(hours)
    assert kept["pool:serving", "used_gpu_hours"] == pytest.approx(hours)


def test_hours_of_owned_gpus_are_exact_however_long_the_run_takes():
    notes = recorder()
    trained = need(run(gpu_count=64), gpu_count=64, hours=100)
    trained = replace(trained, wall_clock_hours=Range(value=100, low=90, high=120))
    pools([trained], months=1, into=notes, owned=True)
    kept = {(q.scope, q.name): (q.low, q.value, q.high) for q in notes.quantities()}
    assert kept["pool:training", "allocated_gpu_hours"] == (64 * 744,) * 3
    assert kept["pool:training", "used_gpu_hours"] == pytest.approx((5760, 6400, 7680))


def test_the_serving_pool_has_the_size_of_its_busiest_month_throughout():
    # 8, 16, 32 units/s: 8, 16, 32 GPUs needed; the pool holds 32 in every month.
    served = service(peak=8, capacity=1, gpus=1, growth_per_month_fraction=1.0, headroom=FULL)
    outcome = pools([], [served], months=3)
    assert outcome.serving_gpu_counts == (32, 32, 32)
    assert [(u.use, u.gpu_hours, u.gpu_count) for u in outcome.hour_uses] == [
        ("used", 8 * 744, 8),
        ("idle", 24 * 744, 24),
        ("used", 16 * 672, 16),
        ("idle", 16 * 672, 16),
        ("used", 32 * 744, 32),
    ]
    # Need 8, 16, 32 GPUs for 744, 672, 744 hours over a peak of 32.
    mean = (8 * 744 + 16 * 672 + 32 * 744) / 2160
    assert outcome.pools[0].mean_over_peak_fraction == pytest.approx(mean / 32)


def test_growth_counts_from_the_first_month_of_the_service():
    served = service(
        peak=8,
        capacity=1,
        gpus=1,
        growth_per_month_fraction=1.0,
        headroom=FULL,
        first_month="2027-02",
        last_month="2027-03",
    )
    outcome = pools([], [served], months=4)
    assert outcome.serving_gpu_counts == (0, 16, 16, 0)
    assert [u.gpu_hours for u in outcome.hour_uses if u.use == "used"] == [8 * 672, 16 * 744]


def test_services_of_one_gpu_share_whole_instances_and_their_idle_adds_up():
    # 5 + 6 = 11 GPUs are 2 instances of 8, not 1 + 1 = 2 of each its own; of 16 the shares by
    # largest remainder are 16 · 5/11 = 7.27 and 16 · 6/11 = 8.73: 7 and 9.
    services = [
        service("a", peak=5, capacity=1, gpus=1, headroom=FULL),
        service("b", peak=6, capacity=1, gpus=1, headroom=FULL),
    ]
    outcome = pools([], services, months=1)
    assert [(u.workload, u.use, u.gpu_hours) for u in outcome.hour_uses] == [
        ("a", "used", 5 * 744),
        ("a", "idle", 2 * 744),
        ("b", "used", 6 * 744),
        ("b", "idle", 3 * 744),
    ]
    assert [item.gpu_count for item in outcome.services] == [5, 6]
    assert outcome.pools[0].gpu_count == 16


def test_services_that_peak_in_different_hours_hold_the_busiest_hour_and_not_both_peaks():
    # ⌈80 · 1.1⌉ = 88 in the one's busy hour, with ⌈1 · 1.1⌉ = 2 of the other: 90 GPUs, not 176.
    three, fifteen = (tuple(float(hour == busy) for hour in range(24)) for busy in (3, 15))
    services = [
        service("night", peak=80, capacity=1, gpus=1, demand_profile=three),
        service("noon", peak=80, capacity=1, gpus=1, demand_profile=fifteen),
    ]
    outcome = pools([], services, months=1, multiple=1)
    assert outcome.pools[0].gpu_count == 90
    # Each needs 80 GPUs in one hour of the day and 1 in the 23 others; both leave as much idle.
    used, idle = (80 + 23) * 31, (90 * 24 / 2 - (80 + 23)) * 31
    assert [(u.workload, u.use, u.gpu_hours) for u in outcome.hour_uses] == [
        ("night", "used", used),
        ("night", "idle", pytest.approx(idle)),
        ("noon", "used", used),
        ("noon", "idle", pytest.approx(idle)),
    ]


def test_idle_between_unlike_services_goes_by_what_each_would_leave_idle_alone():
    # 80 GPUs for 16 hours and 80 for the 8 others; the minimum of 1 stands in the quiet hours: 81.
    long = tuple(float(hour < 16) for hour in range(24))
    services = [
        service("long", peak=80, capacity=1, gpus=1, demand_profile=long, headroom=FULL),
        service(
            "short",
            peak=80,
            capacity=1,
            gpus=1,
            demand_profile=tuple(1 - factor for factor in long),
            headroom=FULL,
        ),
    ]
    outcome = pools([], services, months=1, multiple=1)
    idle = {u.workload: u.gpu_hours for u in outcome.hour_uses if u.use == "idle"}
    # Day: long uses 16 · 80 + 8 = 1,288, short 8 · 80 + 16 = 656: all 81 · 24 = 1,944, none idle.
    assert outcome.pools[0].gpu_count == 81
    assert idle == {}
    # In instances of 8 there are 88: 7 · 24 = 168 idle a day. Alone with 80 each they would leave
    # 1,920 - 1,288 = 632 and 1,920 - 656 = 1,264 idle: one third and two thirds.
    outcome = pools([], services, months=1, multiple=8)
    idle = {u.workload: u.gpu_hours for u in outcome.hour_uses if u.use == "idle"}
    assert idle == {
        "long": pytest.approx(168 * 31 / 3),
        "short": pytest.approx(168 * 31 * 2 / 3),
    }


def test_a_pool_is_kept_between_services_in_nobodys_name():
    early = service("early", peak=8, capacity=1, gpus=1, headroom=FULL, last_month="2027-01")
    late = service("late", peak=4, capacity=1, gpus=1, headroom=FULL, first_month="2027-03")
    outcome = pools([], [early, late], months=3)
    assert [(u.month, u.workload, u.use, u.gpu_hours) for u in outcome.hour_uses] == [
        ("2027-01", "early", "used", 8 * 744),
        ("2027-02", None, "idle", 8 * 672),
        ("2027-03", "late", "used", 4 * 744),
        ("2027-03", "late", "idle", 4 * 744),
    ]


def test_a_run_pays_for_whole_instances():
    # 100 GPUs are 13 instances of 8 = 104.
    outcome = pools([need(run(gpu_count=100), gpu_count=100, hours=10)], months=1)
    assert [(u.use, u.gpu_hours, u.gpu_count) for u in outcome.hour_uses] == [
        ("used", 1000, 100),
        ("idle", 40, 4),
    ]
    assert outcome.pools[0].gpu_count == 104


def test_an_owned_training_pool_is_held_when_its_run_is_over():
    # 512 GPUs for all 8,760 h of 2027 = 4,485,120 GPU-hours; the run uses 512 x 1,000 of them.
    trained = need(run(gpu_count=512), gpu_count=512, hours=1000)
    outcome = pools([trained], owned=True)
    (pool,) = outcome.pools
    assert pool.allocated_gpu_hours == pytest.approx(4_485_120)
    assert (pool.used_gpu_hours, pool.idle_gpu_hours) == (512_000, pytest.approx(3_973_120))
    # One GPU needed of every GPU held for 1,000 of 8,760 h.
    assert pool.mean_over_peak_fraction == pytest.approx(1000 / 8760)
    assert outcome.training_gpu_counts == (512,) * 12
    february = [use for use in outcome.hour_uses if use.month == "2027-02"]
    assert [(u.workload_kind, u.workload, u.use, u.gpu_count) for u in february] == [
        ("training", "pretrain", "used", 512),
        ("training", None, "idle", 512),
    ]
    # February has 672 h, of which the run takes 1,000 - 744 = 256.
    assert february[1].gpu_hours == pytest.approx(512 * (672 - 256))
    assert february[1].held_for == {("training", "pretrain"): february[1].gpu_hours}


def test_owned_gpus_between_runs_are_held_for_each_by_the_gpus_it_needs():
    # Owned: 64 GPUs for 59 days = 1,416 h. One run has all 64 for 100 h, one 32 for 100 h.
    first = need(run("first", gpu_count=64), gpu_count=64, hours=100)
    second = need(run("second", gpu_count=32, start="2027-02-01"), gpu_count=32, hours=100)
    outcome = pools([first, second], months=2, owned=True)
    assert outcome.training_gpu_counts == (64, 64)
    idle = [use for use in outcome.hour_uses if use.use == "idle"]
    assert [use.gpu_hours for use in idle] == [64 * 644, 64 * 672 - 32 * 100]
    # 64 and 32 of 96: two thirds and one third.
    assert idle[0].held_for == {
        ("training", "first"): pytest.approx(64 * 644 * 2 / 3),
        ("training", "second"): pytest.approx(64 * 644 / 3),
    }


def test_an_owned_serving_pool_is_held_before_and_after_its_services():
    served = service(
        peak=8,
        capacity=1,
        gpus=1,
        headroom=FULL,
        first_month="2027-02",
        last_month="2027-02",
    )
    outcome = pools([], [served], months=3, owned=True)
    assert outcome.serving_gpu_counts == (8, 8, 8)
    assert [(u.month, u.workload, u.use, u.gpu_hours) for u in outcome.hour_uses] == [
        ("2027-01", None, "idle", 8 * 744),
        ("2027-02", "assistant", "used", 8 * 672),
        ("2027-03", None, "idle", 8 * 744),
    ]
    assert outcome.hour_uses[0].held_for == {("serving", "assistant"): 8 * 744}


def test_runs_at_the_same_time_fill_instances_together():
    # 100 + 100 = 200 = 25 instances for 10 hours, then 100 = 104 for 10 more.
    short = need(run("short", gpu_count=100), gpu_count=100, hours=10)
    long = need(run("long", gpu_count=100), gpu_count=100, hours=20)
    outcome = pools([short, long], months=1)
    (pool,) = outcome.pools
    assert (pool.gpu_count, pool.allocated_gpu_hours) == (200, 200 * 10 + 104 * 10)
    assert [(u.workload, u.use, u.gpu_hours) for u in outcome.hour_uses] == [
        ("short", "used", 1000),
        ("long", "used", 2000),
        ("long", "idle", 40),
    ]
    # 200 needed for 10 hours and 100 for 10, over a peak of 200.
    assert pool.mean_over_peak_fraction == pytest.approx(0.75)


def test_runs_one_after_the_other_need_the_larger_only():
    first = need(run("first", gpu_count=64), gpu_count=64, hours=100)
    second = need(run("second", gpu_count=32, start="2027-02-01"), gpu_count=32, hours=100)
    outcome = pools([first, second], months=2)
    assert outcome.pools[0].gpu_count == outcome.peak_gpu_count == 64
    assert outcome.training_gpu_counts == (64, 32)


def test_each_kind_of_gpu_has_pools_of_its_own():
    notes = recorder()
    other = gpu("a100")
    outcome = pools(
        [
            need(run("here", gpu_count=8), gpu_count=8, hours=10),
            need(run("there", gpu_count=16), gpu_count=16, hours=10, on=other),
        ],
        [service(peak=8, capacity=1, gpus=1, headroom=FULL)],
        months=1,
        into=notes,
    )
    assert [(pool.name, pool.gpu, pool.gpu_count) for pool in outcome.pools] == [
        ("training", "h100", 8),
        ("training", "a100", 16),
        ("serving", "h100", 8),
    ]
    assert outcome.peak_gpu_count == 32
    scopes = {quantity.scope for quantity in notes.quantities()}
    assert scopes >= {"pool:training:h100", "pool:training:a100", "pool:serving"}


def test_two_gpus_under_one_key_are_refused():
    bigger = gpu().model_copy(update={"memory_gb": 141.0})
    here = need(run("here", gpu_count=8), gpu_count=8, hours=10)
    there = need(run("there", gpu_count=8), gpu_count=8, hours=10, on=bigger)
    with pytest.raises(InvalidScenario, match="two different GPUs"):
        pools([here, there], months=1)


def test_a_run_that_would_outlive_the_horizon_is_refused_with_what_would_do():
    # From 16 January 16 days = 384 h remain of 500; with February there are 1,056.
    trained = need(run(gpu_count=64, start="2027-01-16"), gpu_count=64, hours=500, copy=32)
    outcome = pools([trained], months=1, count_in_time=96)
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.workload, lack.limit) == ("deadline", "pretrain", "horizon")
    assert (lack.needed, lack.available, lack.unit) == (500, 384, "h")
    assert lack.nearest_fix == (
        "gpu_count 96, which ends the run by 2027-01-31 or a horizon of 2 months"
    )
    # What it needs is shown, not what the horizon leaves of it.
    (schedule,) = outcome.runs
    assert schedule.finish == datetime(2027, 1, 16, tzinfo=UTC) + timedelta(hours=500)
    assert schedule.gpu_hours == 64 * 500


def test_a_run_that_no_horizon_holds_is_refused_too():
    trained = need(run(gpu_count=64), gpu_count=64, hours=1e12, copy=32)
    (lack,) = pools([trained], months=1).infeasibilities
    assert lack.needed == 1e12
    # 744 of 1e12 h are 744 of 1e12 tokens; a little less, so that floats do not miss the end.
    assert lack.nearest_fix == "training_tokens 743 on as many GPUs"
    assert trained.finish.year == 9999


@pytest.mark.parametrize("day", ["2026-12-31", "2027-02-01"])
def test_a_run_cannot_start_outside_the_horizon(day):
    trained = need(run(gpu_count=8, start=day), gpu_count=8, hours=10)
    with pytest.raises(InvalidScenario) as refused:
        pools([trained], months=1)
    assert refused.value.pointer == "/scenario/training_runs/0/start_date"


def test_a_load_beyond_counting_is_refused_and_the_rest_is_planned():
    huge = service("huge", peak=1e12, capacity=1e-12)
    outcome = pools([], [service(), huge], months=1)
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.workload, lack.available) == ("fleet", "huge", 10**9)
    assert [item.capacity.service.name for item in outcome.services] == ["assistant"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"spare_fraction": -0.5},
        {"target_utilization_fraction.with_spare": 0.0},
        {"target_utilization_fraction.with_spare": 1.5},
    ],
)
def test_an_override_that_makes_no_sense_is_refused(overrides):
    with pytest.raises(InvalidScenario) as refused:
        pools([], [service()], into=recorder(**overrides))
    assert refused.value.pointer.startswith("/scenario/assumption_overrides")


def test_no_horizon_is_named_that_would_reach_beyond_the_last_month():
    # From 16 December 2099 384 h remain of 500; a second month would be January 2100.
    trained = need(run(gpu_count=64, start="2099-12-16"), gpu_count=64, hours=500, copy=32)
    (lack,) = pools([trained], start="2099-12", months=1, count_in_time=96).infeasibilities
    assert "gpu_count 96" in lack.nearest_fix
    assert "horizon" not in lack.nearest_fix
