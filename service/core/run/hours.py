"""Hours of a training run: failures and checkpoints beside its steady speed, with their range."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.estimates import Range
from service.core.factors import (
    PYTORCH_FSDP,
    VENDOR_TUNED,
    Factor,
    positive,
    ranged,
    spread,
)
from service.core.failures.model import FailureModel
from service.core.formulas import training_time
from service.core.hardware import ComputePrecision, Gpu
from service.core.recorder import Recorder
from service.core.run.step_constants import SIXTEEN_BIT
from service.core.scenarios.stacks import SHARDED_STACKS, SoftwareStack
from service.core.scenarios.training_run import TrainingRun


@dataclass(frozen=True)
class RunHours:
    """Hours of a run on so many GPUs."""

    steady: float
    goodput: float
    wall_clock: Range


def run_hours(
    run: TrainingRun,
    failures: FailureModel,
    *,
    rate: float,
    speed_factors: Sequence[Factor],
    gpu_count: int,
    recorder: Recorder,
) -> RunHours | None:
    """Hours from the speed of one GPU; None when failures come faster than the run recovers."""
    goodput = failures.goodput(gpu_count)
    if goodput <= 0:
        return None
    slow, fast = spread(speed_factors)
    steady = ranged(
        recorder,
        training_time.training_steady_hours,
        less=fast,
        more=slow,
        training_tokens=run.tokens,
        tokens_per_s_per_gpu=rate,
        gpu_count=gpu_count,
        run_multiplier=run.run_multiplier,
    )
    goodput_factors = failures.goodput_factors(gpu_count)
    slow, fast = spread([*speed_factors, *goodput_factors, failures.other_fraction])
    wall = ranged(
        recorder,
        training_time.training_wall_clock_hours,
        less=fast,
        more=slow,
        steady_hours=steady,
        goodput_fraction=goodput,
        other_fraction=failures.other_fraction.value,
    )
    band = Range(value=wall, low=wall / fast, high=wall * slow)
    return RunHours(steady=steady, goodput=goodput, wall_clock=band)


def booked_mfu_fraction(
    gpu: Gpu,
    recorder: Recorder,
    *,
    is_mixture: bool,
    stack: SoftwareStack,
    precision: ComputePrecision = "bf16",
) -> float:
    """MFU (6P, bf16 peak) over all GPU-hours that published runs of a class book. [1]

    Nearly all of those runs computed in 16 bit. A lower precision books as much more as it is
    faster: by the ratio of the two shares of the bf16 peak, where both are known.
    """
    last = "mixture" if is_mixture else stack
    share = recorder.assume("training_booked_mfu_fraction", gpu.gpu_class, last).value
    name = "moe_bf16_peak_fraction" if is_mixture else "bf16_peak_fraction"
    column = PYTORCH_FSDP if stack in SHARDED_STACKS else VENDOR_TUNED
    wanted = [(gpu.gpu_class, kind, column) for kind in (precision, "bf16")]
    if precision in SIXTEEN_BIT or not all(recorder.has_assumption(name, *one) for one in wanted):
        return share
    low, sixteen = (positive(recorder, name, *one).value for one in wanted)
    return share * low / sixteen
