"""How a plan's runs are started: options that torchrun and its programs publish."""

import math
import shlex

import pytest

from tests.api.launch_sheets import (
    GIVEN,
    RUN,
    SERVICE,
    launched,
    megatron_options,
    numbers,
    plan_of,
    sheet_of,
    torchtitan_options,
)


def test_a_split_run_starts_megatron_with_the_layout_of_the_plan(client):
    """512 GPUs on nodes of 8 are 64 nodes; TP 8 and PP 4 leave 16 copies; 4,194,304 tokens of
    8,192 are 512 sequences; 2e12 tokens are 476,838 steps, the last one cut."""
    _, entry = launched(client, run={**RUN, "layout": {**GIVEN, "recompute": "full"}})
    torchrun, megatron = megatron_options(entry)
    assert numbers(torchrun, "--nnodes", "--nproc-per-node") == (64, 8)
    assert torchrun["--rdzv-id"] == "pretrain-70b"
    sizes = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")
    assert numbers(megatron, *sizes) == (8, 4)
    batch = ("--micro-batch-size", "--global-batch-size", "--seq-length", "--train-iters")
    assert numbers(megatron, *batch) == (1, 512, 8192, math.ceil(2e12 / 4194304))
    assert megatron["--use-distributed-optimizer"]  # zero_1
    assert megatron["--sequence-parallel"]
    assert megatron["--bf16"]
    assert megatron["--grad-reduce-in-bf16"]
    assert "--use-megatron-fsdp" not in megatron
    assert (megatron["--recompute-granularity"], megatron["--recompute-method"]) == (
        "full",
        "uniform",
    )
    assert (entry["node_count"], entry["gpu_count_per_node"], entry["replica_count"]) == (64, 8, 1)


def test_half_of_the_layers_is_half_of_each_stages(client):
    """80 layers in 4 stages are 20 a stage, of which 10 are computed again."""
    _, entry = launched(client, run={**RUN, "layout": {**GIVEN, "recompute": "half"}})
    _, megatron = megatron_options(entry)
    assert megatron["--recompute-method"] == "block"
    assert megatron["--recompute-num-layers"] == "10"


def test_virtual_stages_and_context_are_asked_for(client):
    layout = {**GIVEN, "virtual_pipeline_stages": 2, "context_parallel": 2, "sharding": "none"}
    _, entry = launched(client, run={**RUN, "layout": layout})
    _, megatron = megatron_options(entry)
    names = ("--num-virtual-stages-per-pipeline-rank", "--context-parallel-size")
    assert numbers(megatron, *names) == (2, 2)
    assert "--use-distributed-optimizer" not in megatron


@pytest.mark.parametrize(
    ("sharding", "strategy"), [("zero_2", "optim_grads"), ("zero_3", "optim_grads_params")]
)
def test_sharded_weights_or_gradients_of_a_split_run_are_megatron_fsdp(client, sharding, strategy):
    layout = {**GIVEN, "pipeline_parallel": 1, "sharding": sharding, "recompute": "full"}
    _, entry = launched(client, run={**RUN, "layout": layout})
    _, megatron = megatron_options(entry)
    assert megatron["--use-megatron-fsdp"]
    assert megatron["--data-parallel-sharding-strategy"] == strategy


@pytest.mark.parametrize(
    ("sharding", "replicas", "shards", "reshard"),
    # 512 whole copies; "hybrid" shards over the 8 of a node, and 64 nodes repeat that.
    [("zero_3", 1, 512, "always"), ("zero_2", 1, 512, "never"), ("hybrid", 64, 8, "always")],
)
def test_sharded_copies_start_torchtitan(client, sharding, replicas, shards, reshard):
    layout = {"kind": "given", "sharding": sharding, "recompute": "full"}
    run = {**RUN, "architecture": "llama-3.1-8b", "layout": layout}
    _, entry = launched(client, run=run)
    torchrun, titan = torchtitan_options(entry)
    assert numbers(torchrun, "--nnodes", "--nproc-per-node") == (64, 8)
    names = ("data_parallel_replicate_degree", "data_parallel_shard_degree")
    assert numbers(titan, *(f"--parallelism.{name}" for name in names)) == (replicas, shards)
    assert titan["--parallelism.fsdp_reshard_after_forward"] == reshard
    assert titan["--activation_checkpoint.mode"] == "full"
    batch = ("--training.local_batch_size", "--training.global_batch_size", "--training.seq_len")
    assert numbers(titan, *batch) == (1, 512, 8192)


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"speed": {"kind": "estimated", "software_stack": "huggingface"}}, "huggingface"),
        ({"adapter": {"kind": "lora", "rank": 16}}, "adapters"),
        ({"compute_precision": "tf32"}, "tf32"),
        ({"offload": "optimizer"}, "on the host"),
        (
            {"architecture": None, "speed": {"kind": "measured", "tokens_per_s_per_gpu": 900}},
            "no layout",
        ),
        ({"layout": {**GIVEN, "sharding": "zero_3"}}, "pipeline stages"),
        (
            {
                "architecture": "llama-3.1-8b",
                "layout": {"kind": "given", "tensor_parallel": 2, "sharding": "hybrid"},
            },
            "node alone",
        ),
    ],
)
def test_what_no_line_is_written_for_says_why(client, changed, because):
    _, entry = launched(client, run={**RUN, **changed})
    assert entry["command"] is None
    assert entry["tool"] is None
    assert because in entry["not_written_because"]
    assert entry["variables"] == []


def test_weights_on_the_host_are_asked_for_where_an_option_is(client):
    layout = {"kind": "given", "sharding": "zero_3", "recompute": "full"}
    run = {**RUN, "architecture": "llama-3.1-8b", "layout": layout}
    _, entry = launched(client, run={**run, "offload": "optimizer_and_parameters"})
    _, titan = torchtitan_options(entry)
    assert titan["--training.enable_cpu_offload"]


def test_experts_are_spread_and_split_as_planned(client):
    """Mixtral on 64 GPUs: TP 2, experts over 8 and each whole."""
    layout = {"kind": "given", "tensor_parallel": 2, "expert_parallel": 8}
    layout |= {"expert_tensor_parallel": 1, "recompute": "full", "sharding": "zero_3"}
    run = {**RUN, "architecture": "mixtral-8x7b", "layout": layout}
    sizing = {"kind": "gpu_count", "gpu_count": 64}
    _, entry = launched(client, run={**run, "sizing": sizing, "training_tokens": 10**11})
    _, megatron = megatron_options(entry)
    names = ("--expert-model-parallel-size", "--expert-tensor-parallel-size")
    assert numbers(megatron, *names) == (8, 1)


def test_a_run_on_part_of_a_node_needs_no_rendezvous(client):
    run = {**RUN, "architecture": "llama-3.2-1b", "sizing": {"kind": "gpu_count", "gpu_count": 4}}
    _, entry = launched(client, run={**run, "training_tokens": 10_000_000_000})
    words = shlex.split(entry["command"])
    assert words[:6] == ["torchrun", "--nnodes", "1", "--nproc-per-node", "4", "--standalone"]


def test_the_log_of_a_run_shows_what_the_plan_says(client):
    """40 % of 989.4 TFLOPS are 395.76; 4,194,304 tokens on 512 GPUs at their pace are a step."""
    plan, entry = launched(client, run=RUN)
    shown = {each["name"]: each for each in entry["expected"]}
    assert shown["mfu_fraction"]["value"] == 0.4
    assert shown["model_tflops_per_gpu"]["value"] == pytest.approx(0.4 * 989.4)
    pace = shown["tokens_per_s_per_gpu"]["value"]
    assert shown["step_time_s"]["value"] == pytest.approx(4194304 / 512 / pace)
    # Steps times their time are the hours that the plan needs without failures.
    steps = 2e12 / 4194304
    hours = plan["training_runs"][0]["steady_hours"]
    assert steps * shown["step_time_s"]["value"] / 3600 == pytest.approx(hours)
    attention = shown["model_tflops_with_attention_per_gpu"]["value"]
    assert attention > shown["model_tflops_per_gpu"]["value"]
    memory = plan["training_runs"][0]["memory_gib_per_gpu"]["total"]
    assert shown["memory_gib_per_gpu"]["value"] == memory


def test_a_slower_pace_is_a_longer_step(client):
    _, entry = launched(client, run={**RUN, "speed": {"kind": "estimated"}})
    shown = {each["name"]: each for each in entry["expected"]}
    step, pace = shown["step_time_s"], shown["tokens_per_s_per_gpu"]
    assert step["low"] < step["value"] < step["high"]
    for one, other in (("low", "high"), ("high", "low"), ("value", "value")):
        assert step[one] * pace[other] == pytest.approx(4194304 / 512)


def test_a_run_in_a_shared_pool_says_that_its_gpus_come_and_go(client):
    plan = plan_of(client, runs=[RUN], services=[SERVICE], pooling={"kind": "shared"})
    assert "shared pool" in sheet_of(client, plan)["pretrain-70b"]["notes"][-1]
