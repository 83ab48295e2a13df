"""Why a training run cannot be had, or cannot be estimated."""

import pytest

from service.core.errors import InvalidScenario, UnknownKey
from tests.core.training_runs import (
    MFU_40,
    POINTER,
    answer,
    given,
    need,
    refusal,
    snapshot,
    with_gpu,
)


def test_a_class_without_constants_gives_no_number():
    reason = refusal(catalog=with_gpu("l40s-48gb", gpu_class="other"), gpu="l40s-48gb")
    assert reason.code == "no_constants"
    assert "l40s-48gb" in reason.limit


def test_a_precision_without_a_peak_is_refused_with_those_that_have_one():
    reason = refusal(gpu="a100-sxm4-80gb", compute_precision="fp8")
    assert reason.code == "format"
    assert "bf16" in reason.nearest_fix
    assert need(gpu="a100-sxm4-80gb", compute_precision="bf16").gpu_count == 512


def test_a_speed_above_the_dense_peak_is_refused():
    with pytest.raises(InvalidScenario, match="400") as refused:
        answer(speed={"kind": "measured", "tokens_per_s_per_gpu": 9350})
    assert refused.value.pointer == f"{POINTER}/speed"


def test_a_speed_that_full_recompute_lifts_above_the_peak_is_refused():
    # 0.80 · 8/6 = 1.07 of the peak executed.
    layout = given(tensor_parallel=8, recompute="full")
    with pytest.raises(InvalidScenario, match=r"106\.7"):
        answer(speed={"kind": "mfu", "mfu_fraction": 0.80}, layout=layout)
    found = need(speed={"kind": "mfu", "mfu_fraction": 0.80})
    assert found.layout.recompute != "full"


def test_a_published_count_without_layers_can_be_planned_with_a_given_speed_only():
    found = need(architecture="deepseek-v4-pro", speed=MFU_40)
    architecture = snapshot().architecture("deepseek-v4-pro")
    active = architecture.published_active_parameter_count
    assert found.model_flops == pytest.approx(6 * active * 2e12, rel=1e-12)
    assert found.layout is None
    with pytest.raises(InvalidScenario, match="layers") as refused:
        answer(architecture="deepseek-v4-pro")
    assert refused.value.pointer == f"{POINTER}/speed"


@pytest.mark.parametrize(("field", "value"), [("gpu", "h900"), ("architecture", "llama-9")])
def test_an_unknown_key_is_named_where_it_stands(field, value):
    with pytest.raises(UnknownKey, match=value) as refused:
        answer(**{field: value})
    assert refused.value.pointer == f"{POINTER}/{field}"


def test_a_layout_without_an_architecture_cannot_be_checked():
    with pytest.raises(InvalidScenario) as refused:
        answer(
            architecture=None,
            speed={"kind": "measured", "tokens_per_s_per_gpu": 935},
            layout=given(tensor_parallel=8),
        )
    assert refused.value.pointer == f"{POINTER}/layout"


def test_an_assumption_overridden_by_zero_is_refused_where_it_stands():
    name = "bf16_peak_fraction.h100-sxm5-80gb.bf16.vendor_tuned"
    with pytest.raises(InvalidScenario, match="must lie between") as refused:
        answer(overrides={name: 0.0}, layout=given(tensor_parallel=8))
    assert refused.value.pointer == f"/scenario/assumption_overrides/{name}"


def test_a_run_that_fails_faster_than_it_recovers_never_ends():
    reason = refusal(speed=MFU_40, reliability={"failures_per_1000_node_days": 1e5})
    assert reason.code == "deadline"
    assert reason.needed > reason.available


def test_a_run_that_outlives_the_calendar_is_refused():
    slow = {"kind": "measured", "tokens_per_s_per_gpu": 1e-6}
    reason = refusal(architecture=None, speed=slow)
    assert reason.code == "deadline"
    assert reason.needed > reason.available
