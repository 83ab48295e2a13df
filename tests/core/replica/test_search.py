"""The search takes the fewest GPUs for a unit of load, counting those that instances leave idle."""

import numpy as np
import pytest

from service.core.replica.passes import Pass
from service.core.replica.search import (
    Choice,
    Objectives,
    Room,
    Sweep,
    cheapest,
    packed_gpu_count,
)
from service.core.replica.shape import Layout
from service.core.replica.speed import SteadyState

NOTHING = Pass(0.0, 0.0, 0.0)
ANY = Objectives(np.inf, np.inf)


@pytest.mark.parametrize(
    ("gpu_count", "multiple", "taken"),
    [
        (1, 8, 1),
        (4, 8, 4),
        (3, 8, 4),  # two replicas in eight
        (5, 8, 8),  # one in eight
        (8, 8, 8),
        (12, 8, 16),
        (16, 8, 16),
        (2, 1, 2),
    ],
)
def test_a_replica_takes_its_share_of_whole_instances(gpu_count, multiple, taken):
    assert float(packed_gpu_count(np.array(gpu_count), multiple)) == taken


def sweep_of(degrees, units, *, tpot=0.01, ttft=1.0):
    units = np.array(units, dtype=float)
    same = np.ones_like(units)
    state = SteadyState(
        decode_step_s=same,
        prefill_share_s=same,
        prefill_s=same,
        tpot_mean_s=tpot * same,
        ttft_p95_s=ttft * same,
        units_per_s=units,
        decode=NOTHING,
        prefill=NOTHING,
    )
    ranks = np.array(degrees)
    running = np.tile(np.arange(1.0, units.shape[1] + 1), (ranks.size, 1))
    limits = np.full(ranks.size, 100.0)
    room = Room(limits, limits, limits, np.ones(ranks.size), np.ones(ranks.size))
    return Sweep(Layout(ranks, np.ones_like(ranks)), running, state, room)


def test_the_fewest_gpus_for_a_unit_of_load_win():
    # 1 GPU at 1, 2 GPUs at 3 and 4 GPUs at 5 units a second: 1, 0.67 and 0.8 GPUs a unit.
    found = sweep_of([1, 2, 4], [[0.5, 1], [2, 3], [4, 5]])
    assert cheapest(found, ANY, 8) == Choice(2, 1, running=2, cache_limit=100)


def test_idle_gpus_of_an_instance_count():
    # 3 GPUs at 3.1 units pack two to an instance of 8, so each takes 4; 4 GPUs at 4 units do not.
    found = sweep_of([3, 4], [[3.1], [4.0]])
    assert cheapest(found, ANY, 1).tensor_parallel == 3
    assert cheapest(found, ANY, 8).tensor_parallel == 4


def test_among_equals_the_smaller_replica_wins():
    assert cheapest(sweep_of([4, 2], [[4.0], [2.0]]), ANY, 8).tensor_parallel == 2


def test_nothing_is_chosen_where_an_objective_fails_everywhere():
    found = sweep_of([1], [[1.0]], tpot=0.05, ttft=2.0)
    assert cheapest(found, Objectives(np.inf, 0.04), 8) is None
    assert cheapest(found, Objectives(1.9, np.inf), 8) is None
    assert cheapest(found, Objectives(2.0, 0.05), 8) is not None


def test_the_load_of_the_service_decides_between_small_and_large_replicas():
    # 1 GPU at 1 unit a second, 4 GPUs at 6. One replica is held beside those that are needed: a
    # load of 2 holds 3 · 1 or 2 · 4 GPUs, a load of 24 holds 25 · 1 or 5 · 4.
    found = sweep_of([1, 4], [[1.0], [6.0]])

    def held(load):
        return lambda rate: np.ceil(load / rate) + 1

    assert cheapest(found, ANY, 8, held(2)).tensor_parallel == 1
    assert cheapest(found, ANY, 8, held(24)).tensor_parallel == 4
    assert cheapest(found, ANY, 8).tensor_parallel == 4
