"""Which price of hosted tokens a service takes, and why others may not be used."""

from collections.abc import Iterable

from service.core.architecture.model import ModelArchitecture
from service.core.costs.offers import objection
from service.core.costs.terms import HostedTokens
from service.core.prices import TokenPrice
from service.core.pricing import UnitPrice
from service.core.recorder import GIVEN
from service.core.scenarios.procurement import HostedMethod
from service.core.scenarios.serving_service import ServingService
from service.core.snapshot import CatalogSnapshot
from service.core.value import decimal_text

NAMED_PRICE_COUNT = 8
"""Prices named in a refusal; the rest are counted."""
GIVEN_PROVIDER = "as given"


def hosted_terms(
    method: HostedMethod, *, service: ServingService, currency: str, snapshot: CatalogSnapshot
) -> HostedTokens | str:
    """What a service's tokens cost, or which price to ask for instead.

    Where several prices match, the cheapest for the service's mix of input, cached input and output
    is taken; one that is suspect, or the least of a marketplace, never.
    """
    if service.input_tokens_mean is None or service.output_tokens_mean is None:
        return "hosted tokens are paid by input_tokens_mean and output_tokens_mean: give both."
    if method.input_price_per_million_tokens and method.output_price_per_million_tokens:
        cached = method.cached_input_price_per_million_tokens
        return HostedTokens(
            method.provider or GIVEN_PROVIDER,
            UnitPrice(method.input_price_per_million_tokens, GIVEN),
            UnitPrice(method.output_price_per_million_tokens, GIVEN),
            None if cached is None else UnitPrice(cached, GIVEN),
        )
    wanted = service.architecture
    key = wanted.key if isinstance(wanted, ModelArchitecture) else wanted
    asked_for = [row for row in snapshot.token_prices if _is_asked_for(row, method, key)]
    usable = [row for row in asked_for if objection(row, method, currency) is None]
    if not usable:
        return _missing(method, key, asked_for, currency, snapshot)
    read, written = service.input_tokens_mean, service.output_tokens_mean
    share = service.replica.prefix_cache_hit_fraction

    def cost(row: TokenPrice) -> float:
        return price_of_unit(row, read, written, cached_fraction=share)

    row = min(usable, key=lambda row: (row.quality == "memory", cost(row), row.key))
    return _priced(row)


def _priced(row: TokenPrice) -> HostedTokens:
    """What a seller asks, with its name and its day."""
    source = f"{row.key}: {row.listed_as}; {'; '.join(row.provenance.sources)}"[:2000]
    verified = row.quality != "memory" and row.provenance.verified
    cached = row.cached_input_price_per_million_tokens
    return HostedTokens(
        row.provider,
        UnitPrice(row.input_price_per_million_tokens, source, row.valid_from, verified),
        UnitPrice(row.output_price_per_million_tokens, source, row.valid_from, verified),
        None if cached is None else UnitPrice(cached, source, row.valid_from, verified),
    )


def price_of_unit(
    row: TokenPrice, input_tokens: float, output_tokens: float, *, cached_fraction: float
) -> float:
    """What a million units cost, a share of their input at the price of cached input, if any."""
    asked, cached = row.input_price_per_million_tokens, row.cached_input_price_per_million_tokens
    saved = asked - (asked if cached is None else cached)
    read = input_tokens * (float(asked) - cached_fraction * float(saved))
    return read + output_tokens * float(row.output_price_per_million_tokens)


def _is_asked_for(row: TokenPrice, method: HostedMethod, architecture: str | None) -> bool:
    if method.provider not in {None, row.provider}:
        return False
    if method.listed_as is not None:
        return method.listed_as == row.listed_as
    return architecture is not None and row.architecture == architecture


def _missing(
    method: HostedMethod,
    architecture: str | None,
    asked_for: Iterable[TokenPrice],
    currency: str,
    snapshot: CatalogSnapshot,
) -> str:
    """Say which prices there are, and which were left out why."""
    left_out = [f"{row.key} ({objection(row, method, currency)})" for row in asked_for]
    others = [
        row
        for row in snapshot.token_prices
        if objection(row, method, currency) is None
        and architecture in {None, row.architecture}
        and (architecture is not None or method.provider in {None, row.provider})
    ]
    priced = [
        f"provider {row.provider}, listed_as {row.listed_as!r}: "
        f"{decimal_text(row.input_price_per_million_tokens)} in, "
        f"{decimal_text(row.output_price_per_million_tokens)} out"
        for row in sorted(others, key=lambda row: (row.provider, row.listed_as))
    ]
    said = ["Give input_price_per_million_tokens and output_price_per_million_tokens"]
    if priced:
        said.append(f", or ask for one of: {_named(priced)}")
    said.append(".")
    if left_out:
        said.append(f" Left out: {_named(left_out)}.")
    return "".join(said)


def _named(items: list[str]) -> str:
    more = len(items) - NAMED_PRICE_COUNT
    return "; ".join(items[:NAMED_PRICE_COUNT]) + (f"; and {more} more" if more > 0 else "")
