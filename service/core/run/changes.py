"""What would make a run fit: changes of its layout, more GPUs, state on the host; each counted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np

from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.near import described, nearest
from service.core.run.case import LayoutModels, RunCase
from service.core.run.memory import available_bytes
from service.core.run.rates import possible_rates
from service.core.scenarios.stacks import LossKind
from service.core.scenarios.training_state import Offload

ChangeKind = Literal[
    "sharding",
    "micro_batch",
    "recompute",
    "sequence_parallel",
    "loss",
    "several",
    "other_layout",
    "more_gpus",
    "offload",
]
"""What is changed to make a run fit; several is more than one of the first five."""

FIX_ATTEMPTS = 40
"""GPU counts that are tried to name the smallest on which a run fits."""
FURTHER_STEP = 1.2
"""Factor between the counts that are tried after those."""
WORTH_MORE = 1.05
"""A change that holds a smaller one is named beside it where it keeps so much more speed."""
KNOBS: dict[str, ChangeKind] = {
    "sharding": "sharding",
    "micro_batch_sequences": "micro_batch",
    "recompute": "recompute",
    "sequence_parallel": "sequence_parallel",
}
"""What can change without moving weights to other GPUs, in the order in which it is named."""
LEAN_LOSSES: tuple[LossKind, ...] = ("fused", "chunked")
"""Losses that any stack can be given, the one that changes less first."""


@dataclass(frozen=True)
class Change:
    """A change that makes a layout fit."""

    kind: ChangeKind
    text: str
    axes: LayoutAxes
    """The layout as changed."""
    needed_bytes: float
    """What its fullest GPU then holds."""
    rate: float
    """Tokens per second and GPU with it."""
    offload: Offload | None = None
    """What is then kept on the host, where that is the change."""
    loss: LossKind | None = None
    """The loss, where that is changed."""


def judged(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> tuple[Any, Any, float]:
    """Whether layouts fit GPU and host, bytes on the fullest GPU, and the bytes below which."""
    quiet = case.recorder.off()
    terms = layouts.memory.terms(axes, quiet)
    limit = quiet.assume("memory_amber_fraction").value * available_bytes(case.gpu, quiet)
    fits = np.less(terms.total, limit)
    if layouts.host_bytes is not None and layouts.memory.run.offload != "none":
        fits = fits & (layouts.host_need(axes, quiet).per_node < layouts.host_bytes)
    return fits, terms.total, limit


def least_axes(case: RunCase, gpu_count: int) -> LayoutAxes | None:
    """The legal layout that needs least memory on so many GPUs."""
    if case.layouts is None:
        return None
    axes = case.layouts.rules.candidates(case.layouts.degrees, gpu_count)
    if len(axes.tensor) == 0:
        return None
    return axes.take(int(np.argmin(judged(case, case.layouts, axes)[1])))


def changes_that_fit(
    case: RunCase, layouts: LayoutModels, axes: LayoutAxes, among: LayoutAxes | None = None
) -> Iterator[Change]:
    """What makes a layout fit, the smallest change of each kind, each counted as it is asked for.

    First those on the same GPUs, those that keep most speed before others (more sharding, smaller
    micro-batches, more recompute, sequence parallelism, a leaner loss, alone or together; or the
    nearest other layout), then more GPUs, then state kept on the host.

    Args:
        case: The run.
        layouts: What judges its layouts.
        axes: The layout that does not fit.
        among: All layouts on these GPUs where the run names none: there only the loss can change.
    """
    count = int(axes.gpu_count)
    if among is None:
        found = list(_lighter(case, layouts, axes))
        if not found:
            found = [change] if (change := _other_layout(case, layouts, axes)) else []
    else:
        found = [change] if (change := _leaner_loss(case, layouts, among)) else []
    yield from sorted(found, key=lambda change: -change.rate)
    more = None if among is not None else _wider(case, layouts, axes)
    if more := more or on_more_gpus(case, layouts, count):
        yield more
    if offload := _offloaded(case, layouts, axes):
        yield offload


def _wider(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Change | None:
    """The same layout on as few more GPUs as make it fit."""
    wider = layouts.rules.wider(axes)
    small, needed, _ = judged(case, layouts, wider)
    rates = possible_rates(case, wider)
    fits = layouts.rules.legal(wider, wider.gpu_count) & small & (rates > 0)
    if not fits.any():
        return None
    whole = fits & fills_nodes(layouts, wider.gpu_count)
    first = int(np.argmax(whole if whole.any() else fits))
    more = wider.take(first)
    text = f"this layout on {int(more.gpu_count)} GPUs"
    return Change("more_gpus", text, more, float(needed[first]), float(rates[first]))


def _losses(
    case: RunCase, layouts: LayoutModels, axes: LayoutAxes
) -> Iterator[tuple[LossKind | None, LayoutModels]]:
    """The loss as it is, as None, and those that hold less, with what judges layouts with each."""
    yield None, layouts
    quiet = case.recorder.off()
    held = layouts.memory.terms(axes, quiet).logits
    for loss in LEAN_LOSSES:
        leaner = replace(layouts, memory=replace(layouts.memory, loss=loss))
        if np.any(leaner.memory.terms(axes, quiet).logits < held):
            yield loss, leaner


def _leaner_loss(case: RunCase, layouts: LayoutModels, among: LayoutAxes) -> Change | None:
    """The first loss with which some layout fits, where none does as it is, on the fastest."""
    found: Change | None = None
    # What the leanest does not make fit no other does: a search over all layouts takes its time.
    for loss in reversed(LEAN_LOSSES):
        models = replace(layouts, memory=replace(layouts.memory, loss=loss))
        fits, needed, _ = judged(case, models, among)
        if not fits.any():
            break
        fitting, total = among.take(fits), needed[fits]
        rates = possible_rates(case, fitting)
        best = int(np.argmax(rates))
        if rates[best] > 0:
            rate = float(rates[best])
            axes = fitting.take(best)
            found = Change("loss", f"loss {loss}", axes, float(total[best]), rate, loss=loss)
    return found


@dataclass(frozen=True)
class _Tried:
    """A change of one layout on the same GPUs that fits."""

    change: Change
    knobs: frozenset[str]
    """What it changes."""
    steps: float
    """By how much in all."""


def _tried_with(
    case: RunCase, layouts: LayoutModels, axes: LayoutAxes, loss: LossKind | None
) -> Iterator[_Tried]:
    """Every change that fits with one loss."""
    tried = layouts.rules.lighter(axes)
    small, needed, _ = judged(case, layouts, tried)
    rates = possible_rates(case, tried)
    fits = layouts.rules.legal(tried, int(axes.gpu_count)) & small & (rates > 0)
    halvings = np.log2(axes.micro_batch_sequences / tried.micro_batch_sequences)
    steps = (tried.sharding - axes.sharding) + (tried.recompute - axes.recompute) + halvings
    for index in np.flatnonzero(fits):
        lighter = tried.take(int(index))
        changed = [name for name in KNOBS if getattr(lighter, name) != getattr(axes, name)]
        if not changed and loss is None:
            continue
        layout = lighter.layout()
        said = [f"{name} {_said(getattr(layout, name))}" for name in changed]
        kinds: list[ChangeKind] = [KNOBS[name] for name in changed]
        if loss is not None:
            said.append(f"loss {loss}")
            kinds.append("loss")
        change = Change(
            kinds[0] if len(kinds) == 1 else "several",
            " and ".join(said),
            lighter,
            float(needed[index]),
            float(rates[index]),
            loss=loss,
        )
        yield _Tried(change, frozenset(kinds), float(steps[index]))


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lighter(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Iterator[Change]:
    """Changes on the same GPUs that fit, none of which holds another that is about as fast."""
    found = [
        tried
        for loss, models in _losses(case, layouts, axes)
        for tried in _tried_with(case, models, axes, loss)
    ]
    found.sort(key=lambda tried: (len(tried.knobs), -tried.change.rate, tried.steps))
    taken: list[_Tried] = []
    for tried in found:
        fewer = (one for one in taken if one.knobs <= tried.knobs)
        if all(tried.change.rate >= WORTH_MORE * one.change.rate for one in fewer):
            taken.append(tried)
            yield tried.change


def _other_layout(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Change | None:
    """The nearest layout on the same GPUs that fits."""
    count = int(axes.gpu_count)
    legal = layouts.rules.candidates(layouts.rules.degrees(), count)
    near = nearest(usable(case, layouts, legal), axes)
    if near is None:
        return None
    text = f"on {count} GPUs: {described(near.layout())}"
    total = judged(case, layouts, near)[1]
    return Change("other_layout", text, near, float(total), float(possible_rates(case, near)))


def usable(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> LayoutAxes:
    """Those of many layouts that fit and whose speed is known."""
    fitting = axes.take(judged(case, layouts, axes)[0])
    return fitting.take(possible_rates(case, fitting) > 0)


def fewest_gpu_count(case: RunCase, layouts: LayoutModels) -> int:
    """GPUs below which no layout fits: their memory is smaller than the state alone. [count]"""
    return ceil(_least_state_bytes(layouts) / available_bytes(case.gpu, case.recorder.off()))


def on_more_gpus(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Change | None:
    """The smallest larger GPU count on which any layout fits, with the layout that needs least."""
    fewest = fewest_gpu_count(case, layouts)
    degrees = layouts.rules.degrees()
    counts = usable_counts(case, layouts, degrees)
    for side in _whole_first(layouts, [n for n in counts if n > gpu_count and n >= fewest]):
        if found := _first_that_fits(case, layouts, degrees, _tried(side)):
            return found
    return None


def on_fewer_gpus(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Change | None:
    """The largest smaller GPU count on which any layout fits, with the layout that needs least."""
    degrees = layouts.rules.degrees()
    counts = [n for n in usable_counts(case, layouts, degrees) if n < gpu_count]
    for side in _whole_first(layouts, counts):
        found = _first_that_fits(case, layouts, degrees, side[: -FIX_ATTEMPTS - 1 : -1])
        if found:
            return found
    return None


def fills_nodes(layouts: LayoutModels, gpu_count: Any) -> Any:
    """True for part of one instance and for whole ones: more would be paid for than is used."""
    held = layouts.rules.instance_gpu_count
    return np.less_equal(gpu_count, held) | np.equal(np.mod(gpu_count, held), 0)


def _whole_first(layouts: LayoutModels, counts: list[int]) -> tuple[list[int], list[int]]:
    """Counts that fill their nodes, and the others, to be tried where none of those will do."""
    whole = fills_nodes(layouts, np.array(counts, dtype=int)).tolist()
    return (
        [count for count, fills in zip(counts, whole, strict=True) if fills],
        [count for count, fills in zip(counts, whole, strict=True) if not fills],
    )


def _first_that_fits(
    case: RunCase, layouts: LayoutModels, degrees: LayoutAxes, counts: Iterable[int]
) -> Change | None:
    """The first of these GPU counts on which any layout fits."""
    for count in counts:
        axes = layouts.rules.candidates(degrees, count, leanest=True)
        able = usable(case, layouts, axes)
        if len(able.tensor) > 0:
            needed = judged(case, layouts, able)[1]
            best = int(np.argmin(needed))
            least = able.take(best)
            text = f"{count} GPUs, such as {described(least.layout())}"
            rate = float(possible_rates(case, least))
            return Change("more_gpus", text, least, float(needed[best]), rate)
    return None


def _tried(counts: list[int]) -> Iterator[int]:
    """Ascending counts: the first one by one, then in ever larger steps, up to the last."""
    yield from counts[:FIX_ATTEMPTS]
    last = counts[:FIX_ATTEMPTS][-1] if counts else 0
    for count in counts[FIX_ATTEMPTS:]:
        if count >= FURTHER_STEP * last:
            last = count
            yield count


def _least_state_bytes(layouts: LayoutModels) -> float:
    """State that all GPUs together hold at least once. [B]"""
    parts, state, offload = layouts.memory.parts, layouts.memory.state, layouts.memory.run.offload
    if offload == "optimizer_and_parameters":
        return 0.0
    width = state.weight if offload == "optimizer" else state.total
    return width * parts.layer_parameter_count


def _offloaded(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Change | None:
    """The same GPUs with as little as possible kept on the host, on the fastest lighter layout."""
    offloads: tuple[Offload, ...] = ("optimizer", "optimizer_and_parameters")
    for offload in offloads if case.run.offload == "none" else ():
        kept_case, kept = _keeping(case, layouts, offload)
        tried = kept.rules.lighter(axes)
        small, needed, _ = judged(kept_case, kept, tried)
        rates = possible_rates(kept_case, tried)
        fits = kept.rules.legal(tried, int(axes.gpu_count)) & small & (rates > 0)
        if fits.any():
            best = int(np.argmax(np.where(fits, rates, 0.0)))
            lighter = tried.take(best)
            text = f"offload {offload}, with {described(lighter.layout())}"
            total, rate = float(needed[best]), float(rates[best])
            return Change("offload", text, lighter, total, rate, offload)
    return None


def _keeping(
    case: RunCase, layouts: LayoutModels, offload: Offload
) -> tuple[RunCase, LayoutModels]:
    """The same run with more of its state on the host."""
    run = case.run.model_copy(update={"offload": offload})
    rules = replace(layouts.rules, offloads_weights=offload == "optimizer_and_parameters")
    kept = replace(layouts, rules=rules, memory=replace(layouts.memory, run=run))
    speed = case.speed
    if speed is not None:
        mechanism = speed.mechanism and replace(speed.mechanism, offload=offload)
        speed = replace(speed, run=run, mechanism=mechanism)
    return replace(case, run=run, speed=speed, layouts=kept), kept


def usable_counts(case: RunCase, layouts: LayoutModels, degrees: LayoutAxes) -> list[int]:
    """GPU counts on which some layout is legal, in whole multiples of what is rented."""
    counts = layouts.rules.usable_gpu_counts(degrees)
    whole = [count for count in counts if count % case.gpu_multiple == 0]
    return whole or counts
