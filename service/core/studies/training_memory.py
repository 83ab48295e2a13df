"""Memory of a training run, stage by stage, beside what serving the same model takes."""

from typing import Any

import numpy as np

from service.core.advice.advisories import memory_may_not_fit, memory_not_checked
from service.core.answers import EstimateAnswer, shared_fields
from service.core.estimates import TrainingMemory, Verdict
from service.core.parallelism import ParallelLayout
from service.core.parallelism.axes import LayoutAxes
from service.core.run.case import LayoutModels, RunCase
from service.core.run.changes import Change, ChangeKind, changes_that_fit, least_axes
from service.core.run.choice import Choice
from service.core.run.memory import COARSE_TERMS, MemoryTerms, available_bytes, verdict
from service.core.run.rates import possible_rates
from service.core.scenarios.stacks import STACKS, LossKind, SoftwareStack, stack_of
from service.core.scenarios.training_state import Offload
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import (
    TrainingQuestion,
    case_of,
    chosen_layout,
    given_count,
    named_axes,
)
from service.core.studies.training_serving import ServingBars, serving_bars
from service.core.units import BYTES_PER_GIB
from service.core.value import Value


class StageMemory(Value):
    """Memory of one GPU of one pipeline stage, in GiB."""

    stage: int
    """Number of the stage, from 0."""
    layer_count: int
    """Layers of the stage."""
    micro_batches_in_flight: float
    """Micro-batches whose activations the stage holds at once; parts of one when interleaved."""
    weights: float
    """Weights, with those gathered from other GPUs."""
    gathered_weights: float
    """Of the weights: held only while layers are computed."""
    gradients: float
    """Gradients, with those not yet reduced."""
    unreduced_gradients: float
    """Of the gradients: held until they are reduced."""
    optimizer: float
    """Master copy and moments."""
    master_weights: float
    """Of the optimizer: the copy that it updates; the rest are moments."""
    activations: float
    """What the backward pass keeps."""
    logits: float
    """Copies of the logits."""
    overhead: float
    """Framework, collective buffers and fragmentation."""
    framework: float
    """Of the overhead: context, workspaces, and a copy of the weights at the update."""
    collective_buffers: float
    """Of the overhead: buffers of groups, buckets, and of hand-over between stages."""
    fragmentation: float
    """Of the overhead: what the allocator loses."""
    total: float
    """Everything."""


class HostMemory(Value):
    """State that is kept in the memory of the hosts, in GiB."""

    per_gpu: float
    """Of one GPU on the fullest stage, with buffers."""
    per_node: float
    """Of all GPUs of one node."""
    node_gpu_count: int
    """GPUs of one node."""
    available_per_node: float | None
    """Memory of the catalog's usual node; null where the catalog does not know it."""
    verdict: Verdict | None
    """Needed against available; null where that is not known."""


class FittingChange(Value):
    """One change under which the run fits, counted again."""

    kind: ChangeKind
    """What is changed."""
    change: str
    """The change in words."""
    gpu_count: int
    """GPUs then used."""
    layout: ParallelLayout
    """The layout then used."""
    offload: Offload
    """What is then kept on the host."""
    loss: LossKind | None
    """The loss then used; null for what the stack usually has."""
    tokens_per_s_per_gpu: float | None
    """Speed of one GPU then; null where the speed is given and so the same with all of them."""
    speed_kept_fraction: float | None
    """That speed over what the layout that does not fit would reach; null where either is not
    known."""
    total_gib: float
    """Memory of the fullest GPU."""
    margin_gib: float
    """What is left of the memory that programs can address."""
    verdict: Verdict
    """Total against available."""


class TrainingMemoryAnswer(EstimateAnswer):
    """Whether a run fits, and where its memory goes."""

    layout: ParallelLayout | None
    """The layout that is shown: the named one, else the fastest that fits, else the one that needs
    least; null when there is none to show."""
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
    """Every pipeline stage."""
    fullest_stage: int | None
    """Number of the stage that decides."""
    textbook_activations_gib: float | None
    """First stage without recompute by the textbook count of 34 bytes per token and hidden unit."""
    exact_activations_gib: float | None
    """The same summed from the architecture's own layers; this sum is the one that is used."""
    host_memory_gib: HostMemory | None
    """What offloaded state takes of the hosts; null when nothing is offloaded."""
    nearest_fix: str | None
    """The change that comes first, when it does not."""
    fitting_changes: tuple[FittingChange, ...]
    """Changes that make it fit, the smallest of each kind: on the same GPUs, those that keep most
    speed before others; then more GPUs, then the host; empty when memory is not what lacks."""
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
    "fullest_stage": None,
    "textbook_activations_gib": None,
    "exact_activations_gib": None,
    "host_memory_gib": None,
    "fitting_changes": (),
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
    if axes is None and not isinstance(found, Choice) and found.code == "memory":
        axes = least_axes(case, count)
    shown, held = NOTHING, None
    if axes is not None and case.layouts is not None:
        shown = _shown(case, case.layouts, axes)
        # Every stage stands on as many GPUs as any other.
        held = np.mean([stage.total for stage in shown["stages"]]) * count
        # Changes are counted for the batch as it stands, so they do not mend another refusal.
        if not isinstance(found, Choice) and found.code == "memory":
            shown |= {"fitting_changes": _changes(case, case.layouts, axes, count)}
    told = [memory_not_checked(case.run, case.architecture)]
    if isinstance(found, Choice):
        told.append(memory_may_not_fit(case.run.name, shown["memory_gib_per_gpu"]))
    return TrainingMemoryAnswer(
        **shared_fields(
            recorder,
            infeasibilities=() if isinstance(found, Choice) else (found,),
            advisories=tuple(advisory for advisory in told if advisory),
        ),
        **shown,
        nearest_fix=None if isinstance(found, Choice) else found.nearest_fix,
        serving=serving_bars(case, held),
    )


def _shown(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> dict[str, Any]:
    """What an answer shows of one layout."""
    recorder, model = case.recorder, layouts.memory
    memory = model.answer(axes, recorder)
    band = recorder.assume("training_memory_residual_factor")
    stages = _stages(case, layouts, axes)
    totals = [stage.total for stage in stages]
    return {
        "layout": axes.layout(),
        "software_stack": _stack(layouts, axes),
        "memory_gib_per_gpu": memory,
        "margin_gib": available_bytes(case.gpu, recorder) / BYTES_PER_GIB - memory.total,
        "measured_over_estimate_low": band.low,
        "measured_over_estimate_high": band.high,
        "stages": stages,
        "fullest_stage": int(np.argmax(totals)),
        "textbook_activations_gib": float(model.textbook_activation_bytes(axes)) / BYTES_PER_GIB,
        "exact_activations_gib": model.exact_activation_bytes(axes, recorder.off()) / BYTES_PER_GIB,
        "host_memory_gib": _host(case, layouts, axes),
        "fitting_changes": (),
    }


def _stack(layouts: LayoutModels, axes: LayoutAxes) -> SoftwareStack:
    return layouts.memory.named_stack or stack_of(bool(axes.is_split))


def _stages(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> tuple[StageMemory, ...]:
    model, quiet = layouts.memory, case.recorder.off()
    traits = STACKS[_stack(layouts, axes)]
    return tuple(
        _stage(layouts, axes, number, model.on_stage(axes, quiet, traits, stage=number))
        for number in range(int(axes.pipeline))
    )


def _stage(layouts: LayoutModels, axes: LayoutAxes, number: int, terms: MemoryTerms) -> StageMemory:
    chunk_layers, chunks = layouts.memory.in_flight(axes, number)
    parts = terms.gib(
        (
            *COARSE_TERMS,
            "gathered_weights",
            "unreduced_gradients",
            "master_weights",
            "framework",
            "collective_buffers",
        )
    )
    return StageMemory(
        stage=number,
        layer_count=round(float(chunk_layers * axes.virtual)),
        micro_batches_in_flight=float(chunks / axes.virtual),
        fragmentation=parts["overhead"] - parts["framework"] - parts["collective_buffers"],
        **parts,
    )


def _host(case: RunCase, layouts: LayoutModels, axes: LayoutAxes) -> HostMemory | None:
    if case.run.offload == "none":
        return None
    need = layouts.host_need(axes, case.recorder.off())
    share = None if need.available is None else float(need.per_node) / need.available
    return HostMemory(
        per_gpu=float(need.per_gpu) / BYTES_PER_GIB,
        per_node=float(need.per_node) / BYTES_PER_GIB,
        node_gpu_count=case.gpu.node_gpu_count,
        available_per_node=None if need.available is None else need.available / BYTES_PER_GIB,
        verdict=None if share is None else verdict(share, case.recorder),
    )


def _changes(
    case: RunCase, layouts: LayoutModels, axes: LayoutAxes, count: int
) -> tuple[FittingChange, ...]:
    available = available_bytes(case.gpu, case.recorder.off())
    among = None
    if case.given_layout is None:
        among = layouts.rules.candidates(layouts.degrees, count)
    before = float(possible_rates(case, axes))
    return tuple(
        _fitting(case, change, available, before)
        for change in changes_that_fit(case, layouts, axes, among)
    )


def _fitting(case: RunCase, change: Change, available: float, before: float) -> FittingChange:
    is_estimated = case.run.speed.kind == "estimated"
    return FittingChange(
        kind=change.kind,
        change=change.text,
        gpu_count=int(change.axes.gpu_count),
        layout=change.axes.layout(),
        offload=change.offload or case.run.offload,
        loss=change.loss or case.run.loss,
        tokens_per_s_per_gpu=change.rate if is_estimated else None,
        speed_kept_fraction=change.rate / before if is_estimated and before > 0 else None,
        total_gib=change.needed_bytes / BYTES_PER_GIB,
        margin_gib=(available - change.needed_bytes) / BYTES_PER_GIB,
        verdict=verdict(change.needed_bytes / available, case.recorder.off()),
    )
