"""Prices of a team's own book stand above the catalog's, row by row."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from service.core.costs.negotiated import price_book_used
from service.core.estimates import Infeasibility
from service.core.prices import NegotiatedPrice, PriceBook
from tests.core.planners.test_procurement import offer, recorder, rent, resolve, rules

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LISTED = (
    offer(price="6.88"),
    offer(price="7.57", region="eu-west-1"),
    offer(price="4.24", commitment="committed_3yr"),
    offer("gcp", price="10.98", region="us-central1", instance_type="a3-highgpu-8g"),
    offer("gcp", price="3.00", region="us-central1", instance_type="a3-highgpu-1g", gpu_count=1),
)


def row(price="5.10", **facts):
    return NegotiatedPrice(
        **{"gpu": "h100", "provider": "aws", "valid_from": date(2026, 1, 1)} | facts,
        price_per_gpu_hour=price,
    )


def with_book(*rows, listed=LISTED):
    book = PriceBook(
        key="book", rows=rows, revision=3, digest="sha256:0", created_at=NOON, changed_at=NOON
    )
    catalog = recorder(*listed)
    return replace(catalog, snapshot=replace(catalog.snapshot, price_book=book))


def price(catalog, **method):
    return rent(catalog, **method).gpu_hour.value


def test_a_row_stands_above_the_list_price_of_its_offer_whichever_is_lower():
    for negotiated in ("5.10", "9.99"):
        catalog = with_book(row(negotiated))
        assert price(catalog, provider="aws", region="us-east-1") == Decimal(negotiated)
        assert price(catalog, provider="aws", region="eu-west-1") == Decimal(negotiated)


def test_other_offers_keep_their_list_prices():
    catalog = with_book(row(region="us-east-1"))
    assert price(catalog, provider="aws", region="us-east-1") == Decimal("5.10")
    assert price(catalog, provider="aws", region="eu-west-1") == Decimal("7.57")
    assert price(catalog, provider="aws", commitment="committed_3yr") == Decimal("4.24")
    assert price(catalog, provider="gcp") == Decimal("10.98")


def test_a_price_for_the_region_asked_for_stands_above_one_for_every_region():
    catalog = with_book(row("5.10"), row("5.60", region="us-east-1"))
    assert price(catalog, provider="aws", region="us-east-1") == Decimal("5.60")
    assert price(catalog, provider="aws", region="eu-west-1") == Decimal("5.10")


def test_the_cheapest_offer_counts_what_was_negotiated_in_place_of_the_list():
    assert price(with_book(row("20.00"), row("9.00", provider="gcp"))) == Decimal("9.00")


def test_a_row_that_is_not_in_force_is_not_used():
    past = row("1.00", valid_to=date(2026, 11, 28))
    coming = row("1.00", valid_from=date(2026, 11, 30))
    for each in (past, coming):
        assert price(with_book(each), provider="aws", region="us-east-1") == Decimal("6.88")
    last_day = row("1.00", valid_to=date(2026, 11, 29))
    assert price(with_book(last_day), provider="aws", region="us-east-1") == Decimal("1.00")


def test_a_row_in_another_currency_is_refused_by_name_and_the_list_is_not_taken_instead():
    catalog = with_book(row(currency="EUR", region="us-east-1"))
    refused = rent(catalog, provider="aws", region="us-east-1")
    assert isinstance(refused, Infeasibility)
    assert "priced in EUR, the plan in USD" in refused.nearest_fix


def test_a_provider_that_the_catalog_does_not_know_can_be_negotiated_with():
    found = resolve(
        rules({"kind": "rent", "provider": "house-cloud"}),
        with_book(row("2.40", provider="house-cloud")),
    )
    assert found.terms.gpu_hour.value == Decimal("2.40")
    assert found.gpu_multiple == 8  # the usual node


def test_what_is_rented_at_once_is_the_provider_s_instance():
    catalog = with_book(row("2.40", provider="gcp"))
    whole = resolve(rules({"kind": "rent", "provider": "gcp"}), catalog)
    part = resolve(
        rules({"kind": "rent", "provider": "gcp", "instance_type": "a3-highgpu-1g"}), catalog
    )
    given = resolve(
        rules({"kind": "rent", "provider": "gcp", "gpu_count_per_instance": 4}), catalog
    )
    assert [each.gpu_multiple for each in (whole, part, given)] == [8, 1, 4]
    assert {each.terms.gpu_hour.value for each in (whole, part, given)} == {Decimal("2.40")}


def test_a_price_given_in_the_request_stands_above_the_book():
    catalog = with_book(row())
    assert price(catalog, provider="aws", price_per_gpu_hour="4.00") == Decimal("4.00")


@pytest.mark.parametrize(
    ("method", "used"),
    [
        ({"kind": "rent", "provider": "aws", "region": "us-east-1"}, ["5.10"]),
        ({"kind": "rent", "provider": "gcp"}, []),
        (
            {
                "kind": "mix",
                "committed": {"kind": "rent", "provider": "aws", "commitment": "committed_3yr"},
                "rest": {"kind": "rent", "provider": "aws", "region": "us-east-1"},
            },
            ["5.10", "3.10"],
        ),
    ],
)
def test_the_rows_that_are_used_are_kept_with_the_state_of_their_book(method, used):
    catalog = with_book(row(), row("3.10", commitment="committed_3yr"), row("8", gpu="other"))
    found = resolve(rules(method), catalog)
    kept = price_book_used(catalog.snapshot, [found.terms])
    assert (kept.key, kept.revision, kept.digest) == ("book", 3, "sha256:0")
    assert [str(each.price_per_gpu_hour) for each in kept.rows] == used


def test_a_negotiated_price_is_named_with_its_book():
    found = rent(with_book(row(note="Contract 4711")), provider="aws", region="us-east-1")
    assert found.gpu_hour.source == "price book book, revision 3: Contract 4711"
    assert found.gpu_hour.as_of_date == date(2026, 1, 1)
    assert found.gpu_hour.verified


@pytest.mark.parametrize("basis", ["per_gpu", "accelerator_only"])
def test_a_price_by_the_gpu_makes_no_instance_of_one_for_what_was_negotiated(basis):
    """A list price by the GPU counts one GPU; the negotiated one would stand behind all nodes."""
    by_the_gpu = offer("lambda", price="4.29", region="any", gpu_count=1, billing_basis=basis)
    catalog = with_book(row("2.11", provider="lambda"), listed=(*LISTED, by_the_gpu))
    assert price(catalog) == price(catalog, provider="lambda") == Decimal("2.11")
    assert resolve(rules({"kind": "rent"}), catalog).gpu_multiple == 8  # the usual node
