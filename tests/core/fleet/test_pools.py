"""Pools apart beside pools shared, by hand and by law."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import InvalidScenario, UnknownKey
from service.core.fleet.pools import estimate_pools
from service.core.fleet.pools_types import PoolsQuestion
from tests.pool_builders import run, service, snapshot

LAWS = settings(max_examples=25, deadline=None, derandomize=True)
FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
GPU = "h100-sxm5-80gb"
NEVER_FAILS = {
    "failures_per_1000_node_days": 0,
    "checkpoint_interval_s": 1800,
    "checkpoint_save_s": 0,
    "restart_s": 900,
}


def served(name="assistant", **fields):
    return service(name, **{"headroom": FULL} | fields).model_dump() | {"gpu": GPU}


def trained(name="pretrain", *, gpu_count=64, hours=96.0, **fields):
    """A run of whole hours: at 1,000 tokens/s and GPU, without failures."""
    return run(
        name,
        gpu_count=gpu_count,
        training_tokens=round(gpu_count * hours * 3600 * 1000),
        reliability=NEVER_FAILS,
        **fields,
    ).model_dump() | {"gpu": GPU}


def estimate(services=(), runs=(), **fields):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 1},
        "training_runs": list(runs),
        "serving_services": list(services),
    }
    return estimate_pools(PoolsQuestion.model_validate(document | fields), snapshot())


HALF_A_DAY = (1.0,) * 12 + (0.25,) * 12


def test_five_counts_of_serving_stand_from_the_ideal_to_what_is_bought():
    # 9.5/s by day and 2.375/s by night at 1/s a replica of 4 GPUs, planned to 0.95, a fifth spare.
    item = served(
        peak=9.5,
        capacity=1,
        demand_profile=HALF_A_DAY,
        headroom={"target_utilization_fraction": 0.95, "spare_fraction": 0.2},
    )
    (counts,) = estimate([item]).serving_counts
    assert counts.ideal_gpu_count == pytest.approx((9.5 + 2.375) / 2 * 4)
    assert counts.autoscaled_gpu_count == (10 + 3) / 2 * 4  # 9.5/0.95 = 10; 2.375/0.95 = 2.5
    assert counts.peak_gpu_count == 40
    assert counts.static_gpu_count == 48  # ⌈10 · 1.2⌉ = 12 replicas
    assert counts.whole_instance_gpu_count == 48


def test_sharing_gives_the_night_to_training():
    # 40 GPUs by day, 4 by night; the run takes 16 for 5 days on its own: 1,920 GPU-hours. In 52
    # a night leaves 48: 12 h of 48 less half an hour of redo and restart are 552, 2,760 in 5 days.
    item = served(peak=10, capacity=1, demand_profile=(1.0,) * 12 + (0.1,) * 12)
    elastic = trained(gpu_count=16, hours=120.0, elastic=True)
    found = estimate([item], [elastic], gpu_count_per_instance=4)
    separate, shared = found.separate, found.shared
    assert separate.peak_gpu_count == 56
    assert separate.training_left.least == 0  # the training pool is given back when the run ends
    assert found.saved_gpu_count == 56 - shared.peak_gpu_count >= 4
    (pool,) = shared.pools
    assert pool.harvested_gpu_hours > 0
    (one,) = shared.training_runs
    assert one.preemption_count >= 1
    # Redo is half an interval of 1,800 s, a restart 900 s: equal parts.
    assert one.redo_gpu_hours == pytest.approx(one.restart_gpu_hours)
    assert one.cost_gpu_hours_per_preemption == pytest.approx(
        (one.redo_gpu_hours + one.restart_gpu_hours) / one.preemption_count
    )


def test_a_preemption_also_does_again_what_an_asynchronous_save_had_not_written():
    # Redo is half of 1,800 s and a write of 450 s, the restart 900 s: 1.5 to 1.
    item = served(peak=10, capacity=1, demand_profile=(1.0,) * 12 + (0.1,) * 12)
    elastic = trained(gpu_count=16, hours=120.0, elastic=True)
    elastic["reliability"] = NEVER_FAILS | {"saves": "asynchronous", "write_within_s": 450}
    (one,) = estimate([item], [elastic], gpu_count_per_instance=4).shared.training_runs
    assert one.preemption_count >= 1
    assert one.redo_gpu_hours == pytest.approx(1.5 * one.restart_gpu_hours)


def test_a_run_says_when_it_ends_and_how_much_a_day_finishes():
    (one,) = estimate(runs=[trained(hours=96.0)]).separate.training_runs
    assert one.finish == datetime(2027, 1, 5, tzinfo=UTC)
    assert one.finished_fraction_per_day == pytest.approx(0.25)
    assert one.finished_fraction_by_month == pytest.approx((1.0,))
    assert (one.preemption_count, one.redo_gpu_hours) == (0, 0)


def test_a_given_fleet_divides_or_shares_the_same_gpus():
    item = served(peak=10, capacity=1, demand_profile=HALF_A_DAY)
    work = trained(gpu_count=64, hours=48.0)
    found = estimate([item], [work], fleet_gpu_count=104)
    # Apart: serving holds 40, so 64 are left all day, and the run ends as it would alone.
    assert found.separate.training_left.least == found.separate.training_left.most == 64
    assert found.separate.training_runs[0].finish == datetime(2027, 1, 3, tzinfo=UTC)
    # Shared: by night 104 - 12 = 92 are left.
    assert (found.shared.training_left.least, found.shared.training_left.most) == (64, 92)
    assert found.saved_gpu_count is None


def test_a_run_takes_over_the_gpus_of_the_one_it_follows_within_the_hour():
    # 20.5 h and 30 h on the same 64 GPUs: at no moment do they hold 128, however they are pooled.
    first, second = trained("first", hours=20.5), trained("second", hours=30.0)
    second |= {"start_date": None, "after": "first"}
    found = estimate([], [first, second])
    for mode in (found.separate, found.shared):
        assert mode.peak_gpu_count == 64
        assert [pool.size.allocated_gpu_hours for pool in mode.pools] == [64 * 50.5]
        assert mode.training_runs[1].finish == datetime(2027, 1, 3, 2, 30, tzinfo=UTC)


def test_a_shared_pool_holds_nothing_before_its_service_is_launched():
    # From 11 to 25 January 10 replicas of 4 GPUs: 15 days of 24 h; the run has other GPUs.
    item = served(peak=10, capacity=1, launch_date="2027-01-11", retirement_date="2027-01-25")
    found = estimate([item], [trained(gpu_count=8) | {"gpu": "a100-sxm4-80gb"}])
    for mode in (found.separate, found.shared):
        [serving] = [pool for pool in mode.pools if pool.size.gpu == GPU]
        assert serving.size.allocated_gpu_hours == 40 * 15 * 24
        assert serving.size.idle_gpu_hours == 0
        assert mode.peak_gpu_count == 40


@LAWS
@given(
    day=st.lists(st.sampled_from((0.0, 0.2, 0.7, 1.0)), min_size=24, max_size=24).filter(any),
    hours=st.tuples(*(st.floats(0.2, 90),) * 3),
    gpus=st.tuples(*(st.sampled_from((1, 8, 20, 64)),) * 3),
    follows=st.sampled_from(((None, None), ("a", None), ("a", "b"), ("a", "a"))),
    days=st.tuples(st.integers(1, 14), st.integers(15, 31)),
    other=st.booleans(),
)
def test_sharing_never_holds_more_whatever_follows_or_launches(
    day, hours, gpus, follows, days, other
):
    launched, retired = (f"2027-01-{number:02}" for number in days)
    item = served(demand_profile=day, launch_date=launched, retirement_date=retired)
    if other:
        item |= {"gpu": "a100-sxm4-80gb"}
    runs = [
        trained(name, gpu_count=count, hours=length)
        | ({"start_date": None, "after": after} if after else {})
        for name, count, length, after in zip("abc", gpus, hours, (None, *follows), strict=True)
    ]
    found = estimate([item], runs)
    assert found.feasible
    assert found.shared.peak_gpu_count <= found.separate.peak_gpu_count
    for pool in found.shared.pools:
        size = pool.size
        together = size.used_gpu_hours + size.idle_gpu_hours + size.redo_gpu_hours
        assert size.allocated_gpu_hours == pytest.approx(together)
        assert size.idle_gpu_hours >= 0


def test_the_series_is_a_typical_day_in_utc():
    item = served(peak=10, capacity=1, demand_profile=HALF_A_DAY, time_zone="Asia/Kolkata")
    found = estimate([item], gpu_count_per_instance=4)
    series = found.separate.pools[0].series
    # 5:30 ahead: the local day ends at 12 h, which is 6:30 UTC; an hour counts where it starts.
    assert series.serving_needed_gpus == (40.0,) * 7 + (12.0,) * 12 + (40.0,) * 5
    assert series.idle_gpus == tuple(40 - each for each in series.serving_needed_gpus)


def test_a_profile_of_a_week_makes_a_series_of_a_week():
    week = (0.1,) * 144 + (1.0,) * 24
    series = estimate([served(peak=10, capacity=1, demand_profile=week)]).separate.pools[0].series
    assert series.serving_needed_gpus == (4.0,) * 144 + (40.0,) * 24


def test_named_causes_are_shown_with_the_service():
    item = served(headroom=FULL | {"zone_loss": {"zone_count": 3}})
    (found,) = estimate([item]).serving_services
    # 40/s at 4/s a replica are 10: 5 in each of three zones.
    assert [(p.cause, p.gpu_count) for p in found.headroom] == [("spare", 0), ("zone_loss", 20)]
    assert found.amount is None


def test_existing_gpus_are_used_first():
    lot = {"gpu": GPU, "gpu_count": 30, "book_value_per_gpu": "1", "remaining_life_months": 9}
    found = estimate([served(peak=10, capacity=1)], existing_gpus=[lot])
    size = found.separate.pools[0].size
    assert (size.existing_gpu_count, size.added_gpu_count) == (30, 16)


def test_a_mode_that_lacks_something_says_so_and_the_other_stands():
    # Apart, 96 less the serving peak of 40 hold no gang of 64. Shared, 84 are left by night, and
    # 12 h of 64 a day end its 40 hours within the month.
    item = served(peak=10, capacity=1, demand_profile=HALF_A_DAY)
    found = estimate([item], [trained(gpu_count=64, hours=40.0)], fleet_gpu_count=96)
    assert not found.separate.feasible
    assert [lack.code for lack in found.separate.infeasibilities] == ["deadline"]
    assert found.shared.feasible
    assert not found.feasible
    assert found.saved_gpu_count is None


def test_a_mode_without_any_pool_has_no_sizes():
    found = estimate([served(peak=10, capacity=1)], fleet_gpu_count=32)
    for mode in (found.separate, found.shared):
        assert [lack.code for lack in mode.infeasibilities] == ["fleet"]
        assert (mode.pools, mode.peak_gpu_count, mode.idle_gpu_hours) == ((), None, None)
        assert mode.training_left is None


def test_a_run_that_never_gets_its_gang_finishes_nothing_a_day():
    found = estimate([], [trained(gpu_count=64)], fleet_gpu_count=32)
    for mode in (found.separate, found.shared):
        assert [lack.code for lack in mode.infeasibilities] == ["deadline"]
        assert mode.training_runs[0].finished_fraction_per_day == 0
        assert mode.training_runs[0].finished_fraction_by_month == (0,)
    held = [each for each in found.quantities if each.name == "allocated_gpu_hours"]
    assert [(each.low, each.value, each.high) for each in held] == [(32 * 744,) * 3] * 2


def test_a_fleet_of_a_given_size_saves_nothing_by_sharing():
    # 40 GPUs are needed; 100 that are given are 13 instances of 8, whoever has them.
    found = estimate([served(peak=10, capacity=1)], fleet_gpu_count=100)
    assert found.feasible
    assert found.shared.peak_gpu_count == 104
    assert found.saved_gpu_count is None


def test_a_lot_at_an_unknown_site_is_refused_at_its_place():
    lot = {"gpu": GPU, "gpu_count": 8, "book_value_per_gpu": "1", "remaining_life_months": 9}
    with pytest.raises(UnknownKey) as refusal:
        estimate([served()], existing_gpus=[lot | {"site": "nowhere"}])
    assert refusal.value.pointer == "/existing_gpus/0/site"


@pytest.mark.parametrize("growth", [0.0, 0.07, 1 / 3])
@pytest.mark.parametrize("peak", [7.3, 39.9, 111.1])
def test_ranges_hold_their_values_and_shares_stay_within_1(peak, growth):
    # Sums of the same hours in another order differ in their last digit.
    services = [
        served(name, peak=peak, growth_per_month_fraction=growth, demand_profile="global_app")
        for name in ("a", "b", "c")
    ]
    found = estimate(services, [trained()], horizon={"start_month": "2027-01", "month_count": 12})
    for each in found.quantities:
        if each.value is None:  # what never fails has no mean time to a failure
            continue
        assert each.low <= each.value <= each.high, each
    for mode in (found.separate, found.shared):
        for pool in mode.pools:
            assert pool.busy_fraction <= pool.allocated_fraction <= 1
            assert pool.size.mean_over_peak_fraction <= 1


def test_what_is_unknown_is_named_at_its_place_in_the_question():
    with pytest.raises(UnknownKey) as refusal:
        estimate([served() | {"gpu": "nothing-like-it"}])
    assert refusal.value.pointer == "/serving_services/0/gpu"


def test_defaults_are_overridden_where_the_question_says():
    document = served(headroom={"spare_fraction": None})
    found = estimate([document])
    places = {used.name: used.override_at for used in found.assumptions}
    assert places["spare_fraction"] == "/assumption_overrides/spare_fraction"
    assert not any(place.startswith("/scenario") for place in places.values())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"serving_services": []}, "at least one"),
        ({"serving_services": [served(), served()]}, "not unique"),
        ({"series_month": "2027-02"}, "series_month"),
        ({"serving_services": [served(launch_date="2027-02-01")]}, "not in the horizon"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        estimate([served()], **fields)


DAYS = st.lists(st.sampled_from((0.0, 0.2, 0.7, 1.0)), min_size=24, max_size=24).filter(any)


@LAWS
@given(
    day=DAYS,
    peak=st.floats(1, 100),
    gpus=st.sampled_from((8, 32, 64)),
    hours=st.integers(1, 300),
    elastic=st.booleans(),
    spare=st.sampled_from((0.0, 0.3)),
)
def test_every_typical_hour_balances_and_serves_its_need(day, peak, gpus, hours, elastic, spare):
    item = served(
        peak=peak,
        capacity=1,
        demand_profile=tuple(day),
        headroom={"spare_fraction": spare, "target_utilization_fraction": 1.0},
    )
    work = trained(gpu_count=gpus, hours=float(hours), elastic=elastic)
    found = estimate([item], [work])
    assert found.feasible
    assert found.shared.peak_gpu_count <= found.separate.peak_gpu_count
    for mode in (found.separate, found.shared):
        for pool in mode.pools:
            series = pool.series
            parts = (series.serving_needed_gpus, series.training_gpus, series.redo_gpus)
            total = np.sum([*parts, series.idle_gpus], axis=0)
            assert total == pytest.approx(np.array(series.allocated_gpus), abs=1e-6)
            assert min(series.idle_gpus) >= 0
            needed = np.array(series.serving_needed_gpus)
            assert (np.array(series.serving_held_gpus) >= needed).all()
            assert 0 <= pool.busy_fraction <= pool.allocated_fraction + 1e-9 <= 1 + 2e-9
        for one in mode.training_runs:
            assert sum(one.finished_fraction_by_month) == pytest.approx(1.0)
    (counts,) = found.serving_counts
    assert counts.ideal_gpu_count <= counts.autoscaled_gpu_count + 1e-9
    assert counts.autoscaled_gpu_count <= counts.peak_gpu_count + 1e-9
    assert counts.peak_gpu_count <= counts.static_gpu_count <= counts.whole_instance_gpu_count


@LAWS
@given(day=DAYS, peak=st.floats(1, 100), turn=st.integers(1, 23))
def test_a_day_turned_round_turns_the_answer(day, peak, turn):
    one = estimate([served(peak=peak, demand_profile=tuple(day))])
    other = estimate([served(peak=peak, demand_profile=tuple(np.roll(day, turn).tolist()))])
    before, after = (each.separate.pools[0].series for each in (one, other))
    assert np.roll(before.serving_needed_gpus, turn).tolist() == list(after.serving_needed_gpus)
    assert np.roll(before.idle_gpus, turn).tolist() == list(after.idle_gpus)
    assert one.separate.pools[0].size == other.separate.pools[0].size
    counts, turned = one.serving_counts[0], other.serving_counts[0]
    assert counts.ideal_gpu_count == pytest.approx(turned.ideal_gpu_count)
    assert counts.autoscaled_gpu_count == pytest.approx(turned.autoscaled_gpu_count)
    assert counts.whole_instance_gpu_count == turned.whole_instance_gpu_count


@pytest.mark.parametrize("fleet", [None, 80])
def test_a_run_that_is_over_at_once_has_an_answer(fleet):
    # One token at 1e15 tokens/s: its end is its start to the last digit of a double.
    instant = trained(gpu_count=8) | {"training_tokens": 1, "sequence_length_tokens": 1}
    instant |= {"speed": {"kind": "measured", "tokens_per_s_per_gpu": 1e15}}
    found = estimate([], [instant], fleet_gpu_count=fleet)
    assert found.separate is not None
    assert found.shared is not None


@pytest.mark.parametrize("fleet", [None, 80])
def test_a_service_beyond_counting_leaves_pools_without_anything(fleet):
    found = estimate([served(peak=1e12, capacity=1e-9)], fleet_gpu_count=fleet)
    assert not found.feasible
    assert found.separate.pools == ()


def test_a_replica_that_starts_for_longer_than_a_week_is_refused():
    slow = {"weights_gb_per_replica": 1e15, "storage_gb_per_s_per_node": 1e-12}
    with pytest.raises(InvalidScenario, match="longer than a week") as refusal:
        estimate([served(headroom=FULL | {"cold_start": slow})])
    assert refusal.value.pointer == "/serving_services/0/headroom/cold_start"
