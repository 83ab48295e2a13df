"""Prices of hosted tokens: what they stand for, when they hold, how far they are trusted."""

from datetime import date
from decimal import Decimal

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.core.errors import UnknownKey
from service.settings import PROJECT_ROOT

CATALOG = PROJECT_ROOT / "catalog"
SNAPSHOT = snapshot_from_folder(CATALOG, date(2026, 11, 29))
NOT_DESCRIBED = {"glm-4.6", "glm-4.7", "minimax-m2", "qwen2.5-coder-32b", "qwq-32b"}


def test_a_price_stands_for_an_architecture_of_the_catalog_or_for_none_on_purpose():
    named = {price.model_name for price in SNAPSHOT.token_prices if price.architecture is None}
    assert named == NOT_DESCRIBED
    described = {price.architecture for price in SNAPSHOT.token_prices} - {None}
    assert described <= set(SNAPSHOT.architectures)
    assert len(described) >= 45


def test_a_name_of_a_model_leads_to_its_architecture_by_the_tables_of_spellings():
    """The maps write "mistral-7b" and "nemotron-super-49b"; the keys say which."""
    pairs = {(price.model_name, price.architecture) for price in SNAPSHOT.token_prices}
    assert ("mistral-7b", "mistral-7b-v0.3") in pairs
    assert ("nemotron-super-49b", "llama-3.3-nemotron-super-49b") in pairs
    assert ("mistral-large-2-123b", "mistral-large-2407") in pairs


def test_prices_of_one_architecture_are_found_at_all_its_sellers():
    """DeepSeek lists V3.2 itself: 0.28 to read, 0.40 to write, 0.028 from the cache."""
    prices = {price.key: price for price in SNAPSHOT.token_prices_of("deepseek-v3.2")}
    assert len({price.provider for price in prices.values()}) >= 9
    own = prices["deepseek.deepseek-v3.2.2026-10-01"]
    assert own.input_price_per_million_tokens == Decimal("0.28")
    assert own.output_price_per_million_tokens == Decimal("0.4")
    assert own.cached_input_price_per_million_tokens == Decimal("0.028")
    assert SNAPSHOT.token_price(own.key) == own


def test_an_unknown_price_is_refused_by_name():
    with pytest.raises(UnknownKey, match=r"no token price 'nobody\.nothing'"):
        SNAPSHOT.token_price("nobody.nothing", pointer="/token_price")


def test_a_seller_that_closed_its_service_has_no_price_afterwards():
    def sellers_on(day):
        return {price.provider for price in snapshot_from_folder(CATALOG, day).token_prices}

    assert "lambda" in sellers_on(date(2025, 6, 1))
    assert "lambda" not in sellers_on(date(2026, 11, 29))
    assert sellers_on(date(2026, 11, 29)) >= {"deepinfra", "together-ai", "bedrock"}


def test_what_one_map_alone_says_is_unverified_and_what_two_say_is_listed():
    for price in SNAPSHOT.token_prices:
        assert price.provenance.verified == (len(price.provenance.sources) == 2)
        assert (price.quality == "listed") == price.provenance.verified


def test_a_price_far_from_the_other_sellers_is_marked_and_not_left_out():
    """V3.2 at 3 and 4.50 from one seller, 0.28 and 0.40 at its maker: eleven times."""
    prices = SNAPSHOT.token_prices_of("deepseek-v3.2")
    [far] = [price for price in prices if price.provider == "sambanova"]
    assert (far.output_price_per_million_tokens, far.quality) == (Decimal("4.5"), "suspect")
