"""What a reader should know of a training run beside its numbers."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from service.core.advice import advisories, run_advisories
from service.core.answers import recorder_for
from service.core.estimates import Advisory
from service.core.formulas.calendar import midnight
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import FinishBySizing
from service.core.studies.run_costs import planned, tariff_of
from service.core.studies.run_given import GivenSpeed
from service.core.studies.runs import TrainingRunQuestion
from service.core.units import SECONDS_PER_HOUR


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
    if given is not None:
        field, said, expected = given.beside()
        if expected is not None:
            yield advisories.implausible_measurement(name, field, said, expected)
    yield advisories.memory_may_not_fit(name, need.memory)
    if question.reported_gpu_hours:
        yield advisories.implausible_measurement(
            name, "reported_gpu_hours", question.reported_gpu_hours, shown["compared_gpu_hours"]
        )
    if question.budget and shown["amount"] is None:
        yield run_advisories.price_unknown(name, need.gpu.key)
    yield _late_at_worst(question, need, recorder)
    yield _decoded(need, shown, recorder)


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


def _late_at_worst(
    question: TrainingRunQuestion, need: RunNeed, recorder: Recorder
) -> Advisory | None:
    """A date that the run meets at its typical hours, and misses at the high end of their band."""
    day, hours = question.run.last_date, need.wall_clock_hours
    if day is None:
        return None
    end = midnight(day) + timedelta(days=1)
    late = hours.high - (end - need.start).total_seconds() / SECONDS_PER_HOUR
    if late <= 0:
        return None
    slower = need.run.run_multiplier * hours.high / hours.value
    held: int | None = None
    if question.run.given_gpu_count is None:
        snapshot = recorder.snapshot
        tariff = tariff_of(need.gpu, recorder.off(), question.price_per_gpu_hour)
        sizing = FinishBySizing(kind="finish_by", finish_date=day)
        run = question.run.model_copy(update={"run_multiplier": slower, "sizing": sizing})
        found = planned(run, snapshot, recorder_for(question, snapshot), tariff=tariff)
        held = found.gpu_count if isinstance(found, RunNeed) else None
    tokens = int(need.run.tokens * hours.value / hours.high)
    return run_advisories.deadline_may_be_missed(
        need.run.name, day, late_hours=late, gpu_count=held, tokens=tokens
    )


def _decoded(need: RunNeed, shown: dict[str, Any], recorder: Recorder) -> Advisory | None:
    """What decoding a base of 4 bits adds to a step, which the estimate of the speed leaves out."""
    run, layout, step = need.run, need.layout, shown["step_s"]
    is_coded = run.adapter is not None and run.adapter.kind == "qlora"
    if not is_coded or layout is None or step is None or run.architecture is None:
        return None
    decoding = recorder.assume("qlora_decoding_s_per_parameter")
    count = recorder.snapshot.architecture(run.architecture).parameter_count
    passed = count / (layout.tensor_parallel * layout.pipeline_parallel)
    sequences = run.global_batch_tokens / run.sequence_length_tokens
    rounds = sequences / (layout.data_parallel * layout.micro_batch_sequences)
    return run_advisories.decoding_not_counted(
        run.name,
        step_s=sum(step.model_dump().values()),
        low_s=passed * rounds * decoding.low,
        high_s=passed * rounds * decoding.high,
    )
