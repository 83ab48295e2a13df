"""Runs that queue for a given fleet: by priority, then date, then gang; services that go short."""

from tests.pool_builders import need, pools, run, service, shared

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


def apart(fleet_gpu_count):
    return {"kind": "separate", "fleet_gpu_count": fleet_gpu_count}


def trained(name, *, gpus=64, hours=100.0, copy=64, **fields):
    return need(run(name, gpu_count=gpus, **fields), gpu_count=gpus, hours=hours, copy=copy)


def finishes(outcome):
    return {item.need.run.name: item.finish.isoformat()[:13] for item in outcome.runs}


def test_the_run_of_higher_priority_goes_first():
    # 64 GPUs hold one run at a time, 100 h each.
    plain = pools([trained("a"), trained("b")], pooling=apart(64), months=1)
    assert finishes(plain) == {"a": "2027-01-05T04", "b": "2027-01-09T08"}
    urgent = pools([trained("a"), trained("b", priority=1)], pooling=apart(64), months=1)
    assert finishes(urgent) == {"b": "2027-01-05T04", "a": "2027-01-09T08"}


def test_the_larger_gang_goes_first_and_a_smaller_one_fills_what_it_leaves():
    # In 96 GPUs a gang of 64 leaves 32, which the gang of 32 takes at once.
    small, large = trained("small", gpus=32, copy=32), trained("large")
    both = pools([small, large], pooling=apart(96), months=1)
    assert finishes(both) == {"small": "2027-01-05T04", "large": "2027-01-05T04"}
    # In 64 the larger comes first, though it stands second in the request.
    queued = pools([small, large], pooling=apart(64), months=1)
    assert finishes(queued)["large"] == "2027-01-05T04"


def test_training_gets_what_the_serving_peak_leaves_of_a_fleet():
    # Serving holds 40 GPUs all day though it needs them for an hour: 104 leave 64 for the run.
    day = (1.0,) + (0.1,) * 23
    served = service(peak=10, capacity=1, headroom=FULL, demand_profile=day)
    outcome = pools([trained("a")], [served], pooling=apart(104), months=1)
    training, serving = outcome.pools
    assert (training.gpu_count, serving.gpu_count) == (64, 40)
    assert finishes(outcome) == {"a": "2027-01-05T04"}
    assert training.preempted_gpu_count_per_day == 0
    assert training.allocated_gpu_hours + serving.allocated_gpu_hours == 104 * 744


def test_a_fleet_that_leaves_no_copy_of_a_run_says_how_large_it_must_be():
    served = service(peak=10, capacity=1, headroom=FULL)
    outcome = pools([trained("a")], [served], pooling=apart(40), months=1)
    (lack,) = outcome.infeasibilities
    assert (lack.code, lack.workload, lack.needed, lack.available) == ("fleet", "a", 104, 40)
    assert pools([trained("a")], [served], pooling=apart(104), months=1).infeasibilities == ()
    assert "fleet_gpu_count 104" in lack.nearest_fix


def test_a_run_that_is_late_in_its_rest_of_the_fleet_names_a_fleet_that_ends_it():
    served = service(peak=10, capacity=1, headroom=FULL)
    runs = [trained(name, hours=500.0) for name in ("a", "b")]
    (lack,) = pools(runs, [served], pooling=apart(104), months=1).infeasibilities
    assert (lack.code, lack.workload) == ("deadline", "b")
    assert "fleet_gpu_count 168" in lack.nearest_fix  # 40 and two runs of 64 side by side
    assert pools(runs, [served], pooling=apart(168), months=1).infeasibilities == ()


def test_in_a_fleet_too_small_the_service_of_lower_priority_goes_short():
    # Each needs 40 GPUs all day; 64 hold one of them.
    one = service("one", peak=10, capacity=1, headroom=FULL)
    two = service("two", peak=10, capacity=1, headroom=FULL, priority=5)
    for pooling in (apart(64), shared(64)):
        (lack,) = pools([], [one, two], pooling=pooling, months=1).infeasibilities
        assert (lack.workload, lack.needed, lack.available) == ("one", 40, 24)
        assert "fleet_gpu_count 80" in lack.nearest_fix


def test_priority_orders_runs_in_a_shared_pool_too():
    served = service(peak=10, capacity=1, headroom=FULL)
    runs = [trained("a"), trained("b", priority=1)]
    outcome = pools(runs, [served], pooling=shared(104), months=1)
    assert finishes(outcome) == {"b": "2027-01-05T04", "a": "2027-01-09T08"}
