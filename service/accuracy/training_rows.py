"""Rows of published training results as they stand in a file, typed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.accuracy import training_names as names
from service.accuracy.files import EXTRA
from service.accuracy.scoring import UNUSABLE, is_usable
from service.core.scenarios.stacks import SoftwareStack

QUALITY = re.compile(r"^q=([A-Z])")
GROUP = re.compile(r"\[grp=([^\]]+)\]")
SPEED_KINDS = ("throughput", "mfu", "scaling")
_SOURCES: dict[SoftwareStack, tuple[str, ...]] = {
    "megatron_deepspeed": (
        "bigscience",
        "neox",
        "pythia",
        "megatron-deepspeed",
        "2304.01373",
        "2204.06745",
        "2211.05100",
        "2201.11990",
    ),
    "megatron_2021": ("2104.04473", "2205.05198", "1909.08053", "1910.02054"),
    "jax": ("maxtext", "t5x", "google", "jax", "levanter", "pax"),
    "huggingface": (
        "colossal",
        "ms-swift",
        "qwenlm",
        "peft",
        "litgpt",
        "unsloth",
        "llama-factory",
        "axolotl",
        "trl",
        "transformers",
        "accelerate",
        "deepspeed",
        "picotron",
        "nanotron",
        "ml-engineering",
    ),
    "pytorch_fsdp": (
        "metaseq",
        "2205.01068",
        "llm-foundry",
        "torchtitan",
        "pytorch/ao",
        "fms-fsdp",
        "flash-attention",
        "nanogpt",
        "torchtune",
        "olmo",
        "nanochat",
        "llm.c",
    ),
    "vendor_tuned": (
        "megatron",
        "nemo",
        "dgxc",
        "mlcommons",
        "mlperf",
        "megascale",
        "2402.15627",
        "primus",
        "transformerengine",
        "internevo",
    ),
}
"""Words in a source, or in what a row says, that name its stack; the first match holds."""
_YEARS = (
    ("dgxc-benchmarking", 2025.5),
    ("ROCm/Megatron-LM", 2024.5),
    ("llama4", 2025.3),
    ("metaseq", 2022.4),
)
"""When the software of a source was current that names no date."""
FLASH_YEAR = 2022.6
"""FlashAttention, arXiv 2205.14135; stacks took it up from the second half of that year on."""
_UNFUSED = re.compile(
    r"metaseq|2205\.01068|llm-foundry|compile=0|no compile|without compile|nanogpt", re.IGNORECASE
)


@dataclass(frozen=True)
class TrainingRow:
    """One published result."""

    id: str
    kind: str
    model: str
    shape: Mapping[str, Any]
    """Published shape, or nothing."""
    tokens: float | None
    sequence_tokens: int | None
    micro_batch: int | None
    global_batch: int | None
    gpu: str
    gpu_count: int | None
    precision: str
    layout: Mapping[str, Any]
    recompute: str
    metric: str
    value: float
    unit: str
    source: str
    note: str

    @property
    def quality(self) -> str:
        """A and B count; C is known to be wrong."""
        found = QUALITY.match(self.note)
        return found.group(1) if found else "A"

    @property
    def group(self) -> str:
        """Run or table that the row belongs to."""
        found = GROUP.search(self.note)
        return found.group(1) if found else self.source

    @property
    def origin(self) -> str:
        """Repository or paper: rows of one origin share their software."""
        found = re.search(r"repo ([\w.-]+/[\w.-]+)|arXiv (\d{4}\.\d{5})", self.source)
        return next(filter(None, found.groups())) if found else self.source.split(",")[0]

    @property
    def stack(self) -> SoftwareStack:
        """Software that it was measured on: from the source, else from what the row says."""
        named = _matched(self.source) or _matched(f"{self.note} {self.layout.get('framework', '')}")
        stack = named or self._guessed_stack
        if stack == "huggingface" and self.layout.get("zero"):
            is_megatron = "megatron-lm" in self.note.lower()
            return "vendor_tuned" if is_megatron else "deepspeed"
        if stack == "pytorch_fsdp" and _UNFUSED.search(f"{self.source} {self.note}"):
            return "pytorch_eager"
        return stack

    @property
    def software_year(self) -> float | None:
        """Year of the software: of its container or paper, or what the source is known for."""
        container = re.search(r"container (\d\d)\.(\d\d)", self.note)
        paper = re.search(r"arXiv (\d\d)(\d\d)\.\d{5}", self.source)
        found = container or paper
        if found:
            return 2000 + int(found.group(1)) + (int(found.group(2)) - 0.5) / 12
        return next((year for name, year in _YEARS if name in self.source), None)

    @property
    def is_older_than_flash(self) -> bool:
        """True where the software is from before attention kernels that store no scores."""
        year = self.software_year
        return year is not None and year < FLASH_YEAR

    @property
    def _guessed_stack(self) -> SoftwareStack:
        if "tpu" in self.gpu.lower():
            return "jax"
        if self.is_older_than_flash:
            return "megatron_2021"
        if self.layout.get("method") in {"lora", "qlora", "full"}:
            return "huggingface"
        split = max(int(self.layout.get(name) or 1) for name in ("tp", "pp", "ep"))
        return "pytorch_fsdp" if split == 1 and self.layout else "vendor_tuned"


def _matched(text: str) -> SoftwareStack | None:
    plain = text.lower()
    return next(
        (stack for stack, words in _SOURCES.items() if any(word in plain for word in words)), None
    )


def training_row(record: Mapping[str, str]) -> TrainingRow:
    """A row of the file.

    Raises:
        ValueError: If nothing was measured, or a cell makes the whole row unreadable.
    """
    if record.get(EXTRA):
        raise ValueError("more cells than columns")
    value = names.number(record.get("measured_value"))
    if value is None or value <= 0:
        raise ValueError(f"nothing was measured: {record.get('measured_value')!r}")
    if not is_usable(value):
        raise ValueError(UNUSABLE)
    tokens = names.number(record.get("tokens"))
    if tokens is not None and not is_usable(max(tokens, 1.0)):
        raise ValueError("tokens not usable")
    cell = {name: text or "" for name, text in record.items()}
    return TrainingRow(
        id=cell["id"],
        kind=cell["kind"],
        model=cell.get("model") or "unnamed",
        shape=names.shape(cell.get("arch")),
        tokens=tokens,
        sequence_tokens=names.sequence(cell.get("seq_len")),
        micro_batch=names.count(cell.get("micro_batch")),
        global_batch=names.count(cell.get("global_batch")),
        gpu=cell.get("gpu", ""),
        gpu_count=names.count(cell.get("gpu_count")),
        precision=cell.get("precision", ""),
        layout=names.layout(cell.get("parallelism")),
        recompute=cell.get("recompute", ""),
        metric=cell["measured_metric"],
        value=value,
        unit=cell.get("unit", ""),
        source=cell.get("source", ""),
        note=cell.get("note", ""),
    )
