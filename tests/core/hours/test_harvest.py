"""Runs on what serving leaves: nobody takes more than there is, and the first due comes first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.hours.harvest import Job, alone, harvest, harvest_in_turn, smallest_fleet
from service.core.hours.holding import Holding

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
HOURS = 10 * 24


def job(*, gpus=8, hours=24.0, copy=1, start=0.0, due=None, redo=0.5, elastic=False, most=10**6):
    return Job(
        start=start,
        due=start + hours if due is None else due,
        own_gpu_count=gpus,
        own_hours=hours,
        copy_gpu_count=copy,
        least_copies=1,
        most_copies=most,
        redo_hours=redo,
        elastic=elastic,
    )


@st.composite
def jobs(draw):
    copy = draw(st.sampled_from((1, 2, 4)))
    return job(
        gpus=copy * draw(st.integers(1, 6)),
        hours=draw(st.floats(1, 100)),
        copy=copy,
        start=float(draw(st.sampled_from((0, 24, 30)))),
        redo=draw(st.sampled_from((0.0, 0.583, 1.7))),
        elastic=draw(st.booleans()),
    )


FREE = st.lists(st.integers(0, 40), min_size=24, max_size=24)


@LAWS
@given(many=st.lists(jobs(), min_size=1, max_size=3), free=FREE)
def test_runs_together_never_hold_more_than_is_free(many, free):
    left = np.tile(np.array(free), HOURS // 24)
    for number, schedule in harvest_in_turn(many, left.copy(), stop=HOURS):
        assert (schedule.gpus % many[number].copy_gpu_count == 0).all()
        assert (schedule.gpus[: max(0, int(many[number].start) - schedule.first)] == 0).all()
        assert (schedule.used >= -1e-9).all()
        assert (schedule.redo >= 0).all()
        assert (schedule.used + schedule.redo <= schedule.gpus + 1e-6).all()
        left[schedule.hours] -= schedule.gpus
    assert (left >= 0).all()


@LAWS
@given(many=st.lists(jobs(), min_size=1, max_size=3), held=FREE, multiple=st.sampled_from((1, 8)))
def test_the_smallest_fleet_ends_all_runs_in_time(many, held, multiple):
    serving = np.tile(np.array(held), HOURS // 24)
    fleet, schedules = smallest_fleet(many, serving, holding=Holding(multiple))
    total = serving.copy()
    for schedule in schedules:
        assert schedule.in_time
        assert schedule.used.sum() == pytest.approx(schedule.job.gpu_hours)
        total[schedule.hours] += schedule.gpus
    assert fleet % multiple == 0
    assert total.max() <= fleet


def test_a_run_ends_within_the_hour_in_which_its_work_is_done():
    # 24 · 8 = 192 GPU-hours on 10 GPUs: 19.2 hours.
    schedule = harvest(job(), np.full(HOURS, 10), stop=HOURS)
    assert schedule.finish == pytest.approx(19.2)
    assert schedule.gpus.tolist() == [10] * 20
    assert schedule.used[-1] == pytest.approx(2)


def test_a_run_that_runs_out_of_time_says_so():
    schedule = harvest(job(hours=1000.0), np.full(HOURS, 8), stop=HOURS)
    assert schedule.finish is None
    assert not schedule.in_time
    assert schedule.used.sum() == 8 * HOURS


def test_a_run_alone_holds_its_own_gpus_for_its_own_hours():
    schedule = alone(job(hours=2.5, start=24.0))
    assert (schedule.first, schedule.finish) == (24, 26.5)
    assert schedule.gpus.tolist() == [8, 8, 8]
    assert schedule.used.tolist() == [8, 8, 4]


def test_the_next_run_starts_in_the_hour_after_the_first_one_ends():
    # 192 GPU-hours on 8 free GPUs take 24 h each; the second is due first and goes first.
    first, second = job(due=240.0), job(due=100.0)
    found = dict(harvest_in_turn([first, second], np.full(HOURS, 8), stop=HOURS))
    assert (found[1].finish, found[0].finish) == (24.0, 48.0)


def test_the_fewest_gpus_come_from_the_work_where_nothing_is_lost():
    # 8 · 24 GPU-hours within 48 hours beside 5 GPUs of serving: 4 + 5 = 9 GPUs.
    fleet, _ = smallest_fleet([job(due=48.0)], np.full(HOURS, 5), holding=Holding(1))
    assert fleet == 9
