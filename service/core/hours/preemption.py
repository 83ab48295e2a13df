"""Which copies of a run to take, hour by hour, where serving takes GPUs back every day.

Each time a run must give GPUs back it loses redo: half a checkpoint interval and a restart. A
lock-step run loses it on all GPUs that it has then, an elastic one on those it gives back. Taking
less than there is can therefore make more progress: a short gap is not worth its redo, and one deep
step down in the morning loses less than ten small ones.

Days are cyclic: the hour before hour 0 is the last hour of such a day. Counts are whole copies of
the model; an hour is one hour long, so copies of an hour are also copy-hours.
"""

from math import ceil

import numpy as np

from service.core.hours.timeline import Amounts, Counts

DISLIKE = 1e-9
"""Hours by which a preemption counts as longer than it is, so that a gain of nothing is left."""


def best_days(available: Counts, *, redo_hours: float, elastic: bool) -> Counts:
    """Copies to take in each hour of each day so that the day makes the most progress.

    Args:
        available: Copies that could be taken, one row for each cyclic day.
        redo_hours: Hours that one preemption costs.
        elastic: True when only the copies that are given back lose them.

    Returns:
        Copies to take; never more than are available.
    """
    if redo_hours <= 0 or not available.size:
        return available
    if elastic:
        return _best_elastic_days(available, redo_hours)
    return _best_lock_step_days(available, redo_hours)


def _best_elastic_days(available: Counts, redo_hours: float) -> Counts:
    """Take each copy exactly in those gaps that are longer than its redo.

    That is a morphological opening: the least of every window that is just longer than the redo,
    then for each hour the best of the windows that it lies in.
    """
    hour_count = available.shape[1]
    width = min(hour_count, int(redo_hours) + 1)
    hours = np.arange(hour_count)[:, None]
    ahead = (hours + np.arange(width)) % hour_count
    behind = (hours - np.arange(width)) % hour_count
    return np.asarray(available[:, ahead].min(axis=2)[:, behind].max(axis=2))


class _LockStep:
    """States of a lock-step run and what an hour in each of them is worth.

    A state is a level (copies, one of the day's own counts) and how many hours have run since the
    last preemption, up to the number after which its redo is over. At level 0 that clock stands.
    No day is better for holding fewer copies than its emptiest hour has: the same steps down on
    top of that floor lose no more time. So a day starts and ends at its emptiest hour.
    """

    def __init__(self, available: Counts, redo_hours: float) -> None:
        hour_count = available.shape[1]
        emptiest = available.argmin(axis=1)[:, None]
        self.order = (emptiest + 1 + np.arange(hour_count)) % hour_count
        self.available = np.take_along_axis(available, self.order, axis=1)
        self.levels = np.sort(available, axis=1)
        self.paused = self.levels == 0
        clock = np.arange(min(ceil(redo_hours), hour_count) + 1)
        self.redo_left = np.maximum(redo_hours - clock, 0.0)
        self.redo_left[-1] = 0.0
        lost = np.minimum(self.redo_left, 1.0)
        lost[0] += DISLIKE
        self.next_clock = np.minimum(clock + 1, clock[-1])
        self.worth = self.levels[:, None, :] * (1 - lost)[None, :, None]

    def at_start(self, clock: int) -> Amounts:
        """Nothing gained yet, at the emptiest hour."""
        day_count, hour_count = self.levels.shape
        value = np.full((day_count, self.next_clock.size, hour_count), -np.inf)
        value[np.arange(day_count), self.clocks(clock), 0] = 0.0
        return value

    def clocks(self, clock: int) -> Counts:
        """Clock of each day at its emptiest hour; it stands at 0 in a day that is empty then."""
        return np.where(self.paused[:, 0], 0, clock)

    def after_hour(self, value: Amounts, hour: int) -> Amounts:
        """Most progress with which each state can be reached after one more hour."""
        begun = np.maximum.accumulate(value, axis=2)
        from_above = np.maximum.accumulate(value.max(axis=1)[:, ::-1], axis=1)[:, ::-1]
        begun[:, 0, :-1] = np.maximum(begun[:, 0, :-1], from_above[:, 1:])
        ran = begun + self.worth
        result = np.full_like(value, -np.inf)
        result[:, 1:] = ran[:, :-1]
        result[:, -1] = np.maximum(result[:, -1], ran[:, -1])
        result = np.where(self.paused[:, None, :], begun, result)
        allowed = self.levels <= self.available[:, hour, None]
        return np.where(allowed[:, None, :], result, -np.inf)

    def at_end(self, value: Amounts, clock: int) -> tuple[Amounts, Counts]:
        """Progress and level of the best day that ends on the clock it began with."""
        clocks = self.clocks(clock)
        ends = value[np.arange(clocks.size), clocks]
        return ends.max(axis=1), ends.argmax(axis=1)

    def before_hour(self, value: Amounts, clock: Counts, level: Counts) -> tuple[Counts, Counts]:
        """State from which the best way to a state came, given the values before the hour."""
        day = np.arange(clock.size)
        paused = self.paused[day, level][:, None]
        clocks = np.arange(self.next_clock.size)[None, :]
        kept = np.where(paused, clocks, self.next_clock[None, :]) == clock[:, None]
        fell = np.where(paused[:, 0], 0, self.next_clock[0]) == clock
        from_below = np.arange(self.levels.shape[1])[None, :] <= level[:, None]
        worth = self.worth[day, :, level]
        risen = np.where(kept, worth, -np.inf)[:, :, None] + value
        fallen = np.where(fell, worth[:, 0], -np.inf)[:, None, None] + value
        came = np.where(from_below[:, None, :], risen, fallen)
        best = came.reshape(day.size, -1).argmax(axis=1)
        return best // came.shape[2], best % came.shape[2]


def _best_lock_step_days(available: Counts, redo_hours: float) -> Counts:
    """Best of the days that end on the clock they began with, so that they can follow each other.

    A day gains the more, the later its clock begins. So the latest clock is tried first, and a day
    is settled once its best with any end is no better than what was found.
    """
    hour_count = available.shape[1]
    taken = np.repeat(available.min(axis=1, keepdims=True), hour_count, axis=1)
    most = taken.sum(axis=1).astype(np.float64)
    if redo_hours >= hour_count:
        return taken
    unsettled = np.arange(len(available))
    for clock in range(ceil(redo_hours), 0, -1):
        progress, bound, days = _best_days_from(available[unsettled], redo_hours, clock)
        better = progress > most[unsettled]
        taken[unsettled[better]] = days[better]
        most[unsettled] = np.maximum(most[unsettled], progress)
        unsettled = unsettled[bound > most[unsettled]]
        if not unsettled.size:
            break
    return taken


def _best_days_from(
    available: Counts, redo_hours: float, clock: int
) -> tuple[Amounts, Amounts, Counts]:
    """Dynamic programme over the hours of a day, from its emptiest hour round to the same.

    Returns:
        Progress of the best days that end on the clock they began with, of the best days with any
        end, and the copies taken by the former.
    """
    states = _LockStep(available, redo_hours)
    values = [states.at_start(clock)]
    for hour in range(available.shape[1]):
        values.append(states.after_hour(values[-1], hour))
    progress, level = states.at_end(values[-1], clock)
    clocks = states.clocks(clock)
    taken = np.empty_like(available)
    day = np.arange(len(available))
    for hour in range(available.shape[1] - 1, -1, -1):
        taken[day, states.order[:, hour]] = states.levels[day, level]
        clocks, level = states.before_hour(values[hour], clocks, level)
    return progress, values[-1].max(axis=(1, 2)), taken


def redo_by_hour(
    taken: Counts, *, hours_per_day: int, redo_hours: float, elastic: bool
) -> tuple[Amounts, Counts]:
    """Redo of each hour in copy-hours, and the copies given back at its start.

    The day before the first is taken to be like it. A lock-step run redoes in the first hours that
    it runs after a preemption; an elastic one makes progress again once it has run as much as was
    lost.
    """
    before = taken[:hours_per_day]
    held = np.concatenate((before, taken))
    returned = np.maximum(np.concatenate((held[:1], held[:-1])) - held, 0)
    redo: Amounts
    if elastic:
        gained = np.cumsum(held - redo_hours * returned)
        furthest = np.maximum.accumulate(np.concatenate(([0.0], gained)))
        redo = np.maximum(held - np.diff(furthest), 0.0)[before.size :]
    else:
        ran = np.cumsum(held > 0)
        since = np.where(returned > 0, ran - (held > 0), np.iinfo(np.int64).min // 2)
        waited = ran - 1 - np.maximum.accumulate(since)
        share = np.clip(redo_hours - waited, 0.0, 1.0)
        redo = held[before.size :] * share[before.size :]
    return redo, returned[before.size :]


def distinct_days(hours: Counts, *, hours_per_day: int) -> tuple[Counts, Counts]:
    """Rows of the days that differ, and for each day the number of its row."""
    days = hours.reshape(-1, hours_per_day)
    numbers: dict[bytes, int] = {}
    row_of_day = [numbers.setdefault(day.tobytes(), len(numbers)) for day in days]
    first = {row: day for day, row in reversed(list(enumerate(row_of_day)))}
    return days[[first[row] for row in range(len(numbers))]], np.array(row_of_day, dtype=np.int64)
