"""What a training step sends over which link, and how much of it computation cannot hide."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.factors import positive
from service.core.formulas import communication, training_time
from service.core.hardware import Gpu
from service.core.parallelism.axes import LayoutAxes
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.parts import ModelParts, StateBytes
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.units import BITS_PER_BYTE, BYTES_PER_GB

BACKWARD_SHARE = 2.0 / 3.0
"""Gradients can be exchanged behind the backward pass, two of three parts of the work."""

define_quantity(
    "training_scale_up_communication_s_per_step",
    unit="s",
    per="gpu",
    formula="bytes sent inside the scale-up domain / reached bandwidth, and latency",
)
define_quantity(
    "training_scale_out_communication_s_per_step",
    unit="s",
    per="gpu",
    formula="bytes sent between nodes / reached bandwidth, and latency",
)
define_quantity(
    "training_exposed_communication_s_per_step",
    unit="s",
    per="gpu",
    formula="communication less what the backward pass can hide of the gradient exchange",
)
define_quantity(
    "training_step_s",
    unit="s",
    per="run",
    formula="global batch tokens / (tokens/s per GPU · GPUs)",
)


@dataclass(frozen=True)
class Traffic:
    """Seconds of one step on the network, for one layout or many."""

    scale_up_s: Any
    scale_out_s: Any
    exposed_s: Any


@dataclass(frozen=True)
class NetworkModel:
    """Everything that decides the network's share of a step beside the layout."""

    run: TrainingRun
    parts: ModelParts
    state: StateBytes
    gpu: Gpu
    scale_out_bytes_per_s: float
    """One GPU's adapter, one direction."""

    def step_s(self, axes: LayoutAxes, rate: Any) -> Any:
        """Time of one optimizer step at a speed of tokens per second and GPU. [s]"""
        return self.run.global_batch_tokens / (rate * axes.gpu_count)

    def traffic(self, axes: LayoutAxes, rate: Any, recorder: Recorder) -> Traffic:
        """Seconds of one step on each link, and what computation cannot hide."""
        domain = self.gpu.scale_up_domain_gpu_count
        inside = [
            (self._tensor(axes, recorder), axes.tensor <= domain),
            (self._context(axes, recorder), axes.tensor * axes.context <= domain),
            (self._expert(axes, recorder), axes.tensor * axes.expert <= domain),
            (self._pipeline(axes, recorder), axes.tensor * axes.pipeline <= domain),
        ]
        gradients = self._data(axes, recorder)
        is_local = axes.gpu_count <= domain
        gradients_s = np.where(
            is_local,
            self._seconds(gradients, self._scale_up(recorder)),
            self._seconds(gradients, self._data_bytes_per_s(axes, recorder)),
        )[()]
        up = sum(
            np.where(near, self._seconds(b, self._scale_up(recorder)), 0) for b, near in inside
        )
        out = sum(
            np.where(near, 0, self._seconds(b, self._scale_out(recorder))) for b, near in inside
        )
        latency = (
            self._collective_count(axes) * recorder.assume("training_collective_latency_s").value
        )
        hidden_s = self._hideable_s(axes, rate, recorder)
        exposed = up + out + latency
        exposed = exposed + communication.exposed_s(
            communication_s=gradients_s, overlappable_s=hidden_s
        )
        return Traffic(
            scale_up_s=up + latency + np.where(is_local, gradients_s, 0),
            scale_out_s=out + np.where(is_local, 0, gradients_s),
            exposed_s=exposed,
        )

    def collectives(self, axes: LayoutAxes, recorder: Recorder) -> list[dict[str, Any]]:
        """Exchanges of one step of one layout: bytes, link and time of each kind."""
        domain = self.gpu.scale_up_domain_gpu_count
        groups = {
            "tensor": (self._tensor(axes, recorder), axes.tensor),
            "context": (self._context(axes, recorder), axes.tensor * axes.context),
            "expert": (self._expert(axes, recorder), axes.tensor * axes.expert),
            "pipeline": (self._pipeline(axes, recorder), axes.tensor * axes.pipeline),
            "data": (self._data(axes, recorder), axes.gpu_count),
        }
        found = []
        for kind, (sent, group) in groups.items():
            inside = bool(group <= domain)
            out = self._data_bytes_per_s(axes, recorder) if kind == "data" else None
            rate = self._scale_up(recorder) if inside else out or self._scale_out(recorder)
            if float(sent) > 0:
                found.append(
                    {
                        "kind": kind,
                        "link": "scale_up" if inside else "scale_out",
                        "bytes_per_step": float(sent),
                        "seconds_per_step": float(self._seconds(sent, rate)),
                    }
                )
        return found

    def lost_s(self, axes: LayoutAxes, rate: Any, recorder: Recorder) -> Any:
        """Seconds of one step that buy no progress, to tell layouts of one speed apart. [s]

        Exposed communication, bubble, uneven stages and the forward pass that is repeated.
        """
        bubble = training_time.pipeline_bubble_fraction(
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
            micro_batch_count=axes.micro_batch_count,
        )
        uneven = training_time.pipeline_imbalance_factor(
            layer_count=self.parts.layer_count, pipeline_parallel=axes.pipeline
        )
        repeated = np.where(axes.is_full_recompute, 4.0 / 3.0, 1.0)
        idle_share = (1.0 + bubble) * uneven * repeated - 1.0
        exposed = self.traffic(axes, rate, recorder).exposed_s
        return exposed + idle_share * self.step_s(axes, rate)

    def publish(self, axes: LayoutAxes, rate: float, recorder: Recorder) -> None:
        """Record what one layout sends and how long a step takes."""
        traffic = self.traffic(axes, rate, recorder)
        recorder.note("training_step_s", float(self.step_s(axes, rate)))
        for name in ("scale_up", "scale_out"):
            recorder.note(
                f"training_{name}_communication_s_per_step", float(getattr(traffic, f"{name}_s"))
            )
        recorder.note("training_exposed_communication_s_per_step", float(traffic.exposed_s))

    def _tokens(self, axes: LayoutAxes) -> Any:
        """Tokens that pass one GPU in a step. [token]"""
        sequences = axes.micro_batch_sequences * axes.micro_batch_count
        return sequences * self.run.sequence_length_tokens / axes.context

    def _hideable_s(self, axes: LayoutAxes, rate: Any, recorder: Recorder) -> Any:
        """Computation behind which gradients, or gathered weights, can travel. [s]

        Gradients that are exchanged once a step wait for the last micro-batch's backward pass.
        """
        last_only = np.where(axes.zero_stage >= 2, 1, axes.micro_batch_count)
        share = np.where(axes.zero_stage >= 3, 1.0, BACKWARD_SHARE) / last_only
        overlap = recorder.assume("training_overlap_fraction").value
        return overlap * share * self.step_s(axes, rate)

    def _collective_count(self, axes: LayoutAxes) -> Any:
        """Collectives inside the layers of one step, each with its latency. [count]"""
        layers = self.parts.layer_count / axes.pipeline
        tensor = np.where(axes.tensor > 1, 4 + 2 * axes.is_full_recompute, 0)
        expert = np.where(axes.expert > 1, 4 * self.parts.mixture_layer_count, 0)
        return (tensor * layers + expert / axes.pipeline) * axes.micro_batch_count

    def _tensor(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        return recorder.evaluate(
            communication.tensor_parallel_bytes_per_step,
            tokens=self._tokens(axes),
            hidden_size=self.parts.hidden_size,
            layer_count=self.parts.layer_count / axes.pipeline,
            tensor_parallel=axes.tensor,
            full_recompute=axes.is_full_recompute,
        )

    def _context(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        return recorder.evaluate(
            communication.context_parallel_bytes_per_step,
            tokens=self._tokens(axes),
            key_value_width=self.parts.key_value_width / axes.pipeline,
            tensor_parallel=axes.tensor,
            context_parallel=axes.context,
        )

    def _expert(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        return recorder.evaluate(
            communication.expert_parallel_bytes_per_step,
            tokens=self._tokens(axes),
            routed_hidden_width=self.parts.routed_hidden_width / axes.pipeline,
            tensor_parallel=axes.tensor,
            expert_parallel=axes.expert,
        )

    def _pipeline(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        return recorder.evaluate(
            communication.pipeline_parallel_bytes_per_step,
            tokens=self._tokens(axes),
            hidden_size=self.parts.hidden_size,
            tensor_parallel=axes.tensor,
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
        )

    def _data(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        """Mean weights of a stage; routed experts are exchanged by the group that shares them."""
        parts = self.parts
        outer = parts.input_parameter_count + parts.output_parameter_count
        common = (parts.divided_parameter_count + outer) / axes.tensor
        common = common + parts.replicated_parameter_count
        experts = parts.routed_parameter_count / axes.expert_division
        held = (common + experts) / axes.pipeline
        return recorder.evaluate(
            communication.data_parallel_bytes_per_step,
            weight_bytes=held * min(self.state.weight, communication.ELEMENT_BYTES),
            gradient_bytes=held * self.state.gradient,
            rank_count=axes.data_group,
            zero_stage=axes.zero_stage,
            micro_batch_count=axes.micro_batch_count,
        )

    def _scale_up(self, recorder: Recorder) -> float:
        """Bandwidth that one GPU reaches towards its neighbours. [B/s]"""
        link = self.gpu.scale_up_bytes_per_s
        if link == 0:
            host = self.gpu.pcie_gb_per_s_per_direction
            link = self.scale_out_bytes_per_s if host is None else host * BYTES_PER_GB
        return link * positive(recorder, "training_link_fraction", "scale_up").value

    def _scale_out(self, recorder: Recorder) -> float:
        """Bandwidth that one GPU reaches towards other nodes. [B/s]"""
        reached = positive(recorder, "training_link_fraction", "scale_out").value
        return self.scale_out_bytes_per_s * reached

    def _data_bytes_per_s(self, axes: LayoutAxes, recorder: Recorder) -> Any:
        """A ring over nodes uses the adapters of all its ranks in a node. [B/s]"""
        ranks = np.maximum(1, np.minimum(axes.data_group, self.gpu.node_gpu_count // axes.tensor))
        return np.minimum(self._scale_up(recorder), ranks * self._scale_out(recorder))

    @staticmethod
    def _seconds(sent_bytes: Any, bytes_per_s: Any) -> Any:
        return communication.transfer_s(sent_bytes=sent_bytes, bytes_per_s=bytes_per_s)


def scale_out_bytes_per_s(gpu: Gpu, snapshot: CatalogSnapshot, recorder: Recorder) -> float:
    """Network bandwidth of one GPU between nodes: its node's, else its class's. [B/s]"""
    node = snapshot.node_of(gpu)
    rate = node.scale_out_gbit_per_s_per_gpu if node else None
    if rate is None:
        rate = positive(recorder, "scale_out_gbit_per_s_per_gpu", gpu.gpu_class).value
    elif node is not None:
        recorder.rest_on(node.key, node.provenance, "scale_out_gbit_per_s_per_gpu")
    return rate * BYTES_PER_GB / BITS_PER_BYTE
