"""Prices of hosted tokens beside the cheapest fleet, and the tokens a day at which they meet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

import numpy as np

from service.core.formulas.demand import held_replica_count, whole_instances_gpu_count
from service.core.formulas.hosted_tokens import (
    blended_price_per_million_tokens,
    break_even_tokens_per_day,
)
from service.core.hours.service_demand import resolved_headroom
from service.core.prices import TokenPrice
from service.core.serving.hosted_types import (
    Hosted,
    HostedComparison,
    HostedLeftOut,
    HostedPrice,
)
from service.core.serving.size_case import CURRENCY, Sizing
from service.core.serving.size_options import Sized
from service.core.units import (
    HOURS_PER_DAY,
    HOURS_PER_MONTH,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    TOKENS_PER_MILLION,
)

STEPS = 4096
"""Fleets that are looked at; beyond so many replicas rounding no longer moves the cost of one."""
CENT = Decimal("0.01")


@dataclass(frozen=True)
class _Fleet:
    """Steps in which the cheapest fleet grows."""

    cost_per_day: np.ndarray
    tokens_per_day_maximum: np.ndarray
    amount_per_hour: float
    """Cost at the stated load."""


def hosted_of(sizing: Sizing, sized: Sized | None) -> Hosted:
    """Sellers of the architecture's tokens against the cheapest fleet."""
    architecture = sizing.service.architecture
    key = architecture if isinstance(architecture, str) else ""
    prices = sizing.recorder.snapshot.token_prices_of(key)
    objections = [(price, _objection(sizing, price)) for price in prices]
    sellers = [_seller(sizing, price) for price, objection in objections if objection is None]
    sellers.sort(key=lambda seller: (seller.price_per_million_tokens, seller.key))
    fleet = None if sized is None else _fleet(sizing, sized)
    cheapest: dict[str, float] = {}
    for seller in sellers:
        cheapest.setdefault(seller.provider, seller.price_per_million_tokens)
    blended = list(cheapest.values())
    return Hosted(
        sellers=tuple(sellers),
        left_out=tuple(
            HostedLeftOut(key=price.key, reason=reason)
            for price, reason in objections
            if reason is not None
        ),
        cheapest=_compared(sizing, fleet, blended, min),
        median=_compared(sizing, fleet, blended, median),
        minimum_fleet_amount_per_day=None
        if fleet is None
        else Decimal(float(fleet.cost_per_day[0])).quantize(CENT),
        full_fleet_cost_per_million_tokens=None
        if fleet is None
        else float((fleet.cost_per_day / fleet.tokens_per_day_maximum).min() * TOKENS_PER_MILLION),
    )


def _objection(sizing: Sizing, price: TokenPrice) -> str | None:
    """Why a price is not compared, None when it is."""
    needed = sizing.traffic.sequence_tokens_mean
    if price.currency != CURRENCY:
        return f"priced in {price.currency}"
    if price.quality not in {"listed", "third_party"}:
        return f"a price of quality {price.quality}"
    if price.context_tokens is not None and price.context_tokens < needed:
        return f"takes sequences of at most {price.context_tokens} tokens"
    return None


def _seller(sizing: Sizing, price: TokenPrice) -> HostedPrice:
    asked, traffic = price.input_price_per_million_tokens, sizing.traffic
    cached = price.cached_input_price_per_million_tokens
    return HostedPrice(
        key=price.key,
        provider=price.provider,
        listed_as=price.listed_as,
        input_price_per_million_tokens=asked,
        output_price_per_million_tokens=price.output_price_per_million_tokens,
        price_per_million_tokens=blended_price_per_million_tokens(
            input_price=float(asked),
            output_price=float(price.output_price_per_million_tokens),
            cached_input_price=float(asked if cached is None else cached),
            input_tokens_mean=traffic.input_tokens_mean,
            output_tokens_mean=traffic.output_tokens_mean,
            cached_prompt_fraction=traffic.cached_prompt_fraction,
        ),
        quality=price.quality,
    )


def _fleet(sizing: Sizing, sized: Sized) -> _Fleet:
    """Cost and capacity of the fleets of one, two, three … replicas that are needed at the peak."""
    headroom = resolved_headroom(sizing.service, sizing.recorder, pointer="/headroom")
    needed = headroom.minimum_replica_count + np.arange(STEPS)
    held = held_replica_count(
        needed_replica_count=needed,
        spare_fraction=headroom.spare_fraction,
        spare_replica_count=headroom.spare_replica_count,
    )
    gpus = whole_instances_gpu_count(
        gpu_count=held * sized.choice.gpu_count, gpu_count_per_instance=sized.offer.gpu_multiple
    )
    at_peak = needed * sized.units_per_s * headroom.target_utilization_fraction
    mean = at_peak * sizing.mean / sizing.peak
    return _Fleet(
        cost_per_day=gpus * float(sized.offer.price) * HOURS_PER_DAY,
        tokens_per_day_maximum=mean * SECONDS_PER_DAY * sizing.traffic.sequence_tokens_mean,
        amount_per_hour=float(sized.amount_per_hour),
    )


def _compared(
    sizing: Sizing,
    fleet: _Fleet | None,
    prices: Sequence[float],
    chosen: Callable[[Sequence[float]], float],
) -> HostedComparison | None:
    if fleet is None or not prices:
        return None
    price = chosen(prices)
    if price <= 0:
        return None
    hourly = sizing.mean * SECONDS_PER_HOUR * sizing.traffic.sequence_tokens_mean
    hosted = hourly / TOKENS_PER_MILLION * price
    return HostedComparison(
        price_per_million_tokens=price,
        amount_per_month=Decimal(hosted * HOURS_PER_MONTH).quantize(CENT),
        self_hosted_cost_factor=fleet.amount_per_hour / hosted,
        break_even_tokens_per_day=break_even_tokens_per_day(
            cost_per_day=fleet.cost_per_day,
            tokens_per_day_maximum=fleet.tokens_per_day_maximum,
            price_per_million_tokens=price,
        ),
    )
