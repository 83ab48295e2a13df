"""Bytes that training keeps for each parameter, part by part.

The parts are widths of number formats, so they are definitions rather than assumptions: FP32 is
4 bytes, BF16 is 2, an 8-bit state is 1.
"""

from typing import Literal

from service.core.value import NonNegative, Value

StateRecipeName = Literal[
    "mixed_bf16_adam_bf16_gradients",
    "mixed_bf16_adam_fp32_gradients",
    "mixed_bf16_adam_fp32_gradients_bf16_copy",
    "fp32_adam",
    "fp32_weights_bf16_compute_adam",
    "bf16_adam_fp32_moments",
    "pure_bf16_adam",
    "mixed_bf16_adam_8bit_moments",
    "pure_bf16_adam_8bit_moments",
    "mixed_bf16_sgd_momentum",
    "mixed_bf16_adafactor",
]
"""Named choice of weights, gradients and optimizer state; the name says the gradients' width."""

Offload = Literal["none", "optimizer", "optimizer_and_parameters"]
"""What leaves the GPU for the memory of its host: master weights, moments and the GPU's share of
the gradients, or the weights too."""


class StateRecipe(Value):
    """Bytes per parameter of each part of the training state."""

    name: StateRecipeName
    """Name of the recipe."""
    weight_bytes: NonNegative
    """Weights that compute uses. [B]"""
    gradient_bytes: NonNegative
    """Gradients. [B]"""
    master_bytes: NonNegative
    """FP32 copy of the weights that the optimizer updates. [B]"""
    moment_bytes: NonNegative
    """Moments of the optimizer. [B]"""

    @property
    def optimizer_bytes(self) -> float:
        """Master copy and moments. [B]"""
        return self.master_bytes + self.moment_bytes

    @property
    def total_bytes(self) -> float:
        """All parts, unsharded. [B]"""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


def _recipe(
    name: StateRecipeName, weight: float, gradient: float, master: float, moment: float
) -> StateRecipe:
    return StateRecipe(
        name=name,
        weight_bytes=weight,
        gradient_bytes=gradient,
        master_bytes=master,
        moment_bytes=moment,
    )


STATE_RECIPES: dict[StateRecipeName, StateRecipe] = {
    recipe.name: recipe
    for recipe in (
        _recipe("mixed_bf16_adam_bf16_gradients", 2, 2, 4, 8),
        _recipe("mixed_bf16_adam_fp32_gradients", 2, 4, 4, 8),
        # Reduced in 16 bit, added up in FP32: both copies are there, 2P + 18P/N under ZeRO-2.
        _recipe("mixed_bf16_adam_fp32_gradients_bf16_copy", 2, 6, 4, 8),
        _recipe("fp32_adam", 4, 4, 0, 8),
        _recipe("fp32_weights_bf16_compute_adam", 4, 0, 0, 8),
        _recipe("bf16_adam_fp32_moments", 2, 2, 0, 8),
        _recipe("pure_bf16_adam", 2, 2, 0, 4),
        _recipe("mixed_bf16_adam_8bit_moments", 2, 2, 4, 2),
        _recipe("pure_bf16_adam_8bit_moments", 2, 2, 0, 2),
        _recipe("mixed_bf16_sgd_momentum", 2, 2, 4, 4),
        _recipe("mixed_bf16_adafactor", 2, 2, 4, 0),
    )
}
"""Every recipe by name. Adafactor keeps row and column sums only: under 0.01 byte a parameter."""

PER_TENSOR_RECIPES: frozenset[StateRecipeName] = frozenset(
    {"mixed_bf16_adam_8bit_moments", "pure_bf16_adam_8bit_moments"}
)
"""Recipes whose optimizer updates one tensor after another: no stack holds a copy of all weights
for it, as it does where the default one updates all of them in one call."""
