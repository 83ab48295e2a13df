"""What a training step sends over which link, and how much of it computation cannot hide."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from service.core.factors import positive
from service.core.formulas import communication, training_time
from service.core.hardware import Gpu
from service.core.parallelism.axes import HYBRID, RECOMPUTES, LayoutAxes
from service.core.parallelism.links import (
    Link,
    Links,
    Sent,
    context_group,
    copy_groups,
    expert_group,
    shard_groups,
    stage_group,
    tensor_group,
)
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.run.parts import ModelParts, StateBytes
from service.core.run.step_constants import pcie_bytes_per_s, scale_up_gpu_count
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.units import BITS_PER_BYTE, BYTES_PER_GB

Kind = Literal["tensor", "context", "expert", "pipeline", "data"]
BACKWARD_SHARE = 2.0 / 3.0
"""Gradients can be exchanged behind the backward pass, two of three parts of the work."""
REPEATED_FORWARD = np.array(
    [{"none": 0.0, "selective": 0.0, "half": 0.5, "full": 1.0}[r] for r in RECOMPUTES]
)
"""Share of the forward pass that is computed again; the core of attention alone counts as none."""

for _link, _formula in {
    "scale_up": "bytes sent inside the scale-up domain / reached bandwidth, and latency",
    "pcie": "bytes sent over the host inside a node / reached bandwidth",
    "scale_out": "bytes sent between nodes / reached bandwidth, and latency",
}.items():
    define_quantity(
        f"training_{_link}_communication_s_per_step", unit="s", per="gpu", formula=_formula
    )
define_quantity(
    "training_exposed_communication_s_per_step",
    unit="s",
    per="gpu",
    formula="communication less what computation hides of it",
)
define_quantity(
    "training_step_s",
    unit="s",
    per="run",
    formula="global batch tokens / (tokens/s per GPU · GPUs)",
)


@dataclass(frozen=True)
class Volume:
    """What exchanges are counted from: an architecture's sums over all layers."""

    sequence_tokens: int
    hidden_size: int
    layer_count: int
    mixture_layer_count: int
    key_value_width: float
    routed_hidden_width: float
    experts_per_token: int
    divided_parameter_count: float
    """Weights that tensor parallelism divides, embedding and head with them."""
    replicated_parameter_count: float
    routed_parameter_count: float
    weight_bytes: float = communication.ELEMENT_BYTES
    gradient_bytes: float = communication.ELEMENT_BYTES
    trained_fraction: float = 1.0
    """Share of the weights that has gradients: 0 for adapters, whose own are few."""


@dataclass(frozen=True)
class Exchanges:
    """What one GPU sends over which link, kind by kind, for one layout or many."""

    volume: Volume
    links: Links
    """As exchanges inside layers reach them."""
    gather_links: Links
    """As gathering weights and reducing gradients reaches them."""

    @property
    def gradient_bytes(self) -> float:
        """Bytes of gradients for a weight. [B]"""
        return self.volume.gradient_bytes * self.volume.trained_fraction

    def tensor(self, axes: LayoutAxes, tokens: Any) -> Sent:
        """All-reduces inside all layers."""
        sent = communication.tensor_parallel_bytes_per_step(
            tokens=tokens,
            hidden_size=self.volume.hidden_size,
            layer_count=self.volume.layer_count,
            tensor_parallel=axes.tensor,
            full_recompute=REPEATED_FORWARD[axes.recompute],
            sequence_parallel=axes.sequence_parallel,
        )
        return self.links.ring(tensor_group(axes), sent)

    def context(self, axes: LayoutAxes, tokens: Any) -> Sent:
        """Keys and values of all layers, from rank to rank."""
        sent = communication.context_parallel_bytes_per_step(
            tokens=tokens,
            key_value_width=self.volume.key_value_width,
            tensor_parallel=axes.tensor,
            context_parallel=axes.context,
        )
        return self.links.chain(context_group(axes), sent)

    def experts(self, axes: LayoutAxes, tokens: Any) -> Sent:
        """Rows to the experts of all layers and back."""
        group = expert_group(axes)
        near, far = (
            communication.expert_parallel_bytes_per_step(
                tokens=tokens,
                routed_hidden_width=self.volume.routed_hidden_width,
                tensor_parallel=axes.tensor,
                near_rank_count=ranks,
                node_count=nodes,
                experts_per_token=self.volume.experts_per_token,
            )
            for ranks, nodes in (
                (self.links.near_rank_count(group), 1),
                (1, self.links.far_count(group)),
            )
        )
        return self.links.sent(group, near, far)

    def handed(self, axes: LayoutAxes, tokens: Any) -> Sent:
        """Activations to the next stage, gradients to the one before."""
        sent = communication.pipeline_parallel_bytes_per_step(
            tokens=tokens,
            hidden_size=self.volume.hidden_size,
            tensor_parallel=axes.tensor,
            pipeline_parallel=axes.pipeline,
            virtual_pipeline_stages=axes.virtual,
        )
        return self.links.chain(stage_group(axes), sent)

    def held(self, axes: LayoutAxes) -> tuple[Any, Any]:
        """Weights on one GPU of a mean stage, unsharded: common ones, routed experts. [count]"""
        common = self.volume.divided_parameter_count / axes.tensor
        common = common + self.volume.replicated_parameter_count
        routed = self.volume.routed_parameter_count / axes.expert_division
        return common / axes.pipeline, routed / axes.pipeline

    def shared(self, axes: LayoutAxes) -> tuple[Sent, Sent]:
        """Weights and gradients of one step among the GPUs that share their state.

        Under a pipeline stacks gather and reduce once a step, not for each micro-batch.
        """
        groups = shard_groups(axes, self.links.node_gpu_count)
        rounds = np.where(np.greater(axes.pipeline, 1), 1, axes.micro_batch_count)
        gathered = np.where(axes.zero_stage >= 2, 1.0, self.volume.trained_fraction)
        common, routed = (
            self.gather_links.ring(
                group,
                communication.data_parallel_bytes_per_step(
                    weight_bytes=held * gathered * self.volume.weight_bytes,
                    gradient_bytes=held * self.gradient_bytes,
                    rank_count=group.rank_count,
                    zero_stage=axes.zero_stage,
                    micro_batch_count=rounds,
                ),
            )
            for group, held in zip(groups, self.held(axes), strict=True)
        )
        return common, routed

    def copied(self, axes: LayoutAxes) -> tuple[Sent, Sent]:
        """Gradients once a step between nodes that keep copies under hybrid sharding."""
        shards = shard_groups(axes, self.links.node_gpu_count)
        groups = copy_groups(axes, self.links.node_gpu_count)
        is_copied = np.equal(axes.sharding, HYBRID)
        common, routed = (
            self.gather_links.ring(
                group,
                is_copied
                * communication.ring_all_reduce_bytes(
                    buffer_bytes=held / shard.rank_count * self.gradient_bytes,
                    rank_count=group.rank_count,
                ),
            )
            for shard, group, held in zip(shards, groups, self.held(axes), strict=True)
        )
        return common, routed

    def step(self, axes: LayoutAxes) -> dict[Kind, tuple[Sent, ...]]:
        """Everything that one GPU of a mean stage sends in a step."""
        sequences = axes.micro_batch_sequences * axes.micro_batch_count
        tokens = sequences * self.volume.sequence_tokens / axes.context
        stage = 1.0 / axes.pipeline
        return {
            "tensor": (self.tensor(axes, tokens).times(stage),),
            "context": (self.context(axes, tokens).times(stage),),
            "expert": (self.experts(axes, tokens).times(stage),),
            "pipeline": (self.handed(axes, tokens),),
            "data": (*self.shared(axes), *self.copied(axes)),
        }

    def collective_count(self, axes: LayoutAxes) -> Any:
        """Collectives inside the layers of one step, each with its latency. [count]"""
        each = 4.0 + 2.0 * REPEATED_FORWARD[axes.recompute]
        tensor = np.where(axes.tensor > 1, each * self.volume.layer_count, 0)
        expert = np.where(axes.expert > 1, 4 * self.volume.mixture_layer_count, 0)
        return (tensor + expert) / axes.pipeline * axes.micro_batch_count


@dataclass(frozen=True)
class Traffic:
    """One step on the network, for one layout or many."""

    sent: Mapping[Kind, tuple[Sent, ...]]
    latency_s: Any
    exposed_s: Any

    @property
    def link_s(self) -> dict[Link, Any]:
        """Time for which each link is busy. [s]"""
        busy: dict[Link, Any] = {"scale_up": 0.0, "pcie": 0.0, "scale_out": 0.0}
        for parts in self.sent.values():
            for link, _, seconds in (entry for part in parts for entry in part.by_link()):
                busy[link] = busy[link] + seconds
        return busy

    def collectives(self) -> Iterator[tuple[Kind, Link, float, float]]:
        """Bytes and seconds of each kind on each link that it crosses, of one layout."""
        for kind, parts in self.sent.items():
            for entries in zip(*(part.by_link() for part in parts), strict=True):
                sent = sum(float(moved) for _, moved, _ in entries)
                if sent > 0:
                    yield kind, entries[0][0], sent, sum(float(seconds) for *_, seconds in entries)

    def publish(self, step_s: float, recorder: Recorder) -> None:
        """Record what one layout sends and how long its step takes."""
        recorder.note("training_step_s", step_s)
        for kind, parts in self.sent.items():
            moved = sum(float(part.near_bytes + part.far_bytes) for part in parts)
            recorder.note(f"{kind}_parallel_bytes_per_step", moved)
        for link, busy in self.link_s.items():
            latency = float(self.latency_s) if link == "scale_up" else 0.0
            if link != "pcie" or busy > 0:
                recorder.note(f"training_{link}_communication_s_per_step", float(busy) + latency)
        recorder.note("training_exposed_communication_s_per_step", float(self.exposed_s))


@dataclass(frozen=True)
class NetworkModel:
    """The network's share of a step where its terms are not known one by one."""

    run: TrainingRun
    parts: ModelParts
    state: StateBytes
    gpu: Gpu
    scale_out_bytes_per_s: float
    """One GPU's adapter, one direction."""
    experts_per_token: int = 1

    @cached_property
    def volume(self) -> Volume:
        """What the exchanges are counted from."""
        parts = self.parts
        # A tied head is the embedding: its gradients travel with the embedding's.
        head = 0 if parts.is_tied else parts.output_parameter_count
        outer = parts.input_parameter_count + head
        return Volume(
            sequence_tokens=self.run.sequence_length_tokens,
            hidden_size=parts.hidden_size,
            layer_count=parts.layer_count,
            mixture_layer_count=parts.mixture_layer_count,
            key_value_width=parts.key_value_width,
            routed_hidden_width=parts.routed_hidden_width,
            experts_per_token=self.experts_per_token,
            divided_parameter_count=parts.divided_parameter_count + outer,
            replicated_parameter_count=parts.replicated_parameter_count,
            routed_parameter_count=parts.routed_parameter_count,
            weight_bytes=min(self.state.weight, communication.ELEMENT_BYTES),
            gradient_bytes=self.state.gradient,
            trained_fraction=1.0 if self.run.adapter is None else 0.0,
        )

    def step_s(self, axes: LayoutAxes, rate: Any) -> Any:
        """Time of one optimizer step at a speed of tokens per second and GPU. [s]"""
        return self.run.global_batch_tokens / (rate * axes.gpu_count)

    def traffic(self, axes: LayoutAxes, rate: Any, recorder: Recorder) -> Traffic:
        """One step on each link, and what computation cannot hide."""
        links = self._links(recorder)
        exchanges = Exchanges(self.volume, links, links)
        sent = exchanges.step(axes)
        alone = {kind: sum(part.seconds for part in parts) for kind, parts in sent.items()}
        latency = exchanges.collective_count(axes)
        latency = latency * recorder.assume("training_collective_latency_s").value
        gradients = communication.exposed_s(
            communication_s=alone.pop("data"), overlappable_s=self._hideable_s(axes, rate, recorder)
        )
        return Traffic(sent, latency, sum(alone.values()) + latency + gradients)

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

    def _hideable_s(self, axes: LayoutAxes, rate: Any, recorder: Recorder) -> Any:
        """Computation behind which gradients, or gathered weights, can travel. [s]

        Gradients that are exchanged once a step wait for the last micro-batch's backward pass.
        """
        last_only = np.where(axes.zero_stage >= 2, 1, axes.micro_batch_count)
        share = np.where(axes.zero_stage >= 3, 1.0, BACKWARD_SHARE) / last_only
        overlap = recorder.assume("training_overlap_fraction").value
        return overlap * share * self.step_s(axes, rate)

    def _links(self, recorder: Recorder) -> Links:
        """Bandwidth that one GPU reaches towards its neighbours and towards other nodes."""
        up = positive(recorder, "training_link_fraction", "scale_up").value
        out = positive(recorder, "training_link_fraction", "scale_out").value
        return Links(
            domain_gpu_count=scale_up_gpu_count(self.gpu),
            node_gpu_count=self.gpu.node_gpu_count,
            scale_up_bytes_per_s=up * (self.gpu.scale_up_bytes_per_s or self.scale_out_bytes_per_s),
            scale_out_bytes_per_s=out * self.scale_out_bytes_per_s,
            pcie_bytes_per_s=pcie_bytes_per_s(
                self.gpu, lambda *name: positive(recorder, *name).value
            ),
        )


def scale_out_bytes_per_s(gpu: Gpu, snapshot: CatalogSnapshot, recorder: Recorder) -> float:
    """Network bandwidth of one GPU between nodes: its node's, else its class's. [B/s]"""
    node = snapshot.node_of(gpu)
    rate = node.scale_out_gbit_per_s_per_gpu if node else None
    if rate is None:
        rate = positive(recorder, "scale_out_gbit_per_s_per_gpu", gpu.gpu_class).value
    elif node is not None:
        recorder.rest_on(node.key, node.provenance, "scale_out_gbit_per_s_per_gpu")
    return rate * BYTES_PER_GB / BITS_PER_BYTE
