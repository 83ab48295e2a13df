"""What a reader should know of a planned run beside its numbers, by itself and in a plan alike."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta

from service.core.advice import advisories, run_advisories
from service.core.errors import CoreError, NoConstants
from service.core.estimates import Advisory, Range
from service.core.formulas.calendar import midnight
from service.core.hardware import Gpu
from service.core.planners.training import plan_training_run
from service.core.pooling.run_bands import booked_gpu_hours, hfu_of, mfu_of, speed_of
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import EstimatedSpeed, GpuCountSizing, TrainingRun
from service.core.units import SECONDS_PER_HOUR

STEP_PARTS = ("compute", "launch", "exposed_network", "bubble", "optimizer")
IN_TIME = 1 + 1e-6
"""Hours that meet a date to the digit are in time."""

CountInTime = Callable[[RunNeed, date], int | None]
"""Fewest GPUs on which a run ends by a day, None where none do. [count]"""


@dataclass(frozen=True)
class GivenSpeed:
    """A speed that a request gives, and what the estimate says of the same run and GPUs."""

    need: RunNeed
    rate: float
    """Tokens per second and GPU, as given or meant by a utilisation."""
    estimated: RunNeed
    recorder: Recorder
    """Holds the quantities of the estimate."""

    @property
    def scale(self) -> float:
        """Given speed over the estimated one. [1]"""
        return self.rate / speed_of(self.estimated, self.recorder).value

    def beside(self) -> tuple[str, float, Range | None]:
        """What was given, as a request names it, and the estimate of just that."""
        speed, found = self.need.run.speed, (self.estimated, self.recorder)
        if speed.kind == "mfu":
            return "speed.mfu_fraction", speed.mfu_fraction, mfu_of(*found)
        if speed.kind == "hfu":
            return "speed.hfu_fraction", speed.hfu_fraction, hfu_of(*found)
        return "speed.tokens_per_s_per_gpu", self.rate, speed_of(*found)

    def elsewhere(self, run: TrainingRun, gpu: Gpu) -> TrainingRun:
        """The run on another GPU: estimated there, and as much faster as it is here.

        A factor of the speed is one of the hours. A given speed holds all slow phases, an estimate
        does not.
        """
        slow_phases = self.recorder.off().assume("end_to_end_other_fraction").value
        multiplier = run.run_multiplier * slow_phases / self.scale
        return run.model_copy(
            update={"gpu": gpu.key, "speed": EstimatedSpeed(), "run_multiplier": multiplier}
        )


def given_speed(need: RunNeed, rate: float, recorder: Recorder) -> GivenSpeed | None:
    """The estimate beside a given speed; None where the speed is estimated or cannot be."""
    run, snapshot = need.run, recorder.snapshot
    if run.speed.kind == "estimated" or run.architecture is None:
        return None
    if not snapshot.architecture(run.architecture).has_layers:
        return None
    sizing = GpuCountSizing(kind="gpu_count", gpu_count=need.gpu_count)
    estimated = run.model_copy(update={"speed": EstimatedSpeed(), "sizing": sizing, "after": None})
    aside = Recorder(
        snapshot, overrides=recorder.overrides, override_pointer=recorder.override_pointer
    )
    try:
        found = plan_training_run(
            estimated,
            snapshot=snapshot,
            recorder=aside,
            horizon=Horizon(start_month=f"{need.start:%Y-%m}", month_count=1),
            gpu_multiple=1,
            instance_gpu_count=need.gpu.node_gpu_count,
            pointer="/run",
            start=need.start,
        )
    except CoreError:
        return None  # what cannot be estimated was given, and nothing is wrong with that
    return GivenSpeed(need, rate, found, aside) if isinstance(found, RunNeed) else None


def run_warnings(
    need: RunNeed,
    given: GivenSpeed | None,
    recorder: Recorder,
    *,
    hours: Range,
    gpu_hours: float,
    count_in_time: CountInTime | None,
) -> Iterator[Advisory | None]:
    """What is to be known of a run that was planned.

    Args:
        need: The run.
        given: The estimate beside its speed, where that is given.
        recorder: Holds the quantities of the run under its name.
        hours: From its start to its end, in its pool.
        gpu_hours: Held by it in its pool, and priced.
        count_in_time: Solves for a date; None where the GPUs are not the run's own.
    """
    name = need.run.name
    if given is not None:
        field, said, expected = given.beside()
        if expected is not None:
            yield advisories.implausible_measurement(name, field, said, expected)
    yield _late_at_worst(need, hours, count_in_time)
    yield _booked(need, gpu_hours, recorder.off())
    yield _decoded(need, recorder)


def _booked(need: RunNeed, gpu_hours: float, recorder: Recorder) -> Advisory | None:
    """What one such run books, whatever the multiplier: that is where the rest is to be put."""
    run = need.run
    alone = replace(
        need,
        run=run.model_copy(update={"run_multiplier": 1.0}),
        steady_hours=need.steady_hours / run.run_multiplier,
    )
    try:
        booked = booked_gpu_hours(alone, recorder)
    except NoConstants:
        return None  # a release that does not know what runs book
    if booked is None or gpu_hours <= 0:
        return None
    return run_advisories.published_runs_book_more(
        run.name, priced_gpu_hours=gpu_hours, booked=booked, run_multiplier=run.run_multiplier
    )


def _late_at_worst(
    need: RunNeed, hours: Range, count_in_time: CountInTime | None
) -> Advisory | None:
    """A date that the run meets at its typical hours, and misses at the high end of their band."""
    run, day = need.run, need.run.last_date
    if day is None:
        return None
    there_are = (midnight(day) + timedelta(days=1) - need.start).total_seconds() / SECONDS_PER_HOUR
    late = hours.high - there_are
    if late <= 0 or hours.value > there_are * IN_TIME:
        return None
    held: int | None = None
    if run.given_gpu_count is None and count_in_time is not None:
        slower = run.run_multiplier * hours.high / hours.value
        held = count_in_time(
            replace(need, run=run.model_copy(update={"run_multiplier": slower})), day
        )
    tokens = int(run.tokens * hours.value / hours.high)
    return run_advisories.deadline_may_be_missed(
        run.name, day, late_hours=late, gpu_count=held, tokens=tokens
    )


def _decoded(need: RunNeed, recorder: Recorder) -> Advisory | None:
    """What decoding a base of 4 bits adds to a step, which the estimate of the speed leaves out."""
    run, layout = need.run, need.layout
    is_coded = run.adapter is not None and run.adapter.kind == "qlora"
    if not is_coded or layout is None or run.architecture is None:
        return None
    if not recorder.has_assumption("qlora_decoding_s_per_parameter"):
        return None
    numbers = {q.name: q.value for q in recorder.quantities() if q.scope == f"run:{run.name}"}
    step = [numbers.get(f"training_{part}_s_per_step") for part in STEP_PARTS]
    parts = [part for part in step if part is not None]
    if len(parts) < len(step):
        return None
    decoding = recorder.assume("qlora_decoding_s_per_parameter")
    count = recorder.snapshot.architecture(run.architecture).parameter_count
    passed = count / (layout.tensor_parallel * layout.pipeline_parallel)
    sequences = run.global_batch_tokens / run.sequence_length_tokens
    rounds = sequences / (layout.data_parallel * layout.micro_batch_sequences)
    return run_advisories.decoding_not_counted(
        run.name,
        step_s=sum(parts),
        low_s=passed * rounds * decoding.low,
        high_s=passed * rounds * decoding.high,
    )
