"""Tokens bought from a seller beside tokens of one's own fleet."""

from typing import Any

import numpy as np

from service.core.units import TOKENS_PER_MILLION


def blended_price_per_million_tokens(
    *,
    input_price: Any,
    output_price: Any,
    cached_input_price: Any,
    input_tokens_mean: Any,
    output_tokens_mean: Any,
    cached_prompt_fraction: Any,
) -> Any:
    """Price of a million tokens, prompt and answer together, at the lengths of a load. [USD]

    (I·((1 − h)·p_in + h·p_cached) + O·p_out) / (I + O), h the share of prompts that is cached.

    Examples:
        1,500 prompt and 400 answer tokens at $0.15 and $0.60: (1,500·0.15 + 400·0.60)/1,900.

        >>> round(blended_price_per_million_tokens(input_price=0.15, output_price=0.60,
        ...     cached_input_price=0.15, input_tokens_mean=1500, output_tokens_mean=400,
        ...     cached_prompt_fraction=0.0), 4)
        0.2447
    """
    fresh, cached = 1.0 - cached_prompt_fraction, cached_prompt_fraction
    prompts = input_tokens_mean * (fresh * input_price + cached * cached_input_price)
    answers = output_tokens_mean * output_price
    return (prompts + answers) / (input_tokens_mean + output_tokens_mean)


def break_even_tokens_per_day(
    *, cost_per_day: Any, tokens_per_day_maximum: Any, price_per_million_tokens: Any
) -> float | None:
    """Fewest tokens a day from which a fleet costs no more than a seller. [token]

    A fleet grows in steps: the n-th costs c_n a day, whatever it serves, and serves up to T_n. On
    it the seller costs as much at c_n/p tokens; the first step that serves as many decides. None
    where no step does: then tokens of a full fleet cost more than the seller's.

    Args:
        cost_per_day: Cost of each step, the smallest fleet first.
        tokens_per_day_maximum: Most tokens a day of each step, rising.
        price_per_million_tokens: Price of the seller.

    Examples:
        Eight GPUs at $2.00 are $384 a day. At $0.80 for a million tokens that is 480 million: more
        than one replica serves (300 million), and than two in those eight (600 million) it is less.

        >>> break_even_tokens_per_day(cost_per_day=[384, 384, 768],
        ...     tokens_per_day_maximum=[300e6, 600e6, 900e6], price_per_million_tokens=0.80) / 1e6
        480.0

        At $0.50 the same $384 are 768 million, and $768 are 1,536 million: never reached.

        >>> break_even_tokens_per_day(cost_per_day=[384, 384, 768],
        ...     tokens_per_day_maximum=[300e6, 600e6, 900e6], price_per_million_tokens=0.50) is None
        True
    """
    tokens = np.asarray(cost_per_day, dtype=float) / price_per_million_tokens * TOKENS_PER_MILLION
    reached = np.flatnonzero(tokens <= np.asarray(tokens_per_day_maximum))
    return float(tokens[reached[0]]) if reached.size else None
