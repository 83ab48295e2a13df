"""Runs in a fleet whose size is given, and what would let them end where it does not."""

from collections.abc import Sequence
from dataclasses import replace

from service.core.hours.harvest import Job, Schedule, harvest_in_turn, side_by_side
from service.core.hours.holding import Holding
from service.core.hours.timeline import Counts


def schedules_in(size: int, jobs: Sequence[Job], held: Counts) -> list[Schedule]:
    """Hours of all runs in a fleet of a given size; side by side where only that ends in time."""
    found = dict(harvest_in_turn(jobs, size - held, stop=held.size))
    schedules = [found[number] for number in range(len(jobs))]
    if all(schedule.in_time for schedule in schedules) or not can_be_alone(jobs, held):
        return schedules
    enough, apart = side_by_side(jobs, held)
    return apart if enough <= size else schedules


def can_be_alone(jobs: Sequence[Job], held: Counts) -> bool:
    """True when each run ends within the horizon on GPUs of its own."""
    return all(job.start + job.own_hours <= held.size for job in jobs)


def smallest_size(jobs: Sequence[Job], held: Counts, *, holding: Holding) -> int | None:
    """Fewest GPUs, added ones in whole instances, in which no run is late with all it can take.

    None when one is late even where every run has as many copies as its batch can feed.
    """

    def is_enough(size: int) -> bool:
        return not any(schedule.is_late for schedule in schedules_in(size, jobs, held))

    most = int(held.max()) + sum(job.most_copies * job.copy_gpu_count for job in jobs)
    enough = int(holding.steps(most))
    if not is_enough(int(holding.gpu_count(enough))):
        return None
    too_few = int(holding.steps(int(held.max()))) - 1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if is_enough(int(holding.gpu_count(middle))):
            enough = middle
        else:
            too_few = middle
    return int(holding.gpu_count(enough))


def shortened(job: Job, hour_count: int) -> Job:
    """A run with as much work as it can do on GPUs of its own before the horizon ends."""
    available = hour_count - job.start
    if job.own_hours <= available:
        return job
    return replace(job, own_hours=available, due=float(hour_count))
