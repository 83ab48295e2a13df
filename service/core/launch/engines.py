"""Serving engines by name and version: how each is started, and which metrics it publishes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from service.core.assumptions import engine_and_version
from service.core.launch.line import NotLaunchable, Started, Variable, Word, options
from service.core.parallelism import ParallelLayout
from service.core.scenarios.serving_service import ServingService

MODEL: Final = Variable("MODEL_PATH", "checkpoint of the architecture, by name on a hub or by path")
NODE_RANK: Final = Variable("NODE_RANK", "number of the node within its replica, from 0")
HEAD: Final = Variable("HEAD_ADDRESS", "host:port of the replica's first node")
FILE_FORMATS: Final = (
    "The engine reads the format from the checkpoint: take one whose weights are in {format}."
)
CONVERTED: Final = (
    "The option converts a 16-bit checkpoint when it is loaded; leave it out for a checkpoint that "
    "is quantised already."
)
RAY: Final = "A replica spans nodes: start a Ray cluster over them, and the line on its head."


@dataclass(frozen=True)
class ReplicaToStart:
    """A replica of a service with what its line needs."""

    asked: ServingService
    layout: ParallelLayout
    version: tuple[int, ...]
    node_count: int
    running_requests: int
    """Requests that one rank of attention runs at once."""
    rank_count: int
    """Ranks that attend to sequences of their own."""
    longest_tokens: int
    memory_fraction: float
    """Share of a GPU's memory that the engine takes."""
    chunk_tokens: int
    """Most prompt tokens that pass together."""
    is_native: bool
    """True when the publisher's own checkpoint is in the asked format."""


@dataclass(frozen=True)
class Metrics:
    """Names under which an engine publishes what is watched."""

    time_to_first_token: str
    """A histogram in seconds."""
    waiting_requests: str
    kv_cache_use: str
    """A share, 0 to 1."""
    source: str


VLLM_SERVE: Final = (0, 5, 3)
"""First version whose documentation shows `vllm serve`."""
VLLM_RANKS: Final = (0, 9)
"""First version whose documentation shows ranks with sequences of their own."""
VLLM_KV_RENAMED: Final = (0, 9)
"""vLLM 0.9 called `kv_cache_usage_perc` what had been `gpu_cache_usage_perc`."""
TRTLLM_SERVE: Final = (0, 18)
"""First version whose documentation shows all options of `trtllm-serve` that are used."""


def vllm(replica: ReplicaToStart) -> Started:
    """`vllm serve`. Raises NotLaunchable."""
    asked, layout = replica.asked, replica.layout
    if replica.version < VLLM_SERVE:
        raise NotLaunchable("`vllm serve` is documented from vLLM 0.5.3 on")
    if replica.rank_count > 1 and (replica.version < VLLM_RANKS or replica.node_count > 1):
        raise NotLaunchable(
            "no line is written for ranks with sequences of their own across nodes, or for vLLM "
            "before 0.9"
        )
    quantization, notes = _quantization(replica, {"fp8": "fp8", "nf4": "bitsandbytes"})
    has_nodes = replica.node_count > 1
    words = (
        *("vllm", "serve", MODEL),
        *options(
            ("--served-model-name", asked.name),
            ("--tensor-parallel-size", layout.tensor_parallel),
            ("--pipeline-parallel-size", layout.pipeline_parallel),
            ("--data-parallel-size", replica.rank_count if replica.rank_count > 1 else None),
            ("--distributed-executor-backend", "ray" if has_nodes else None),
            ("--dtype", _dtype(asked)),
            ("--quantization", quantization),
            ("--kv-cache-dtype", _cache(asked, {"bf16": "auto", "fp16": "auto", "fp8": "fp8"})),
            ("--gpu-memory-utilization", replica.memory_fraction),
            ("--max-num-seqs", replica.running_requests),
            ("--max-num-batched-tokens", replica.chunk_tokens),
            ("--max-model-len", replica.longest_tokens),
        ),
        *(("--enable-expert-parallel",) if layout.expert_parallel > 1 else ()),
    )
    source = "vLLM documentation, engine arguments and `vllm serve`"
    tool = f"vLLM {_dotted(replica.version)}"
    return Started(tool, source, words, (*notes, *((RAY,) if has_nodes else ())))


def sglang(replica: ReplicaToStart) -> Started:
    """`sglang.launch_server`; its tensor-parallel size counts all GPUs of a stage."""
    asked, layout = replica.asked, replica.layout
    quantization, notes = _quantization(replica, {"fp8": "fp8", "nf4": "bitsandbytes"})
    ranks, has_nodes = replica.rank_count, replica.node_count > 1
    words = (
        *("python", "-m", "sglang.launch_server", "--model-path", MODEL),
        *options(
            ("--served-model-name", asked.name),
            ("--tp-size", layout.tensor_parallel * ranks),
            ("--pp-size", layout.pipeline_parallel),
            ("--dp-size", ranks if ranks > 1 else None),
            ("--ep-size", layout.expert_parallel if layout.expert_parallel > 1 else None),
            ("--nnodes", replica.node_count if has_nodes else None),
            ("--node-rank", NODE_RANK if has_nodes else None),
            ("--dist-init-addr", HEAD if has_nodes else None),
            ("--dtype", _dtype(asked)),
            ("--quantization", quantization),
            ("--kv-cache-dtype", _cache(asked, {"bf16": "auto", "fp8": "fp8_e4m3"})),
            ("--mem-fraction-static", replica.memory_fraction),
            ("--max-running-requests", replica.running_requests * ranks),
            ("--chunked-prefill-size", replica.chunk_tokens),
            ("--context-length", replica.longest_tokens),
        ),
        *(("--enable-dp-attention",) if ranks > 1 else ()),
        "--enable-metrics",
    )
    tool = f"SGLang {_dotted(replica.version)}"
    return Started(tool, "SGLang 0.4.9, sglang/srt/server_args.py", words, notes)


def tensorrt_llm(replica: ReplicaToStart) -> Started:
    """`trtllm-serve`. Raises NotLaunchable."""
    if replica.version < TRTLLM_SERVE:
        raise NotLaunchable("`trtllm-serve` with these options is documented from 0.18 on")
    if replica.rank_count > 1 or replica.node_count > 1:
        raise NotLaunchable(
            "`trtllm-serve` sets ranks with sequences of their own, and nodes, by files"
        )
    layout, asked = replica.layout, replica.asked
    words = (
        *("trtllm-serve", MODEL),
        *options(
            ("--backend", "pytorch"),
            ("--tp_size", layout.tensor_parallel),
            ("--pp_size", layout.pipeline_parallel),
            ("--max_batch_size", replica.running_requests),
            ("--max_num_tokens", replica.chunk_tokens),
            ("--max_seq_len", replica.longest_tokens),
            ("--kv_cache_free_gpu_memory_fraction", replica.memory_fraction),
        ),
    )
    tool = f"TensorRT-LLM {_dotted(replica.version)}"
    formats = (
        f"Weights in {asked.weight_format} and a cache in {asked.kv_cache_format} are those of the "
        "checkpoint: quantise it so."
    )
    return Started(tool, "TensorRT-LLM documentation, trtllm-serve", words, (formats,))


PROGRAMS: Final = {"vllm": vllm, "sglang": sglang, "tensorrt-llm": tensorrt_llm}
"""How each engine is started."""


def started(engine: str, replica: ReplicaToStart) -> Started:
    """The line of a replica. Raises NotLaunchable."""
    if engine not in PROGRAMS:
        raise NotLaunchable(
            f"no line is written for engine {engine}; {', '.join(PROGRAMS)} have one"
        )
    return PROGRAMS[engine](replica)


def engine_of(name: str) -> tuple[str, tuple[int, ...]]:
    """An engine's name and version. Raises NotLaunchable where there is no version."""
    found = engine_and_version(name)
    if found is None:
        raise NotLaunchable(f"engine {name!r} has no version")
    return found


def metrics_of(name: str) -> Metrics | None:
    """Metrics of an engine in its version; None where none are documented."""
    found = engine_and_version(name)
    if found is None:
        return None
    engine, version = found
    if engine == "vllm":
        cache = "kv" if version >= VLLM_KV_RENAMED else "gpu"
        return Metrics(
            "vllm:time_to_first_token_seconds",
            "vllm:num_requests_waiting",
            f"vllm:{cache}_cache_usage_perc",
            "vLLM documentation, production metrics",
        )
    if engine == "sglang":
        return Metrics(
            "sglang:time_to_first_token_seconds",
            "sglang:num_queue_reqs",
            "sglang:token_usage",
            "SGLang 0.4.9, sglang/srt/metrics/collector.py",
        )
    return None


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _dtype(asked: ServingService) -> str:
    """Type that is computed in beside the quantised layers."""
    return "float16" if asked.weight_format == "fp16" else "bfloat16"


def _quantization(
    replica: ReplicaToStart, methods: dict[str, str]
) -> tuple[str | None, tuple[str, ...]]:
    weights = replica.asked.weight_format
    if weights in {None, "bf16", "fp16"}:
        return None, ()
    if weights in methods and not replica.is_native:
        return methods[str(weights)], (CONVERTED,)
    return None, (FILE_FORMATS.format(format=weights),)


def _cache(asked: ServingService, names: dict[str, str]) -> Word:
    name = names.get(asked.kv_cache_format)
    if name is None:
        raise NotLaunchable(f"the engine has no option for a cache in {asked.kv_cache_format}")
    return name
