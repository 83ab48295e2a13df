"""Engines resolve to the newest constants not above their version; overrides are checked."""

import numpy as np
import pytest

from service.core.errors import CoreError, InvalidScenario, NoConstants
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers, spread

POINTER = "/scenario/serving_services/0/engine"


@pytest.mark.parametrize(
    ("engine", "overhead"),
    [
        ("vllm-0.7.3", "vllm-0_2"),
        ("vllm-0.11", "vllm-0_8"),
        ("vllm-0.11.2", "vllm-0_11_1"),
        ("vllm-0.18", "vllm-0_18"),
        ("vllm-0.19.1", "vllm-0_18"),
        ("vllm-1.4", "vllm-0_20"),
        ("sglang-0.5.9", "sglang-0_4"),
        ("tensorrt-llm-0.14", "tensorrt-llm-0_9"),
        ("tensorrt-llm-1.1", "tensorrt-llm-0_20"),
    ],
)
def test_an_engine_takes_the_newest_constants_not_above_its_version(snapshot, engine, overhead):
    assert engine_qualifiers(snapshot, engine, pointer=POINTER)["engine_overhead_gib"] == overhead


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.1", "triton-2.0", "vllm-x", "-1", "v" * 90])
def test_an_unknown_engine_is_refused_by_naming_the_known_ones(snapshot, engine):
    with pytest.raises(CoreError, match=r"known.*sglang-0\.4.*vllm-0\.18") as refused:
        engine_qualifiers(snapshot, engine, pointer=POINTER)
    assert refused.value.pointer == POINTER


def test_a_class_without_constants_has_no_number(snapshot):
    with pytest.raises(NoConstants, match=r"gemm_fixed_us\.trainium"):
        Lookup(Recorder(snapshot), {})("gemm_fixed_us", "trainium", "bf16")


def test_values_arrive_in_core_units(snapshot):
    look = Lookup(Recorder(snapshot), {"engine_overhead_gib": "vllm-0_18"})
    assert look("gemm_fixed_us", "hopper") == pytest.approx(3.3e-6)
    assert look("engine_overhead_gib", "tp_many", "dense") == 4.2 * 2**30


@pytest.mark.parametrize(
    "value", [0.0, -0.5, 1.5, 1e-9], ids=["zero", "negative", "above one", "another unit"]
)
def test_an_override_that_no_formula_can_take_is_refused(snapshot, value):
    name = "gemm_bandwidth_fraction.hopper"
    with pytest.raises(InvalidScenario) as refused:
        Lookup(Recorder(snapshot, overrides={name: value}), {})(
            "gemm_bandwidth_fraction", "hopper", "bf16"
        )
    assert refused.value.pointer == f"/scenario/assumption_overrides/{name}"


def test_a_spread_adds_independent_effects_in_squares_of_logarithms():
    # Two constants: one changes the result by x2 and /2, the other by x3 upwards alone.
    found = spread(np.array([10.0, 5.0, 10.0, 20.0, 30.0]))
    assert found.value == 10.0
    assert found.low == pytest.approx(5.0)
    assert found.high == pytest.approx(10 * np.exp(np.hypot(np.log(2), np.log(3))))


def test_a_result_that_a_constant_can_bring_to_nothing_has_no_lower_bound_above_zero():
    assert spread(np.array([10.0, 0.0, 10.0])).low == 0.0


def test_varied_constants_stand_in_their_places(snapshot):
    look = Lookup(Recorder(snapshot), {})
    look("decode_attention_fixed_us")
    look("free_memory_fraction")  # the same at both ends: nothing to vary
    values = look.varied()("decode_attention_fixed_us") / 1e-6
    assert values.tolist() == pytest.approx([8.2, 7.0, 10.0])
