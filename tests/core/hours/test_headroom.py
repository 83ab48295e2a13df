"""Named causes of headroom: off by default, each worked by hand, each shown as GPUs of its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Range
from service.core.hours.headroom import ReplicaSize
from service.core.hours.service_demand import service_demand
from service.core.hours.timeline import Timeline
from service.core.scenarios.scenario import Horizon
from tests.pool_builders import GPU, recorder, service

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
NO_SPARE = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def demand(headroom, *, into=None, weight_bytes_per_gpu=None, months=1, speed=None, **fields):
    given = {"peak": 100.0, "capacity": 1.0, "gpus": 4} | fields
    return service_demand(
        service(headroom=NO_SPARE | headroom, **given),
        units_per_s_per_replica=speed or Range.exactly(given["capacity"]),
        replica=ReplicaSize(GPU, given["gpus"], weight_bytes_per_gpu),
        timeline=Timeline.of(Horizon(start_month="2027-01", month_count=months)),
        recorder=into or recorder(),
        pointer="/scenario/serving_services/0",
    )


def parts(headroom, **fields):
    return {part.cause: part.replica_count for part in demand(headroom, **fields).headroom}


def test_without_named_causes_the_spare_alone_is_held():
    found = demand({"spare_fraction": 0.1})
    assert [(part.cause, part.replica_count, part.gpu_count) for part in found.headroom] == [
        ("spare", 10, 40)
    ]
    assert found.held.max() == 110


def test_a_burst_percentile_holds_the_busy_minutes():
    # 100/s in a minute: 2.3263 deviations of sqrt(100/60) = 3.003/s, so 104 replicas.
    poisson = recorder(arrival_dispersion_ratio=1.0)
    assert parts({"burst": {}}, into=poisson)["burst"] == 4
    # 18 times the variance: 100 + 2.3263 · sqrt(18 · 100/60) = 112.74.
    assert parts({"burst": {}})["burst"] == 13
    # Half of all minutes are above the mean: the median asks for nothing.
    assert parts({"burst": {"percentile_fraction": 0.5}})["burst"] == 0


def test_a_burst_that_was_measured_is_taken_as_it_is():
    # Busiest minute over the mean of the hour in a published trace: 507 / 331.8 = 1.528.
    assert parts({"burst": {"over_mean_ratio": 1.528}})["burst"] == 53


def test_a_forecast_may_be_too_low():
    assert parts({"forecast_error": {"error_fraction": 0.25}})["forecast_error"] == 25
    assert parts({"forecast_error": {}})["forecast_error"] == 10  # the catalog's tenth


def test_a_cold_start_holds_the_steepest_rise_while_it_lasts():
    # From hour 8 to 9 the load rises from 10 to 100 of 100/s: 90/s in 3,600 s, 22.5 in 900 s.
    day = tuple([0.1] * 9 + [1.0] * 15)
    found = parts({"cold_start": {"duration_s": 900}}, demand_profile=day)
    assert found["cold_start"] == 23
    # Three hours long it holds the whole rise, and no more than that.
    long = parts({"cold_start": {"duration_s": 10_800}}, demand_profile=day)
    assert long["cold_start"] == 90


def test_the_rise_at_midnight_counts():
    day = tuple([1.0] + [0.1] * 23)
    assert parts({"cold_start": {"duration_s": 1800}}, demand_profile=day)["cold_start"] == 45


def test_a_cold_start_takes_as_long_as_its_weights_load():
    # 35 GB on each of 4 GPUs are 140 GB a node; at 2 GB/s 70 s, and 90 s to start: 160 s.
    notes = recorder()
    day = tuple([0.1] * 9 + [1.0] * 15)
    found = demand({"cold_start": {}}, into=notes, weight_bytes_per_gpu=35e9, demand_profile=day)
    (noted,) = [q for q in notes.quantities() if q.name == "cold_start_s"]
    assert noted.value == pytest.approx(160)
    # 90/s in an hour: 4/s in 160 s.
    assert found.headroom[0].replica_count == 4


def test_a_replica_of_two_nodes_loads_half_of_its_weights_on_each():
    notes = recorder()
    demand({"cold_start": {"weights_gb_per_replica": 640}}, into=notes, gpus=16)
    (noted,) = [q for q in notes.quantities() if q.name == "cold_start_s"]
    assert noted.value == pytest.approx(90 + 320 / 2)


def test_a_cold_start_without_known_weights_is_refused():
    with pytest.raises(InvalidScenario) as refusal:
        demand({"cold_start": {}})
    assert refusal.value.pointer == "/scenario/serving_services/0/headroom/cold_start"


def test_maintenance_takes_its_share_of_what_is_held():
    # ⌈100 / 0.95⌉ = 106: 5 % of 106 are out, 100.7 are left.
    assert parts({"maintenance": {"out_fraction": 0.05}})["maintenance"] == 6


def test_failures_hold_binomial_spares_of_whole_servers():
    # 26.4 failures per 1,000 server-days and 12 h of repair: A = 1/(1 + 0.0264/2) = 0.987.
    # A replica fills a server of 8: of 100 servers, 106 are held for 99.9 %.
    asked = {"failures_per_1000_node_days": 26.138, "repair_hours": 12}
    assert parts({"failures": asked}, gpus=8)["failures"] == 6
    # Two replicas share a server: 50 servers, 54 for 99.9 %: 8 replicas fall or stand together.
    assert parts({"failures": asked}, gpus=4)["failures"] % 2 == 0


def test_a_replica_of_two_servers_fails_with_either():
    asked = {"failures_per_1000_node_days": 26.138, "repair_hours": 12}
    one = parts({"failures": asked}, gpus=8)["failures"]
    two = parts({"failures": asked}, gpus=16)["failures"]
    assert two > one


def test_servers_that_are_out_half_of_the_time_are_refused():
    asked = {"failures_per_1000_node_days": 1000, "repair_hours": 24}
    with pytest.raises(InvalidScenario) as refusal:
        demand({"failures": asked}, gpus=8)
    assert refusal.value.pointer == "/scenario/serving_services/0/headroom/failures"


def test_a_zone_may_be_lost():
    # 100 on three zones: 50 in each, so that two hold 100: x 3/2.
    assert parts({"zone_loss": {"zone_count": 3}})["zone_loss"] == 50
    # On two zones each holds everything.
    assert parts({"zone_loss": {"zone_count": 2}})["zone_loss"] == 100


def test_the_spare_comes_on_top_of_the_causes_and_zones_on_top_of_all():
    # 100 · 1.25 = 125; ⌈125 · 1.1⌉ + 1 = 139; two of three zones: 70 · 3 = 210.
    found = demand(
        {
            "forecast_error": {"error_fraction": 0.25},
            "spare_fraction": 0.1,
            "spare_replica_count": 1,
            "zone_loss": {"zone_count": 3},
        }
    )
    assert [part.replica_count for part in found.headroom] == [25, 14, 71]
    assert found.held.max() == 210


CAUSES = {
    "burst": {},
    "forecast_error": {},
    "cold_start": {"duration_s": 600},
    "maintenance": {},
    "failures": {},
    "zone_loss": {"zone_count": 3},
}
DAYS = st.lists(st.sampled_from((0.0, 0.2, 0.7, 1.0)), min_size=24, max_size=24).filter(any)


@LAWS
@given(
    on=st.sets(st.sampled_from(sorted(CAUSES))),
    one=st.sampled_from(sorted(CAUSES)),
    peak=st.floats(0.1, 500),
    gpus=st.sampled_from((1, 4, 8, 16)),
    day=DAYS,
    growth=st.sampled_from((0.0, 0.2, -0.2)),
)
def test_each_cause_adds_and_the_parts_are_what_is_held(on, one, peak, gpus, day, growth):
    fields = {
        "peak": peak,
        "gpus": gpus,
        "demand_profile": tuple(day),
        "growth_per_month_fraction": growth,
        "months": 3,
    }
    without = demand({cause: CAUSES[cause] for cause in on - {one}}, **fields)
    found = demand({cause: CAUSES[cause] for cause in on | {one}}, **fields)
    assert (found.held >= without.held).all()
    assert (found.needed == without.needed).all()
    assert {part.cause for part in found.headroom} == {"spare"} | on | {one}
    added = sum(part.replica_count for part in found.headroom)
    assert found.needed.max() + added == found.held.max()
    assert all(part.gpu_count == part.replica_count * gpus for part in found.headroom)


@LAWS
@given(count=st.integers(2, 23), peak=st.floats(0.1, 500), zones=st.integers(2, 6))
def test_the_loss_of_any_zone_leaves_what_is_needed(count, peak, zones):
    found = demand({"zone_loss": {"zone_count": zones}}, peak=peak)
    held = int(found.held.max())
    assert held % zones == 0
    assert held - held // zones >= found.needed.max()


def test_the_range_of_a_capacity_reaches_what_causes_hold():
    notes = recorder()
    demand(
        {"forecast_error": {"error_fraction": 0.25}, "zone_loss": {"zone_count": 3}},
        into=notes,
        speed=Range(value=1.0, low=0.8, high=1.25),
    )
    (held,) = [q for q in notes.quantities() if q.name == "held_replica_count"]
    # ⌈125/2⌉ · 3; at 1.25/s ⌈100/2⌉ · 3; at 0.8/s ⌈157/2⌉ · 3.
    assert (held.value, held.low, held.high) == (189, 150, 237)


def test_a_load_beyond_counting_is_refused_with_causes_too():
    found = demand({cause: CAUSES[cause] for cause in CAUSES}, peak=1e12, capacity=1e-9)
    assert isinstance(found, Infeasibility)
