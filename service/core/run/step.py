"""Time of a training step, term by term: matrices, attention, memory passes, network, bubble."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from service.core.formulas import communication, roofline, training_time
from service.core.parallelism.axes import HYBRID, LayoutAxes
from service.core.parallelism.links import Links
from service.core.run.network import REPEATED_FORWARD, Exchanges, Volume
from service.core.run.step_constants import HostState, StepConstants
from service.core.run.step_work import StepWork
from service.core.scenarios.stacks import StackTraits


@dataclass(frozen=True)
class Machine:
    """Rates of one GPU and of its links."""

    peak_flop_per_s: float
    """Dense peak of the compute precision."""
    bf16_peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    host_link_bytes_per_s: float
    """Between GPU and host; the network's where the catalog does not know it."""
    scale_up_gpu_count: int
    node_gpu_count: int
    gemm_input_bytes: float
    """Bytes of one element that enters a matrix: 2, or 1 in 8 bit."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step, part by part, for one layout or many."""

    total_s: Any
    micro_batch_s: Any
    gemm_s: Any
    attention_s: Any
    streamed_s: Any
    expert_s: Any
    all_to_all_s: Any
    """Exposed exchange of rows between experts."""
    host_s: Any
    """Longer than the GPU's time where launching kernels holds it up."""
    tensor_s: Any
    """Exposed exchange of tensor parallelism."""
    sharding_s: Any
    """What gathering weights and reducing gradients adds for each micro-batch."""
    handed_s: Any
    """Exposed hand-over between pipeline stages."""
    exchange_s: Any
    """Exposed exchange of gradients at the end."""
    optimizer_s: Any
    bubble_s: Any


@dataclass(frozen=True)
class StepModel:
    """Everything that decides the time of a step beside the layout."""

    work: StepWork
    machine: Machine
    traits: StackTraits
    constants: StepConstants
    sequence_tokens: int
    weight_gradient_fraction: float = 1.0
    host: HostState | None = None
    """None where all state stays on the GPU."""

    def times(self, axes: LayoutAxes) -> StepTimes:
        """Time of one step under one layout or many. [s]"""
        c, stages = self.constants, axes.pipeline
        local = self.exchanges.held(axes)
        busy, parts = self._micro_batch(axes)
        each, once = self._shared_s(axes)
        gathered = communication.joined_s(
            first_s=busy, second_s=each, exponent=c.network_overlap_exponent
        )
        if self.host is not None:
            repeat = REPEATED_FORWARD[axes.recompute]
            gathered = gathered + self.host.fetched_s(self._shared(axes, local), repeat)
        handed = self._handed_s(axes)
        exchange = self._exchange_s(axes, once, busy)
        optimizer = self._optimizer_s(axes, local)
        total = training_time.step_s(
            micro_batch_s=gathered + handed,
            micro_batch_count=axes.micro_batch_count,
            pipeline_parallel=stages,
            virtual_pipeline_stages=axes.virtual,
            exposed_exchange_s=exchange,
            optimizer_s=optimizer,
            straggler_factor=communication.straggler_factor(
                gpu_count=axes.gpu_count, growth_per_doubling=c.straggler_growth
            ),
        )
        return StepTimes(
            total_s=total,
            micro_batch_s=gathered + handed,
            sharding_s=gathered - busy,
            handed_s=handed,
            exchange_s=exchange,
            optimizer_s=optimizer,
            bubble_s=(gathered + handed) * (stages - 1) / axes.virtual,
            **parts,
        )

    def _tokens(self, axes: LayoutAxes) -> Any:
        """Tokens of one micro-batch on one GPU. [token]"""
        return axes.micro_batch_sequences * self.sequence_tokens / axes.context

    def _micro_batch(self, axes: LayoutAxes) -> tuple[Any, dict[str, Any]]:
        """Time of one micro-batch on the stage with most layers, and its parts. [s]"""
        n, repeat, stages = self._tokens(axes), REPEATED_FORWARD[axes.recompute], axes.pipeline
        gemm, head = self._gemm_s(axes, n, repeat)
        attention = self._attention_s(axes, n, repeat)
        streamed = self._streamed_s(axes, n, repeat)
        expert, exchanged = self._expert_s(axes, n, repeat)
        tensor = self._tensor_s(axes, n, repeat)
        layers = gemm + attention + streamed + expert + exchanged + tensor
        on_gpu = self._largest_stage(axes, layers) + head / stages
        busy = communication.joined_s(
            first_s=on_gpu,
            second_s=self._host_s() / stages,
            exponent=self.constants.host_overlap_exponent,
        )
        parts = {
            "gemm_s": (gemm + head) / stages,
            "attention_s": attention / stages,
            "streamed_s": streamed / stages,
            "expert_s": expert / stages,
            "all_to_all_s": exchanged / stages,
            "tensor_s": tensor / stages,
            "host_s": busy - on_gpu,
        }
        return busy, parts

    def _largest_stage(self, axes: LayoutAxes, layers_s: Any) -> Any:
        """Time of the stage with most layers, of the time of all layers. [s]"""
        layers = self.work.layer_count
        return layers_s * np.ceil(layers / axes.pipeline) / layers

    def _passes(self, repeat: Any) -> Any:
        return roofline.pass_count(
            weight_gradient_fraction=self.weight_gradient_fraction, repeated_forward_fraction=repeat
        )

    def _gemm_s(self, axes: LayoutAxes, n: Any, repeat: Any) -> tuple[Any, Any]:
        """Matrices of all layers, and the head with its loss. [s]"""
        work, machine, c, t = self.work, self.machine, self.constants, axes.tensor
        passes = self._passes(repeat)
        weights = work.gemm_parameter_count / t
        layers = roofline.kernel_time_s(
            flops=2.0 * passes * n * weights,
            moved_bytes=passes * machine.gemm_input_bytes * (n * work.gemm_width / t + weights),
            peak_flop_per_s=machine.peak_flop_per_s,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s,
            compute_fraction=c.gemm_fraction,
            bandwidth_fraction=c.bandwidth_fraction,
            overlap_exponent=c.gemm_overlap_exponent,
            fixed_s=c.kernel_fixed_s * passes * work.gemm_matrix_count,
        )
        columns = work.head_parameter_count / t
        uneven = np.where(np.mod(work.vocab_size, 8) == 0, 1.0, c.uneven_vocabulary_factor)
        head = uneven * 2.0 * (2.0 + self.weight_gradient_fraction) * n * columns
        head = head / (c.gemm_fraction_bf16 * machine.bf16_peak_flop_per_s)
        loss = roofline.streamed_s(
            moved_bytes=c.loss_bytes_per_logit * n * work.vocab_size / t,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s,
            bandwidth_fraction=c.bandwidth_fraction,
        )
        return layers, head + loss

    def _attention_s(self, axes: LayoutAxes, n: Any, repeat: Any) -> Any:
        """Scores and weighted sums of all layers; selective recompute repeats them. [s]"""
        work, c = self.work, self.constants
        again = np.where(axes.recompute > 0, np.maximum(repeat, 1.0), repeat)
        if self.traits.attention == "stored":
            return roofline.stored_attention_s(
                causal_forward_flops=n * work.attention_flops / axes.tensor,
                score_count=n * work.score_count / axes.tensor,
                bytes_per_score=c.bytes_per_score,
                repeated_forward_fraction=again,
                peak_flop_per_s=self.machine.bf16_peak_flop_per_s,
                peak_fraction=c.stored_attention_fraction,
                bandwidth_bytes_per_s=self.machine.bandwidth_bytes_per_s,
                bandwidth_fraction=c.bandwidth_fraction,
            )
        slowed = work.attention_flops + c.attention_half_speed_tokens * work.attention_span_flops
        alone = roofline.flash_attention_s(
            forward_flops=n * slowed / axes.tensor,
            backward_forward_ratio=c.attention_backward_ratio,
            repeated_forward_fraction=repeat,
            peak_flop_per_s=self.machine.bf16_peak_flop_per_s,
            peak_fraction=c.attention_fraction,
        )
        ring_s = self.exchanges.context(axes, n).seconds
        return communication.joined_s(first_s=alone, second_s=ring_s, exponent=2.0)

    def _streamed_s(self, axes: LayoutAxes, n: Any, repeat: Any) -> Any:
        """Norms, activations, residuals and casts of all layers. [s]"""
        work, c, t = self.work, self.constants, axes.tensor
        split = np.where(axes.sequence_parallel, t, 1)
        elements = work.hidden_passes / split + work.inner_passes / t
        moved = communication.ELEMENT_BYTES * elements * c.unfused_factor
        moved = moved + c.cast_bytes_per_element * work.gemm_width / t
        return roofline.streamed_s(
            moved_bytes=n * moved * (1.0 + repeat / 3.0),
            bandwidth_bytes_per_s=self.machine.bandwidth_bytes_per_s,
            bandwidth_fraction=c.bandwidth_fraction,
        )

    @cached_property
    def exchanges(self) -> Exchanges:
        """What is sent, and the links that it crosses."""
        c = self.constants
        gathers = (c.gather_scale_up_fraction, c.gather_scale_out_fraction)
        return Exchanges(
            volume=volume_of(self.work, self.sequence_tokens, self.weight_gradient_fraction),
            links=self._links(c.scale_up_fraction, c.scale_out_fraction),
            gather_links=self._links(*gathers),
        )

    def _links(self, scale_up_fraction: Any, scale_out_fraction: Any) -> Links:
        machine = self.machine
        return Links(
            domain_gpu_count=machine.scale_up_gpu_count,
            node_gpu_count=machine.node_gpu_count,
            scale_up_bytes_per_s=scale_up_fraction * machine.scale_up_bytes_per_s,
            scale_out_bytes_per_s=scale_out_fraction * machine.scale_out_bytes_per_s,
            pcie_bytes_per_s=self.constants.pcie_bytes_per_s,
        )

    def _tensor_s(self, axes: LayoutAxes, n: Any, repeat: Any) -> Any:
        """Exposed all-reduces inside all layers. [s]"""
        c = self.constants
        count = 4.0 + 2.0 * repeat + np.where(axes.sequence_parallel, 0.5, 0.0)
        starts = self.work.layer_count * count * c.collective_latency_s
        wait = self.exchanges.tensor(axes, n).seconds + starts
        return np.where(axes.tensor > 1, wait * c.tensor_exposed_fraction, 0.0)

    def _expert_s(self, axes: LayoutAxes, n: Any, repeat: Any) -> tuple[Any, Any]:
        """Grouped matrices and permutation of routed experts, and their exposed exchange. [s]"""
        routed = self.work.routed
        if routed is None:
            return 0.0, 0.0
        c, machine, t = self.constants, self.machine, axes.tensor
        rows = n * routed.experts_per_token / t
        per_expert = rows * axes.expert / routed.expert_count
        rate = (
            c.gemm_fraction
            * machine.peak_flop_per_s
            * roofline.grouped_fraction(
                rows_per_expert=per_expert, half_speed_rows=c.grouped_half_speed_rows
            )
        )
        products = 2.0 * self._passes(repeat) * n * routed.active_parameter_count / (t * rate)
        permuted = roofline.streamed_s(
            moved_bytes=c.permutation_bytes * rows * routed.hidden_size * routed.layer_count,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s,
            bandwidth_fraction=c.bandwidth_fraction,
        )
        exchanged = self.exchanges.experts(axes, n).seconds * c.all_to_all_exposed_fraction
        return c.mixture_factor * (products + permuted), c.mixture_factor * exchanged

    def _host_s(self) -> Any:
        """Time in which the host launches the kernels of all layers for one micro-batch. [s]"""
        c, routed = self.constants, self.work.routed
        mixture = 0 if routed is None else routed.layer_count
        return (
            self.work.layer_count - mixture
        ) * c.host_s_per_layer + mixture * c.host_s_per_mixture_layer

    def _handed_s(self, axes: LayoutAxes) -> Any:
        """Exposed hand-over of activations between stages for one micro-batch. [s]"""
        sent = self.exchanges.handed(axes, self._tokens(axes))
        return sent.seconds * self.constants.handed_exposed_fraction

    def _shared_s(self, axes: LayoutAxes) -> tuple[Any, Any]:
        """Gathering and reducing for each micro-batch, and once a step at its end. [s]"""
        shared = sum(part.seconds for part in self.exchanges.shared(axes))
        # Under a pipeline gradients wait for the last micro-batch, whoever keeps them then.
        waits = (axes.zero_stage <= 1) | ((axes.zero_stage == 2) & np.greater(axes.pipeline, 1))
        each = np.where(waits, 0.0, shared / axes.micro_batch_count)
        copied = sum(part.seconds for part in self.exchanges.copied(axes))
        return each, np.where(waits, shared, 0.0) + copied

    def _exchange_s(self, axes: LayoutAxes, alone: Any, busy_s: Any) -> Any:
        """Exposed gradients and updated weights once a step, beside the last micro-batches. [s]"""
        beside = 2.0 * busy_s
        hidden = (
            communication.joined_s(
                first_s=beside, second_s=alone, exponent=self.constants.network_overlap_exponent
            )
            - beside
        )
        # Sharded stacks reduce between copies layer by layer, beside the backward pass.
        is_hidden = self.traits.hides_collectives | np.equal(axes.sharding, HYBRID)
        return np.where(is_hidden, hidden, alone)

    def _optimizer_s(self, axes: LayoutAxes, local: tuple[Any, Any]) -> Any:
        """Reading and writing the optimizer's state once a step. [s]"""
        held = self._shared(axes, local) * self.weight_gradient_fraction
        if self.host is not None:
            return self.host.update_s(held)
        return roofline.streamed_s(
            moved_bytes=self.constants.optimizer_bytes * held,
            bandwidth_bytes_per_s=self.machine.bandwidth_bytes_per_s,
            bandwidth_fraction=self.constants.bandwidth_fraction,
        )

    def _shared(self, axes: LayoutAxes, local: tuple[Any, Any]) -> Any:
        """Weights whose optimizer state one GPU keeps. [count]"""
        node, is_shared = self.machine.node_gpu_count, axes.zero_stage >= 1
        group = np.where(is_shared, axes.shard_count(node), 1)
        experts = np.where(is_shared, axes.expert_shard_count(node), 1)
        return local[0] / group + local[1] / experts


def volume_of(work: StepWork, sequence_tokens: int, weight_gradient_fraction: float) -> Volume:
    """What the exchanges of an architecture are counted from."""
    routed = work.routed
    return Volume(
        sequence_tokens=sequence_tokens,
        hidden_size=work.hidden_size,
        layer_count=work.layer_count,
        mixture_layer_count=0 if routed is None else routed.layer_count,
        key_value_width=work.key_value_width,
        routed_hidden_width=0 if routed is None else routed.hidden_width,
        experts_per_token=1 if routed is None else routed.experts_per_token,
        divided_parameter_count=work.gemm_parameter_count + work.outer_parameter_count,
        replicated_parameter_count=0,
        routed_parameter_count=0 if routed is None else routed.held_parameter_count,
        trained_fraction=weight_gradient_fraction,
    )
