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
    (price,) = (
        p
        for p in snapshot.rental_prices
        if (p.provider, p.region, p.instance_type) == ("aws", "us-east-1", "p5.48xlarge")
        and p.commitment == "on_demand"
        and p.valid_from == date(2026, 2, 1)
    )
    assert price.price_per_gpu_hour == Decimal("6.88")  # 55.04 / 8


def test_a_price_from_after_the_as_of_date_is_not_in_the_snapshot():
    before = snapshot_from_folder(CATALOG, date(2026, 1, 31))
    assert not [p for p in before.rental_prices if p.valid_from == date(2026, 2, 1)]


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
