"""Pools apart: the published example to the last digit, and what is kept of it."""

from datetime import UTC, datetime

import pytest

from service.core.estimates import Range
from tests.pool_builders import need, pools, recorder, run, service

HEADROOM = {"target_utilization_fraction": 0.8, "spare_fraction": 0.10}


@pytest.fixture(scope="module")
def example():
    """The published example: 512 GPUs train for 597,967.252881 GPU-hours, beside one service."""
    trained = need(
        run("pretrain-70b", gpu_count=512), gpu_count=512, hours=597967.252881 / 512, copy=32
    )
    served = service(demand_profile="consumer_evening", headroom=HEADROOM)
    return pools([trained], [served])


def test_the_example_sizes_its_pools(example):
    # ⌈40/(4 · 0.8)⌉ = 13 replicas needed, ⌈13 · 1.1⌉ = 15 held = 60 GPUs = 8 instances of 8.
    (replicas,) = example.services
    assert (replicas.needed_replica_count_peak, replicas.held_replica_count) == (13, 15)
    assert replicas.gpu_count == 64
    assert [(pool.name, pool.gpu_count, pool.node_count) for pool in example.pools] == [
        ("training", 512, 64),
        ("serving", 64, 8),
    ]
    assert example.peak_gpu_count == 576
    assert example.training_gpu_counts == (512, 512, *[0] * 10)
    assert example.serving_gpu_counts == (64,) * 12


def test_the_example_uses_its_hours(example):
    # Replicas by hour: ⌈12.5 · factor⌉ sums to 179 a day, · 4 = 716 GPU-hours, · 365 = 261,340.
    training, serving = example.pools
    assert training.allocated_gpu_hours == pytest.approx(597967.252881, abs=1e-6)
    assert training.used_gpu_hours == pytest.approx(597967.252881, abs=1e-6)
    assert (training.idle_gpu_hours, training.mean_over_peak_fraction) == (0, pytest.approx(1.0))
    assert serving.allocated_gpu_hours == 64 * 8760
    assert serving.used_gpu_hours == 261340
    assert serving.idle_gpu_hours == 299300
    assert serving.mean_over_peak_fraction == pytest.approx(179 / (13 * 24))
    assert serving.preempted_gpu_count_per_day == 0


def test_the_example_serves_its_units(example):
    # The factors of 8 hours each sum to 2.64 + 4.33 + 6.47 = 13.44, a mean of 0.56.
    assert example.services[0].units_served == pytest.approx(13.44 * 3600 * 40 * 365)


def test_the_example_has_its_lines_in_order(example):
    lines = [(u.month, u.pool, u.workload, u.use, u.gpu_hours) for u in example.hour_uses]
    assert len(lines) == 26
    assert lines[:3] == [
        ("2027-01", "training", "pretrain-70b", "used", 380928),
        ("2027-01", "serving", "assistant", "used", 22196),
        ("2027-01", "serving", "assistant", "idle", 25420),
    ]
    assert lines[3][:4] == ("2027-02", "training", "pretrain-70b", "used")
    assert lines[3][4] == pytest.approx(217039.252881, abs=1e-6)
    assert [line[:4] for line in lines[6:8]] == [
        ("2027-03", "serving", "assistant", "used"),
        ("2027-03", "serving", "assistant", "idle"),
    ]


def test_a_charge_ends_with_its_run_and_otherwise_with_its_month(example):
    january, serving, _, february = example.hour_uses[:4]
    assert (january.start, january.end) == (
        datetime(2027, 1, 1, tzinfo=UTC),
        datetime(2027, 2, 1, tzinfo=UTC),
    )
    assert (serving.start, serving.end) == (january.start, january.end)
    assert february.end == example.runs[0].finish
    assert february.end.date().isoformat() == "2027-02-18"


def test_quantities_are_kept_under_their_scopes():
    notes = recorder()
    served = service(demand_profile="consumer_evening", headroom=HEADROOM)
    pools([], [served], into=notes, speed=Range(value=4.0, low=3.0, high=5.0))
    kept = {(q.scope, q.name): q for q in notes.quantities()}
    # ⌈40/(5 · 0.8)⌉ = 10 and ⌈40/(3 · 0.8)⌉ = 17; held ⌈11⌉ = 11 and ⌈18.7⌉ = 19.
    needed = kept["service:assistant", "needed_replica_count_peak"]
    assert (needed.low, needed.value, needed.high) == (10, 13, 17)
    held = kept["service:assistant", "held_replica_count"]
    assert (held.low, held.value, held.high) == (11, 15, 19)
    assert {name: kept["pool:serving", name].value for name in POOL_QUANTITIES} == {
        "pool_gpu_count": 64,
        "allocated_gpu_hours": 560640,
        "used_gpu_hours": 261340,
        "idle_gpu_hours": 299300,
        "redo_gpu_hours": 0,
        "preempted_gpu_count_per_day": 0,
        "mean_over_peak_fraction": pytest.approx(179 / (13 * 24)),
    }


POOL_QUANTITIES = (
    "pool_gpu_count",
    "allocated_gpu_hours",
    "used_gpu_hours",
    "idle_gpu_hours",
    "redo_gpu_hours",
    "preempted_gpu_count_per_day",
    "mean_over_peak_fraction",
)
