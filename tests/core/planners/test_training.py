"""The planner of training runs: hours, ranges, and what is published of them."""

import math
import re
from datetime import date

import pytest

from service.core.architecture.model import ModelArchitecture
from service.core.hardware import Gpu
from service.core.registry import definition_named
from tests.core.training_runs import (
    MFU_40,
    answer,
    assumed,
    by,
    given,
    need,
    on,
    quantities,
    refusal,
    snapshot,
    table_only,
    with_gpu,
)

LLAMA_70B = 70_553_706_496
H100_PEAK = 989.4e12


def test_the_contracts_example_comes_out_exactly():
    found = need(speed=MFU_40)
    assert found.gpu_count == 512
    assert f"{found.model_flops:.4e}" == "8.4664e+23"
    assert found.mfu_fraction == pytest.approx(0.40, rel=1e-12)
    assert round(found.steady_hours, 3) == 1160.638
    assert round(found.goodput_fraction, 6) == 0.993778
    assert round(found.wall_clock_hours.value, 3) == 1167.905
    assert round(found.gpu_hours, 6) == 597967.252881
    assert f"{found.checkpoint_bytes:.4e}" == "1.1289e+12"
    assert found.finish.date() == date(2027, 2, 18)
    assert found.memory.verdict in {"green", "amber"}


def test_hours_of_a_given_hfu_count_what_the_hardware_executes():
    # 8 P T / (989e12 · 0.30) / 3600 = 47,320,526 GPU-hours for 405e9 parameters and 15.6e12
    # tokens; the checkpoint's own count is 405,853,388,800, and this H100 does 989.4.
    found = need(
        architecture="llama-3.1-405b",
        training_tokens=15_600_000_000_000,
        speed={"kind": "hfu", "hfu_fraction": 0.30},
        layout=given(tensor_parallel=8, pipeline_parallel=16, recompute="full"),
        sizing=on(16384),
        global_batch_tokens=16_777_216,
    )
    wanted = 47_320_526 * (405_853_388_800 / 405e9) * (989 / 989.4)
    assert found.steady_hours * 16384 == pytest.approx(wanted, rel=1e-7)
    assert found.mfu_fraction == pytest.approx(0.30 * 6 / 8, rel=1e-12)


def test_a_measured_speed_needs_no_architecture():
    found = need(architecture=None, speed={"kind": "measured", "tokens_per_s_per_gpu": 935})
    # 2e12 / (935 · 512) / 3600 h.
    assert found.steady_hours == pytest.approx(1160.5020796, rel=1e-9)
    assert (found.layout, found.memory, found.model_flops, found.mfu_fraction) == (None,) * 4
    assert found.checkpoint_bytes is None
    assert found.gpus_per_copy == 512


def test_a_measured_speed_tells_the_mfu():
    # 935 · 6 · 70,553,706,496 / 989.4e12.
    found = need(speed={"kind": "measured", "tokens_per_s_per_gpu": 935})
    assert found.mfu_fraction == pytest.approx(935 * 6 * LLAMA_70B / H100_PEAK, rel=1e-12)


def test_an_estimate_is_the_tables_share_of_the_bf16_peak_with_bubble():
    layout = given(tensor_parallel=8, pipeline_parallel=4, recompute="none")
    found = need(catalog=table_only(), layout=layout)
    share = assumed("bf16_peak_fraction.h100-sxm5-80gb.bf16.vendor_tuned").value
    # 80 layers, 64 heads of 128 keys and values, half of 8,192 keys seen: 3 · 80 · 4·8192 · 4096.
    work = 6 * LLAMA_70B + 3 * 80 * 4 * 64 * 128 * 4096
    # 512 sequences over 16 copies are 32 micro-batches: bubble 3/32.
    rate = H100_PEAK * share / work / (1 + 3 / 32)
    assert found.steady_hours == pytest.approx(2e12 / (rate * 512) / 3600, rel=1e-9)
    other = assumed("end_to_end_other_fraction").value
    wall = found.steady_hours / (found.goodput_fraction * other)
    assert found.wall_clock_hours.value == pytest.approx(wall, rel=1e-12)


def test_an_estimate_is_made_of_the_terms_of_a_step():
    found = quantities(layout=given(tensor_parallel=8, pipeline_parallel=4, recompute="none"))
    names = ("compute", "launch", "exposed_network", "bubble", "optimizer")
    parts = [found[f"training_{name}_s_per_step"].value for name in names]
    step = found["training_mechanistic_step_s"].value
    assert sum(parts) == pytest.approx(step, rel=1e-12)
    # 4,194,304 tokens a step on 512 GPUs.
    rate = found["training_tokens_per_s_per_gpu"]
    assert rate.value == pytest.approx(4_194_304 / (512 * step), rel=1e-12)
    band = assumed("training_speed_residual_factor.dense")
    assert (rate.low, rate.high) == pytest.approx((rate.value * band.low, rate.value * band.high))
    # Two published estimates of the same model on the same part differ by less than 1.6.
    table = found["training_table_tokens_per_s_per_gpu"].value
    assert 1 / 1.6 < rate.value / table < 1.6


def test_an_uneven_pipeline_waits_for_its_longest_stage():
    shared = {"sharding": "zero_1", "recompute": "full", "micro_batch_sequences": 1}
    table = {"catalog": table_only()}
    even = need(layout=given(tensor_parallel=8, pipeline_parallel=8, **shared), **table)
    # 80 layers over 16 stages are 5 each; over 32 they are 3 on the longest instead of 2.5.
    uneven = need(layout=given(tensor_parallel=8, pipeline_parallel=32, **shared), **table)
    bubble = {8: 7 / 64, 32: 31 / 256}
    factor = (1 + bubble[32]) / (1 + bubble[8]) * (3 * 32 / 80)
    assert uneven.steady_hours / even.steady_hours == pytest.approx(factor, rel=1e-9)


def test_fp8_in_the_table_is_a_share_of_the_bf16_peak_and_mfu_of_the_fp8_peak():
    found = need(catalog=table_only(), layout=given(tensor_parallel=8), compute_precision="fp8")
    share = assumed("bf16_peak_fraction.h100-sxm5-80gb.fp8.vendor_tuned").value
    work = 6 * LLAMA_70B + 3 * 80 * 4 * 64 * 128 * 4096
    rate = H100_PEAK * share / work
    peak = snapshot().gpu("h100-sxm5-80gb").peak_flop_per_s("fp8")
    assert peak > 1.9 * H100_PEAK
    assert found.mfu_fraction == pytest.approx(rate * 6 * LLAMA_70B / peak, rel=1e-9)


def test_the_range_of_an_estimate_joins_speed_failures_and_the_rest_as_squares():
    found = need(
        catalog=table_only(),
        layout=given(tensor_parallel=8),
        reliability={"failures_per_1000_node_days": 0},
    )
    table = assumed("bf16_peak_fraction.h100-sxm5-80gb.bf16.vendor_tuned")
    other = assumed("end_to_end_other_fraction")
    save = assumed("checkpoint_save_s")
    # Without failures only saves cost: goodput 1 typically, 1 - 15/1800 when a save takes 15 s.
    worst = [table.value / table.low, other.value / other.low, 1 / (1 - save.high / 1800)]
    high = math.exp(math.sqrt(sum(math.log(factor) ** 2 for factor in worst)))
    best = [table.high / table.value, other.high / other.value]
    low = math.exp(math.sqrt(sum(math.log(factor) ** 2 for factor in best)))
    hours = found.wall_clock_hours
    assert hours.high / hours.value == pytest.approx(high, rel=1e-9)
    assert hours.value / hours.low == pytest.approx(low, rel=1e-9)


def test_a_given_speed_and_given_failures_leave_no_range():
    found = need(
        speed=MFU_40,
        reliability={
            "failures_per_1000_node_days": 4,
            "checkpoint_interval_s": 1800,
            "checkpoint_save_s": 0,
            "restart_s": 1200,
        },
    )
    hours = found.wall_clock_hours
    assert hours.low == hours.value == hours.high
    assert round(hours.value, 3) == 1167.905


def test_a_gpu_without_constants_of_its_own_takes_its_classs_with_a_wider_band():
    layout = given(tensor_parallel=8)
    own = quantities(catalog=table_only(), layout=layout)["training_bf16_peak_fraction"]
    _, recorder = answer(catalog=table_only(), layout=layout, gpu="h200-sxm-141gb")
    used = {assumption.name for assumption in recorder.assumptions()}
    borrowed = {q.name: q for q in recorder.quantities()}["training_bf16_peak_fraction"]
    assert "bf16_peak_fraction.hopper.bf16.vendor_tuned" in used
    assert "class_fallback_band_factor" in used
    assert borrowed.value == own.value
    assert borrowed.high / borrowed.low > own.high / own.low


def test_a_class_without_constants_can_be_planned_with_a_given_speed():
    found = need(gpu="l40s-48gb", architecture="llama-3.2-1b", speed=MFU_40, sizing=on(8))
    assert found.mfu_fraction == pytest.approx(0.40, rel=1e-12)


def test_an_overridden_assumption_decides_and_has_no_range():
    name = "bf16_peak_fraction.h100-sxm5-80gb.bf16.vendor_tuned"
    layout = given(tensor_parallel=8)
    found = quantities(catalog=table_only(), overrides={name: 0.25}, layout=layout)
    share = found["training_bf16_peak_fraction"]
    assert share.low == share.value == share.high == 0.25


def test_the_run_multiplier_multiplies_hours_and_not_the_work_of_the_run():
    once, twice = need(speed=MFU_40), need(speed=MFU_40, run_multiplier=2.0)
    assert twice.steady_hours == pytest.approx(2 * once.steady_hours, rel=1e-12)
    assert twice.wall_clock_hours.value == pytest.approx(2 * once.wall_clock_hours.value, rel=1e-12)
    assert twice.model_flops == once.model_flops


def test_adapters_cost_two_thirds_of_the_work_and_a_small_checkpoint():
    full = need(speed=MFU_40)
    lora = need(speed=MFU_40, adapter={"kind": "lora", "rank": 16})
    assert lora.model_flops == pytest.approx(full.model_flops * 4 / 6, rel=1e-12)
    # Rank 16 beside q (8192 + 8192), k and v (2·8192 + 2048), o, and three matrices of 28,672.
    layer = 16 * (2 * (8192 + 8192) + 2 * 8192 + 2048 + 3 * (8192 + 28672))
    assert lora.checkpoint_bytes == 80 * layer * 16


def test_adapters_save_state_and_not_activations():
    # Measured on huggingface/peft#2196: gradients fall to a hundredth, activations do not fall.
    layout = given(tensor_parallel=8, pipeline_parallel=4)
    full = need(speed=MFU_40, layout=layout).memory
    lora = need(speed=MFU_40, layout=layout, adapter={"kind": "lora"}).memory
    assert lora.gradients < full.gradients / 50
    assert lora.activations == full.activations


def test_tying_the_head_changes_weights_and_not_the_work():
    tied = snapshot().architecture("llama-3.2-1b")
    facts = tied.model_dump(exclude={"provenance"})
    untied = ModelArchitecture.model_validate(facts | {"tie_word_embeddings": False})
    name = "training_flops_per_token_with_attention"
    fields = {"speed": MFU_40, "sizing": on(8)}
    work = [
        quantities(architecture=architecture.model_dump(exclude={"provenance"}), **fields)[name]
        for architecture in (tied, untied)
    ]
    assert untied.parameter_count - tied.parameter_count == 128256 * 2048
    assert work[0].value == work[1].value


def test_a_rack_fails_like_the_servers_it_holds():
    # 576 GPUs are 8 racks of 72, and 72 servers of 8 for which failure rates are published.
    rate = quantities(
        gpu="gb200-nvl72", sizing=on(576), speed=MFU_40, global_batch_tokens=4_718_592
    )
    assert rate["failures_per_day"].value == pytest.approx(4 * 72 / 1000)


def test_no_failures_mean_no_time_to_failure():
    found = quantities(speed=MFU_40, reliability={"failures_per_1000_node_days": 0})
    assert found["mean_time_to_failure_hours"].value is None
    assert found["goodput_fraction"].value == 1.0


def test_a_blocking_save_names_the_interval_that_loses_least():
    found = quantities(speed=MFU_40, reliability={"checkpoint_save_s": 60})
    # 64 nodes at 4 per 1,000 node-days: 93.75 h between failures.
    first = math.sqrt(2 * 60 * 93.75 * 3600)
    assert 0.97 * first < found["optimal_checkpoint_interval_s"].value < first
    assert found["goodput_fraction"].value == pytest.approx(
        1 - 60 / 1800 - 2100 / (93.75 * 3600), rel=1e-12
    )


def test_a_run_starts_where_it_says_or_with_the_horizon():
    assert need(speed=MFU_40).start.date() == date(2027, 1, 1)
    assert need(speed=MFU_40, start_date="2027-03-05").start.date() == date(2027, 3, 5)


def test_a_gpu_described_in_the_request_is_planned_like_one_of_the_catalog():
    described = Gpu.model_validate(
        snapshot().gpu("h100-sxm5-80gb").model_dump(exclude={"key", "provenance"})
    )
    inline = need(gpu=described.model_dump(exclude={"provenance"}), speed=MFU_40)
    assert inline.gpu_hours == pytest.approx(need(speed=MFU_40).gpu_hours, rel=1e-12)


def test_every_number_is_published_under_the_runs_scope():
    _, recorder = answer()
    found = recorder.quantities()
    assert {quantity.scope for quantity in found} == {"run:pretrain-70b"}
    for quantity in found:
        assert definition_named(quantity.name).unit == quantity.unit
    names = {quantity.name for quantity in found}
    assert names >= {
        "training_flops_per_token",
        "training_flops_per_token_with_attention",
        "training_model_flops",
        "training_steady_hours",
        "training_wall_clock_hours",
        "training_gpu_hours",
        "goodput_fraction",
        "training_mfu_fraction",
        "training_hfu_fraction",
        "training_memory_bytes_per_gpu",
        "training_activation_bytes_per_gpu",
        "training_textbook_activation_bytes_per_gpu",
        "training_exposed_communication_s_per_step",
        "checkpoint_bytes",
    }


def test_published_numbers_equal_the_answer():
    found, recorder = answer()
    by_name = {quantity.name: quantity for quantity in recorder.quantities()}
    hours = by_name["training_wall_clock_hours"]
    band = found.wall_clock_hours
    assert (hours.low, hours.value, hours.high) == (band.low, band.value, band.high)
    assert by_name["training_gpu_hours"].value == found.gpu_hours
    assert by_name["goodput_fraction"].value == found.goodput_fraction
    memory = by_name["training_memory_bytes_per_gpu"].value / 2**30
    assert memory == pytest.approx(found.memory.total, rel=1e-12)
    parts = found.memory
    summed = (
        parts.weights
        + parts.gradients
        + parts.optimizer
        + parts.activations
        + parts.logits
        + parts.overhead
    )
    assert parts.total == pytest.approx(summed, rel=1e-12)


def test_only_what_an_answer_used_is_among_its_assumptions():
    _, recorder = answer(speed=MFU_40, layout=given(tensor_parallel=8, pipeline_parallel=4))
    used = {assumption.name for assumption in recorder.assumptions()}
    assert "failures_per_1000_node_days" in used
    assert not {name for name in used if "peak_fraction" in name}
    assert not {name for name in used if name.endswith("pytorch_fsdp")}
    assert "end_to_end_other_fraction" not in used


def test_the_same_question_has_the_same_answer():
    first, recorder = answer()
    second, again = answer()
    assert first == second
    assert recorder.quantities() == again.quantities()
    assert recorder.assumptions() == again.assumptions()


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence_length_tokens": 1, "global_batch_tokens": 2**53 - 1},
        {"sequence_length_tokens": 100_000_000, "global_batch_tokens": 100_000_000},
        {"training_tokens": 2**53 - 1, "sizing": by("2100-12-31")},
        {"sizing": on(1_000_000_000)},
        {"training_tokens": 1, "run_multiplier": 1000},
        {"reliability": {"restart_s": 1e15, "checkpoint_interval_s": 1e-12}},
    ],
)
def test_extreme_requests_get_an_answer(fields):
    found, _ = answer(**fields)
    assert found


def test_a_larger_gpu_memory_never_makes_a_run_impossible():
    smaller = with_gpu("h100-sxm5-80gb", memory_cuda_mib=20_000.0)
    assert refusal(catalog=smaller, sizing=on(16)).code == "memory"
    larger = with_gpu("h100-sxm5-80gb", memory_cuda_mib=200_000.0)
    assert need(catalog=larger, sizing=on(16)).memory.verdict in {"green", "amber"}


def test_a_run_that_never_ends_names_a_gpu_count_that_it_can_have_and_on_which_it_ends():
    # 30 stops in 1,000 node-days and 2,100 s each take half of the time of 685 servers of 8.
    often = {"failures_per_1000_node_days": 30}
    fix = refusal(sizing=on(16384), speed=MFU_40, reliability=often).nearest_fix
    count = int(fix.removeprefix("gpu_count ").replace(",", ""))
    assert count <= 685 * 8
    found = need(sizing=on(count), speed=MFU_40, reliability=often)
    assert found.goodput_fraction == pytest.approx(1 - 30 * count / 8000 * 2100 / 86400)


def test_a_date_on_which_no_count_ever_ends_names_what_lets_the_run_end():
    # 1,000 stops a day on each server.
    always = {"failures_per_1000_node_days": 1_000_000}
    fix = refusal(sizing=by("2027-06-30"), speed=MFU_40, reliability=always).nearest_fix
    count, rate = re.search(r"on (\d+) GPUs failures_per_1000_node_days (\d+)", fix).groups()
    fewer = {"failures_per_1000_node_days": float(rate)}
    tokens = 10**9
    assert (
        need(
            sizing=on(int(count)), speed=MFU_40, reliability=fewer, training_tokens=tokens
        ).goodput_fraction
        >= 0.5
    )


def test_the_count_for_a_date_is_judged_by_saves_that_more_nodes_write_faster():
    # 70.55e9 weights of 16 bytes are 1,129 GB: 1,129 / nodes seconds at 1 GB/s each, every 1,800 s,
    # and 4 stops in 1,000 node-days of 2,100 s.
    found = need(
        sizing=by("2027-06-30"),
        speed=MFU_40,
        reliability={"checkpoint_storage": {"node_gb_per_s": 1}},
    )
    nodes = found.gpu_count / 8
    lost = 4 * nodes / 1000 * 2100 / 86400 + 16 * LLAMA_70B / 1e9 / nodes / 1800
    assert found.goodput_fraction == pytest.approx(1 - lost)
    assert found.finish.date() <= date(2027, 6, 30)
