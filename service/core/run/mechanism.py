"""The time of a step on a GPU of the catalog: its rates, the stack, and the constants of both."""

from typing import Any

from service.core.architecture.model import ModelArchitecture
from service.core.errors import NoConstants
from service.core.hardware import ComputePrecision, Gpu
from service.core.recorder import Recorder
from service.core.run.step import Machine, StepModel
from service.core.run.step_constants import SIXTEEN_BIT, Look, step_constants
from service.core.run.step_work import step_work
from service.core.scenarios.stacks import StackTraits
from service.core.units import BYTES_PER_GB


def machine_of(gpu: Gpu, precision: ComputePrecision, scale_out_bytes_per_s: float) -> Machine:
    """Rates of a GPU and its links; GPUs without a link of their own talk over the host's.

    Raises:
        NoConstants: If the GPU has no dense peak in the precision or in 16 bit.
    """
    peak, bf16 = gpu.peak_flop_per_s(precision), gpu.peak_flop_per_s("bf16")
    if peak is None or bf16 is None:
        raise NoConstants(f"no dense {precision} and 16-bit peak is known for {gpu.key}")
    host = gpu.pcie_gb_per_s_per_direction
    over_host = scale_out_bytes_per_s if host is None else host * BYTES_PER_GB
    has_link = gpu.scale_up_bytes_per_s > 0
    return Machine(
        peak_flop_per_s=peak,
        bf16_peak_flop_per_s=bf16,
        bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        scale_up_bytes_per_s=gpu.scale_up_bytes_per_s if has_link else over_host,
        scale_out_bytes_per_s=scale_out_bytes_per_s,
        scale_up_gpu_count=gpu.scale_up_domain_gpu_count if has_link else gpu.node_gpu_count,
        node_gpu_count=gpu.node_gpu_count,
        gemm_input_bytes=2.0 if precision in SIXTEEN_BIT else 1.0,
    )


def step_model(
    architecture: ModelArchitecture,
    machine: Machine,
    traits: StackTraits,
    *,
    gpu: Gpu,
    precision: ComputePrecision,
    sequence_tokens: int,
    recorder: Recorder,
    weight_gradient_fraction: float = 1.0,
    software_year: float | None = None,
    look: Look | None = None,
) -> StepModel:
    """The time of a step, with the constants of the catalog.

    Args:
        architecture: What is trained, described by its layers.
        machine: Rates of the GPU.
        traits: What the stack does.
        gpu: Whose constants are looked up: its own, else its class's.
        precision: Precision of the matrices.
        sequence_tokens: Tokens of one sequence.
        recorder: Looks the assumptions up.
        weight_gradient_fraction: 1 when all weights are trained, 0 for adapters.
        software_year: Year of the software; the newest that was measured when None.
        look: Value of an assumption, when it is not the recorder's.

    Raises:
        NoConstants: If the catalog holds none for the GPU's class or the precision.
    """

    def assumed(name: str, *qualifiers: str) -> Any:
        return recorder.assume(name, *qualifiers).value

    def has(name: str, *qualifiers: str) -> bool:
        return ".".join((name, *qualifiers)) in recorder.snapshot.assumptions

    look = look or assumed
    return StepModel(
        work=step_work(
            architecture,
            sequence_tokens,
            recurrent_pass_factor=look("training_recurrent_pass_factor"),
        ),
        machine=machine,
        traits=traits,
        constants=step_constants(
            gpu, precision, traits, software_year=software_year, look=look, has=has
        ),
        sequence_tokens=sequence_tokens,
        weight_gradient_fraction=weight_gradient_fraction,
    )
