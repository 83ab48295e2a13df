"""The memory estimate stage by stage, on GPU and host, and its band."""

import pytest

from service.core.errors import InvalidScenario
from service.core.scenarios.training_state import STATE_RECIPES
from tests.core.training_questions import memory
from tests.core.training_runs import by, case_of, given, need, on, snapshot

GIB = 2**30
P_8B = 8_030_261_248
COARSE = ("weights", "gradients", "optimizer", "activations", "logits", "overhead")


def llama_405b(**layout):
    return memory(
        architecture="llama-3.1-405b",
        sizing=on(1024),
        layout=given(tensor_parallel=8, pipeline_parallel=16, sharding="none", **layout),
    )


def test_memory_is_the_plans_own_with_its_margin():
    layout = given(sharding="zero_3", recompute="full")
    found = memory(layout=layout)
    planned = need(architecture="llama-3.1-8b", sizing=on(64), layout=layout).memory
    assert found.memory_gib_per_gpu == planned
    assert found.margin_gib == pytest.approx(planned.available - planned.total, rel=1e-12)
    assert found.feasible
    assert found.nearest_fix is None


def test_memory_that_does_not_fit_is_shown_with_the_smallest_change_that_fits():
    found = memory(layout=given(sharding="none", recompute="none"), sizing=on(8))
    # 16 bytes for each of 8.03e9 weights are 120 GiB.
    assert found.memory_gib_per_gpu.total > 16 * 8.03e9 / 2**30
    assert found.margin_gib < 0
    assert not found.feasible
    assert "zero" in found.nearest_fix


def test_serving_the_same_model_is_shown_beside():
    # 8,030,261,248 weights of 2 bytes; 2 · 32 layers · 8 heads · 128 · 2 bytes · 8,192 tokens.
    found = memory().serving
    assert found.weights == pytest.approx(2 * 8_030_261_248 / 2**30)
    assert found.cache_per_sequence == pytest.approx(2 * 32 * 8 * 128 * 2 * 8192 / 2**30)


def test_memory_needs_a_number_of_gpus():
    with pytest.raises(InvalidScenario) as refused:
        memory(sizing=by("2027-06-30"))
    assert refused.value.pointer == "/run/sizing"


def test_the_stages_of_a_pipeline_hold_the_whole_model_once():
    found = llama_405b()
    # 126 layers over 16 stages: 8 on each of the first 14, 7 on the last two.
    assert [stage.layer_count for stage in found.stages] == [8] * 14 + [7] * 2
    # Norms, 2 · 16,384 a layer, are whole on each of 8 ranks; the final one is divided.
    norms = 126 * 2 * 16384
    whole = sum(stage.weights for stage in found.stages) * 8 * GIB / 2
    assert whole == pytest.approx(405_853_388_800 + 7 * norms, rel=1e-9)


def test_the_first_stage_holds_the_table_and_most_micro_batches_and_the_last_the_logits():
    found = llama_405b()
    # Plain 1F1B: stage i of p holds p - i micro-batches, with at least p of them.
    assert [stage.micro_batches_in_flight for stage in found.stages] == list(range(16, 0, -1))
    # 128,256 · 16,384 weights of the table over 8 ranks, in 16 bit.
    table = 2 * 128256 * 16384 / 8 / GIB
    assert found.stages[0].weights - found.stages[1].weights == pytest.approx(table)
    assert [stage.logits > 0 for stage in found.stages] == [False] * 15 + [True]
    assert found.fullest_stage == 0
    assert found.stages[0].total == pytest.approx(found.memory_gib_per_gpu.total, rel=1e-12)
    assert found.memory_gib_per_gpu.total == max(stage.total for stage in found.stages)


def test_interleaving_holds_more_micro_batches_on_every_stage():
    # 70B, p 8, v 2: (2·(p - i - 1) + (v - 1)·p + 1)/v micro-batches: 1 + 7/16 of a plain first
    # stage's eight, 11.5, and 4.5 on the last.
    found = memory(
        architecture="llama-3.1-70b",
        sizing=on(512),
        layout=given(tensor_parallel=8, pipeline_parallel=8, virtual_pipeline_stages=2),
    )
    held = [stage.micro_batches_in_flight for stage in found.stages]
    assert held == [11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5]


def test_a_small_model_with_a_large_vocabulary_is_fullest_on_its_last_stage():
    found = memory(
        architecture="gemma-3-1b",
        sizing=on(8),
        layout=given(pipeline_parallel=2, sharding="zero_1", recompute="full"),
    )
    assert found.fullest_stage == 1
    assert found.memory_gib_per_gpu.logits == found.stages[1].logits > 0


def test_the_parts_of_every_stage_add_up():
    for stage in llama_405b(virtual_pipeline_stages=1).stages:
        assert stage.total == pytest.approx(sum(getattr(stage, name) for name in COARSE))
        fixed = stage.framework + stage.collective_buffers
        assert stage.overhead == pytest.approx(fixed + stage.fragmentation)
        assert stage.master_weights == pytest.approx(stage.optimizer * 4 / 12)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("no_shard", "none"),
        ("ddp", "zero_0"),
        ("shard_grad_op", "zero_2"),
        ("full_shard", "zero_3"),
        ("hybrid_shard", "hybrid"),
    ],
)
def test_names_of_other_stacks_mean_the_same_memory(name, same):
    one, other = (memory(layout=given(sharding=each)) for each in (name, same))
    assert one.memory_gib_per_gpu == other.memory_gib_per_gpu


def test_exact_activations_stand_beside_the_textbook():
    found = memory(layout=given(sharding="zero_3", recompute="full"))
    tokens, h = 8192, 4096
    exact = 8 * h + 2 * (2 * 32 + 2 * 8) * 128 + 6 * 14336
    assert found.exact_activations_gib == pytest.approx(tokens * 32 * exact / GIB)
    assert found.textbook_activations_gib == pytest.approx(tokens * 32 * 34 * h / GIB)


def test_an_optimizer_on_the_host_leaves_the_gpu_and_is_counted_there():
    layout = given(sharding="zero_2", recompute="full")
    kept, left = memory(layout=layout), memory(layout=layout, offload="optimizer")
    # 64 copies: 12 bytes of optimizer and 2 of gradients for a 64th of the weights, each; one layer
    # of gradients stays whole until it is reduced, the GPU's own share of it included.
    gone = 12 * P_8B / 64
    assert left.memory_gib_per_gpu.optimizer == 0
    assert kept.memory_gib_per_gpu.optimizer == pytest.approx(gone / GIB)
    assert left.memory_gib_per_gpu.gradients == pytest.approx(2 * P_8B / 32 / GIB)
    assert left.host_memory_gib.per_gpu == pytest.approx(1.5 * 14 * P_8B / 64 / GIB)
    assert left.host_memory_gib.per_node == pytest.approx(8 * left.host_memory_gib.per_gpu)
    assert left.host_memory_gib.available_per_node == 2048
    assert left.host_memory_gib.verdict == "green"
    assert kept.host_memory_gib is None


def test_parameters_on_the_host_leave_only_what_is_gathered():
    # Both kept on the host: 18 bytes of 6.7B weights times 1.5, over the node's 8 GPUs.
    found = memory(
        architecture="llama-2-7b",
        sizing=on(8),
        sequence_length_tokens=2048,
        state_recipe="mixed_bf16_adam_fp32_gradients",
        offload="optimizer_and_parameters",
        layout=given(sharding="zero_3", recompute="full"),
    )
    weights = snapshot().architecture("llama-2-7b").parameter_count
    assert found.host_memory_gib.per_node == pytest.approx(18 * 1.5 * weights / GIB)
    stage = found.stages[0]
    assert (stage.weights, stage.optimizer) == (stage.gathered_weights, 0)
    # Two of 32 layers, embedding and head, whole.
    outer = 2 * 32000 * 4096 + 4096
    assert stage.weights == pytest.approx(2 * (outer + 2 / 32 * (weights - outer)) / GIB)


def test_parameters_on_the_host_need_sharded_weights():
    found = memory(offload="optimizer_and_parameters", layout=given(sharding="zero_2"))
    (reason,) = found.infeasibilities
    assert (reason.code, reason.needed, reason.available) == ("layout", 3, 2)
    assert "zero_3" in reason.nearest_fix or "hybrid" in reason.nearest_fix


def test_an_unknown_host_memory_is_said_and_a_full_one_is_refused():
    layout = given(sharding="zero_3", recompute="full")
    unknown = memory(gpu="mi300x-192gb", offload="optimizer", layout=layout)
    assert unknown.host_memory_gib.available_per_node is None
    assert unknown.host_memory_gib.verdict is None
    # 405B on one node: 14 · 405.9e9 · 1.5 = 8.5 TB for a host of 2 TiB.
    full = memory(
        architecture="llama-3.1-405b",
        sizing=on(8),
        sequence_length_tokens=512,
        offload="optimizer_and_parameters",
        layout=layout,
    )
    (reason,) = full.infeasibilities
    assert reason.limit == "memory of the host of a node"
    assert reason.available == 2048
    assert reason.needed == pytest.approx(16 * 1.5 * 405_853_388_800 / GIB)
    assert full.host_memory_gib.verdict == "red"


def test_70b_on_eight_cards_fits_only_with_its_optimizer_on_the_host():
    # 138 GB of state a card; a team trained it at 51 GB a card with the optimizer on the host
    # (lm-sys/FastChat#2322).
    fields = {"architecture": "llama-2-70b", "gpu": "a100-sxm4-80gb", "sizing": on(8)}
    fields |= {"sequence_length_tokens": 2048, "state_recipe": "pure_bf16_adam"}
    fields |= {"layout": given(sharding="zero_3", recompute="full")}
    full = memory(**fields | {"state_recipe": "mixed_bf16_adam_bf16_gradients"})
    assert not full.feasible
    assert full.memory_gib_per_gpu.total * GIB > 138e9
    assert memory(**fields | {"offload": "optimizer"}).feasible


def test_two_copies_of_gradients_are_2p_and_18p_over_n():
    # Reduced in 16 bit, added up in FP32 (deepspeedai/DeepSpeed PR#5099).
    assert STATE_RECIPES["mixed_bf16_adam_fp32_gradients_bf16_copy"].total_bytes == 20
    found = memory(
        sizing=on(8),
        state_recipe="mixed_bf16_adam_fp32_gradients_bf16_copy",
        layout=given(sharding="zero_2", recompute="full"),
    ).stages[0]
    own = found.weights + found.gradients - found.unreduced_gradients + found.optimizer
    assert own * GIB == pytest.approx(2 * P_8B + 18 * P_8B / 8)


def test_double_quantisation_narrows_the_base():
    # (4 + 8/64 + 32/(64 · 256)) / 8 = 0.516 bytes, instead of (4 + 32/64) / 8.
    fields = {"sizing": on(1), "layout": given(sharding="none", recompute="full")}
    fields |= {"sequence_length_tokens": 1024}
    single, double = (
        memory(adapter={"kind": "qlora", "rank": 16, "double_quantization": on_}, **fields)
        for on_ in (False, True)
    )
    outer = 2 * 128256 * 4096 + 4096
    saved = (0.5625 - 0.516) * (P_8B - outer)
    gained = single.memory_gib_per_gpu.weights - double.memory_gib_per_gpu.weights
    assert gained * GIB == pytest.approx(saved, rel=1e-9)


def test_adapters_save_state_and_not_activations():
    # Measured: an adapter of 1.3 % of the weights kept 1.2 of 89.7 MiB of gradients and no less of
    # the activations (huggingface/peft#2196).
    fields = {"sizing": on(8), "layout": given(sharding="none", recompute="full")}
    fields |= {"sequence_length_tokens": 2048}
    full = memory(**fields).memory_gib_per_gpu
    lora = memory(adapter={"kind": "lora", "rank": 16}, **fields).memory_gib_per_gpu
    # 32 layers: query and output 4096 to 4096, key and value to 1024, three matrices of 14,336.
    pairs = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    trained = 32 * 16 * pairs
    assert lora.activations == full.activations > 0
    assert lora.gradients * GIB == pytest.approx(2 * trained)
    assert lora.optimizer * GIB == pytest.approx(12 * trained)
    assert lora.weights * GIB == pytest.approx(2 * (P_8B + trained))


def test_experts_are_split_by_their_own_degree():
    # Experts over ETP · EP, the rest over TP; the optimizer of experts over the GPUs that hold the
    # same ones: 64 GPUs / (1 · 8) = 8, or / (2 · 8) = 4 (NVIDIA/Megatron-LM PR#4687).
    routed = snapshot().architecture("mixtral-8x7b").routed_parameter_count
    fields = {"architecture": "mixtral-8x7b", "sizing": on(64)}
    layout = {"tensor_parallel": 2, "expert_parallel": 8, "sharding": "zero_1"}
    plain = memory(layout=given(**layout), **fields).stages[0]
    apart = memory(layout=given(expert_tensor_parallel=1, **layout), **fields)
    more = routed / 8 - routed / 16
    assert (apart.stages[0].weights - plain.weights) * GIB == pytest.approx(2 * more)
    assert apart.stages[0].optimizer == pytest.approx(plain.optimizer)
    assert apart.layout.expert_tensor_parallel == 1
    refused = memory(layout=given(expert_tensor_parallel=3, **layout), **fields)
    assert "expert_tensor_parallel" in refused.infeasibilities[0].limit


def test_the_total_carries_the_band_of_measured_peaks():
    found = memory(layout=given(sharding="zero_3", recompute="full"))
    held = found.memory_gib_per_gpu
    # Eight of ten measured peaks lie between these shares of the estimate.
    band = snapshot().assumptions["training_memory_residual_factor"]
    assert (found.measured_over_estimate_low, found.measured_over_estimate_high) == (
        band.low,
        band.high,
    )
    assert held.total_low == pytest.approx(band.low * held.total)
    assert held.total_high == pytest.approx(band.high * held.total)
    (total,) = [q for q in found.quantities if q.name == "training_memory_bytes_per_gpu"]
    assert total.low == pytest.approx(held.total_low * GIB)
    assert total.high == pytest.approx(held.total_high * GIB)
    assert total.value == pytest.approx(held.total * GIB)


def test_a_run_that_may_not_fit_is_said_to_be_so():
    # Nine in ten runs stay below 1.22 of the estimate: 79.19 / 1.22 = 64.9 GiB is the most that
    # is not said to be near.
    most = 79.19 / snapshot().assumptions["training_memory_residual_factor"].high
    told = set()
    for count in range(10, 24):
        layout = given(sharding="zero_3", recompute="half", micro_batch_sequences=count)
        batch = {"sequence_length_tokens": 1024, "global_batch_tokens": 64 * count * 1024}
        found = memory(layout=layout, **batch)
        if not found.feasible:
            continue
        near = "memory_may_not_fit" in {advisory.code for advisory in found.advisories}
        assert near == (found.memory_gib_per_gpu.total > most)
        told.add(near)
    assert told == {True, False}


def test_serving_stands_beside_training():
    found = memory()
    # 8.03e9 weights of 2 bytes are 15 GiB: one card; training holds more than 16 bytes each.
    assert found.serving.least_gpu_count == 1
    assert found.serving.training_total * GIB > 16 * P_8B
    total = sum(stage.total for stage in found.stages) / len(found.stages) * 64
    assert found.serving.training_total == pytest.approx(total)


@pytest.mark.parametrize(
    ("gpu", "instance", "most"),
    [
        ("h100-sxm5-80gb", 4, 4),
        ("h100-sxm5-80gb", 1, 1),
        ("h100-sxm5-80gb", 8, 8),
        # The link of a rack spans its trays of four: of 64 heads and 72 GPUs 8 divide both.
        ("gb200-nvl72", 4, 8),
    ],
)
def test_a_chosen_tensor_group_stays_where_the_fast_link_is(gpu, instance, most):
    case = case_of(gpu=gpu, instance_gpu_count=instance, gpu_multiple=instance)
    assert max(case.layouts.degrees.tensor) == most


def test_state_on_the_host_slows_a_step_by_what_crosses_the_link():
    # 8B on 8 GPUs: 2 bytes of gradients down and 2 of weights up for an eighth of the weights, over
    # 0.8 of the host link, and their update at 5e8 a second; instead of the GPU's own update.
    layout = given(sharding="zero_2", recompute="full")
    fields = {"architecture": "llama-3.1-8b", "sizing": on(8), "layout": layout}
    plain, hosted = (
        case_of(**fields, offload=kind).speed.mechanism for kind in ("none", "optimizer")
    )
    axes = case_of(**fields).layouts.degrees.take(0)
    axes = type(axes)(**vars(axes) | {"data": 8, "micro_batch_count": 64})
    quiet = case_of(**fields).recorder.off()
    steps = [each.model("pytorch_fsdp", quiet).times(axes) for each in (plain, hosted)]
    link = snapshot().gpus["h100-sxm5-80gb"].pcie_gb_per_s_per_direction * 1e9
    # The step counts matrices and tables, without norms: within a per mille of all weights.
    moved = 4 * P_8B / 8 / (0.8 * link) + P_8B / 8 / 5e8
    assert steps[1].optimizer_s == pytest.approx(moved, rel=1e-3)
    assert steps[1].total_s > steps[0].total_s
    assert steps[0].micro_batch_s == steps[1].micro_batch_s


def test_a_step_of_very_many_micro_batches_is_answered():
    # 2^52 tokens in sequences of one, a million times the micro-batches of any run.
    found = memory(
        sizing=on(8),
        sequence_length_tokens=1,
        global_batch_tokens=2**52,
        layout=given(sharding="zero_3", recompute="full"),
    )
    assert found.layout.micro_batch_count == 2**49
