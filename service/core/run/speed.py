"""Speed of a training run: given, measured, or estimated from shares of the bf16 peak."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import NoConstants
from service.core.estimates import SpeedBasis
from service.core.factors import (
    PYTORCH_FSDP,
    VENDOR_TUNED,
    Factor,
    by_stack,
    positive,
    ranged,
    spread,
    when,
)
from service.core.formulas import flops, training_time
from service.core.hardware import Gpu
from service.core.parallelism.axes import SHARDINGS, LayoutAxes
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.mechanism import Mechanism
from service.core.run.step_constants import of_gpu
from service.core.scenarios.stacks import SHARDED_STACKS
from service.core.scenarios.training_run import TrainingRun

TABLE_PRECISION = {"fp16": "bf16"}
"""A precision that shares the constants of another: equal rates, equal kernels."""

define_quantity(
    "training_bf16_peak_fraction",
    unit="1",
    per="run",
    formula="share of the bf16 peak from the table · every factor that applies, before the bubble",
)


define_quantity(
    "training_table_tokens_per_s_per_gpu",
    unit="token/s",
    per="gpu",
    formula="bf16 peak · share of the table / (FLOPs per token · pipeline slowdown)",
)
RARE_STACKS = ("huggingface", "deepspeed", "jax")
"""Stacks of which few rows were published: their band is wider."""


def speed_residual(gpu: Gpu, recorder: Recorder, *, kind: str) -> Factor:
    """Actual speed over that of the terms of a step: what runs left that were held out of the fit.

    Wider where nothing of the GPU's class was measured in training, and its constants are judged.
    """
    used = positive(recorder, "training_speed_residual_factor", kind)
    sustained = of_gpu("training_sustained_fraction", gpu, recorder.off().assume, recorder.holds)
    if sustained.verified:
        return Factor(used.value, used.low, used.high)
    wider = positive(recorder, "class_fallback_band_factor").value
    slow = training_time.root_sum_square_factor(factors=[used.value / used.low, wider])
    fast = training_time.root_sum_square_factor(factors=[used.high / used.value, wider])
    return Factor(used.value, used.value / float(slow), used.value * float(fast))


@dataclass(frozen=True)
class ModelWork:
    """The work of one token: what utilisation and hours are counted over."""

    active_parameter_count: int
    matmul_active_parameter_count: int
    attention_forward_flops_per_token: float
    """Zero where the layers are not known."""
    weight_gradient_fraction: float
    """1 when all weights are trained, 0 for adapters."""
    hidden_size: int
    layer_count: int
    is_mixture: bool


@dataclass(frozen=True)
class SpeedModel:
    """Everything that decides the speed of a run beside its layout."""

    run: TrainingRun
    gpu: Gpu
    work: ModelWork
    mechanism: Mechanism | None = None
    """None where the layers or the constants of a step are not known: the table answers then."""

    @property
    def basis(self) -> SpeedBasis:
        """What the speed of the run rests on."""
        if self.run.speed.kind != "estimated":
            return self.run.speed.kind
        return "table" if self.mechanism is None else "mechanism"

    @property
    def peak_flop_per_s(self) -> float | None:
        """Dense peak of the compute precision. [FLOP/s]"""
        return self.gpu.peak_flop_per_s(self.run.compute_precision)

    def flops_per_token(self, recorder: Recorder) -> float:
        """Model FLOPs of one token by the 6P convention. [FLOP/token]"""
        return float(
            recorder.evaluate(
                flops.training_flops_per_token,
                active_parameter_count=self.work.active_parameter_count,
                weight_gradient_fraction=self.work.weight_gradient_fraction,
            )
        )

    def flops_per_token_with_attention(self, recorder: Recorder) -> float:
        """Model FLOPs of one token over multiplied weights and attention. [FLOP/token]"""
        return float(
            recorder.evaluate(
                flops.training_flops_per_token_with_attention,
                matmul_active_parameter_count=self.work.matmul_active_parameter_count,
                attention_forward_flops_per_token=self.work.attention_forward_flops_per_token,
                weight_gradient_fraction=self.work.weight_gradient_fraction,
            )
        )

    def executed_flops_per_token(self, axes: LayoutAxes | None, recorder: Recorder) -> Any:
        """Executed FLOPs of one token by the 6P convention. [FLOP/token]"""
        return recorder.evaluate(
            flops.training_executed_flops_per_token,
            active_parameter_count=self.work.active_parameter_count,
            weight_gradient_fraction=self.work.weight_gradient_fraction,
            full_recompute=False if axes is None else axes.is_full_recompute,
        )

    def slowdown(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        """What pipelines add to the time of a step: bubble and uneven stages. [1]"""
        bubble = recorder.evaluate(
            training_time.pipeline_bubble_fraction,
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
            micro_batch_count=axes.micro_batch_count,
        )
        imbalance = recorder.evaluate(
            training_time.pipeline_imbalance_factor,
            layer_count=self.work.layer_count,
            pipeline_parallel=axes.pipeline,
        )
        return (1.0 + bubble) * imbalance

    def given_rate(self, axes: LayoutAxes | None, recorder: Recorder) -> Any:
        """Tokens that one GPU advances in a second at a given utilisation. [token/s]"""
        speed = self.run.speed
        if speed.kind == "mfu":
            fraction, work = speed.mfu_fraction, self.flops_per_token(recorder.off())
        elif speed.kind == "hfu":
            fraction, work = speed.hfu_fraction, self.executed_flops_per_token(axes, recorder.off())
        else:
            raise LookupError(f"a speed of kind {speed.kind} gives no utilisation")
        return recorder.evaluate(
            training_time.training_tokens_per_s_per_gpu,
            peak_flop_per_s=self.peak_flop_per_s,
            peak_fraction=fraction,
            flops_per_token=work,
        )

    def estimated_rate(self, axes: LayoutAxes, recorder: Recorder) -> tuple[Any, list[Factor]]:
        """Tokens that one GPU advances in a second, and the factors it rests on. [token/s]

        By the terms of a step where their constants are known, else by the table of shares.

        Raises:
            NoConstants: If the catalog holds neither for the GPU or its class.
        """
        if self.mechanism is None:
            return self.table_rate(axes, recorder)
        factor = self._residual(recorder)
        if recorder.is_on:
            return self._publish_mechanism(self.mechanism, axes, factor, recorder), [factor]
        return self.mechanism.rates(axes, recorder), [factor]

    def _residual(self, recorder: Recorder) -> Factor:
        kind = "thin" if self._named_stack in RARE_STACKS else "dense"
        return speed_residual(self.gpu, recorder, kind="mixture" if self.work.is_mixture else kind)

    def _publish_mechanism(
        self, mechanism: Mechanism, axes: LayoutAxes, factor: Factor, recorder: Recorder
    ) -> float:
        """Record the speed, where the time goes, and what the table would say. [token/s]"""
        shares = mechanism.shares(axes, recorder)
        rate = float(mechanism.rate(axes, shares.total_s))
        recorder.note(
            "training_tokens_per_s_per_gpu", rate, low=rate * factor.low, high=rate * factor.high
        )
        mechanism.publish(shares, recorder)
        with suppress(NoConstants):
            table, _ = self.table_rate(axes, recorder.off())
            recorder.note("training_table_tokens_per_s_per_gpu", float(table))
        return rate

    def table_rate(self, axes: LayoutAxes, recorder: Recorder) -> tuple[Any, list[Factor]]:
        """Speed by the table of shares of the bf16 peak, and the factors it rests on. [token/s]

        Raises:
            NoConstants: If the catalog holds no share of the peak for the GPU or its class, or
                state on the host slows the steps, which no share was measured with.
        """
        if self.run.offload != "none":
            raise NoConstants("shares of the peak are known only for state that stays on the GPU")
        factors = self.factors(axes, recorder)
        fraction = np.prod(np.broadcast_arrays(*[f.value for f in factors]), axis=0)
        inputs = {
            "peak_flop_per_s": self.gpu.peak_flop_per_s("bf16"),
            "peak_fraction": fraction,
            "flops_per_token": self._table_flops_per_token(),
            "slowdown_factor": self.slowdown(axes, recorder),
        }
        rate = training_time.training_tokens_per_s_per_gpu(**inputs)
        if recorder.is_on:
            slow, fast = spread(factors)
            recorder.note(
                "training_bf16_peak_fraction", fraction, low=fraction / slow, high=fraction * fast
            )
            ranged(
                recorder,
                training_time.training_tokens_per_s_per_gpu,
                less=slow,
                more=fast,
                **inputs,
            )
        return rate, factors

    def ceiling_rate(self, recorder: Recorder) -> float:
        """Speed of the best stack before everything that slows it. [token/s]

        Raises:
            NoConstants: If the catalog holds no share of the peak for the GPU or its class.
        """
        if self.mechanism is not None:
            return self.mechanism.ceiling_rate(recorder)
        both = np.array([True, False]) if self._table_stack is None else self._is_vendor(True)
        share = np.nanmax(self._table(both, recorder)[0].value)
        return float(
            training_time.training_tokens_per_s_per_gpu(
                peak_flop_per_s=self.gpu.peak_flop_per_s("bf16"),
                peak_fraction=share,
                flops_per_token=self._table_flops_per_token(),
            )
        )

    def _table_flops_per_token(self) -> float:
        """Work that the table's shares count: all active weights, and causal attention."""
        return float(
            flops.training_flops_per_token_with_attention(
                matmul_active_parameter_count=self.work.active_parameter_count,
                attention_forward_flops_per_token=self.work.attention_forward_flops_per_token,
                weight_gradient_fraction=self.work.weight_gradient_fraction,
            )
        )

    def _is_vendor(self, is_vendor_tuned: Any) -> Any:
        """True where the vendor's stack is used: where the run says so, else by layout."""
        if self._table_stack is None:
            return is_vendor_tuned
        return np.full(np.shape(is_vendor_tuned), self._table_stack == VENDOR_TUNED)[()]

    def factors(self, axes: LayoutAxes, recorder: Recorder) -> list[Factor]:
        """The table's share of the bf16 peak and every factor that applies to it."""
        work, vendor = self.work, self._is_vendor(axes.is_vendor_tuned)
        hidden = positive(recorder.off(), "narrow_hidden_size").value
        small = positive(recorder.off(), "moe_small_active_parameter_count").value
        large = positive(recorder.off(), "large_run_gpu_count").value
        very_large = positive(recorder.off(), "very_large_run_gpu_count").value
        long = positive(recorder.off(), "context_parallel_long_sequence_tokens").value
        is_split = np.greater(axes.context, 1)
        is_long = self.run.sequence_length_tokens >= long
        split = "context_parallel_long_speed_fraction" if is_long else None
        is_small = work.is_mixture and work.active_parameter_count < small
        return [
            *self._table(vendor, recorder),
            *when(work.hidden_size < hidden, recorder, "narrow_speed_fraction"),
            *when(is_small, recorder, "moe_small_speed_fraction"),
            *when(axes.gpu_count >= large, recorder, "large_run_speed_fraction"),
            *when(axes.gpu_count >= very_large, recorder, "very_large_run_speed_fraction"),
            *by_stack(is_split, vendor, recorder, split or "context_parallel_speed_fraction"),
            *by_stack(axes.is_full_recompute, vendor, recorder, "full_recompute_speed_fraction"),
            *self._fully_sharded(axes, recorder),
        ]

    @property
    def _named_stack(self) -> str | None:
        return self.run.speed.software_stack if self.run.speed.kind == "estimated" else None

    @property
    def _table_stack(self) -> str | None:
        """The column of the table that is nearest to the named stack."""
        if self._named_stack is None:
            return None
        return PYTORCH_FSDP if self._named_stack in SHARDED_STACKS else VENDOR_TUNED

    def _table(self, vendor: Any, recorder: Recorder) -> list[Factor]:
        """Share of the bf16 peak; a class's share has a wider band than the GPU's own."""
        stacks = [
            stack
            for stack, used in ((VENDOR_TUNED, vendor), (PYTORCH_FSDP, np.logical_not(vendor)))
            if np.any(used)
        ]
        found = {stack: self._constant(stack, recorder) for stack in stacks}
        if not any(found.values()):
            raise NoConstants(
                f"no share of the bf16 peak is known for {self.gpu.key} ({self.gpu.gpu_class}) "
                f"training {'mixtures' if self.work.is_mixture else 'dense models'} in "
                f"{self.run.compute_precision} on {' or '.join(stacks)}"
            )
        nothing = Factor(np.nan, np.nan, np.nan)
        first = found.get(VENDOR_TUNED) or nothing
        second = found.get(PYTORCH_FSDP) or nothing
        return [
            Factor(
                *(
                    np.where(vendor, getattr(first, name), getattr(second, name))[()]
                    for name in ("value", "low", "high")
                )
            )
        ]

    def _constant(self, stack: str, recorder: Recorder) -> Factor | None:
        name = "moe_bf16_peak_fraction" if self.work.is_mixture else "bf16_peak_fraction"
        precision = TABLE_PRECISION.get(self.run.compute_precision, self.run.compute_precision)
        for owner in (self.gpu.key, self.gpu.gpu_class):
            if recorder.has_assumption(name, owner, precision, stack):
                used = positive(recorder, name, owner, precision, stack)
                if owner == self.gpu.key:
                    return Factor(used.value, used.low, used.high)
                wider = positive(recorder, "class_fallback_band_factor").value
                low = training_time.root_sum_square_factor(factors=[used.value / used.low, wider])
                high = training_time.root_sum_square_factor(factors=[used.high / used.value, wider])
                return Factor(used.value, used.value / low, used.value * high)
        return None

    def _fully_sharded(self, axes: LayoutAxes, recorder: Recorder) -> list[Factor]:
        """Weights gathered from other nodes arrive too late for small micro-batches."""
        is_wide = axes.gpu_count > self.gpu.scale_up_domain_gpu_count
        is_sharded = np.equal(axes.sharding, SHARDINGS.index("zero_3")) & is_wide
        if not np.any(is_sharded):
            return []
        needed = positive(recorder, "zero_3_full_speed_tokens_per_gpu")
        tokens = axes.micro_batch_sequences * self.run.sequence_length_tokens / axes.context
        shares = [
            training_time.full_speed_fraction(tokens_per_gpu=tokens, full_speed_tokens_per_gpu=full)
            for full in (needed.value, needed.high, needed.low)
        ]
        return [Factor(*(np.where(is_sharded, share, 1.0)[()] for share in shares))]
