"""Settings of a published run: as published, and by rule where a row leaves them out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.accuracy import training_names as names
from service.accuracy.training_rows import TrainingRow
from service.core.architecture.model import ModelArchitecture
from service.core.hardware import ComputePrecision, Gpu
from service.core.parallelism.axes import RECOMPUTES, SHARDINGS, LayoutAxes

OLD_STACKS = ("megatron_2021", "megatron_deepspeed")
SHARDED_STACKS = ("pytorch_fsdp", "pytorch_eager", "huggingface", "deepspeed", "jax")
SHARDING_WORDS = {
    "full_shard": "zero_3",
    "fsdp": "zero_3",
    "shard_grad_op": "zero_2",
    "hsdp": "hybrid",
    "hybrid": "hybrid",
    "hsdp/fsdp": "hybrid",
}
MOST_INTERLEAVED_CHUNKS = 8
LAB_REPORTS = re.compile(r"2407\.21783|MODEL_CARD|mlcommons|deepseek-ai|2405\.04434|blog")
"""Reports that name no chunks although such runs interleave their stages."""


class IllegalLayout(Exception):
    """Published sizes that contradict one another: an error of the input, not of the estimate."""


@dataclass(frozen=True)
class Settings:
    """Everything beside model and GPU that decides speed and memory."""

    axes: LayoutAxes
    gpu_count: int
    sequence_tokens: int
    global_batch: int
    precision: ComputePrecision
    assumed: tuple[str, ...]
    """Settings that the row leaves out."""
    batch_may_be_cut: bool = False
    """True where a local batch is named, which may have passed in several micro-batches."""

    @property
    def is_thin(self) -> bool:
        """True where the layout or the sequence had to be assumed."""
        return "layout" in self.assumed or "sequence" in self.assumed


def settings_of(row: TrainingRow, architecture: ModelArchitecture, gpu: Gpu) -> Settings:
    """Settings of a row; what it leaves out is taken as a well-tuned run would have it.

    Raises:
        IllegalLayout: If the published sizes do not multiply to the number of GPUs.
    """
    assumed: list[str] = []
    billions = architecture.parameter_count / 1e9
    sequence = row.sequence_tokens or _assume(assumed, "sequence", 4096)
    gpus = row.gpu_count or _assume(assumed, "gpu_count", _gpu_count(billions))
    degrees = _degrees(row, architecture, gpu, gpus, assumed)
    tensor, pipeline, context, data = (degrees[n] for n in ("tp", "pp", "cp", "dp"))
    micro, batch, local = _batches(row, degrees, billions, sequence, assumed)
    axes = LayoutAxes(
        tensor=tensor,
        pipeline=pipeline,
        virtual=_virtual(row, architecture, pipeline),
        context=context,
        expert=degrees["ep"],
        data=data,
        sharding=SHARDINGS.index(_sharding(row, data)),
        micro_batch_sequences=micro,
        micro_batch_count=max(1, round(batch / (data * micro))),
        recompute=RECOMPUTES.index(_recompute(row, assumed)),
        sequence_parallel=bool(row.layout.get("sp", row.stack not in OLD_STACKS)),
    )
    return Settings(
        axes,
        gpus,
        sequence,
        batch,
        precision_of(row, gpu),
        tuple(assumed),
        batch_may_be_cut=local is not None and row.micro_batch is None,
    )


def _batches(
    row: TrainingRow, degrees: Mapping[str, int], billions: float, sequence: int, assumed: list[str]
) -> tuple[int, int, int | None]:
    """Sequences of a micro-batch and of the global batch; those of one copy where a row says so."""
    pipeline, data = degrees["pp"], degrees["dp"]
    micro, batch = row.micro_batch, row.global_batch
    local = row.layout.get("local_batch") or _batch_per_copy(row)
    if local and micro is None:
        micro = max(1, int(local) // pipeline)
        batch = batch or int(local) * data
    if micro is None:
        most = None if batch is None else max(1, batch // data)
        filled = _micro_batch(row, degrees, billions, sequence, most)
        micro = _assume(assumed, "micro_batch", filled)
    if batch is None:
        batch = _assume(assumed, "global_batch", _batch(billions, sequence, data * micro, pipeline))
    return micro, batch, local


def _batch_per_copy(row: TrainingRow) -> int | None:
    """Sequences of one model copy and step, where the row says so in words."""
    found = re.search(r"batch per DP (\d+)", row.note)
    return int(found.group(1)) if found else None


def _assume(assumed: list[str], name: str, value: int) -> int:
    assumed.append(name)
    return int(value)


def _gpu_count(billions: float) -> int:
    return 8 if billions < 20 else 256 if billions < 200 else 2048


def _degrees(
    row: TrainingRow, architecture: ModelArchitecture, gpu: Gpu, gpus: int, assumed: list[str]
) -> Mapping[str, int]:
    layout = row.layout
    given = {n: int(layout[n]) for n in ("tp", "pp", "cp", "ep", "dp") if layout.get(n)}
    if isinstance(layout.get("fsdp"), int) and layout["fsdp"] > 1:
        given.setdefault("dp", int(layout["fsdp"]))
    is_named = given or any(layout.get(name) for name in ("zero", "fsdp", "method"))
    if gpus > 1 and not is_named:
        assumed.append("layout")
        given = _tuned(row, architecture, gpu, gpus)
    if architecture.is_mixture and "ep" not in given and row.stack == "vendor_tuned":
        given["ep"] = min(8, gpus, *architecture.expert_counts)
    sizes = {n: given.get(n, 1) for n in ("tp", "pp", "cp", "ep")}
    copy = sizes["tp"] * sizes["pp"] * sizes["cp"]
    sizes["dp"] = given.get("dp", max(1, gpus // copy))
    if row.gpu_count and sizes["dp"] * copy != row.gpu_count:
        raise IllegalLayout(f"sizes multiply to {sizes['dp'] * copy}, not to {row.gpu_count} GPUs")
    return sizes


def _tuned(
    row: TrainingRow, architecture: ModelArchitecture, gpu: Gpu, gpus: int
) -> dict[str, int]:
    """Usual sizes of a stack that splits layers and stages; others shard the data copies only."""
    if row.stack in SHARDED_STACKS:
        return {}
    billions = architecture.parameter_count / 1e9
    tensor: int = int(np.select([billions < 7, billions < 12, billions < 30], [1, 2, 4], 8))
    stages = int(np.select([billions < 30, billions < 100, billions < 300], [1, 4, 8], 16))
    sizes = {"tp": min(tensor, gpu.scale_up_domain_gpu_count), "pp": stages}
    if architecture.is_mixture:
        sizes = {"tp": 1, "pp": stages, "ep": min(8, *architecture.expert_counts)}
    while sizes["tp"] * sizes["pp"] > gpus or gpus % (sizes["tp"] * sizes["pp"]):
        sizes["pp" if sizes["pp"] > 1 else "tp"] //= 2
    return sizes


def _virtual(row: TrainingRow, architecture: ModelArchitecture, pipeline: int) -> int:
    layout = row.layout
    given = layout.get("vp") or layout.get("interleave")
    if given:
        return int(given) if pipeline > 1 else 1
    schedule = str(layout.get("schedule", "")).lower()
    if pipeline > 1 and schedule == "interleaved":
        return max(1, min(MOST_INTERLEAVED_CHUNKS, architecture.num_hidden_layers // pipeline))
    if pipeline > 1 and "vp" not in layout and LAB_REPORTS.search(row.source):
        return max(1, min(MOST_INTERLEAVED_CHUNKS, architecture.num_hidden_layers // pipeline))
    return 2 if pipeline > 1 and "interleaved" in schedule else 1


def _sharding(row: TrainingRow, data: int) -> str:
    layout, zero, fsdp = row.layout, row.layout.get("zero"), row.layout.get("fsdp")
    if data == 1 and not fsdp:
        return "none"
    if zero is not None:
        return "none" if int(zero) == 0 else f"zero_{int(zero)}"
    if isinstance(fsdp, str):
        return SHARDING_WORDS.get(fsdp, "zero_2" if fsdp.startswith("zero2") else "zero_3")
    if isinstance(fsdp, int):
        return "zero_3"
    if row.stack in SHARDED_STACKS:
        return "none" if set(layout) == {"dp"} else "zero_3"
    return "none" if row.stack == "megatron_2021" else "zero_1"


def _micro_batch(
    row: TrainingRow, degrees: Mapping[str, int], billions: float, sequence: int, most: int | None
) -> int:
    """One sequence in a pipeline; else as many as fill 8 to 16 thousand tokens of a GPU."""
    if degrees["pp"] > 1 or row.kind == "memory":
        return 1
    wanted = 16384 if billions < 4 or row.stack in SHARDED_STACKS else 8192
    count = max(1, wanted // max(1, sequence // degrees["cp"]))
    return count if most is None else min(count, most)


def _batch(billions: float, sequence: int, per_round: int, pipeline: int) -> int:
    """Half a million tokens at 1B parameters, growing slowly; six rounds of a pipeline at least."""
    sequences = 0.5e6 * billions**0.4 / sequence
    rounds: int = max(1, round(sequences / per_round), 6 * pipeline if pipeline > 1 else 1)
    return rounds * per_round


def _recompute(row: TrainingRow, assumed: list[str]) -> str:
    named = names.recompute(row.recompute)
    if named == "unstated":
        assumed.append("recompute")
        return "full" if row.stack in OLD_STACKS else "none"
    if named == "selective":  # what a stack's own word means
        return "half" if row.stack in SHARDED_STACKS else "selective"
    return "selective" if named == "core" else named


def precision_of(row: TrainingRow, gpu: Gpu) -> ComputePrecision:
    """Precision of the matrices: what the row names first; 16 bit where it does not say."""
    text = row.precision.lower()
    if re.fullmatch(r"(tf|fp|float)32.*", text) and "16" not in text:
        return "fp32" if gpu.peak_tflops.tf32 is None or text.startswith("fp") else "tf32"
    if "fp4" in text:
        return "fp4"
    if "not stated" not in text and ("fp8" in text or "float8" in text):
        return "fp8"
    if text.startswith("int8") and gpu.peak_tflops.int8:
        return "int8"
    return "bf16"
