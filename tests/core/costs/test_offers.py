"""Rows of the real catalog whose price may not be used: none is taken, each is named."""

from decimal import Decimal

import pytest

from service.core.costs.offers import cheapest_offer, explain_missing_offer
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.scenario import Scenario
from tests.core.planners.test_plan_laws import snapshot

BARRED = {
    "suspect": "a suspect price",
    "marketplace_minimum": "the least price of a marketplace",
}


def asking_for(row):
    return RentMethod(
        kind="rent",
        provider=row.provider,
        region=None if row.region == "any" else row.region,
        instance_type=row.instance_type,
        commitment=row.commitment,
    )


def rows(**facts):
    return [
        row
        for row in snapshot().rental_prices
        if all(getattr(row, name) == value for name, value in facts.items())
    ]


def taken(row):
    gpu = snapshot().gpu(row.gpu)
    method = asking_for(row)
    offer = cheapest_offer(method, gpu=gpu, currency=row.currency, snapshot=snapshot())
    said = explain_missing_offer(method, gpu=gpu, currency=row.currency, snapshot=snapshot())
    return offer, said


@pytest.mark.parametrize("quality", BARRED)
def test_a_row_that_is_suspect_or_a_floor_of_a_marketplace_is_left_out_by_name(quality):
    found = rows(quality=quality)
    assert found
    for row in found:
        offer, said = taken(row)
        assert offer is None or offer.quality not in BARRED
        why = BARRED[quality] if row.is_complete else "accelerator only"
        assert f"{row.key} ({why}" in said


AUCTIONS = {"vast-ai", "akash", "salad"}
"""Providers whose every price is the least that some host asks, or the floor of a bid."""


def test_a_floor_is_never_the_cheapest_price_however_low_it_is():
    floors = [row for row in snapshot().rental_prices if row.provider in AUCTIONS]
    assert floors
    lower = 0
    for row in floors:
        assert row.quality == "marketplace_minimum", row.key
        method = RentMethod(kind="rent", commitment=row.commitment)
        gpu = snapshot().gpu(row.gpu)
        offer = cheapest_offer(method, gpu=gpu, currency=row.currency, snapshot=snapshot())
        if offer is not None:
            assert offer.provider not in AUCTIONS
            lower += row.price_per_gpu_hour < offer.price_per_gpu_hour
        else:
            said = explain_missing_offer(method, gpu=gpu, currency="USD", snapshot=snapshot())
            assert f"{row.key} (the least price of a marketplace" in said
    assert lower  # some would have won by price


def test_an_accelerator_without_its_host_is_left_out_by_name():
    found = [row for row in snapshot().rental_prices if not row.is_complete]
    assert found
    for row in found:
        offer, said = taken(row)
        assert offer is None or offer.is_complete
        assert f"{row.key} (accelerator only, the price of its host is not known" in said


def test_a_price_from_memory_is_never_the_cheapest_of_all():
    for row in rows(quality="memory"):
        method = RentMethod(kind="rent", commitment=row.commitment)
        gpu = snapshot().gpu(row.gpu)
        offer = cheapest_offer(method, gpu=gpu, currency=row.currency, snapshot=snapshot())
        assert offer is None or offer.quality != "memory"
        named, _ = taken(row)  # it is used where its provider is named, and flagged
        assert named is not None


def test_no_row_is_free():
    assert all(row.price_per_gpu_hour > 0 for row in snapshot().rental_prices)
    assert all(
        price.input_price_per_million_tokens > 0 and price.output_price_per_million_tokens > 0
        for price in snapshot().token_prices
    )


def test_a_whole_instance_is_priced_per_gpu():
    """An 8-GPU machine at 55.04 an hour is 6.88 a GPU, and is billed as 55.04: not 440.32."""
    [row] = [
        row
        for row in rows(provider="aws", instance_type="p5.48xlarge", commitment="on_demand")
        if row.region == "us-east-1"
    ]
    whole = row.price_per_gpu_hour * row.gpu_count
    assert row.gpu_count == 8
    assert 40 < whole < 120


def test_a_part_of_a_gpu_is_priced_as_a_gpu_of_its_own():
    """A sixth of an A10 at 0.454 an hour, three of them in January: 3 x 744 x 0.454 = 1,013.328.

    Taken for a whole A10 it would be six times too dear: 2.7235 a GPU-hour.
    """
    whole = snapshot().gpus["a10-24gb"]
    sixth = whole.model_copy(
        update={"key": "a10-sixth", "memory_gb": whole.memory_gb / 6, "node_gpu_count": 1}
    ).model_dump(mode="json")
    service = {
        "name": "small",
        "gpu": sixth,
        "load": {"kind": "peak_requests", "peak_requests_per_s": 3},
        "capacity": {"kind": "measured", "units_per_s_per_replica": 1, "gpu_count_per_replica": 1},
        "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 0.0},
    }
    rent = {"kind": "rent", "price_per_gpu_hour": "0.454", "gpu_count_per_instance": 1}
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 1},
        "serving_services": [service],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": rent}],
    }
    answer, _ = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())
    assert answer.totals.amount == Decimal("1013.33")


def test_prices_of_two_tiers_and_dates_are_told_apart():
    """14.8451 was shown for a machine that cost 15.10, and 0.98 for one billed at 1.52 on another
    tier (dstack#1355, #1886): no two rows of one offer hold on one day, and each has its day."""
    offers = [
        (row.provider, row.region, row.instance_type, row.gpu, row.commitment, row.valid_from)
        for row in snapshot().rental_prices
    ]
    assert len(offers) == len(set(offers))
    assert all(row.valid_from <= snapshot().as_of_date for row in snapshot().rental_prices)
