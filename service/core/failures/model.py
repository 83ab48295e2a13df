"""How often a training run stops and what a stop costs, each with its range."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.core.assumptions import AssumptionUsed
from service.core.errors import InvalidScenario
from service.core.factors import Factor, positive, spread
from service.core.formulas import reliability, training_time
from service.core.hardware import Gpu
from service.core.recorder import Recorder
from service.core.scenarios.training_run import TrainingRun
from service.core.units import SECONDS_PER_HOUR

UNCERTAIN = (
    "failures_per_1000_node_days",
    "checkpoint_interval_s",
    "checkpoint_save_s",
    "restart_s",
)
LEAST_GOODPUT = 0.01
"""End of the range where the adverse case of failures would never end."""


@dataclass(frozen=True)
class FailureModel:
    """How often a run stops and what a stop costs, each with its range."""

    failures_per_1000_node_days: Factor
    checkpoint_interval_s: Factor
    checkpoint_save_s: Factor
    restart_s: Factor
    gpus_per_server: int
    other_fraction: Factor
    """Share of the time outside failures that is steady training."""

    def _failures_per_day(self, gpu_count: int, per_1000_node_days: float) -> float:
        servers = reliability.server_count(
            gpu_count=gpu_count, gpus_per_server=self.gpus_per_server
        )
        return float(
            reliability.failures_per_day(
                failures_per_1000_node_days=per_1000_node_days, node_count=servers
            )
        )

    def _inputs(self, gpu_count: int, moved: Mapping[str, float] | None = None) -> dict[str, float]:
        """Inputs of the goodput: typical values, but for those that are moved."""
        values = {name: float(getattr(self, name).value) for name in UNCERTAIN} | dict(moved or {})
        rate = values.pop("failures_per_1000_node_days")
        return {"failures_per_day": self._failures_per_day(gpu_count, rate), **values}

    def goodput(self, gpu_count: int, moved: Mapping[str, float] | None = None) -> float:
        """Share of the time that makes progress; zero or below when the run never ends. [1]"""
        return float(reliability.goodput_fraction(**self._inputs(gpu_count, moved)))

    def typical_hours(self, run: TrainingRun, *, rate: float, gpu_count: int) -> float:
        """Hours from start to finish without their range, infinite when it never ends. [h]"""
        goodput = self.goodput(gpu_count)
        if goodput <= 0:
            return float("inf")
        steady = training_time.training_steady_hours(
            training_tokens=run.tokens,
            tokens_per_s_per_gpu=rate,
            gpu_count=gpu_count,
            run_multiplier=run.run_multiplier,
        )
        return float(
            training_time.training_wall_clock_hours(
                steady_hours=steady,
                goodput_fraction=goodput,
                other_fraction=self.other_fraction.value,
            )
        )

    def goodput_factors(self, gpu_count: int) -> list[Factor]:
        """By how much each uncertain input alone moves the goodput."""
        typical = self.goodput(gpu_count)
        return [
            Factor(typical, max(min(ends), LEAST_GOODPUT * typical), max(ends))
            for ends in self._goodput_ends(gpu_count)
        ]

    def _goodput_ends(self, gpu_count: int) -> list[list[float]]:
        """Goodput at the typical value and at both ends of each uncertain input alone."""
        typical = self.goodput(gpu_count)
        given: list[tuple[str, Factor]] = [(name, getattr(self, name)) for name in UNCERTAIN]
        return [
            [typical, *(self.goodput(gpu_count, {name: end}) for end in (factor.low, factor.high))]
            for name, factor in given
        ]

    def _goodput_range(self, gpu_count: int) -> tuple[float, float]:
        """Low and high goodput; a loss that exceeds the time is no factor of anything.

        There the range is that of the one input which moves the goodput most.
        """
        goodput = self.goodput(gpu_count)
        if goodput <= 0:
            ends = [end for pair in self._goodput_ends(gpu_count) for end in pair]
            return min(ends), min(1.0, max(ends))
        slow, fast = spread(self.goodput_factors(gpu_count))
        return goodput / slow, min(1.0, goodput * fast)

    def publish(self, gpu_count: int, recorder: Recorder) -> None:
        """Record the goodput, what failures cost, and the interval that would cost least."""
        inputs = self._inputs(gpu_count)
        goodput = self.goodput(gpu_count)
        low, high = self._goodput_range(gpu_count)
        recorder.evaluate(
            reliability.failures_per_day,
            failures_per_1000_node_days=self.failures_per_1000_node_days.value,
            node_count=reliability.server_count(
                gpu_count=gpu_count, gpus_per_server=self.gpus_per_server
            ),
        )
        recorder.evaluate(
            reliability.lost_s_per_failure,
            checkpoint_interval_s=inputs["checkpoint_interval_s"],
            restart_s=inputs["restart_s"],
        )
        recorder.evaluate(
            reliability.goodput_fraction,
            low=low,
            high=high,
            **inputs,
        )
        recorder.evaluate(
            reliability.wasted_gpu_hours_per_day, gpu_count=gpu_count, goodput_fraction=goodput
        )
        self._publish_interval(inputs["failures_per_day"], recorder)

    def _publish_interval(self, failures_per_day: float, recorder: Recorder) -> None:
        if failures_per_day == 0:
            recorder.note("mean_time_to_failure_hours", None)
            return
        hours = float(
            recorder.evaluate(
                reliability.mean_time_to_failure_hours, failures_per_day=failures_per_day
            )
        )
        if self.checkpoint_save_s.value > 0:
            recorder.evaluate(
                reliability.daly_checkpoint_interval_s,
                checkpoint_save_s=self.checkpoint_save_s.value,
                mean_time_to_failure_s=hours * SECONDS_PER_HOUR,
            )


def failure_model(run: TrainingRun, gpu: Gpu, recorder: Recorder) -> FailureModel:
    """What the request says about failures, and the catalog's assumptions for the rest."""
    given = run.reliability
    interval = given.checkpoint_interval_s
    server = int(positive(recorder, "failure_server_gpu_count").value)
    is_estimated = run.speed.kind == "estimated"
    return FailureModel(
        failures_per_1000_node_days=_given_or(
            given.failures_per_1000_node_days, "failures_per_1000_node_days", recorder
        ),
        checkpoint_interval_s=exactly(interval)
        if interval is not None
        else factor_of(positive(recorder, "checkpoint_interval_s")),
        checkpoint_save_s=_given_or(given.checkpoint_save_s, "checkpoint_save_s", recorder),
        restart_s=_given_or(given.restart_s, "restart_s", recorder),
        gpus_per_server=max(1, min(gpu.node_gpu_count, server)),
        other_fraction=factor_of(positive(recorder, "end_to_end_other_fraction"))
        if is_estimated
        else exactly(1.0),
    )


def _given_or(given: float | None, name: str, recorder: Recorder) -> Factor:
    if given is not None:
        return exactly(given)
    used = recorder.assume(name)
    if used.low < 0:
        raise InvalidScenario(f"{used.name} must not be below zero", pointer=used.override_at)
    return factor_of(used)


def factor_of(used: AssumptionUsed) -> Factor:
    """An assumption with its range."""
    return Factor(used.value, used.low, used.high)


def exactly(value: float) -> Factor:
    """A value that was given: without a range."""
    return Factor(value, value, value)
