"""The smallest number of GPUs on which a run ends in time, or what would have to change."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from math import ceil

from service.core.estimates import Infeasibility
from service.core.formulas import training_time
from service.core.formulas.calendar import midnight
from service.core.run.case import RunCase
from service.core.run.choice import Choice, choose, rate_of
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_COUNT

MOMENT_H = 1e-6
"""A run ends before midnight, not at it: the next day's date would be a day late. [h]"""
GROWTH = 1.05
"""Step between GPU counts that are sampled for the fastest one when none is fast enough."""
SAMPLES = 24
"""Legal GPU counts that are sampled for it where each asks for a search over layouts."""
MAX_REFUSALS = 64
"""Counts refused in a row after which the search for one that fits is given up."""


def count_for_deadline(case: RunCase, start: datetime, finish_date: date) -> Choice | Infeasibility:
    """The smallest usable GPU count on which a run ends by the end of a day.

    Speed and goodput fall with the number of GPUs, so every count is judged by its own hours.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    end = midnight(finish_date) + timedelta(days=1)
    available = (end - start).total_seconds() / SECONDS_PER_HOUR
    best_rate = _best_rate(case)
    refused = _refused_at_any_count(case)
    if refused is not None:
        return refused
    refusals: list[Infeasibility] = []
    late: list[tuple[float, Choice]] = []
    for count in _counts(case, available, best_rate) if available > 0 else ():
        if len(refusals) == MAX_REFUSALS:
            break
        if _hours(case, Choice(count, None, best_rate)) > available - MOMENT_H:
            continue
        found = choose(case, count)
        if isinstance(found, Infeasibility):
            refusals.append(found)
            continue
        hours = _hours(case, found)
        if hours <= available - MOMENT_H:
            return found
        late.append((hours, found))
    if refusals and not late:
        return refusals[-1]
    return _too_late(case, late + _fastest(case), start, finish_date, available)


def _refused_at_any_count(case: RunCase) -> Infeasibility | None:
    """Why no number of GPUs will do: what does not fit spread over the most fits on none fewer."""
    if case.layouts is None:
        return None
    counts = _usable_counts(case)
    found = choose(case, counts[-1]) if counts else None
    memory = isinstance(found, Infeasibility) and found.code == "memory"
    return found if isinstance(found, Infeasibility) and memory else None


def _usable_counts(case: RunCase) -> list[int]:
    """Legal GPU counts in whole multiples of what is rented, ascending."""
    if case.layouts is None:
        return []
    legal = case.layouts.rules.usable_gpu_counts(case.layouts.degrees)
    return [int(count) for count in legal if count % case.gpu_multiple == 0]


def _best_rate(case: RunCase) -> float:
    """Speed that no layout of the run exceeds. [token/s]"""
    if case.run.speed.kind == "estimated" and case.speed is not None:
        return case.speed.ceiling_rate(case.recorder.off())
    return float(rate_of(case, None, case.recorder.off())[0])


def _hours(case: RunCase, choice: Choice) -> float:
    """Hours from start to finish, infinite when the run never ends. [h]"""
    return case.failures.typical_hours(case.run, rate=choice.rate, gpu_count=choice.gpu_count)


def _least_count(case: RunCase, available: float, best_rate: float) -> int:
    """GPUs that would do without failures, at the best speed. [count]"""
    one = training_time.training_steady_hours(
        training_tokens=case.run.training_tokens,
        tokens_per_s_per_gpu=best_rate,
        gpu_count=1,
        run_multiplier=case.run.run_multiplier,
    )
    needed = one / (available * case.failures.other_fraction.value)
    return max(1, ceil(min(float(MAX_COUNT), float(needed) * (1 - 1e-12))))


def _whole(count: float, multiple: int) -> int:
    return ceil(count / multiple) * multiple


def _counts(case: RunCase, available: float, best_rate: float) -> Iterator[int]:
    """GPU counts worth judging, ascending: legal ones, in whole multiples of what is rented."""
    least = _least_count(case, available, best_rate)
    if case.layouts is not None:
        yield from (count for count in _usable_counts(case) if count >= least)
        return
    count = _whole(least, case.gpu_multiple)
    while count <= MAX_COUNT:
        yield count
        hours = _hours(case, Choice(count, None, best_rate))
        if hours == float("inf"):
            return
        # GPU-hours grow with the count, so fewer GPUs than this cannot do.
        count = max(count + case.gpu_multiple, _whole(count * hours / available, case.gpu_multiple))


def _fastest(case: RunCase) -> list[tuple[float, Choice]]:
    """Hours of counts over the whole range, one of which comes close to the fastest."""
    counts = _usable_counts(case)
    if case.layouts is None:
        count = case.gpu_multiple
        while count <= MAX_COUNT:
            counts.append(count)
            count = _whole(count * GROWTH + 1, case.gpu_multiple)
    elif len(counts) > SAMPLES:
        steps = [round(len(counts) ** (index / (SAMPLES - 1))) - 1 for index in range(SAMPLES)]
        # Powers of two divide batches and layers best, so the fastest is often one of them.
        doubled = [count for count in counts if (count & (count - 1)) == 0]
        counts = sorted({counts[step] for step in steps} | set(doubled))
    choices = (choose(case, count) for count in counts)
    return [
        (_hours(case, found), found) for found in choices if not isinstance(found, Infeasibility)
    ]


def _too_late(
    case: RunCase,
    late: list[tuple[float, Choice]],
    start: datetime,
    finish_date: date,
    available: float,
) -> Infeasibility:
    """By how much the fastest count misses the date, and which date or tokens it could meet."""
    limit = f"end of {finish_date}"
    if not late or min(late, key=lambda item: item[0])[0] == float("inf"):
        fix = "no legal GPU count ends the run at all: give reliability with fewer or shorter stops"
        return case.refusal("deadline", limit, fix, available=max(0.0, available), unit="h")
    hours, choice = min(late, key=lambda item: item[0])
    date_that_works = (start + timedelta(hours=min(hours, 8.7e6))).date()
    fixes = [f"finish_date {date_that_works} on {choice.gpu_count} GPUs"]
    if available > 0:
        tokens = int(case.run.training_tokens * (available - MOMENT_H) / hours)
        if tokens > 0:
            fixes.append(f"training_tokens {tokens:,} by {finish_date}")
    return case.refusal(
        "deadline", limit, " or ".join(fixes), needed=hours, available=max(0.0, available), unit="h"
    )
