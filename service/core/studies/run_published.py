"""Published runs beside the estimate: predicted against reported."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Literal, Self, get_args

from pydantic import model_validator

from service.core.answers import EstimateQuestion, recorder_for
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Range
from service.core.hardware import Gpu
from service.core.pooling.run_bands import (
    booked_gpu_hours,
    hfu_of,
    memory_of,
    mfu_of,
    speed_of,
    times,
)
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_costs import own_price, planned, tariff_of
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from service.core.value import LongText, Positive, Text, Value

Measure = Literal[
    "gpu_hours",
    "days",
    "tokens_per_s_per_gpu",
    "mfu_fraction",
    "hfu_fraction",
    "memory_gib_per_gpu",
]
REPORTABLE: tuple[Measure, ...] = get_args(Measure)


class PublishedRun(Value):
    """A run of which somebody reported speed, hours, utilisation or memory."""

    run: TrainingRun
    """The run, as in a plan; its speed is usually left to the estimate."""
    gpu_hours: Positive | None = None
    """GPU-hours that are reported."""
    days: Positive | None = None
    """Days that are reported."""
    tokens_per_s_per_gpu: Positive | None = None
    """Tokens per second and GPU that are reported."""
    mfu_fraction: Positive | None = None
    """Model FLOPs utilisation that is reported, by `mfu_convention`, of the compute precision."""
    hfu_fraction: Positive | None = None
    """Hardware FLOPs utilisation that is reported, recompute counted."""
    memory_gib_per_gpu: Positive | None = None
    """Peak memory of the fullest GPU that is reported, in GiB."""
    source: LongText | None = None
    """Where it was reported."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not any(getattr(self, name) for name in REPORTABLE):
            raise ValueError(f"one of {', '.join(REPORTABLE)} is needed")
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
    """As estimated, with its 80 % band: GPU-hours and days as such runs book them, with restarts
    and idle time, or as low as the run alone; null when the run cannot be had, or the number not
    be estimated."""
    reported_over_predicted: float | None
    """Ratio of the two."""
    is_within_band: bool | None
    """Whether the reported number lies in the band."""
    possible_limit: float | None = None
    """Most, of hours and days the least, that the hardware allows; null where it is not known."""
    is_possible: bool | None = None
    """Whether the reported number keeps to it."""
    infeasibility: Infeasibility | None = None
    """Why the run that is compared cannot be had, when it cannot; the main run is another."""
    source: LongText | None
    """Where it was reported."""


def compare_all(
    runs: Sequence[PublishedRun],
    question: EstimateQuestion,
    snapshot: CatalogSnapshot,
    *,
    price: Decimal | None,
    own: Gpu,
) -> Iterator[ComparedRun]:
    """Each number that is reported of each run beside the estimate.

    Args:
        runs: What was reported.
        question: What it is reported beside.
        snapshot: The catalog on the as-of date.
        price: Price of an hour of the question's GPU in USD; None takes each GPU's own.
        own: The GPU of the question.

    Raises:
        CoreError: If a run names what the catalog does not hold, or contradicts itself.
    """
    for number, published in enumerate(runs):
        recorder = recorder_for(question, snapshot).within("estimate")
        pointer = f"/published_runs/{number}/run"
        if published.run.after is not None:
            raise InvalidScenario(
                "a run that is compared follows no other", pointer=f"{pointer}/after"
            )
        gpu = snapshot.gpu(published.run.gpu, pointer=f"{pointer}/gpu")
        tariff = tariff_of(gpu, recorder, own_price(price, gpu, own))
        need = planned(published.run, snapshot, recorder, tariff=tariff, pointer=pointer)
        yield from _compared(published, need, recorder)


def _compared(
    published: PublishedRun, need: RunNeed | tuple[Infeasibility, ...], recorder: Recorder
) -> Iterator[ComparedRun]:
    found = need if isinstance(need, RunNeed) else None
    for name in REPORTABLE:
        reported = getattr(published, name)
        if reported is None:
            continue
        predicted = None if found is None else PREDICTED[name](found, recorder)
        limit = None if found is None else _limit(name, found, recorder)
        is_least = name in {"gpu_hours", "days"}
        yield ComparedRun(
            name=published.run.name,
            measure=name,
            reported=reported,
            predicted=predicted,
            reported_over_predicted=None if predicted is None else reported / predicted.value,
            is_within_band=None
            if predicted is None
            else predicted.low <= reported <= predicted.high,
            possible_limit=limit,
            is_possible=None
            if limit is None
            else (reported >= limit if is_least else reported <= limit),
            infeasibility=None if isinstance(need, RunNeed) else need[0],
            source=published.source,
        )


def _limit(name: Measure, need: RunNeed, recorder: Recorder) -> float | None:
    """What the hardware allows at the dense peak, or in all of its memory."""
    if name == "memory_gib_per_gpu":
        return max(need.gpu.memory_gb, need.memory.available if need.memory else 0.0)
    if name in {"mfu_fraction", "hfu_fraction"}:
        return 1.0
    reached = mfu_of(need, recorder)
    if reached is None:
        return None
    fastest = speed_of(need, recorder).value / reached.value
    if name == "tokens_per_s_per_gpu":
        return fastest
    least = need.run.tokens / fastest / SECONDS_PER_HOUR * need.run.run_multiplier
    return least if name == "gpu_hours" else least / (need.gpu_count * HOURS_PER_DAY)


def compared_gpu_hours(need: RunNeed, recorder: Recorder) -> Range:
    """GPU-hours that a report is held against: booked ones, or as low as the run alone. [gpu_hour]

    Reports of large runs hold restarts and idle time, as such runs book them; others do not.
    """
    own = times(need.wall_clock_hours, need.gpu_count)
    booked = booked_gpu_hours(need, recorder)
    if booked is None:
        return own
    return Range(value=booked.value, low=min(own.low, booked.low), high=max(own.high, booked.high))


def _days(need: RunNeed, recorder: Recorder) -> Range:
    return times(compared_gpu_hours(need, recorder), 1.0 / (need.gpu_count * HOURS_PER_DAY))


PREDICTED: dict[Measure, Callable[[RunNeed, Recorder], Range | None]] = {
    "gpu_hours": compared_gpu_hours,
    "days": _days,
    "tokens_per_s_per_gpu": speed_of,
    "mfu_fraction": mfu_of,
    "hfu_fraction": hfu_of,
    "memory_gib_per_gpu": lambda need, _: memory_of(need),
}
"""The estimate of each number that may be reported."""
