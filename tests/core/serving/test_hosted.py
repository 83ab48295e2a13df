"""Hosted tokens beside a fleet of one's own: what is compared, and where the two cost the same."""

import dataclasses
from datetime import date
from decimal import Decimal
from math import ceil
from statistics import median

import pytest

from service.core.errors import InvalidScenario
from service.core.prices import TokenPrice
from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

GPU = "h100-sxm5-80gb"
BASE = {
    "architecture": "llama-3.3-70b",
    "weight_format": "fp8",
    "kv_cache_format": "fp8",
    "load": {"kind": "daily_tokens", "tokens_per_day": 2e9},
    "demand_profile": "consumer_evening",
    "input_tokens_mean": 1500,
    "output_tokens_mean": 400,
    "gpus": [GPU],
    "prices_per_gpu_hour": {GPU: "2.00"},
}


def price(provider, read, written, **changes):
    given = {
        "key": f"{provider}.{read}",
        "provider": provider,
        "listed_as": provider,
        "model_name": "llama-3.3-70b",
        "architecture": "llama-3.3-70b",
        "input_price_per_million_tokens": read,
        "output_price_per_million_tokens": written,
        "valid_from": date(2026, 1, 1),
    }
    return TokenPrice(**given | changes)


def answer(snapshot, prices=None, **changes):
    if prices is not None:
        snapshot = dataclasses.replace(snapshot, token_prices=tuple(prices))
    return estimate_serving_size(ServingSizeQuestion(**BASE | changes), snapshot)


SELLERS = [
    price("a", "0.40", "0.40"),
    price("b", "0.15", "0.60"),  # (1500·0.15 + 400·0.60)/1900 = 0.2447
    price("b", "0.90", "0.90"),  # the same seller's dearer tier: not another seller
    price("c", "3.00", "3.00"),
]


def test_sellers_are_ranked_at_the_lengths_of_the_question(snapshot):
    hosted = answer(snapshot, SELLERS).hosted
    blended = [seller.price_per_million_tokens for seller in hosted.sellers]
    assert blended == pytest.approx([465 / 1900, 0.40, 0.90, 3.00])
    assert hosted.cheapest.price_per_million_tokens == pytest.approx(465 / 1900)
    assert hosted.median.price_per_million_tokens == pytest.approx(0.40)
    # 2e9 tokens a day at $0.40 a million for 730/24 days.
    month = Decimal(str(round(2000 * 0.40 * 730 / 24, 2)))
    assert hosted.median.amount_per_month == month


def test_the_break_even_is_where_the_fleet_costs_what_the_tokens_do(snapshot):
    found = answer(snapshot, SELLERS)
    [option] = found.options
    tokens = found.hosted.median.break_even_tokens_per_day
    assert tokens is not None
    # At so many tokens a day the fleet of the question costs what they cost at $0.40 …
    there = answer(snapshot, SELLERS, load={"kind": "daily_tokens", "tokens_per_day": tokens})
    bill = float(there.options[0].gpu_count * 2 * 24)
    assert there.options[0].layout == option.layout
    assert bill == pytest.approx(tokens / 1e6 * 0.40)
    # … at nine tenths of them it costs more.
    fewer = {"kind": "daily_tokens", "tokens_per_day": 0.9 * tokens}
    below = answer(snapshot, SELLERS, load=fewer).options[0]
    assert below.gpu_count * 2 * 24 > 0.9 * tokens / 1e6 * 0.40


def test_the_fleet_steps_up_in_replicas_by_hand(snapshot):
    headroom = {"target_utilization_fraction": 0.8, "spare_fraction": 0.0}
    found = answer(snapshot, SELLERS, headroom=headroom)
    [option] = found.options
    rate, gpus = option.units_per_s_per_replica.value, option.gpu_count_per_replica
    # A preset of mean 0.56 of its peak: n replicas serve n·rate·0.8·0.56 requests a second on
    # average, of 1,900 tokens each.
    shape = [0.55, 0.42, 0.32, 0.25, 0.22, 0.22, 0.28, 0.38, 0.46, 0.50, 0.52, 0.54]
    shape += [0.58, 0.58, 0.57, 0.58, 0.62, 0.70, 0.80, 0.90, 0.98, 1.00, 0.84, 0.63]
    each = rate * 0.8 * sum(shape) / 24 * 1900 * 86_400
    for comparison in (found.hosted.cheapest, found.hosted.median):
        million = comparison.price_per_million_tokens
        expected = next(
            (
                cost / million * 1e6
                for n in range(1, 200)
                if (cost := ceil(n * gpus / 8) * 8 * 2.00 * 24) / million * 1e6 <= n * each
            ),
            None,
        )
        assert comparison.break_even_tokens_per_day == pytest.approx(expected)
    smallest = ceil(gpus / 8) * 8 * 2 * 24
    assert found.hosted.minimum_fleet_amount_per_day == smallest


def test_a_seller_below_the_cost_of_a_full_fleet_is_never_undercut(snapshot):
    found = answer(snapshot, [price("a", "0.001", "0.001"), price("b", "50", "50")])
    assert found.hosted.cheapest.break_even_tokens_per_day is None
    assert found.hosted.cheapest.price_per_million_tokens == 0.001
    assert found.hosted.cheapest.self_hosted_cost_factor > 1
    # The median of two lies between them: $25.
    assert found.hosted.median.break_even_tokens_per_day is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quality": "suspect"}, "a suspect price"),
        ({"quality": "marketplace_minimum"}, "least price of a marketplace"),
        ({"quality": "memory"}, "from memory"),
        ({"currency": "EUR"}, "priced in EUR"),
        ({"context_tokens": 1024}, "at most 1024 tokens"),
    ],
)
def test_a_price_that_cannot_be_counted_on_is_named_and_left_out(snapshot, changes, reason):
    hosted = answer(snapshot, [price("a", "0.40", "0.40"), price("z", "0.01", "0.01", **changes)])
    hosted = hosted.hosted
    assert [seller.provider for seller in hosted.sellers] == ["a"]
    [left_out] = hosted.left_out
    assert left_out.key == "z.0.01"
    assert reason in left_out.reason


def test_what_a_cache_holds_is_charged_at_the_cached_price(snapshot):
    sellers = [
        price("a", "0.15", "0.60", cached_input_price_per_million_tokens="0.015"),
        price("b", "0.15", "0.60"),
    ]
    cached, full = answer(snapshot, sellers, prefix_cache_hit_fraction=0.5).hosted.sellers
    # (750·0.15 + 750·0.015 + 400·0.60)/1900, and without a listed price all at 0.15.
    assert cached.price_per_million_tokens == pytest.approx(363.75 / 1900)
    assert full.price_per_million_tokens == pytest.approx(465 / 1900)


def test_a_month_of_too_many_digits_is_refused_at_the_load(snapshot):
    # 2,000 million tokens a day at 10^9 USD a million, for 30 days: 6 x 10^13 USD.
    with pytest.raises(InvalidScenario, match="twelve digits") as refused:
        answer(snapshot, [price("a", "1000000000", "1000000000")])
    assert refused.value.pointer == "/load"


def test_no_seller_and_no_fleet_are_said_as_such(snapshot):
    nobody = answer(snapshot, []).hosted
    assert (nobody.sellers, nobody.cheapest, nobody.median) == ((), None, None)
    assert nobody.minimum_fleet_amount_per_day > 0
    nothing = answer(snapshot, SELLERS, objectives={"tpot_mean_s": 1e-6})
    assert not nothing.feasible
    assert nothing.hosted.cheapest is None
    assert len(nothing.hosted.sellers) == 4


@pytest.mark.parametrize(
    "architecture", ["llama-3.3-70b", "llama-3.1-8b", "deepseek-v3", "gpt-oss-120b"]
)
def test_the_catalogs_sellers_stand_beside_the_fleet(snapshot, architecture):
    hosted = answer(snapshot, architecture=architecture).hosted
    assert len({seller.provider for seller in hosted.sellers}) >= 5
    rows = snapshot.token_prices_of(architecture)
    assert len(hosted.sellers) + len(hosted.left_out) == len(rows)
    lowest: dict[str, float] = {}
    for seller in hosted.sellers:
        lowest.setdefault(seller.provider, seller.price_per_million_tokens)
    middle = answer(snapshot, architecture=architecture).hosted.median
    if middle is not None:
        assert middle.price_per_million_tokens == pytest.approx(median(lowest.values()))
