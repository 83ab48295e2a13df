"""What a training step sends, over which link, how long it takes, and how that grows with GPUs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from service.core.answers import EstimateAnswer, shared_fields
from service.core.estimates import Infeasibility
from service.core.parallelism import ParallelLayout
from service.core.parallelism.axes import LayoutAxes
from service.core.run.case import LayoutModels, RunCase
from service.core.run.choice import Choice
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import TrainingQuestion, case_of, chosen_layout, given_count
from service.core.value import MAX_COUNT, MAX_TOKENS, Count, Value

Link = Literal["scale_up", "scale_out"]


class CommunicationQuestion(TrainingQuestion):
    """The traffic of one training run."""

    curve_gpu_counts: Annotated[tuple[Count, ...], Field(max_length=20)] = ()
    """GPU counts for the scaling curve; doublings and halvings of the run's when empty."""


class Collective(Value):
    """One kind of exchange of a step, as one GPU sees it."""

    kind: Literal["tensor", "context", "expert", "pipeline", "data"]
    """Which kind of parallelism it belongs to."""
    link: Link
    """Link that it crosses: inside the scale-up domain, or between nodes."""
    bytes_per_step: float
    """Bytes that one GPU sends in a step."""
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


class CommunicationAnswer(EstimateAnswer):
    """What the network costs a step."""

    layout: ParallelLayout | None
    """The layout that is counted."""
    collectives: tuple[Collective, ...]
    """Exchanges of one step."""
    step_s: float | None
    """Time of one step."""
    exposed_s_per_step: float | None
    """Part of it that waits for the network."""
    exposed_fraction: float | None
    """The same as a share of the step."""
    limiting_link: Link | None
    """Link that is busy longest."""
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
        shown = _shown(case, case.layouts, found.axes, found.rate)
    refused: tuple[Infeasibility, ...] = () if isinstance(found, Choice) else (found,)
    return CommunicationAnswer(
        **shared_fields(recorder, infeasibilities=refused),
        **shown,
        scaling=_curve(question, snapshot, count),
    )


def _shown(case: RunCase, layouts: LayoutModels, axes: LayoutAxes, rate: float) -> dict[str, Any]:
    recorder, network = case.recorder, layouts.network
    found = tuple(Collective(**entry) for entry in network.collectives(axes, recorder))
    step = float(network.step_s(axes, rate))
    exposed = float(network.traffic(axes, rate, recorder).exposed_s)
    if case.speed is not None and case.speed.mechanism is not None:
        exposed = float(case.speed.mechanism.shares(axes, recorder).network_s)
    busy = dict.fromkeys(("scale_up", "scale_out"), 0.0)
    for entry in found:
        busy[entry.link] += entry.seconds_per_step
    network.publish(axes, rate, recorder)
    return {
        "layout": axes.layout(),
        "collectives": found,
        "step_s": step,
        "exposed_s_per_step": exposed,
        "exposed_fraction": min(1.0, exposed / step),
        "limiting_link": max(busy, key=lambda link: busy[link]) if any(busy.values()) else None,
    }


def _curve(
    question: CommunicationQuestion, snapshot: CatalogSnapshot, count: int
) -> tuple[ScalingPoint, ...]:
    counts = question.curve_gpu_counts or tuple(
        n for n in (count // 4, count // 2, count, 2 * count, 4 * count) if 0 < n <= MAX_COUNT
    )
    return tuple(
        ScalingPoint(
            gpu_count=n,
            strong_tokens_per_s_per_gpu=_rate(question, snapshot, n, 1.0),
            weak_tokens_per_s_per_gpu=_rate(question, snapshot, n, n / count),
        )
        for n in sorted(set(counts))
    )


def _rate(
    question: CommunicationQuestion, snapshot: CatalogSnapshot, gpu_count: int, growth: float
) -> float | None:
    """Speed on so many GPUs with the layout chosen anew, and a batch of whole sequences."""
    run = question.run
    length = run.sequence_length_tokens
    batch = max(1, round(run.global_batch_tokens * growth / length)) * length
    if batch > MAX_TOKENS:
        return None
    sizing = {"kind": "gpu_count", "gpu_count": gpu_count}
    document = run.model_dump() | {
        "sizing": sizing,
        "global_batch_tokens": batch,
        "architecture": run.architecture,
        "gpu": run.gpu,
        "layout": {"kind": "auto"} if run.speed.kind == "estimated" else run.layout,
    }
    changed = question.model_copy(update={"run": type(run).model_validate(document)})
    case, _ = case_of(changed, snapshot)
    found = chosen_layout(case, gpu_count)
    return found.rate if isinstance(found, Choice) else None
