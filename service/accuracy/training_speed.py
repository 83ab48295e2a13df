"""Speed of a published run by the estimate, in the unit in which it was published."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from service.accuracy.training_rows import TrainingRow
from service.accuracy.training_settings import Settings
from service.core.architecture.model import ModelArchitecture
from service.core.formulas import flops
from service.core.hardware import Gpu
from service.core.run.parts import attention_forward_flops_per_token
from service.core.units import FLOP_PER_S_PER_TFLOPS, SECONDS_PER_DAY, SECONDS_PER_HOUR

CAUSAL_SOURCES = re.compile(r"Megatron-Bridge|2407\.21783")
"""Sources that count the causal half of attention; all others count all of it."""
Rate = float
"""Tokens per second and GPU."""


@dataclass(frozen=True)
class Published:
    """What a row counts over."""

    row: TrainingRow
    architecture: ModelArchitecture
    gpu: Gpu
    settings: Settings

    @property
    def model_flops(self) -> float:
        """FLOPs of one token by the source's own convention. [FLOP/token]"""
        a, s = self.architecture, self.settings.sequence_tokens
        if not self.row.shape.get("layers") or self.row.shape.get("hybrid_mamba"):
            return 6.0 * a.active_parameter_count
        twice = 1.0 if CAUSAL_SOURCES.search(self.row.source) else 2.0
        attention = twice * attention_forward_flops_per_token(a, s)
        return float(
            flops.training_flops_per_token_with_attention(
                matmul_active_parameter_count=a.matmul_active_parameter_count,
                attention_forward_flops_per_token=attention,
            )
        )

    @property
    def hardware_flops(self) -> float:
        """FLOPs of one token with the repeated forward pass of the layers. [FLOP/token]"""
        a, s = self.architecture, self.settings.sequence_tokens
        head = 6.0 * a.head_parameter_count
        layers = a.matmul_active_parameter_count - a.head_parameter_count
        return 8.0 * layers + head + 8.0 * attention_forward_flops_per_token(a, s)

    @property
    def peak_flop_per_s(self) -> float:
        """Peak that a published percentage is of: 16 bit, unless it says otherwise. [FLOP/s]"""
        says = "fp8 peak" in self.row.note.lower()
        return self.gpu.peak_flop_per_s("fp8" if says else "bf16") or float("nan")


def _step_s(published: Published, rate: Rate) -> float:
    settings = published.settings
    return settings.global_batch * settings.sequence_tokens / (rate * settings.gpu_count)


_SPEEDS: dict[str, Callable[[Published, Rate], float]] = {
    "tokens_per_s_per_gpu": lambda _, rate: rate,
    "tokens_per_s": lambda p, rate: rate * p.settings.gpu_count,
    "samples_per_s": lambda p, rate: rate * p.settings.gpu_count / p.settings.sequence_tokens,
    "step_time_s": _step_s,
    "step_time_ms": lambda p, rate: 1e3 * _step_s(p, rate),
    "tflops_per_gpu": lambda p, rate: (
        rate
        * (p.hardware_flops if _counts_hardware(p.row) else p.model_flops)
        / FLOP_PER_S_PER_TFLOPS
    ),
    "hw_tflops_per_gpu": lambda p, rate: rate * p.hardware_flops / FLOP_PER_S_PER_TFLOPS,
    "mfu_pct": lambda p, rate: 100.0 * rate * p.model_flops / p.peak_flop_per_s,
    "hfu_pct": lambda p, rate: (
        100.0
        * rate
        * (p.hardware_flops if p.settings.axes.is_full_recompute else p.model_flops)
        / p.peak_flop_per_s
    ),
}
"""Published measures of speed, from tokens per second and GPU."""
_TIMES: dict[str, float] = {
    "gpu_hours": SECONDS_PER_HOUR,
    "gpu_hours_per_T_tokens": SECONDS_PER_HOUR,
    "gpu_days": SECONDS_PER_DAY,
    "wall_hours": SECONDS_PER_HOUR,
    "wall_days": SECONDS_PER_DAY,
    "projected_wall_days": SECONDS_PER_DAY,
    "time_to_train_min": 60.0,
}
"""Published measures of a whole run, in seconds."""


def _counts_hardware(row: TrainingRow) -> bool:
    return "hardware flop" in row.note.lower() or "counts recompute" in row.note.lower()


def is_speed(metric: str) -> bool:
    """True for measures of a step's speed."""
    return metric in _SPEEDS


def is_run(metric: str) -> bool:
    """True for measures of a whole run."""
    return metric in _TIMES


def is_time(metric: str) -> bool:
    """True where less is faster."""
    return metric.startswith("step_time_") or metric in _TIMES


def published_speed(published: Published, rate: Rate) -> float:
    """A speed as the row publishes it."""
    return float(_SPEEDS[published.row.metric](published, rate))


def published_run(published: Published, rate: Rate, tokens: float) -> float:
    """Hours, days or minutes of a whole run as the row publishes them."""
    metric, unit = published.row.metric, _TIMES[published.row.metric]
    gpus = 1 if metric.startswith("gpu_") else published.settings.gpu_count
    return tokens / (rate * gpus) / unit


def steady_share(row: TrainingRow, end_to_end: float) -> float:
    """Share of a run that is steady training: all of it for projections and timed benchmarks."""
    ideal = re.compile(r"projection|ideal|iteration time|starts from a checkpoint", re.IGNORECASE)
    return 1.0 if ideal.search(row.note) else end_to_end


def rate_from(published: Published, value: float) -> float:
    """Tokens per second and GPU that a published speed means."""
    at_one = published_speed(published, 1.0)
    return at_one / value if is_time(published.row.metric) else value / at_one
