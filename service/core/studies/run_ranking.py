"""The same run on other GPUs of the catalog, ranked by dollars, days and energy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.core.answers import recorder_for
from service.core.errors import CoreError, InvalidScenario
from service.core.estimates import Infeasibility, InfeasibilityCode, Range, SpeedBasis
from service.core.hardware import Gpu
from service.core.planners.run_warnings import GivenSpeed
from service.core.pooling.run_bands import hfu_of, speed_of, times
from service.core.pooling.workloads import RunNeed
from service.core.pricing import AmountTooLarge
from service.core.recorder import Recorder
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.run_costs import (
    cost_of,
    energy_kwh,
    own_price,
    planned,
    tariff_of,
)
from service.core.studies.runs import TrainingRunQuestion
from service.core.units import HOURS_PER_DAY
from service.core.value import Amount, Key, Value

OWN_CONSTANTS = {
    False: ("bf16_peak_fraction", "training_sustained_fraction"),
    True: ("moe_bf16_peak_fraction", "training_sustained_fraction"),
}
"""For mixtures or not: assumptions of a training speed that the catalog holds for a GPU itself
where it was measured."""
LONGEST_REASON = 500


class RankedGpu(Value):
    """The same run on another GPU."""

    gpu: Key
    """Key of the GPU."""
    gpu_count: int | None = None
    """GPUs of the run; null when it cannot be had."""
    gpu_count_in_whole_nodes: int | None = None
    """GPUs that are paid for: of whole nodes, or of the instances that have the price."""
    days: float | None
    """Days from start to finish; null when it cannot be had."""
    wall_clock_hours: Range | None = None
    """The same in hours, with their 80 % band."""
    speed_basis: SpeedBasis | None = None
    """What the speed rests on."""
    tokens_per_s_per_gpu: Range | None = None
    """Speed, with its 80 % band where it is estimated."""
    speed_scale: float | None = None
    """Given speed over the estimated one on the run's own GPU, by which the estimate of this one
    is multiplied; null where the run's speed is estimated or this is its own GPU."""
    is_class_fallback: bool | None = None
    """True where no speed of training was measured on this GPU, and constants of its class stand
    in: what is between GPUs of a class is then not known. Null where the speed was given."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    amount: Amount | None
    """USD that are paid, for `gpu_count_in_whole_nodes` GPUs; null where no price is listed, or
    given for the run's own GPU."""
    rank_by_amount: int | None = None
    """Place by dollars, from 1; null without an amount."""
    rank_by_days: int | None = None
    """Place by days, from 1; null when it cannot be had."""
    rank_by_energy: int | None = None
    """Place by energy, from 1; null where it is not known."""
    failing_limit: str | None
    """The limit that fails it; null when it can be had."""
    infeasibility: Infeasibility | None = None
    """Why it cannot be had, by how much, and what would work; null when it can."""


@dataclass(frozen=True)
class Ranking:
    """What every place of a ranking shares."""

    question: TrainingRunQuestion
    snapshot: CatalogSnapshot
    recorder: Recorder
    """Of the answer: remembers the prices."""
    own: RunNeed | None
    """What the run needs on its own GPU; None when it cannot be had there."""
    given: GivenSpeed | None
    """The estimate beside a speed that is given; None where it is estimated or cannot be."""

    def rows(self) -> tuple[RankedGpu, ...]:
        """By dollars, those without a price by days, failing ones last."""
        last = float("inf")
        ranked = [self._ranked(number) for number in range(len(self.question.ranked_gpus))]
        places = dict(_places(ranked))
        return tuple(
            one.model_copy(update={name: found.get(one.gpu) for name, found in places.items()})
            for one in sorted(
                ranked,
                key=lambda one: (
                    one.failing_limit is not None,
                    last if one.amount is None else float(one.amount),
                    last if one.days is None else one.days,
                ),
            )
        )

    def _ranked(self, number: int) -> RankedGpu:
        """The same run on one GPU, its layout chosen anew."""
        key, pointer = self.question.ranked_gpus[number], f"/ranked_gpus/{number}"
        gpu = self.snapshot.gpu(key, pointer=pointer)
        run = self._moved(gpu)
        if run is None:
            return _failing(key, self._unknown_speed(gpu))
        try:
            return self._judged(gpu, run, pointer)
        except CoreError as refused:
            return _failing(key, self._refused(refused), refused.message)

    @property
    def _own_gpu(self) -> Gpu:
        return self.snapshot.gpu(self.question.run.gpu, pointer="/run/gpu")

    def _moved(self, gpu: Gpu) -> TrainingRun | None:
        """The run on another GPU; None where its speed is given for its own one alone."""
        run = self.question.run
        if run.speed.kind == "estimated" or gpu == self._own_gpu:
            return run.model_copy(update={"gpu": gpu.key})
        if self.given is None:
            return None
        return self.given.elsewhere(run, gpu)

    def _judged(self, gpu: Gpu, run: TrainingRun, pointer: str) -> RankedGpu:
        question = self.question
        price = own_price(question.price_per_gpu_hour, gpu, self._own_gpu)
        tariff = tariff_of(gpu, self.recorder, price)
        aside = recorder_for(question, self.snapshot)
        need = planned(run, self.snapshot, aside, tariff=tariff)
        if not isinstance(need, RunNeed):
            return _failing(gpu.key, need[0])
        is_moved = run.speed != question.run.speed
        scale = self.given.scale if is_moved and self.given else None
        reached = hfu_of(need, aside)
        if scale and reached and reached.value * scale > 1:
            return _failing(gpu.key, _above_peak(need, reached.value * scale))
        is_given = need.speed_basis not in {"mechanism", "table"}
        paid = tariff.paid_gpu_hours(need)
        return RankedGpu(
            gpu=gpu.key,
            gpu_count=need.gpu_count,
            gpu_count_in_whole_nodes=tariff.paid_gpu_count(need.gpu_count),
            days=need.wall_clock_hours.value / HOURS_PER_DAY,
            wall_clock_hours=need.wall_clock_hours,
            speed_basis=need.speed_basis,
            tokens_per_s_per_gpu=times(speed_of(need, aside), scale or 1.0),
            speed_scale=scale,
            is_class_fallback=None if is_given else not _has_own_constants(run, gpu, self.snapshot),
            gpu_hours=need.gpu_hours,
            energy_kwh=energy_kwh(need),
            amount=cost_of(tariff.price, paid, run, pointer=pointer),
            failing_limit=None,
        )

    def _unknown_speed(self, gpu: Gpu) -> Infeasibility:
        """A speed that is given for one GPU says nothing of another without an estimate of both."""
        return _reason(
            self.question.run,
            "no_constants",
            f"speed on {gpu.key}",
            f"a speed of kind estimated, or this GPU asked for by itself with its own speed: "
            f"{self.question.run.speed.kind} is given for {self._own_gpu.key} alone, and no "
            "estimate of the same run there says how to carry it over",
        )

    def _refused(self, refused: CoreError) -> Infeasibility:
        """A refusal of the whole request, on this GPU alone."""
        is_amount = isinstance(refused, AmountTooLarge)
        return _reason(
            self.question.run,
            "budget" if is_amount else "layout",
            "digits of an amount" if is_amount else "the run as asked for, on this GPU",
            refused.message,
        )


def check_ranked(question: TrainingRunQuestion) -> None:
    """Refuse a GPU that is named twice.

    Raises:
        InvalidScenario: With the pointer of the second.
    """
    keys = question.ranked_gpus
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise InvalidScenario(f"{key} is named twice", pointer=f"/ranked_gpus/{number}")


def _places(ranked: Sequence[RankedGpu]) -> Iterator[tuple[str, dict[str, int]]]:
    """Place of each GPU by each measure, least first; equal ones share the better place."""
    measures: dict[str, Callable[[RankedGpu], Any]] = {
        "rank_by_amount": lambda one: one.amount,
        "rank_by_days": lambda one: one.days,
        "rank_by_energy": lambda one: one.energy_kwh,
    }
    for name, measure in measures.items():
        found = {one.gpu: value for one in ranked if (value := measure(one)) is not None}
        order = sorted(found.values())
        yield name, {gpu: order.index(value) + 1 for gpu, value in found.items()}


def _has_own_constants(run: TrainingRun, gpu: Gpu, snapshot: CatalogSnapshot) -> bool:
    known = None if run.architecture is None else snapshot.architecture(run.architecture)
    names = OWN_CONSTANTS[known is not None and known.is_mixture]
    own = tuple(f"{name}.{gpu.key}." for name in names)
    return any(f"{name}.".startswith(own) for name in snapshot.assumptions)


def _above_peak(need: RunNeed, reached: float) -> Infeasibility:
    return _reason(
        need.run,
        "no_constants",
        f"dense {need.run.compute_precision} peak of {need.gpu.key}",
        "a speed of kind estimated: carried over in proportion, the given one lies above the peak",
        needed=reached,
        available=1.0,
    )


def _reason(
    run: TrainingRun,
    code: InfeasibilityCode,
    limit: str,
    fix: str,
    *,
    needed: float | None = None,
    available: float | None = None,
) -> Infeasibility:
    return Infeasibility(
        workload=run.name,
        code=code,
        limit=limit[:200],
        needed=needed,
        available=available,
        unit=None if needed is None else "share of the peak",
        nearest_fix=fix[:2000],
    )


def _failing(key: str, reason: Infeasibility, said: str | None = None) -> RankedGpu:
    return RankedGpu(
        gpu=key,
        days=None,
        gpu_hours=None,
        energy_kwh=None,
        amount=None,
        failing_limit=(said or reason.limit)[:LONGEST_REASON],
        infeasibility=reason,
    )
