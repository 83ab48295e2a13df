"""The cheapest layout, offer and number of replicas of each GPU, and what they come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from service.core.estimates import Range
from service.core.formulas.finance import price_per_million_tokens
from service.core.hardware import Gpu
from service.core.replica.bands import band_factor, is_tight, residual_band
from service.core.replica.many import ManyReplicas
from service.core.replica.search import Choice, cheapest_rows, choice_at, meets
from service.core.replica.shape import ReplicaShape, instance_reach
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.serving.size_case import Offer, Sizing
from service.core.serving.size_types import SizeOption
from service.core.value import MAX_COUNT

MAXIMUM_PER_HOUR = 1e8
"""Bill of an hour above which nothing is ranked: no fleet is near it."""


@dataclass(frozen=True)
class Sized:
    """One GPU at its cheapest: where it stands among all rows, and the fleet that it takes."""

    place: int
    shape: ReplicaShape
    offer: Offer
    row: int
    choice: Choice
    held: float
    """Replicas held at the peak."""
    units_per_s: float
    """Requests per second of one full replica."""

    @property
    def gpus_per_unit(self) -> float:
        """GPUs for one request a second, before whole replicas and instances. [gpu·s]"""
        return self.choice.gpu_count / self.units_per_s

    @property
    def gpu_count(self) -> int:
        """GPUs of whole instances. [count]"""
        multiple = self.offer.gpu_multiple
        return int(-(-int(self.held) * self.choice.gpu_count // multiple) * multiple)

    @property
    def amount_per_hour(self) -> Decimal:
        """Rent of an hour."""
        return self.gpu_count * self.offer.price

    @property
    def reach(self) -> int:
        """GPUs that may talk in every layer in these instances. [count]"""
        return instance_reach(self.shape.gpu, self.offer.gpu_multiple)


def sized_gpus(
    sizing: Sizing, many: ManyReplicas, offers: Sequence[tuple[Offer, ...]]
) -> dict[int, Sized | float]:
    """The cheapest of each GPU by its place; GPUs where a fleet is beyond counting.

    Of every offer the layout with the fewest GPUs, as a plan on those instances takes it; then the
    offer with the smallest bill. GPUs that hold nothing within the objectives are left out.
    """
    pairs = _Pairs.of(many, offers)
    if pairs.row.size == 0:
        return {}
    state = many.found.state
    rate = state.units_per_s[pairs.row, 0]
    copies = np.broadcast_to(state.copies, many.found.running.shape)[pairs.row, 0]
    best = cheapest_rows(
        np.flatnonzero(meets(state, sizing.objectives)[pairs.row, 0]),
        gpus=many.found.layout.gpu_count[pairs.row] * copies,
        rate=rate,
        gpu_multiple=pairs.gpu_multiple,
        held_replicas=sizing.held,
        group=pairs.place * pairs.number.size + pairs.number,
    )
    found: dict[int, Sized | float] = {}
    for pair, replicas in zip(best, sizing.held(rate[best]), strict=True):
        place = int(pairs.place[pair])
        offer = offers[place][int(pairs.number[pair])]
        sized = _sized(many, place, offer, (int(pairs.row[pair]), float(replicas)))
        if place not in found or _is_cheaper(sized, found[place]):
            found[place] = sized
    return found


@dataclass(frozen=True)
class _Pairs:
    """Every row beside every offer whose instances can hold it."""

    place: Any
    """The GPU among all shapes."""
    number: Any
    """The offer among those of the GPU."""
    row: Any
    gpu_multiple: Any

    @classmethod
    def of(cls, many: ManyReplicas, offers: Sequence[tuple[Offer, ...]]) -> "_Pairs":
        parts = [np.zeros((4, 0), dtype=int)]
        for place, asked in enumerate(offers):
            for number, offer in enumerate(asked):
                reach = instance_reach(many.shapes[place].gpu, offer.gpu_multiple)
                rows = many.rows_of(place, reach)
                same = np.full((4, rows.size), [[place], [number], [0], [offer.gpu_multiple]])
                same[2] = rows
                parts.append(same)
        return cls(*np.concatenate(parts, axis=1))


def _is_cheaper(sized: Sized | float, other: Sized | float) -> bool:
    if not (isinstance(sized, Sized) and isinstance(other, Sized)):
        return isinstance(sized, Sized)
    return (sized.amount_per_hour, sized.gpu_count) < (other.amount_per_hour, other.gpu_count)


def _sized(
    many: ManyReplicas, place: int, offer: Offer, row_and_held: tuple[int, float]
) -> Sized | float:
    """One offer of one GPU, or the GPUs of a fleet that is beyond counting."""
    row, held = row_and_held
    choice = choice_at(many.found, row, 0)
    gpus = held * choice.gpu_count
    if not gpus * float(offer.price) < MAXIMUM_PER_HOUR or not gpus < MAX_COUNT:
        return gpus
    rate = float(many.found.state.units_per_s[row, 0])
    return Sized(place, many.shapes[place], offer, row, choice, held, rate)


def layout_of(choice: Choice) -> ReplicaLayout:
    """A chosen layout as an answer shows it."""
    return ReplicaLayout(
        tensor_parallel=choice.tensor_parallel,
        pipeline_parallel=choice.pipeline_parallel,
        attention_data_parallel=choice.data_parallel,
    )


def option_of(sizing: Sizing, many: ManyReplicas, sized: Sized) -> SizeOption:
    """What one GPU costs at the stated load."""
    traffic, gpu, choice = sizing.traffic, sized.shape.gpu, sized.choice
    total = price_per_million_tokens(
        price_per_hour=float(sized.amount_per_hour),
        tokens_per_s=sizing.mean * traffic.sequence_tokens_mean,
    )
    whole = total * traffic.sequence_tokens_mean
    share = _prompt_share(sizing, many, sized)
    power = _watts(sizing, gpu, sized.gpu_count)
    output, state = sizing.mean * traffic.output_tokens_mean, many.found.state
    return SizeOption(
        gpu=gpu.key,
        price_per_gpu_hour=sized.offer.price,
        price_source=sized.offer.source,
        gpu_count_per_instance=sized.offer.gpu_multiple,
        layout=layout_of(choice),
        prefill_copies=choice.prefill_copies,
        decode_copies=choice.decode_copies,
        gpu_count_per_replica=choice.gpu_count,
        running_requests=choice.concurrency,
        units_per_s_per_replica=_speed(sizing, sized, state.units_per_s, "units_residual_factor"),
        tpot_mean_s=_speed(sizing, sized, state.tpot_mean_s, "tpot_residual_factor")
        if traffic.output_tokens_mean > 1
        else None,
        ttft_p95_s=_speed(sizing, sized, state.ttft_p95_s, "loaded_ttft_residual_factor")
        if traffic.utilization_fraction < 1
        else None,
        held_replica_count=int(sized.held),
        gpu_count=sized.gpu_count,
        amount_per_hour=sized.amount_per_hour,
        cost_per_million_tokens=total,
        cost_per_million_input_tokens=whole * share / max(traffic.input_tokens_mean, 1.0),
        cost_per_million_output_tokens=whole * (1 - share) / traffic.output_tokens_mean,
        joules_per_output_token=None if power is None else power / output,
        output_tokens_per_s_per_watt=None if power is None else output / power,
    )


def _speed(sizing: Sizing, sized: Sized, values: Any, residual: str) -> Range:
    """A capacity or latency with the same range as a plan's."""
    look = sizing.look
    wider = band_factor(look, sized.shape.gpu, is_tight=is_tight(look, sized.choice))
    kind = "mixture" if sized.shape.architecture.is_mixture else "dense"
    return residual_band(look, float(values[sized.row, 0]), wider, residual, kind)


def _prompt_share(sizing: Sizing, many: ManyReplicas, sized: Sized) -> float:
    """Share of a full replica's time that prompts take; of its copies where they are apart. [1]"""
    choice, state = sized.choice, many.found.state
    if choice.prefill_copies:
        return choice.prefill_copies / (choice.prefill_copies + choice.decode_copies)
    prompts = choice.running * float(state.prefill_share_s[sized.row, 0])
    answers = sizing.traffic.output_tokens_mean * float(state.decode_step_s[sized.row, 0])
    return prompts / (prompts + answers)


def _watts(sizing: Sizing, gpu: Gpu, count: int) -> float | None:
    """Power of the held GPUs under load and cap. [W]"""
    if gpu.thermal_design_power_w is None:
        return None
    load = sizing.recorder.assume("power_load_fraction").value
    cap = sizing.service.replica.power_cap_fraction
    return count * gpu.thermal_design_power_w * min(load, cap)
