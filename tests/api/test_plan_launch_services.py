"""How a plan's services are started: options that each engine publishes."""

import math

import pytest

from tests.api import published_options as published
from tests.api.launch_sheets import (
    ESTIMATED,
    SERVICE,
    SGLANG,
    TRTLLM,
    VLLM,
    engine_options,
    launched,
    numbers,
    replica_of,
)


def test_vllm_serves_with_the_layout_and_limits_of_the_plan(client):
    plan, entry = launched(client, service={**ESTIMATED, "engine": "vllm-0.18"})
    replica = replica_of(plan)
    options = engine_options(entry, VLLM, published.VLLM)
    layout = replica["layout"]
    sizes = ("--tensor-parallel-size", "--pipeline-parallel-size")
    assert numbers(options, *sizes) == (layout["tensor_parallel"], layout["pipeline_parallel"])
    assert numbers(options, "--max-num-seqs") == (replica["concurrency_per_replica"],)
    used = {each["name"].partition(".")[0]: each["value"] for each in plan["assumptions"]}
    assert numbers(options, "--gpu-memory-utilization", "--max-num-batched-tokens") == (
        used["memory_utilization_fraction"],
        used["prefill_chunk_tokens_maximum"],
    )
    assert (options["--quantization"], options["--kv-cache-dtype"]) == ("fp8", "fp8")
    # The architecture's own limit, which the cache of a replica holds several times.
    assert numbers(options, "--max-model-len") == (131072,)
    assert entry["tool"] == "vLLM 0.18"
    assert entry["replica_count"] == replica["held_replica_count"]


def test_an_override_of_an_assumption_is_in_the_line(client):
    _, entry = launched(
        client,
        service={**ESTIMATED, "engine": "vllm-0.18"},
        assumption_overrides={"memory_utilization_fraction": 0.85},
    )
    options = engine_options(entry, VLLM, published.VLLM)
    assert options["--gpu-memory-utilization"] == "0.85"


def test_a_cache_smaller_than_the_longest_request_bounds_it(client):
    service = {**ESTIMATED, "architecture": "llama-3.1-8b", "gpu": "l4-24gb"}
    service |= {"objectives": None, "load": {"kind": "peak_requests", "peak_requests_per_s": 1}}
    rent = [{"method": {"kind": "rent", "price_per_gpu_hour": "0.80"}}]
    plan, entry = launched(client, service=service, procurement=rent)
    replica = replica_of(plan)
    longest = min(131072, replica["kv_cache_tokens_per_replica"])
    options = engine_options(entry, VLLM, published.VLLM)
    assert numbers(options, "--max-model-len") == (longest,)


MIXTURE = {
    **ESTIMATED,
    "architecture": "deepseek-v3",
    "gpu": "h200-sxm-141gb",
    "kv_cache_format": "bf16",
    "objectives": {"tpot_mean_s": 0.2},
    "load": {"kind": "peak_requests", "peak_requests_per_s": 200},
}
RENT = [{"method": {"kind": "rent", "price_per_gpu_hour": "2.00"}}]


@pytest.fixture(params=["vllm-0.18", "sglang-0.5"])
def mixture(request, client):
    """DeepSeek V3 in the publisher's FP8, with the options of an engine on one node of eight."""
    plan, entry = launched(client, service={**MIXTURE, "engine": request.param}, procurement=RENT)
    start, known = {"vllm-0.18": (VLLM, published.VLLM), "sglang-0.5": (SGLANG, published.SGLANG)}[
        request.param
    ]
    return replica_of(plan), engine_options(entry, start, known)


def test_ranks_with_sequences_of_their_own_share_the_experts(mixture):
    """vLLM counts a rank's own GPUs and requests; SGLang all GPUs and requests of a stage."""
    replica, options = mixture
    layout, gpus = replica["layout"], replica["gpu_count_per_replica"]
    assert layout["data_parallel"] == layout["expert_parallel"] == gpus == 8
    a_rank = math.ceil(replica["concurrency_per_replica"] / 8)
    if "--tp-size" in options:
        assert numbers(options, "--tp-size", "--dp-size", "--ep-size") == (8, 8, 8)
        assert options["--enable-dp-attention"]
        assert numbers(options, "--max-running-requests") == (8 * a_rank,)
    else:
        assert numbers(options, "--tensor-parallel-size", "--data-parallel-size") == (1, 8)
        assert options["--enable-expert-parallel"]
        assert numbers(options, "--max-num-seqs") == (a_rank,)


def test_the_publishers_own_format_is_not_converted_again(mixture):
    assert "--quantization" not in mixture[1]


def test_a_replica_over_two_nodes_says_how_they_meet(client):
    """FP8 weights of 671 GB do not fit into the 640 GB of one node of H100."""
    service = {**MIXTURE, "gpu": "h100-sxm5-80gb"}
    for engine in ("vllm-0.18", "sglang-0.5"):
        _, entry = launched(client, service={**service, "engine": engine}, procurement=RENT)
        assert (entry["node_count"], entry["gpu_count_per_node"]) == (2, 8)
        if engine.startswith("vllm"):
            options = engine_options(entry, VLLM, published.VLLM)
            assert options["--distributed-executor-backend"] == "ray"
            assert any("Ray" in note for note in entry["notes"])
            size = numbers(options, "--tensor-parallel-size", "--pipeline-parallel-size")
        else:
            options = engine_options(entry, SGLANG, published.SGLANG)
            assert options["--nnodes"] == "2"
            assert options["--node-rank"] == "$NODE_RANK"
            size = numbers(options, "--tp-size", "--pp-size")
        assert math.prod(size) == 16


def test_sglang_and_tensorrt_llm_have_their_own_options(client):
    plan, entry = launched(client, service={**ESTIMATED, "engine": "sglang-0.4"})
    options = engine_options(entry, SGLANG, published.SGLANG)
    running = replica_of(plan)["concurrency_per_replica"]
    assert numbers(options, "--mem-fraction-static", "--max-running-requests") == (0.88, running)
    assert options["--kv-cache-dtype"] == "fp8_e4m3"
    plan, entry = launched(client, service={**ESTIMATED, "engine": "tensorrt-llm-0.20"})
    options = engine_options(entry, TRTLLM, published.TRTLLM)
    running = replica_of(plan)["concurrency_per_replica"]
    names = ("--kv_cache_free_gpu_memory_fraction", "--max_batch_size")
    assert numbers(options, *names) == (0.9, running)


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"engine": "vllm-0.2"}, "0.5.3"),
        ({"engine": "tensorrt-llm-0.9"}, "0.18"),
        ({"engine": "llama-cpp-1"}, "llama-cpp"),
        ({"engine": "vllm-0.18", "kv_cache_format": "nvfp4"}, "nvfp4"),
        ({"capacity": SERVICE["capacity"]}, "measured"),
    ],
)
def test_engines_without_a_line_say_why(client, changed, because):
    _, entry = launched(client, service={**ESTIMATED, **changed})
    assert entry["command"] is None
    assert because in entry["not_written_because"]
