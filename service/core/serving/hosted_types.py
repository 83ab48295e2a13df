"""Hosted tokens beside a fleet of one's own: what an answer of size shows of them."""

from service.core.prices import PriceQuality
from service.core.value import Amount, Key, LongText, Text, Value


class HostedPrice(Value):
    """What one seller asks for tokens of the architecture."""

    key: Key
    """Price in the catalog."""
    provider: Key
    """Who sells the tokens."""
    listed_as: Text
    """Name under which the provider lists them."""
    input_price_per_million_tokens: Amount
    """USD for a million prompt tokens."""
    output_price_per_million_tokens: Amount
    """USD for a million answer tokens."""
    price_per_million_tokens: float
    """USD for a million tokens at the question's lengths, prompt and answer together; what a prefix
    cache holds of prompts at the provider's price of cached tokens, where it lists one."""
    quality: PriceQuality
    """How far the price may be trusted."""


class HostedLeftOut(Value):
    """A price that is not compared, and why."""

    key: Key
    """Price in the catalog."""
    reason: LongText
    """Why it is left out."""


class HostedComparison(Value):
    """A price of hosted tokens against the cheapest fleet of the answer."""

    price_per_million_tokens: float
    """USD for a million hosted tokens at the question's lengths."""
    amount_per_month: Amount
    """USD of a mean month at the stated load."""
    self_hosted_cost_factor: float
    """Cost of the fleet at the stated load over that of the hosted tokens."""
    break_even_tokens_per_day: float | None
    """Fewest tokens a day from which the fleet costs no more; null where it never does."""


class Hosted(Value):
    """Hosted tokens beside the cheapest fleet: same architecture, same lengths.

    The fleet of the break-even grows by whole replicas of the chosen layout, with the spare and the
    instances of the question. Each of its steps costs the same a day whatever it serves, up to its
    planned load at the day's shape: the first step that serves as many tokens as the hosted price
    buys for its cost gives the break-even.
    """

    sellers: tuple[HostedPrice, ...]
    """Prices that are compared, the cheapest at the question's lengths first."""
    left_out: tuple[HostedLeftOut, ...]
    """Prices that are not."""
    cheapest: HostedComparison | None
    """Against the cheapest seller; null without sellers or without a fleet."""
    median: HostedComparison | None
    """Against the median of the sellers, each at its cheapest price."""
    minimum_fleet_amount_per_day: Amount | None
    """USD a day of the smallest fleet, which is held even without load; null without a fleet."""
