"""Shared pools: worked by hand, and what they refuse."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from service.core.errors import InvalidScenario
from service.core.estimates import TrainingMemory
from tests.pool_builders import gpu, need, pools, run, service, shared

CASES = yaml.safe_load(
    (Path(__file__).parents[2] / "cases" / "pools" / "shared_cluster.yaml").read_text(
        encoding="utf-8"
    )
)

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def worked(case):
    """The outcome of a worked case."""
    serving, training = CASES["service"], CASES["run"]
    served = service(
        peak=serving["peak"],
        capacity=serving["capacity"],
        gpus=serving["gpus"],
        demand_profile=tuple(level for level in case["day"] for _ in range(8)),
        headroom={
            "target_utilization_fraction": 1.0,
            "spare_fraction": serving["spare_fraction"],
        },
    )
    trained = need(
        run(
            gpu_count=training["gpu_count"],
            finish=case.get("finish_date"),
            elastic=case.get("elastic", False),
        ),
        gpu_count=training["gpu_count"],
        hours=case["own_hours"],
        copy=training["copy_gpu_count"],
        interval_s=training["checkpoint_interval_s"],
        restart_s=case.get("restart_s", training["restart_s"]),
    )
    return pools([trained], [served], months=1, pooling=shared(case.get("fleet_gpu_count")))


def gpu_hours(outcome, kind, use):
    return sum(
        item.gpu_hours
        for item in outcome.hour_uses
        if (item.workload_kind, item.use) == (kind, use)
    )


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_a_shared_cluster_worked_by_hand(case):
    outcome, expect = worked(case), case["expect"]
    (pool,) = outcome.pools
    assert outcome.infeasibilities == ()
    assert pool.name == "shared"
    assert pool.gpu_count == outcome.peak_gpu_count == expect["gpu_count"]
    assert abs(outcome.runs[0].finish - expect["finish"]) < timedelta(milliseconds=1)
    assert gpu_hours(outcome, "serving", "used") == expect["serving_used_gpu_hours"]
    assert gpu_hours(outcome, "training", "used") == expect["training_used_gpu_hours"]
    assert gpu_hours(outcome, "training", "redo") == pytest.approx(expect["redo_gpu_hours"])
    assert gpu_hours(outcome, "shared", "idle") == pytest.approx(expect["idle_gpu_hours"])
    assert pool.preempted_gpu_count_per_day == pytest.approx(expect["preempted_gpu_count_per_day"])


def busy(**fields):
    """A service that always holds 10 replicas of 4 GPUs."""
    headroom = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
    return service(peak=10, capacity=1, headroom=headroom, **fields)


def test_a_fleet_below_the_serving_peak_is_refused_with_the_size_that_serves():
    # Utilisation 0.8 without a spare: ⌈11/0.8⌉ = 14 replicas = 56 GPUs; 33 are 5 instances = 40.
    eleven = service(peak=11, capacity=1, headroom={"spare_fraction": 0.0})
    outcome = pools([], [eleven], pooling=shared(33))
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.workload, lack.needed, lack.available) == ("fleet", "assistant", 56, 40)
    assert lack.nearest_fix == "fleet_gpu_count 56 serves every hour."
    assert pools([], [eleven], pooling=shared(56)).infeasibilities == ()
    assert outcome.pools == ()
    assert outcome.hour_uses == ()


def test_a_run_that_never_gets_a_whole_copy_is_late_and_a_fleet_that_ends_it_is_named():
    # 48 GPUs less 40 leave 8, less than a copy of 16. Alone, 32 GPUs beside 40 are 72: 9 instances.
    trained = need(run(gpu_count=32), gpu_count=32, hours=100, copy=16)
    outcome = pools([trained], [busy()], pooling=shared(48))
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.workload, lack.unit) == ("deadline", "pretrain", "gpu_hour")
    assert (lack.needed, lack.available) == (3200, 0)
    # Left open the 72 are held for 100 h, 40 for the other 8,660: 353,600 of 72 x 8,760 = 630,720.
    assert lack.nearest_fix == (
        "fleet_gpu_count 72 serves every hour and ends each run by its date, or as early as on "
        "GPUs of its own. fleet_gpu_count null is cheaper: it holds as many only while they are "
        "needed, 353,600 GPU-hours instead of 630,720."
    )
    assert pools([trained], [busy()], pooling=shared(72)).infeasibilities == ()
    owned = pools([trained], [busy()], pooling=shared(48), owned=True)
    assert "null" not in owned.infeasibilities[0].nearest_fix
    # No copy in 8,760 h: when it would end is not known, so the last day of the calendar stands.
    assert outcome.runs[0].finish.year == 2100


def test_a_run_that_outlives_the_horizon_in_a_given_fleet_shows_what_it_would_take():
    # 16 GPUs beside serving do 16 of the 32 x 744 = 23,808 GPU-hours an hour: 1,488 h, twice 744.
    trained = need(run(gpu_count=32), gpu_count=32, hours=744, copy=16)
    outcome = pools([trained], [busy()], months=1, pooling=shared(56))
    (lack,) = outcome.infeasibilities
    assert (lack.needed, lack.available) == (23808, 11904)
    (schedule,) = outcome.runs
    assert schedule.finish == schedule.need.start + timedelta(hours=1488)
    assert schedule.gpu_hours == 23808
    assert "fleet_gpu_count 72 " in lack.nearest_fix


def test_a_run_too_long_on_its_own_gpus_ends_in_a_fleet_that_gives_it_more():
    # 32 x 1,000 = 32,000 GPU-hours in 744 h: 43.01 GPUs are 3 copies of 16; 40 + 48 = 88 GPUs.
    trained = need(run(gpu_count=32), gpu_count=32, hours=1000, copy=16)
    (lack,) = pools([trained], [busy()], months=1, pooling=shared(48)).infeasibilities
    assert lack.nearest_fix == (
        "fleet_gpu_count 88 serves every hour and ends each run within the horizon."
    )
    assert pools([trained], [busy()], months=1, pooling=shared(88)).infeasibilities == ()


def test_a_run_that_no_fleet_ends_is_told_its_tokens():
    # A batch of two sequences feeds two copies, 32 GPUs: 744 of 1,000 h are 0.744 of 10^12 tokens.
    small = {"sequence_length_tokens": 1024, "global_batch_tokens": 2048}
    trained = need(run(gpu_count=32, **small), gpu_count=32, hours=1000, copy=16)
    (lack,) = pools([trained], [busy()], months=1, pooling=shared(48)).infeasibilities
    assert lack.nearest_fix == (
        "fleet_gpu_count 72 with training_tokens 743,999,256,000 for 'pretrain'."
    )
    shorter = need(run(gpu_count=32, **small), gpu_count=32, hours=743.999256, copy=16)
    assert pools([shorter], [busy()], months=1, pooling=shared(72)).infeasibilities == ()


def test_a_given_fleet_that_misses_the_date_of_a_run_is_refused():
    # 56 GPUs leave 16 = one copy: 3,200 GPU-hours take 200 h; 5 January ends after 120 h = 1,920.
    trained = need(run(gpu_count=32, finish="2027-01-05"), gpu_count=32, hours=100, copy=16)
    outcome = pools([trained], [busy()], pooling=shared(56))
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.limit, lack.needed, lack.available) == (
        "deadline",
        "finish_date",
        3200,
        1920,
    )


def test_a_given_fleet_is_held_over_the_whole_horizon():
    trained = need(run(gpu_count=32), gpu_count=32, hours=100, copy=16)
    outcome = pools([trained], [], months=2, pooling=shared(64))
    (pool,) = outcome.pools
    assert pool.allocated_gpu_hours == 64 * (31 + 28) * 24
    # 4 copies of 16 do 3,200 GPU-hours in 50 hours.
    assert outcome.runs[0].finish == datetime(2027, 1, 3, 2, tzinfo=UTC)
    assert outcome.training_gpu_counts == (64, 0)


def test_a_fleet_found_shrinks_to_the_serving_peak_after_the_last_run():
    # Flat: 40 + 32 = 72 GPUs for 100 hours, 40 for the other 644.
    trained = need(run(gpu_count=32), gpu_count=32, hours=100, copy=16)
    outcome = pools([trained], [busy()], months=1, pooling=shared())
    (pool,) = outcome.pools
    assert (pool.gpu_count, pool.node_count) == (72, 9)
    assert pool.allocated_gpu_hours == 72 * 100 + 40 * 644
    assert pool.idle_gpu_hours == 0
    assert [(u.workload_kind, u.workload, u.use) for u in outcome.hour_uses] == [
        ("training", "pretrain", "used"),
        ("serving", "assistant", "used"),
    ]


def test_an_owned_shared_pool_keeps_its_size_and_its_idle_is_held_by_peak():
    # 72 GPUs for 744 h; training uses 32 for 100 h, serving 40 all the time: 32 idle for 644 h.
    trained = need(run(gpu_count=32), gpu_count=32, hours=100, copy=16)
    outcome = pools([trained], [busy()], months=1, pooling=shared(), owned=True)
    (pool,) = outcome.pools
    assert pool.allocated_gpu_hours == 72 * 744
    (idle,) = [use for use in outcome.hour_uses if use.use == "idle"]
    assert idle.gpu_hours == 32 * 644
    # At their peaks training holds 32 GPUs and serving 40.
    assert idle.held_for == {
        ("training", "pretrain"): pytest.approx(32 * 644 * 32 / 72),
        ("serving", "assistant"): pytest.approx(32 * 644 * 40 / 72),
    }


def test_a_rented_shared_pool_is_held_for_serving_alone_when_no_run_is_under_way():
    # Peak 16 replicas in hours 0-7, 8 in the others, no run but for the first 10 hours.
    day = (1.0,) * 8 + (0.5,) * 16
    served = service(peak=16, capacity=1, gpus=1, demand_profile=day, headroom=FULL)
    trained = need(run(gpu_count=8), gpu_count=8, hours=8, copy=8)
    outcome = pools([trained], [served], months=1, pooling=shared())
    # Side by side 16 + 8 = 24 for 8 hours; then 16: in 16 hours of each day 8 of them are idle.
    assert outcome.pools[0].allocated_gpu_hours == 24 * 8 + 16 * 736
    (idle,) = [use for use in outcome.hour_uses if use.use == "idle"]
    assert idle.gpu_hours == 8 * 16 * 31
    assert idle.held_for == {("serving", "assistant"): 8 * 16 * 31}


def test_two_runs_of_one_side_count_with_what_they_hold_at_once():
    # One after the other: training holds 32 at its peak, and each run 32 of its own: half each.
    first = need(run("first", gpu_count=32), gpu_count=32, hours=100, copy=16)
    second = need(run("second", gpu_count=32, start="2027-01-11"), gpu_count=32, hours=100, copy=16)
    outcome = pools([first, second], [busy()], months=1, pooling=shared(), owned=True)
    (idle,) = [use for use in outcome.hour_uses if use.use == "idle"]
    assert idle.gpu_hours == 32 * (744 - 200)
    assert idle.held_for == {
        ("training", "first"): pytest.approx(idle.gpu_hours * 16 / 72),
        ("training", "second"): pytest.approx(idle.gpu_hours * 16 / 72),
        ("serving", "assistant"): pytest.approx(idle.gpu_hours * 40 / 72),
    }


def test_gpus_idle_for_the_rest_of_the_hour_in_which_a_run_ends():
    # 160 GPU-hours on 64 GPUs end after 2.5 h; a fleet of 64 is then idle: 64 · (744 − 2.5).
    trained = need(run(gpu_count=32), gpu_count=32, hours=5, copy=16)
    outcome = pools([trained], [], months=1, pooling=shared(64))
    used, idle = outcome.hour_uses
    assert (used.gpu_hours, used.gpu_count, used.end) == (
        160,
        64,
        datetime(2027, 1, 1, 2, 30, tzinfo=UTC),
    )
    assert (idle.gpu_hours, idle.gpu_count) == (64 * 741.5, 64)


def test_a_run_takes_no_more_copies_than_its_batch_has_sequences():
    # 4 sequences a step feed 4 copies of 16 GPUs, whatever is free: 3,200 GPU-hours take 50 h.
    trained = need(
        run(gpu_count=32, sequence_length_tokens=8192, global_batch_tokens=4 * 8192),
        gpu_count=32,
        hours=100,
        copy=16,
    )
    outcome = pools([trained], [], months=1, pooling=shared(160))
    assert outcome.runs[0].finish == datetime(2027, 1, 3, 2, tzinfo=UTC)


def test_a_run_stands_where_its_sharded_state_does_not_fit():
    # 8 copies of 1 GPU; 60 GiB of optimizer in 8 parts is 480 in all, beside 10 of the rest in 80:
    # at least ⌈480/70⌉ = 7 copies. Serving holds 40; a fleet of 48 leaves 8, of 46 would leave 6.
    sharded = TrainingMemory(
        weights=4,
        gradients=4,
        optimizer=60,
        activations=1,
        logits=0.5,
        overhead=0.5,
        total=70,
        available=80,
        verdict="amber",
    )
    plain = need(run(gpu_count=8), gpu_count=8, hours=100, copy=1)
    layout = plain.layout.model_copy(update={"sharding": "zero_1"})
    zero = type(plain)(**{**vars(plain), "layout": layout, "memory": sharded})
    six_left = {"months": 1, "pooling": shared(46), "multiple": 1}
    assert pools([plain], [busy()], **six_left).infeasibilities == ()
    (lack,) = pools([zero], [busy()], **six_left).infeasibilities
    assert (lack.code, lack.available) == ("deadline", 0)
    assert pools([zero], [busy()], months=1, pooling=shared(48)).infeasibilities == ()


def test_the_earliest_due_run_comes_first():
    # 32 GPUs free, each run 32 · 100 GPU-hours; by its date the second one is due first.
    first = need(run("first", gpu_count=32, finish="2027-01-20"), gpu_count=32, hours=100, copy=16)
    urgent = need(
        run("urgent", gpu_count=32, finish="2027-01-10"), gpu_count=32, hours=100, copy=16
    )
    outcome = pools([first, urgent], [busy()], months=1, pooling=shared(72))
    hours = [
        (item.finish - datetime(2027, 1, 1, tzinfo=UTC)) / timedelta(hours=1)
        for item in outcome.runs
    ]
    assert hours == [200, 100]


def test_only_workloads_on_the_same_gpu_share():
    other = gpu("a100")
    trained = need(run(gpu_count=32), gpu_count=32, hours=100, copy=16, on=other)
    outcome = pools([trained], [busy()], months=1, pooling=shared())
    assert [(pool.name, pool.gpu, pool.gpu_count) for pool in outcome.pools] == [
        ("shared", "a100", 32),
        ("shared", "h100", 40),
    ]
    with pytest.raises(InvalidScenario) as refused:
        pools([trained], [busy()], months=1, pooling=shared(72))
    assert refused.value.pointer == "/scenario/pooling/fleet_gpu_count"


@pytest.mark.parametrize("hours", [744 - 1e-8, 744.0, 744 + 1e-8])
@pytest.mark.parametrize("fleet_gpu_count", [None, 72])
def test_a_run_may_end_with_the_horizon_to_within_float_noise(hours, fleet_gpu_count):
    trained = need(run(gpu_count=32), gpu_count=32, hours=hours, copy=16)
    outcome = pools([trained], [busy()], months=1, pooling=shared(fleet_gpu_count))
    assert outcome.infeasibilities == ()
    assert outcome.pools[0].gpu_count == 72


def test_a_run_that_is_too_long_for_the_horizon_is_refused():
    trained = need(run(gpu_count=32), gpu_count=32, hours=1000, copy=16)
    outcome = pools([trained], [busy()], months=1, pooling=shared())
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.needed, lack.available, lack.unit) == ("deadline", 1000, 744, "h")
    # 1,000 h are more than the 744 of January and less than the 1,416 up to the end of February.
    assert lack.nearest_fix == "a horizon of 2 months"
    assert outcome.runs[0].finish - trained.start == timedelta(hours=1000)
