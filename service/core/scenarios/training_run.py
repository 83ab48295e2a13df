"""A training run as asked: what to train, on what, how large, how fast, how reliable."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.hardware import ComputePrecision
from service.core.parallelism import AutoLayout, LayoutChoice
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.reliability import Reliability
from service.core.scenarios.stacks import LossKind, SoftwareStack
from service.core.scenarios.training_state import Offload, StateRecipeName
from service.core.value import (
    Count,
    CountOrZero,
    Flag,
    IsoDate,
    Positive,
    PositiveFraction,
    Price,
    Size,
    Text,
    TokenCount,
    Value,
)


class GpuCountSizing(Value):
    """Use this many GPUs; the finish date is the answer."""

    kind: Literal["gpu_count"]
    """Kind of sizing."""
    gpu_count: Count
    """GPUs of the run."""


class FinishBySizing(Value):
    """Finish by this day; the GPU count is the answer."""

    kind: Literal["finish_by"]
    """Kind of sizing."""
    finish_date: IsoDate
    """Last day on which the run may still be running."""


class BudgetSizing(Value):
    """Spend at most so much; the GPU count is the answer.

    Without a date the count that ends the run soonest within the amount, however little the last
    GPUs gain; with one the fewest GPUs that end it in time for no more than the amount.
    Where the layers are not known, counts end at one rented instance for each sequence of a batch:
    a measured speed says nothing of how far it scales.
    """

    kind: Literal["budget"]
    """Kind of sizing."""
    amount: Price
    """Most that the run may cost, in the currency of the plan."""
    finish_date: IsoDate | None = None
    """Last day on which the run may still be running; null asks for the earliest end."""


class TokensSizing(Value):
    """Use this many GPUs until a day, or until the money is spent; the tokens are the answer.

    Either the date or the amount is needed; where both are given, the one that is reached first
    decides, and `training_tokens`, where it is given, is the most that there are.
    """

    kind: Literal["tokens"]
    """Kind of sizing."""
    gpu_count: Count
    """GPUs of the run."""
    finish_date: IsoDate | None = None
    """Last day on which the run may still be running."""
    amount: Price | None = None
    """Most that the run may cost, in the currency of the plan."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.finish_date is None and self.amount is None:
            raise ValueError("either finish_date or amount is needed")
        return self


Sizing = TypeAliasType(
    "Sizing",
    Annotated[
        GpuCountSizing | FinishBySizing | BudgetSizing | TokensSizing, Field(discriminator="kind")
    ],
)
"""What is given for a run, and so what is solved for."""


class EstimatedSpeed(Value):
    """Let the planner estimate the speed."""

    kind: Literal["estimated"] = "estimated"
    """Kind of speed."""
    software_stack: SoftwareStack | None = None
    """Training stack; null takes sharded PyTorch for whole copies under zero_2, zero_3 or hybrid
    sharding, and the speed of the vendor-tuned one for all other layouts."""
    software_year: Annotated[float, Field(ge=2018, le=2100)] | None = None
    """Year of the software, such as 2025.5; null takes the newest that was measured. Decides the
    speed of mixtures, which software moves faster than hardware."""


class MfuSpeed(Value):
    """Model FLOPs (6PT, 4PT of adapters, no recompute) over the dense peak of the precision."""

    kind: Literal["mfu"]
    """Kind of speed."""
    mfu_fraction: PositiveFraction
    """Model FLOPs utilisation; holds everything that slows a step."""


class HfuSpeed(Value):
    """Executed FLOPs (8PT under full recompute) over the dense peak of the compute precision."""

    kind: Literal["hfu"]
    """Kind of speed."""
    hfu_fraction: PositiveFraction
    """Hardware FLOPs utilisation; holds everything that slows a step."""


class MeasuredTrainingSpeed(Value):
    """Tokens per second and GPU as measured; holds everything that slows a step."""

    kind: Literal["measured"]
    """Kind of speed."""
    tokens_per_s_per_gpu: Positive
    """Measured tokens per second and GPU."""


TrainingSpeed = TypeAliasType(
    "TrainingSpeed",
    Annotated[
        EstimatedSpeed | MfuSpeed | HfuSpeed | MeasuredTrainingSpeed, Field(discriminator="kind")
    ],
)
"""How the speed of a run is known."""


class Adapter(Value):
    """Train a low-rank adapter instead of all weights."""

    kind: Literal["lora", "qlora"]
    """qlora keeps the frozen base in 4 bits."""
    rank: Annotated[Size, Field(le=4096)] = 16
    """Rank of the adapter."""
    double_quantization: Flag = False
    """True when the scales of a qlora base are quantised, too."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.double_quantization and self.kind != "qlora":
            raise ValueError("double_quantization needs kind qlora")
        return self


class TrainingRun(Value):
    """One training run: a lock-step job on one kind of GPU."""

    name: Text
    """Unique over all workloads: the key in comparisons and CSV."""
    architecture: ArchitectureRef | None = None
    """What is trained; may be absent only when the speed is measured."""
    gpu: GpuRef
    """What it runs on."""
    training_tokens: TokenCount | None = None
    """Tokens to train on; fewer than `global_batch_tokens` count as one step. Needed, but where
    `sizing` asks for the tokens: there it is the most that there are, and null sets no limit."""
    sequence_length_tokens: Annotated[Count, Field(le=100_000_000)] = 8192
    """Tokens of one sequence."""
    global_batch_tokens: TokenCount = 4_194_304
    """Tokens of one optimizer step."""
    state_recipe: StateRecipeName = "mixed_bf16_adam_bf16_gradients"
    """Weights, gradients and optimizer state that are kept of a trained parameter, in bytes.
    `mixed_bf16_adam_bf16_gradients`: 16 (2 weights, 2 gradients, 4 FP32 copy, 8 moments);
    `mixed_bf16_adam_fp32_gradients`: 18, gradients of 4;
    `mixed_bf16_adam_fp32_gradients_bf16_copy`: 20, gradients in both widths; `fp32_adam`: 16, no
    second copy of the weights; `fp32_weights_bf16_compute_adam`: 12, gradients not counted apart;
    `bf16_adam_fp32_moments`: 12, no FP32 copy; `pure_bf16_adam`: 8, all in 16 bit;
    `mixed_bf16_adam_8bit_moments`: 10; `pure_bf16_adam_8bit_moments`: 6;
    `mixed_bf16_sgd_momentum`: 12, one moment; `mixed_bf16_adafactor`: 8, sums for moments."""
    offload: Offload = "none"
    """State kept in the memory of the host; with parameters it needs zero_3 or hybrid sharding."""
    adapter: Adapter | None = None
    """Low-rank adapter; null trains all weights."""
    loss: LossKind | None = None
    """Copies of the logits that the loss holds at once, in bytes of one logit (`bytes_per_logit` of
    the catalog). `plain`: 24, nothing fused; `typical`: 16, with an FP32 copy, log-softmax and both
    gradients; `upcast`: 10, FP32 copy and its gradient; `parallel`: 8, gradient in place; `fused`:
    4, compiled; `chunked`: 4, and of one chunk of tokens alone (`loss_chunk_tokens`). Null takes
    what the stack usually has."""
    compute_precision: ComputePrecision = "bf16"
    """Precision of the matrix unit, whose dense peak utilisation is measured against."""
    layout: LayoutChoice = AutoLayout()
    """How the model is spread over GPUs."""
    sizing: Sizing
    """What is given, and so what is solved for."""
    speed: TrainingSpeed = EstimatedSpeed()
    """How the speed is known."""
    start_date: IsoDate | None = None
    """First day; the first day of the horizon when null."""
    after: Text | None = None
    """Name of another run of the plan: this one starts when that one ends. Instead of
    `start_date`."""
    reliability: Reliability = Reliability()
    """Failures and checkpoints."""
    run_multiplier: Annotated[Positive, Field(le=1000)] = 1.0
    """Multiplies the hours: ablations and failed runs."""
    elastic: Flag = False
    """True when a preemption takes only the GPUs it needs instead of restarting the whole run."""
    priority: Annotated[CountOrZero, Field(le=1000)] = 0
    """Runs of a higher one take GPUs that are shared, or of a given fleet, before others."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.architecture is None and self.speed.kind != "measured":
            raise ValueError("architecture may be absent only when speed.kind is measured")
        if self.global_batch_tokens < self.sequence_length_tokens:
            raise ValueError("global_batch_tokens is below sequence_length_tokens")
        return self

    @property
    def tokens(self) -> int:
        """Tokens to train on, once they are known. [token]

        Raises:
            LookupError: If they are still to be solved for.
        """
        if self.training_tokens is None:
            raise LookupError(f"the tokens of {self.name!r} are not solved for yet")
        return self.training_tokens

    @property
    def last_date(self) -> date | None:
        """Day by which the run was asked to end, None where it was not."""
        sizing = self.sizing
        return None if isinstance(sizing, GpuCountSizing) else sizing.finish_date

    @property
    def most_amount(self) -> Decimal | None:
        """Most that the run may cost, None where nothing is said."""
        sizing = self.sizing
        return sizing.amount if isinstance(sizing, BudgetSizing | TokensSizing) else None

    @property
    def given_gpu_count(self) -> int | None:
        """GPUs that the request names, None where they are the answer. [count]"""
        sizing = self.sizing
        return sizing.gpu_count if isinstance(sizing, GpuCountSizing | TokensSizing) else None


def mfu_convention(run: TrainingRun) -> Literal["6P", "4P"]:
    """FLOPs of a parameter and token: frozen weights get no gradient, which is a third of them."""
    return "6P" if run.adapter is None else "4P"
