"""The numbers that an answer shows of how a run fails and saves."""

from service.core.failures.model import FailureModel
from service.core.formulas import reliability
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.units import SECONDS_PER_HOUR

define_quantity(
    "checkpoint_interval_s",
    unit="s",
    per="run",
    formula="the interval of least waste by the rule that was asked for, no shorter than a save",
)


def publish(model: FailureModel, gpu_count: int, recorder: Recorder) -> None:
    """Record the goodput, what failures cost, and the interval that would cost least."""
    inputs = model.inputs(gpu_count)
    stops, lost = model.stops_per_day(gpu_count), model.lost_s(gpu_count)
    goodput = model.goodput_range(gpu_count)
    _publish_given(model, gpu_count, recorder)
    recorder.evaluate(
        reliability.failures_per_day,
        low=stops.low,
        high=stops.high,
        **model.rates(gpu_count, model.failures_per_1000_node_days.value),
    )
    recorder.evaluate(
        reliability.lost_s_per_failure,
        low=lost.low,
        high=lost.high,
        checkpoint_interval_s=inputs["checkpoint_interval_s"],
        restart_s=inputs["restart_s"],
        checkpoint_write_s=inputs["checkpoint_write_s"],
    )
    recorder.evaluate(  # none where more is lost than there is, or where no save ever counts
        reliability.goodput_fraction,
        shown=max(0.0, goodput.value),
        low=max(0.0, goodput.low),
        high=max(0.0, goodput.high),
        **inputs,
    )
    recorder.evaluate(
        reliability.wasted_gpu_hours_per_day,
        low=_wasted(gpu_count, goodput.high),
        high=_wasted(gpu_count, goodput.low),
        gpu_count=gpu_count,
        goodput_fraction=max(0.0, goodput.value),
    )
    _publish_interval(model, gpu_count, recorder)


def _wasted(gpu_count: int, goodput: float) -> float:
    return float(
        reliability.wasted_gpu_hours_per_day(
            gpu_count=gpu_count, goodput_fraction=max(0.0, goodput)
        )
    )


def _publish_given(model: FailureModel, gpu_count: int, recorder: Recorder) -> None:
    """What follows from incidents, a rule or a bandwidth, where the request names them."""
    if model.observed is not None:
        rate = model.failures_per_1000_node_days
        recorder.evaluate(
            reliability.observed_failures_per_node_day,
            low=rate.low / reliability.NODE_DAYS,
            high=rate.high / reliability.NODE_DAYS,
            incident_count=model.observed.incident_count,
            node_count=model.server_count(model.observed.gpu_count),
            days=model.observed.days,
        )
    if model.writing is not None:
        recorder.evaluate(reliability.checkpoint_write_s, **model.writing.inputs(gpu_count))
    if model.interval_rule != "seconds":
        recorder.note("checkpoint_interval_s", model.interval_s(gpu_count).value)


def _publish_interval(model: FailureModel, gpu_count: int, recorder: Recorder) -> None:
    hours, best = model.mean_hours(gpu_count), model.rule_range(gpu_count)
    if hours is None:
        recorder.note("mean_time_to_failure_hours", None)
        return
    recorder.evaluate(
        reliability.mean_time_to_failure_hours,
        low=hours.low,
        high=None if hours.high == float("inf") else hours.high,
        failures_per_day=model.stops_per_day(gpu_count).value,
    )
    if best is not None:
        recorder.evaluate(
            reliability.daly_checkpoint_interval_s,
            low=best.low,
            high=best.high,
            checkpoint_save_s=model.save_s(gpu_count).value,
            mean_time_to_failure_s=hours.value * SECONDS_PER_HOUR,
        )
