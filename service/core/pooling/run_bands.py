"""Numbers of a planned run with their bands: speed, utilisation, memory, booked hours."""

from service.core.estimates import Range
from service.core.formulas import training_time
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.run.hours import booked_mfu_fraction
from service.core.scenarios.stacks import stack_of
from service.core.units import SECONDS_PER_HOUR


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


def memory_of(need: RunNeed) -> Range | None:
    """Peak memory of the fullest GPU, with the band of measured ones. [GiB]"""
    memory = need.memory
    if memory is None or memory.total_low is None or memory.total_high is None:
        return None
    return Range(value=memory.total, low=memory.total_low, high=memory.total_high)


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
