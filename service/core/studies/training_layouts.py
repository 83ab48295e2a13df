"""How a run can be spread over GPUs: the fastest layout, memory against speed, the obvious ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from service.core.answers import EstimateAnswer, shared_fields
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Verdict
from service.core.formulas.communication import LARGEST_SERVER_GPU_COUNT
from service.core.parallelism import AutoLayout, ParallelLayout
from service.core.parallelism.axes import SHARDINGS, LayoutAxes
from service.core.run.case import LayoutModels, RunCase
from service.core.run.choice import Choice, RankedLayouts, ranked
from service.core.run.memory import verdict
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import TrainingQuestion, case_of, chosen_layout, given_count
from service.core.units import BYTES_PER_GIB
from service.core.value import Flag, Value

CLOSER_THAN = 1.001
"""Speeds of the frontier that are nearer to each other are one."""
RACK_GROUP = 8
"""GPUs of the tensor-parallel group that one would try first in a rack that is one node."""
ObviousName = Literal[
    "plain_data_parallel",
    "sharded_optimizer",
    "sharded_weights",
    "sharded_inside_nodes",
    "tensor_parallel_node",
    "pipeline_alone",
    "tensor_and_pipeline",
    "expert_parallel_alone",
]


class LayoutPoint(Value):
    """One layout with what it needs and how fast it is."""

    layout: ParallelLayout
    """The layout."""
    total_gib: float
    """Memory of the fullest GPU."""
    margin_gib: float
    """What is left of the memory that programs can address; below zero it is exceeded."""
    verdict: Verdict
    """Total against what programs can address."""
    fits: Flag
    """True when the run could use it."""
    tokens_per_s_per_gpu: float
    """Speed of one GPU."""
    speed_over_chosen_fraction: float | None
    """Speed over that of the chosen layout; null when nothing fits."""


class ObviousLayout(Value):
    """The best of one obvious kind of layout, or why the kind fails."""

    kind: ObviousName
    """Which kind: whole copies without sharding, with zero_1, with zero_3, with hybrid sharding;
    tensor parallelism over a node without a pipeline; a pipeline without tensor parallelism; both;
    expert parallelism alone."""
    outcome: Literal["chosen", "slower", "memory", "layout"]
    """What became of it: it is the chosen one, it fits but is slower, memory ran out, a rule is
    broken."""
    why: str
    """The same in words, with numbers."""
    best: LayoutPoint | None
    """The fastest of the kind that fits, else the one that needs least; null when none is legal."""
    limit: str | None
    """What ran out, or the rule that is broken; null when it fits."""
    needed: float | None
    """What it needs, in GiB or as the rule counts."""
    available: float | None
    """What there is of it."""
    short_gib: float | None
    """By how much memory falls short; null when it does not."""


class TrainingLayoutsAnswer(EstimateAnswer):
    """Every legal layout of a run, judged."""

    legal_layout_count: int
    """Legal layouts that were judged."""
    fitting_layout_count: int
    """Those of them that fit."""
    chosen: LayoutPoint | None
    """The fastest that fits, whatever `layout` the run names; null when none does."""
    frontier: tuple[LayoutPoint, ...]
    """Layouts than which none is faster in less memory, from the leanest to the fastest; those that
    do not fit show what more memory would buy."""
    obvious: tuple[ObviousLayout, ...]
    """The layouts that one would try first, and why they are not chosen."""


@dataclass(frozen=True)
class _Kind:
    """One obvious kind: which layouts are of it, and the one that stands for it."""

    name: ObviousName
    words: str
    holds: Callable[[LayoutAxes], Any]
    degrees: dict[str, int]


def estimate_training_layouts(
    question: TrainingQuestion, snapshot: CatalogSnapshot
) -> TrainingLayoutsAnswer:
    """Search all layouts of a run on its GPUs; a layout that the run names is not looked at.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    automatic = question.run.model_copy(update={"layout": AutoLayout()})
    case, recorder = case_of(question.model_copy(update={"run": automatic}), snapshot)
    count = given_count(case)
    if case.layouts is None:
        raise InvalidScenario(
            "layouts can be searched only for an architecture that is described by its layers",
            pointer="/run/architecture",
        )
    choice = chosen_layout(case, count)
    refused = (choice,) if isinstance(choice, Infeasibility) else ()
    is_uneven = case.run.global_batch_tokens % case.run.sequence_length_tokens != 0
    is_unknown = any(reason.code in {"format", "no_constants"} for reason in refused)
    found = None if is_uneven or is_unknown else ranked(case, case.layouts, count)
    view = None if found is None else _View.of(case, case.layouts, found, choice)
    return TrainingLayoutsAnswer(
        **shared_fields(recorder, infeasibilities=refused),
        legal_layout_count=0 if found is None else len(found.rate),
        fitting_layout_count=0 if found is None else int((found.possible & found.fits).sum()),
        chosen=None if view is None or view.chosen is None else view.point(view.chosen),
        frontier=() if view is None else tuple(view.point(index) for index in view.frontier()),
        obvious=() if view is None else view.obvious(count),
    )


@dataclass(frozen=True)
class _View:
    """Judged layouts as an answer shows them."""

    case: RunCase
    layouts: LayoutModels
    found: RankedLayouts
    chosen: int | None
    available: float
    """Memory that programs can address. [B]"""

    @classmethod
    def of(
        cls,
        case: RunCase,
        layouts: LayoutModels,
        found: RankedLayouts,
        choice: Choice | Infeasibility,
    ) -> "_View":
        recorder = case.recorder
        share = recorder.assume("memory_amber_fraction").value
        chosen = found.fastest(case, layouts) if isinstance(choice, Choice) else None
        return cls(case, layouts, found, chosen, found.limit_bytes / share)

    def point(self, index: int) -> LayoutPoint:
        """One of the judged layouts."""
        found = self.found
        total, rate = float(found.needed_bytes[index]), float(found.rate[index])
        best = None if self.chosen is None else float(found.rate[self.chosen])
        return LayoutPoint(
            layout=found.axes.take(index).layout(),
            total_gib=total / BYTES_PER_GIB,
            margin_gib=(self.available - total) / BYTES_PER_GIB,
            verdict=verdict(total / self.available, self.case.recorder),
            fits=bool(found.fits[index]),
            tokens_per_s_per_gpu=rate,
            speed_over_chosen_fraction=None if best is None else rate / best,
        )

    def frontier(self) -> list[int]:
        """Layouts than which none is faster in less memory, by memory."""
        found = self.found
        usable = np.flatnonzero(found.possible)
        order = usable[np.lexsort((-found.rate[usable], found.needed_bytes[usable]))]
        kept: list[int] = []
        for index in order[_records(found.rate[order])]:
            if not kept or found.rate[index] > CLOSER_THAN * found.rate[kept[-1]]:
                kept.append(int(index))
        if self.chosen is not None and self.chosen not in kept:
            kept = self._with_chosen(kept, self.chosen)
        return kept

    def _with_chosen(self, kept: list[int], chosen: int) -> list[int]:
        """The chosen layout in the place of one as fast as it, to which it was preferred."""
        rate, needed = self.found.rate, self.found.needed_bytes
        apart = [
            index
            for index in kept
            if not rate[chosen] / CLOSER_THAN <= rate[index] <= rate[chosen] * CLOSER_THAN
        ]
        return sorted([*apart, chosen], key=lambda index: (needed[index], rate[index]))

    def obvious(self, gpu_count: int) -> tuple[ObviousLayout, ...]:
        """The best of each obvious kind, or why it fails."""
        return tuple(
            self._outcome(kind, gpu_count) for kind in _kinds(self.case, self.layouts, gpu_count)
        )

    def _outcome(self, kind: _Kind, gpu_count: int) -> ObviousLayout:
        found = self.found
        mine = found.possible & kind.holds(found.axes)
        if not np.any(mine):
            return self._illegal(kind, gpu_count)
        usable = mine & found.fits
        if not usable.any():
            return self._too_large(kind, int(np.argmin(np.where(mine, found.needed_bytes, np.inf))))
        if self.chosen is not None and usable[self.chosen]:
            return _told(
                kind, "chosen", "this is the fastest layout that fits", self.point(self.chosen)
            )
        best = self.point(int(np.argmax(np.where(usable, found.rate, -np.inf))))
        lost = 1.0 - (best.speed_over_chosen_fraction or 0.0)
        return _told(kind, "slower", f"fits, and is {lost:.1%} slower than the chosen layout", best)

    def _too_large(self, kind: _Kind, index: int) -> ObviousLayout:
        point, limit = self.point(index), self.found.limit_bytes / BYTES_PER_GIB
        share, short = self.found.limit_bytes / self.available, point.total_gib - limit
        if short < 0:
            return _told(kind, "memory", "the memory of the host is too small", point)
        text = (
            f"needs {point.total_gib:.1f} GiB on the fullest GPU, {short:.1f} GiB more "
            f"than {share:.0%} of what programs can address"
        )
        return _told(
            kind,
            "memory",
            text,
            point,
            limit=f"{share:.0%} of the memory that programs can address",
            needed=point.total_gib,
            available=limit,
            short_gib=short,
        )

    def _illegal(self, kind: _Kind, gpu_count: int) -> ObviousLayout:
        rules = self.layouts.rules
        copy = kind.degrees.get("tensor", 1) * kind.degrees.get("pipeline", 1)
        data = max(1, gpu_count // copy)
        base = {"tensor": 1, "pipeline": 1, "virtual": 1, "context": 1, "expert": 1, "sharding": 0}
        axes = LayoutAxes(
            **base | kind.degrees,
            data=data,
            micro_batch_sequences=1,
            micro_batch_count=max(1, rules.batch_sequences // data),
            recompute=0,
        )
        fault = rules.fault(axes, gpu_count)
        if fault is None:
            return _told(kind, "layout", "no layout of this kind is searched on so many GPUs", None)
        needed, available = float(fault.needed), float(fault.available)
        text = f"breaks the rule: {fault.limit} ({needed:g} against {available:g})"
        return _told(
            kind, "layout", text, None, limit=fault.limit, needed=needed, available=available
        )


def _records(rate: Any) -> Any:
    """True where a speed exceeds all before it."""
    before = np.concatenate(([-np.inf], np.maximum.accumulate(rate)[:-1]))
    return rate > before


def _told(
    kind: _Kind, outcome: Any, why: str, best: LayoutPoint | None, **numbers: Any
) -> ObviousLayout:
    shown = {"limit": None, "needed": None, "available": None, "short_gib": None} | numbers
    text = f"{kind.words}: {why}"
    return ObviousLayout(kind=kind.name, outcome=outcome, why=text, best=best, **shown)


WHOLE: tuple[tuple[ObviousName, str, str], ...] = (
    ("plain_data_parallel", "whole copies on every GPU", "none"),
    ("sharded_optimizer", "whole copies with the optimizer sharded (zero_1)", "zero_1"),
    ("sharded_weights", "everything sharded over all GPUs (zero_3)", "zero_3"),
    ("sharded_inside_nodes", "everything sharded inside each node (hybrid)", "hybrid"),
)
"""Kinds that split no layer: name, words and sharding."""


def _kinds(case: RunCase, layouts: LayoutModels, gpu_count: int) -> list[_Kind]:
    """The kinds that one would try first for this model on so many GPUs."""
    kinds = [_whole_copies(*each) for each in WHOLE] + _split_layers(case, gpu_count)
    if layouts.rules.expert_counts:
        words = "expert parallelism without tensor parallelism or a pipeline"
        degrees = {"expert": min(8, gpu_count)}
        kinds.append(_Kind("expert_parallel_alone", words, _is_expert_alone, degrees))
    return kinds


def _whole_copies(name: ObviousName, words: str, sharding: str) -> _Kind:
    index = SHARDINGS.index(sharding)

    def holds(axes: LayoutAxes) -> Any:
        degrees = axes.tensor * axes.pipeline * axes.context * axes.expert
        return (degrees == 1) & (axes.sharding == index)

    return _Kind(name, words, holds, {"sharding": index})


def _is_expert_alone(axes: LayoutAxes) -> Any:
    return (axes.expert > 1) & (axes.tensor * axes.pipeline == 1)


def _split_layers(case: RunCase, gpu_count: int) -> list[_Kind]:
    """Tensor parallelism over a node, a pipeline, and both."""
    # The link of a rack spans more GPUs than a layer has heads to divide.
    usual = case.gpu.node_gpu_count
    node = min(usual if usual <= LARGEST_SERVER_GPU_COUNT else RACK_GROUP, gpu_count)
    stages = next((p for p in (2, 4, 8, 16, 32) if p * node >= gpu_count), 2)
    return [
        _Kind(
            "tensor_parallel_node",
            f"tensor_parallel {node} without a pipeline",
            lambda axes: (axes.tensor == node) & (axes.pipeline == 1),
            {"tensor": node},
        ),
        _Kind(
            "pipeline_alone",
            "a pipeline without tensor parallelism",
            lambda axes: (axes.tensor == 1) & (axes.pipeline > 1),
            {"pipeline": stages},
        ),
        _Kind(
            "tensor_and_pipeline",
            f"tensor_parallel {node} with a pipeline",
            lambda axes: (axes.tensor == node) & (axes.pipeline > 1),
            {"tensor": node, "pipeline": stages},
        ),
    ]
