"""A run on Megatron-LM, whose options split layers, stages, sequences and experts."""

from collections.abc import Iterable
from math import ceil
from typing import Final

from service.core.launch.line import NotLaunchable, Started, Variable, Word, options
from service.core.launch.torchrun import RunToStart
from service.core.parallelism import ParallelLayout

TOOL: Final = "Megatron-LM of Megatron Core 0.14"
SOURCE: Final = (
    "NVIDIA/Megatron-LM, megatron/training/arguments.py; Megatron Core developer guide, "
    "Megatron FSDP; PyTorch documentation, torchrun"
)
SCRIPT: Final = Variable("TRAINING_SCRIPT", "path of Megatron-LM's pretrain_gpt.py, or your own")
MODEL: Final = Variable(
    "MODEL_ARGUMENTS", "options of the architecture, data, optimizer and checkpoints", is_list=True
)
PRECISIONS: Final[dict[str, tuple[str, ...]]] = {
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp8": ("--bf16", "--fp8-format", "hybrid"),
}
FSDP: Final = {"zero_2": "optim_grads", "zero_3": "optim_grads_params"}
NARROW_GRADIENTS: Final = "mixed_bf16_adam_bf16_gradients"
DEFAULT_GRADIENTS: Final = "mixed_bf16_adam_fp32_gradients"


def megatron(run: RunToStart) -> Started:
    """The line of a run. Raises NotLaunchable."""
    layout = run.layout
    if run.asked.offload != "none":
        raise NotLaunchable(f"no line is written for {TOOL} with state on the host")
    words = (
        *run.torchrun(),
        SCRIPT,
        *options(
            ("--tensor-model-parallel-size", layout.tensor_parallel),
            ("--pipeline-model-parallel-size", layout.pipeline_parallel),
            ("--num-virtual-stages-per-pipeline-rank", _above_one(layout.virtual_pipeline_stages)),
            ("--context-parallel-size", layout.context_parallel),
            ("--expert-model-parallel-size", _above_one(layout.expert_parallel)),
            ("--expert-tensor-parallel-size", layout.expert_tensor_parallel),
        ),
        *(("--sequence-parallel",) if _splits_sequence(layout) else ()),
        *_sharding(layout),
        *options(
            ("--micro-batch-size", layout.micro_batch_sequences),
            ("--global-batch-size", run.batch_sequences),
            ("--seq-length", run.asked.sequence_length_tokens),
            ("--train-iters", run.step_count),
        ),
        *_precision(run),
        *_recompute(run),
        "--log-throughput",
        MODEL,
    )
    return Started(TOOL, SOURCE, words, _notes(run))


def _above_one(degree: int) -> int | None:
    return degree if degree > 1 else None


def _splits_sequence(layout: ParallelLayout) -> bool:
    return layout.tensor_parallel > 1 and layout.sequence_parallel


def _sharding(layout: ParallelLayout) -> Iterable[Word]:
    if layout.sharding == "none":
        return ()
    if layout.sharding == "zero_1":
        return ("--use-distributed-optimizer",)
    if layout.sharding not in FSDP:
        raise NotLaunchable(f"no option of {TOOL} shards everything inside a node alone")
    if layout.pipeline_parallel > 1:
        raise NotLaunchable(
            f"{TOOL} documents the sharding of gradients and weights with tensor, context and "
            "expert parallelism, not with pipeline stages"
        )
    return (
        "--use-distributed-optimizer",
        "--use-megatron-fsdp",
        *("--data-parallel-sharding-strategy", FSDP[layout.sharding]),
        "--no-gradient-accumulation-fusion",
        *("--ckpt-format", "fsdp_dtensor"),
    )


def _precision(run: RunToStart) -> Iterable[Word]:
    precision = run.asked.compute_precision
    if precision not in PRECISIONS:
        raise NotLaunchable(f"no option of {TOOL} trains in {precision}")
    narrow = ("--grad-reduce-in-bf16",) if run.asked.state_recipe == NARROW_GRADIENTS else ()
    return (*PRECISIONS[precision], *narrow)


def _recompute(run: RunToStart) -> Iterable[Word]:
    """Every second layer is the first half of each stage's: the same memory and the same work."""
    layout = run.layout
    if layout.recompute == "none":
        return ()
    if layout.recompute == "selective":
        return ("--recompute-granularity", "selective")
    method: tuple[Word, ...] = ("uniform", "--recompute-num-layers", 1)
    if layout.recompute == "half":
        chunks = layout.pipeline_parallel * layout.virtual_pipeline_stages
        layers = ceil(run.layer_count / chunks / 2)
        method = ("block", "--recompute-num-layers", layers)
    return ("--recompute-granularity", "full", "--recompute-method", *method)


def _notes(run: RunToStart) -> tuple[str, ...]:
    recipe = run.asked.state_recipe
    if recipe in {NARROW_GRADIENTS, DEFAULT_GRADIENTS}:
        return ()
    note = (
        f"The plan counts the training state of {recipe}; give the optimizer options that make it "
        "so in MODEL_ARGUMENTS, or memory differs."
    )
    return (note,)
