"""Runs that follow one: each starts when the one before it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Range
from service.core.planners.stages import order_of_stages
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.training_run import TrainingRun
from service.core.studies.run_costs import Tariff, cost_of, own_price, planned, tariff_of
from service.core.value import Amount, Text, Value


class StageEstimate(Value):
    """One run of a sequence."""

    name: Text
    """Name of the run."""
    after: Text
    """Name of the run that it follows."""
    training_tokens: int
    """Tokens, as given or solved for."""
    gpu_count: int
    """GPUs of the run."""
    start_date: date
    """Day on which it starts."""
    finish_date: date
    """Day on which it ends."""
    wall_clock_hours: Range
    """Hours from start to finish."""
    gpu_hours: float
    """GPUs times wall clock."""
    amount: Amount | None
    """USD of its own GPU-hours; null where no price is given for its GPU, or listed."""
    amount_in_whole_nodes: Amount | None
    """USD that are paid, for whole nodes or instances."""


class AllRuns(Value):
    """A run and the stages that follow it, together."""

    gpu_hours: float
    """GPU-hours of all."""
    wall_clock_hours: float
    """Hours from the start of the first to the end of the last."""
    finish_date: date
    """Day on which the last one ends."""
    amount: Amount | None
    """USD of their own GPU-hours; null where one has no price."""
    amount_in_whole_nodes: Amount | None
    """USD that are paid, for whole nodes or instances."""


@dataclass(frozen=True)
class Stages:
    """The stages that can be had, in the order in which they run, and what the others lack."""

    found: tuple[StageEstimate, ...]
    needs: tuple[RunNeed, ...]
    """What each of them needs."""
    refused: tuple[Infeasibility, ...]


def stages_of(
    first: TrainingRun,
    need: RunNeed | None,
    stages: Sequence[TrainingRun],
    recorder: Recorder,
    *,
    price: Decimal | None,
) -> Stages:
    """Every stage that can be had, in the order in which they run, and what the others lack.

    Args:
        first: The run of the question.
        need: What it needs, None when it cannot be had: then no stage that follows it can.
        stages: Runs that follow it, or one another.
        recorder: Takes the quantities of each stage under its name.
        price: Price of an hour of the first run's GPU in USD; None takes each GPU's own.

    Raises:
        CoreError: If a stage follows nothing that is here, waits for itself, or names what the
            catalog does not hold.
    """
    runs = (first, *stages)
    pointers = _pointers(stages)
    done: dict[str, RunNeed] = {}
    refused: list[Infeasibility] = []
    found: list[StageEstimate] = []
    needs: list[RunNeed] = []
    for number in order_of_stages(runs, pointers=pointers):
        run, one = runs[number], need
        if number > 0:
            if run.after not in done:
                continue
            gpu = recorder.snapshot.gpu(run.gpu, pointer=f"{pointers[number]}/gpu")
            own = recorder.snapshot.gpu(first.gpu, pointer="/run/gpu")
            tariff = tariff_of(gpu, recorder, own_price(price, gpu, own))
            sized = planned(
                run,
                recorder.snapshot,
                recorder,
                tariff=tariff,
                pointer=pointers[number],
                followed=done[run.after],
            )
            one = sized if isinstance(sized, RunNeed) else None
            refused += () if isinstance(sized, RunNeed) else sized
            if one is not None:
                at_fault = "/price_per_gpu_hour" if tariff.is_given else pointers[number]
                found.append(_stage(one, tariff, at_fault))
                needs.append(one)
        if one is not None:
            done[run.name] = one
    return Stages(tuple(found), tuple(needs), tuple(refused))


def total_of(
    need: RunNeed | None,
    shown: Mapping[str, Any],
    stages: Sequence[StageEstimate],
    asked_count: int,
) -> AllRuns | None:
    """All runs together, None where one of them cannot be had.

    Args:
        need: What the first run needs.
        shown: What is said of it.
        stages: Those that can be had.
        asked_count: Stages that were asked for.
    """
    if need is None or len(stages) < asked_count:
        return None
    hours = need.wall_clock_hours.value
    ends = {need.run.name: hours}
    for stage in stages:
        ends[stage.name] = ends[stage.after] + stage.wall_clock_hours.value
    paid, in_nodes = (
        [shown[name], *(getattr(stage, name) for stage in stages)]
        for name in ("amount", "amount_in_whole_nodes")
    )
    return AllRuns(
        gpu_hours=need.gpu_hours + sum(stage.gpu_hours for stage in stages),
        wall_clock_hours=max(ends.values()),
        finish_date=max([need.finish.date(), *(stage.finish_date for stage in stages)]),
        amount=_sum(paid),
        amount_in_whole_nodes=_sum(in_nodes),
    )


def _sum(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


def check_stages(first: TrainingRun, stages: Sequence[TrainingRun]) -> None:
    """Refuse stages of equal names, of which one follows nothing, or that wait for one another.

    Raises:
        InvalidScenario: With the pointer of the stage at fault.
    """
    runs, pointers = (first, *stages), _pointers(stages)
    names = [run.name for run in runs]
    for number, run in enumerate(stages, start=1):
        if run.after is None:
            raise InvalidScenario(
                "a stage says which run it follows", pointer=f"{pointers[number]}/after"
            )
        if run.name in names[:number]:
            raise InvalidScenario(
                f"another run is called {run.name!r}", pointer=f"{pointers[number]}/name"
            )
    order_of_stages(runs, pointers=pointers)


def _pointers(stages: Sequence[TrainingRun]) -> list[str]:
    return ["/run", *(f"/stages/{number}" for number in range(len(stages)))]


def _stage(need: RunNeed, tariff: Tariff, pointer: str) -> StageEstimate:
    return StageEstimate(
        name=need.run.name,
        after=need.run.after or "",
        training_tokens=need.run.tokens,
        gpu_count=need.gpu_count,
        start_date=need.start.date(),
        finish_date=need.finish.date(),
        wall_clock_hours=need.wall_clock_hours,
        gpu_hours=need.gpu_hours,
        amount=cost_of(tariff.price, need.gpu_hours, need.run, pointer=pointer),
        amount_in_whole_nodes=cost_of(
            tariff.price, tariff.paid_gpu_hours(need), need.run, pointer=pointer
        ),
    )
