"""A given speed beside the estimate of the same run, on its own GPU and on others."""

from dataclasses import dataclass

from service.core.answers import EstimateQuestion, recorder_for
from service.core.errors import CoreError
from service.core.estimates import Range
from service.core.hardware import Gpu
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import EstimatedSpeed, TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_costs import planned
from service.core.studies.run_published import hfu_of, mfu_of, speed_of


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


def given_speed(
    question: EstimateQuestion, need: RunNeed, rate: float, snapshot: CatalogSnapshot
) -> GivenSpeed | None:
    """The estimate beside a given speed; None where the speed is estimated or cannot be."""
    run = need.run
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
        found = planned(estimated, snapshot, aside)
    except CoreError:
        return None  # what cannot be estimated was given, and nothing is wrong with that
    return GivenSpeed(need, rate, found, aside) if isinstance(found, RunNeed) else None
