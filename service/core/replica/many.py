"""Replicas on many kinds of GPU at once: one sweep over arrays instead of one for each kind."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from service.core.replica.constants import (
    ExchangeConstants,
    LinkConstants,
    MemoryConstants,
    ServingConstants,
    memory_constants,
    serving_constants,
)
from service.core.replica.lookup import Lookup
from service.core.replica.passes import Traffic
from service.core.replica.search import (
    PIPELINE_DEGREES,
    Footprint,
    Objectives,
    Room,
    Sweep,
    legal_data_parallel,
    legal_tensor_parallel,
    meets,
    room_of,
    spread_layouts,
)
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import Speed

COLUMNS = 14
"""Numbers of running requests that each round tries for a layout."""
ROUNDS = 2
NO_LINK = LinkConstants(latency_s=0.0, bandwidth_fraction=1.0)
NO_EXCHANGE = ExchangeConstants(latency_s=0.0, bytes_per_element=0.0)
Part = TypeVar("Part")


@dataclass(frozen=True)
class ManyReplicas:
    """Layouts on many GPUs, one row each, and where every row came from."""

    shapes: Sequence[ReplicaShape]
    gpu_index: Any
    """Place of each row's GPU among the shapes."""
    found: Sweep
    """Steady states of all rows, whether or not they find room."""

    def of(self, place: int) -> Sweep:
        """Layouts of one GPU that hold its weights and one long sequence."""
        found = self.found
        rows = np.flatnonzero((self.gpu_index == place) & found.room.fits)
        return Sweep(
            found.layout.taken(rows),
            found.running[rows],
            _taken(found.state, rows),
            _taken(found.room, rows),
            found.slots[rows],
        )

    def roomiest(self, place: int) -> tuple[float, float]:
        """What the weights, engine and one long sequence take at least, and the pool there. [B]"""
        room, rows = self.found.room, np.flatnonzero(self.gpu_index == place)
        needed = (room.weight_bytes + room.overhead_bytes + room.tail_sequence_bytes)[rows]
        return float(needed.min()), float(self.shapes[place].available_bytes)


def stacked(parts: Sequence[Part], index: Any) -> Part:
    """Dataclasses of numbers as one dataclass of arrays, one row for each place in `index`."""
    found: Part = _stacked(parts, index)
    return found


def _stacked(parts: Sequence[Any], index: Any) -> Any:
    first = parts[0]
    if not is_dataclass(first) or isinstance(first, type):
        return np.array(parts, dtype=float)[index]
    merged = {
        field.name: _stacked([getattr(part, field.name) for part in parts], index)
        for field in fields(first)
        if getattr(first, field.name) is not None
    }
    return replace(first, **merged)


def _taken(value: Any, rows: Any) -> Any:
    """Rows of every array of a dataclass; numbers that hold for all rows stay as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _taken(getattr(value, field.name), rows) for field in fields(value)}
        return replace(value, **parts)
    return value[rows] if np.ndim(value) and len(value) > 1 else value


def _linked(constants: ServingConstants) -> ServingConstants:
    """Links that a GPU does not have stand in as free, so that arrays of all GPUs are whole."""
    exchange = constants.exchange or (NO_EXCHANGE if constants.experts is not None else None)
    return replace(
        constants,
        scale_up=constants.scale_up or NO_LINK,
        pcie=constants.pcie or NO_LINK,
        exchange=exchange,
    )


@dataclass
class _Constants:
    """Constants of GPUs, looked up once for each class and mode."""

    look: Lookup
    speed: dict[Any, ServingConstants]
    memory: dict[Any, MemoryConstants]

    def of(self, shape: ReplicaShape) -> tuple[ServingConstants, MemoryConstants]:
        degrees, ranks = legal_tensor_parallel(shape), legal_data_parallel(shape)
        groups = tuple({t * d for t in degrees for d in ranks if d > 1})
        needs = shape.needs(degrees, has_stages=True, expert_ranks=groups)
        gpu = shape.gpu
        links = (needs.uses_link("scale_up"), needs.uses_link("pcie"))
        key = (gpu.gpu_class, shape.weight_precision, *links, bool(groups))
        if key not in self.speed:
            self.speed[key] = _linked(serving_constants(self.look, gpu, needs))
        card = (gpu.gpu_class, gpu.memory_gb, len(degrees) > 1)
        if card not in self.memory:
            self.memory[card] = memory_constants(self.look, gpu, needs)
        return self.speed[key], self.memory[card]


def _layouts(shapes: Sequence[ReplicaShape], *, with_stages: bool) -> tuple[Layout, Any]:
    """Legal layouts of every shape as flat arrays, and each one's place among the shapes."""
    rows: list[Any] = []
    for place, shape in enumerate(shapes):
        layout = spread_layouts(shape, legal_tensor_parallel(shape))
        found = np.stack((layout.tensor_parallel, layout.pipeline_parallel, layout.data_parallel))
        if with_stages:
            single = found[:, found[2] == 1]
            layers = shape.architecture.num_hidden_layers
            stages = [p for p in PIPELINE_DEGREES if p <= layers]
            scaled = [single * np.array([[1], [p], [1]]) for p in stages]
            found = np.concatenate([found, *scaled], axis=1)
        rows.append(np.vstack((found, np.full(found.shape[1], place))))
    tensor, pipeline, data, index = np.concatenate(rows, axis=1)
    return Layout(tensor, pipeline, data), index


def sweep_many(
    shapes: Sequence[ReplicaShape],
    *,
    look: Lookup,
    traffic: Traffic,
    objectives: Objectives,
    compute_factor: float = 1.0,
    rounds: int = ROUNDS,
) -> ManyReplicas:
    """Steady states of every legal layout of one architecture on many GPUs.

    Stages are tried only for GPUs on which no layout of one stage fits.

    Args:
        shapes: The architecture in its formats on each GPU.
        look: Constants of the engine.
        traffic: Lengths, and how full replicas are planned to be.
        objectives: Latencies that the numbers of running requests are narrowed down to.
        compute_factor: Speed of compute under a power cap.
        rounds: How often the numbers of running requests are narrowed down.

    Raises:
        NoConstants: If the catalog holds none of a GPU's class.
    """
    known = _Constants(look, {}, {})
    fleet = _Fleet(shapes, [known.of(shape) for shape in shapes], traffic, look)
    layout, index = _layouts(shapes, with_stages=False)
    room = fleet.room(layout, index)
    roomless = [place for place in range(len(shapes)) if not np.any(room.fits[index == place])]
    if roomless:
        layout, index = _layouts(shapes, with_stages=True)
        is_tried = (layout.pipeline_parallel == 1) | np.isin(index, roomless)
        kept = np.flatnonzero(is_tried)
        layout, index = layout.taken(kept), index[kept]
        room = fleet.room(layout, index)
    speed = fleet.speed(index, compute_factor)
    engine = float(fleet.pairs[0][1].running_requests_maximum)
    found = _narrowed(speed, (layout, room), engine, objectives, rounds)
    return ManyReplicas(shapes, index, found)


@dataclass(frozen=True)
class _Fleet:
    """GPUs and their constants, as arrays for any choice of rows."""

    shapes: Sequence[ReplicaShape]
    pairs: Sequence[tuple[ServingConstants, MemoryConstants]]
    traffic: Traffic
    look: Lookup

    def room(self, layout: Layout, index: Any) -> Room:
        """Memory of the fullest GPU of each row."""
        memory = stacked([memory for _, memory in self.pairs], index)
        memory = replace(memory, block_tokens=self.pairs[0][1].block_tokens)
        available: Any = np.array([shape.available_bytes for shape in self.shapes])[index]
        shape = replace(self.shapes[0], available_bytes=available)
        return room_of(Footprint(shape, memory, self.traffic), layout, self.look.recorder.off())

    def speed(self, index: Any, compute_factor: float) -> Speed:
        """Speed of each row, which stands beside a column of running requests."""
        column = index[:, None]
        constants = stacked([constants for constants, _ in self.pairs], column)
        devices = stacked([shape.device for shape in self.shapes], column)
        devices = replace(
            devices,
            layer_peak_flop_per_s=devices.layer_peak_flop_per_s * compute_factor,
            wide_peak_flop_per_s=devices.wide_peak_flop_per_s * compute_factor,
        )
        quiet = self.look.recorder.off()
        return Speed(self.shapes[0], constants, self.traffic, quiet, devices)


def _narrowed(
    speed: Speed,
    rows_and_room: tuple[Layout, Room],
    engine_maximum: float,
    objectives: Objectives,
    rounds: int,
) -> Sweep:
    """Rising numbers of requests for each layout, closer and closer to the last that holds."""
    layout, room = rows_and_room
    most = engine_maximum * layout.data_parallel
    limits = np.maximum(np.minimum(np.floor(room.running_limit), most), 1.0)
    rows = layout.taken((slice(None), None))
    low, high = np.ones_like(limits), limits
    steps = np.linspace(0.0, 1.0, COLUMNS)
    found: Sweep | None = None
    for _ in range(rounds):
        running = np.round(low[:, None] * (high / low)[:, None] ** steps)
        state = speed.at(rows, running, limits[:, None])
        found = Sweep(layout, running, state, room, limits)
        held = meets(state, objectives)
        last = held.shape[1] - 1 - np.argmax(held[:, ::-1], axis=1)
        places = np.arange(last.size)
        low = np.where(held.any(axis=1), running[places, last], 1.0)
        high = running[places, np.minimum(last + 1, held.shape[1] - 1)]
    if found is None:
        raise ValueError("at least one round is needed")
    return found
