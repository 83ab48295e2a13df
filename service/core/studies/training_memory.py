"""Memory of a training run, stage by stage, beside what serving the same model takes."""

from dataclasses import fields
from typing import Any

from service.core.answers import EstimateAnswer, shared_fields
from service.core.estimates import TrainingMemory
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.parallelism import ParallelLayout
from service.core.run.case import LayoutModels, RunCase
from service.core.run.choice import Choice
from service.core.run.layouts import LayoutAxes
from service.core.run.memory import MemoryTerms, available_bytes
from service.core.scenarios.stacks import STACKS, SoftwareStack, stack_of
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import (
    TrainingQuestion,
    case_of,
    chosen_layout,
    given_count,
    named_axes,
)
from service.core.units import BYTES_PER_GIB
from service.core.value import Value


class StageMemory(Value):
    """Memory of one GPU of the first or of the last pipeline stage, in GiB."""

    stage: int
    """Number of the stage, from 0."""
    weights: float
    """Weights, with those gathered from other GPUs."""
    gradients: float
    """Gradients, with those not yet reduced."""
    optimizer: float
    """Master copy and moments."""
    activations: float
    """What the backward pass keeps."""
    logits: float
    """Copies of the logits."""
    overhead: float
    """Context, collectives, fragmentation."""
    total: float
    """Everything."""


class ServingBars(Value):
    """What serving the same model takes, in GiB over all GPUs of a replica."""

    weights: float
    """Weights in 16 bit."""
    cache_per_sequence: float
    """Keys and values of one sequence of the run's length in 16 bit; windows are cut."""


class TrainingMemoryAnswer(EstimateAnswer):
    """Whether a run fits, and where its memory goes."""

    layout: ParallelLayout | None
    """The layout that is shown; null when there is none to show."""
    software_stack: SoftwareStack | None
    """The stack whose copies and buffers are counted."""
    memory_gib_per_gpu: TrainingMemory | None
    """Memory of the fullest GPU and the verdict."""
    margin_gib: float | None
    """What is left of the memory that programs can address; below zero it does not fit."""
    measured_over_estimate_low: float | None
    """10th percentile of measured peaks over this estimate."""
    measured_over_estimate_high: float | None
    """90th percentile of measured peaks over this estimate."""
    stages: tuple[StageMemory, ...]
    """First and last stage; those between hold less than the first."""
    textbook_activations_gib: float | None
    """Activations without recompute by the textbook count of 34 bytes per token and hidden unit."""
    nearest_fix: str | None
    """The smallest change that fits, when it does not."""
    serving: ServingBars | None
    """What serving the same model takes."""


NOTHING: dict[str, Any] = {
    "layout": None,
    "software_stack": None,
    "memory_gib_per_gpu": None,
    "margin_gib": None,
    "measured_over_estimate_low": None,
    "measured_over_estimate_high": None,
    "stages": (),
    "textbook_activations_gib": None,
}
"""What an answer shows without a layout."""


def estimate_training_memory(
    question: TrainingQuestion, snapshot: CatalogSnapshot
) -> TrainingMemoryAnswer:
    """Count the memory of a run under its own layout, or under the fastest that fits.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    case, recorder = case_of(question, snapshot)
    count = given_count(case)
    found = chosen_layout(case, count)
    axes = found.axes if isinstance(found, Choice) else named_axes(case, count)
    refused = () if isinstance(found, Choice) else (found,)
    shown = NOTHING if axes is None or case.layouts is None else _shown(case, case.layouts, axes)
    return TrainingMemoryAnswer(
        **shared_fields(recorder, infeasibilities=refused),
        **shown,
        nearest_fix=None if isinstance(found, Choice) else found.nearest_fix,
        serving=_serving(case),
    )


def _shown(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> dict[str, Any]:
    """What an answer shows of one layout."""
    recorder, model = case.recorder, layouts.memory
    stack = model.named_stack or stack_of(bool(axes.is_split))
    memory = model.answer(axes, recorder)
    band = recorder.assume("training_memory_residual_factor", _kind(case, axes))
    ends = {True: 0, False: int(axes.pipeline) - 1}
    stages = {
        number: model.on_stage(axes, recorder.off(), STACKS[stack], is_first=is_first)
        for is_first, number in ends.items()
    }
    return {
        "layout": axes.layout(),
        "software_stack": stack,
        "memory_gib_per_gpu": memory,
        "margin_gib": available_bytes(case.gpu, recorder) / BYTES_PER_GIB - memory.total,
        "measured_over_estimate_low": band.low,
        "measured_over_estimate_high": band.high,
        "stages": tuple(_stage(number, terms) for number, terms in sorted(stages.items())),
        "textbook_activations_gib": float(model.textbook_activation_bytes(axes)) / BYTES_PER_GIB,
    }


def _kind(case: RunCase, axes: LayoutAxes) -> str:
    """Class of layouts whose measured peaks tell the band."""
    if case.run.adapter is not None:
        return "adapter"
    if axes.pipeline > 1 or axes.tensor > 1:
        return "split"
    return "single" if axes.data == 1 else "sharded"


def _stage(number: int, terms: MemoryTerms) -> StageMemory:
    gib = {f.name: float(getattr(terms, f.name)) / BYTES_PER_GIB for f in fields(MemoryTerms)}
    return StageMemory(stage=number, **gib)


def _serving(case: RunCase) -> ServingBars | None:
    """Weights and one sequence's cache in 16 bit, from the same architecture."""
    architecture, length = case.architecture, case.run.sequence_length_tokens
    if architecture is None or not architecture.has_layers:
        return None
    cached = sum(
        group.count
        * group.attention.cache_elements_per_token
        * min(length, group.attention.span_tokens or length)
        + group.count * group.attention.state_elements_per_sequence
        for group in architecture.layer_groups
    )
    weights = architecture.parameter_count + architecture.tower_parameter_count
    return ServingBars(
        weights=ELEMENT_BYTES * weights / BYTES_PER_GIB,
        cache_per_sequence=ELEMENT_BYTES * cached / BYTES_PER_GIB,
    )
