"""Choice of a run's layout on a number of GPUs: the fastest legal one that fits, or why none."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.parallelism import GivenLayout
from service.core.recorder import Recorder
from service.core.run.case import LayoutModels, RunCase
from service.core.run.factors import Factor
from service.core.run.layouts import (
    Condition,
    LayoutAxes,
    described,
    nearest,
    on_gpus,
)
from service.core.run.memory import available_bytes
from service.core.units import BYTES_PER_GIB

EQUAL_SPEED = 1e-9
"""Relative difference below which two layouts are equally fast."""
FIX_ATTEMPTS = 40
"""GPU counts that are tried to name the smallest on which a run fits."""


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


def choose(case: RunCase, gpu_count: int) -> Choice | Infeasibility:
    """The layout of a run on so many GPUs, or why there is none.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    if case.layouts is None:
        return _chosen(case, gpu_count, None)
    uneven = _uneven_batch(case)
    if uneven is not None:
        return uneven
    if case.given_layout is not None:
        return _named(case, case.layouts, case.given_layout, gpu_count)
    return _fastest(case, case.layouts, gpu_count)


def _chosen(case: RunCase, gpu_count: int, axes: LayoutAxes | None) -> Choice:
    rate, factors = rate_of(case, axes, case.recorder.off())
    return Choice(gpu_count, axes, float(rate), tuple(factors))


def rate_of(case: RunCase, axes: LayoutAxes | None, recorder: Recorder) -> tuple[Any, list[Factor]]:
    """Tokens per second and GPU for one layout or many, and what an estimate rests on."""
    speed = case.run.speed
    if speed.kind == "measured":
        recorder.note("training_tokens_per_s_per_gpu", speed.tokens_per_s_per_gpu)
        return speed.tokens_per_s_per_gpu, []
    if case.speed is None:
        raise LookupError("a run without an architecture has a measured speed")
    if speed.kind != "estimated":
        return case.speed.given_rate(axes, recorder), []
    if axes is None:
        raise LookupError("a run without layers has a given speed")
    return case.speed.estimated_rate(axes, recorder)


def _uneven_batch(case: RunCase) -> Infeasibility | None:
    """A batch that is no whole number of sequences would be cut in silence by a trainer."""
    batch, sequence = case.run.global_batch_tokens, case.run.sequence_length_tokens
    below = batch // sequence
    if batch % sequence == 0:
        return None
    sizes = " or ".join(f"{count * sequence:,} ({count} sequences)" for count in (below, below + 1))
    return case.refusal(
        "layout",
        "whole sequences in the global batch",
        f"global_batch_tokens {sizes}",
        needed=batch / sequence,
        available=below,
        unit="sequences",
    )


def _named(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int
) -> Choice | Infeasibility:
    """The layout that the request names, if it is legal and fits."""
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    fault = layouts.rules.fault(axes, gpu_count)
    if fault is not None:
        return _illegal(case, layouts, given, gpu_count, fault)
    needed, limit = _needed_and_limit(case, layouts, axes)
    if needed < limit:
        return _chosen(case, gpu_count, axes)
    fix = _named_fix(case, layouts, given, gpu_count)
    return _too_large(case, float(needed), limit, fix or _larger_fix(case, layouts, gpu_count))


def _illegal(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int, fault: Condition
) -> Infeasibility:
    """A layout that breaks a rule, with the nearest legal one and the nearest GPU counts."""
    rules = layouts.rules
    legal = rules.candidates(rules.degrees(), gpu_count)
    needed, limit = _needed_and_limit(case, layouts, legal)
    near = nearest(legal.take(needed < limit), given) or nearest(legal, given)
    fixes = [f"on {gpu_count} GPUs: {described(near.layout())}"] if near else []
    counts = [
        count
        for count in rules.usable_gpu_counts(layouts.degrees)
        if rules.fault(on_gpus(given, count, rules.batch_sequences), count) is None
    ]
    if counts and gpu_count not in counts:
        fixes.append(f"this layout on {_neighbours(counts, gpu_count)} GPUs")
    if not fixes:
        fixes = [_count_fix(case, layouts, gpu_count)]
    return case.refusal(
        "layout",
        fault.limit,
        "; or ".join(fixes),
        needed=fault.needed,
        available=fault.available,
    )


def _fastest(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Choice | Infeasibility:
    """The fastest legal layout that fits; among equals the one that loses least of a step."""
    quiet = case.recorder.off()
    axes = layouts.rules.candidates(layouts.degrees, gpu_count)
    if len(axes.tensor) == 0:
        return case.refusal(
            "layout",
            "a legal layout on gpu_count",
            _count_fix(case, layouts, gpu_count),
            needed=gpu_count,
        )
    rate = np.broadcast_to(rate_of(case, axes, quiet)[0], axes.tensor.shape)
    possible = _possible(case, axes, rate)
    if not possible.any() and np.any(rate > 0):
        raise InvalidScenario(
            f"the assumptions of this estimate mean more than the dense "
            f"{case.run.compute_precision} peak of {case.gpu.key}",
            pointer=f"{case.pointer}/speed",
        )
    if not possible.any():
        raise NoConstants(
            f"no share of the bf16 peak is known for any legal layout on {gpu_count} "
            f"{case.gpu.key} in {case.run.compute_precision}"
        )
    needed, limit = _needed_and_limit(case, layouts, axes)
    fits = possible & (needed < limit)
    if not fits.any():
        least = float(needed[possible].min())
        return _too_large(case, least, limit, _larger_fix(case, layouts, gpu_count))
    top = np.flatnonzero(fits & (rate >= rate[fits].max() * (1 - EQUAL_SPEED)))
    lost = layouts.network.lost_s(axes.take(top), rate[top], quiet)
    best = top[np.lexsort((needed[top], np.broadcast_to(lost, top.shape)))[0]]
    return _chosen(case, gpu_count, axes.take(int(best)))


def _possible(case: RunCase, axes: LayoutAxes, rate: Any) -> Any:
    """Layouts whose speed is known, and under which the hardware would stay below its peak."""
    if case.speed is None or case.speed.peak_flop_per_s is None:
        return rate > 0
    executed = case.speed.executed_flops_per_token(axes, case.recorder.off())
    return (rate > 0) & (rate * executed <= case.speed.peak_flop_per_s)


def _needed_and_limit(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> tuple[Any, float]:
    """Bytes on the fullest GPU, and the bytes below which a layout is taken."""
    quiet = case.recorder.off()
    share = quiet.assume("memory_amber_fraction").value
    return layouts.memory.terms(axes, quiet).total, share * available_bytes(case.gpu, quiet)


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


def _named_fix(
    case: RunCase, layouts: LayoutModels, given: GivenLayout, gpu_count: int
) -> str | None:
    """The smallest change of a named layout that fits on the same GPUs."""
    for change in _changes(given):
        changed = given.model_copy(update=change)
        axes = on_gpus(changed, gpu_count, layouts.rules.batch_sequences)
        if layouts.rules.fault(axes, gpu_count) is not None:
            continue
        needed, limit = _needed_and_limit(case, layouts, axes)
        if needed < limit:
            return " and ".join(f"{name} {value}" for name, value in change.items())
    auto = layouts.rules.candidates(layouts.rules.degrees(), gpu_count)
    needed, limit = _needed_and_limit(case, layouts, auto)
    near = nearest(auto.take(needed < limit), given)
    return f"on {gpu_count} GPUs: {described(near.layout())}" if near else None


def _changes(given: GivenLayout) -> Iterator[dict[str, Any]]:
    """Single changes first, then pairs, then all three."""
    singles: list[dict[str, Any]] = []
    if given.micro_batch_sequences > 1:
        singles.append({"micro_batch_sequences": 1})
    if given.recompute != "full":
        singles.append({"recompute": "full"})
    stronger = ["zero_1"] if given.pipeline_parallel > 1 else ["zero_1", "zero_2", "zero_3"]
    shardings: list[dict[str, Any]] = [{"sharding": name} for name in stronger]
    yield from singles
    yield from shardings
    for sharding in shardings:
        for single in singles:
            yield single | sharding
    every: dict[str, Any] = {}
    for change in (*singles, *shardings[-1:]):
        every |= change
    yield every


def _larger_fix(case: RunCase, layouts: LayoutModels, gpu_count: int) -> str:
    """The smallest larger GPU count on which any layout fits."""
    rules = layouts.rules
    degrees = rules.degrees()
    counts = [n for n in _counts(case, layouts, degrees) if n > gpu_count][:FIX_ATTEMPTS]
    for count in counts:
        axes = rules.candidates(degrees, count, leanest=True)
        needed, limit = _needed_and_limit(case, layouts, axes)
        if np.any(needed < limit):
            best = axes.take(int(np.argmin(needed)))
            return f"{count} GPUs, such as {described(best.layout())}"
    return (
        "no GPU count helps: a shorter sequence_length_tokens, a state_recipe of fewer bytes, an "
        "adapter, or a GPU with more memory"
    )


def _count_fix(case: RunCase, layouts: LayoutModels, gpu_count: int) -> str:
    """The nearest GPU counts on which some layout is legal."""
    counts = _counts(case, layouts, layouts.rules.degrees())
    if not counts:
        return "another global_batch_tokens: none of its divisors gives a legal layout"
    return f"gpu_count {_neighbours(counts, gpu_count)}"


def _counts(case: RunCase, layouts: LayoutModels, degrees: LayoutAxes) -> list[int]:
    counts = layouts.rules.usable_gpu_counts(degrees)
    whole = [count for count in counts if count % case.gpu_multiple == 0]
    return whole or counts


def _neighbours(counts: list[int], gpu_count: int) -> str:
    below = [count for count in counts if count < gpu_count][-1:]
    above = [count for count in counts if count > gpu_count][:1]
    return " or ".join(str(count) for count in (*below, *above))
