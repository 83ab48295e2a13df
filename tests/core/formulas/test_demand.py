"""Formulas of demand: published figures, special cases, and arrays that give what numbers give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.formulas.demand import (
    growth_factor,
    held_replica_count,
    idle_gpu_hours,
    mean_over_peak_fraction,
    needed_replica_count,
    peak_units_per_s,
    rounded_up,
    whole_instances_gpu_count,
)
from service.core.scenarios.demand import PRESET_PROFILES

LAWS = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("preset", "mean"),
    [("office_assistant", 0.45), ("consumer_evening", 0.56), ("global_app", 0.83), ("flat", 1.0)],
)
def test_presets_have_their_published_means(preset, mean):
    assert np.mean(PRESET_PROFILES[preset]) == pytest.approx(mean, abs=0.005)
    assert max(PRESET_PROFILES[preset]) == 1.0
    assert len(PRESET_PROFILES[preset]) == 24


def test_a_consumer_day_leaves_44_percent_of_its_peak_idle():
    # idle share of the peak = 1 − mean/peak = 1 − 0.56
    mean = mean_over_peak_fraction(needed_gpu_hours=0.56 * 24, peak_gpu_count=1, hours=24)
    assert 1 - mean == pytest.approx(0.44)


@pytest.mark.parametrize(
    ("number", "whole"),
    [
        (0, 0),
        (1e-9, 1),  # any need at all needs one
        (12.5, 13),
        (10 * 1.1, 11),  # 11.000000000000002
        (3 * 1.1 * 10, 33),  # 33.00000000000001
        (1e8 + 0.5, 1e8 + 1),
    ],
)
def test_float_noise_is_no_need_and_a_real_surplus_is(number, whole):
    assert rounded_up(number) == whole


@LAWS
@given(count=st.integers(1, 10**9), spare=st.integers(0, 100))
def test_a_spare_in_percent_is_rounded_up_exactly(count, spare):
    held = held_replica_count(
        needed_replica_count=count, spare_fraction=spare / 100, spare_replica_count=0
    )
    assert int(held) == -(-count * (100 + spare) // 100)


@LAWS
@given(replicas=st.integers(1, 10**6), tenths=st.integers(1, 100), fifths=st.integers(1, 5))
def test_a_demand_that_fills_replicas_exactly_needs_no_more(replicas, tenths, fifths):
    capacity, target = tenths / 10, fifths / 5
    needed = needed_replica_count(
        demand_units_per_s=replicas * capacity * target,
        units_per_s_per_replica=capacity,
        target_utilization_fraction=target,
        minimum_replica_count=1,
    )
    assert int(needed) == replicas


def test_an_hour_without_demand_needs_the_minimum():
    needed = needed_replica_count(
        demand_units_per_s=np.array([0.0, 1.0, 9.0]),
        units_per_s_per_replica=2.0,
        target_utilization_fraction=1.0,
        minimum_replica_count=2,
    )
    assert needed.tolist() == [2, 2, 5]


def test_a_fleet_is_whole_instances_for_numbers_and_arrays():
    assert whole_instances_gpu_count(gpu_count=60, gpu_count_per_instance=8) == 64
    many = whole_instances_gpu_count(gpu_count=np.array([0, 1, 8, 9]), gpu_count_per_instance=8)
    assert many.tolist() == [0, 8, 8, 16]


def test_the_peak_serves_the_tokens_of_the_day():
    # 100 units a second at the peak, mean 0.5, 24 h, 10 tokens: 100 · 0.5 · 86,400 · 10
    peak = peak_units_per_s(
        tokens_per_day=43_200_000, mean_over_peak_fraction=0.5, tokens_per_unit=10
    )
    assert peak == pytest.approx(100)


def test_growth_compounds_by_month():
    growth = growth_factor(growth_per_month_fraction=0.1, month_count=np.arange(3))
    assert growth.tolist() == pytest.approx([1, 1.1, 1.21])


def test_idle_is_what_is_left():
    assert idle_gpu_hours(allocated_gpu_hours=100, used_gpu_hours=70, redo_gpu_hours=5) == 25
