"""Numbers that operators logged or maintainers confirmed, against what is answered."""

import pytest

from service.core.architecture.model import ModelArchitecture
from service.core.formulas import finance, serving_memory
from service.core.serving.memory import ServingMemoryQuestion, estimate_serving_memory
from service.core.serving.performance import (
    ServingPerformanceQuestion,
    estimate_serving_performance,
)

GIB = 2**30


def memory(snapshot, architecture, **changes):
    asked = {
        "gpu": "h100-sxm5-80gb",
        "weight_format": "bf16",
        "engine": "vllm-0.12",
        "input_tokens_mean": 1500,
        "output_tokens_mean": 400,
        "layout": {"tensor_parallel": 1},
    }
    question = ServingMemoryQuestion(architecture=architecture, **asked | changes)
    return estimate_serving_memory(question, snapshot)


def speed(snapshot, **changes):
    asked = {
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "weight_format": "bf16",
        "engine": "vllm-0.18",
        "input_tokens_mean": 1000,
        "output_tokens_mean": 200,
        "layout": {"tensor_parallel": 1},
        "running_requests": 1,
    }
    return estimate_serving_performance(ServingPerformanceQuestion(**asked | changes), snapshot)


@pytest.mark.parametrize(
    ("architecture", "weights", "ranks", "logged_gib"),
    [
        ("llama-3.1-8b", "bf16", 1, 51.38),
        ("qwen3-32b", "bf16", 1, 4.45),
        ("qwen3-32b", "bf16", 2, 34.49),
        ("gpt-oss-20b", "mxfp4", 1, 50.28),
    ],
)
def test_the_pool_of_an_h100_is_what_the_engine_logged(
    snapshot, architecture, weights, ranks, logged_gib
):
    # llm-d-incubation/llm-d-planner: 0.90 of 79.18 GiB less weights and the engine's own.
    layout = {"tensor_parallel": ranks}
    found = memory(snapshot, architecture, weight_format=weights, layout=layout)
    assert found.memory_gib_per_gpu.available == pytest.approx(79.18, rel=1e-3)
    assert found.memory_gib_per_gpu.kv_cache == pytest.approx(logged_gib, rel=0.012)


@pytest.mark.parametrize(("tokens", "fits"), [(16_000, True), (32_000, False)])
def test_a_32b_on_one_h100_holds_one_long_request_and_not_a_longer_one(snapshot, tokens, fits):
    # 262,144 B a token: 3.91 and 7.81 GiB of 4.45.
    found = memory(
        snapshot, "qwen3-32b", input_tokens_mean=tokens - 200, output_tokens_mean=100,
        sequence_tokens_p95=tokens,
    )  # fmt: skip
    assert found.feasible is fits


@pytest.mark.parametrize(
    ("architecture", "cache", "per_token"),
    [
        ("gpt-oss-20b", "bf16", 24 * 2 * 8 * 64 * 2),  # heads of 64, not 2,880 / 64 = 45
        ("gemma-3-12b", "bf16", 48 * 2 * 8 * 256 * 2),  # heads of 256, not 240
        ("qwen3-30b-a3b", "fp8", 49_152),  # 48 · 2 · 4 · 128 · 1: one rate fits four log lines
        ("gpt-oss-120b", "bf16", 73_728),  # log: 5.38 GiB hold 78,384 tokens
    ],
)
def test_a_first_token_takes_what_its_layers_cache(snapshot, architecture, cache, per_token):
    found = memory(snapshot, architecture, weight_format="fp8", kv_cache_format=cache)
    assert found.kv_cache_bytes_per_token == per_token


def test_a_quantised_cache_carries_its_scales(snapshot):
    # ollama/ollama#6160: 56 layers, 8 heads of 128, 49,152 tokens at 34/32 B are 5,712.00 MiB.
    width = snapshot.number_format("q8_0", pointer="").bytes_per_element
    held = serving_memory.kv_cache_bytes_per_sequence(
        sequence_tokens=49_152, block_tokens=1, layer_count=[56], cache_elements_per_token=[2048],
        cache_shard_count=[8], span_tokens=[float("inf")], state_bytes=[0], tensor_parallel=1,
        bytes_per_element=width,
    )  # fmt: skip
    assert held / 2**20 == pytest.approx(5712.0, abs=0.005)


@pytest.mark.parametrize(("engine", "gib"), [("vllm-0.6", 12.00), ("vllm-0.18", 6.09)])
def test_windows_are_kept_whole_or_cut_as_the_engine_does(snapshot, engine, gib):
    # alvarobartt/hf-mem#70, 32 sequences of 8,192 tokens: 24 layers · 2,048 B · 8,192, or 12 of
    # them at 128 tokens. Never 6.00, which would leave the windows out.
    found = memory(
        snapshot, "gpt-oss-20b", weight_format="mxfp4", engine=engine,
        input_tokens_mean=8000, output_tokens_mean=192,
    )  # fmt: skip
    assert 32 * found.kv_cache_bytes_per_sequence_per_gpu / GIB == pytest.approx(gib, abs=0.005)


GEMMA_4 = {"gpu": "h200-sxm-141gb", "input_tokens_mean": 32_000, "output_tokens_mean": 768}


@pytest.mark.parametrize(("engine", "gib"), [("vllm-0.18", 30.0), ("vllm-0.21", 5.78)])
def test_what_an_engine_allocates_is_not_what_an_architecture_needs(snapshot, engine, gib):
    # alvarobartt/hf-mem#61, at 32,768 tokens: 60 layers of 16,384 B a token uncut, or 10 uncut and
    # 50 cut at 1,024. Keys that are values, kept once, and narrow full layers need less than that:
    # 50 · 16,384 + 10 · 4,096 B for a first token.
    found = memory(snapshot, "gemma-4-31b", engine=engine, **GEMMA_4)
    assert found.kv_cache_bytes_per_sequence_per_gpu / GIB == pytest.approx(gib, abs=0.005)
    assert found.kv_cache_bytes_per_token == 50 * 16_384 + 10 * 4_096


def test_the_tokens_of_a_pool_follow_from_the_numbers_beside_them(snapshot):
    # Log: 983,040 B a token; 24.54 GiB hold 26,800 tokens in blocks of 16.
    found = memory(snapshot, "gemma-4-31b", engine="vllm-0.18", **GEMMA_4)
    per_token = found.kv_cache_bytes_per_sequence_per_gpu / 32_768
    assert per_token == 983_040
    assert serving_memory.kv_cache_tokens_per_replica(
        pool_bytes=24.54 * GIB, bytes_per_token=per_token, block_tokens=16
    ) == pytest.approx(26_800)
    pool = found.memory_gib_per_gpu.kv_cache * GIB
    assert found.kv_cache_tokens_per_replica.value == pytest.approx(pool / per_token, rel=1e-9)


def test_a_sparse_index_keeps_its_keys_in_8_bit(snapshot):
    # 61 layers · ((512 + 64) · 2 + 132) B, whatever the cache's format.
    found = memory(snapshot, "deepseek-v3.2", weight_format="fp8", gpu="h200-sxm-141gb")
    assert found.kv_cache_bytes_per_token == 61 * (1152 + 132)


def test_a_slot_holds_a_context_of_its_own(snapshot):
    # ollama/ollama#9246: four slots of 4,096 tokens at 28 · 2 · 4 · 128 · 2 B are 0.875 GiB.
    found = memory(
        snapshot, "qwen2.5-7b", input_tokens_mean=4000, output_tokens_mean=96,
        sequence_tokens_p95=4096,
    )  # fmt: skip
    assert 4 * found.kv_cache_bytes_per_sequence_per_gpu / GIB == 0.875


def test_the_fullest_stage_decides():
    # vllm-project/vllm#32105: 92 layers over 8 stages are 12 on the fullest, 4,096 B each; stages
    # of 56 and 8 layers hold 46,800 and 327,680 tokens of equal pools.
    fullest = serving_memory.fullest_stage_fraction(num_hidden_layers=92, pipeline_parallel=8)
    assert fullest * 92 * 4096 == pytest.approx(49_152)
    assert 202_752 * fullest * 92 * 4096 / GIB == pytest.approx(9.28, abs=0.005)


def test_all_experts_count_and_do_not_fit_where_the_active_ones_would(snapshot):
    # AlexsJones/llmfit#230: 125e9 weights in 4 bit on 48 GB do not fit; 10e9 active ones would.
    found = memory(snapshot, "qwen3.5-122b-a10b", weight_format="int4-group-128", gpu="l40s-48gb")
    [refusal] = found.infeasibilities
    assert refusal.code == "memory"
    assert refusal.needed > 125e9 * 0.5 / GIB


def test_a_vision_tower_takes_memory_from_the_pool(snapshot):
    found = memory(snapshot, "gemma-3-12b")
    assert found.weights_gib_per_gpu.towers > 0.7  # 0.42e9 weights of 2 B
    listed = snapshot.architectures["gemma-3-12b"].model_dump(exclude={"towers"})
    text = ModelArchitecture.model_validate(listed)
    without = memory(snapshot, text)
    gained = without.memory_gib_per_gpu.kv_cache - found.memory_gib_per_gpu.kv_cache
    assert gained == pytest.approx(found.weights_gib_per_gpu.towers)


def test_logged_figures_are_of_one_gpu(snapshot):
    # vllm-project/vllm#13061: 48 · 2 · 4 · 128 · 2 B a token on each of two GPUs, weights of 13.95
    # GiB on each.
    layout = {"tensor_parallel": 2}
    found = memory(snapshot, "qwen2.5-14b", gpu="rtx-4090-24gb", layout=layout)
    assert found.kv_cache_bytes_per_token_per_gpu == 98_304
    assert found.kv_cache_bytes_per_token == 2 * 98_304
    assert found.memory_gib_per_gpu.weights == pytest.approx(13.95, rel=0.02)


def test_a_70b_on_four_gpus_keeps_room_for_prompts(snapshot):
    # huggingface/text-generation-inference#832: 81,920 B a token and 32.1 GiB on each GPU.
    layout = {"tensor_parallel": 4}
    found = memory(snapshot, "llama-2-70b", gpu="a100-sxm4-80gb", layout=layout)
    assert found.kv_cache_bytes_per_token_per_gpu == 81_920
    assert found.memory_gib_per_gpu.weights == pytest.approx(32.1, abs=0.05)
    assert found.memory_gib_per_gpu.overhead > 1


def test_eight_users_of_8k_take_21_gb(snapshot):
    # 8 · 8,192 · 327,680 B.
    found = memory(
        snapshot, "llama-3.1-70b", weight_format="fp8", input_tokens_mean=8000,
        output_tokens_mean=192, sequence_tokens_p95=8192, gpu="h200-sxm-141gb",
    )  # fmt: skip
    assert 8 * found.kv_cache_bytes_per_sequence_per_gpu == pytest.approx(21.47e9, rel=1e-3)


def test_one_users_speed_is_bandwidth_over_weights_and_a_replicas_is_far_above(snapshot):
    # ai-runway/airunway#139: 16.06 GB at 3.35 TB/s are 4.8 ms a token at best.
    alone, many = speed(snapshot), speed(snapshot, running_requests=64)
    assert alone.tpot_mean_s.value > 16.06e9 / 3.35e12
    assert alone.tpot_mean_s.value < 2.5 * 16.06e9 / 3.35e12
    assert many.units_per_s.value > 10 * alone.units_per_s.value


def test_the_wait_for_the_first_token_is_no_gap_between_tokens(snapshot):
    # vllm-project/vllm#7242: a longer prompt alone moves the first token, not the mean gap.
    short, long = speed(snapshot), speed(snapshot, input_tokens_mean=8000)
    assert long.ttft_unloaded_s.value > 2 * short.ttft_unloaded_s.value
    assert long.tpot_mean_s.value < 1.2 * short.tpot_mean_s.value


@pytest.mark.parametrize(
    ("price", "tokens_per_s", "cost"), [(2.00, 85, 6.54), (2.60, 140, 5.16), (2.00, 400, 1.39)]
)
def test_a_million_tokens_cost_price_over_rate(price, tokens_per_s, cost):
    found = finance.price_per_million_tokens(price_per_hour=price, tokens_per_s=tokens_per_s)
    assert found == pytest.approx(cost, abs=0.005)
