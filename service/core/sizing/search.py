"""Search for a number of GPUs: the fastest layout that fits on each, and which are worth trying."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from service.core.parallelism.rules import on_gpus
from service.core.run.case import LayoutModels, RunCase
from service.core.run.changes import judged
from service.core.run.choice import Choice, choose
from service.core.run.rates import is_possible, rate_of

MOMENT_H = 1e-6
"""A run ends before midnight, not at it: the next day's date would be a day late. [h]"""
FIRST_JUDGED = 256
"""Layouts, the fastest ones, whose memory is counted at first; then four times as many, and on."""
MEMORY_STEP = 1.25
"""Step between GPU counts on which nothing fits."""
SAMPLES = 24
"""GPU counts that are sampled where each asks for a search over layouts."""
SLACK = 1.5
"""Counts that would be in time at the best speed found, times this, are tried one by one: speed
falls with the number of GPUs, but for how well it divides batch, layers and experts."""


def hours_of(case: RunCase, choice: Choice) -> float:
    """Hours from start to finish, infinite when the run never ends. [h]"""
    return case.failures.typical_hours(case.run, rate=choice.rate, gpu_count=choice.gpu_count)


def fitting(case: RunCase, gpu_count: int, *, least_rate: float = 0.0) -> Choice | None:
    """The fastest layout that fits on so many GPUs; None where none is so fast.

    The same layout as `choose` takes, but for equals, without looking for what would fit instead.

    Args:
        case: The run.
        gpu_count: GPUs.
        least_rate: Tokens per second and GPU below which a layout is of no use.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    if case.layouts is None:
        found = choose(case, gpu_count)
        return found if isinstance(found, Choice) and found.rate >= least_rate else None
    if case.run.global_batch_tokens % case.run.sequence_length_tokens:
        return None
    if case.given_layout is not None:
        return _given(case, case.layouts, gpu_count, least_rate)
    return _fastest(case, case.layouts, gpu_count, least_rate)


def _given(
    case: RunCase, layouts: LayoutModels, gpu_count: int, least_rate: float
) -> Choice | None:
    given = case.given_layout
    if given is None:
        return None
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    if layouts.rules.fault(axes, gpu_count) is not None or not judged(case, layouts, axes)[0]:
        return None
    rate = float(rate_of(case, axes, case.recorder.off())[0])
    return Choice(gpu_count, axes, rate) if rate >= least_rate else None


def _fastest(
    case: RunCase, layouts: LayoutModels, gpu_count: int, least_rate: float
) -> Choice | None:
    axes = layouts.rules.candidates(layouts.degrees, gpu_count)
    shape = axes.tensor.shape
    if shape == (0,):
        return None
    rate = np.broadcast_to(rate_of(case, axes, case.recorder.off())[0], shape)
    usable = is_possible(case, axes, rate)
    if not usable.any():
        choose(case, gpu_count)  # says why
        return None
    fast = np.flatnonzero(usable & (rate >= least_rate))
    order = fast[np.argsort(-rate[fast], kind="stable")]
    first, size = 0, FIRST_JUDGED
    while first < len(order):
        if first and not _has_room(case, layouts, gpu_count):
            return None
        some = order[first : first + size]
        fits = judged(case, layouts, axes.take(some))[0]
        if fits.any():
            best = int(some[np.argmax(fits)])
            return Choice(gpu_count, axes.take(best), float(rate[best]))
        first, size = first + size, 4 * size
    return None


def _has_room(case: RunCase, layouts: LayoutModels, gpu_count: int) -> bool:
    """Whether the layouts that hold least fit on so many GPUs."""
    axes = layouts.rules.candidates(layouts.degrees, gpu_count, leanest=True)
    return bool(np.any(judged(case, layouts, axes)[0]))


def in_time(case: RunCase, choice: Choice, available: float) -> bool:
    """Whether a run ends within some hours."""
    return hours_of(case, choice) <= available - MOMENT_H


def smallest_in_time(
    case: RunCase, counts: Sequence[int], available: float, best_rate: float
) -> Choice | None:
    """The first of ascending GPU counts on which a run ends within some hours.

    GPU-hours grow with the count, so the hours on one say how many GPUs are needed at the least,
    but where more nodes save faster: there all counts are tried that the best speed would do.
    None where the counts that are reached so are all too slow.
    """
    if case.failures.more_nodes_save_faster:
        return _first_of_all(case, counts, available, best_rate)
    index, best = 0, 0.0
    while index < len(counts):
        found = fitting(case, counts[index])
        needed = MEMORY_STEP * counts[index]
        if found is not None:
            best, hours = max(best, found.rate), hours_of(case, found)
            if hours <= available - MOMENT_H:
                return smaller_in_time(case, counts, available, first=found, best_rate=best)
            needed = counts[index] * hours / available
        if needed > counts[-1]:
            return None
        index = max(index + 1, bisect_left(counts, needed * (1 - 1e-12)))
    return None


def _first_of_all(
    case: RunCase, counts: Sequence[int], available: float, best_rate: float
) -> Choice | None:
    for count in counts:
        hours = hours_of(case, Choice(count, None, best_rate))
        if hours > available - MOMENT_H:
            continue
        found = fitting(case, count, least_rate=best_rate * hours / available)
        if found is not None and in_time(case, found, available):
            return found
    return None


def smaller_in_time(
    case: RunCase, counts: Sequence[int], available: float, *, first: Choice, best_rate: float
) -> Choice:
    """A smaller count than one that is in time, where some speed close to the best seen does it."""
    best = max(best_rate, first.rate)
    for count in counts[: bisect_left(counts, first.gpu_count)]:
        hours = hours_of(case, Choice(count, None, SLACK * best))
        if hours > available - MOMENT_H:
            continue
        found = fitting(case, count, least_rate=SLACK * best * hours / available)
        if found is not None and in_time(case, found, available):
            return found
    return first


def sampled(counts: Sequence[int]) -> list[int]:
    """Few of many ascending GPU counts, one of which comes close to the best of all."""
    if len(counts) <= SAMPLES:
        return list(counts)
    steps = [round(len(counts) ** (index / (SAMPLES - 1))) - 1 for index in range(SAMPLES)]
    # Powers of two divide batches and layers best, so the fastest is often one of them.
    doubled = [count for count in counts if (count & (count - 1)) == 0]
    return sorted({counts[step] for step in steps} | set(doubled))


def evenly_dividing(counts: Sequence[int], batch_sequences: int) -> list[int]:
    """GPU counts over which a batch divides best: powers of two times what is odd in the batch."""
    odd = batch_sequences // (batch_sequences & -batch_sequences)
    return [count for count in counts if odd % (count // (count & -count)) == 0]


def quickest(case: RunCase, counts: Sequence[int], best_rate: float) -> Choice | None:
    """The one of some GPU counts on which a run ends soonest; None where nothing fits on any.

    The largest come first, and what is too slow at a speed that no layout exceeds is left out.
    """
    least, best = float("inf"), None
    for count in reversed(counts):
        if best is not None and hours_of(case, Choice(count, None, best_rate)) >= least:
            continue
        found = fitting(case, count)
        if found is not None and (best is None or hours_of(case, found) < least):
            least, best = hours_of(case, found), found
    return best
