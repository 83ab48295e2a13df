"""What a reader should know of a training run beside its numbers."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from service.core.advice import advisories, run_advisories
from service.core.answers import recorder_for
from service.core.estimates import Advisory
from service.core.planners.run_warnings import CountInTime, GivenSpeed, given_speed, run_warnings
from service.core.pooling.run_bands import speed_of
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import FinishBySizing
from service.core.studies.run_costs import planned, tariff_of
from service.core.studies.runs import TrainingRunQuestion


def warnings_of(
    question: TrainingRunQuestion,
    need: RunNeed | None,
    given: GivenSpeed | None,
    shown: dict[str, Any],
    recorder: Recorder,
) -> Iterator[Advisory]:
    """What a reader should know of the run, and of numbers that were given or reported."""
    found: list[Advisory | None] = list(_unchecked(question, need, shown, recorder))
    if need is not None:
        found += _of_the_run(question, need, given, shown, recorder)
    for one in shown["published_runs"]:
        if one.is_possible is False:
            found.append(
                run_advisories.impossible_measurement(
                    one.name, one.measure, one.reported, one.possible_limit
                )
            )
        elif one.predicted is not None:
            found.append(
                advisories.implausible_measurement(
                    one.name, one.measure, one.reported, one.predicted
                )
            )
    yield from (advisory for advisory in found if advisory is not None)


def warnings_of_stages(needs: Sequence[RunNeed], recorder: Recorder) -> Iterator[Advisory]:
    """What a plan would say of the runs that follow, each with GPUs of its own."""
    for need in needs:
        of_stage = recorder.within(f"run:{need.run.name}")
        found = [
            advisories.wide_band(need.run.name, "wall_clock_hours", need.wall_clock_hours),
            advisories.memory_may_not_fit(need.run.name, need.memory),
            *run_warnings(
                need,
                given_speed(need, speed_of(need, of_stage).value, of_stage),
                of_stage,
                hours=need.wall_clock_hours,
                gpu_hours=need.gpu_hours,
                count_in_time=None,
            ),
        ]
        yield from (advisory for advisory in found if advisory is not None)


def _of_the_run(
    question: TrainingRunQuestion,
    need: RunNeed,
    given: GivenSpeed | None,
    shown: dict[str, Any],
    recorder: Recorder,
) -> Iterator[Advisory | None]:
    name, speed = question.run.name, shown["tokens_per_s_per_gpu"]
    threshold = recorder.off().assume("training_speed_disagreement_factor").value
    yield advisories.wide_band(name, "wall_clock_hours", need.wall_clock_hours)
    yield advisories.speed_models_disagree(
        name, speed.value, shown["table_tokens_per_s_per_gpu"], threshold=threshold
    )
    yield advisories.memory_may_not_fit(name, need.memory)
    if question.reported_gpu_hours:
        yield advisories.implausible_measurement(
            name, "reported_gpu_hours", question.reported_gpu_hours, shown["compared_gpu_hours"]
        )
    if question.budget and shown["amount"] is None:
        yield run_advisories.price_unknown(name, need.gpu.key)
    yield from run_warnings(
        need,
        given,
        recorder,
        hours=need.wall_clock_hours,
        gpu_hours=need.gpu_hours,
        count_in_time=_in_time(question, recorder),
    )


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


def _in_time(question: TrainingRunQuestion, recorder: Recorder) -> CountInTime:
    """Solves the run for a date, at the same price."""
    snapshot = recorder.snapshot

    def count_in_time(late: RunNeed, day: date) -> int | None:
        tariff = tariff_of(late.gpu, recorder.off(), question.price_per_gpu_hour)
        sizing = FinishBySizing(kind="finish_by", finish_date=day)
        run = late.run.model_copy(update={"sizing": sizing})
        found = planned(run, snapshot, recorder_for(question, snapshot), tariff=tariff)
        return found.gpu_count if isinstance(found, RunNeed) else None

    return count_in_time
