"""Which layouts of a replica fit into memory, and which of them serves a load with fewest GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.errors import InvalidScenario
from service.core.formulas import serving_memory
from service.core.recorder import Recorder
from service.core.replica.beside import NOTHING_BESIDE, Beside, draft_sequence_bytes
from service.core.replica.constants import MemoryConstants, Needs
from service.core.replica.passes import Traffic
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import SteadyState
from service.core.value import MAX_COUNT

PIPELINE_DEGREES = (2, 3, 4, 6, 8, 12, 16)
"""Stages that are tried where tensor parallelism alone does not hold the model."""
MAXIMUM_RUNNING = 8192
"""Running requests that the search looks at; no engine's default is near it."""

HeldReplicas = Callable[[Any], Any]
"""Replicas that are held at the busiest hour, from the units a second of one."""


@dataclass(frozen=True)
class Footprint:
    """What decides memory: a shape, the rules of its engine, and the lengths of its sequences."""

    shape: ReplicaShape
    memory: MemoryConstants
    traffic: Traffic
    beside: Beside = NOTHING_BESIDE
    """Draft model and adapters."""

    def sequence_bytes_per_gpu(self, recorder: Recorder, layout: Layout, tokens: Any) -> Any:
        """Cache of one sequence on a GPU of the fullest stage, the draft model's included. [B]"""
        own = self.shape.sequence_bytes_per_gpu(recorder, self.memory, layout, tokens)
        return own + self.draft_sequence_bytes_per_gpu(layout, tokens)

    def draft_sequence_bytes_per_gpu(self, layout: Layout, tokens: Any) -> Any:
        """The draft model's own cache of that sequence, its heads split as the weights. [B]"""
        if self.beside.draft is None:
            return 0.0
        return draft_sequence_bytes(
            replace(self.shape, architecture=self.beside.draft),
            layout.tensor_parallel,
            tokens,
            self.memory.block_tokens,
        )


@dataclass(frozen=True)
class Room:
    """Memory of one GPU on the fullest stage, and what sequences take of it. [B]"""

    weight_bytes: Any
    overhead_bytes: Any
    pool_bytes: Any
    tail_sequence_bytes: Any
    """A sequence at the 95th percentile of lengths."""
    running_sequence_bytes: Any
    """A running sequence of mean length, averaged over its answer."""
    data_parallel: Any = 1
    """Ranks that each hold sequences of their own."""

    @property
    def fits(self) -> Any:
        """True where one sequence at the 95th percentile finds room."""
        return self.pool_bytes >= np.maximum(self.tail_sequence_bytes, 1.0)

    @property
    def running_limit(self) -> Any:
        """Requests that the cache holds at once, not rounded. [count]"""
        per_rank = self.pool_bytes / np.maximum(self.running_sequence_bytes, 1.0)
        return per_rank * self.data_parallel


@dataclass(frozen=True)
class Objectives:
    """Latency to hold, infinite where none is asked for. [s]"""

    ttft_p95_s: float
    tpot_mean_s: float


@dataclass(frozen=True)
class Sweep:
    """Steady states of layouts (rows) at rising numbers of running requests (columns)."""

    layout: Layout
    running: Any
    state: SteadyState
    room: Room
    slots: Any = None
    """Requests that each layout can hold at once."""


@dataclass(frozen=True)
class Choice:
    """One layout and the requests that it runs at once."""

    tensor_parallel: int
    pipeline_parallel: int
    running: int
    cache_limit: int
    """Requests that the cache holds at once."""
    data_parallel: int = 1
    prefill_copies: int = 0
    """Copies of the layout that read prompts alone; 0 where each copy does both."""
    decode_copies: int = 1
    """Copies that make answers."""

    @property
    def gpu_count(self) -> int:
        """GPUs of one replica, all its copies. [count]"""
        return int(self.layout.gpu_count) * (self.prefill_copies + self.decode_copies)

    @property
    def concurrency(self) -> int:
        """Requests that make answers at once in one replica. [count]"""
        return self.running * self.decode_copies

    @property
    def is_memory_bound(self) -> bool:
        """True when more memory would run more requests."""
        return self.running >= self.cache_limit

    @property
    def layout(self) -> Layout:
        """The degrees alone."""
        return Layout(self.tensor_parallel, self.pipeline_parallel, self.data_parallel)

    def needs(self, shape: ReplicaShape) -> Needs:
        """Which constants this layout needs."""
        return shape.needs(
            (self.tensor_parallel,),
            has_stages=self.pipeline_parallel > 1,
            expert_ranks=(int(self.layout.expert_ranks),) if self.data_parallel > 1 else (),
        )

    def slots(self, memory: MemoryConstants) -> float:
        """Requests that the replica can hold at once. [count]"""
        return max(min(self.cache_limit, engine_limit(memory) * self.data_parallel), self.running)


def legal_tensor_parallel(shape: ReplicaShape) -> tuple[int, ...]:
    """Degrees that divide all heads, inside the node or the scale-up domain.

    Key and value heads are divided, or copied a whole number of times.
    """
    gpu, architecture = shape.gpu, shape.architecture
    reach = shape.scale_up_gpu_count
    if gpu.pcie_gb_per_s_per_direction:
        reach = max(reach, min(gpu.node_gpu_count, shape.instance_reach))
    widths = architecture.head_counts or (architecture.hidden_size,)
    shards = {group.attention.cache_shard_count for group in architecture.layer_groups}
    return tuple(
        t
        for t in range(1, min(reach, *widths) + 1)
        if all(w % t == 0 for w in widths) and all(s % t == 0 or t % s == 0 for s in shards)
    )


def room_of(footprint: Footprint, layout: Layout, recorder: Recorder) -> Room:
    """Memory of the fullest GPU under one layout or many."""
    shape, memory, traffic = footprint.shape, footprint.memory, footprint.traffic
    weights = shape.weight_bytes_per_gpu(recorder, layout)
    weights = weights + footprint.beside.weight_bytes / layout.tensor_parallel
    overhead, pool = shape.pool_bytes_per_gpu(recorder, memory, layout, weights)
    share = memory.allocated_output_fraction
    running = traffic.input_tokens_mean + share * traffic.output_tokens_mean
    quiet = recorder.off()
    return Room(
        weight_bytes=weights,
        overhead_bytes=overhead,
        pool_bytes=pool,
        tail_sequence_bytes=footprint.sequence_bytes_per_gpu(
            quiet, layout, traffic.sequence_tokens_p95
        ),
        running_sequence_bytes=footprint.sequence_bytes_per_gpu(quiet, layout, running),
        data_parallel=layout.data_parallel,
    )


def candidate_layouts(
    degrees: tuple[int, ...], stages: tuple[int, ...], data_ranks: tuple[int, ...] = (1,)
) -> Layout:
    """Every combination of degrees as flat arrays."""
    rows = np.array([(t, p, d) for d in data_ranks for p in stages for t in degrees]).reshape(-1, 3)
    return Layout(rows[:, 0], rows[:, 1], rows[:, 2])


def legal_data_parallel(shape: ReplicaShape) -> tuple[int, ...]:
    """Ranks that may attend to sequences of their own: powers of two within the scale-up link.

    Architectures with experts only: for others such ranks are replicas of their own.
    """
    reach = min((shape.scale_up_gpu_count, *shape.architecture.expert_counts))
    if not shape.architecture.is_mixture:
        return (1,)
    return tuple(2**n for n in range(reach.bit_length()))


def spread_layouts(shape: ReplicaShape, degrees: tuple[int, ...]) -> Layout:
    """Layouts of one stage: tensor parallelism, alone or beside ranks with their own sequences."""
    layout = candidate_layouts(degrees, (1,), legal_data_parallel(shape))
    ranks, experts = layout.expert_ranks, np.array(shape.architecture.expert_counts or (1,))
    is_even = np.all(experts[:, None] % ranks == 0, axis=0) & (ranks <= shape.scale_up_gpu_count)
    return layout.taken(np.flatnonzero((layout.data_parallel == 1) | is_even))


def fitting_layouts(footprint: Footprint, recorder: Recorder) -> tuple[Layout, Room]:
    """Layouts that hold the weights and one long sequence; stages only where they are needed.

    Where none fits, the roomiest one alone.
    """
    degrees = legal_tensor_parallel(footprint.shape)
    layers = footprint.shape.architecture.num_hidden_layers
    stages = tuple(p for p in PIPELINE_DEGREES if p <= layers)
    quiet = recorder.off()
    layout = spread_layouts(footprint.shape, degrees)
    room = room_of(footprint, layout, quiet)
    if not np.any(room.fits) and stages:
        layout = candidate_layouts(degrees, stages)
        room = room_of(footprint, layout, quiet)
    missing = room.tail_sequence_bytes + room.weight_bytes + room.overhead_bytes
    roomiest = np.atleast_1d(np.argmin(missing))
    kept = np.flatnonzero(room.fits) if np.any(room.fits) else roomiest
    layout = layout.taken(kept)
    return layout, room_of(footprint, layout, quiet)


def smallest_layout(footprint: Footprint, recorder: Recorder) -> Layout | None:
    """The layout of the fewest GPUs that holds the weights and one long sequence."""
    layouts, room = fitting_layouts(footprint, recorder)
    if not np.any(room.fits):
        return None
    fits = np.flatnonzero(room.fits)
    fewest = fits[np.argmin(layouts.gpu_count[fits])]
    return Layout(
        int(layouts.tensor_parallel[fewest]),
        int(layouts.pipeline_parallel[fewest]),
        int(layouts.data_parallel[fewest]),
    )


def engine_limit(memory: MemoryConstants) -> float:
    """Requests that the engine runs at once.

    Raises:
        InvalidScenario: If an override asks for more than the search looks at.
    """
    limit = float(memory.running_requests_maximum)
    if not 1 <= limit <= MAXIMUM_RUNNING:
        raise InvalidScenario(
            f"running_requests_maximum is {limit:g}; it must lie between 1 and {MAXIMUM_RUNNING}",
            pointer="/scenario/assumption_overrides",
        )
    return float(np.floor(limit))


def packed_gpu_count(gpu_count: Any, gpu_multiple: int) -> Any:
    """GPUs that one replica takes up where whole instances of `gpu_multiple` are held. [count]"""
    per_instance = gpu_multiple / np.maximum(gpu_multiple // gpu_count, 1)
    instances = np.ceil(gpu_count / gpu_multiple) * gpu_multiple
    return np.where(gpu_count <= gpu_multiple, per_instance, instances)


def meets(state: SteadyState, objectives: Objectives) -> Any:
    """Where both objectives hold."""
    is_steady = state.is_finite & (state.tpot_mean_s <= objectives.tpot_mean_s)
    return is_steady & (state.ttft_p95_s <= objectives.ttft_p95_s)


def cheapest(
    found: Sweep,
    objectives: Objectives,
    gpu_multiple: int,
    held_replicas: HeldReplicas | None = None,
) -> Choice | None:
    """The layout that holds the fewest GPUs at the busiest hour, each at its most requests.

    None where no layout meets the objectives.

    Args:
        found: Layouts at rising numbers of requests.
        objectives: What must hold.
        gpu_multiple: GPUs that are rented or bought at once.
        held_replicas: Replicas held for capacities of one replica; None to weigh a unit of load.
    """
    held = meets(found.state, objectives)
    last = held.shape[1] - 1 - np.argmax(held[:, ::-1], axis=1)
    rows = np.arange(last.size)
    copies = np.broadcast_to(found.state.copies, held.shape)[rows, last]
    best = cheapest_rows(
        np.flatnonzero(held.any(axis=1)),
        gpus=found.layout.gpu_count * copies,
        rate=found.state.units_per_s[rows, last],
        gpu_multiple=gpu_multiple,
        held_replicas=held_replicas,
    )
    if best.size == 0:
        return None
    return choice_at(found, int(best[0]), int(last[best[0]]))


def cheapest_rows(
    rows: Any,
    *,
    gpus: Any,
    rate: Any,
    gpu_multiple: Any,
    held_replicas: HeldReplicas | None = None,
    group: Any = 0,
) -> Any:
    """Place of the row with the fewest held GPUs in each group, the groups in rising order.

    Among equals the fewest GPUs for a unit of load win, then the smaller replica. For each row more
    load never holds fewer GPUs, and so neither does the fewest of all.
    """
    taken = packed_gpu_count(gpus, gpu_multiple)
    cost = taken / rate
    held = cost if held_replicas is None else taken * held_replicas(rate)
    groups = np.broadcast_to(group, np.shape(gpus))
    order = rows[np.lexsort((gpus[rows], cost[rows], held[rows], groups[rows]))]
    return order[np.unique(groups[order], return_index=True)[1]]


def choice_at(found: Sweep, row: int, column: int) -> Choice:
    """The layout of a row with the requests of a column."""
    layout, cell = found.layout, (row, column)
    shape = found.running.shape
    return Choice(
        tensor_parallel=int(layout.tensor_parallel[row]),
        pipeline_parallel=int(layout.pipeline_parallel[row]),
        running=int(found.running[cell]),
        cache_limit=int(np.minimum(found.room.running_limit[row], MAX_COUNT)),
        data_parallel=int(np.broadcast_to(layout.data_parallel, shape[:1])[row]),
        prefill_copies=int(np.broadcast_to(found.state.prefill_copies, shape)[cell]),
        decode_copies=int(np.broadcast_to(found.state.decode_copies, shape)[cell]),
    )


def sequence_capacity(
    footprint: Footprint, layout: Layout, pool_bytes: Any, recorder: Recorder
) -> tuple[float, float]:
    """Tokens in the pool, and whole sequences at the 95th percentile of lengths. [token, count]

    A pool's tokens are those of sequences of mean length, since layers with windows or a fixed
    state charge a long sequence less for each token than a short one.
    """
    memory, traffic = footprint.memory, footprint.traffic
    length = max(traffic.sequence_tokens_mean, 1.0)
    blocks = np.ceil(length / memory.block_tokens) * memory.block_tokens
    mean = footprint.sequence_bytes_per_gpu(recorder, layout, length)
    tail = footprint.sequence_bytes_per_gpu(recorder.off(), layout, traffic.sequence_tokens_p95)
    kept = recorder if mean > 0 else recorder.off()
    tokens = kept.evaluate(
        serving_memory.kv_cache_tokens_per_replica,
        pool_bytes=pool_bytes,
        bytes_per_token=mean / blocks,
        block_tokens=memory.block_tokens,
    )
    kept.evaluate(serving_memory.sequences_that_fit, pool_bytes=pool_bytes, bytes_per_sequence=mean)
    at_tail = serving_memory.sequences_that_fit(pool_bytes=pool_bytes, bytes_per_sequence=tail)
    return float(tokens), float(at_tail)
