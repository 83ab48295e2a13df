"""The folder becomes core values: units in the names, provenance filled in."""

from datetime import date
from decimal import Decimal

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.settings import PROJECT_ROOT

CATALOG = PROJECT_ROOT / "catalog"


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_from_folder(CATALOG, date(2026, 11, 29))


def test_a_fact_keeps_its_figure_and_its_sources(snapshot):
    gpu = snapshot.gpu("h100-sxm5-80gb")
    assert gpu.memory_gb == 80
    assert gpu.memory_cuda_mib == 81090
    assert gpu.memory_bandwidth_gb_per_s == 3350
    assert gpu.peak_tflops.bf16 == 989.4
    assert gpu.scale_up_gb_per_s_per_direction == 450  # 900 counts both directions
    assert gpu.provenance.checked == date(2026, 11, 29)
    assert any("torch.cuda" in source for source in gpu.provenance.sources)


def test_an_instance_price_is_shared_over_its_gpus(snapshot):
    (price,) = prices(snapshot, "aws", "us-east-1", "p5.48xlarge", "on_demand")
    assert price.price_per_gpu_hour == Decimal("6.88")  # 55.04 / 8


def prices(snapshot, provider, region, instance, commitment):
    return [
        price
        for price in snapshot.rental_prices
        if (price.provider, price.region, price.instance_type, price.commitment)
        == (provider, region, instance, commitment)
    ]


def test_the_price_of_the_as_of_date_is_the_one_in_force():
    def price_on(day):
        snapshot = snapshot_from_folder(CATALOG, day)
        (price,) = prices(snapshot, "aws", "us-east-1", "p5.48xlarge", "capacity_block")
        return price.price_per_gpu_hour

    assert price_on(date(2024, 12, 1)) == Decimal("4.91625")  # 39.33 / 8, to 2025-01-01
    assert price_on(date(2026, 11, 29)) == Decimal("3.93")  # 31.44 / 8, from 2026-03-23


def test_a_cut_of_list_prices_takes_effect_on_its_day():
    def price_on(day):
        snapshot = snapshot_from_folder(CATALOG, day)
        (price,) = prices(snapshot, "aws", "us-east-1", "p5.48xlarge", "on_demand")
        return price.price_per_gpu_hour

    # 98.32 an hour for eight H100 until 2025-05, 55.04 from 2025-06.
    assert price_on(date(2025, 5, 31)) == Decimal("12.29")
    assert price_on(date(2025, 6, 1)) == Decimal("6.88")


def test_a_price_is_not_in_force_before_its_first_day():
    before = snapshot_from_folder(CATALOG, date(2026, 3, 22))
    assert prices(before, "aws", "us-east-1", "p5.48xlarge", "capacity_block") == []


def test_an_accelerator_without_its_host_is_not_a_whole_price(snapshot):
    (without,) = prices(snapshot, "gcp", "us-central1", "a4-highgpu-8g", "on_demand")
    (whole,) = prices(snapshot, "gcp", "us-east5", "a2-ultragpu-8g", "on_demand")
    assert (without.is_complete, whole.is_complete) == (False, True)


def test_a_tariff_names_its_currency(snapshot):
    assert snapshot.site("finland").currency == "EUR"
    assert snapshot.site("us-virginia").power_price_per_kwh == 0.0892


@pytest.mark.parametrize(
    ("key", "bytes_per_element"),
    [
        ("bf16", 2),
        ("nvfp4", 0.5625),  # (4 + 8/16) / 8
        ("mxfp4", 0.53125),  # (4 + 8/32) / 8
        ("int4", 0.5625),  # (4 + 16/32) / 8
        ("q8_0", 1.0625),  # 8.5 bits
        ("nf4", 0.5625),  # (4 + 32/64) / 8
    ],
)
def test_bytes_of_a_format_hold_its_block_scales(snapshot, key, bytes_per_element):
    assert snapshot.number_format(key).bytes_per_element == bytes_per_element


def test_a_card_keeps_its_marketing_figure_beside_what_its_driver_reports(snapshot):
    """An L4 is sold as 24 GB; its driver says 23,034 MiB, the 22 GiB that some lists call it."""
    card = snapshot.gpu("l4-24gb")
    assert card.memory_gb == 24
    assert card.memory_reported_mib == 23034
    assert int(card.memory_reported_mib / 1024) == 22


def test_no_part_of_a_price_is_rounded_away(snapshot):
    """Eight A100 in us-east5: 35.39358 an hour for the accelerators, 9.125743 for their host."""
    (price,) = prices(snapshot, "gcp", "us-east5", "a2-ultragpu-8g", "on_demand")
    assert price.price_per_gpu_hour == Decimal("4.424198")  # 35.39358 / 8 = 4.4241975
    assert price.host_price_per_gpu_hour == Decimal("1.140718")  # 9.125743 / 8 = 1.140717875
    whole = 8 * (price.price_per_gpu_hour + price.host_price_per_gpu_hour)
    assert abs(whole - Decimal("44.519323")) < Decimal("0.00001")
    assert price.valid_from == date(2026, 1, 1)
    # The accelerators alone would be a fifth too cheap: enough to change which offer is taken.
    assert price.price_per_gpu_hour / (whole / 8) < Decimal("0.8")
