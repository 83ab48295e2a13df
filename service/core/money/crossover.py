"""When serving has cost more than training: in FLOPs, in GPU-hours and in money.

Serving grows by the month; a month has 730 hours. Attention over the context is left out of the
FLOPs of both sides, 6 per weight and token trained and 2 per weight and token served.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypeAliasType

from service.core.answers import EstimateAnswer, PricedQuestion, recorder_for, shared_fields
from service.core.costs.terms import Rental
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.formulas.finance import (
    cumulative_crossover_months,
    serving_flop_per_day,
    serving_gpu_hours_per_day,
    single_month_crossover_months,
    tokens_served_at_training_flops,
)
from service.core.planners.procurement import no_price, rented_terms
from service.core.pricing import BOUND, money, printed
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.snapshot import CatalogSnapshot
from service.core.units import FLOP_PER_S_PER_TFLOPS, HOURS_PER_DAY, SECONDS_PER_HOUR
from service.core.value import (
    Amount,
    Currency,
    LongText,
    Number,
    Positive,
    PositiveFraction,
    TokenCount,
    Value,
)

DAYS_PER_MONTH = 730 / HOURS_PER_DAY
TrafficPreset = Literal["internal_tool", "product", "popular_product", "frontier_product"]
"""How much is served; the numbers are assumptions of the catalog."""

for _name, _unit, _formula in (
    ("crossover_training_flop", "FLOP", "6 x active parameters x training tokens"),
    ("crossover_training_gpu_hours", "gpu_hour", "training FLOP / (peak x MFU) / 3600"),
    ("crossover_first_day_serving_flop", "FLOP", "2 x active parameters x tokens of the first day"),
    (
        "crossover_first_day_serving_gpu_hours",
        "gpu_hour",
        "serving FLOP / (peak x serving MFU) / 3600",
    ),
    ("crossover_flop_days", "d", "ln(1 + g F / S) / ln(1 + g) months of 730 hours"),
    ("crossover_gpu_hour_days", "d", "ln(1 + g F / S) / ln(1 + g) months of 730 hours"),
    ("crossover_amount_days", "d", "ln(1 + g F / S) / ln(1 + g) months of 730 hours"),
    ("tokens_served_at_training_flop", "token", "3 x training tokens"),
):
    define_quantity(_name, unit=_unit, per="plan", formula=_formula)  # type: ignore[arg-type]


class PresetTraffic(Value):
    """Traffic of a usual size."""

    kind: Literal["preset"]
    """Kind of traffic."""
    preset: TrafficPreset
    """Which size."""


class TokenTraffic(Value):
    """Traffic in tokens."""

    kind: Literal["daily_tokens"]
    """Kind of traffic."""
    tokens_per_day: Positive
    """Prompt and answer tokens of the first day."""


Traffic = TypeAliasType(
    "Traffic", Annotated[PresetTraffic | TokenTraffic, Field(discriminator="kind")]
)
"""How much is served at first."""


class CrossoverQuestion(PricedQuestion):
    """What is trained once and served ever after."""

    architecture: ArchitectureRef
    """What is trained and served."""
    training_tokens: TokenCount
    """Tokens of the training."""
    gpu: GpuRef
    """GPU of both."""
    training_mfu_fraction: PositiveFraction = 0.4
    """Model FLOPs of training over the dense 16-bit peak."""
    serving_mfu_fraction: PositiveFraction = 0.1
    """Model FLOPs of serving over the dense 16-bit peak, prompt and answer together."""
    traffic: Traffic
    """How much is served on the first day."""
    growth_per_month_fraction: Annotated[Number, Field(gt=-1, le=1)] = 0.0
    """Growth of the traffic from one month to the next."""
    month_count: Annotated[int, Field(ge=1, le=360)] = 60
    """Months of the series."""
    currency: Currency = "USD"
    """Currency of all amounts."""
    training_rent: Annotated[RentMethod, Field(default_factory=lambda: RentMethod(kind="rent"))]
    """What a GPU-hour of training costs; the cheapest listed on-demand price by default."""
    serving_rent: Annotated[RentMethod, Field(default_factory=lambda: RentMethod(kind="rent"))]
    """What a GPU-hour of serving costs; the cheapest listed on-demand price by default."""


class Crossing(Value):
    """When serving overtakes training in one measure."""

    cumulative_days: float | None
    """Days until all serving so far equals the training; null when it never does."""
    single_month_months: float | None
    """Months until one month's serving equals the whole training; null when it never does."""


class CrossoverMonth(Value):
    """Serving from the start to the end of one month."""

    month: int
    """Months since the start."""
    day: float
    """Days since the start."""
    tokens_per_day: float
    """Traffic in the month."""
    serving_flop: float
    """FLOP of all serving so far."""
    serving_gpu_hours: float
    """GPU-hours of all serving so far."""
    serving_amount: Amount | None
    """Cost of all serving so far; null without a price, or beyond twelve digits."""


class CrossoverAnswer(EstimateAnswer):
    """Training against serving."""

    active_parameter_count: int
    """Weights that one token passes."""
    tokens_per_day: float
    """Traffic of the first day."""
    training_flop: float
    """FLOP of the training."""
    training_gpu_hours: float
    """GPU-hours of the training."""
    training_amount: Amount | None
    """Cost of the training; null without a price, or beyond twelve digits."""
    training_price_per_gpu_hour: Amount | None
    """What a GPU-hour of training costs."""
    serving_price_per_gpu_hour: Amount | None
    """What a GPU-hour of serving costs."""
    price_source: LongText | None
    """Where the price of serving comes from."""
    currency: Currency
    """Currency of all amounts."""
    flop: Crossing
    """By operations."""
    gpu_hours: Crossing
    """By GPU-hours."""
    amount: Crossing | None
    """By money; null without a price."""
    series: tuple[CrossoverMonth, ...]
    """Month by month, to plot."""


@dataclass(frozen=True)
class _Side:
    """What training takes in all, and serving on its first day, in one measure."""

    training: float
    serving_per_day: float


def estimate_crossover(question: CrossoverQuestion, snapshot: CatalogSnapshot) -> CrossoverAnswer:
    """Find the days on which all serving so far has taken as much as the training.

    Raises:
        CoreError: If the question names what the release does not hold.
    """
    recorder = recorder_for(question, snapshot)
    weights = snapshot.architecture(
        question.architecture, pointer="/architecture"
    ).active_parameter_count
    tokens = _tokens_per_day(question, recorder)
    flop, gpu_hours = _work(question, weights, tokens, recorder)
    prices, missing = _prices(question, recorder)
    training_price, serving_price = (None if price is None else float(price[0]) for price in prices)
    amount = None
    if training_price is not None and serving_price is not None:
        amount = _Side(
            gpu_hours.training * training_price, gpu_hours.serving_per_day * serving_price
        )
    growth = question.growth_per_month_fraction
    by_flop, by_gpu_hours = _crossing(flop, growth), _crossing(gpu_hours, growth)
    by_amount = None if amount is None else _crossing(amount, growth)
    _note(recorder, question, flop, gpu_hours, (by_flop, by_gpu_hours, by_amount))
    return CrossoverAnswer(
        **shared_fields(recorder, infeasibilities=missing),
        active_parameter_count=weights,
        tokens_per_day=tokens,
        training_flop=flop.training,
        training_gpu_hours=gpu_hours.training,
        training_amount=None if amount is None else _amount(amount.training),
        training_price_per_gpu_hour=None if prices[0] is None else prices[0][0],
        serving_price_per_gpu_hour=None if prices[1] is None else prices[1][0],
        price_source=None if prices[1] is None else prices[1][1],
        currency=question.currency,
        flop=by_flop,
        gpu_hours=by_gpu_hours,
        amount=by_amount,
        series=_series(question, tokens, flop, gpu_hours, amount),
    )


def _tokens_per_day(question: CrossoverQuestion, recorder: Recorder) -> float:
    traffic = question.traffic
    if isinstance(traffic, TokenTraffic):
        return traffic.tokens_per_day
    return recorder.assume("traffic_tokens_per_day", traffic.preset).value


def _work(
    question: CrossoverQuestion, weights: int, tokens: float, recorder: Recorder
) -> tuple[_Side, _Side]:
    """FLOPs and GPU-hours of both sides."""
    gpu = recorder.snapshot.gpu(question.gpu, pointer="/gpu")
    peak_tflops = gpu.peak_tflops.bf16 or gpu.peak_tflops.fp16
    if peak_tflops is None:
        raise InvalidScenario(f"{gpu.key} has no 16-bit peak rate", pointer="/gpu")
    # Served tokens of equal FLOPs, so that there is one statement of what training takes.
    served = tokens_served_at_training_flops(training_tokens=question.training_tokens)
    flop = _Side(
        *(
            float(serving_flop_per_day(active_parameter_count=weights, tokens_per_day=count))
            for count in (served, tokens)
        )
    )
    speed = peak_tflops * FLOP_PER_S_PER_TFLOPS * question.training_mfu_fraction
    return flop, _Side(
        flop.training / speed / SECONDS_PER_HOUR,
        float(
            serving_gpu_hours_per_day(
                serving_flop_per_day=flop.serving_per_day,
                peak_tflops=peak_tflops,
                serving_mfu_fraction=question.serving_mfu_fraction,
            )
        ),
    )


_Price = tuple[Decimal, str]


def _prices(
    question: CrossoverQuestion, recorder: Recorder
) -> tuple[tuple[_Price | None, _Price | None], tuple[Infeasibility, ...]]:
    gpu = recorder.snapshot.gpu(question.gpu, pointer="/gpu")
    found: list[_Price | None] = []
    missing: list[Infeasibility] = []
    for side, method in (
        ("training", question.training_rent),
        ("serving", question.serving_rent),
    ):
        terms = rented_terms(method, gpu=gpu, currency=question.currency, recorder=recorder)
        if isinstance(terms, Rental):
            found.append((printed(terms.all_in), terms.gpu_hour.source))
            recorder.rest_on_price(terms.gpu_hour.source, verified=terms.is_verified)
        else:
            found.append(None)
            missing.append(no_price(f"rent of {gpu.key} for {side}", terms))
    return (found[0], found[1]), tuple(missing)


def _crossing(side: _Side, growth: float) -> Crossing:
    ratio = side.training / (side.serving_per_day * DAYS_PER_MONTH)
    cumulative, single = (
        float(months(training_over_first_month_serving=ratio, growth_per_month_fraction=growth))
        for months in (cumulative_crossover_months, single_month_crossover_months)
    )
    return Crossing(
        cumulative_days=cumulative * DAYS_PER_MONTH if isfinite(cumulative) else None,
        single_month_months=single if isfinite(single) else None,
    )


def _note(
    recorder: Recorder,
    question: CrossoverQuestion,
    flop: _Side,
    gpu_hours: _Side,
    crossings: Sequence[Crossing | None],
) -> None:
    recorder.note("crossover_training_flop", flop.training)
    recorder.note("crossover_training_gpu_hours", gpu_hours.training)
    recorder.note("crossover_first_day_serving_flop", flop.serving_per_day)
    recorder.note("crossover_first_day_serving_gpu_hours", gpu_hours.serving_per_day)
    recorder.note("tokens_served_at_training_flop", 3.0 * question.training_tokens)
    for name, crossing in zip(("flop", "gpu_hour", "amount"), crossings, strict=True):
        if crossing is not None:
            recorder.note(f"crossover_{name}_days", crossing.cumulative_days)


def _series(
    question: CrossoverQuestion,
    tokens: float,
    flop: _Side,
    gpu_hours: _Side,
    amount: _Side | None,
) -> tuple[CrossoverMonth, ...]:
    months = np.arange(1, question.month_count + 1)
    factors = (1 + question.growth_per_month_fraction) ** (months - 1.0)
    so_far: NDArray[np.float64] = np.cumsum(factors) * DAYS_PER_MONTH
    return tuple(
        CrossoverMonth(
            month=int(month),
            day=float(month * DAYS_PER_MONTH),
            tokens_per_day=float(tokens * factor),
            serving_flop=float(flop.serving_per_day * days),
            serving_gpu_hours=float(gpu_hours.serving_per_day * days),
            serving_amount=None if amount is None else _amount(amount.serving_per_day * days),
        )
        for month, factor, days in zip(months, factors, so_far, strict=True)
    )


def _amount(value: float) -> Decimal | None:
    return money(value) if value < BOUND - 1 else None
