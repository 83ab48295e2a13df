"""Which links the GPUs of a group cross, and how long an exchange keeps each of them busy.

Neighbours in a tensor-parallel group are neighbours in a node; then come context and data parallel
ranks, and pipeline stages last. The GPUs that share an expert are counted off in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from service.core.parallelism.axes import LayoutAxes

Link = Literal["scale_up", "pcie", "scale_out"]
"""Inside the scale-up domain; over the host inside a node; between nodes or domains."""


@dataclass(frozen=True)
class Sent:
    """What one GPU sends in exchanges of one group, by the link it crosses."""

    near_bytes: Any
    """To GPUs of its own node or domain."""
    far_bytes: Any
    """To others, over its own network adapter."""
    near_bytes_per_s: Any
    far_bytes_per_s: Any
    is_hosted: Any
    """True where GPUs of one node reach each other only over the host."""

    @property
    def near_s(self) -> Any:
        """Time on the link inside. [s]"""
        return self.near_bytes / self.near_bytes_per_s

    @property
    def far_s(self) -> Any:
        """Time on the network. [s]"""
        return self.far_bytes / self.far_bytes_per_s

    @property
    def seconds(self) -> Any:
        """Time alone: both links work at once. [s]"""
        return np.maximum(self.near_s, self.far_s)

    def times(self, share: Any) -> "Sent":
        """So many times the same."""
        return Sent(
            self.near_bytes * share,
            self.far_bytes * share,
            self.near_bytes_per_s,
            self.far_bytes_per_s,
            self.is_hosted,
        )

    def by_link(self) -> Iterator[tuple[Link, Any, Any]]:
        """Bytes and seconds on each link, for one layout or many."""
        hosted = np.where(self.is_hosted, 1.0, 0.0)
        yield "scale_up", (1.0 - hosted) * self.near_bytes, (1.0 - hosted) * self.near_s
        yield "pcie", hosted * self.near_bytes, hosted * self.near_s
        yield "scale_out", self.far_bytes, self.far_s


@dataclass(frozen=True)
class Group:
    """GPUs that exchange with one another: their number, and how far apart they stand."""

    rank_count: Any
    stride: Any
    """GPUs from one to the next."""
    gpu_count: Any = 0
    """GPUs that such groups fill side by side, where one may lie over the edge of a node."""

    @property
    def extent(self) -> Any:
        """GPUs from the first of a group to the first of the next. [count]"""
        return self.rank_count * self.stride


@dataclass(frozen=True)
class Links:
    """What joins the GPUs, each as far as collectives reach it."""

    domain_gpu_count: int
    """GPUs that share the scale-up link."""
    node_gpu_count: int
    scale_up_bytes_per_s: float
    scale_out_bytes_per_s: float
    """Of one GPU's adapter."""
    pcie_bytes_per_s: tuple[tuple[int, float], ...] = ()
    """Reached by collectives over so many GPUs of one node; empty where all share a link."""

    @property
    def near_gpu_count(self) -> int:
        """GPUs that reach each other without the network. [count]"""
        return max(self.domain_gpu_count, self.node_gpu_count)

    def near_rank_count(self, group: Group) -> Any:
        """Ranks of a group that stand in one node or domain, the fewest that do. [count]

        Groups that do not divide a node lie over its edge somewhere, and the slowest group sets the
        pace: ranks 6 to 8 of three in nodes of eight leave one alone.
        """
        near = np.clip(self.near_gpu_count // group.stride, 1, group.rank_count)
        if np.all(np.equal(group.gpu_count, 0)):
            return near
        # Edges cut groups at every multiple of the common divisor.
        is_cut_between = np.equal(self.near_gpu_count % group.stride, 0)
        common = np.gcd(self.near_gpu_count // group.stride, group.rank_count)
        fewest = np.where(is_cut_between, common, 1)
        return np.where(self._straddles(group), fewest, near)[()]

    def _straddles(self, group: Group) -> Any:
        """True where some of many groups side by side lie over the edge of a node or domain."""
        node, extent = self.near_gpu_count, group.extent
        is_whole = np.equal(node % extent, 0) | np.equal(extent % node, 0)
        return np.greater(group.gpu_count, node) & ~is_whole

    def far_count(self, group: Group) -> Any:
        """Nodes or domains over which a group spreads. [count]"""
        return np.ceil(group.rank_count / self.near_rank_count(group))

    def ring(self, group: Group, sent_bytes: Any) -> Sent:
        """A ring, or one ring for each rank of a node: their adapters share what leaves it.

        Of the links of a ring that pass through a node one leaves it, so an adapter carries the
        bytes over the ranks of the node, and the links inside carry the rest.
        """
        near = self.near_rank_count(group)
        far = np.where(near < group.rank_count, sent_bytes / near, 0.0)
        return self.sent(group, sent_bytes - far, far)

    def chain(self, group: Group, sent_bytes: Any) -> Sent:
        """From one rank to the next: the last of a node sends all of it over its own adapter."""
        is_far = self.near_rank_count(group) < group.rank_count
        return self.sent(
            group, np.where(is_far, 0.0, sent_bytes), np.where(is_far, sent_bytes, 0.0)
        )

    def sent(self, group: Group, near_bytes: Any, far_bytes: Any) -> Sent:
        """Bytes over the links that the ranks of a group have."""
        if not self.pcie_bytes_per_s:
            rate: Any = self.scale_up_bytes_per_s
            return Sent(near_bytes, far_bytes, rate, self.scale_out_bytes_per_s, False)
        extent = np.minimum(group.extent, self.near_gpu_count)
        is_hosted = np.greater(extent, self.domain_gpu_count)
        rate = np.where(is_hosted, self._pcie(extent), self.scale_up_bytes_per_s)
        return Sent(near_bytes, far_bytes, rate, self.scale_out_bytes_per_s, is_hosted)

    def _pcie(self, gpu_count: Any) -> Any:
        """Between the counts that were measured the rate is a power of the count. [B/s]"""
        counts, rates = zip(*self.pcie_bytes_per_s, strict=True)
        return np.exp(np.interp(np.log(gpu_count), np.log(counts), np.log(rates)))


def tensor_group(axes: LayoutAxes) -> Group:
    """GPUs that share every matrix of a layer."""
    return Group(axes.tensor, 1, axes.gpu_count)


def context_group(axes: LayoutAxes) -> Group:
    """GPUs that share a sequence."""
    return Group(axes.context, axes.tensor, axes.gpu_count)


def expert_group(axes: LayoutAxes) -> Group:
    """GPUs over which the experts of a layer are spread: each expert over its own tensor group."""
    return Group(axes.expert, axes.expert_division / axes.expert)


def stage_group(axes: LayoutAxes) -> Group:
    """Stages that hand activations on: as far apart as a stage is large."""
    return Group(axes.pipeline, axes.tensor * axes.data_group)


def shard_groups(axes: LayoutAxes, near_gpu_count: int) -> tuple[Group, Group]:
    """GPUs that share the state of common weights, and those that share the state of experts."""
    common = Group(axes.shard_count(near_gpu_count), axes.tensor)
    return common, Group(axes.expert_shard_count(near_gpu_count), axes.expert_division)


def copy_groups(axes: LayoutAxes, near_gpu_count: int) -> tuple[Group, Group]:
    """GPUs of different nodes that keep copies of one shard: more than one in hybrid sharding."""
    common, experts = shard_groups(axes, near_gpu_count)
    held = np.maximum(1, axes.tensor * axes.data_group // axes.expert_division)
    return (
        Group(axes.data_group / common.rank_count, common.stride * common.rank_count),
        Group(held / experts.rank_count, experts.stride * experts.rank_count),
    )
