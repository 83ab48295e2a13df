"""One training run: hours, dollars, energy, where a step's time goes, and other GPUs beside it."""

from typing import Any

from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.estimates import (
    Quantity,
)
from service.core.hardware import Gpu
from service.core.planners.run_warnings import STEP_PARTS, given_speed
from service.core.pooling.run_bands import booked_gpu_hours, speed_of
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import mfu_convention
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_answer import StepTime, TrainingRunAnswer
from service.core.studies.run_costs import (
    Tariff,
    cost_of,
    energy_kwh,
    facility_kwh,
    planned,
    tariff_of,
)
from service.core.studies.run_published import ComparedRun, compare_all, compared_gpu_hours
from service.core.studies.run_ranking import Ranking, check_ranked
from service.core.studies.run_stages import check_stages, stages_of, total_of
from service.core.studies.run_warnings import warnings_of, warnings_of_stages
from service.core.studies.runs import TrainingRunQuestion
from service.core.units import HOURS_PER_DAY


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
        given = given_speed(need, shown["tokens_per_s_per_gpu"].value, recorder)
    stages = stages_of(run, need, question.stages, recorder, price=question.price_per_gpu_hour)
    shown |= {
        "mfu_convention": mfu_convention(run),
        "run_multiplier": run.run_multiplier,
        "ranking": Ranking(question, snapshot, recorder, need, given).rows(),
        "stages": stages.found,
        "all_runs": total_of(need, shown, stages.found, len(question.stages)),
        "published_runs": _compared(question, gpu, snapshot),
    }
    return TrainingRunAnswer(
        **shared_fields(
            recorder,
            infeasibilities=(*refused, *stages.refused),
            advisories=(
                *warnings_of(question, need, given, shown, recorder),
                *warnings_of_stages(stages.needs, recorder),
            ),
        ),
        **shown,
    )


def _compared(
    question: TrainingRunQuestion, gpu: Gpu, snapshot: CatalogSnapshot
) -> tuple[ComparedRun, ...]:
    runs, price = question.published_runs, question.price_per_gpu_hour
    return tuple(compare_all(runs, question, snapshot, price=price, own=gpu))


def _shown(
    question: TrainingRunQuestion, need: RunNeed, tariff: Tariff, recorder: Recorder
) -> dict[str, Any]:
    numbers = {q.name: q for q in recorder.quantities() if q.scope == f"run:{need.run.name}"}
    table = numbers.get("training_table_tokens_per_s_per_gpu")
    steps = numbers.get("training_step_count")
    compared = compared_gpu_hours(need, recorder)
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
        "facility_energy_kwh": facility_kwh(need, recorder),
        "compared_gpu_hours": compared,
        "reported_over_estimate": question.reported_gpu_hours / compared.value
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
