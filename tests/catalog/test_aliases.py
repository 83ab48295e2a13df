"""Names as price lists, drivers and benchmark records write them lead to one key, or to none."""

from datetime import date

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.settings import PROJECT_ROOT

SNAPSHOT = snapshot_from_folder(PROJECT_ROOT / "catalog", date(2026, 11, 29))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100-sxm5-80gb", "h100-sxm5-80gb"),
        ("H100-SXM", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("nvidia_h100_80gb_hbm3", "h100-sxm5-80gb"),
        ("p5", "h100-sxm5-80gb"),
        ("H100-PCIe-80GB", "h100-pcie-80gb"),
        ("H100-NVL-94GB", "h100-nvl-94gb"),
        ("A100-SXM-80GB", "a100-sxm4-80gb"),
        ("A100-SXM-40GB", "a100-sxm4-40gb"),
        ("B200-SXM", "b200-sxm-180gb"),
        ("GB200", "gb200-nvl72"),
        ("MI300X", "mi300x-192gb"),
        ("L40S", "l40s-48gb"),
        ("L40", "l40-48gb"),
        ("A10G", "a10g-24gb"),
        ("A10", "a10-24gb"),
        ("RTX-PRO-6000-BSE", "rtx-pro-6000-server-96gb"),
        ("TPU-v6e", "tpu-v6e"),
    ],
)
def test_a_gpu_is_found_by_any_of_its_names(name, key):
    assert SNAPSHOT.key_of("gpu", name) == key


@pytest.mark.parametrize("name", ["any", "24 GB card", "80GB-class", "no such part"])
def test_what_names_no_single_part_stands_for_none(name):
    assert SNAPSHOT.key_of("gpu", name) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("Nemotron-3 Nano 30B", "nemotron-3-nano-30b-a3b"),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b"),
    ],
)
def test_an_architecture_is_found_by_any_of_its_names(name, key):
    assert SNAPSHOT.key_of("architecture", name) == key


def test_an_ambiguous_name_says_what_is_assumed():
    assert "Ambiguous" in SNAPSHOT.aliases["gpu", "a100"].note
