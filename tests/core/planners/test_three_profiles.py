"""A 24-hour cluster under three profiles, apart and shared, as worked by hand in its case file."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.pool_builders import need, pools, run, service

CASES = yaml.safe_load(
    (Path(__file__).parents[2] / "cases/pools/three_profiles.yaml").read_text(encoding="utf-8")
)
CLUSTER = CASES["cluster"]
A_DAY = slice(5 * 24, 6 * 24)
FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}


@pytest.fixture(params=CASES["cases"], ids=lambda case: case["profile"])
def case(request):
    return request.param


def outcome(case, kind):
    served = service(
        peak=CLUSTER["peak"],
        capacity=CLUSTER["capacity"],
        gpus=CLUSTER["gpus"],
        demand_profile=case["profile"],
        headroom=FULL,
    )
    trained = need(
        run(gpu_count=CLUSTER["run_gpu_count"], elastic=True),
        gpu_count=CLUSTER["run_gpu_count"],
        hours=CLUSTER["run_hours"],
        copy=CLUSTER["copy_gpu_count"],
        interval_s=1800,
        restart_s=900,
    )
    pooling = {"kind": kind, "fleet_gpu_count": CLUSTER["fleet_gpu_count"]}
    found = pools([trained], [served], pooling=pooling, months=1)
    assert found.infeasibilities == ()
    return found


def of_day(found, part):
    return sum(float(getattr(use.hourly, part)[A_DAY].sum()) for use in found.uses)


def same_moment(found, expected):
    (schedule,) = found.runs
    return abs(schedule.finish - datetime.fromisoformat(expected)) < timedelta(milliseconds=1)


def test_apart_each_side_has_its_own(case):
    found, expected = outcome(case, "separate"), case["separate"]
    assert of_day(found, "serving_needed") == case["serving_needed_gpu_hours"]
    assert of_day(found, "training_used") == pytest.approx(expected["training_gpu_hours"])
    assert of_day(found, "idle") == pytest.approx(expected["idle_gpu_hours"])
    assert of_day(found, "redo") == 0
    assert same_moment(found, expected["finish"])


def test_shared_training_takes_what_each_hour_leaves(case):
    found, expected = outcome(case, "shared"), case["shared"]
    assert of_day(found, "serving_needed") == case["serving_needed_gpu_hours"]
    assert of_day(found, "training_used") == pytest.approx(expected["training_gpu_hours"])
    assert of_day(found, "redo") == pytest.approx(expected["redo_gpu_hours"])
    assert of_day(found, "idle") == pytest.approx(expected["idle_gpu_hours"])
    assert same_moment(found, expected["finish"])
    (schedule,) = found.runs
    assert schedule.hours.returned[A_DAY].sum() == expected["preempted_gpu_count"]
