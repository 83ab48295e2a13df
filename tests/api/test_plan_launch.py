"""How a plan's workloads are started and watched: published options, the plan's own numbers."""

import json
import math
import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.api import published_options as published

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = json.loads((ROOT / "openapi" / "examples" / "create_plan.request.json").read_bytes())
[RUN] = EXAMPLE["scenario"]["training_runs"]
[SERVICE] = EXAMPLE["scenario"]["serving_services"]
ESTIMATED = {**SERVICE, "capacity": {"kind": "estimated"}}
GIVEN = {"kind": "given", "tensor_parallel": 8, "pipeline_parallel": 4}
HOSTILE = (
    "$(touch launched); `touch too` 'quoted' \"twice\" \\ \n --rdzv-id=x | rm -rf / & ${HOME} *"
)


def plan_of(client, *, runs=(), services=(), **scenario):
    scenario = {"training_runs": list(runs), "serving_services": list(services), **scenario}
    body = {**EXAMPLE, "scenario": {**EXAMPLE["scenario"], **scenario}}
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def sheet_of(client, plan):
    answer = client.get(f"/v1/plans/{plan['id']}/launch")
    assert answer.status_code == 200, answer.text
    return {each["workload"]: each for each in answer.json()["workloads"]}


def launched(client, *, run=None, service=None, **scenario):
    """The plan and the sheet of one workload."""
    given = {"runs": [run]} if run else {"services": [service]}
    plan = plan_of(client, **given, **scenario)
    assert plan["feasible"], plan["infeasibilities"]
    return plan, sheet_of(client, plan)[(run or service)["name"]]


def words_in_a_shell(command, folder):
    """What a shell hands to the program, variables set."""
    script = (
        'for v in $0; do export "$v=set-$v"; done; show() { printf "%s\\0" "$@"; }; eval "show $1"'
    )
    names = " ".join(re.findall(r"\$([A-Z_]+)", command))
    shown = subprocess.run(
        ["bash", "-c", script, names, command],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    return shown.stdout.split("\0")[:-1]


def options_of(words, known):
    """The options of a program, each with its value; refuses what is not published."""
    found, rest = {}, list(words)
    while rest:
        name = rest.pop(0)
        assert name in known, name
        values = known[name]
        if values == published.SWITCH:
            found[name] = True
            continue
        found[name] = rest.pop(0)
        assert values is published.NUMBER or found[name] in values, (name, found[name])
    return found


def run_options(entry, known, *, program):
    """Options of torchrun, and those of the program that it starts."""
    words = shlex.split(entry["command"])
    assert words.pop(0) == "torchrun"
    at = words.index(program)
    script_at = at + (1 if program.startswith("$") else 0)
    head = words[:at] if program.startswith("$") else words[: at + 1]
    tail = [word for word in words[max(script_at, len(head)) :] if word != "$MODEL_ARGUMENTS"]
    return options_of(head, published.TORCHRUN), options_of(tail, known)


def megatron_options(entry):
    return run_options(entry, published.MEGATRON, program="$TRAINING_SCRIPT")


def torchtitan_options(entry):
    return run_options(entry, published.TORCHTITAN, program="torchtitan.train")


def engine_options(entry, start, known):
    words = shlex.split(entry["command"])
    assert words[: len(start)] == start
    return options_of(words[len(start) :], known)


def numbers(options, *names):
    return tuple(float(options[name]) for name in names)


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


VLLM = ["vllm", "serve", "$MODEL_PATH"]
SGLANG = ["python", "-m", "sglang.launch_server"]
TRTLLM = ["trtllm-serve", "$MODEL_PATH"]


def replica_of(plan):
    [service] = plan["serving_services"]
    return service


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


@pytest.mark.parametrize(
    ("engine", "metrics"),
    [
        ("vllm-0.18", published.VLLM_METRICS),
        ("vllm-0.8", published.OLD_VLLM_METRICS),
        ("sglang-0.4", published.SGLANG_METRICS),
        (None, published.VLLM_METRICS),
    ],
)
def test_alerts_watch_published_metrics(client, engine, metrics):
    _, entry = launched(client, service={**ESTIMATED, "engine": engine})
    assert {alert["metric"] for alert in entry["alerts"]} == metrics
    for alert in entry["alerts"]:
        name = re.escape(alert["metric"])
        suffix = "_bucket" if alert["name"] == "time_to_first_token" else ""
        assert re.search(rf'{name}{suffix}{{model_name="assistant"}}', alert["expression"])
        assert float(alert["expression"].rpartition(" > ")[2]) == pytest.approx(
            alert["threshold"], rel=1e-5
        )


def test_thresholds_are_the_numbers_of_the_plan(client):
    plan, entry = launched(client, service={**ESTIMATED, "engine": "vllm-0.18"})
    replica = replica_of(plan)
    alerts = {alert["name"]: alert["threshold"] for alert in entry["alerts"]}
    assert alerts["time_to_first_token"] == 2.0  # the objective
    # A queue of so many is served in 2 s, one more is not.
    rate = replica["units_per_s_per_replica"]
    assert alerts["waiting_requests"] / rate <= 2.0 < (alerts["waiting_requests"] + 1) / rate
    found = client.get(f"/v1/plans/{plan['id']}/quantities", params={"limit": 200}).json()["items"]
    held = {each["name"]: each["value"] for each in found}
    mean, tail = held["concurrency_at_mean_length"], held["concurrency_at_p95_length"]
    room, use = 1 - 1 / mean, replica["concurrency_per_replica"] / tail
    assert alerts["kv_cache_use"] == pytest.approx(min(room, use))
    assert 0 < alerts["kv_cache_use"] < 1


def test_without_an_objective_the_plans_own_latency_is_the_threshold(client):
    plan, entry = launched(client, service={**ESTIMATED, "objectives": None})
    alerts = {alert["name"]: alert for alert in entry["alerts"]}
    assert alerts["time_to_first_token"]["threshold"] == replica_of(plan)["ttft_p95_s"]["high"]
    assert "no objective" in alerts["time_to_first_token"]["reason"]


def test_a_measured_service_is_watched_by_its_objective(client):
    """4.0 requests/s for 2 s are 8 in a queue; of the cache nothing is known."""
    _, entry = launched(client, service=SERVICE)
    alerts = {alert["name"]: alert["threshold"] for alert in entry["alerts"]}
    assert alerts == {"time_to_first_token": 2.0, "waiting_requests": 8.0}


def test_an_engine_without_documented_metrics_has_thresholds_alone(client):
    _, entry = launched(client, service={**ESTIMATED, "engine": "tensorrt-llm-0.20"})
    assert len(entry["alerts"]) == 3
    assert {alert["expression"] for alert in entry["alerts"]} == {None}


def test_hostile_names_stay_one_word_of_the_line(client, tmp_path):
    runs = [{**RUN, "name": HOSTILE}]
    services = [{**ESTIMATED, "name": f"{HOSTILE}!", "engine": "vllm-0.18"}]
    sheet = sheet_of(client, plan_of(client, runs=runs, services=services))
    for name, option in ((HOSTILE, "--rdzv-id"), (f"{HOSTILE}!", "--served-model-name")):
        words = words_in_a_shell(sheet[name]["command"], tmp_path)
        assert words[words.index(option) + 1] == name
        names = {each["name"] for each in sheet[name]["variables"]}
        assert {word for word in words if word.startswith("set-")} == {f"set-{n}" for n in names}
    assert list(tmp_path.iterdir()) == []
    [alert, *_] = sheet[f"{HOSTILE}!"]["alerts"]
    label = re.search(r'model_name=("(?:[^"\\]|\\.)*")}', alert["expression"], re.DOTALL)[1]
    assert json.loads(label) == f"{HOSTILE}!"


def test_a_run_in_a_shared_pool_says_that_its_gpus_come_and_go(client):
    plan = plan_of(client, runs=[RUN], services=[SERVICE], pooling={"kind": "shared"})
    assert "shared pool" in sheet_of(client, plan)["pretrain-70b"]["notes"][-1]


def test_an_infeasible_plan_has_nothing_to_start(client):
    one = {"kind": "gpu_count", "gpu_count": 1}
    plan = plan_of(client, runs=[{**RUN, "sizing": one}])
    assert plan["feasible"] is False
    answer = client.get(f"/v1/plans/{plan['id']}/launch")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/conflict"


def test_the_sheet_is_tagged(client: httpx.Client):
    plan = plan_of(client, runs=[RUN])
    address = f"/v1/plans/{plan['id']}/launch"
    tag = client.get(address).headers["etag"]
    assert client.get(address, headers={"If-None-Match": tag}).status_code == 304
