"""Replicas on many kinds of GPU at once: one sweep over arrays instead of one for each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from service.core.errors import InvalidScenario
from service.core.replica.beside import NOTHING_BESIDE, Beside
from service.core.replica.constants import (
    ExchangeConstants,
    LinkConstants,
    MemoryConstants,
    ServingConstants,
    memory_constants,
    serving_constants,
    with_settings,
)
from service.core.replica.lookup import Lookup
from service.core.replica.passes import Traffic
from service.core.replica.search import (
    PIPELINE_DEGREES,
    Footprint,
    Objectives,
    Room,
    Sweep,
    engine_limit,
    legal_tensor_parallel,
    meets,
    room_of,
    spread_layouts,
)
from service.core.replica.shape import Device, Layout, ReplicaShape
from service.core.replica.speed import NO_SETTINGS, Speed
from service.core.scenarios.replica_settings import ReplicaLayout, ReplicaSettings

COLUMNS = 8
"""Fewest numbers of running requests that each round tries for a layout."""
CELLS = 2000
"""Steady states below which more of them take no longer: then more numbers are tried at once."""
NO_LINK = LinkConstants(latency_s=0.0, bandwidth_fraction=1.0, latency_growth=0.0)
NO_EXCHANGE = ExchangeConstants(latency_s=0.0, bytes_per_element=0.0)
Part = TypeVar("Part")


Reaches = Sequence[tuple[int, ...]]
"""GPUs that may talk in every layer, for each size of instance that a GPU is looked at in."""


@dataclass(frozen=True)
class ManyReplicas:
    """Layouts on many GPUs, one row each, and where every row came from."""

    shapes: Sequence[ReplicaShape]
    gpu_index: Any
    """Place of each row's GPU among the shapes."""
    tried: Sweep
    """Steady states from one request to the most, whether or not the rows find room."""
    found: Sweep
    """One column: the most requests that meet the objectives, or one where none do."""

    def rows_of(self, place: int, reach: int | None = None) -> Any:
        """Rows of one GPU that fit into memory, of one stage if any of these does.

        A group of GPUs that talks in every layer has at most `reach` of them.
        """
        layout, fits = self.found.layout, self.found.room.fits
        rows = np.flatnonzero((self.gpu_index == place) & fits)
        if reach is not None:
            rows = rows[layout.expert_ranks[rows] <= reach]
        single = rows[layout.pipeline_parallel[rows] == 1]
        return single if single.size else rows

    def of(self, place: int, reach: int | None = None) -> Sweep:
        """Layouts of one GPU that hold its weights and one long sequence, at all numbers tried."""
        return taken_rows(self.tried, self.rows_of(place, reach))

    def best_of(self, place: int, reach: int | None = None) -> Sweep:
        """The same layouts at the most requests that meet the objectives."""
        return taken_rows(self.found, self.rows_of(place, reach))

    def roomiest(self, place: int) -> tuple[float, float]:
        """What the weights, engine and one long sequence take at least, and what there is. [B]"""
        room, rows = self.found.room, np.flatnonzero(self.gpu_index == place)
        needed = (room.weight_bytes + room.overhead_bytes + room.tail_sequence_bytes)[rows]
        return float(needed.min()), float(self.shapes[place].available_bytes)


def taken_rows(found: Sweep, rows: Any) -> Sweep:
    """Some rows of a sweep."""
    count = len(found.running)
    return Sweep(
        found.layout.taken(rows),
        found.running[rows],
        _taken(found.state, rows, count),
        _taken(found.room, rows, count),
        found.slots[rows],
    )


def stacked(parts: Sequence[Part]) -> Part:
    """Dataclasses of numbers as one dataclass of arrays, one place for each part."""
    found: Part = _stacked(parts)
    return found


def _stacked(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if not is_dataclass(first) or isinstance(first, type):
        return np.array(parts, dtype=float)
    merged = {
        each.name: _stacked([getattr(part, each.name) for part in parts])
        for each in fields(first)
        if getattr(first, each.name) is not None
    }
    return replace(first, **merged)


def _taken(value: Any, rows: Any, count: int) -> Any:
    """Rows of every array of a dataclass; numbers that hold for all rows stay as they are."""
    return _mapped(value, lambda x: x[rows] if np.ndim(x) and len(x) == count else x)


def _one_column(found: Sweep, columns: Any) -> Sweep:
    """A sweep at one of the numbers of requests that each row was tried at."""
    rows = np.arange(columns.size)

    def column(value: Any) -> Any:
        is_wide = np.ndim(value) == 2 and value.shape[1] > 1
        return value[rows, columns][:, None] if is_wide else value

    return replace(found, running=column(found.running), state=_mapped(found.state, column))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A dataclass of numbers and arrays with each of them changed."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _mapped(getattr(value, each.name), change) for each in fields(value)}
        return type(value)(**parts)
    return change(value)


def _linked(constants: ServingConstants) -> ServingConstants:
    """Links that a GPU does not have stand in as free, so that arrays of all GPUs are whole."""
    exchange = constants.exchange or (NO_EXCHANGE if constants.experts is not None else None)
    return replace(
        constants,
        scale_up=constants.scale_up or NO_LINK,
        pcie=constants.pcie or NO_LINK,
        exchange=exchange,
    )


@dataclass(frozen=True)
class _Known:
    """What many GPUs share, looked up once: legal degrees by reach, constants by class and mode."""

    look: Lookup
    settings: ReplicaSettings
    legal: dict[Any, tuple[tuple[int, ...], Layout]] = field(default_factory=dict)
    speed: dict[Any, ServingConstants] = field(default_factory=dict)
    memory: dict[Any, MemoryConstants] = field(default_factory=dict)

    def layouts(self, shape: ReplicaShape) -> tuple[tuple[int, ...], Layout]:
        """Legal degrees of tensor parallelism, and layouts of one stage."""
        gpu = shape.gpu
        is_hosted = gpu.pcie_gb_per_s_per_direction is not None
        key = (shape.scale_up_gpu_count, shape.instance_reach, gpu.node_gpu_count, is_hosted)
        if key not in self.legal:
            degrees = legal_tensor_parallel(shape)
            self.legal[key] = degrees, spread_layouts(shape, degrees)
        return self.legal[key]

    def constants(self, shape: ReplicaShape) -> tuple[ServingConstants, MemoryConstants]:
        """Constants of speed and memory."""
        degrees, layout = self.layouts(shape)
        groups = tuple(set(layout.expert_ranks[layout.data_parallel > 1].tolist()))
        needs = shape.needs(degrees, has_stages=True, expert_ranks=groups)
        gpu = shape.gpu
        links = (needs.uses_link("scale_up"), needs.uses_link("pcie"))
        key = (gpu.gpu_class, shape.weight_precision, *links, bool(groups))
        if key not in self.speed:
            constants = serving_constants(self.look, gpu, needs)
            self.speed[key] = _linked(with_settings(constants, self.settings))
        card = (gpu.gpu_class, gpu.memory_gb, len(degrees) > 1)
        if card not in self.memory:
            self.memory[card] = memory_constants(self.look, gpu, needs)
        return self.speed[key], self.memory[card]

    def single_stages(self, shapes: Sequence[ReplicaShape]) -> tuple[Layout, Any]:
        """Legal layouts of one stage of every shape, and each one's place among the shapes."""
        layouts = [self.layouts(shape)[1] for shape in shapes]
        index = np.repeat(np.arange(len(shapes)), [each.tensor_parallel.size for each in layouts])
        return Layout(
            np.concatenate([each.tensor_parallel for each in layouts]),
            np.concatenate([each.pipeline_parallel for each in layouts]),
            np.concatenate([each.data_parallel for each in layouts]),
        ), index


def _with_stages(layout: Layout, index: Any, cut: Any, layer_count: int) -> tuple[Layout, Any]:
    """The layouts, and those rows that are cut in each number of stages beside them."""
    stages = [p for p in PIPELINE_DEGREES if p <= layer_count]
    tensor, pipeline, data = (
        np.concatenate((column, *(column[cut] * (p if is_stage else 1) for p in stages)))
        for column, is_stage in (
            (layout.tensor_parallel, False),
            (layout.pipeline_parallel, True),
            (layout.data_parallel, False),
        )
    )
    return Layout(tensor, pipeline, data), np.concatenate((index, *(index[cut] for _ in stages)))


def _unroomed(layout: Layout, index: Any, fits: Any, reaches: Reaches) -> Any:
    """Rows of GPUs on which, within some reach, no layout of one stage fits."""
    cut = np.zeros(index.size, dtype=bool)
    for place, asked in enumerate(reaches):
        own = index == place
        for reach in asked:
            within = own & (layout.expert_ranks <= reach)
            if not np.any(fits & within):
                cut |= within & (layout.data_parallel == 1)
    return np.flatnonzero(cut)


def sweep_many(
    shapes: Sequence[ReplicaShape],
    *,
    look: Lookup,
    traffic: Traffic,
    objectives: Objectives,
    settings: ReplicaSettings = NO_SETTINGS,
    compute_factor: float = 1.0,
    beside: Beside = NOTHING_BESIDE,
    reaches: Reaches | None = None,
    columns: int | None = None,
) -> ManyReplicas:
    """Every legal layout of one architecture on many GPUs, at the most requests that it may run.

    Stages are tried only where no layout of one stage fits.

    Args:
        shapes: The architecture in its formats on each GPU.
        look: Constants of the engine.
        traffic: Lengths, and how full replicas are planned to be.
        objectives: Latencies to hold.
        settings: Layout, speculation and the like.
        compute_factor: Speed of compute under a power cap.
        beside: Draft model and adapters of one replica.
        reaches: For each shape the sizes of group that instances allow; its own reach when None.
        columns: Numbers of running requests that are tried for each layout at first.

    Raises:
        NoConstants: If the catalog holds none of a GPU's class.
        InvalidScenario: If no finite speed follows from these sizes.
    """
    known = _Known(look, settings)
    pairs = [known.constants(shape) for shape in shapes]
    fleet = _Fleet(shapes, pairs, traffic, look, settings, compute_factor, beside)
    if settings.layout is not None:
        index = np.arange(len(shapes))
        layout = _repeated(settings.layout, index.size)
    else:
        layout, index = known.single_stages(shapes)
        reaches = reaches or [(shape.instance_reach,) for shape in shapes]
        room = fleet.room(layout, index)
        cut = _unroomed(layout, index, room.fits, reaches)
        if not cut.size:
            return fleet.narrowed(layout, index, room, objectives, columns or COLUMNS)
        layers = shapes[0].architecture.num_hidden_layers
        layout, index = _with_stages(layout, index, cut, layers)
    room = fleet.room(layout, index)
    return fleet.narrowed(layout, index, room, objectives, columns or COLUMNS)


def _repeated(layout: ReplicaLayout, count: int) -> Layout:
    return Layout(
        np.full(count, layout.tensor_parallel),
        np.full(count, layout.pipeline_parallel),
        np.full(count, layout.attention_data_parallel),
    )


@dataclass(frozen=True)
class _Fleet:
    """GPUs and their constants, as arrays for any choice of rows."""

    shapes: Sequence[ReplicaShape]
    pairs: Sequence[tuple[ServingConstants, MemoryConstants]]
    traffic: Traffic
    look: Lookup
    settings: ReplicaSettings
    compute_factor: float
    beside: Beside

    def room(self, layout: Layout, index: Any) -> Room:
        """Memory of the fullest GPU of each row."""
        memory = _taken(stacked([memory for _, memory in self.pairs]), index, len(self.pairs))
        memory = replace(memory, block_tokens=self.pairs[0][1].block_tokens)
        available: Any = np.array([shape.available_bytes for shape in self.shapes])[index]
        shape = replace(self.shapes[0], available_bytes=available)
        footprint = Footprint(shape, memory, self.traffic, self.beside)
        return room_of(footprint, layout, self.look.recorder.off())

    @cached_property
    def _stacks(self) -> tuple[ServingConstants, Device]:
        device = stacked([shape.device for shape in self.shapes]).slowed(self.compute_factor)
        return stacked([constants for constants, _ in self.pairs]), device

    def speed(self, index: Any) -> Speed:
        """Speed of each row, which stands beside a column of running requests."""
        column, count = index[:, None], len(self.shapes)
        constants, device = (_taken(stack, column, count) for stack in self._stacks)
        quiet = self.look.recorder.off()
        return Speed(self.shapes[0], constants, self.traffic, quiet, device, self.settings)

    def narrowed(
        self, layout: Layout, index: Any, room: Room, objectives: Objectives, columns: int
    ) -> ManyReplicas:
        """Closer and closer to the most requests of each row that meet the objectives."""
        most = engine_limit(self.pairs[0][1]) * layout.data_parallel
        limits = np.maximum(np.minimum(np.floor(room.running_limit), most), 1.0)
        low, high = np.ones_like(limits), limits + 1.0
        tried = self._at(layout, room, index, limits, _between(low, limits, columns))
        if not np.any(tried.state.is_finite):
            raise InvalidScenario("no finite speed follows from these sizes")
        low, high = _closer(tried, low, high, objectives)
        open_rows = np.flatnonzero((high - low > 1) & room.fits)
        while open_rows.size:
            part = taken_rows(tried, open_rows)
            count = max(CELLS // open_rows.size, COLUMNS)
            inner = _between(low[open_rows] + 1, high[open_rows] - 1, count)
            part = self._at(part.layout, part.room, index[open_rows], part.slots, inner)
            low[open_rows], high[open_rows] = _closer(
                part, low[open_rows], high[open_rows], objectives
            )
            open_rows = open_rows[high[open_rows] - low[open_rows] > 1]
        is_tried = tried.running == low[:, None]
        if is_tried.any(axis=1).all():
            found = _one_column(tried, is_tried.argmax(axis=1))
        else:
            found = self._at(layout, room, index, limits, low[:, None])
        return ManyReplicas(self.shapes, index, tried, found)

    def _at(self, layout: Layout, room: Room, index: Any, slots: Any, running: Any) -> Sweep:
        rows = layout.taken((slice(None), None))
        state = self.speed(index).at(rows, running, slots[:, None])
        return Sweep(layout, running, state, room, slots)


def _between(low: Any, high: Any, count: int) -> Any:
    """Whole numbers from one end to the other in equal ratios. [count]"""
    steps = np.linspace(0.0, 1.0, count)
    return np.round(low[:, None] * (high / low)[:, None] ** steps)


def _closer(found: Sweep, low: Any, high: Any, objectives: Objectives) -> tuple[Any, Any]:
    """The last number tried that holds and the next one that does not; one where none holds."""
    held, places = meets(found.state, objectives), np.arange(low.size)
    last = held.shape[1] - 1 - np.argmax(held[:, ::-1], axis=1)
    is_held = held.any(axis=1)
    above = np.append(found.running, high[:, None], axis=1)
    first = np.where(is_held, above[places, last + 1], found.running[:, 0])
    lowest = np.where(is_held, found.running[places, last], low)
    # Rounded numbers repeat where they are close: the next larger one counts.
    return lowest, np.maximum(first, lowest + 1)
