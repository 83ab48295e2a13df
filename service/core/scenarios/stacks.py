"""Training stacks by name: what each does, so that counts follow from it."""

from dataclasses import dataclass
from typing import Literal

SoftwareStack = Literal[
    "vendor_tuned",
    "pytorch_fsdp",
    "pytorch_eager",
    "huggingface",
    "deepspeed",
    "jax",
    "megatron_2021",
    "megatron_deepspeed",
]
"""Stacks that the estimate tells apart."""
SHARDED_STACKS: tuple[SoftwareStack, ...] = (
    "pytorch_fsdp",
    "pytorch_eager",
    "huggingface",
    "deepspeed",
)
"""Stacks whose speed is nearest to sharded PyTorch's; the others' is to the vendor's."""
AttentionKernel = Literal["stored", "flash_2", "vendor"]
LossKind = Literal["plain", "typical", "upcast", "parallel", "fused", "chunked"]
"""How many copies of the logits a loss makes; chunked computes the head, too, chunk by chunk."""


@dataclass(frozen=True)
class StackTraits:
    """What a stack does that decides its speed and its memory."""

    name: SoftwareStack
    is_fused: bool
    """Norms, activations and casts are compiled or fused, so that each passes memory once."""
    attention: AttentionKernel
    """Scores are stored, or never leave the chip by the second FlashAttention or a newer kernel."""
    hides_collectives: bool
    """Tensor-parallel, pipeline and gradient exchanges run beside computation."""
    loss: LossKind
    """Copies of the logits."""
    hides_all_to_all: bool = False
    """The exchange between experts runs beside the computation of another micro-batch."""
    has_dropout: bool = False
    """Dropout masks are kept for the backward pass."""
    updates_at_once: bool = False
    """The optimizer updates all weights in one call, with one more copy of them."""
    has_buckets: bool = False
    """Gradients and weights pass through buckets of a fixed size, two of each."""
    pipeline_buffers: int = 0
    """Inputs and outputs of a stage that are kept beside its activations, for each micro-batch."""
    divided_loss: LossKind | None = None
    """Copies of the logits where tensor parallelism divides them; None: as many."""
    accumulates_in_fp32: bool = False
    """Gradients that wait for more micro-batches are kept in FP32, whole."""


STACKS: dict[SoftwareStack, StackTraits] = {
    traits.name: traits
    for traits in (
        StackTraits("vendor_tuned", True, "vendor", True, "parallel"),
        StackTraits(
            "pytorch_fsdp",
            True,
            "flash_2",
            False,
            "upcast",
            updates_at_once=True,
            divided_loss="typical",
            accumulates_in_fp32=True,
        ),
        StackTraits(
            "pytorch_eager",
            False,
            "flash_2",
            False,
            "upcast",
            updates_at_once=True,
            divided_loss="typical",
            accumulates_in_fp32=True,
        ),
        StackTraits("huggingface", False, "flash_2", False, "upcast", updates_at_once=True),
        StackTraits("deepspeed", False, "flash_2", False, "upcast", has_buckets=True),
        StackTraits("jax", True, "vendor", True, "fused"),
        StackTraits("megatron_2021", True, "stored", False, "parallel", has_dropout=True),
        StackTraits(
            "megatron_deepspeed",
            True,
            "stored",
            False,
            "parallel",
            has_dropout=True,
            has_buckets=True,
            pipeline_buffers=2,
        ),
    )
}
"""Every stack by name."""


def stack_of(is_vendor_tuned: bool) -> SoftwareStack:
    """The stack that a layout needs: the vendor's to split layers, stages or experts."""
    return "vendor_tuned" if is_vendor_tuned else "pytorch_fsdp"
