"""What every question about one training run starts from: the run resolved, and its layout."""

from typing import Annotated, ClassVar

from pydantic import Field

from service.core.answers import EstimateQuestion, PricedQuestion, recorder_for
from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.rules import on_gpus
from service.core.recorder import Recorder
from service.core.run.case import RunCase, resolve
from service.core.run.choice import Choice, choose
from service.core.run.rates import untrainable
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_published import PublishedRun
from service.core.value import EntryName, Positive, Price


class TrainingQuestion(EstimateQuestion):
    """A question about one training run."""

    run: TrainingRun
    """The run, as in a plan, but that its `sizing` must name a `gpu_count`: this question solves
    for none."""


class TrainingRunQuestion(TrainingQuestion, PricedQuestion):
    """One training run, and what it may cost."""

    asked_less: ClassVar[str] = (
        "fewer ranked_gpus, published_runs or stages, for a gpu_count instead of a date or an "
        "amount, or give a layout"
    )
    run: TrainingRun
    """The run, as in a plan."""
    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour in USD; the cheapest listed on-demand price when null."""
    budget: Price | None = None
    """USD that may be spent: the answer says how many tokens they buy of this run, stages left out.
    To be given a GPU count for
    an amount, ask for it in `run.sizing`."""
    reported_gpu_hours: Positive | None = None
    """GPU-hours that a publisher reports, to be set beside the estimate."""
    ranked_gpus: Annotated[tuple[EntryName, ...], Field(max_length=100)] = ()
    """GPUs of the catalog that the same run is tried on."""
    stages: Annotated[tuple[TrainingRun, ...], Field(max_length=20)] = ()
    """Runs that follow this one or one another, each naming in `after` which: fine-tuning, or
    reinforcement learning at a measured speed."""
    published_runs: Annotated[tuple[PublishedRun, ...], Field(max_length=20)] = ()
    """Runs that were reported somewhere, to be set beside their estimates."""


def case_of(question: TrainingQuestion, snapshot: CatalogSnapshot) -> tuple[RunCase, Recorder]:
    """The run resolved against the catalog, and the recorder of its answer.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    if question.run.after is not None:
        raise InvalidScenario(
            "this question is about one run, which follows no other", pointer="/run/after"
        )
    recorder = recorder_for(question, snapshot)
    case = resolve(
        question.run, snapshot=snapshot, recorder=recorder, gpu_multiple=1, pointer="/run"
    )
    return case, recorder


def given_count(case: RunCase) -> int:
    """GPUs that the run names.

    Raises:
        InvalidScenario: If its count is what is solved for.
    """
    count = case.run.given_gpu_count
    if count is None:
        raise InvalidScenario("this question needs a gpu_count", pointer="/run/sizing")
    return count


def chosen_layout(case: RunCase, gpu_count: int) -> Choice | Infeasibility:
    """The layout of the run on so many GPUs, or why there is none."""
    try:
        return untrainable(case) or choose(case, gpu_count)
    except NoConstants as gap:
        fix = "give an MFU or a measured speed, or a GPU whose class has constants"
        return case.refusal("no_constants", gap.message[:200], fix)


def named_axes(case: RunCase, gpu_count: int) -> LayoutAxes | None:
    """The layout that the request names, when it is legal: it is shown even if it does not fit."""
    given, layouts = case.given_layout, case.layouts
    if given is None or layouts is None:
        return None
    axes = on_gpus(given, gpu_count, layouts.rules.batch_sequences)
    return axes if layouts.rules.fault(axes, gpu_count) is None else None
