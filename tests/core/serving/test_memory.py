"""Memory of a replica against arithmetic and what engines log."""

import pytest

from service.core.errors import InvalidScenario, UnknownKey
from service.core.serving.memory import ServingMemoryQuestion, estimate_serving_memory


def answer(snapshot, **changes):
    asked = {
        "architecture": "llama-3.3-70b",
        "gpu": "h100-sxm5-80gb",
        "weight_format": "fp8",
        "engine": "vllm-0.18",
        "input_tokens_mean": 1500,
        "output_tokens_mean": 400,
    }
    return estimate_serving_memory(ServingMemoryQuestion(**asked | changes), snapshot)


@pytest.mark.parametrize(
    ("architecture", "cache", "per_token"),
    [
        ("llama-2-7b", "bf16", 524_288),  # 32 layers · 2 · 32 heads · 128 · 2 B
        ("llama-3-8b", "bf16", 131_072),  # 32 · 2 · 8 · 128 · 2
        ("llama-3.1-70b", "bf16", 327_680),  # 80 · 2 · 8 · 128 · 2
        ("deepseek-v3", "bf16", 70_272),  # 61 · (512 + 64) · 2, one joint vector
        ("qwen3-next-80b-a3b", "bf16", 24_576),  # 12 of 48 layers · 2 · 2 · 256 · 2
        ("mistral-small-24b-2501", "bf16", 163_840),  # 40 · 2 · 8 · 128 · 2: the head is 128 wide
        ("llama-3.1-70b", "q8_0", 174_080),  # 80 · 2 · 8 · 128 · 34/32: a scale for each 32
    ],
)
def test_a_token_takes_what_its_layers_cache(snapshot, architecture, cache, per_token):
    found = answer(snapshot, architecture=architecture, kv_cache_format=cache, gpu="b200-sxm-180gb")
    assert found.kv_cache_bytes_per_token == per_token


def test_heads_beyond_their_number_are_copied(snapshot):
    # sglang log of Qwen3 235B on 4 GPUs: 4 KV heads, so one on each: 94 · 2 · 128 · 2 B a token.
    found = answer(snapshot, architecture="qwen3-235b-a22b", layout={"tensor_parallel": 4})
    assert found.kv_cache_bytes_per_token_per_gpu == 94 * 2 * 128 * 2
    eight = answer(snapshot, architecture="qwen3-235b-a22b", layout={"tensor_parallel": 8})
    assert eight.kv_cache_bytes_per_token_per_gpu == found.kv_cache_bytes_per_token_per_gpu


def test_an_illegal_degree_names_the_nearest_legal_one(snapshot):
    found = answer(snapshot, layout={"tensor_parallel": 3})
    [refusal] = found.infeasibilities
    assert (refusal.code, refusal.needed, refusal.available) == ("layout", 3, 4)
    assert not found.feasible
    assert found.memory_gib_per_gpu is None


def test_weights_are_the_sum_of_their_parts(snapshot):
    for architecture in ("llama-3.3-70b", "gpt-oss-120b", "deepseek-v3"):
        found = answer(snapshot, architecture=architecture, gpu="b200-sxm-180gb")
        parts = found.weights_gib_per_gpu
        whole = parts.layers + parts.routed_experts + parts.embeddings_and_head + parts.towers
        assert whole == pytest.approx(found.memory_gib_per_gpu.weights)


def test_a_draft_model_and_adapters_come_out_of_the_pool(snapshot):
    layout = {"tensor_parallel": 4}
    alone = answer(snapshot, layout=layout)
    # 1e9 adapter weights of 2 B on 4 GPUs: 0.4657 GiB of each pool.
    beside = answer(snapshot, layout=layout, adapter_parameter_count=1_000_000_000)
    lost = alone.memory_gib_per_gpu.kv_cache - beside.memory_gib_per_gpu.kv_cache
    assert lost == pytest.approx(2e9 / 4 / 2**30)
    draft = answer(snapshot, layout=layout, draft_architecture="llama-3.2-1b")
    assert draft.weights_gib_per_gpu.draft_and_adapters == pytest.approx(
        2 * snapshot.architecture("llama-3.2-1b").parameter_count / 4 / 2**30
    )


def test_a_weight_of_an_adapter_takes_what_is_assumed(snapshot):
    name = "draft_and_adapter_bytes_per_parameter"
    asked = {"adapter_parameter_count": 1_000_000_000, "layout": {"tensor_parallel": 4}}
    found = answer(snapshot, **asked, assumption_overrides={name: 1})
    # 1e9 weights of 1 B on 4 GPUs.
    assert found.weights_gib_per_gpu.draft_and_adapters == pytest.approx(1e9 / 4 / 2**30)
    assert name in {used.name for used in found.assumptions}
    alone = answer(snapshot, layout={"tensor_parallel": 4})
    assert name not in {used.name for used in alone.assumptions}


def test_a_draft_model_caches_every_sequence_too(snapshot):
    # Llama 3.2 1B: 16 layers · 2 · 8 KV heads · 64 · 2 B = 32,768 B a token, 8,192 on each of 4
    # GPUs; Llama 3.3 70B: 80 · 2 · 8 · 128 · 2 / 4 = 81,920. 1,900 tokens fill 119 blocks of 16.
    layout = {"tensor_parallel": 4}
    found = answer(snapshot, layout=layout, draft_architecture="llama-3.2-1b")
    own, drafted = 119 * 16 * 81_920, 119 * 16 * 8_192
    assert found.kv_cache_bytes_per_sequence_per_gpu == own
    assert found.draft_kv_cache_bytes_per_sequence_per_gpu == drafted
    pool = found.memory_gib_per_gpu.kv_cache * 2**30
    assert found.sequences_at_mean_length.value == int(pool / (own + drafted))
    tokens = pool / (own + drafted) * 1900
    assert found.kv_cache_tokens_per_replica.value == pytest.approx(tokens)
    assert answer(snapshot, layout=layout).draft_kv_cache_bytes_per_sequence_per_gpu == 0


def test_a_draft_model_without_layers_is_refused_by_name(snapshot):
    known = next(key for key, a in snapshot.architectures.items() if not a.has_layers)
    with pytest.raises(InvalidScenario) as refused:
        answer(snapshot, draft_architecture=known)
    assert refused.value.pointer == "/draft_architecture"


def test_attention_ranks_hold_sequences_of_their_own(snapshot):
    asked = {"architecture": "deepseek-v3", "gpu": "b200-sxm-180gb", "kv_cache_format": "bf16"}
    split = answer(snapshot, **asked, layout={"tensor_parallel": 8})
    ranks = answer(snapshot, **asked, layout={"attention_data_parallel": 8})
    # The joint vector cannot be divided: eight ranks hold up to eight times the tokens of one.
    assert ranks.kv_cache_tokens_per_replica.value > 4 * split.kv_cache_tokens_per_replica.value
    assert ranks.gpu_count_per_replica == split.gpu_count_per_replica == 8


def test_what_does_not_fit_says_by_how_much(snapshot):
    found = answer(snapshot, weight_format="bf16", layout={"tensor_parallel": 1})
    [refusal] = found.infeasibilities
    assert refusal.code == "memory"
    assert refusal.needed > 131  # 141 GB of weights alone are 131 GiB
    assert refusal.available < 80


def test_an_unknown_format_is_an_error(snapshot):
    with pytest.raises(UnknownKey):
        answer(snapshot, weight_format="fp7")
