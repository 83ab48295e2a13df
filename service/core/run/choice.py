"""Choice of a run's layout on a number of GPUs: the fastest legal one that fits, or why none."""

from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from service.core.errors import CoreError, InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.factors import Factor
from service.core.parallelism import GivenLayout
from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.near import described, distance, nearest
from service.core.parallelism.rules import BATCH_RULES, Condition, given_degrees, on_gpus
from service.core.run.case import HostNeed, LayoutModels, RunCase
from service.core.run.changes import (
    FIX_ATTEMPTS,
    Change,
    changes_that_fit,
    judged,
    on_fewer_gpus,
    on_more_gpus,
    usable,
)
from service.core.run.memory import available_bytes
from service.core.run.rates import check_known, is_possible, possible_rates, rate_of
from service.core.units import BYTES_PER_GIB
from service.core.value import MAX_COUNT, MAX_TOKENS

EQUAL_SPEED = 1e-9
"""Relative difference below which two layouts are equally fast."""


NO_COUNT = (
    "no GPU count helps: a shorter sequence_length_tokens, a state_recipe of fewer bytes, an "
    "adapter, or a GPU with more memory"
)


@dataclass(frozen=True)
class Choice:
    """A layout on so many GPUs, and the speed of one of them."""

    gpu_count: int
    axes: LayoutAxes | None
    """None when the layers are not known."""
    rate: float
    """Tokens per second and GPU."""
    speed_factors: tuple[Factor, ...] = ()
    """What an estimated speed rests on; empty for a given one."""


@dataclass(frozen=True)
class RankedLayouts:
    """Every legal layout on so many GPUs, with its speed and whether it fits."""

    axes: LayoutAxes
    rate: Any
    """Tokens per second and GPU."""
    possible: Any
    """False where no speed is known, or the hardware would run above its peak."""
    fits: Any
    needed_bytes: Any
    """Of the fullest GPU."""
    limit_bytes: float
    """Bytes below which a layout fits."""

    def fastest(self, case: RunCase, layouts: LayoutModels) -> int | None:
        """The fastest that fits; of equals the one that loses least of a step, or needs least."""
        usable, rate = self.possible & self.fits, self.rate
        if not usable.any():
            return None
        top = np.flatnonzero(usable & (rate >= rate[usable].max() * (1 - EQUAL_SPEED)))
        lost = layouts.network.lost_s(self.axes.take(top), rate[top], case.recorder.off())
        order = np.lexsort((self.needed_bytes[top], np.broadcast_to(lost, top.shape)))
        return int(top[order[0]])


def ranked(case: RunCase, layouts: LayoutModels, gpu_count: int) -> RankedLayouts:
    """Judge every legal layout of the run on so many GPUs.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
        InvalidScenario: If there are more than can be searched.
    """
    axes = layouts.rules.candidates(layouts.degrees, gpu_count)
    shape = axes.tensor.shape
    if shape == (0,):
        none = np.zeros(0)
        return RankedLayouts(axes, none, none > 0, none > 0, none, 0.0)
    rate = np.broadcast_to(rate_of(case, axes, case.recorder.off())[0], shape)
    fits, needed, limit = judged(case, layouts, axes)
    return RankedLayouts(axes, rate, is_possible(case, axes, rate), fits, needed, limit)


def choose(case: RunCase, gpu_count: int) -> Choice | Infeasibility:
    """The layout of a run on so many GPUs, or why there is none.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    if case.layouts is None:
        return _below_floor(case, gpu_count) or _chosen(case, gpu_count, None)
    check_known(case)
    uneven = _uneven_batch(case, case.layouts, gpu_count)
    if uneven is not None:
        return uneven
    if case.given_layout is not None:
        return _named(case, case.layouts, case.given_layout, gpu_count)
    return _fastest(case, case.layouts, gpu_count)


def least_gpu_count(case: RunCase) -> int:
    """GPUs below which the state of a run without known layers has no room, however spread."""
    if case.floor is None:
        return 1
    quiet = case.recorder.off()
    limit = quiet.assume("memory_amber_fraction").value * available_bytes(case.gpu, quiet)
    count = floor(case.floor.on_gpus / limit) + 1
    if case.host_bytes is not None:
        nodes = floor(case.floor.on_hosts / case.host_bytes)
        count = max(count, nodes * case.gpu.node_gpu_count + 1)
    return min(count, MAX_COUNT + 1)


def _below_floor(case: RunCase, gpu_count: int) -> Infeasibility | None:
    """State alone that does not fit, where nothing else of the memory can be counted."""
    least, state = least_gpu_count(case), case.floor
    if state is None or gpu_count >= least:
        return None
    count = ceil(least / case.gpu_multiple) * case.gpu_multiple
    fix = NO_COUNT if count > MAX_COUNT else f"gpu_count {count}, which holds the state alone"
    quiet = case.recorder.off()
    limit = quiet.assume("memory_amber_fraction").value * available_bytes(case.gpu, quiet)
    if state.on_gpus / gpu_count >= limit:
        return _too_large(case, state.on_gpus / gpu_count, limit, fix)
    nodes = ceil(gpu_count / case.gpu.node_gpu_count)
    return _host_too_small(case, HostNeed(0.0, state.on_hosts / nodes, case.host_bytes), fix)


def _chosen(case: RunCase, gpu_count: int, axes: LayoutAxes | None) -> Choice:
    rate, factors = rate_of(case, axes, case.recorder.off())
    return Choice(gpu_count, axes, float(rate), tuple(factors))


def _uneven_batch(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Infeasibility | None:
    """A batch that is no whole number of sequences would be cut in silence by a trainer."""
    batch, sequence = case.run.global_batch_tokens, case.run.sequence_length_tokens
    if batch % sequence == 0:
        return None
    most = MAX_TOKENS // sequence
    whole = tuple(count for count in (batch // sequence, batch // sequence + 1) if count <= most)
    # An open number of GPUs leaves any whole number of sequences legal.
    fix = " or ".join(_batch_text(count, sequence) for count in whole)
    if case.run.given_gpu_count is not None:
        fix = (
            _nearest_batch(case, layouts, gpu_count)
            or _batch_and_gpus(case, layouts, gpu_count, whole)
            or NO_COUNT
        )
    return case.refusal(
        "layout",
        "whole sequences in the global batch",
        fix,
        needed=batch / sequence,
        available=batch // sequence,
        unit="sequences",
    )


def _with_batch(
    case: RunCase, layouts: LayoutModels, sequences: int
) -> tuple[RunCase, LayoutModels]:
    """The same run with another global batch."""
    changed = case.with_batch(sequences)
    return changed, changed.layouts or layouts


def _nearest_batch(case: RunCase, layouts: LayoutModels, gpu_count: int) -> str | None:
    """The nearest global batch under which the run has a layout that fits on these GPUs.

    Under a layout that is chosen, first for pipelines whose stages hold equally many layers.
    """
    degrees = layouts.degrees
    if case.given_layout is None:
        even = degrees.take(layouts.rules.layer_count % degrees.pipeline == 0)
        if found := _batch_for(case, layouts, gpu_count, even):
            return found
    return _batch_for(case, layouts, gpu_count, degrees)


def _batch_for(
    case: RunCase, layouts: LayoutModels, gpu_count: int, degrees: LayoutAxes
) -> str | None:
    """The nearest global batch that whole copies of one of these splits divide, and that works."""
    given, sequence = case.given_layout, case.run.sequence_length_tokens
    copies = degrees.tensor * degrees.pipeline * degrees.context
    unit = np.unique(gpu_count // copies[gpu_count % copies == 0])
    if given is not None:
        woven = given.pipeline_parallel if given.virtual_pipeline_stages > 1 else 1
        unit = unit * given.micro_batch_sequences * woven
    wanted = case.run.global_batch_tokens / sequence
    multiples = np.unique([*(wanted // unit * unit), *((wanted // unit + 1) * unit)])
    allowed = multiples[(multiples >= 1) & (multiples <= MAX_TOKENS // sequence)]
    nearest_first = sorted(allowed, key=lambda count: abs(count - wanted))
    for count in nearest_first[:FIX_ATTEMPTS]:
        if _works(*_with_batch(case, layouts, int(count)), gpu_count):
            return _batch_text(int(count), sequence)
    return None


def _batch_and_gpus(
    case: RunCase, layouts: LayoutModels, gpu_count: int, whole: tuple[int, ...]
) -> str | None:
    """A whole batch together with the GPUs on which some layout then fits."""
    for sequences in whole:
        changed = _with_batch(case, layouts, sequences)
        if other := _other_counts(*changed, gpu_count):
            batch = _batch_text(sequences, case.run.sequence_length_tokens)
            return f"{batch} on {other[-1].text}"
    return None


def _works(case: RunCase, layouts: LayoutModels, gpu_count: int) -> bool:
    """Whether the run has a layout on so many GPUs, its own where it names one."""
    given = case.given_layout
    if given is None:
        axes = layouts.rules.candidates(layouts.degrees, gpu_count)
        return len(usable(case, layouts, axes).tensor) > 0
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    if layouts.rules.fault(axes, gpu_count) is not None:
        return False
    return bool(judged(case, layouts, axes)[0]) and bool(possible_rates(case, axes) > 0)


def _batch_text(sequences: int, sequence_tokens: int) -> str:
    return f"global_batch_tokens {sequences * sequence_tokens:,} ({sequences} sequences)"


def _named(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int
) -> Choice | Infeasibility:
    """The layout that the request names, if it is legal and fits."""
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    fault = layouts.rules.fault(axes, gpu_count)
    if fault is not None:
        return _illegal(case, layouts, given, gpu_count, fault)
    fits, needed, limit = judged(case, layouts, axes)
    chosen = _chosen(case, gpu_count, axes)
    if fits:
        return chosen
    change = next(changes_that_fit(case, layouts, axes), None)
    fix = change.text if change else NO_COUNT
    if needed < limit:
        return _host_too_small(case, layouts.host_need(axes, case.recorder.off()), fix)
    return _too_large(case, float(needed), limit, fix)


def _illegal(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int, fault: Condition
) -> Infeasibility:
    """A layout that breaks a rule, with the nearest legal one and the nearest GPU counts."""
    rules = layouts.rules
    near = _nearest_legal(case, layouts, given, gpu_count)
    fixes = [f"on {gpu_count} GPUs: {described(near.layout())}"] if near else []
    if fault.limit in BATCH_RULES and (batch := _nearest_batch(case, layouts, gpu_count)):
        # Another batch may be had on other GPUs than these where their number is solved for.
        is_open = case.run.given_gpu_count is None
        fixes.insert(0, f"{batch} on {gpu_count} GPUs" if is_open else batch)
    counts = rules.usable_gpu_counts(layouts.degrees)
    works = [
        next((str(n) for n in side[:FIX_ATTEMPTS] if _works(case, layouts, n)), None)
        for side in _sides(counts, gpu_count)
    ]
    if any(works):
        fixes.append(f"this layout on {' or '.join(filter(None, works))} GPUs")
    if not fixes:
        fixes = [change.text for change in _other_counts(case, layouts, gpu_count)] or [NO_COUNT]
    return case.refusal(
        "layout",
        fault.limit,
        "; or ".join(fixes),
        needed=fault.needed,
        available=fault.available,
    )


def _nearest_legal(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int
) -> LayoutAxes | None:
    """The nearest layout that is legal and fits, of those that are searched or less interleaved."""
    rules, wanted = layouts.rules, given_degrees(given).take(0)
    axes = on_gpus(given, gpu_count, rules.batch_sequences)
    searched = usable(case, layouts, rules.candidates(rules.degrees(), gpu_count))
    plainer = rules.less_interleaved(axes)
    plainer = usable(case, layouts, plainer.take(rules.legal(plainer, gpu_count)))
    found = (nearest(searched, wanted), nearest(plainer, wanted))
    return min(
        (axes for axes in found if axes is not None),
        key=lambda axes: float(distance(axes, wanted)),
        default=None,
    )


def _fastest(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Choice | Infeasibility:
    """The fastest legal layout that fits."""
    found = ranked(case, layouts, gpu_count)
    best = found.fastest(case, layouts)
    if best is not None:
        return _chosen(case, gpu_count, found.axes.take(best))
    if len(found.rate) == 0:
        return case.refusal(
            "layout",
            "a legal layout on gpu_count",
            _count_fix(case, layouts, gpu_count),
            needed=gpu_count,
        )
    possible, needed = found.possible, found.needed_bytes
    if not possible.any():
        raise _impossible(case, gpu_count, is_known=bool(np.any(found.rate > 0)))
    least = found.axes.take(int(np.argmin(np.where(possible, needed, np.inf))))
    change = next(changes_that_fit(case, layouts, least, among=found.axes), None)
    fix = change.text if change else NO_COUNT
    if np.any(possible & (needed < found.limit_bytes)):
        return _host_too_small(case, layouts.host_need(least, case.recorder.off()), fix)
    return _too_large(case, float(needed[possible].min()), found.limit_bytes, fix)


def _impossible(case: RunCase, gpu_count: int, *, is_known: bool) -> CoreError:
    """Every speed is above the peak, or none is known."""
    if is_known:
        return InvalidScenario(
            f"the assumptions of this estimate mean more than the dense "
            f"{case.run.compute_precision} peak of {case.gpu.key}",
            pointer=f"{case.pointer}/speed",
        )
    return NoConstants(
        f"no share of the bf16 peak is known for any legal layout on {gpu_count} "
        f"{case.gpu.key} in {case.run.compute_precision}"
    )


def _host_too_small(case: RunCase, need: HostNeed, fix: str) -> Infeasibility:
    return case.refusal(
        "memory",
        "memory of the host of a node",
        fix,
        needed=float(need.per_node) / BYTES_PER_GIB,
        available=(need.available or 0.0) / BYTES_PER_GIB,
        unit="GiB",
    )


def _too_large(case: RunCase, needed: float, limit: float, fix: str) -> Infeasibility:
    share = case.recorder.off().assume("memory_amber_fraction").value
    return case.refusal(
        "memory",
        f"{share:.0%} of the memory that programs can address",
        fix,
        needed=needed / BYTES_PER_GIB,
        available=limit / BYTES_PER_GIB,
        unit="GiB",
    )


def _count_fix(case: RunCase, layouts: LayoutModels, gpu_count: int) -> str:
    """The nearest global batch, and the nearest GPU counts, with which some layout fits."""
    batch = _nearest_batch(case, layouts, gpu_count)
    fixes = [batch] if batch else []
    if other := _other_counts(case, layouts, gpu_count):
        counts = " or ".join(str(int(change.axes.gpu_count)) for change in other)
        fixes.append(f"gpu_count {counts}")
    return "; or ".join(fixes) or f"another global_batch_tokens; with this one {NO_COUNT}"


def _other_counts(case: RunCase, layouts: LayoutModels, gpu_count: int) -> list[Change]:
    """The nearest GPU counts, fewer and more, on which some layout fits."""
    found = (on_fewer_gpus(case, layouts, gpu_count), on_more_gpus(case, layouts, gpu_count))
    return [change for change in found if change is not None]


def _sides(counts: list[int], gpu_count: int) -> tuple[list[int], list[int]]:
    """Counts below and above, the nearest first."""
    below = [count for count in reversed(counts) if count < gpu_count]
    return below, [count for count in counts if count > gpu_count]
