"""The same run on other GPUs of the catalog, ranked by dollars, days and energy."""

from collections.abc import Callable, Sequence
from decimal import Decimal

from service.core.errors import CoreError
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.studies.run_costs import cost_of, energy_kwh, own_price, planned, tariff_of
from service.core.studies.run_question import TrainingRunQuestion
from service.core.units import HOURS_PER_DAY
from service.core.value import Amount, Key, Value


class RankedGpu(Value):
    """The same run on another GPU."""

    gpu: Key
    """Key of the GPU."""
    gpu_count: int | None = None
    """GPUs of the run; null when it cannot be had."""
    days: float | None
    """Days from start to finish; null when it cannot be had."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    amount: Amount | None
    """USD that are paid, for whole nodes or instances; null where no price is listed, or given for
    the run's own GPU."""
    rank_by_amount: int | None = None
    """Place by dollars, from 1; null without an amount."""
    rank_by_days: int | None = None
    """Place by days, from 1; null when it cannot be had."""
    rank_by_energy: int | None = None
    """Place by energy, from 1; null where it is not known."""
    failing_limit: str | None
    """The limit that fails it; null when it can be had."""


def ranking_of(
    question: TrainingRunQuestion, keys: Sequence[Key], recorder: Recorder
) -> tuple[RankedGpu, ...]:
    """By dollars, those without a price by days, failing ones last.

    Raises:
        UnknownKey: If the catalog holds no GPU of a key.
    """
    ranked = [
        _ranked(key, question, recorder, f"/ranked_gpus/{number}")
        for number, key in enumerate(keys)
    ]
    places = {
        "rank_by_amount": _places(
            ranked, lambda one: None if one.amount is None else float(one.amount)
        ),
        "rank_by_days": _places(ranked, lambda one: one.days),
        "rank_by_energy": _places(ranked, lambda one: one.energy_kwh),
    }
    last = float("inf")
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


def _places(
    ranked: Sequence[RankedGpu], measure: Callable[[RankedGpu], float | None]
) -> dict[str, int]:
    """Place of each GPU by a measure, least first; equal ones share the better place."""
    found = {one.gpu: value for one in ranked if (value := measure(one)) is not None}
    order = sorted(found.values())
    return {gpu: order.index(value) + 1 for gpu, value in found.items()}


def _ranked(key: str, question: TrainingRunQuestion, recorder: Recorder, pointer: str) -> RankedGpu:
    """The same run on one other GPU, its layout chosen anew."""
    gpu = recorder.snapshot.gpu(key, pointer=pointer)
    moved = question.run.model_copy(update={"gpu": key})
    own = recorder.snapshot.gpu(question.run.gpu, pointer="/run/gpu")
    tariff = tariff_of(gpu, recorder, own_price(question.price_per_gpu_hour, gpu, own))
    failing: str | None
    amount: Decimal | None = None
    try:
        need = planned(moved, recorder.snapshot, recorder.off(), tariff=tariff)
        failing = None if isinstance(need, RunNeed) else need[0].limit
        if isinstance(need, RunNeed):
            paid = tariff.paid_gpu_hours(need)
            amount = cost_of(tariff.price, paid, need.run, pointer=pointer)
    except CoreError as refused:
        need, failing = (), refused.message
    if not isinstance(need, RunNeed):
        nothing = dict.fromkeys(("days", "gpu_hours", "energy_kwh", "amount"))
        return RankedGpu(gpu=key, failing_limit=(failing or "")[:500], **nothing)
    return RankedGpu(
        gpu=key,
        gpu_count=need.gpu_count,
        days=need.wall_clock_hours.value / HOURS_PER_DAY,
        gpu_hours=need.gpu_hours,
        energy_kwh=energy_kwh(need),
        amount=amount,
        failing_limit=None,
    )
