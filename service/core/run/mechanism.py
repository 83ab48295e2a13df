"""The time of a step on a GPU of the catalog: its rates, the stack, and the constants of both."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from service.core.architecture.model import ModelArchitecture
from service.core.errors import NoConstants
from service.core.factors import positive
from service.core.hardware import ComputePrecision, Gpu
from service.core.parallelism.axes import LayoutAxes
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.network import Traffic, scale_out_bytes_per_s
from service.core.run.step import Machine, StepModel
from service.core.run.step_constants import (
    SIXTEEN_BIT,
    HostState,
    Look,
    scale_up_gpu_count,
    step_constants,
)
from service.core.run.step_work import step_work
from service.core.scenarios.stacks import STACKS, SoftwareStack, StackTraits, stack_of
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import Offload
from service.core.units import BYTES_PER_GB

MAY_BE_ZERO = ("_s", "_per_layer", "_growth", "_per_year", "_exposed_fraction", "_per_logit")
"""Endings of constants that only add time."""


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
        host_link_bytes_per_s=over_host,
        scale_up_gpu_count=scale_up_gpu_count(gpu),
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
        may_be_zero = name.endswith(MAY_BE_ZERO)
        look_up = recorder.assume if may_be_zero else partial(positive, recorder)
        return look_up(name, *qualifiers).value

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
            gpu, precision, traits, software_year=software_year, look=look, has=recorder.holds
        ),
        sequence_tokens=sequence_tokens,
        weight_gradient_fraction=weight_gradient_fraction,
    )


for _name, _formula in {
    "training_compute_s_per_step": "matrices, attention, memory passes and experts of a step",
    "training_launch_s_per_step": "what launching kernels adds where the host is the slower one",
    "training_exposed_network_s_per_step": "exchanges of all kinds that computation does not hide",
    "training_bubble_s_per_step": "micro-batch time · (stages - 1) / chunks",
    "training_optimizer_s_per_step": "bytes of weights and their state / reached bandwidth",
}.items():
    define_quantity(_name, unit="s", per="gpu", formula=_formula)


@dataclass(frozen=True)
class StepShares:
    """Where the time of one step goes. [s]"""

    total_s: Any
    compute_s: Any
    launch_s: Any
    network_s: Any
    bubble_s: Any
    optimizer_s: Any


@dataclass(frozen=True)
class Mechanism:
    """The time of a step of one run on one GPU, whatever the stack and the layout."""

    architecture: ModelArchitecture
    gpu: Gpu
    machine: Machine
    precision: ComputePrecision
    sequence_tokens: int
    weight_gradient_fraction: float = 1.0
    software_year: float | None = None
    offload: Offload = "none"
    named_stack: SoftwareStack | None = None
    """None: the usual one of the layout."""
    models: dict[SoftwareStack, StepModel] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Of the stacks asked for so far: a search asks for the same one many times."""

    @property
    def stacks(self) -> tuple[SoftwareStack, ...]:
        """Stacks that layouts may need."""
        return ("vendor_tuned", "pytorch_fsdp") if self.named_stack is None else (self.named_stack,)

    def model(self, stack: SoftwareStack, recorder: Recorder) -> StepModel:
        """The time of a step on one stack; the recorder of one run is asked, on or off.

        Raises:
            NoConstants: If the catalog holds none for the GPU's class or the precision.
        """
        if recorder.is_on or stack not in self.models:  # what is on remembers what is looked up
            self.models[stack] = self._model(stack, recorder)
        return self.models[stack]

    def _model(self, stack: SoftwareStack, recorder: Recorder) -> StepModel:
        model = step_model(
            self.architecture,
            self.machine,
            STACKS[stack],
            gpu=self.gpu,
            precision=self.precision,
            sequence_tokens=self.sequence_tokens,
            recorder=recorder,
            weight_gradient_fraction=self.weight_gradient_fraction,
            software_year=self.software_year,
        )
        return replace(model, host=self._host(recorder))

    def _host(self, recorder: Recorder) -> HostState | None:
        if self.offload == "none":
            return None
        reached = positive(recorder, "offload_link_fraction").value
        return HostState(
            keeps_weights=self.offload == "optimizer_and_parameters",
            link_bytes_per_s=reached * self.machine.host_link_bytes_per_s,
            updated_parameters_per_s=positive(
                recorder, "offload_updated_parameters_per_s_per_gpu"
            ).value,
        )

    def stack_of(self, axes: LayoutAxes) -> SoftwareStack:
        """The stack of one layout."""
        return self.named_stack or stack_of(bool(axes.is_vendor_tuned))

    def rates(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        """Tokens that one GPU advances in a second, for one layout or many. [token/s]"""
        vendor = axes.is_vendor_tuned
        if self.named_stack is not None or np.ndim(vendor) == 0:
            times = self.model(self.stack_of(axes.take(0)), recorder).times(axes)
            return self.rate(axes, times.total_s)
        rates = np.empty(vendor.shape)
        for is_vendor in (False, True):
            mask = vendor == is_vendor
            if mask.any():
                some = axes.take(mask)
                times = self.model(stack_of(is_vendor), recorder).times(some)
                rates[mask] = self.rate(some, times.total_s)
        return rates

    def rate(self, axes: LayoutAxes, total_s: Any) -> Any:
        """Tokens that one GPU advances in a second at so many seconds a step. [token/s]"""
        sequences = axes.micro_batch_sequences * axes.micro_batch_count
        return sequences * self.sequence_tokens * axes.data / (total_s * axes.gpu_count)

    def shares(self, axes: LayoutAxes, recorder: Recorder) -> StepShares:
        """Where the time of a step goes, for one layout. [s]"""
        model = self.model(self.stack_of(axes), recorder)
        times, count = model.times(axes), axes.micro_batch_count
        compute = times.gemm_s + times.attention_s + times.streamed_s + times.expert_s
        exchanged = times.tensor_s + times.all_to_all_s + times.sharding_s + times.handed_s
        network = exchanged * count + times.exchange_s
        launch = times.host_s * count
        known = network + launch + times.bubble_s + times.optimizer_s
        straggling = times.total_s - known - compute * count
        return StepShares(
            total_s=times.total_s,
            # Waiting for the largest stage and the slowest GPU counts as computing.
            compute_s=compute * count + straggling,
            launch_s=launch,
            network_s=network,
            bubble_s=times.bubble_s,
            optimizer_s=times.optimizer_s,
        )

    def traffic(self, axes: LayoutAxes, recorder: Recorder) -> Traffic:
        """One step on each link, and what computation does not hide of it, for one layout."""
        model = self.model(self.stack_of(axes), recorder)
        latency = model.exchanges.collective_count(axes) * model.constants.collective_latency_s
        exposed = self.shares(axes, recorder).network_s
        return Traffic(model.exchanges.step(axes), latency, exposed)

    @staticmethod
    def publish(shares: StepShares, recorder: Recorder) -> None:
        """Record where the time of a step goes."""
        recorder.note("training_mechanistic_step_s", float(shares.total_s))
        recorder.note("training_compute_s_per_step", float(shares.compute_s))
        recorder.note("training_launch_s_per_step", float(shares.launch_s))
        recorder.note("training_exposed_network_s_per_step", float(shares.network_s))
        recorder.note("training_bubble_s_per_step", float(shares.bubble_s))
        recorder.note("training_optimizer_s_per_step", float(shares.optimizer_s))

    def ceiling_rate(self, recorder: Recorder) -> float:
        """Speed of matrices alone on the best stack, which no layout exceeds. [token/s]"""
        return max(self._matrix_rate(self.model(stack, recorder)) for stack in self.stacks)

    def _matrix_rate(self, model: StepModel) -> float:
        work, machine, c = model.work, model.machine, model.constants
        routed = 0 if work.routed is None else work.routed.active_parameter_count
        passes = 2.0 * (2.0 + self.weight_gradient_fraction)
        layers = (work.gemm_parameter_count + routed) / (c.gemm_fraction * machine.peak_flop_per_s)
        head = work.head_parameter_count / (c.gemm_fraction_bf16 * machine.bf16_peak_flop_per_s)
        return float(1.0 / (passes * (layers + head)))


def mechanism_of(
    run: TrainingRun, gpu: Gpu, architecture: ModelArchitecture, recorder: Recorder
) -> Mechanism | None:
    """The time of a run's steps, or None where the catalog holds no constants for it."""
    if run.speed.kind != "estimated":
        return None
    quiet = recorder.off()
    try:
        network = scale_out_bytes_per_s(gpu, recorder.snapshot, quiet)
        mechanism = Mechanism(
            architecture=architecture,
            gpu=gpu,
            machine=machine_of(gpu, run.compute_precision, network),
            precision=run.compute_precision,
            sequence_tokens=run.sequence_length_tokens,
            weight_gradient_fraction=1.0 if run.adapter is None else 0.0,
            software_year=run.speed.software_year,
            offload=run.offload,
            named_stack=run.speed.software_stack,
        )
        for stack in mechanism.stacks:
            mechanism.model(stack, quiet)
    except NoConstants:
        return None
    return mechanism
