"""A run as torchrun starts it: so many nodes, so many processes on each."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd
from typing import Final

from service.core.launch.line import Variable, Word
from service.core.parallelism import ParallelLayout
from service.core.scenarios.training_run import TrainingRun

HOST: Final = Variable("RENDEZVOUS_HOST", "name of one of the run's nodes, the same on all of them")


@dataclass(frozen=True)
class RunToStart:
    """A run of a plan with what its line needs."""

    asked: TrainingRun
    layout: ParallelLayout
    gpu_count: int
    node_gpu_count: int
    layer_count: int
    step_count: int

    @property
    def gpu_count_per_node(self) -> int:
        """GPUs of each node: as many as the nodes have, or as divide the run into equal ones."""
        return processes_per_node(self.gpu_count, self.node_gpu_count)

    @property
    def node_count(self) -> int:
        """Nodes of the run. [count]"""
        return self.gpu_count // self.gpu_count_per_node

    @property
    def batch_sequences(self) -> int:
        """Sequences of one optimizer step. [count]"""
        layout = self.layout
        return layout.data_parallel * layout.micro_batch_sequences * layout.micro_batch_count

    def torchrun(self) -> Iterable[Word]:
        """The words that stand before the program."""
        yield from ("torchrun", "--nnodes", self.node_count)
        yield from ("--nproc-per-node", self.gpu_count_per_node)
        if self.node_count == 1:
            yield "--standalone"
        else:
            yield from ("--rdzv-backend", "c10d", "--rdzv-endpoint", HOST)
            yield from ("--rdzv-id", self.asked.name)


def processes_per_node(gpu_count: int, node_gpu_count: int) -> int:
    """GPUs on each of equally used nodes. [count]"""
    if gpu_count <= node_gpu_count:
        return gpu_count
    return gcd(gpu_count, node_gpu_count)
