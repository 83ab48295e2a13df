"""The best day against every possible day, and redo counted hour by hour."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.hours.preemption import best_days, distinct_days, redo_by_hour

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
DAYS = st.lists(st.integers(0, 3), min_size=4, max_size=5)
REDO_HOURS = st.sampled_from((0.0, 0.25, 0.583, 1.0, 1.4, 2.5, 4.0, 7.0))


def progress_a_day(day, redo_hours, *, elastic):
    """Copy-hours of progress on the last of many such days."""
    taken = np.tile(np.array(day), 12)
    redo, _ = redo_by_hour(taken, hours_per_day=len(day), redo_hours=redo_hours, elastic=elastic)
    return float((taken - redo)[-len(day) * 6 :].sum()) / 6


@LAWS
@given(available=DAYS, redo_hours=REDO_HOURS, elastic=st.booleans())
def test_no_other_day_makes_more_progress(available, redo_hours, elastic):
    (taken,) = best_days(np.array([available]), redo_hours=redo_hours, elastic=elastic)
    assert (taken <= available).all()
    best = max(
        progress_a_day(day, redo_hours, elastic=elastic)
        for day in product(*(range(count + 1) for count in available))
    )
    assert progress_a_day(taken, redo_hours, elastic=elastic) == pytest.approx(best, abs=1e-6)


@LAWS
@given(
    available=st.lists(st.integers(0, 40), min_size=24, max_size=24),
    redo_hours=REDO_HOURS,
    elastic=st.booleans(),
    turn=st.integers(1, 23),
)
def test_a_day_turned_round_makes_the_same_progress(available, redo_hours, elastic, turn):
    days = np.array([available, np.roll(available, turn)])
    taken = best_days(days, redo_hours=redo_hours, elastic=elastic)
    one, other = (progress_a_day(day, redo_hours, elastic=elastic) for day in taken)
    assert one == pytest.approx(other, abs=1e-6)


@LAWS
@given(
    available=st.lists(st.integers(0, 40), min_size=24, max_size=24),
    more=st.lists(st.integers(0, 5), min_size=24, max_size=24),
    redo_hours=REDO_HOURS,
    elastic=st.booleans(),
)
def test_more_copies_never_make_less_progress(available, more, redo_hours, elastic):
    days = np.array([available, np.add(available, more)])
    taken = best_days(days, redo_hours=redo_hours, elastic=elastic)
    less, most = (progress_a_day(day, redo_hours, elastic=elastic) for day in taken)
    assert most >= less - 1e-6


def test_a_lock_step_run_redoes_on_all_its_copies_in_the_hours_after_a_fall():
    # 4, 4, 2, 2 with 1.5 h: the fall to 2 costs 2 copies the whole hour and half of the next.
    redo, returned = redo_by_hour(
        np.array([4, 4, 2, 2]), hours_per_day=4, redo_hours=1.5, elastic=False
    )
    assert redo.tolist() == [0, 0, 2, 1]
    assert returned.tolist() == [0, 0, 2, 0]


def test_a_run_that_was_stopped_redoes_when_it_runs_again():
    # Stopped for an hour; the day before was like it, so the first hour is the hour after a stop.
    redo, returned = redo_by_hour(
        np.array([4, 4, 4, 0]), hours_per_day=4, redo_hours=0.5, elastic=False
    )
    assert redo.tolist() == [2, 0, 0, 0]
    assert returned.tolist() == [0, 0, 0, 4]


def test_an_elastic_run_redoes_what_the_copies_it_gave_back_had_lost():
    # 3 copies lose 1.5 copy-hours each at hour 2: 4.5, which 2 copies take 2.25 hours to redo.
    redo, returned = redo_by_hour(
        np.array([5, 5, 2, 2, 2, 5]), hours_per_day=6, redo_hours=1.5, elastic=True
    )
    assert redo.tolist() == [0, 0, 2, 2, 0.5, 0]
    assert returned.tolist() == [0, 0, 3, 0, 0, 0]


def test_an_elastic_run_that_gave_back_in_the_last_hour_redoes_in_the_first():
    # 3 copies lose 1.5 copy-hours each at the last hour: 4.5 less the 2 of that hour are left.
    redo, _ = redo_by_hour(
        np.array([2, 5, 5, 5, 5, 2]), hours_per_day=6, redo_hours=1.5, elastic=True
    )
    assert redo.tolist() == [2, 0.5, 0, 0, 0, 2]


def test_a_gain_of_nothing_is_declined():
    # One copy more for one hour, and 0.5 h on 2 copies: 1 − 1 = 0.
    available = np.array([[3, 2, 2, 2]])
    assert best_days(available, redo_hours=0.5, elastic=False).tolist() == [[2, 2, 2, 2]]


def test_days_that_are_alike_are_kept_once():
    rows, row_of_day = distinct_days(np.array([1, 2, 3, 4, 1, 2]), hours_per_day=2)
    assert rows.tolist() == [[1, 2], [3, 4]]
    assert row_of_day.tolist() == [0, 1, 0]
