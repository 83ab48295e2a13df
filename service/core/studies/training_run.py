"""One training run: hours, dollars, energy, where a step's time goes, and other GPUs beside it."""

from collections.abc import Iterator
from typing import Any

from service.core.advice import advisories
from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.estimates import (
    Advisory,
    Infeasibility,
    Quantity,
)
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_answer import StepTime, TrainingRunAnswer
from service.core.studies.run_costs import Tariff, cost_of, energy_kwh, planned, tariff_of
from service.core.studies.run_given import GivenSpeed, given_speed
from service.core.studies.run_published import (
    ComparedRun,
    booked_gpu_hours,
    compare_published,
    speed_of,
)
from service.core.studies.run_question import TrainingRunQuestion
from service.core.studies.run_ranking import Ranking, check_ranked
from service.core.studies.run_stages import check_stages, stages_of
from service.core.units import HOURS_PER_DAY

STEP_PARTS = ("compute", "launch", "exposed_network", "bubble", "optimizer")


def estimate_training_run(
    question: TrainingRunQuestion, snapshot: CatalogSnapshot
) -> TrainingRunAnswer:
    """Estimate one run: speed, hours, dollars, energy.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    run = question.run
    check_stages(run, question.stages)
    check_ranked(question)
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(run.gpu, pointer="/run/gpu")
    tariff = tariff_of(gpu, recorder, question.price_per_gpu_hour)
    found = planned(run, snapshot, recorder, tariff=tariff)
    shown: dict[str, Any] = dict.fromkeys(
        set(TrainingRunAnswer.model_fields) - set(EstimateAnswer.model_fields)
    )
    need, refused = (found, ()) if isinstance(found, RunNeed) else (None, found)
    given = None
    if need is not None:
        shown |= _shown(question, need, tariff, recorder)
        given = given_speed(question, need, shown["tokens_per_s_per_gpu"].value, snapshot)
    stages, late = stages_of(
        run, need, question.stages, recorder, price=question.price_per_gpu_hour
    )
    compared, unlike = _compared(question, snapshot)
    shown |= {
        "mfu_convention": "6P",
        "run_multiplier": run.run_multiplier,
        "ranking": Ranking(question, snapshot, recorder, need, given).rows(),
        "stages": stages,
        "published_runs": compared,
    }
    return TrainingRunAnswer(
        **shared_fields(
            recorder,
            infeasibilities=(*refused, *late, *unlike),
            advisories=tuple(_advisories(question, need, given, shown, recorder)),
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
    question: TrainingRunQuestion, need: RunNeed, tariff: Tariff, recorder: Recorder
) -> dict[str, Any]:
    numbers = {q.name: q for q in recorder.quantities() if q.scope == f"run:{need.run.name}"}
    table = numbers.get("training_table_tokens_per_s_per_gpu")
    steps = numbers.get("training_step_count")
    return {
        **_work_shown(need, numbers),
        **_amounts(question, need, tariff),
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


def _amounts(question: TrainingRunQuestion, need: RunNeed, tariff: Tariff) -> dict[str, Any]:
    pointer = "/price_per_gpu_hour" if tariff.is_given else "/run"
    amount, paid = (
        cost_of(tariff.price, gpu_hours, need.run, pointer=pointer)
        for gpu_hours in (need.gpu_hours, tariff.paid_gpu_hours(need))
    )
    budget, tokens = question.budget, need.run.tokens
    return {
        "gpu_count_in_whole_nodes": tariff.paid_gpu_count(need.gpu_count),
        "amount": amount,
        "amount_in_whole_nodes": paid,
        "tokens_within_budget": float(tokens * budget / paid) if budget and paid else None,
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
    given: GivenSpeed | None,
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
            None if given is None else _implausible_speed(given),
            advisories.memory_may_not_fit(name, need.memory),
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


def _implausible_speed(given: GivenSpeed) -> Advisory | None:
    """A given utilisation or speed beside what the estimate says of the same run."""
    run = given.need.run
    return advisories.implausible_measurement(
        run.name,
        f"a speed of kind {run.speed.kind}",
        given.rate,
        speed_of(given.estimated, given.recorder),
    )
