"""Memory of a run: what divides what, and that arrays and single layouts agree."""

import numpy as np
import pytest

from service.core.parallelism.axes import RECOMPUTES, SHARDINGS
from tests.core.training_runs import (
    MFU_40,
    answer,
    axes,
    case_of,
    given,
    need,
    on,
    quantities,
    refusal,
    snapshot,
    with_gpu,
)

GIB = 2**30


def terms(layout, **fields):
    case = case_of(**fields)
    return case.layouts.memory.terms(layout, case.recorder.off())


LLAMA_8B = {"architecture": "llama-3.1-8b"}
P_8B = 8_030_261_248
HUGGINGFACE = {"kind": "estimated", "software_stack": "huggingface"}


@pytest.mark.parametrize(
    ("sharding", "divided"),
    [("none", (1, 1, 1)), ("zero_1", (1, 1, 8)), ("zero_2", (1, 8, 8)), ("zero_3", (8, 8, 8))],
)
def test_sharding_divides_the_parts_it_reaches(sharding, divided):
    found = terms(axes(sharding=SHARDINGS.index(sharding)), **LLAMA_8B)
    shared = [P_8B * width / n for width, n in zip((2, 2, 12), divided, strict=True)]
    # Borrowed beside the shards: two of 32 layers of weights with embedding and head, one layer of
    # gradients, each less its own eighth.
    outer = 2 * 128256 * 4096 + 4096
    layers = P_8B - outer
    borrowed = [
        (sharding == "zero_3") * 2 * (2 / 32 * layers + outer) * 7 / 8,
        (sharding in {"zero_2", "zero_3"}) * 2 * P_8B / 32 * 7 / 8,
        0,
    ]
    held = (found.weights, found.gradients, found.optimizer)
    assert held == pytest.approx([a + b for a, b in zip(shared, borrowed, strict=True)], rel=1e-12)


def test_hybrid_sharding_stops_at_the_node():
    # 64 copies on nodes of 8 GPUs: sharded over 8.
    hybrid = axes(data=64, sharding=SHARDINGS.index("hybrid"))
    assert terms(hybrid, **LLAMA_8B).optimizer == pytest.approx(12 * P_8B / 8)
    assert terms(axes(data=64, sharding=SHARDINGS.index("zero_3")), **LLAMA_8B).optimizer == (
        pytest.approx(12 * P_8B / 64)
    )


def test_tensor_parallelism_divides_weights_but_not_norms():
    # 2 norms of 4,096 in each of 32 layers are whole on every rank; the final norm is divided with
    # the head, which only rounds.
    norms = 32 * 2 * 4096
    found = terms(axes(tensor=8, data=1), **LLAMA_8B)
    assert found.weights == pytest.approx(2 * ((P_8B - norms) / 8 + norms), rel=1e-9)


def test_the_end_stages_hold_the_tables():
    # 80 layers over 8 stages: 10 on the first, with the input table; no head.
    case = case_of()
    parts = case.layouts.memory.parts
    found = terms(axes(pipeline=8, data=1))
    assert found.weights == 2 * (parts.layer_parameter_count / 8 + 128256 * 8192)


def test_a_tied_head_is_counted_once_on_one_stage_and_twice_on_two():
    tied = snapshot().architecture("llama-3.2-1b")
    assert tied.tie_word_embeddings
    one = terms(axes(data=1), architecture="llama-3.2-1b").weights
    assert one == 2 * tied.parameter_count
    case = case_of(architecture="llama-3.2-1b")
    last = case.layouts.memory._states.held(axes(pipeline=2, data=1), 1)[2]
    assert last == 128256 * 2048 + 2048


def test_experts_are_divided_by_expert_parallelism_and_nothing_else_is():
    # NVIDIA/Megatron-LM PR#4687: routed experts by tensor · expert parallelism, the rest by tensor.
    fields = {"architecture": "mixtral-8x7b"}
    case = case_of(**fields)
    routed = case.architecture.routed_parameter_count
    one = terms(axes(tensor=2), **fields).weights
    four = terms(axes(tensor=2, expert=4), **fields).weights
    assert one - four == pytest.approx(2 * routed / 2 * (1 - 1 / 4), rel=1e-12)


def test_the_optimizer_of_experts_is_shared_by_those_who_hold_the_same_ones():
    fields = {"architecture": "mixtral-8x7b"}
    routed = case_of(**fields).architecture.routed_parameter_count
    zero_1 = SHARDINGS.index("zero_1")
    one = terms(axes(sharding=zero_1), **fields).optimizer
    four = terms(axes(sharding=zero_1, expert=4), **fields).optimizer
    # 8 GPUs: without expert parallelism every expert is on all 8; with it a quarter is on 2.
    assert one == pytest.approx(four, rel=1e-12)
    assert one == pytest.approx(12 * case_of(**fields).architecture.parameter_count / 8)
    assert routed > 0


def test_activations_are_summed_from_the_architecture():
    # Llama 3.1 8B, 8,192 tokens, 32 layers: 8·4096 around and 2·(2·32 + 2·8)·128 + 6·14336 inside,
    # and no logits leave room for a rebuilt layer because none is rebuilt.
    found = terms(axes(), **LLAMA_8B)
    assert found.activations == 8192 * 32 * (8 * 4096 + 2 * 80 * 128 + 6 * 14336)


def test_full_recompute_keeps_inputs_and_one_layer():
    found = terms(axes(recompute=RECOMPUTES.index("full")), **LLAMA_8B)
    layer = 8 * 4096 + 2 * 80 * 128 + 6 * 14336
    rebuilt = max(0, 8192 * layer - found.logits)
    assert found.activations == 8192 * 32 * 2 * 4096 + rebuilt


def test_latent_attention_keeps_expanded_heads_and_experts_their_copies():
    # DeepSeek-V3: 128 heads, queries and keys 192, values and output 128; 3 dense layers of 18,432,
    # 58 with 8 + 1 experts of 2,048 and eight copies sent and brought back.
    tokens, h = 4096, 7168
    attention = 2 * 128 * (192 + 192 + 128 + 128)
    dense = 3 * (8 * h + attention + 6 * 18432)
    mixture = 58 * (8 * h + 4 * 8 * h + attention + 6 * 9 * 2048)
    fields = {"architecture": "deepseek-v3", "sequence_length_tokens": tokens}
    found = terms(axes(), **fields)
    assert found.activations == pytest.approx(tokens * (dense + mixture), rel=1e-12)


def test_tensor_with_sequence_parallelism_divides_activations_and_pipelines_do_not():
    one = terms(axes(micro_batch_count=64), **LLAMA_8B).activations
    eight = terms(axes(tensor=8, micro_batch_count=64), **LLAMA_8B).activations
    deep = terms(axes(pipeline=16, micro_batch_count=64), **LLAMA_8B).activations
    assert eight == pytest.approx(one / 8, rel=1e-12)
    assert deep == pytest.approx(one, rel=1e-12)


def test_interleaving_holds_more_chunks_on_the_first_stage():
    # 1 + (p - 1)/(p·v) of a model's layers for p 8 and v 2.
    plain = terms(axes(pipeline=8, micro_batch_count=64)).activations
    woven = terms(axes(pipeline=8, virtual=2, micro_batch_count=64)).activations
    assert woven / plain == pytest.approx(1 + 7 / 16, rel=1e-12)


def test_stored_scores_are_kept_by_stacks_that_store_them():
    # 5 bytes · 32 heads · 2,048 keys a token and layer; recomputed, those of one layer are left.
    stack = {"kind": "estimated", "software_stack": "megatron_2021"}
    fields = LLAMA_8B | {"speed": stack, "sizing": on(64), "sequence_length_tokens": 2048}
    name = "training_activation_bytes_per_gpu"
    kept = quantities(layout=given(sharding="zero_3", recompute="none"), **fields)[name].value
    lean = quantities(layout=given(sharding="zero_3", recompute="selective"), **fields)
    scores = 5 * 32 * 2048 * 2048
    rebuilt = max(0, scores - lean["training_logits_bytes_per_gpu"].value)
    assert kept - lean[name].value == pytest.approx(32 * scores - rebuilt, rel=1e-12)


def test_every_second_layer_keeps_its_share():
    whole = terms(axes(), **LLAMA_8B).activations
    share = snapshot().assumptions["half_recompute_kept_fraction"].value
    half = terms(axes(recompute=RECOMPUTES.index("half")), **LLAMA_8B)
    rebuilt = max(0, whole / 32 - half.logits)
    assert half.activations == pytest.approx(share * whole + rebuilt, rel=1e-12)


def test_a_named_loss_decides_the_copies_of_the_logits():
    plain = terms(axes(), loss="plain", **LLAMA_8B).logits
    fused = terms(axes(), loss="fused", **LLAMA_8B).logits
    # 2+4+4+4+4+4+2 bytes for each logit, or 4.
    assert (plain, fused) == (8192 * 128256 * 24, 8192 * 128256 * 4)


def test_a_chunked_loss_holds_the_logits_of_one_chunk():
    # 1,024 of 8,192 tokens over Qwen's 151,936 words in FP32: 0.580 GiB in place of 4.637.
    fields = {"architecture": "qwen3-8b", "sequence_length_tokens": 8192}
    chunk = terms(axes(), loss="chunked", **fields).logits
    assert chunk == 1024 * 151936 * 4
    assert round(float(chunk) / 2**30, 3) == 0.580
    whole = terms(axes(), loss="fused", **fields).logits
    assert round(float(whole) / 2**30, 3) == 4.637
    # More sequences of a micro-batch are no more than more chunks; tensor parallelism divides one.
    assert terms(axes(micro_batch_sequences=4), loss="chunked", **fields).logits == chunk
    assert terms(axes(tensor=2), loss="chunked", **fields).logits == chunk / 2
    # A micro-batch that is shorter than a chunk is held whole.
    short = terms(axes(), loss="chunked", **fields | {"sequence_length_tokens": 512}).logits
    assert short == 512 * 151936 * 4


def test_logits_that_tensor_parallelism_divides_are_eager_tensors_of_the_stack():
    # 8,192 tokens over 4 GPUs: 2+4+4+4+2 bytes each instead of 2+4+4 on one GPU
    stack = {"speed": {"kind": "estimated", "software_stack": "pytorch_fsdp"}}
    divided = terms(axes(tensor=4), **stack, **LLAMA_8B).logits
    whole = terms(axes(), **stack, **LLAMA_8B).logits
    assert (whole, divided) == (8192 * 128256 * 10, 8192 * 128256 / 4 * 16)
    fused = terms(axes(tensor=4), loss="fused", **stack, **LLAMA_8B).logits
    assert fused == 8192 * 128256 / 4 * 4


def test_kernels_that_are_not_fused_keep_what_norms_cast():
    # stas00/ml-engineering, training/performance: 28 copies of the hidden state a layer, 7.0 GiB at
    # 32,768 tokens of Llama 3.1 8B. Counted here: 4 around two norms, 4 that these cast, 2.5 for
    # queries, keys, values and output, 14 for a gated block of 3.5 widths; 1.5 less than where keys
    # and values are repeated for every head.
    fields = {"sequence_length_tokens": 32768, "speed": HUGGINGFACE}
    found = terms(axes(), **LLAMA_8B, **fields).activations / (32 * 32768 * 2 * 4096)
    assert found == 4 + 4 + 2.5 + 4 * 3.5
    assert found == pytest.approx(28, rel=0.15)


def test_norms_without_a_gate_beside_them_are_one_kernel():
    # MPT: layer norms keep their input alone, and nothing is multiplied by a gate.
    fields = {"architecture": "mpt-7b", "sequence_length_tokens": 1024}
    eager = terms(axes(), speed=HUGGINGFACE, **fields).activations
    assert eager == terms(axes(), **fields).activations


def test_stacks_that_update_all_weights_at_once_hold_a_copy_of_them():
    # Llama 3.1 8B in pure bf16 on one GPU: 2 bytes a weight at the step, when no activations are
    # held: that is more than logits and activations of a short sequence.
    fields = LLAMA_8B | {"state_recipe": "pure_bf16_adam", "sequence_length_tokens": 512}
    at_once = {"kind": "estimated", "software_stack": "huggingface"}
    in_buckets = {"kind": "estimated", "software_stack": "vendor_tuned"}
    layout = axes(data=1, recompute=RECOMPUTES.index("full"))
    one = terms(layout, speed=at_once, loss="fused", **fields)
    other = terms(layout, speed=in_buckets, loss="fused", **fields)
    copy = 2 * P_8B - one.activations - one.logits
    assert one.overhead - other.overhead == pytest.approx(copy, rel=1e-9)


def test_an_8_bit_optimizer_updates_one_tensor_after_another_and_holds_no_copy():
    # Llama 2 7B, all in bf16: 2 + 2 + 4 bytes of 6.74e9 weights are 53.9 GB, and the default
    # optimizer adds a copy of 13.5 GB at the step; with 8-bit moments 2 + 2 + 2 are 40.4 GB.
    count = 6_738_415_616
    fields = {"architecture": "llama-2-7b", "sequence_length_tokens": 512, "loss": "fused"}
    speed = {"kind": "estimated", "software_stack": "pytorch_eager"}
    layout = axes(data=1, recompute=RECOMPUTES.index("full"))
    held = {}
    for recipe in ("pure_bf16_adam", "pure_bf16_adam_8bit_moments"):
        held[recipe] = terms(layout, speed=speed, state_recipe=recipe, **fields)
    plain, small = held["pure_bf16_adam"], held["pure_bf16_adam_8bit_moments"]
    state = [found.weights + found.gradients + found.optimizer for found in (plain, small)]
    assert state == pytest.approx([8 * count, 6 * count])
    context = small.framework
    assert context == pytest.approx(snapshot().assumptions["training_context_gib"].value * 2**30)
    # At the step, activations and logits are gone.
    copy = 2 * count - plain.activations - plain.logits
    assert plain.framework - context == pytest.approx(copy)


def test_logits_are_on_the_last_stage():
    # Enough layers a stage make the first the fuller one; it then holds no logits.
    assert terms(axes(pipeline=8, micro_batch_count=64)).logits == 0
    one = terms(axes(), **LLAMA_8B)
    width = snapshot().assumptions["bytes_per_logit.upcast"].value
    assert one.logits == 8192 * 128256 * width


def test_a_quantised_base_takes_its_width_and_the_tables_sixteen_bits():
    fields = {"adapter": {"kind": "qlora", "rank": 16}, "sequence_length_tokens": 1024}
    found = terms(axes(data=1), **fields)
    case = case_of(**fields)
    outer = 2 * 128256 * 8192 + 8192
    base = (case.architecture.parameter_count - outer) * 0.5625 + 2 * outer
    adapters = 80 * 16 * (2 * (8192 + 8192) + 2 * 8192 + 2048 + 3 * (8192 + 28672))
    assert found.weights == pytest.approx(base + 2 * adapters, rel=1e-9)
    assert found.optimizer == pytest.approx(12 * adapters, rel=1e-9)


def test_trained_towers_are_held_and_saved():
    plain = snapshot().architecture("gemma-3-27b")
    towers = sum(tower.parameter_count for tower in plain.towers)
    assert towers > 0
    found = terms(axes(), architecture="gemma-3-27b")
    assert found.optimizer == pytest.approx(12 * (plain.parameter_count + towers), rel=1e-12)
    saved = need(architecture="gemma-3-27b", speed=MFU_40).checkpoint_bytes
    assert saved == 16 * (plain.parameter_count + towers)


def test_many_layouts_at_once_hold_what_each_holds_alone():
    case = case_of(architecture="deepseek-v3", sequence_length_tokens=4096)
    quiet = case.recorder.off()
    candidates = case.layouts.rules.candidates(case.layouts.degrees, 512)
    memory = case.layouts.memory
    together = memory.terms(candidates, quiet)
    for index in np.linspace(0, len(candidates.tensor) - 1, 50, dtype=int):
        alone = memory.terms(candidates.take(int(index)), quiet)
        for name in ("weights", "gradients", "optimizer", "activations", "logits", "total"):
            assert getattr(together, name)[index] == pytest.approx(getattr(alone, name), rel=1e-12)


def test_the_verdict_follows_the_share_of_what_programs_can_address():
    layout = given(tensor_parallel=8, pipeline_parallel=4)
    total = need(speed=MFU_40, layout=layout).memory.total
    for share, verdict in ((0.79, "green"), (0.81, "amber"), (0.94, "amber")):
        found, _ = answer(speed=MFU_40, layout=layout, catalog=with_memory(total / share))
        assert (round(found.memory.total / found.memory.available, 3), found.memory.verdict) == (
            share,
            verdict,
        )
    reason = refusal(speed=MFU_40, layout=layout, catalog=with_memory(total / 0.96))
    assert reason.code == "memory"


def with_memory(gib):
    return with_gpu("h100-sxm5-80gb", memory_cuda_mib=gib * 1024)


def test_plain_data_parallelism_of_8b_fits_no_80_gb_card():
    # 16 · 8.03e9 = 128.48 GB on every GPU, whatever their number.
    for count in (8, 64):
        reason = refusal(layout=given(sharding="ddp"), sizing=on(count), speed=MFU_40, **LLAMA_8B)
        assert reason.code == "memory"
        assert reason.needed * GIB > 128.48e9
        assert reason.available < 80
        assert reason.unit == "GiB"


def test_the_fix_of_a_layout_that_does_not_fit_fits():
    reason = refusal(layout=given(sharding="zero_1"), speed=MFU_40)
    assert reason.nearest_fix == "sharding zero_3 and recompute full"
    fixed = given(sharding="zero_3", recompute="full")
    assert need(layout=fixed, speed=MFU_40).memory.verdict != "red"


def test_more_gpus_are_named_where_no_layout_fits():
    # 16 · 69e9 = 1.10 TB of state: 138 GB on each of 8 cards (epfLLM/Megatron-LLM#52).
    reason = refusal(gpu="a100-sxm4-80gb", sizing=on(8), speed=MFU_40)
    assert reason.code == "memory"
    count = int(reason.nearest_fix.split(" ")[0])
    assert need(gpu="a100-sxm4-80gb", sizing=on(count), speed=MFU_40).gpu_count == count > 8
    # 69 GB a card leaves no comfortable room on 16; 32 is what a team measured as enough.
    sixteen, _ = answer(gpu="a100-sxm4-80gb", sizing=on(16), speed=MFU_40)
    assert isinstance(sixteen, tuple) or sixteen.memory.verdict == "amber"
    assert need(gpu="a100-sxm4-80gb", sizing=on(32), speed=MFU_40).memory.verdict != "red"


@pytest.mark.parametrize("architecture", ["llama-3.1-405b", "deepseek-v3"])
def test_the_gpus_that_a_large_model_needs_are_found_from_far_below(architecture):
    # 16 bytes for each of 405.9e9 weights are 6.5 TB: 82 cards of 79.18 GiB for the state alone.
    fields = {"architecture": architecture, "speed": MFU_40, "sequence_length_tokens": 4096}
    reason = refusal(sizing=on(8), **fields)
    count = int(reason.nearest_fix.split(" ")[0])
    state = 16 * snapshot().architecture(architecture).parameter_count
    assert count > state / (79.18 * GIB)
    assert need(sizing=on(count), **fields).gpu_count == count


def test_two_cards_do_not_hold_the_state_of_13b():
    # 208 GB of state, 156 of it master weights and moments (Alpha-VLLM/LLaMA2-Accessory#26).
    fields = {"architecture": "llama-2-13b", "sequence_length_tokens": 2048, "speed": MFU_40}
    reason = refusal(sizing=on(2), gpu_multiple=1, gpu="a100-sxm4-80gb", **fields)
    assert reason.code == "memory"
    assert reason.needed * GIB > 104e9
    assert need(sizing=on(4), gpu="a100-sxm4-80gb", **fields).gpu_count == 4


def test_a_model_that_no_number_of_gpus_holds_says_what_else_would_help():
    tiny = with_memory(1.0)
    reason = refusal(catalog=tiny, speed=MFU_40)
    assert reason.code == "memory"
    assert "state_recipe" in reason.nearest_fix
