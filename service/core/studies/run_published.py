"""Published runs beside the estimate: predicted against reported."""

from collections.abc import Callable, Iterator
from typing import Literal, Self

from pydantic import model_validator

from service.core.answers import EstimateQuestion, recorder_for
from service.core.estimates import Infeasibility, Range
from service.core.formulas import training_time
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.run.hours import booked_mfu_fraction
from service.core.scenarios.stacks import stack_of
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_costs import planned
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from service.core.value import LongText, Positive, Text, Value

Measure = Literal["gpu_hours", "days", "tokens_per_s_per_gpu"]


class PublishedRun(Value):
    """A run whose speed or hours somebody reported."""

    run: TrainingRun
    """The run, as in a plan; its speed is usually left to the estimate."""
    gpu_hours: Positive | None = None
    """GPU-hours that are reported."""
    days: Positive | None = None
    """Days that are reported."""
    tokens_per_s_per_gpu: Positive | None = None
    """Tokens per second and GPU that are reported."""
    source: LongText | None = None
    """Where it was reported."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not any((self.gpu_hours, self.days, self.tokens_per_s_per_gpu)):
            raise ValueError("one of gpu_hours, days and tokens_per_s_per_gpu is needed")
        return self


class ComparedRun(Value):
    """One reported number beside the estimate of it."""

    name: Text
    """Name of the run."""
    measure: Measure
    """What was reported."""
    reported: float
    """As reported."""
    predicted: Range | None
    """As estimated, with its 80 % band; null when the run cannot be had."""
    reported_over_predicted: float | None
    """Ratio of the two."""
    is_within_band: bool | None
    """Whether the reported number lies in the band."""
    source: LongText | None
    """Where it was reported."""


def compare_published(
    published: PublishedRun, question: EstimateQuestion, snapshot: CatalogSnapshot, pointer: str
) -> tuple[tuple[ComparedRun, ...], tuple[Infeasibility, ...]]:
    """Each number that is reported of a run beside the estimate.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    recorder = recorder_for(question, snapshot).within("estimate")
    need = planned(published.run, snapshot, recorder, pointer=f"{pointer}/run")
    refused = () if isinstance(need, RunNeed) else need
    found = need if isinstance(need, RunNeed) else None
    return tuple(_compared(published, found, recorder)), refused


def _compared(
    published: PublishedRun, need: RunNeed | None, recorder: Recorder
) -> Iterator[ComparedRun]:
    measures: dict[Measure, Callable[[RunNeed, Recorder], Range]] = {
        "gpu_hours": lambda need, recorder: booked_gpu_hours(need, recorder) or _own_hours(need),
        "days": _days,
        "tokens_per_s_per_gpu": speed_of,
    }
    for name, measure in measures.items():
        reported = getattr(published, name)
        if reported is None:
            continue
        predicted = None if need is None else measure(need, recorder)
        yield ComparedRun(
            name=published.run.name,
            measure=name,
            reported=reported,
            predicted=predicted,
            reported_over_predicted=None if predicted is None else reported / predicted.value,
            is_within_band=None
            if predicted is None
            else predicted.low <= reported <= predicted.high,
            source=published.source,
        )


def speed_of(need: RunNeed, recorder: Recorder) -> Range:
    """Tokens per second and GPU of a run that was planned, with their band. [token/s]

    Raises:
        LookupError: If the run was not planned with this recorder.
    """
    found = _band_of("training_tokens_per_s_per_gpu", need, recorder)
    if found is None:
        raise LookupError(f"no speed of {need.run.name!r} was recorded")
    return found


def mfu_of(need: RunNeed, recorder: Recorder) -> Range | None:
    """Model FLOPs utilisation of a run that was planned, with its band. [1]"""
    return _band_of("training_mfu_fraction", need, recorder)


def hfu_of(need: RunNeed, recorder: Recorder) -> Range | None:
    """Hardware FLOPs utilisation of a run that was planned, with its band. [1]"""
    return _band_of("training_hfu_fraction", need, recorder)


def _band_of(name: str, need: RunNeed, recorder: Recorder) -> Range | None:
    scope = f"run:{need.run.name}"
    found = next((q for q in recorder.quantities() if (q.scope, q.name) == (scope, name)), None)
    if found is None or found.value is None:
        return None
    return Range.model_validate({"value": found.value, "low": found.low, "high": found.high})


def _own_hours(need: RunNeed) -> Range:
    hours = need.wall_clock_hours
    return times(hours, need.gpu_count)


def _days(need: RunNeed, recorder: Recorder) -> Range:
    hours = booked_gpu_hours(need, recorder) or _own_hours(need)
    return times(hours, 1.0 / (need.gpu_count * HOURS_PER_DAY))


def times(band: Range, factor: float) -> Range:
    """A band times a number."""
    return Range(value=band.value * factor, low=band.low * factor, high=band.high * factor)


def booked_gpu_hours(need: RunNeed, recorder: Recorder) -> Range | None:
    """GPU-hours that such runs book: the geometric mean of the estimate and of what others took.

    None where the speed was given: it holds everything that slows a run. [gpu_hour]
    """
    run, gpu = need.run, need.gpu
    peak, work = gpu.peak_flop_per_s("bf16"), need.model_flops
    if need.speed_basis not in {"mechanism", "table"} or peak is None or work is None:
        return None
    architecture = recorder.snapshot.architecture(run.architecture or "")
    stack = run.speed.software_stack if run.speed.kind == "estimated" else None
    split = need.layout is not None and need.layout.gpus_per_copy > 1
    share = booked_mfu_fraction(
        gpu,
        recorder,
        is_mixture=architecture.is_mixture,
        stack=stack or stack_of(split),
        precision=run.compute_precision,
    )
    per_token = work / run.tokens
    end_to_end = recorder.assume("training_end_to_end_fraction").value
    steady = need.steady_hours * need.gpu_count / run.run_multiplier
    rate = run.tokens / (steady * SECONDS_PER_HOUR)
    hours = run.run_multiplier * recorder.evaluate(
        training_time.training_booked_gpu_hours,
        training_tokens=run.tokens,
        tokens_per_s_per_gpu=rate * end_to_end,
        booked_tokens_per_s_per_gpu=share * peak / per_token,
    )
    band = recorder.assume("training_hours_residual_factor")
    return Range(value=hours, low=hours * band.low, high=hours * band.high)
