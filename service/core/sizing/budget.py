"""GPUs that an amount pays for, by a day or as soon as can be; or what would have to change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from math import ceil, inf

from service.core.costs.spending import Spending
from service.core.estimates import Infeasibility
from service.core.run.case import RunCase
from service.core.run.choice import Choice
from service.core.scenarios.training_run import BudgetSizing
from service.core.sizing.search import MOMENT_H, fitting, hours_of, sampled
from service.core.sizing.solve import (
    LESS,
    NOTHING_HELPS,
    count_for_deadline,
    end_day,
    hours_until,
    no_count,
    refused_at_any_count,
    solvable_counts,
    with_tokens,
)
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_COUNT

MOST_AMOUNT = 10**12 - 1
"""Largest whole amount that a request can give."""
TRIES = 4
"""Numbers of tokens that are tried, each in proportion to what the last one lacked."""


@dataclass(frozen=True)
class Limits:
    """What a run may cost, when it starts and by when it ends."""

    amount: float
    spending: Spending
    start: datetime
    finish_date: date | None
    """Day by which it has to end; None where none is asked for."""
    until: datetime | None
    """Moment by which it should end where no day is asked for."""

    def cost(self, case: RunCase, choice: Choice) -> float:
        """What a run costs on so many GPUs. [currency]"""
        return self.spending.amount(choice.gpu_count, self.start, hours_of(case, choice))

    def pays(self, case: RunCase, choice: Choice) -> bool:
        """Whether the amount is enough for it."""
        return self.cost(case, choice) <= self.amount

    def ending(self, case: RunCase, choices: Sequence[Choice]) -> list[Choice]:
        """Those that end by the day; without one by the moment, or all where none does."""
        if self.finish_date is not None:
            return _within(case, choices, hours_until(self.finish_date, self.start))
        if self.until is None:
            return list(choices)
        available = (self.until - self.start).total_seconds() / SECONDS_PER_HOUR
        return _within(case, choices, available) or list(choices)

    def taken(self, case: RunCase, choices: Sequence[Choice]) -> Choice | None:
        """The fewest GPUs that are paid and end by the day; without a day those that end first."""
        paid = [choice for choice in self.ending(case, choices) if self.pays(case, choice)]
        if self.finish_date is not None:
            return min(paid, key=lambda choice: choice.gpu_count, default=None)
        return min(paid, key=lambda choice: hours_of(case, choice), default=None)

    def share(self, case: RunCase, choice: Choice) -> float:
        """About how much of the run is paid for and done in time on so many GPUs."""
        paid = self.amount / self.cost(case, choice)
        if self.finish_date is None:
            return paid
        available = hours_until(self.finish_date, self.start) - MOMENT_H
        return min(paid, available / hours_of(case, choice))


def count_for_budget(
    case: RunCase,
    start: datetime,
    sizing: BudgetSizing,
    spending: Spending,
    *,
    until: datetime | None = None,
) -> Choice | Infeasibility:
    """GPUs on which a run costs at most an amount: the fewest in time, or those that end it first.

    GPU counts over the whole range are judged by their own hours: more GPUs end a run sooner and
    mostly take more GPU-hours, since speed and goodput fall. By a date the fewest that are in time
    can cost more than some others: those then do that are in time and paid.

    Args:
        case: The run.
        start: When it starts.
        sizing: The amount, and the date where there is one.
        spending: What its GPUs cost.
        until: End of the horizon; counts that would outlive it are left out where others do not.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    limits = Limits(float(sizing.amount), spending, start, sizing.finish_date, until)
    found: Choice | Infeasibility | None
    if sizing.finish_date is None:
        found = refused_at_any_count(case)
    else:
        found = count_for_deadline(case, start, sizing.finish_date)
    if isinstance(found, Choice) and limits.pays(case, found):
        return found
    if isinstance(found, Infeasibility) and found.code != "deadline":
        return found
    choices = _sampled(case)
    if isinstance(found, Choice):
        choices.append(found)
    if not choices:
        return found or no_count(case)
    ending = [choice for choice in choices if hours_of(case, choice) < inf]
    if not ending:
        return found or choices[0]  # failures come faster than it recovers, on any count
    late = found if isinstance(found, Infeasibility) else None
    return limits.taken(case, ending) or _refused(case, ending, limits, late)


def _sampled(case: RunCase) -> list[Choice]:
    """Layouts on counts over the range that a run can use.

    Without layers known, a node for each sequence of a batch is the most that helps.
    """
    batch = case.run.global_batch_tokens // case.run.sequence_length_tokens
    most = MAX_COUNT if case.layouts is not None else case.gpu_multiple * batch
    tried = (fitting(case, count) for count in sampled(solvable_counts(case)) if count <= most)
    return [found for found in tried if found is not None]


def _within(case: RunCase, choices: Sequence[Choice], available: float) -> list[Choice]:
    return [choice for choice in choices if hours_of(case, choice) <= available - MOMENT_H]


def _refused(
    case: RunCase, choices: Sequence[Choice], limits: Limits, late: Infeasibility | None
) -> Infeasibility:
    """By how much the cheapest count exceeds the amount, or the soonest the date, and what does.

    Args:
        case: The run.
        choices: GPU counts on which it ends at some time.
        limits: What it may cost, and by when it ends.
        late: Why no count is in time, where none is.
    """
    ending = limits.ending(case, choices)
    fixes = [
        *_larger_amount(case, ending, limits),
        *_later_date(case, choices, limits, is_open=not ending),
        *_fewer_tokens(case, choices if limits.finish_date else ending, limits),
    ]
    fix = " or ".join(fixes) or NOTHING_HELPS
    if late is not None and not ending:
        return late.model_copy(update={"nearest_fix": fix})
    return case.refusal(
        "budget",
        "amount of the sizing",
        fix,
        needed=min(limits.cost(case, choice) for choice in ending),
        available=limits.amount,
        unit="currency",
    )


def _larger_amount(case: RunCase, ending: Sequence[Choice], limits: Limits) -> Iterator[str]:
    """The least amount that pays for some count, and the count that is then taken."""
    costs = [limits.cost(case, one) for one in ending if end_day(case, one, limits.start)]
    if costs and min(costs) <= MOST_AMOUNT:
        amount = ceil(min(costs))
        chosen = replace(limits, amount=amount).taken(case, ending)
        if chosen is not None:
            yield f"amount {amount} on {chosen.gpu_count} GPUs"


def _later_date(
    case: RunCase, choices: Sequence[Choice], limits: Limits, *, is_open: bool
) -> Iterator[str]:
    """The earliest day by which some count that is paid ends the run, and the count then taken.

    Args:
        case: The run.
        choices: GPU counts on which it ends at some time.
        limits: What it may cost, and by when it ends.
        is_open: True where no count is in time: a larger amount is then named with the date.
    """
    if limits.finish_date is None:
        return
    named = [choice for choice in choices if end_day(case, choice, limits.start)]
    paid = [choice for choice in named if limits.pays(case, choice)]
    first = min(paid or named, key=lambda choice: hours_of(case, choice), default=None)
    day = None if first is None else end_day(case, first, limits.start)
    if first is None or day is None or not (paid or is_open):
        return
    amount = limits.amount if paid else ceil(limits.cost(case, first))
    if amount <= MOST_AMOUNT:
        other = replace(limits, finish_date=day, amount=amount)
        soonest = count_for_deadline(case, limits.start, day)
        if not isinstance(soonest, Choice) or not other.pays(case, soonest):
            soonest = other.taken(case, choices) or first
        dearer = "" if paid else f" and amount {amount}"
        yield f"finish_date {day}{dearer} on {soonest.gpu_count} GPUs"


def _fewer_tokens(case: RunCase, choices: Sequence[Choice], limits: Limits) -> Iterator[str]:
    """Tokens that the limits leave on some count, where that is one step at the least."""
    batch, trial = case.run.global_batch_tokens, case
    for _ in range(TRIES):
        share = max(limits.share(trial, choice) for choice in choices)
        tokens = max(batch, int(trial.run.tokens * min(1.0, share) * LESS))
        if share <= 0 or tokens >= trial.run.tokens:
            return
        trial = with_tokens(case, tokens)
        chosen = limits.taken(trial, choices)
        if chosen is not None and end_day(trial, chosen, limits.start):
            yield f"training_tokens {tokens:,}"
            return
