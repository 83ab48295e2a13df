"""Runs on the hours that serving leaves: what each makes of them, and the fewest GPUs that do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from service.core.formulas.demand import FLOAT_NOISE
from service.core.hours.holding import Holding
from service.core.hours.preemption import best_days, distinct_days, redo_by_hour
from service.core.hours.timeline import Amounts, Counts
from service.core.units import HOURS_PER_DAY

HOUR_NOISE = 1e-6
"""Hours by which an end may miss its date: float noise, not lateness."""


@dataclass(frozen=True)
class Job:
    """A run as it shares a pool: what it needs, what it can take, by when it must be done."""

    start: float
    """Hour of the horizon from which it may run."""
    due: float
    """Hour by which it ends: its date, or when it would end on GPUs of its own."""
    own_gpu_count: int
    """GPUs that it holds when it has them to itself."""
    own_hours: float
    """Hours that it takes then."""
    copy_gpu_count: int
    """GPUs of one whole copy of the model."""
    least_copies: int
    """Below this its sharded state no longer fits, and it stands."""
    most_copies: int
    """Above this its batch has no sequence left for a copy."""
    redo_hours: float
    """Hours that a preemption costs."""
    elastic: bool
    """True when only the GPUs that are given back lose them."""
    has_date: bool = False
    """True when `due` was asked for, and not only follows from its hours alone."""
    priority: int = 0
    """Runs of a higher one take their GPUs first."""
    after: int | None = None
    """Number of the job that it follows: it starts when that ends, whenever `start` would be."""

    @property
    def gpu_hours(self) -> float:
        """Work to be done. [gpu_hour]"""
        return self.own_gpu_count * self.own_hours


@dataclass(frozen=True)
class Schedule:
    """Hours of one run: from its first until it is done or time is up."""

    job: Job
    first: int
    """Its first hour in the horizon."""
    gpus: Counts
    """GPUs held in each hour; in the last one until it ends."""
    used: Amounts
    """GPU-hours of progress."""
    redo: Amounts
    """GPU-hours of redo."""
    returned: Counts
    """GPUs given back at the start of each hour."""
    finish: float | None
    """Hour at which it ends; None when time was up before."""

    @property
    def hours(self) -> slice:
        """Its hours in the horizon."""
        return slice(self.first, self.first + self.gpus.size)

    @property
    def begin(self) -> float:
        """Moment at which it begins: with an hour, or within one as another run ends."""
        return max(float(self.first), self.job.start)

    def holds_at(self, moment: float) -> bool:
        """True when it runs on after a moment."""
        end = self.hours.stop if self.finish is None else self.finish
        return self.begin <= moment and end > moment + HOUR_NOISE

    @property
    def in_time(self) -> bool:
        """True when it ends by its date."""
        return self.finish is not None and self.finish <= self.job.due + HOUR_NOISE

    @property
    def is_late(self) -> bool:
        """True when it outlives the horizon, or a date that was asked for."""
        return self.finish is None or (self.job.has_date and not self.in_time)

    def done_when_due(self, hour_count: int) -> float:
        """Progress by the date of the run, or by the end of the horizon. [gpu_hour]"""
        due = hour_count if self.finish is None else int(self.job.due)
        return float(self.used[: due - self.first].sum())


def alone(job: Job) -> Schedule:
    """Run on GPUs of its own from start to end."""
    finish = job.start + job.own_hours
    hours = np.arange(int(job.start), ceil(finish))
    share = np.minimum(hours + 1, finish) - np.maximum(hours, job.start)
    gpus = np.full(hours.size, job.own_gpu_count, dtype=np.int64)
    return Schedule(
        job=job,
        first=int(job.start),
        gpus=gpus,
        used=gpus * share,
        redo=np.zeros(hours.size),
        returned=np.zeros(hours.size, dtype=np.int64),
        finish=finish,
    )


def harvest(job: Job, free: Counts, *, stop: int) -> Schedule:
    """Run on what is free, from its start until it is done or `stop`, taking what pays.

    Each day, from the hour of its start to the same hour, is planned as if all days were like it;
    what is lost between unlike days counts. Hours after the horizon are like those a day before.
    """
    start = ceil(job.start)
    hours = start + np.arange(-(-(stop - start) // HOURS_PER_DAY) * HOURS_PER_DAY)
    beyond = np.maximum(0, hours - free.size + HOURS_PER_DAY) // HOURS_PER_DAY
    copies = free[hours - beyond * HOURS_PER_DAY] // job.copy_gpu_count
    copies = np.minimum(copies, job.most_copies)
    copies[copies < job.least_copies] = 0
    days, row_of_day = distinct_days(copies, hours_per_day=HOURS_PER_DAY)
    taken = best_days(days, redo_hours=job.redo_hours, elastic=job.elastic)[row_of_day].ravel()
    redo, returned = redo_by_hour(
        taken, hours_per_day=HOURS_PER_DAY, redo_hours=job.redo_hours, elastic=job.elastic
    )
    inside = slice(0, free.size - start)
    return _until_done(job, start, taken[inside], redo[inside], returned[inside])


def _until_done(job: Job, first: int, taken: Counts, redo: Amounts, returned: Counts) -> Schedule:
    """Cut the hours of a run where its work is done; in the last hour redo comes first."""
    size = job.copy_gpu_count
    used = (taken - redo) * size
    gained = np.cumsum(used)
    last = int(np.searchsorted(gained, job.gpu_hours * (1 - FLOAT_NOISE)))
    finish = None
    if last < gained.size:
        used[last] = job.gpu_hours - (gained[last - 1] if last else 0.0)
        finish = first + last + float((redo[last] + used[last] / size) / taken[last])
    cut = slice(0, last + 1)
    return Schedule(
        job=job,
        first=first,
        gpus=taken[cut] * size,
        used=used[cut],
        redo=redo[cut] * size,
        returned=returned[cut] * size,
        finish=finish,
    )


def harvest_in_turn(
    jobs: Sequence[Job], free: Counts, *, stop: int | None = None
) -> Iterator[tuple[int, Schedule]]:
    """Run the job of highest priority on what is free, the next on what it leaves, and so on.

    Each runs until `stop`, or at most until it is due; one that follows another from its end on.

    Yields:
        The number of the job, and its hours.
    """
    left, ends = free.copy(), dict[int, float | None]()
    for number in _in_turn(jobs):
        job, last = jobs[number], ceil(jobs[number].due) if stop is None else stop
        start: float | None = job.start if job.after is None else ends[job.after]
        if start is None or ceil(start) >= last:
            schedule = _never_begun(job)
        else:
            schedule = harvest(replace(job, start=start), left, stop=last)
        ends[number] = schedule.finish
        yield number, schedule
        left[schedule.hours] -= schedule.gpus


def _in_turn(jobs: Sequence[Job]) -> list[int]:
    """Numbers of the jobs as they queue: by priority, then by date, then the largest gang first.

    A gang that does not fit leaves the hour to the next in the queue, which is why it may stand in
    front: what it cannot use is not lost. None stands before the one that it follows.
    """

    def place(number: int) -> tuple[int, float, int, int]:
        job = jobs[number]
        return -job.priority, job.due, -job.least_copies * job.copy_gpu_count, number

    order: list[int] = []
    left = sorted(range(len(jobs)), key=place)
    while left:
        number = next(n for n in left if jobs[n].after is None or jobs[n].after in order)
        order.append(number)
        left.remove(number)
    return order


def _never_begun(job: Job) -> Schedule:
    """A job that follows one which does not end in time."""
    nobody, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Schedule(
        job=job,
        first=0,
        gpus=nobody,
        used=nothing,
        redo=nothing,
        returned=nobody,
        finish=None,
    )


def harvest_in_time(jobs: Sequence[Job], free: Counts) -> list[Schedule] | None:
    """Hours of all jobs on what is free, or None when one of them would end after its date."""
    schedules: dict[int, Schedule] = {}
    for number, schedule in harvest_in_turn(jobs, free):
        if not schedule.in_time:
            return None
        schedules[number] = schedule
    return [schedules[number] for number in range(len(jobs))]


def side_by_side(jobs: Sequence[Job], held: Counts) -> tuple[int, list[Schedule]]:
    """GPUs that hold all runs as if each were alone, beside what serving holds. [count]"""
    schedules = [alone(job) for job in jobs]
    return int((held + most_at_once(schedules, held.size)).max()), schedules


def most_at_once(schedules: Sequence[Schedule], hour_count: int) -> Counts:
    """Most GPUs that runs hold together at any moment of each hour. [count]

    A run that follows another may begin within an hour, on the GPUs that this one leaves.
    """
    most = np.zeros(hour_count, dtype=np.int64)
    begun = [each for each in schedules if each.gpus.size]
    for each in begun:
        whole = ceil(each.begin)
        most[whole : each.hours.stop] += each.gpus[whole - each.first :]
    for begin in {each.begin for each in begun if each.begin > each.first}:
        held = [each.gpus[int(begin) - each.first] for each in begun if each.holds_at(begin)]
        most[int(begin)] = max(most[int(begin)], sum(held))
    return most


def smallest_fleet(
    jobs: Sequence[Job], held: Counts, *, holding: Holding
) -> tuple[int, list[Schedule]]:
    """Fewest GPUs, added ones in whole instances, that serve every hour and end runs by their date.

    Side by side all runs end in time whatever serving does, so sharing never needs more GPUs than
    that. Below it, the smallest fleet is found by bisection, down to where the work of the runs
    alone does not fit.
    """
    gpu_count, schedules = side_by_side(jobs, held)
    enough = int(holding.steps(gpu_count))
    too_few = min(enough, int(holding.steps(ceil(_least_gpu_count(jobs, held))))) - 1
    schedules = harvest_in_time(jobs, holding.gpu_count(enough) - held) or schedules
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        found = harvest_in_time(jobs, holding.gpu_count(middle) - held)
        if found is None:
            too_few = middle
        else:
            enough, schedules = middle, found
    return int(holding.gpu_count(enough)), schedules


def _least_gpu_count(jobs: Sequence[Job], held: Counts) -> float:
    """GPUs without which the hours up to some date cannot hold what serving and runs need."""
    least = float(held.max())
    held_until = np.concatenate(([0], np.cumsum(held)))
    for job in jobs:
        urgent = [other for other in jobs if other.due <= job.due]
        first = int(min(_earliest(jobs, other) for other in urgent))
        work = sum(other.gpu_hours for other in urgent)
        serving = float(held_until[int(job.due)] - held_until[first])
        span = max(job.due - first, HOUR_NOISE)  # a run may be over before a double tells
        least = max(least, (work + serving) / span * (1 - FLOAT_NOISE))
    return least


def _earliest(jobs: Sequence[Job], job: Job) -> float:
    """Hour before which a job cannot start, however soon those end that it follows. [h]"""
    while job.after is not None:
        job = jobs[job.after]
    return job.start
