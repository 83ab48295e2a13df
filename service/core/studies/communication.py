"""What a training step sends, over which link, how long it takes, and how that grows with GPUs."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from service.core.answers import EstimateAnswer, shared_fields
from service.core.errors import NoConstants
from service.core.estimates import Advisory, Infeasibility
from service.core.parallelism import ParallelLayout
from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.links import Link
from service.core.parallelism.rules import on_gpus
from service.core.run.case import LayoutModels, RunCase
from service.core.run.changes import fewest_gpu_count, judged
from service.core.run.choice import Choice, RankedLayouts, least_gpu_count
from service.core.run.network import Kind
from service.core.run.rates import is_possible, rate_of, untrainable
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import TrainingQuestion, case_of, chosen_layout, given_count
from service.core.value import MAX_COUNT, MAX_TOKENS, Count, Value

LayoutRule = Literal["own", "scaled", "chosen"]


class CommunicationQuestion(TrainingQuestion):
    """The traffic of one training run."""

    curve_gpu_counts: Annotated[tuple[Count, ...], Field(max_length=20)] = ()
    """GPU counts for the scaling curve; doublings and halvings of the run's when empty."""


class Collective(Value):
    """One kind of exchange of a step over one link, as one GPU sees it."""

    kind: Kind
    """Which kind of parallelism it belongs to."""
    link: Link
    """Link that it crosses: inside the scale-up domain, over the host ("pcie") between GPUs of a
    node without a common link, or between nodes. What crosses two of them has an entry for each."""
    bytes_per_step: float
    """Bytes that one GPU sends over that link in a step."""
    seconds_per_step: float
    """Time on the link if nothing else used it and nothing were hidden."""


class ScalingPoint(Value):
    """Speed of one GPU when the run has so many."""

    gpu_count: int
    """GPUs."""
    strong_tokens_per_s_per_gpu: float | None
    """With the run's own global batch; null where no layout is legal and fits."""
    weak_tokens_per_s_per_gpu: float | None
    """With a batch that grows with the GPUs; null where no layout is legal and fits."""
    strong_layout: ParallelLayout | None
    """The layout of the first speed; null where the layers are not known, too."""
    weak_layout: ParallelLayout | None
    """The layout of the second."""
    layout_rule: LayoutRule
    """Where these layouts come from: "own" is the run itself; "scaled" its given layout, whose
    copies fill the GPUs; "chosen" the fastest that fits, found anew."""


class CommunicationAnswer(EstimateAnswer):
    """What the network costs a step."""

    layout: ParallelLayout | None
    """The layout that is counted."""
    collectives: tuple[Collective, ...]
    """Exchanges of one step."""
    step_s: float | None
    """Time of one step."""
    exposed_s_per_step: float | None
    """Part of it that waits for the network; more than the step where a given speed is faster than
    the network lets it be, which an advisory says."""
    exposed_fraction: float | None
    """The same as a share of the step."""
    limiting_link: Link | None
    """Link that is busy longest."""
    is_speed_given: bool
    """True where the request gives the speed: it is then the same on every number of GPUs, and the
    curve says only where a layout is legal and fits."""
    scaling: tuple[ScalingPoint, ...]
    """The curve over GPU counts."""


def estimate_communication(
    question: CommunicationQuestion, snapshot: CatalogSnapshot
) -> CommunicationAnswer:
    """Count what one step sends, and how speed changes with the GPUs.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    case, recorder = case_of(question, snapshot)
    count = given_count(case)
    found = chosen_layout(case, count)
    shown: dict[str, Any] = {
        "layout": None,
        "collectives": (),
        "step_s": None,
        "exposed_s_per_step": None,
        "exposed_fraction": None,
        "limiting_link": None,
    }
    if isinstance(found, Choice) and found.axes is not None and case.layouts is not None:
        step_s = float(case.layouts.network.step_s(found.axes, found.rate))
        shown = _shown(case, found.axes, found.rate, step_s)
    refused: tuple[Infeasibility, ...] = () if isinstance(found, Choice) else (found,)
    return CommunicationAnswer(
        **shared_fields(recorder, infeasibilities=refused, advisories=_outrun(case, shown)),
        **shown,
        is_speed_given=case.run.speed.kind != "estimated",
        scaling=_curve(question, case, found if isinstance(found, Choice) else None, count),
    )


def _outrun(case: RunCase, shown: dict[str, Any]) -> tuple[Advisory, ...]:
    """A given speed whose step is shorter than what its network takes beside all computing."""
    step_s, exposed_s = shown["step_s"], shown["exposed_s_per_step"]
    if step_s is None or exposed_s <= step_s:
        return ()
    message = (
        f"The given speed means a step of {step_s:,.4g} s, but the network takes "
        f"{exposed_s:,.4g} s of each that no computing hides: these links do not reach such a "
        "speed."
    )
    return (Advisory(code="implausible_measurement", workload=case.run.name, message=message),)


def _shown(case: RunCase, axes: LayoutAxes, rate: float, step_s: float) -> dict[str, Any]:
    traffic = case.traffic(axes, rate, case.recorder)
    if traffic is None:
        raise LookupError("a run with a layout has layers")
    traffic.publish(step_s, case.recorder)
    exposed = float(traffic.exposed_s)
    busy = {link: float(seconds) for link, seconds in traffic.link_s.items()}
    return {
        "layout": axes.layout(),
        "collectives": tuple(
            Collective(kind=kind, link=link, bytes_per_step=sent, seconds_per_step=seconds)
            for kind, link, sent, seconds in traffic.collectives()
        ),
        "step_s": step_s,
        "exposed_s_per_step": exposed,
        "exposed_fraction": min(1.0, exposed / step_s),
        "limiting_link": max(busy, key=lambda link: busy[link]) if any(busy.values()) else None,
    }


def _curve(
    question: CommunicationQuestion, case: RunCase, own: Choice | None, count: int
) -> tuple[ScalingPoint, ...]:
    counts = question.curve_gpu_counts or tuple(
        n for n in (count // 4, count // 2, count, 2 * count, 4 * count) if 0 < n <= MAX_COUNT
    )
    given: LayoutRule = "chosen" if case.given_layout is None else "scaled"
    return tuple(
        _point(n, "own", own, own)
        if n == count
        else _point(n, given, _scaled(case, n, 1.0), _scaled(case, n, n / count))
        for n in sorted(set(counts))
    )


def _point(
    gpu_count: int, rule: LayoutRule, strong: Choice | None, weak: Choice | None
) -> ScalingPoint:
    return ScalingPoint(
        gpu_count=gpu_count,
        strong_tokens_per_s_per_gpu=strong.rate if strong else None,
        weak_tokens_per_s_per_gpu=weak.rate if weak else None,
        strong_layout=_layout(strong),
        weak_layout=_layout(weak),
        layout_rule=rule,
    )


def _layout(choice: Choice | None) -> ParallelLayout | None:
    return None if choice is None or choice.axes is None else choice.axes.layout()


def _scaled(case: RunCase, gpu_count: int, growth: float) -> Choice | None:
    """The run on so many GPUs, its batch grown to whole sequences; None where it has no layout."""
    length = case.run.sequence_length_tokens
    sequences = max(1, round(case.run.global_batch_tokens * growth / length))
    if sequences * length > MAX_TOKENS or untrainable(case) is not None:
        return None
    changed = replace(case.with_batch(sequences), recorder=case.recorder.off())
    try:
        return _found(changed, gpu_count)
    except NoConstants:
        return None


def _found(case: RunCase, gpu_count: int) -> Choice | None:
    """The layout that the run has there: its own if it names one, else the fastest that fits."""
    layouts, given = case.layouts, case.given_layout
    if layouts is None:
        return _choice(case, gpu_count, None) if gpu_count >= least_gpu_count(case) else None
    if given is None:
        axes = _fastest(case, layouts, gpu_count)
        return None if axes is None else _choice(case, gpu_count, axes)
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    if layouts.rules.fault(axes, gpu_count) is not None or not judged(case, layouts, axes)[0]:
        return None
    return _choice(case, gpu_count, axes)


def _fastest(case: RunCase, layouts: LayoutModels, gpu_count: int) -> LayoutAxes | None:
    """The fastest legal layout that fits; no speed is estimated of those that do not."""
    if gpu_count < fewest_gpu_count(case, layouts):
        return None
    axes = layouts.rules.candidates(layouts.degrees, gpu_count)
    if axes.tensor.shape == (0,):
        return None
    fits, needed, limit = judged(case, layouts, axes)
    if not np.any(fits):
        return None
    some, kept = axes.take(fits), fits[fits]
    rate = np.broadcast_to(rate_of(case, some, case.recorder)[0], kept.shape)
    found = RankedLayouts(some, rate, is_possible(case, some, rate), kept, needed[fits], limit)
    best = found.fastest(case, layouts)
    return None if best is None else some.take(best)


def _choice(case: RunCase, gpu_count: int, axes: LayoutAxes | None) -> Choice:
    rate, factors = rate_of(case, axes, case.recorder)
    return Choice(gpu_count, axes, float(rate), tuple(factors))
