"""A run on torchtitan, PyTorch's own trainer with sharded copies."""

from typing import Final

from service.core.launch.line import NotLaunchable, Started, Variable, options
from service.core.launch.torchrun import RunToStart
from service.core.parallelism import ParallelLayout

TOOL: Final = "torchtitan 0.2.2"
SOURCE: Final = "torchtitan 0.2.2, torchtitan/config/job_config.py; PyTorch documentation, torchrun"
CONFIG: Final = Variable(
    "CONFIG_FILE", "job file that names architecture, data, optimizer and checkpoints"
)
RECOMPUTE: Final[dict[str, tuple[str, str | None]]] = {
    "none": ("none", None),
    # Its attention kernels keep no scores, so recomputing them alone saves nothing.
    "selective": ("none", None),
    "half": ("selective", "2"),
    "full": ("full", None),
}
"""Mode of recompute, and which layers."""


def torchtitan(run: RunToStart) -> Started:
    """The line of a run. Raises NotLaunchable."""
    layout, asked = run.layout, run.asked
    if asked.compute_precision != "bf16":
        raise NotLaunchable(
            f"{TOOL} trains in bf16 by options alone, not {asked.compute_precision}"
        )
    shards, reshard = _sharding(run)
    mode, which = RECOMPUTE[layout.recompute]
    in_stages = layout.pipeline_parallel > 1
    local = layout.micro_batch_sequences * (layout.micro_batch_count if in_stages else 1)
    words = (
        *run.torchrun(),
        *("-m", "torchtitan.train"),
        *options(
            ("--job.config_file", CONFIG),
            ("--parallelism.tensor_parallel_degree", layout.tensor_parallel),
            ("--parallelism.pipeline_parallel_degree", layout.pipeline_parallel),
            (
                "--parallelism.pipeline_parallel_microbatch_size",
                layout.micro_batch_sequences if in_stages else None,
            ),
            ("--parallelism.context_parallel_degree", layout.context_parallel),
            ("--parallelism.expert_parallel_degree", layout.expert_parallel),
            ("--parallelism.expert_tensor_parallel_degree", _experts_split(layout)),
            ("--parallelism.data_parallel_replicate_degree", layout.data_parallel // shards),
            ("--parallelism.data_parallel_shard_degree", shards),
            ("--parallelism.fsdp_reshard_after_forward", reshard),
            ("--training.local_batch_size", local),
            ("--training.global_batch_size", run.batch_sequences),
            ("--training.seq_len", asked.sequence_length_tokens),
            ("--training.steps", run.step_count),
            ("--activation_checkpoint.mode", mode),
            ("--activation_checkpoint.selective_ac_option", which),
        ),
        *_offload(run),
    )
    return Started(TOOL, SOURCE, words)


def _experts_split(layout: ParallelLayout) -> int | None:
    """GPUs over which each expert is split, as the program takes it: one, or as the layers."""
    if layout.expert_parallel == 1:
        return None
    split = layout.expert_tensor_parallel or layout.tensor_parallel
    if split not in {1, layout.tensor_parallel}:
        raise NotLaunchable(f"{TOOL} splits experts as the layers or not at all")
    return split


def _offload(run: RunToStart) -> tuple[str, ...]:
    """Its option moves weights, gradients and the optimizer's state together."""
    if run.asked.offload == "none":
        return ()
    if run.asked.offload == "optimizer":
        raise NotLaunchable(f"no option of {TOOL} keeps the optimizer's state alone on the host")
    return ("--training.enable_cpu_offload",)


def _sharding(run: RunToStart) -> tuple[int, str | None]:
    """Copies that share a sharded part, and whether weights are let go after the forward pass."""
    layout = run.layout
    if layout.sharding == "none":
        return 1, None
    if layout.sharding == "zero_1":
        raise NotLaunchable(f"no option of {TOOL} shards the optimizer's state alone")
    if layout.sharding == "zero_2":
        return layout.data_parallel, "never"
    if layout.sharding == "zero_3":
        return layout.data_parallel, "always"
    copies = run.gpu_count_per_node // (layout.tensor_parallel * layout.context_parallel)
    if copies == 0 or layout.data_parallel % copies or layout.pipeline_parallel > 1:
        raise NotLaunchable("the copies of the model that share one node are not whole")
    return copies, "always"
