"""GPUs for a date, tokens for GPUs and a date or an amount; or what would have to change."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from math import ceil

from service.core.costs.spending import Spending
from service.core.estimates import Infeasibility
from service.core.failures.fixes import fixes as ways_to_end
from service.core.formulas import training_time
from service.core.formulas.calendar import midnight
from service.core.run.case import RunCase
from service.core.run.changes import usable_counts
from service.core.run.choice import Choice, choose, least_gpu_count
from service.core.run.rates import rate_of
from service.core.scenarios.training_run import TokensSizing
from service.core.sizing.search import (
    MOMENT_H,
    evenly_dividing,
    fitting,
    hours_of,
    in_time,
    quickest,
    sampled,
    smaller_in_time,
    smallest_in_time,
)
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_COUNT, MAX_TOKENS

GROWTH = 1.05
"""Step between GPU counts that are sampled for the fastest one when none is fast enough."""
SLOW_GROWTH = 1.005
"""The same where more GPUs may take fewer GPU-hours, so that none can be passed over by its own."""
LESS = 0.999
"""Tokens that are named for an amount are this share of what it pays in proportion: prices move."""
LAST_DAY = date(2100, 12, 30)
"""Last day on which a run may end."""
NOTHING_HELPS = "a faster GPU, a cheaper one or an earlier start: no other amount or date does"


def count_for_deadline(case: RunCase, start: datetime, finish_date: date) -> Choice | Infeasibility:
    """The smallest usable GPU count on which a run ends by the end of a day.

    Speed and goodput fall with the number of GPUs, so every count is judged by its own hours.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    available = hours_until(finish_date, start)
    best_rate = _best_rate(case)
    refused = refused_at_any_count(case)
    if refused is not None:
        return refused
    found = _in_time(case, available, best_rate) if available > 0 else None
    if found is not None:
        return _as_chosen(case, found, available)
    counts = solvable_counts(case)
    soonest = quickest(case, _likely_quickest(case, counts), best_rate)
    if soonest is None:
        why = choose(case, counts[-1] if counts else case.gpu_multiple)
        return why if isinstance(why, Infeasibility) else no_count(case)
    if available > 0 and in_time(case, soonest, available):
        smaller = smaller_in_time(case, counts, available, first=soonest, best_rate=soonest.rate)
        return _as_chosen(case, smaller, available)
    return _too_late(case, soonest, start, finish_date, counts)


def _in_time(case: RunCase, available: float, best_rate: float) -> Choice | None:
    """The smallest usable count on which a run ends within some hours, None where none is found."""
    least = _least_count(case, available, best_rate)
    if case.layouts is not None:
        counts = [count for count in solvable_counts(case) if count >= least]
        return smallest_in_time(case, counts, available, best_rate)
    count = _whole(max(least, least_gpu_count(case)), case.gpu_multiple)
    while count <= MAX_COUNT:
        found = fitting(case, count)
        if found is not None and in_time(case, found, available):
            return found
        hours = hours_of(case, Choice(count, None, best_rate))
        if case.failures.more_nodes_save_faster:
            count = _whole(count * SLOW_GROWTH + 1, case.gpu_multiple)
            continue
        if hours == float("inf"):
            return None
        # GPU-hours grow with the count, so fewer GPUs than this cannot do.
        count = max(count + case.gpu_multiple, _whole(count * hours / available, case.gpu_multiple))
    return None


def _likely_quickest(case: RunCase, counts: list[int]) -> list[int]:
    """Counts one of which ends a run about as soon as any."""
    if case.layouts is None:
        return sampled(counts)
    even = evenly_dividing(counts, case.layouts.rules.batch_sequences)
    return sorted({*sampled(counts), *even})


def _as_chosen(case: RunCase, found: Choice, available: float) -> Choice:
    """The same count with the layout that is chosen among equals, and what its speed rests on."""
    chosen = choose(case, found.gpu_count)
    is_met = isinstance(chosen, Choice) and in_time(case, chosen, available)
    return chosen if is_met and isinstance(chosen, Choice) else found


def _room_for(
    hours: float, start: datetime, sizing: TokensSizing, spending: Spending | None
) -> str:
    """The limits of a sizing that are too narrow for so many hours, each as wide as it must be."""
    hours = hours * (1 + 1e-6) + MOMENT_H
    wider = []
    if sizing.finish_date is not None and hours_until(sizing.finish_date, start) < hours:
        day = day_after(hours, start)
        wider.append(f"finish_date {day}" if day else "more GPUs")
    if sizing.amount is not None and spending is not None:
        cost = spending.amount(sizing.gpu_count, start, hours)
        if cost > float(sizing.amount):
            wider.append(f"amount {ceil(cost)}")
    return " and ".join(wider)


def tokens_for(
    case: RunCase, start: datetime, sizing: TokensSizing, spending: Spending | None
) -> tuple[Choice, int] | Infeasibility:
    """Tokens that so many GPUs train on by a day or for an amount, whichever is reached first.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    found = choose(case, sizing.gpu_count)
    if isinstance(found, Infeasibility):
        return found
    limits = []
    if sizing.finish_date is not None:
        limits.append((hours_until(sizing.finish_date, start), f"end of {sizing.finish_date}"))
    if sizing.amount is not None and spending is not None:
        lasting = spending.hours(sizing.gpu_count, start, float(sizing.amount))
        limits.append((lasting, f"amount of {sizing.amount}"))
    available, limit = min(limits)
    whole = hours_of(case, found)
    if whole == float("inf"):
        return found, case.run.tokens
    tokens = int(min(MAX_TOKENS, case.run.tokens * max(0.0, available - MOMENT_H) / whole))
    if tokens >= case.run.global_batch_tokens:
        return found, min(tokens, case.run.tokens)
    one_step = whole * case.run.global_batch_tokens / case.run.tokens
    return case.refusal(
        "deadline" if limit.startswith("end") else "budget",
        limit,
        f"{_room_for(one_step, start, sizing, spending)}: one step does not fit",
        needed=one_step,
        available=max(0.0, available),
        unit="h",
    )


def no_count(case: RunCase) -> Infeasibility:
    """No number of GPUs has a layout that is legal and fits."""
    fix = "another global_batch_tokens, or a layout of auto: no GPU count is legal and fits"
    return case.refusal("layout", "a legal GPU count in whole instances", fix)


def hours_until(finish_date: date, start: datetime) -> float:
    """Hours from a moment to the end of a day. [h]"""
    end = midnight(min(finish_date, LAST_DAY)) + timedelta(days=1)
    return (end - start).total_seconds() / SECONDS_PER_HOUR


def refused_at_any_count(case: RunCase) -> Infeasibility | None:
    """Why no number of GPUs will do: what does not fit spread over the most fits on none fewer."""
    if case.layouts is None:
        return None
    counts = solvable_counts(case)
    found = choose(case, counts[-1]) if counts else None
    memory = isinstance(found, Infeasibility) and found.code == "memory"
    return found if isinstance(found, Infeasibility) and memory else None


def solvable_counts(case: RunCase) -> list[int]:
    """GPU counts that may be solved for, in whole multiples of what is rented, ascending.

    Where no legal count is such a multiple, all legal ones: the last instance is then not full.
    Without layers known every count is legal, and some over the whole range stand for all.
    """
    if case.layouts is not None:
        return usable_counts(case, case.layouts, case.layouts.degrees)
    count, counts = _whole(least_gpu_count(case), case.gpu_multiple), []
    while count <= MAX_COUNT:
        counts.append(count)
        count = _whole(count * GROWTH + 1, case.gpu_multiple)
    return counts


def _best_rate(case: RunCase) -> float:
    """Speed that no layout of the run exceeds. [token/s]"""
    if case.run.speed.kind == "estimated" and case.speed is not None:
        return case.speed.ceiling_rate(case.recorder.off())
    return float(rate_of(case, None, case.recorder.off())[0])


def _least_count(case: RunCase, available: float, best_rate: float) -> int:
    """GPUs that would do without failures, at the best speed. [count]"""
    one = training_time.training_steady_hours(
        training_tokens=case.run.tokens,
        tokens_per_s_per_gpu=best_rate,
        gpu_count=1,
        run_multiplier=case.run.run_multiplier,
    )
    needed = one / (available * case.failures.other_fraction.value)
    return max(1, ceil(min(float(MAX_COUNT), float(needed) * (1 - 1e-12))))


def _whole(count: float, multiple: int) -> int:
    return ceil(count / multiple) * multiple


def with_tokens(case: RunCase, tokens: int) -> RunCase:
    """The same run of so many tokens."""
    return replace(case, run=case.run.model_copy(update={"training_tokens": tokens}))


def end_day(case: RunCase, choice: Choice, start: datetime) -> date | None:
    """Day on which a run ends on so many GPUs; None where no answer reaches so far."""
    return day_after(hours_of(case, choice) + MOMENT_H, start)


def day_after(hours: float, start: datetime) -> date | None:
    """Day on which so many hours have passed; None where no answer reaches so far."""
    if hours >= hours_until(LAST_DAY, start):
        return None
    return (start + timedelta(hours=hours)).date()


def _too_late(
    case: RunCase,
    soonest: Choice,
    start: datetime,
    finish_date: date,
    counts: list[int],
) -> Infeasibility:
    """By how much the fastest count misses the date, and which date or tokens it could meet."""
    available = hours_until(finish_date, start)
    limit, hours = f"end of {finish_date}", hours_of(case, soonest)
    if hours == float("inf"):
        fix = "no legal GPU count ends the run at all: give reliability with fewer or shorter stops"
        fitted = (fitting(case, count) for count in counts)
        least = next((choice.gpu_count for choice in fitted if choice), soonest.gpu_count)
        fix += f"; on {least:,} GPUs {ways_to_end(case.failures, least)}"
        return case.refusal("deadline", limit, fix, available=max(0.0, available), unit="h")
    fixes = []
    day = end_day(case, soonest, start)
    if day is not None:
        until, rate = hours_until(day, start), soonest.rate
        fewest = _in_time(case, until, _best_rate(case)) or smaller_in_time(
            case, counts, until, first=soonest, best_rate=rate
        )
        fixes.append(f"finish_date {day} on {fewest.gpu_count} GPUs")
    tokens = _tokens_in_time(case, soonest, available)
    if tokens is not None:
        fixes.append(f"training_tokens {tokens:,} by {finish_date}")
    fix = " or ".join(fixes) or NOTHING_HELPS
    return case.refusal(
        "deadline", limit, fix, needed=hours, available=max(0.0, available), unit="h"
    )


def _tokens_in_time(case: RunCase, choice: Choice, available: float) -> int | None:
    """Most tokens that so many GPUs train on within some hours; None where not even one step is."""
    if available <= MOMENT_H:
        return None
    in_proportion = case.run.tokens * (available - MOMENT_H) / hours_of(case, choice)
    for share in (1.0, LESS):
        tokens = max(case.run.global_batch_tokens, int(in_proportion * share))
        if in_time(with_tokens(case, tokens), choice, available):
            return tokens
    return None
