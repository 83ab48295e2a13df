"""What would make a run fit: changes of its layout, more GPUs, state on the host; each counted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np

from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.rules import described, nearest
from service.core.run.case import LayoutModels, RunCase
from service.core.run.memory import available_bytes
from service.core.scenarios.training_state import Offload

ChangeKind = Literal[
    "sharding",
    "micro_batch",
    "recompute",
    "several",
    "other_layout",
    "more_gpus",
    "offload",
]
"""What is changed to make a run fit; several is more than one of the first three."""

FIX_ATTEMPTS = 40
"""GPU counts that are tried to name the smallest on which a run fits."""
FURTHER_STEP = 1.2
"""Factor between the counts that are tried after those."""
KNOBS: dict[str, ChangeKind] = {
    "sharding": "sharding",
    "micro_batch_sequences": "micro_batch",
    "recompute": "recompute",
}
"""What can change without moving weights to other GPUs, in the order in which it is named."""


@dataclass(frozen=True)
class Change:
    """A change that makes a layout fit."""

    kind: ChangeKind
    text: str
    axes: LayoutAxes
    """The layout as changed."""
    needed_bytes: float
    """What its fullest GPU then holds."""
    offload: Offload | None = None
    """What is then kept on the host, where that is the change."""


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


def changes_that_fit(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> tuple[Change, ...]:
    """What makes a layout fit, the smallest change of each kind, each counted again.

    First those on the same GPUs (more sharding, smaller micro-batches, more recompute, alone before
    together; then the nearest other layout), then more GPUs, then state kept on the host.
    """
    count = int(axes.gpu_count)
    found = list(_lighter(case, layouts, axes))
    other = _other_layout(case, layouts, axes) if not found else None
    wider = layouts.rules.wider(axes)
    small, needed, _ = judged(case, layouts, wider)
    fits = layouts.rules.legal(wider, wider.gpu_count) & small
    if fits.any():
        first = int(np.argmax(fits))
        more = wider.take(first)
        text = f"this layout on {int(more.gpu_count)} GPUs"
        found.append(Change("more_gpus", text, more, float(needed[first])))
    else:
        found += [change] if (change := on_more_gpus(case, layouts, count)) else []
    offload = _offloaded(case, layouts, axes)
    return tuple(change for change in (*([other] if other else []), *found, offload) if change)


def _lighter(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Iterator[Change]:
    """Changes of sharding, micro-batch and recompute that fit, none of which holds another."""
    tried = layouts.rules.lighter(axes)
    small, needed, _ = judged(case, layouts, tried)
    fits = layouts.rules.legal(tried, int(axes.gpu_count)) & small
    changed = np.array([getattr(tried, name) != getattr(axes, name) for name in KNOBS])
    halvings = np.log2(axes.micro_batch_sequences / tried.micro_batch_sequences)
    steps = (tried.sharding - axes.sharding) + (tried.recompute - axes.recompute) + halvings
    taken: list[set[str]] = []
    for index in np.lexsort((steps, changed.sum(axis=0))):
        knobs = {
            name for name, is_changed in zip(KNOBS, changed[:, index], strict=True) if is_changed
        }
        if not fits[index] or not knobs or any(fewer <= knobs for fewer in taken):
            continue
        taken.append(knobs)
        lighter = tried.take(int(index))
        layout = lighter.layout()
        text = " and ".join(f"{name} {getattr(layout, name)}" for name in KNOBS if name in knobs)
        kind = KNOBS[next(iter(knobs))] if len(knobs) == 1 else "several"
        yield Change(kind, text, lighter, float(needed[index]))


def _other_layout(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> Change | None:
    """The nearest layout on the same GPUs that fits."""
    count = int(axes.gpu_count)
    legal = layouts.rules.candidates(layouts.rules.degrees(), count)
    near = nearest(legal.take(judged(case, layouts, legal)[0]), axes)
    if near is None:
        return None
    text = f"on {count} GPUs: {described(near.layout())}"
    total = judged(case, layouts, near)[1]
    return Change("other_layout", text, near, float(total))


def on_more_gpus(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Change | None:
    """The smallest larger GPU count on which any layout fits, with the layout that needs least."""
    fewest = ceil(_least_state_bytes(layouts) / available_bytes(case.gpu, case.recorder.off()))
    degrees = layouts.rules.degrees()
    counts = usable_counts(case, layouts, degrees)
    tried = _tried([n for n in counts if n > gpu_count and n >= fewest])
    return _first_that_fits(case, layouts, degrees, tried)


def on_fewer_gpus(case: RunCase, layouts: LayoutModels, gpu_count: int) -> Change | None:
    """The largest smaller GPU count on which any layout fits, with the layout that needs least."""
    degrees = layouts.rules.degrees()
    counts = [n for n in usable_counts(case, layouts, degrees) if n < gpu_count]
    return _first_that_fits(case, layouts, degrees, counts[: -FIX_ATTEMPTS - 1 : -1])


def _first_that_fits(
    case: RunCase, layouts: LayoutModels, degrees: LayoutAxes, counts: Iterable[int]
) -> Change | None:
    """The first of these GPU counts on which any layout fits."""
    for count in counts:
        axes = layouts.rules.candidates(degrees, count, leanest=True)
        fits, needed, _ = judged(case, layouts, axes)
        if np.any(fits):
            best = int(np.argmin(np.where(fits, needed, np.inf)))
            least = axes.take(best)
            text = f"{count} GPUs, such as {described(least.layout())}"
            return Change("more_gpus", text, least, float(needed[best]))
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
    """The same GPUs with as little as possible kept on the host, and the lightest layout."""
    offloads: tuple[Offload, ...] = ("optimizer", "optimizer_and_parameters")
    for offload in offloads if case.run.offload == "none" else ():
        run = case.run.model_copy(update={"offload": offload})
        rules = replace(layouts.rules, offloads_weights=offload == "optimizer_and_parameters")
        kept = replace(layouts, rules=rules, memory=replace(layouts.memory, run=run))
        tried = rules.lighter(axes)
        small, needed, _ = judged(case, kept, tried)
        fits = rules.legal(tried, int(axes.gpu_count)) & small
        if fits.any():
            first = int(np.argmax(fits))
            lighter = tried.take(first)
            text = f"offload {offload}, with {described(lighter.layout())}"
            return Change("offload", text, lighter, float(needed[first]), offload)
    return None


def usable_counts(case: RunCase, layouts: LayoutModels, degrees: LayoutAxes) -> list[int]:
    """GPU counts on which some layout is legal, in whole multiples of what is rented."""
    counts = layouts.rules.usable_gpu_counts(degrees)
    whole = [count for count in counts if count % case.gpu_multiple == 0]
    return whole or counts
