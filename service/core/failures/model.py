"""How often a training run stops and what a stop costs, each with its range."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot

from service.core.factors import Factor, spread
from service.core.formulas import reliability, training_time
from service.core.scenarios.reliability import IntervalRule, ObservedIncidents, Saves
from service.core.scenarios.training_run import TrainingRun
from service.core.units import BYTES_PER_GB, HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR

UNCERTAIN = (
    "failures_per_1000_node_days",
    "checkpoint_interval_s",
    "checkpoint_save_s",
    "checkpoint_write_s",
    "restart_s",
)
LEAST_GOODPUT = 0.01
"""End of the range where the adverse case of failures would never end."""
NEVER = float("inf")


@dataclass(frozen=True)
class Writing:
    """What writes a checkpoint of so many bytes."""

    checkpoint_bytes: float
    store_gb_per_s: float
    """Infinite where it sets no limit."""
    node_gb_per_s: float
    """Infinite where it sets no limit."""
    gpus_per_node: int

    def inputs(self, gpu_count: int) -> dict[str, float]:
        """Inputs of the formula that says how long it takes."""
        return {
            "checkpoint_bytes": self.checkpoint_bytes,
            "storage_bytes_per_s": self.store_gb_per_s * BYTES_PER_GB,
            "writer_count": float(
                reliability.server_count(gpu_count=gpu_count, gpus_per_server=self.gpus_per_node)
            ),
            "writer_bytes_per_s": self.node_gb_per_s * BYTES_PER_GB,
        }

    def seconds(self, gpu_count: int) -> float:
        """How long all nodes of so many GPUs write one checkpoint. [s]"""
        return float(reliability.checkpoint_write_s(**self.inputs(gpu_count)))


@dataclass(frozen=True)
class FailureModel:
    """How often a run stops and what a stop costs, each with its range."""

    failures_per_1000_node_days: Factor
    checkpoint_interval_s: Factor | None
    """None where a rule finds it, on so many GPUs."""
    checkpoint_save_s: Factor | None
    """Stop of a save; None where it follows from what writes it, on so many GPUs."""
    checkpoint_write_s: Factor | None
    """Write beside the run, 0 with blocking saves; None where it follows from what writes it."""
    restart_s: Factor
    gpus_per_server: int
    other_fraction: Factor
    """Share of the time outside failures that is steady training."""
    spot_interruptions_per_1000_node_days: float = 0.0
    preemptions_per_day: float = 0.0
    interval_rule: IntervalRule = "seconds"
    saves: Saves = "blocking"
    writing: Writing | None = None
    observed: ObservedIncidents | None = None

    @property
    def more_nodes_save_faster(self) -> bool:
        """True where the bandwidth of a node limits saves, so that a larger run may save faster."""
        return self.writing is not None and self.writing.node_gb_per_s < NEVER

    def server_count(self, gpu_count: int) -> float:
        """Servers of the size that failure rates are published for. [count]"""
        return float(
            reliability.server_count(gpu_count=gpu_count, gpus_per_server=self.gpus_per_server)
        )

    def rates(self, gpu_count: int, per_1000_node_days: float) -> dict[str, float]:
        """Inputs of the stops a day."""
        return {
            "failures_per_1000_node_days": per_1000_node_days,
            "node_count": self.server_count(gpu_count),
            "spot_interruptions_per_1000_node_days": self.spot_interruptions_per_1000_node_days,
            "preemptions_per_day": self.preemptions_per_day,
        }

    def stops_per_day(self, gpu_count: int) -> Factor:
        """Failures, interruptions and preemptions of the whole run. [1/d]"""
        rate = self.failures_per_1000_node_days
        ends = (
            float(reliability.failures_per_day(**self.rates(gpu_count, end)))
            for end in (rate.value, rate.low, rate.high)
        )
        return Factor(*ends)

    def save_s(self, gpu_count: int) -> Factor:
        """Time for which a save stops the run. [s]"""
        return self.checkpoint_save_s or self._written(gpu_count)

    def write_s(self, gpu_count: int) -> Factor:
        """Time in which a save is written while the run goes on. [s]"""
        return self.checkpoint_write_s or self._written(gpu_count)

    def _written(self, gpu_count: int) -> Factor:
        return exactly(0.0 if self.writing is None else self.writing.seconds(gpu_count))

    def least_interval_s(self, gpu_count: int) -> float:
        """What a save takes in all: the next one cannot begin before. [s]"""
        return float(self.save_s(gpu_count).value + self.write_s(gpu_count).value)

    def interval_s(self, gpu_count: int) -> Factor:
        """Time from the start of one checkpoint to the start of the next. [s]"""
        least = self.least_interval_s(gpu_count)
        given = self.checkpoint_interval_s
        if given is not None:
            asynchronous = self.saves == "asynchronous"
            shortest = min(given.value, least) if asynchronous else given.low
            return Factor(given.value, max(given.low, shortest), given.high)
        return exactly(max(least, self.rule_s(gpu_count, self.interval_rule) or 0.0))

    def rule_s(self, gpu_count: int, rule: IntervalRule) -> float | None:
        """Interval of least waste by a rule; None where nothing fails or a save costs nothing."""
        per_day = self.stops_per_day(gpu_count).value
        save = self.save_s(gpu_count).value
        if per_day <= 0 or save <= 0:
            return None
        formula = (
            reliability.young_checkpoint_interval_s
            if rule == "young"
            else reliability.daly_checkpoint_interval_s
        )
        mean_s = SECONDS_PER_DAY / per_day
        return float(formula(checkpoint_save_s=save, mean_time_to_failure_s=mean_s))

    def factors(self, gpu_count: int) -> dict[str, Factor]:
        """Every uncertain input on so many GPUs."""
        return {
            "failures_per_1000_node_days": self.failures_per_1000_node_days,
            "checkpoint_interval_s": self.interval_s(gpu_count),
            "checkpoint_save_s": self.save_s(gpu_count),
            "checkpoint_write_s": self.write_s(gpu_count),
            "restart_s": self.restart_s,
        }

    def inputs(self, gpu_count: int, moved: Mapping[str, float] | None = None) -> dict[str, float]:
        """Inputs of the goodput: typical values, but for those that are moved."""
        values = {name: float(each.value) for name, each in self.factors(gpu_count).items()}
        values |= dict(moved or {})
        rate = values.pop("failures_per_1000_node_days")
        per_day = float(reliability.failures_per_day(**self.rates(gpu_count, rate)))
        return {"failures_per_day": per_day, **values}

    def goodput(self, gpu_count: int, moved: Mapping[str, float] | None = None) -> float:
        """Share of the time that makes progress; zero or below when the run never ends. [1]

        Where an asynchronous save is not written before the next begins, no checkpoint ever counts.
        """
        if self.saves_overlap(gpu_count):
            return 0.0
        return float(reliability.goodput_fraction(**self.inputs(gpu_count, moved)))

    def saves_overlap(self, gpu_count: int) -> bool:
        """True where a save that is written beside the run takes longer than the interval."""
        if self.saves == "blocking":
            return False
        return bool(self.least_interval_s(gpu_count) > self.interval_s(gpu_count).value)

    def typical_hours(self, run: TrainingRun, *, rate: float, gpu_count: int) -> float:
        """Hours from start to finish without their range, infinite when it never ends. [h]"""
        goodput = self.goodput(gpu_count)
        if goodput <= 0:
            return NEVER
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
        return [
            [typical, *(self.goodput(gpu_count, {name: end}) for end in (each.low, each.high))]
            for name, each in self.factors(gpu_count).items()
        ]

    def goodput_range(self, gpu_count: int) -> Factor:
        """Goodput with its range; a loss that exceeds the time is no factor of anything.

        There the range is that of the one input which moves the goodput most.
        """
        goodput = self.goodput(gpu_count)
        if goodput <= 0:
            ends = [end for pair in self._goodput_ends(gpu_count) for end in pair]
            return Factor(goodput, min(ends), min(1.0, max(ends)))
        slow, fast = spread(self.goodput_factors(gpu_count))
        return Factor(goodput, goodput / slow, min(1.0, goodput * fast))

    def lost_s(self, gpu_count: int) -> Factor:
        """Time that one stop costs, its independent parts adding up as squares. [s]"""
        interval, write = self.interval_s(gpu_count), self.write_s(gpu_count)
        parts = (
            Factor(interval.value / 2, interval.low / 2, interval.high / 2),
            self.restart_s,
            write,
        )
        value = sum(part.value for part in parts)
        less = hypot(*(part.value - part.low for part in parts))
        more = hypot(*(part.high - part.value for part in parts))
        return Factor(float(value), float(value) - less, float(value) + more)

    def mean_hours(self, gpu_count: int) -> Factor | None:
        """Hours between stops, None when there are none; unbounded ends are left at the value."""
        stops = self.stops_per_day(gpu_count)
        if stops.value <= 0:
            return None
        ends = (HOURS_PER_DAY / each if each > 0 else NEVER for each in (stops.high, stops.low))
        low, high = ends
        return Factor(HOURS_PER_DAY / stops.value, low, high)

    def rule_range(self, gpu_count: int) -> Factor | None:
        """Interval of least waste with what its save and the stops may be. [s]"""
        hours, save = self.mean_hours(gpu_count), self.save_s(gpu_count)
        if hours is None or save.value <= 0:
            return None

        def at(seconds: float, mean_hours: float) -> float:
            return float(
                reliability.daly_checkpoint_interval_s(
                    checkpoint_save_s=seconds, mean_time_to_failure_s=mean_hours * SECONDS_PER_HOUR
                )
            )

        value = at(save.value, hours.value)
        longest = hours.high if hours.high < NEVER else hours.value
        ends = (at(save.value, hours.low), at(save.value, longest))
        saves = (at(save.low, hours.value), at(save.high, hours.value))
        low = value - hypot(*(value - min(pair[0], value) for pair in (ends, saves)))
        high = value + hypot(*(max(pair[1], value) - value for pair in (ends, saves)))
        return Factor(value, max(0.0, low), high)


def exactly(value: float) -> Factor:
    """A value that was given: without a range."""
    return Factor(value, value, value)
