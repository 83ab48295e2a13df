"""A published row resolved against the catalog: model, GPU, settings and stack."""

import re
from dataclasses import dataclass, replace

from service.accuracy.training_names import gpu_key
from service.accuracy.training_rows import TrainingRow
from service.accuracy.training_settings import IllegalLayout, Settings, settings_of
from service.accuracy.training_shapes import architecture_of
from service.accuracy.training_speed import Published
from service.core.architecture.model import ModelArchitecture
from service.core.hardware import Gpu
from service.core.parallelism import GivenLayout
from service.core.parallelism.axes import RECOMPUTES, SHARDINGS
from service.core.recorder import Recorder
from service.core.run.mechanism import machine_of, step_model
from service.core.run.network import scale_out_bytes_per_s
from service.core.run.step import StepModel
from service.core.run.step_constants import Look
from service.core.scenarios.stacks import STACKS, LossKind, StackTraits
from service.core.scenarios.training_run import Adapter, TrainingRun
from service.core.scenarios.training_state import Offload, StateRecipeName

_HIDDEN = re.compile(r"async ?tp", re.IGNORECASE)
_OVERLAPPED_EXPERTS = re.compile(r"deepseek-ai/DeepSeek-V3", re.IGNORECASE)
"""Sources whose schedule is known to hide the exchange between experts."""
_EARLY_FLASH = re.compile(r"2304\.01373")
"""Sources that had attention kernels without stored scores before their stack did."""
_LOSSES: tuple[tuple[str, LossKind], ...] = (
    (r"modelscope/ms-swift", "plain"),
    (r"peft", "typical"),
    (r"unsloth|liger|chunked|litgpt|torchtune|h200_2025|llm-foundry", "fused"),
)
"""Sources whose loss is known not to be the usual one of their stack."""
_WITHOUT_FLASH = ("volta", "turing")
"""Classes that the second FlashAttention does not run on."""
_OPTIMIZERS: tuple[tuple[str, StateRecipeName, StateRecipeName], ...] = (
    (r"8[ _-]?bit", "mixed_bf16_adam_8bit_moments", "pure_bf16_adam_8bit_moments"),
    (r"adafactor", "mixed_bf16_adafactor", "mixed_bf16_adafactor"),
    (r"sgd|lion|muon", "mixed_bf16_sgd_momentum", "mixed_bf16_sgd_momentum"),
)
"""Words in an optimizer's name, and its state beside FP32 master weights and in pure 16 bit."""
CHECKPOINT_ADAPTERS = ("lora", "qlora")


class Unpredictable(Exception):
    """Why a row has no prediction."""


@dataclass(frozen=True)
class PreparedRow:
    """Everything that a prediction is made from."""

    row: TrainingRow
    architecture: ModelArchitecture
    gpu: Gpu
    settings: Settings
    traits: StackTraits
    recorder: Recorder

    @property
    def published(self) -> Published:
        """What the row counts over."""
        return Published(self.row, self.architecture, self.gpu, self.settings)

    @property
    def trains_adapter(self) -> bool:
        """True when the base is frozen."""
        return self.row.layout.get("method") in CHECKPOINT_ADAPTERS

    def step_model(self, look: Look | None = None) -> StepModel:
        """The time of a step, by the catalog's constants or by others.

        Raises:
            NoConstants: If the GPU's class or the precision has no constants.
        """
        snapshot, precision = self.recorder.snapshot, self.settings.precision
        network = scale_out_bytes_per_s(self.gpu, snapshot, self.recorder)
        return step_model(
            self.architecture,
            machine_of(self.gpu, precision, network),
            self.traits,
            gpu=self.gpu,
            precision=precision,
            sequence_tokens=self.settings.sequence_tokens,
            recorder=self.recorder,
            weight_gradient_fraction=0.0 if self.trains_adapter else 1.0,
            software_year=self.row.software_year,
            look=look,
        )

    @property
    def loss(self) -> LossKind | None:
        """Copies of the logits, where the source is known to differ from its stack."""
        if self.traits.loss == "parallel":  # a loss of its own, whoever starts the run
            return None
        return next((kind for text, kind in _LOSSES if re.search(text, self.row.source)), None)

    @property
    def run(self) -> TrainingRun:
        """The row as a question."""
        axes, row = self.settings.axes, self.row
        adapter = None
        if self.trains_adapter:
            adapter = Adapter(kind=row.layout["method"], rank=int(row.layout.get("rank") or 16))
        return TrainingRun.model_validate(
            {
                "name": "published run",
                "architecture": self.architecture,
                "gpu": self.gpu,
                "training_tokens": max(1, round(row.tokens or 1)),
                "sequence_length_tokens": self.settings.sequence_tokens,
                "global_batch_tokens": max(1, self.settings.global_batch)
                * self.settings.sequence_tokens,
                "state_recipe": state_recipe(row),
                "adapter": adapter,
                "loss": self.loss,
                "offload": _offload(row),
                "compute_precision": self.settings.precision,
                "layout": GivenLayout(
                    kind="given",
                    tensor_parallel=int(axes.tensor),
                    pipeline_parallel=int(axes.pipeline),
                    virtual_pipeline_stages=int(axes.virtual),
                    context_parallel=int(axes.context),
                    expert_parallel=int(axes.expert),
                    sharding=SHARDINGS[axes.sharding],  # type: ignore[arg-type]
                    micro_batch_sequences=int(axes.micro_batch_sequences),
                    recompute=RECOMPUTES[axes.recompute],
                ),
                "sizing": {"kind": "gpu_count", "gpu_count": self.settings.gpu_count},
                "speed": {
                    "kind": "estimated",
                    "software_stack": self.traits.name,
                    "software_year": row.software_year,
                },
            }
        )


def _offload(row: TrainingRow) -> Offload:
    """What a layout says that it keeps on the host."""
    words = str(row.layout.get("offload") or "").lower()
    if words in {"", "none", "false", "no", "0"}:
        return "none"
    return "optimizer_and_parameters" if re.search(r"param|weight|both|all", words) else "optimizer"


def _stores_scores(row: TrainingRow, gpu: Gpu) -> bool:
    """True where attention scores pass memory: switched off, older, or no kernel for the GPU."""
    has_kernel = gpu.gpu_class not in _WITHOUT_FLASH or row.software_year is not None
    return row.layout.get("flash_attn") == 0 or row.is_older_than_flash or not has_kernel


def state_recipe(row: TrainingRow) -> StateRecipeName:
    """Training state of a row's stack and precision."""
    precision = row.precision.lower()
    is_pure = "true" in precision or "pure" in precision
    optimizer = str(row.layout.get("optimizer", "")).lower()
    for words, mixed, pure in _OPTIMIZERS:
        if re.search(words, optimizer):
            return pure if is_pure else mixed
    if precision.startswith(("fp32", "float32")):
        return "fp32_adam"
    if is_pure:
        return "pure_bf16_adam"
    if row.stack in {"megatron_2021", "vendor_tuned"}:
        return "mixed_bf16_adam_fp32_gradients"
    return "mixed_bf16_adam_bf16_gradients"


def prepare(row: TrainingRow, recorder: Recorder) -> PreparedRow:
    """Resolve a row against the catalog.

    Raises:
        Unpredictable: If GPU or shape are not known, or the sizes contradict one another.
    """
    snapshot = recorder.snapshot
    key = gpu_key(row.gpu, snapshot)
    if key is None:
        raise Unpredictable(f"no GPU of the catalog is called {row.gpu!r}")
    architecture = architecture_of(row.model, row.shape, snapshot)
    if architecture is None:
        raise Unpredictable("no shape of the model")
    gpu = snapshot.gpus[key]
    try:
        settings = settings_of(row, architecture, gpu)
    except IllegalLayout as fault:
        raise Unpredictable(f"illegal layout: {fault}") from fault
    traits = STACKS[row.stack]
    if row.layout.get("async_tp") or _HIDDEN.search(row.note):
        traits = replace(traits, hides_collectives=True)
    if _OVERLAPPED_EXPERTS.search(row.source):
        traits = replace(traits, hides_all_to_all=True)
    if _EARLY_FLASH.search(row.source):
        traits = replace(traits, attention="flash_2")
    elif _stores_scores(row, gpu) and traits.name != "jax":
        traits = replace(traits, attention="stored")
    return PreparedRow(row, architecture, gpu, settings, traits, recorder)
