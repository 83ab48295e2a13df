"""GPUs for a date or a budget, tokens for GPUs and either; or what would have to change."""

from collections.abc import Iterator
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
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_COUNT, MAX_TOKENS

MOMENT_H = 1e-6
"""A run ends before midnight, not at it: the next day's date would be a day late. [h]"""
GROWTH = 1.05
"""Step between GPU counts that are sampled for the fastest one when none is fast enough."""
SLOW_GROWTH = 1.005
"""The same where more GPUs may take fewer GPU-hours, so that none can be passed over by its own."""
SAMPLES = 24
"""Legal GPU counts that are sampled for it where each asks for a search over layouts."""
LESS = 0.999
"""Tokens that are named for an amount are this share of what it pays in proportion: prices move."""
MOST_HOURS = 8.7e6
"""A thousand years: beyond it no date is named. [h]"""
MAX_REFUSALS = 64
"""Counts refused in a row after which the search for one that fits is given up."""


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
        choices = [] if isinstance(found, Infeasibility) else [(_hours(case, found), found)]
    else:
        found = _refused_at_any_count(case) or _no_count(case)
        choices = _in_time(_sampled(case), start, until)
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
    return [pair for pair in _fastest(case) if pair[1].gpu_count <= most]


def _in_time(
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
    whole = _hours(case, found)
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
    counts = _usable_counts(case)
    found = choose(case, counts[-1]) if counts else None
    memory = isinstance(found, Infeasibility) and found.code == "memory"
    return found if isinstance(found, Infeasibility) and memory else None


def _usable_counts(case: RunCase) -> list[int]:
    """Legal GPU counts in whole multiples of what is rented, ascending.

    Where no legal count is such a multiple, all legal ones: the last instance is then not full.
    """
    if case.layouts is None:
        return []
    return usable_counts(case, case.layouts, case.layouts.degrees)


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
        training_tokens=case.run.tokens,
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
    count = _whole(max(least, least_gpu_count(case)), case.gpu_multiple)
    while count <= MAX_COUNT:
        yield count
        hours = _hours(case, Choice(count, None, best_rate))
        if case.failures.more_nodes_save_faster:
            count = _whole(count * SLOW_GROWTH + 1, case.gpu_multiple)
            continue
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
        if late:
            least = min(choice.gpu_count for _, choice in late)
            fix += f"; on {least:,} GPUs {ways_to_end(case.failures, least)}"
        return case.refusal("deadline", limit, fix, available=max(0.0, available), unit="h")
    hours, choice = min(late, key=lambda item: item[0])
    date_that_works = (start + timedelta(hours=min(hours, MOST_HOURS))).date()
    fixes = [f"finish_date {date_that_works} on {choice.gpu_count} GPUs"]
    if available > 0:
        tokens = int(case.run.tokens * (available - MOMENT_H) / hours)
        if tokens > 0:
            fixes.append(f"training_tokens {tokens:,} by {finish_date}")
    return case.refusal(
        "deadline", limit, " or ".join(fixes), needed=hours, available=max(0.0, available), unit="h"
    )
