"""One training run: hours, dollars, energy, where a step's time goes, and other GPUs beside it."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.costs.offers import cheapest_offer
from service.core.errors import CoreError
from service.core.estimates import Infeasibility, Quantity, Range, SpeedBasis, TrainingMemory
from service.core.formulas import training_time
from service.core.hardware import Gpu
from service.core.parallelism import ParallelLayout
from service.core.planners.training import plan_training_run
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.studies.runs import TrainingQuestion
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from service.core.value import Amount, Key, Positive, Price, Value

WATTS_PER_KW = 1000.0
CENT = Decimal("0.01")
STEP_PARTS = ("compute", "launch", "exposed_network", "bubble", "optimizer")


class TrainingRunQuestion(TrainingQuestion):
    """One training run, and what it may cost."""

    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour in USD; the cheapest listed on-demand price when null."""
    budget: Price | None = None
    """USD that may be spent: the answer says how many tokens they buy."""
    reported_gpu_hours: Positive | None = None
    """GPU-hours that a publisher reports, to be set beside the estimate."""
    ranked_gpus: Annotated[tuple[Key, ...], Field(max_length=30)] = ()
    """GPUs of the catalog that the same run is tried on."""


class StepTime(Value):
    """Where the time of one step goes, in seconds; the parts add up to the step."""

    compute: float
    """Matrices, attention, memory passes and experts."""
    launch: float
    """What launching kernels adds."""
    exposed_network: float
    """Exchanges that computation does not hide."""
    bubble: float
    """Pipeline stages that wait."""
    optimizer: float
    """Update of the weights."""


class RankedGpu(Value):
    """The same run on another GPU."""

    gpu: Key
    """Key of the GPU."""
    days: float | None
    """Days from start to finish; null when it cannot be had."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    amount: Amount | None
    """USD; null where no price is listed."""
    failing_limit: str | None
    """The limit that fails it; null when it can be had."""


class TrainingRunAnswer(EstimateAnswer):
    """What one run needs."""

    gpu_count: int | None
    """GPUs of the run."""
    layout: ParallelLayout | None
    """How the model is spread."""
    memory_gib_per_gpu: TrainingMemory | None
    """Memory of the fullest GPU."""
    speed_basis: SpeedBasis | None
    """What the speed rests on."""
    tokens_per_s_per_gpu: Range | None
    """Speed, with the band of what was held out of its fit."""
    step_s: StepTime | None
    """Where the time of a step goes; null when the speed is not estimated by its terms."""
    model_flops: float | None
    """FLOP of the whole run by the 6PT convention."""
    mfu_fraction: float | None
    """Model FLOPs over the dense peak of the compute precision, recompute ignored."""
    hfu_fraction: float | None
    """Executed FLOPs over the same peak, recompute counted."""
    steady_hours: float | None
    """Hours at steady speed."""
    wall_clock_hours: Range | None
    """Hours from start to finish."""
    wall_clock_days: float | None
    """The same in days."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    booked_gpu_hours: Range | None
    """GPU-hours that published runs of this kind book; null without an estimated speed."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    amount: Amount | None
    """USD; null where no price is given or listed."""
    tokens_within_budget: float | None
    """Tokens that the budget buys; null without budget or price."""
    reported_over_estimate: float | None
    """Reported GPU-hours over the estimated ones."""
    ranking: tuple[RankedGpu, ...]
    """The same run on other GPUs: by dollars, those without a price by days, failing ones last."""


def estimate_training_run(
    question: TrainingRunQuestion, snapshot: CatalogSnapshot
) -> TrainingRunAnswer:
    """Estimate one run: speed, hours, dollars, energy.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(question.run.gpu, pointer="/run/gpu")
    need = _planned(question.run, snapshot, recorder)
    shown: dict[str, Any] = dict.fromkeys(TrainingRunAnswer.model_fields)
    for name in (*EstimateAnswer.model_fields, "ranking"):
        del shown[name]
    refused: tuple[Infeasibility, ...] = ()
    if isinstance(need, RunNeed):
        shown |= _shown(question, need, gpu, recorder)
    else:
        refused = need
    ranking = _ranking(question, recorder)
    return TrainingRunAnswer(
        **shared_fields(recorder, infeasibilities=refused),
        **shown,
        ranking=ranking,
    )


def _planned(
    run: TrainingRun, snapshot: CatalogSnapshot, recorder: Recorder
) -> RunNeed | tuple[Infeasibility, ...]:
    day = run.start_date or snapshot.as_of_date
    return plan_training_run(
        run.model_copy(update={"start_date": day}),
        snapshot=snapshot,
        recorder=recorder,
        horizon=Horizon(start_month=f"{day:%Y-%m}", month_count=1),
        gpu_multiple=1,
        pointer="/run",
    )


def _price(gpu: Gpu, recorder: Recorder, given: Decimal | None) -> Decimal | None:
    """USD for one GPU-hour: given, or the cheapest on-demand price that may be used."""
    if given is not None:
        return given
    method = RentMethod(kind="rent")
    offer = cheapest_offer(method, gpu=gpu, currency="USD", snapshot=recorder.snapshot)
    if offer is None:
        return None
    recorder.rest_on_price(offer.key, verified=offer.provenance.verified)
    return offer.price_per_gpu_hour + (offer.host_price_per_gpu_hour or Decimal(0))


def _cost(price: Decimal | None, gpu_hours: float) -> Decimal | None:
    """USD of so many GPU-hours, to the cent."""
    if price is None:
        return None
    return (price * Decimal(f"{gpu_hours:.6f}")).quantize(CENT)


def _energy_kwh(need: RunNeed) -> float | None:
    limit = need.gpu.thermal_design_power_w
    return None if limit is None else need.gpu_hours * limit / WATTS_PER_KW


def _shown(
    question: TrainingRunQuestion, need: RunNeed, gpu: Gpu, recorder: Recorder
) -> dict[str, Any]:
    found = {q.name: q for q in recorder.quantities()}
    rate = found.get("training_tokens_per_s_per_gpu")
    price = _price(gpu, recorder, question.price_per_gpu_hour)
    amount = _cost(price, need.gpu_hours)
    parts = {name: found.get(f"training_{name}_s_per_step") for name in STEP_PARTS}
    is_known = all(part is not None for part in parts.values())
    budget = question.budget
    tokens = question.run.training_tokens
    return {
        "gpu_count": need.gpu_count,
        "layout": need.layout,
        "memory_gib_per_gpu": need.memory,
        "speed_basis": need.speed_basis,
        "tokens_per_s_per_gpu": rate and _range(rate),
        "step_s": StepTime.model_validate({n: p.value for n, p in parts.items() if p})
        if is_known
        else None,
        "model_flops": need.model_flops,
        "mfu_fraction": need.mfu_fraction,
        "hfu_fraction": found["training_hfu_fraction"].value
        if "training_hfu_fraction" in found
        else None,
        "steady_hours": need.steady_hours,
        "wall_clock_hours": need.wall_clock_hours,
        "wall_clock_days": need.wall_clock_hours.value / HOURS_PER_DAY,
        "gpu_hours": need.gpu_hours,
        "booked_gpu_hours": _booked(need, gpu, recorder),
        "energy_kwh": _energy_kwh(need),
        "amount": amount,
        "tokens_within_budget": float(tokens * budget / amount) if budget and amount else None,
        "reported_over_estimate": question.reported_gpu_hours / need.gpu_hours
        if question.reported_gpu_hours
        else None,
    }


def _range(quantity: Quantity) -> Range:
    return Range.model_validate(
        {"value": quantity.value, "low": quantity.low, "high": quantity.high}
    )


def _booked(need: RunNeed, gpu: Gpu, recorder: Recorder) -> Range | None:
    """GPU-hours that such runs book: the geometric mean of the estimate and of what others took."""
    peak, work = gpu.peak_flop_per_s("bf16"), need.model_flops
    if need.speed_basis not in {"mechanism", "table"} or peak is None or work is None:
        return None
    run = need.run
    architecture = recorder.snapshot.architecture(run.architecture or "")
    kinds = (gpu.gpu_class, "mixture") if architecture.is_mixture else (gpu.gpu_class,)
    share = recorder.assume("training_booked_mfu_fraction", *kinds).value
    per_token = work / run.training_tokens
    end_to_end = recorder.assume("training_end_to_end_fraction").value
    steady = need.steady_hours * need.gpu_count / run.run_multiplier
    rate = run.training_tokens / (steady * SECONDS_PER_HOUR)
    hours = run.run_multiplier * recorder.evaluate(
        training_time.training_booked_gpu_hours,
        training_tokens=run.training_tokens,
        tokens_per_s_per_gpu=rate * end_to_end,
        booked_tokens_per_s_per_gpu=share * peak / per_token,
    )
    band = recorder.assume("training_hours_residual_factor")
    return Range(value=hours, low=hours * band.low, high=hours * band.high)


def _ranking(question: TrainingRunQuestion, recorder: Recorder) -> tuple[RankedGpu, ...]:
    ranked = [_ranked(place, question, recorder) for place in range(len(question.ranked_gpus))]
    last = float("inf")
    return tuple(
        sorted(
            ranked,
            key=lambda one: (
                one.failing_limit is not None,
                last if one.amount is None else float(one.amount),
                last if one.days is None else one.days,
            ),
        )
    )


def _ranked(place: int, question: TrainingRunQuestion, recorder: Recorder) -> RankedGpu:
    """The same run on one other GPU, its layout chosen anew."""
    key, snapshot = question.ranked_gpus[place], recorder.snapshot
    gpu = snapshot.gpu(key, pointer=f"/ranked_gpus/{place}")
    quiet = recorder.off()
    moved = question.run.model_copy(update={"gpu": key})
    failing: str | None
    try:
        need = _planned(moved, snapshot, quiet)
        failing = None if isinstance(need, RunNeed) else need[0].limit
    except CoreError as refused:
        need, failing = (), refused.message
    if not isinstance(need, RunNeed):
        nothing = dict.fromkeys(("days", "gpu_hours", "energy_kwh", "amount"))
        return RankedGpu(gpu=key, failing_limit=(failing or "")[:500], **nothing)
    price = _price(gpu, recorder, None)
    return RankedGpu(
        gpu=key,
        days=need.wall_clock_hours.value / HOURS_PER_DAY,
        gpu_hours=need.gpu_hours,
        energy_kwh=_energy_kwh(need),
        amount=_cost(price, need.gpu_hours),
        failing_limit=None,
    )
