"""Laws that pools obey, whatever runs and services they hold."""

from collections import defaultdict
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.estimates import Range
from service.core.hours.headroom import ReplicaSize
from service.core.hours.service_demand import service_demand
from service.core.hours.timeline import Timeline
from service.core.scenarios.demand import profile_factors
from service.core.scenarios.scenario import Horizon
from tests.pool_builders import GPU, need, pools, recorder, run, service, shared

LAWS = settings(max_examples=40, deadline=None, derandomize=True)
MONTHS = 3
DAYS = st.one_of(
    st.sampled_from(("flat", "office_assistant", "consumer_evening", "global_app")),
    st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=24, max_size=24)
    .filter(any)
    .map(tuple),
)


@st.composite
def services(draw, name="service", **fixed):
    return {
        "name": name,
        "peak": draw(st.floats(0.1, 200)),
        "capacity": draw(st.floats(0.5, 10)),
        "gpus": draw(st.sampled_from((1, 2, 4, 8))),
        "demand_profile": draw(DAYS),
        "time_zone": draw(st.sampled_from(("UTC", "Europe/Berlin", "Asia/Kolkata"))),
        "growth_per_month_fraction": draw(st.sampled_from((0.0, 0.1, -0.2))),
        "headroom": {"spare_fraction": draw(st.sampled_from((None, 0.0, 0.1, 0.5)))},
        **fixed,
    }


STARTS = st.sampled_from(("2027-01-01", "2027-01-08", "2027-02-01"))


@st.composite
def runs(draw, name="run", start=STARTS):
    copy = draw(st.sampled_from((1, 2, 8, 16)))
    gpu_count = copy * draw(st.integers(1, 12))
    return need(
        run(
            name,
            gpu_count=gpu_count,
            start=draw(start),
            elastic=draw(st.booleans()),
            priority=draw(st.sampled_from((0, 0, 3))),
        ),
        gpu_count=gpu_count,
        hours=draw(st.floats(1, 1400)),
        copy=copy,
        interval_s=draw(st.sampled_from((600.0, 1800.0, 10_000.0))),
    )


@st.composite
def workloads(draw, *, most_runs=2):
    needs = [draw(runs(f"run {i}")) for i in range(draw(st.integers(0, most_runs)))]
    count = draw(st.integers(0 if needs else 1, 2))
    return needs, [draw(services(f"service {i}")) for i in range(count)]


POOLINGS = st.sampled_from(({"kind": "separate"}, shared()))


def planned(work, pooling, *, factor=1.0, multiple=8, owned=False):
    needs, documents = work
    served = [service(**document | {"peak": document["peak"] * factor}) for document in documents]
    return pools(needs, served, months=MONTHS, pooling=pooling, multiple=multiple, owned=owned)


@LAWS
@given(work=workloads(), pooling=POOLINGS)
def test_the_same_workloads_have_the_same_pools(work, pooling):
    assert planned(work, pooling) == planned(work, pooling)


@LAWS
@given(
    work=workloads(),
    pooling=POOLINGS,
    multiple=st.sampled_from((1, 4, 8)),
    owned=st.booleans(),
)
def test_gpu_hours_balance_in_every_pool(work, pooling, multiple, owned):
    outcome = planned(work, pooling, multiple=multiple, owned=owned)
    assert outcome.infeasibilities == ()
    by_pool = defaultdict(float)
    for use in outcome.hour_uses:
        assert use.gpu_hours > 0
        assert use.gpu_count > 0
        held_for = 0.0 if use.workload else use.gpu_hours
        assert sum(use.held_for.values()) == pytest.approx(held_for)
        hours = (use.end - use.start) / timedelta(hours=1)
        assert use.gpu_hours <= use.gpu_count * hours * (1 + 1e-6)
        by_pool[use.pool] += use.gpu_hours
    for pool in outcome.pools:
        assert pool.gpu_count % multiple == 0
        if owned:
            assert pool.allocated_gpu_hours == pytest.approx(pool.gpu_count * (744 + 672 + 744))
        assert by_pool[pool.name] == pytest.approx(pool.allocated_gpu_hours)
        assert 0 <= pool.used_gpu_hours + pool.idle_gpu_hours <= pool.allocated_gpu_hours + 1e-6
        assert 0 < pool.mean_over_peak_fraction <= 1 + 1e-9


@LAWS
@given(work=workloads(), pooling=POOLINGS)
def test_what_a_pool_holds_is_its_size_times_its_hours(work, pooling):
    outcome = planned(work, pooling)
    by_month = defaultdict(float)
    for use in outcome.hour_uses:
        by_month[use.pool, use.month] += use.gpu_hours
    hours = {"2027-01": 744, "2027-02": 672, "2027-03": 744}
    size = {pool.name: pool.gpu_count for pool in outcome.pools}
    for (name, month), held in by_month.items():
        assert held <= size[name] * hours[month] * (1 + 1e-9)
        if name == "serving":
            assert held == pytest.approx(size[name] * hours[month])


@LAWS
@given(work=workloads(), pooling=POOLINGS)
def test_each_run_does_its_work_and_ends_by_its_date(work, pooling):
    outcome = planned(work, pooling)
    used = defaultdict(float)
    for use in outcome.hour_uses:
        if use.workload_kind == "training" and use.use == "used":
            used[use.workload] += use.gpu_hours
    for schedule in outcome.runs:
        assert used[schedule.need.run.name] == pytest.approx(schedule.need.gpu_hours)
        assert schedule.finish <= schedule.need.finish + timedelta(seconds=1)


@LAWS
@given(work=workloads(most_runs=3), multiple=st.sampled_from((1, 8)))
def test_sharing_never_needs_more_gpus_than_pools_apart(work, multiple):
    apart = planned(work, {"kind": "separate"}, multiple=multiple)
    together = planned(work, shared(), multiple=multiple)
    assert together.peak_gpu_count <= sum(pool.gpu_count for pool in apart.pools)


@LAWS
@given(work=workloads(), pooling=POOLINGS, factor=st.floats(1.0, 3.0))
def test_more_load_never_needs_fewer_gpus(work, pooling, factor):
    before, after = planned(work, pooling), planned(work, pooling, factor=factor)
    assert after.peak_gpu_count >= before.peak_gpu_count


@LAWS
@given(document=services(), speed=st.floats(0.5, 10))
def test_no_hour_serves_less_than_its_demand(document, speed):
    served = service(**document)
    timeline = Timeline.of(Horizon(start_month="2027-01", month_count=MONTHS))
    demand = service_demand(
        served,
        units_per_s_per_replica=Range.exactly(speed),
        replica=ReplicaSize(GPU, 1),
        timeline=timeline,
        recorder=recorder(),
        pointer="",
    )
    local, _ = timeline.cycle(served.time_zone, 24)
    growth = (1 + served.growth_per_month_fraction) ** timeline.month_of_hour
    load = document["peak"] * growth * np.array(profile_factors(served.demand_profile))[local]
    needed, held = demand.hourly_needed, demand.hourly_held
    assert (needed * speed >= load * (1 - 1e-9)).all()
    assert (held >= needed).all()
    assert (needed >= 1).all()


def without_growth(name="service"):
    return services(name, growth_per_month_fraction=0.0, time_zone="UTC")


@LAWS
@given(document=without_growth(), turn=st.integers(1, 23))
def test_a_day_turned_round_needs_the_same_serving_pool(document, turn):
    factors = profile_factors(document["demand_profile"])
    turned = document | {"demand_profile": tuple(np.roll(factors, turn).tolist())}
    one, other = (planned(([], [item]), {"kind": "separate"}) for item in (document, turned))
    assert one.pools == other.pools
    assert one.hour_uses == other.hour_uses


@LAWS
@given(
    document=without_growth(),
    turn=st.integers(1, 23),
    trained=runs(start=st.just("2027-01-01")),
    multiple=st.sampled_from((1, 8)),
)
def test_a_day_turned_round_needs_the_same_shared_fleet(document, turn, trained, multiple):
    day = trained.finish.date().isoformat()
    dated = need(
        run(gpu_count=trained.gpu_count, finish=day, elastic=trained.run.elastic),
        gpu_count=trained.gpu_count,
        hours=trained.wall_clock_hours.value,
        copy=trained.gpus_per_copy,
        interval_s=trained.checkpoint_interval_s,
    )
    factors = profile_factors(document["demand_profile"])
    turned = document | {"demand_profile": tuple(np.roll(factors, turn).tolist())}
    one, other = (
        planned(([dated], [item]), shared(), multiple=multiple) for item in (document, turned)
    )
    assert one.peak_gpu_count == other.peak_gpu_count


FLEETS = st.one_of(st.none(), st.integers(1, 400))


@LAWS
@given(
    work=workloads(most_runs=3),
    kind=st.sampled_from(("separate", "shared")),
    fleet=FLEETS,
    multiple=st.sampled_from((1, 8)),
    existing=st.sampled_from(((), (24,), (5, 40))),
)
def test_what_a_pool_holds_is_accounted_for_in_every_hour(work, kind, fleet, multiple, existing):
    needs, documents = work
    outcome = pools(
        needs,
        [service(**document) for document in documents],
        months=MONTHS,
        pooling={"kind": kind, "fleet_gpu_count": fleet},
        multiple=multiple,
        existing=existing,
    )
    for pool, use in zip(outcome.pools, outcome.uses, strict=True):
        hours = use.hourly
        parts = hours.serving_needed + hours.training_used + hours.redo + hours.idle
        assert np.abs(hours.allocated - parts).max() <= 1e-6
        assert (hours.idle >= 0).all()
        assert (hours.serving_held >= hours.serving_needed).all()
        assert hours.allocated.max() <= pool.gpu_count + 1e-9
        assert hours.allocated.sum() == pytest.approx(pool.allocated_gpu_hours)
        assert (hours.training_used + hours.redo).sum() == pytest.approx(
            pool.allocated_gpu_hours - pool.idle_gpu_hours - hours.serving_needed.sum(), abs=1e-3
        )
        assert (pool.gpu_count - pool.existing_gpu_count) % multiple == 0
    if fleet is not None and not outcome.infeasibilities:
        assert outcome.peak_gpu_count <= fleet + multiple * 2


@LAWS
@given(
    work=workloads(most_runs=3),
    multiple=st.sampled_from((1, 8)),
    existing=st.sampled_from((16, 100)),
)
def test_sharing_adds_no_more_gpus_to_those_that_are_there(work, multiple, existing):
    needs, documents = work
    served = [service(**document) for document in documents]
    apart, together = (
        pools(needs, served, months=MONTHS, pooling=each, multiple=multiple, existing=[existing])
        for each in ({"kind": "separate"}, shared())
    )
    held = sum(pool.gpu_count for pool in apart.pools)
    assert together.pools[0].gpu_count <= held
