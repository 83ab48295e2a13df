"""Number formats against the standards that define them: bits, range, bytes, hardware."""

from datetime import date
from pathlib import Path

import pytest

from service.catalog.entries import FormatEntry
from service.catalog.resolve import snapshot_from_folder

CATALOG = Path(__file__).resolve().parents[2] / "catalog"


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_from_folder(CATALOG, date(2026, 11, 29))


IEEE, NO_INFINITY, NO_SPECIALS = 0, 1, 2
"""What the highest exponent holds: infinities and NaN alone, numbers and one NaN, numbers alone."""

# Exponent and mantissa bits, and what the highest exponent holds. IEEE 754-2019 table 3.5 for
# binary16 and binary32; bfloat16 and TF32 are binary32 with fewer bits of mantissa; FP8 by
# arXiv 2209.05433 table 1; FP6 and FP4 by tables 3 to 5 of the OCP Microscaling Formats
# Specification 1.0.
FLOATS = {
    "fp32": (8, 23, IEEE),
    "tf32": (8, 10, IEEE),
    "bf16": (8, 7, IEEE),
    "fp16": (5, 10, IEEE),
    "fp8": (4, 3, NO_INFINITY),
    "fp8-e5m2": (5, 2, IEEE),
    "mxfp8": (4, 3, NO_INFINITY),
    "fp6": (2, 3, NO_SPECIALS),
    "fp6-e3m2": (3, 2, NO_SPECIALS),
    "mxfp4": (2, 1, NO_SPECIALS),
    "nvfp4": (2, 1, NO_SPECIALS),
}


@pytest.mark.parametrize("key", FLOATS)
def test_the_range_of_a_float_follows_from_its_bits(snapshot, key):
    exponent, mantissa, kind = FLOATS[key]
    found = snapshot.number_format(key)
    assert (found.exponent_bits, found.mantissa_bits) == (exponent, mantissa)
    bias = 2 ** (exponent - 1) - 1
    highest = 2**exponent - 1 - bias - (kind == IEEE)
    # All ones in the mantissa, less one step where that code is the NaN.
    fraction = 2 - 2.0**-mantissa * (2 if kind == NO_INFINITY else 1)
    assert found.largest_value == fraction * 2.0**highest
    assert found.smallest_normal_value == 2.0 ** (1 - bias)
    assert found.smallest_value == 2.0 ** (1 - bias - mantissa)
    stored = 32 if key == "tf32" else 1 + exponent + mantissa
    assert found.bits == stored


@pytest.mark.parametrize(
    ("key", "largest", "normal", "smallest"),
    [
        # Published figures: FP8 by table 1 of arXiv 2209.05433, FP6 and FP4 by the OCP tables.
        ("fp8", 448, 2**-6, 2**-9),
        ("fp8-e5m2", 57344, 2**-14, 2**-16),
        ("fp6", 7.5, 1, 0.125),
        ("fp6-e3m2", 28, 0.25, 0.0625),
        ("mxfp4", 6, 1, 0.5),
        ("fp16", 65504, 6.103515625e-05, 5.960464477539063e-08),
    ],
)
def test_the_published_ranges(snapshot, key, largest, normal, smallest):
    found = snapshot.number_format(key)
    assert found.largest_value == largest
    assert (found.smallest_normal_value, found.smallest_value) == (normal, smallest)


@pytest.mark.parametrize(
    ("key", "element_bytes"),
    [
        ("fp32", 4),
        ("tf32", 4),
        ("bf16", 2),
        ("fp16", 2),
        ("fp8", 1),
        ("fp8-e5m2", 1),
        ("mxfp8", 1.03125),  # (8 + 8/32) / 8
        ("fp6", 0.78125),  # (6 + 8/32) / 8
        ("fp6-e3m2", 0.78125),
        ("nvfp4", 0.5625),  # (4 + 8/16) / 8
        ("mxfp4", 0.53125),  # (4 + 8/32) / 8
        ("int8", 1),
        ("int4", 0.5625),  # (4 + 16/32) / 8
    ],
)
def test_a_release_shows_bytes_with_scales(snapshot, key, element_bytes):
    found = snapshot.number_format(key)
    assert found.element_bytes == found.bytes_per_element == element_bytes


@pytest.mark.parametrize(
    ("key", "on", "off"),
    [
        ("bf16", ["a100-sxm4-80gb", "mi300x-192gb"], []),
        ("fp8", ["h100-sxm5-80gb", "l40s-48gb", "mi300x-192gb"], ["a100-sxm4-80gb"]),
        ("fp6", ["b200-sxm-180gb", "mi355x-288gb"], ["h100-sxm5-80gb", "mi300x-192gb"]),
        ("mxfp4", ["b200-sxm-180gb", "mi355x-288gb"], ["h100-sxm5-80gb", "mi325x-256gb"]),
        # NVFP4 is NVIDIA's own: AMD's matrix units take MXFP4.
        ("nvfp4", ["b200-sxm-180gb", "rtx-5090-32gb"], ["mi355x-288gb", "h200-sxm-141gb"]),
        ("int8", ["t4-16gb", "h100-sxm5-80gb"], ["v100-sxm2-32gb"]),
        ("tf32", ["a100-sxm4-80gb"], ["t4-16gb"]),
        # Weights of four bits alone are widened before anything is multiplied.
        ("int4", [], ["h100-sxm5-80gb", "b200-sxm-180gb"]),
    ],
)
def test_a_release_names_the_hardware_that_multiplies_a_format(snapshot, key, on, off):
    native = set(snapshot.number_format(key).native_gpus)
    assert native.issuperset(on)
    assert native.isdisjoint(off)


def test_what_follows_from_the_rest_is_refused_in_a_file():
    given = {
        "key": "x",
        "name": "x",
        "bits": 8,
        "exponent_bits": 4,
        "mantissa_bits": 3,
        "largest_value": 448,
        "compute_precision": "fp8",
        "sources": ["a"],
    }
    FormatEntry(**given)
    with pytest.raises(ValueError, match="follows from the rest"):
        FormatEntry(**given, native_gpus=["h100-sxm5-80gb"])
