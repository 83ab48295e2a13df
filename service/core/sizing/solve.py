"""GPUs for a date or a budget, tokens for GPUs and either; or what would have to change."""

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
from service.core.scenarios.training_run import BudgetSizing, TokensSizing
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
MOST_HOURS = 8.7e6
"""A thousand years: beyond it no date is named. [h]"""


def count_for_deadline(case: RunCase, start: datetime, finish_date: date) -> Choice | Infeasibility:
    """The smallest usable GPU count on which a run ends by the end of a day.

    Speed and goodput fall with the number of GPUs, so every count is judged by its own hours.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    available = _hours_until(finish_date, start)
    best_rate = _best_rate(case)
    refused = _refused_at_any_count(case)
    if refused is not None:
        return refused
    found = _in_time(case, available, best_rate) if available > 0 else None
    if found is not None:
        return _as_chosen(case, found, available)
    counts = _counts(case)
    soonest = quickest(case, _likely_quickest(case, counts), best_rate)
    if soonest is None:
        why = choose(case, counts[-1] if counts else case.gpu_multiple)
        return why if isinstance(why, Infeasibility) else _no_count(case)
    if available > 0 and in_time(case, soonest, available):
        smaller = smaller_in_time(case, counts, available, first=soonest, best_rate=soonest.rate)
        return _as_chosen(case, smaller, available)
    return _too_late(case, soonest, start, finish_date, available)


def _in_time(case: RunCase, available: float, best_rate: float) -> Choice | None:
    """The smallest usable count on which a run ends within some hours, None where none is found."""
    least = _least_count(case, available, best_rate)
    if case.layouts is not None:
        counts = [count for count in _counts(case) if count >= least]
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


def count_for_budget(
    case: RunCase,
    start: datetime,
    sizing: BudgetSizing,
    spending: Spending,
    *,
    until: datetime | None = None,
) -> Choice | Infeasibility:
    """GPUs on which a run costs at most an amount: those that end it soonest, or just in time.

    Without a date, GPU counts over the whole range are judged by their own hours: more GPUs end a
    run sooner and take more GPU-hours, since speed and goodput fall.

    Args:
        case: The run.
        start: When it starts.
        sizing: The amount, and the date where there is one.
        spending: What its GPUs cost.
        until: End of the horizon; counts that would outlive it are left out where others do not.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    budget = float(sizing.amount)
    later = None
    if sizing.finish_date is not None:
        found = count_for_deadline(case, start, sizing.finish_date)
        choices = [] if isinstance(found, Infeasibility) else [(hours_of(case, found), found)]
    else:
        found = _refused_at_any_count(case) or _no_count(case)
        choices = _ending(_sampled(case), start, until)
    if not choices and isinstance(found, Infeasibility):
        return found
    ending = [pair for pair in choices if pair[0] < float("inf")]
    if not ending:
        return choices[0][1]  # failures come faster than it recovers, on any count
    choices = ending
    costs = [spending.amount(choice.gpu_count, start, hours) for hours, choice in choices]
    affordable = [pair for pair, cost in zip(choices, costs, strict=True) if cost <= budget]
    if affordable:
        return min(affordable, key=lambda pair: pair[0])[1]
    if sizing.finish_date is not None:
        later = _affordable_date(case, start, budget, spending)
    cost, (_, cheapest) = min(zip(costs, choices, strict=True), key=lambda pair: pair[0])
    return _too_dear(case, budget, cost, cheapest, later)


def _sampled(case: RunCase) -> list[tuple[float, Choice]]:
    """Hours of counts over the range that a run can use.

    Without layers known, a node for each sequence of a batch is the most that helps.
    """
    batch = case.run.global_batch_tokens // case.run.sequence_length_tokens
    most = MAX_COUNT if case.layouts is not None else case.gpu_multiple * batch
    tried = (fitting(case, count) for count in sampled(_counts(case)) if count <= most)
    return [(hours_of(case, found), found) for found in tried if found is not None]


def _ending(
    choices: list[tuple[float, Choice]], start: datetime, until: datetime | None
) -> list[tuple[float, Choice]]:
    """Those that end by a moment; all where none does."""
    if until is None:
        return choices
    available = (until - start).total_seconds() / SECONDS_PER_HOUR
    return [pair for pair in choices if pair[0] <= available - MOMENT_H] or choices


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
        limits.append((_hours_until(sizing.finish_date, start), f"end of {sizing.finish_date}"))
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
        "a later finish_date, a larger amount or fewer global_batch_tokens: one step does not fit",
        needed=one_step,
        available=max(0.0, available),
        unit="h",
    )


def _no_count(case: RunCase) -> Infeasibility:
    """No number of GPUs has a layout that is legal and fits."""
    fix = "another global_batch_tokens, or a layout of auto: no GPU count is legal and fits"
    return case.refusal("layout", "a legal GPU count in whole instances", fix)


def _affordable_date(
    case: RunCase, start: datetime, budget: float, spending: Spending
) -> date | None:
    """The earliest day by which some GPU count ends the run within an amount."""
    ends = [
        hours
        for hours, choice in _sampled(case)
        if spending.amount(choice.gpu_count, start, hours) <= budget
    ]
    return (start + timedelta(hours=min(*ends, MOST_HOURS))).date() if ends else None


def _too_dear(
    case: RunCase, budget: float, cost: float, cheapest: Choice, later: date | None
) -> Infeasibility:
    """By how much the cheapest count exceeds an amount, and what would do."""
    fixes = [f"amount {ceil(cost)} on {cheapest.gpu_count} GPUs"]
    if later is not None:
        fixes.append(f"finish_date {later}, on fewer GPUs")
    fixes.append(f"training_tokens {int(case.run.tokens * budget / cost * LESS):,}")
    return case.refusal(
        "budget",
        "amount of the sizing",
        " or ".join(fixes),
        needed=cost,
        available=budget,
        unit="currency",
    )


def _hours_until(finish_date: date, start: datetime) -> float:
    """Hours from a moment to the end of a day. [h]"""
    end = midnight(finish_date) + timedelta(days=1)
    return (end - start).total_seconds() / SECONDS_PER_HOUR


def _refused_at_any_count(case: RunCase) -> Infeasibility | None:
    """Why no number of GPUs will do: what does not fit spread over the most fits on none fewer."""
    if case.layouts is None:
        return None
    counts = _counts(case)
    found = choose(case, counts[-1]) if counts else None
    memory = isinstance(found, Infeasibility) and found.code == "memory"
    return found if isinstance(found, Infeasibility) and memory else None


def _counts(case: RunCase) -> list[int]:
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


def _too_late(
    case: RunCase,
    soonest: Choice,
    start: datetime,
    finish_date: date,
    available: float,
) -> Infeasibility:
    """By how much the fastest count misses the date, and which date or tokens it could meet."""
    limit, hours = f"end of {finish_date}", hours_of(case, soonest)
    if hours == float("inf"):
        fix = "no legal GPU count ends the run at all: give reliability with fewer or shorter stops"
        fitted = (fitting(case, count) for count in _counts(case))
        least = next((choice.gpu_count for choice in fitted if choice), soonest.gpu_count)
        fix += f"; on {least:,} GPUs {ways_to_end(case.failures, least)}"
        return case.refusal("deadline", limit, fix, available=max(0.0, available), unit="h")
    date_that_works = (start + timedelta(hours=min(hours, MOST_HOURS))).date()
    fixes = [f"finish_date {date_that_works} on {soonest.gpu_count} GPUs"]
    if available > 0:
        tokens = int(case.run.tokens * (available - MOMENT_H) / hours)
        if tokens > 0:
            fixes.append(f"training_tokens {tokens:,} by {finish_date}")
    return case.refusal(
        "deadline", limit, " or ".join(fixes), needed=hours, available=max(0.0, available), unit="h"
    )
