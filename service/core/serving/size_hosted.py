"""Prices of hosted tokens beside the cheapest fleet, and the tokens a day at which they meet."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isfinite
from statistics import median

from service.core.architecture.model import ModelArchitecture
from service.core.costs.hosted import price_of_unit
from service.core.costs.offers import objection
from service.core.formulas.demand import (
    held_replica_count,
    hosting_break_even_tokens_per_day,
    whole_instances_gpu_count,
)
from service.core.hours.headroom import resolved_headroom
from service.core.prices import TokenPrice
from service.core.pricing import amounts_of, money
from service.core.scenarios.procurement import HostedMethod
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
    SECONDS_PER_HOUR,
    TOKENS_PER_MILLION,
)


def hosted_of(sizing: Sizing, sized: Sized | None) -> Hosted:
    """Sellers of the architecture's tokens against the cheapest fleet."""
    architecture = sizing.service.architecture
    key = architecture.key if isinstance(architecture, ModelArchitecture) else architecture
    prices = sizing.recorder.snapshot.token_prices_of(key or "")
    objections = [(price, _objection(sizing, price)) for price in prices]
    sellers = [_seller(sizing, price) for price, objection in objections if objection is None]
    sellers.sort(key=lambda seller: (seller.price_per_million_tokens, seller.key))
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
        cheapest=_compared(sizing, sized, blended, min),
        median=_compared(sizing, sized, blended, median),
        minimum_fleet_amount_per_day=None if sized is None else _minimum(sizing, sized),
    )


def _objection(sizing: Sizing, price: TokenPrice) -> str | None:
    """Why a price is not compared, None when it is."""
    longest = price.context_tokens
    if longest is not None and longest < sizing.traffic.sequence_tokens_mean:
        return f"takes sequences of at most {longest} tokens"
    return objection(price, HostedMethod(kind="hosted"), CURRENCY)


def _seller(sizing: Sizing, price: TokenPrice) -> HostedPrice:
    """One price at the lengths of the question, and at its share of cached prompts."""
    traffic = sizing.traffic
    paid = price_of_unit(
        price,
        traffic.input_tokens_mean,
        traffic.output_tokens_mean,
        cached_fraction=traffic.cached_prompt_fraction,
    )
    return HostedPrice(
        key=price.key,
        provider=price.provider,
        listed_as=price.listed_as,
        input_price_per_million_tokens=price.input_price_per_million_tokens,
        output_price_per_million_tokens=price.output_price_per_million_tokens,
        price_per_million_tokens=paid / traffic.sequence_tokens_mean,
        quality=price.quality,
    )


def _minimum(sizing: Sizing, sized: Sized) -> Decimal:
    """A day of the fewest GPUs that the service may hold."""
    headroom = resolved_headroom(sizing.service, sizing.recorder, pointer="/headroom")
    held = held_replica_count(
        needed_replica_count=headroom.minimum_replica_count,
        spare_fraction=headroom.spare_fraction,
        spare_replica_count=headroom.spare_replica_count,
    )
    count = whole_instances_gpu_count(
        gpu_count=int(held) * sized.choice.gpu_count,
        gpu_count_per_instance=sized.offer.gpu_multiple,
    )
    return int(count) * sized.offer.price * HOURS_PER_DAY


def _compared(
    sizing: Sizing,
    sized: Sized | None,
    prices: Sequence[float],
    chosen: Callable[[Sequence[float]], float],
) -> HostedComparison | None:
    if sized is None or not prices:
        return None
    price = chosen(prices)
    if price <= 0:
        return None
    tokens_per_s = sizing.mean * sizing.traffic.sequence_tokens_mean
    hosted = tokens_per_s * SECONDS_PER_HOUR / TOKENS_PER_MILLION * price
    headroom = resolved_headroom(sizing.service, sizing.recorder, pointer="/headroom")
    at_peak = sized.units_per_s * headroom.target_utilization_fraction
    tokens = float(
        hosting_break_even_tokens_per_day(
            hosted_price_per_million_tokens=price,
            cost_per_gpu_hour=float(sized.offer.price),
            tokens_per_s_per_replica=at_peak * tokens_per_s / sizing.peak,
            gpu_count_per_replica=sized.choice.gpu_count,
            gpu_count_per_instance=sized.offer.gpu_multiple,
            spare_fraction=headroom.spare_fraction,
            spare_replica_count=headroom.spare_replica_count,
            minimum_replica_count=headroom.minimum_replica_count,
        )
    )
    with amounts_of("the amount of a month of hosted tokens", pointer="/load"):
        amount = money(hosted * HOURS_PER_MONTH)
    return HostedComparison(
        price_per_million_tokens=price,
        amount_per_month=amount,
        self_hosted_cost_factor=float(sized.amount_per_hour) / hosted,
        break_even_tokens_per_day=tokens if isfinite(tokens) else None,
    )
