"""Hours that published runs book beside the time of their steps."""

import pytest

from service.core.recorder import Recorder
from service.core.run.hours import booked_mfu_fraction
from tests.core.training_runs import snapshot


def booked(gpu="h800-sxm5-80gb", **asked):
    recorder = Recorder(snapshot()).off()
    asked = {"is_mixture": True, "stack": "vendor_tuned"} | asked
    return booked_mfu_fraction(snapshot().gpus[gpu], recorder, **asked)


def value(name):
    return snapshot().assumptions[name].value


def test_eight_bit_runs_book_as_much_more_as_they_are_faster():
    # shares of the bf16 peak of mixtures on Hopper: 0.32 in fp8, 0.28 in bf16
    faster = value("moe_bf16_peak_fraction.hopper.fp8") / value(
        "moe_bf16_peak_fraction.hopper.bf16"
    )
    assert faster == pytest.approx(0.32 / 0.28)
    assert booked(precision="fp8") / booked() == pytest.approx(faster)


def test_a_precision_without_a_share_of_its_own_books_like_sixteen_bits():
    assert booked(precision="int8") == booked(precision="fp16") == booked()


def test_deepseek_v3_lies_between_what_eight_and_sixteen_bits_book():
    # arXiv 2412.19437, table 1: 14.8e12 tokens, 37e9 active weights, 2.664e6 H800 hours, and 989
    # TFLOP/s in 16 bit: 6 · 37e9 · 14.8e12 / (2.664e6 · 3600 · 989e12) = 0.346
    reported = 6 * 37e9 * 14.8e12 / (2.664e6 * 3600 * 989e12)
    assert booked() < booked(precision="fp8") < reported
