"""Kernel times lie between the two limits of the roofline, and faster parts are never slower."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas.roofline import (
    experts_touched,
    kernel_time_s,
    roofline_bound,
)

POSITIVE = st.floats(1e-3, 1e3)


def kernel(flops, moved, *, exponent, bandwidth=1.0, fixed=0.0):
    return float(
        kernel_time_s(
            flops=flops,
            moved_bytes=moved,
            peak_flop_per_s=1.0,
            bandwidth_bytes_per_s=bandwidth,
            compute_fraction=1.0,
            bandwidth_fraction=1.0,
            overlap_exponent=exponent,
            fixed_s=fixed,
        )
    )


@given(flops=POSITIVE, moved=POSITIVE, exponent=st.floats(1, 50))
def test_a_kernel_takes_between_its_longer_limit_and_both_in_turn(flops, moved, exponent):
    seconds = kernel(flops, moved, exponent=exponent)
    assert max(flops, moved) <= seconds * (1 + 1e-12)
    assert seconds <= (flops + moved) * (1 + 1e-12)


@given(flops=POSITIVE, moved=POSITIVE, exponent=st.floats(1, 5), factor=st.floats(1, 100))
def test_more_bandwidth_is_never_slower(flops, moved, exponent, factor):
    slow = kernel(flops, moved, exponent=exponent)
    fast = kernel(flops, moved, exponent=exponent, bandwidth=factor)
    assert fast <= slow * (1 + 1e-12)


@given(flops=POSITIVE, moved=POSITIVE, exponent=st.floats(1, 5), count=st.integers(1, 100))
def test_kernels_of_one_intensity_may_be_added_before_the_call(flops, moved, exponent, count):
    apart = count * kernel(flops, moved, exponent=exponent)
    together = kernel(count * flops, count * moved, exponent=exponent)
    assert together == pytest.approx(apart)


def test_no_work_takes_the_fixed_time_alone():
    assert kernel(0.0, 0.0, exponent=1.5, fixed=3e-6) == 3e-6


@given(
    experts=st.integers(1, 512), share=st.floats(0, 1), tokens=st.floats(1, 1e5, allow_nan=False)
)
def test_touched_experts_are_at_most_all_and_at_most_one_for_each_choice(experts, share, tokens):
    chosen = max(1, int(share * experts))
    touched = float(
        experts_touched(num_experts=experts, num_experts_per_token=chosen, tokens=tokens)
    )
    assert chosen * (1 - 1e-9) <= touched <= min(experts, chosen * tokens) * (1 + 1e-9)


def test_an_architecture_without_experts_touches_none():
    assert float(experts_touched(num_experts=0, num_experts_per_token=0, tokens=64)) == 0.0


def test_the_bound_follows_the_ridge():
    found = roofline_bound(
        intensity_flop_per_byte=np.array([15, 500]), ridge_flop_per_byte=295.2238806
    )
    assert found.tolist() == ["memory", "compute"]
