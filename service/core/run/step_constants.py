"""Constants of the time of a training step, resolved for one GPU, precision and stack."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import NoConstants
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.hardware import ComputePrecision, Gpu
from service.core.scenarios.stacks import StackTraits
from service.core.units import BYTES_PER_GB

Look = Callable[..., Any]
"""Value of an assumption by name and qualifiers."""
Has = Callable[..., bool]
"""True when the catalog holds exactly that name and these qualifiers."""
SIXTEEN_BIT = ("bf16", "fp16")
PCIE_GROUPS = (2, 4, 8)
"""GPUs of a node whose collectives over the host were measured."""
MOST_YEARS = 3.0
"""Age of software beyond which it gets no slower: nothing older was measured."""


@dataclass(frozen=True)
class StepConstants:
    """Every constant that the time of a step rests on."""

    gemm_fraction: Any
    """Share of the peak that large matrices reach in the compute precision."""
    gemm_fraction_bf16: Any
    """The same in 16 bit."""
    gemm_overlap_exponent: Any
    kernel_fixed_s: Any
    bandwidth_fraction: Any
    uneven_vocabulary_factor: Any
    loss_bytes_per_logit: Any
    bytes_per_score: Any
    stored_attention_fraction: Any
    attention_fraction: Any
    attention_half_speed_tokens: Any
    attention_backward_ratio: Any
    unfused_factor: Any
    cast_bytes_per_element: Any
    scale_up_fraction: Any
    scale_out_fraction: Any
    pcie_bytes_per_s: tuple[tuple[int, float], ...]
    """Reached by collectives over so many GPUs of a node without a common link."""
    gather_scale_up_fraction: Any
    gather_scale_out_fraction: Any
    collective_latency_s: Any
    tensor_exposed_fraction: Any
    handed_exposed_fraction: Any
    network_overlap_exponent: Any
    mixture_factor: Any
    """Time of expert layers on this stack over the vendor's."""
    grouped_half_speed_rows: Any
    permutation_bytes: Any
    all_to_all_exposed_fraction: Any
    host_s_per_layer: Any
    host_s_per_mixture_layer: Any
    host_overlap_exponent: Any
    optimizer_bytes: Any
    straggler_growth: Any


@dataclass(frozen=True)
class HostState:
    """State that is kept on the host: what crosses the host's link, and how fast it is updated."""

    keeps_weights: bool
    link_bytes_per_s: float
    """Of one GPU, reached, one direction."""
    updated_parameters_per_s: float
    """Of the host's share of one GPU."""

    def update_s(self, held: Any) -> Any:
        """Gradients down, the update, weights up, none beside another: an upper bound. [s]"""
        moved = 2.0 * ELEMENT_BYTES * held
        return moved / self.link_bytes_per_s + held / self.updated_parameters_per_s

    def fetched_s(self, held: Any, repeated_forward_fraction: Any) -> Any:
        """A GPU's share of the weights for each pass over one micro-batch. [s]"""
        passes = self.keeps_weights * (2.0 + repeated_forward_fraction)
        return passes * ELEMENT_BYTES * held / self.link_bytes_per_s


def of_gpu(name: str, gpu: Gpu, look: Look, has: Has, *qualifiers: str) -> Any:
    """A constant of the GPU itself, else of its class.

    Raises:
        NoConstants: If the catalog holds neither.
    """
    for owner in (gpu.key, gpu.gpu_class):
        if has(name, owner, *qualifiers):
            return look(name, owner, *qualifiers)
    wanted = ".".join((name, gpu.gpu_class, *qualifiers))
    raise NoConstants(f"no {wanted} is known for {gpu.key}")


def step_constants(
    gpu: Gpu,
    precision: ComputePrecision,
    traits: StackTraits,
    *,
    software_year: float | None = None,
    look: Look,
    has: Has,
) -> StepConstants:
    """Look up every constant of a GPU, a precision and a stack.

    Args:
        gpu: What the step runs on.
        precision: Precision of the matrices.
        traits: What the stack does.
        software_year: Year of the software; the newest that was measured when None.
        look: Value of an assumption.
        has: Whether the catalog holds an assumption.

    Raises:
        NoConstants: If the GPU's class or the precision has none.
    """
    age = software_age(software_year, look)
    constants = _kernels(gpu, precision, traits, look, has) | _network(traits, look)
    constants |= {"pcie_bytes_per_s": pcie_bytes_per_s(gpu, look)}
    constants |= _mixtures(gpu, traits, age, look)
    plain = ("host_s_per_layer", "host_overlap_exponent", "straggler_growth")
    constants |= {name: look(f"training_{name}") for name in plain}
    return StepConstants(
        **constants, optimizer_bytes=look("training_optimizer_bytes_per_parameter")
    )


def scale_up_gpu_count(gpu: Gpu) -> int:
    """GPUs that share a link of their own: one where they have none. [count]"""
    return gpu.scale_up_domain_gpu_count if gpu.scale_up_bytes_per_s > 0 else 1


def pcie_bytes_per_s(gpu: Gpu, look: Look) -> tuple[tuple[int, float], ...]:
    """What collectives reach over the host, by GPUs that take part; empty where none need it."""
    host = gpu.pcie_gb_per_s_per_direction
    if host is None or scale_up_gpu_count(gpu) >= gpu.node_gpu_count:
        return ()
    return tuple(
        (count, host * BYTES_PER_GB * look("training_pcie_fraction", f"gpus_{count}"))
        for count in PCIE_GROUPS
    )


def software_age(software_year: float | None, look: Look) -> Any:
    """Years by which software is older than the newest that was measured. [year]"""
    newest = look("training_newest_software_year")
    year = newest if software_year is None else software_year
    return np.clip(newest - year, 0.0, MOST_YEARS)


def _kernels(
    gpu: Gpu, precision: ComputePrecision, traits: StackTraits, look: Look, has: Has
) -> dict[str, Any]:
    """Constants of matrices, attention and memory passes."""
    is_low = precision not in SIXTEEN_BIT
    sustained = of_gpu("training_sustained_fraction", gpu, look, has)
    sustained = sustained * look("training_stack_fraction", traits.name)
    bf16 = of_gpu("training_gemm_fraction", gpu, look, has, "bf16") * sustained
    low = (
        of_gpu("training_gemm_fraction", gpu, look, has, precision) * sustained if is_low else bf16
    )
    attention = of_gpu("training_attention_fraction", gpu, look, has)
    attention = attention * look("training_attention_level_fraction")
    kernel = look("training_attention_kernel_fraction", traits.attention, gpu.gpu_class)
    plain = (
        "gemm_overlap_exponent",
        "kernel_fixed_s",
        "bandwidth_fraction",
        "uneven_vocabulary_factor",
        "loss_bytes_per_logit",
        "bytes_per_score",
        "stored_attention_fraction",
        "attention_half_speed_tokens",
        "attention_backward_ratio",
    )
    return {name: look(f"training_{name}") for name in plain} | {
        "gemm_fraction": low,
        "gemm_fraction_bf16": bf16,
        "attention_fraction": attention * kernel,
        "unfused_factor": 1.0 if traits.is_fused else look("training_unfused_factor"),
        "cast_bytes_per_element": look("training_cast_bytes_per_element") if is_low else 0.0,
    }


def _network(traits: StackTraits, look: Look) -> dict[str, Any]:
    """Constants of the links, and of what a stack hides behind computation."""
    hides = "hidden" if traits.hides_collectives else "exposed"
    plain = (
        "scale_up_fraction",
        "scale_out_fraction",
        "gather_scale_up_fraction",
        "collective_latency_s",
        "network_overlap_exponent",
    )
    return {name: look(f"training_{name}") for name in plain} | {
        "gather_scale_out_fraction": look("training_gather_scale_out_fraction", traits.name),
        "tensor_exposed_fraction": look("training_tensor_exposed_fraction", hides),
        "handed_exposed_fraction": look("training_handed_exposed_fraction", hides),
    }


def _mixtures(gpu: Gpu, traits: StackTraits, age: Any, look: Look) -> dict[str, Any]:
    """Constants of routed experts, which older software serves more slowly."""
    dispatch = np.exp(look("training_mixture_dispatch_growth_per_year") * age)
    hides = ("hidden",) if traits.hides_all_to_all else ()
    exposed = look("training_all_to_all_exposed_fraction", *hides)
    host = np.exp(look("training_mixture_host_growth_per_year") * age)
    slower = look("training_mixture_stack_factor", traits.name)
    return {
        "mixture_factor": slower,
        "grouped_half_speed_rows": look("training_grouped_half_speed_rows"),
        "permutation_bytes": look("training_permutation_bytes") * dispatch,
        "all_to_all_exposed_fraction": exposed * dispatch,
        "host_s_per_mixture_layer": look("training_host_s_per_mixture_layer", gpu.key)
        * host
        * slower,
    }
