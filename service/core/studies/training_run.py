"""One training run: hours, dollars, energy, where a step's time goes, and other GPUs beside it."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from service.core.advice import advisories
from service.core.answers import EstimateAnswer, PricedQuestion, recorder_for, shared_fields
from service.core.errors import CoreError
from service.core.estimates import (
    Advisory,
    Infeasibility,
    Quantity,
    Range,
    SpeedBasis,
    TrainingMemory,
)
from service.core.formulas.demand import whole_instances_gpu_count
from service.core.parallelism import ParallelLayout
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import EstimatedSpeed, TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_costs import cost_of, energy_kwh, planned, price_of
from service.core.studies.run_published import (
    ComparedRun,
    PublishedRun,
    booked_gpu_hours,
    compare_published,
    speed_of,
)
from service.core.studies.run_ranking import RankedGpu, ranking_of
from service.core.studies.run_stages import StageEstimate, check_stages, stages_of
from service.core.studies.runs import TrainingQuestion
from service.core.units import HOURS_PER_DAY
from service.core.value import Amount, Key, Positive, Price, Value

STEP_PARTS = ("compute", "launch", "exposed_network", "bubble", "optimizer")


class TrainingRunQuestion(TrainingQuestion, PricedQuestion):
    """One training run, and what it may cost."""

    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour in USD; the cheapest listed on-demand price when null."""
    budget: Price | None = None
    """USD that may be spent: the answer says how many tokens they buy. To be given a GPU count for
    an amount, ask for it in `run.sizing`."""
    reported_gpu_hours: Positive | None = None
    """GPU-hours that a publisher reports, to be set beside the estimate."""
    ranked_gpus: Annotated[tuple[Key, ...], Field(max_length=100)] = ()
    """GPUs of the catalog that the same run is tried on."""
    stages: Annotated[tuple[TrainingRun, ...], Field(max_length=20)] = ()
    """Runs that follow this one or one another, each naming in `after` which: fine-tuning, or
    reinforcement learning at a measured speed."""
    published_runs: Annotated[tuple[PublishedRun, ...], Field(max_length=20)] = ()
    """Runs that were reported somewhere, to be set beside their estimates."""


class StepTime(Value):
    """Where the time of one step goes, in seconds; the parts add up to the step."""

    compute: float
    """Matrices, attention, memory passes and experts."""
    launch: float
    """What launching kernels adds."""
    exposed_network: float
    """Exchanges that computation does not hide."""
    bubble: float
    """Pipeline stages that wait."""
    optimizer: float
    """Update of the weights."""


class TrainingRunAnswer(EstimateAnswer):
    """What one run needs."""

    gpu_count: int | None
    """GPUs of the run."""
    gpu_count_in_whole_nodes: int | None
    """GPUs of the nodes that hold them: what is billed where nodes come whole."""
    training_tokens: int | None
    """Tokens that it trains on, as given or solved for."""
    step_count: float | None
    """Optimizer steps."""
    layout: ParallelLayout | None
    """How the model is spread."""
    memory_gib_per_gpu: TrainingMemory | None
    """Memory of the fullest GPU."""
    speed_basis: SpeedBasis | None
    """What the speed rests on."""
    tokens_per_s_per_gpu: Range | None
    """Speed, with the band of what was held out of its fit."""
    table_tokens_per_s_per_gpu: float | None
    """What the table of shares of the peak says of the same layout; null where it answers itself,
    holds nothing, or the speed was given."""
    step_s: StepTime | None
    """Where the time of a step goes; null when the speed is not estimated by its terms."""
    model_flops: float | None
    """FLOP of the whole run by the 6PT convention."""
    model_flops_with_attention: float | None
    """FLOP of the whole run by the other convention: weights that are multiplied, and causal
    attention; null where the layers are not known."""
    mfu_convention: Literal["6P"]
    """Which FLOPs `mfu_fraction` counts."""
    mfu_fraction: float | None
    """Model FLOPs over the dense peak of the compute precision, recompute ignored."""
    mfu_with_attention_fraction: float | None
    """The same of the FLOPs with attention."""
    hfu_fraction: float | None
    """Executed FLOPs over the same peak, recompute counted."""
    run_multiplier: float
    """Experiment factor: ablations and failed runs, already in all hours."""
    steady_hours: float | None
    """Hours at steady speed."""
    goodput_fraction: float | None
    """Share of the time that makes progress."""
    wall_clock_hours: Range | None
    """Hours from start to finish."""
    wall_clock_days: float | None
    """The same in days."""
    finish_date: date | None
    """Day on which it ends."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    booked_gpu_hours: Range | None
    """GPU-hours that published runs of this kind book; null without an estimated speed."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    amount: Amount | None
    """USD of the run's own GPU-hours; null where no price is given or listed."""
    amount_in_whole_nodes: Amount | None
    """USD where nodes come whole: the same hours of `gpu_count_in_whole_nodes` GPUs."""
    tokens_within_budget: float | None
    """Tokens that the budget buys; null without budget or price."""
    reported_over_estimate: float | None
    """Reported GPU-hours over the estimated ones."""
    ranking: tuple[RankedGpu, ...]
    """The same run on other GPUs: by dollars, those without a price by days, failing ones last."""
    stages: tuple[StageEstimate, ...]
    """Stages that can be had, in the order in which they run."""
    published_runs: tuple[ComparedRun, ...]
    """Reported numbers beside their estimates."""


def estimate_training_run(
    question: TrainingRunQuestion, snapshot: CatalogSnapshot
) -> TrainingRunAnswer:
    """Estimate one run: speed, hours, dollars, energy.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    run = question.run
    check_stages(run, question.stages)
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(run.gpu, pointer="/run/gpu")
    price = price_of(gpu, recorder, question.price_per_gpu_hour)
    found = planned(run, snapshot, recorder, price=price)
    shown: dict[str, Any] = dict.fromkeys(
        set(TrainingRunAnswer.model_fields) - set(EstimateAnswer.model_fields)
    )
    need, refused = (found, ()) if isinstance(found, RunNeed) else (None, found)
    if need is not None:
        shown |= _shown(question, need, price, recorder)
    stages, late = stages_of(
        run, need, question.stages, recorder, price=question.price_per_gpu_hour
    )
    compared, unlike = _compared(question, snapshot)
    shown |= {
        "mfu_convention": "6P",
        "run_multiplier": run.run_multiplier,
        "ranking": ranking_of(question, question.ranked_gpus, recorder),
        "stages": stages,
        "published_runs": compared,
    }
    return TrainingRunAnswer(
        **shared_fields(
            recorder,
            infeasibilities=(*refused, *late, *unlike),
            advisories=tuple(_advisories(question, need, shown, recorder)),
        ),
        **shown,
    )


def _compared(
    question: TrainingRunQuestion, snapshot: CatalogSnapshot
) -> tuple[tuple[ComparedRun, ...], tuple[Infeasibility, ...]]:
    """Reported numbers of all published runs, and why some have no estimate."""
    compared: list[ComparedRun] = []
    refused: list[Infeasibility] = []
    for number, published in enumerate(question.published_runs):
        rows, lacks = compare_published(published, question, snapshot, f"/published_runs/{number}")
        compared += rows
        refused += lacks
    return tuple(compared), tuple(refused)


def _shown(
    question: TrainingRunQuestion, need: RunNeed, price: Decimal | None, recorder: Recorder
) -> dict[str, Any]:
    numbers = {q.name: q for q in recorder.quantities() if q.scope == f"run:{need.run.name}"}
    table = numbers.get("training_table_tokens_per_s_per_gpu")
    steps = numbers.get("training_step_count")
    return {
        **_work_shown(need, numbers),
        **_amounts(question, need, price),
        "gpu_count": need.gpu_count,
        "training_tokens": need.run.tokens,
        "step_count": steps and steps.value,
        "layout": need.layout,
        "memory_gib_per_gpu": need.memory,
        "speed_basis": need.speed_basis,
        "tokens_per_s_per_gpu": speed_of(need, recorder),
        "table_tokens_per_s_per_gpu": table and table.value,
        "step_s": _step(numbers),
        "steady_hours": need.steady_hours,
        "goodput_fraction": need.goodput_fraction,
        "wall_clock_hours": need.wall_clock_hours,
        "wall_clock_days": need.wall_clock_hours.value / HOURS_PER_DAY,
        "finish_date": need.finish.date(),
        "gpu_hours": need.gpu_hours,
        "booked_gpu_hours": booked_gpu_hours(need, recorder),
        "energy_kwh": energy_kwh(need),
        "reported_over_estimate": question.reported_gpu_hours / need.gpu_hours
        if question.reported_gpu_hours
        else None,
    }


def _amounts(question: TrainingRunQuestion, need: RunNeed, price: Decimal | None) -> dict[str, Any]:
    whole_nodes_gpu_count = whole_instances_gpu_count(
        gpu_count=need.gpu_count, gpu_count_per_instance=need.gpu.node_gpu_count
    )
    whole_nodes_gpu_hours = need.gpu_hours * whole_nodes_gpu_count / need.gpu_count
    pointer = "/price_per_gpu_hour" if question.price_per_gpu_hour else "/run"
    amount, in_whole_nodes = (
        cost_of(price, gpu_hours, need.run, pointer=pointer)
        for gpu_hours in (need.gpu_hours, whole_nodes_gpu_hours)
    )
    budget, tokens = question.budget, need.run.tokens
    return {
        "gpu_count_in_whole_nodes": whole_nodes_gpu_count,
        "amount": amount,
        "amount_in_whole_nodes": in_whole_nodes,
        "tokens_within_budget": float(tokens * budget / amount) if budget and amount else None,
    }


def _step(numbers: dict[str, Quantity]) -> StepTime | None:
    parts = {name: numbers.get(f"training_{name}_s_per_step") for name in STEP_PARTS}
    if any(part is None for part in parts.values()):
        return None
    return StepTime.model_validate({name: part.value for name, part in parts.items() if part})


def _work_shown(need: RunNeed, numbers: dict[str, Quantity]) -> dict[str, Any]:
    """Work and utilisation in both conventions, as far as they are known."""
    hfu = numbers.get("training_hfu_fraction")
    with_attention = numbers.get("training_flops_per_token_with_attention")
    shown = {
        "model_flops": need.model_flops,
        "mfu_fraction": need.mfu_fraction,
        "hfu_fraction": hfu and hfu.value,
        "model_flops_with_attention": None,
        "mfu_with_attention_fraction": None,
    }
    if with_attention is None or with_attention.value is None or not need.model_flops:
        return shown
    work = with_attention.value * need.run.tokens
    share = None if need.mfu_fraction is None else need.mfu_fraction * work / need.model_flops
    return shown | {"model_flops_with_attention": work, "mfu_with_attention_fraction": share}


def _advisories(
    question: TrainingRunQuestion,
    need: RunNeed | None,
    shown: dict[str, Any],
    recorder: Recorder,
) -> Iterator[Advisory]:
    """What a reader should know of the run, and of numbers that were given or reported."""
    name = question.run.name
    found: list[Advisory | None] = list(_unchecked(question, need, shown, recorder))
    if need is not None:
        threshold = recorder.off().assume("training_speed_disagreement_factor").value
        speed = shown["tokens_per_s_per_gpu"]
        found += [
            advisories.wide_band(name, "wall_clock_hours", need.wall_clock_hours),
            advisories.speed_models_disagree(
                name, speed.value, shown["table_tokens_per_s_per_gpu"], threshold=threshold
            ),
            _implausible_speed(question, need, speed.value, recorder),
        ]
        likely = shown["booked_gpu_hours"]
        if question.reported_gpu_hours and likely is not None:
            found.append(
                advisories.implausible_measurement(
                    name, "reported_gpu_hours", question.reported_gpu_hours, likely
                )
            )
    found += [
        advisories.implausible_measurement(one.name, one.measure, one.reported, one.predicted)
        for one in shown["published_runs"]
        if one.predicted is not None
    ]
    yield from (advisory for advisory in found if advisory is not None)


def _unchecked(
    question: TrainingRunQuestion,
    need: RunNeed | None,
    shown: dict[str, Any],
    recorder: Recorder,
) -> Iterator[Advisory | None]:
    """Runs that can be had as far as their memory is known."""
    answered = {stage.name for stage in shown["stages"]}
    answered |= set() if need is None else {question.run.name}
    for run in (question.run, *question.stages):
        if run.name in answered:
            ref = run.architecture
            known = None if ref is None else recorder.snapshot.architecture(ref)
            yield advisories.memory_not_checked(run, known)


def _implausible_speed(
    question: TrainingRunQuestion, need: RunNeed, rate: float, recorder: Recorder
) -> Advisory | None:
    """A given utilisation or speed beside what the estimate says of the same run."""
    run, snapshot = need.run, recorder.snapshot
    if run.speed.kind == "estimated" or run.architecture is None:
        return None
    if not snapshot.architecture(run.architecture).has_layers:
        return None
    sizing = {"kind": "gpu_count", "gpu_count": need.gpu_count}
    document = run.model_dump() | {"speed": EstimatedSpeed(), "sizing": sizing, "after": None}
    estimated = type(run).model_validate(
        document | {"architecture": run.architecture, "gpu": run.gpu}
    )
    aside = recorder_for(question, snapshot)
    try:
        found = planned(estimated, snapshot, aside, price=None)
    except CoreError:
        return None  # what cannot be estimated was given, and nothing is wrong with that
    if not isinstance(found, RunNeed):
        return None
    return advisories.implausible_measurement(
        run.name, f"a speed of kind {run.speed.kind}", rate, speed_of(found, aside)
    )
