"""The cheapest layout, batch and number of replicas for a load, over all kinds of GPU."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil
from typing import Any

import numpy as np

from service.core.answers import recorder_for, shared_fields
from service.core.errors import NoConstants
from service.core.estimates import Infeasibility, Range
from service.core.hardware import Gpu
from service.core.hours.service_demand import held_replicas_at_peak, resolved_headroom
from service.core.planners.offers import cheapest_offer, explain_missing_offer
from service.core.planners.serving import no_constants, resolve_shape
from service.core.prices import RentalPrice
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants, serving_constants
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.many import ManyReplicas, sweep_many
from service.core.replica.passes import Traffic
from service.core.replica.refusals import objectives_missed
from service.core.replica.search import Choice, Objectives, Sweep, cheapest
from service.core.replica.shape import ReplicaShape
from service.core.replica.speed import SteadyState
from service.core.scenarios.demand import profile_factors
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.serving_service import ServingService
from service.core.serving.questions import ReplicaLayout, as_service
from service.core.serving.size_effects import Frontier, effects_of, frontier_of
from service.core.serving.size_types import (
    Effect,
    Rejected,
    ServingSizeAnswer,
    ServingSizeQuestion,
    SizeOption,
)
from service.core.snapshot import CatalogSnapshot
from service.core.units import (
    BYTES_PER_GIB,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    TOKENS_PER_MILLION,
)
from service.core.value import MAX_COUNT

CURRENCY = "USD"
MAXIMUM_PER_HOUR = 1e8
"""Bill of an hour above which nothing is ranked: no fleet is near it."""


@dataclass(frozen=True)
class Offer:
    """What one GPU costs for an hour, and how many are rented at once."""

    price: Decimal
    gpu_multiple: int
    source: str


@dataclass(frozen=True)
class Sizing:
    """A question with everything resolved that all GPUs share."""

    question: ServingSizeQuestion
    service: ServingService
    traffic: Traffic
    objectives: Objectives
    look: Lookup
    compute_factor: float
    peak: float
    mean: float

    @property
    def recorder(self) -> Recorder:
        """Gives assumptions without remembering them."""
        return self.look.recorder

    def held(self, rate: Any) -> Any:
        """Replicas held at the peak by replicas of these capacities. [count]"""
        return held_replicas_at_peak(self.service, rate, month_count=1, recorder=self.recorder)


def estimate_serving_size(
    question: ServingSizeQuestion, snapshot: CatalogSnapshot
) -> ServingSizeAnswer:
    """Rank kinds of GPU by the cost of a million tokens at the stated load.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    recorder = recorder_for(question, snapshot)
    with np.errstate(all="ignore"):
        return _size(question, recorder)


def _size(question: ServingSizeQuestion, recorder: Recorder) -> ServingSizeAnswer:
    snapshot = recorder.snapshot
    keys = question.gpus if question.gpus is not None else tuple(snapshot.gpus)
    gpus = [snapshot.gpu(key, pointer=f"/gpus/{place}") for place, key in enumerate(keys)]
    sizing = _sizing(question, gpus, recorder)
    shapes, offers, rejected = _candidates(sizing, gpus)
    options: list[tuple[SizeOption, ReplicaShape, Choice]] = []
    if shapes:
        many = sweep_many(
            shapes,
            look=sizing.look,
            traffic=sizing.traffic,
            objectives=sizing.objectives,
            compute_factor=sizing.compute_factor,
        )
        for place, shape in enumerate(shapes):
            found = _option(sizing, many, place, offers[place])
            if isinstance(found, Rejected):
                rejected.append(found)
            else:
                options.append((found[0], shape, found[1]))
    options.sort(key=lambda item: (item[0].cost_per_million_tokens, item[0].gpu))
    return _answer(sizing, options, rejected, recorder)


def _answer(
    sizing: Sizing,
    options: list[tuple[SizeOption, ReplicaShape, Choice]],
    rejected: list[Rejected],
    recorder: Recorder,
) -> ServingSizeAnswer:
    frontier: Frontier = ()
    effects: tuple[Effect, ...] = ()
    if options:
        option, shape, choice = options[0]
        look = Lookup(recorder, sizing.look.engine)
        memory_constants(look, shape.gpu, choice.needs(shape))
        serving_constants(look, shape.gpu, choice.needs(shape))
        frontier = frontier_of(sizing, shape)
        effects = effects_of(sizing, option, shape, choice)
    reasons = tuple(item.reason for item in rejected) if not options else ()
    return ServingSizeAnswer(
        **shared_fields(recorder, infeasibilities=reasons),
        peak_requests_per_s=sizing.peak,
        mean_requests_per_s=sizing.mean,
        options=tuple(option for option, _, _ in options),
        rejected=tuple(rejected),
        frontier=frontier,
        effects=effects,
    )


def _sizing(question: ServingSizeQuestion, gpus: list[Gpu], recorder: Recorder) -> Sizing:
    peak, mean = _load(question)
    service = as_service(question, gpus[0], headroom=question.headroom, peak_requests_per_s=peak)
    headroom = resolved_headroom(service, recorder, pointer="/headroom")
    total = question.input_tokens_mean + question.output_tokens_mean
    traffic = Traffic(
        question.input_tokens_mean,
        question.output_tokens_mean,
        service.sequence_tokens_p95 or 2 * total,
        headroom.held_utilization_fraction,
    )
    asked = question.objectives
    objectives = Objectives(
        (asked.ttft_p95_s if asked else None) or np.inf,
        (asked.tpot_mean_s if asked and question.output_tokens_mean > 1 else None) or np.inf,
    )
    engine: Mapping[str, str] = {}
    if question.engine is not None:
        engine = engine_qualifiers(recorder.snapshot, question.engine, pointer="/engine")
    exponent = 0.0
    if question.power_cap_fraction < 1:
        exponent = recorder.assume("power_cap_compute_exponent").value
    return Sizing(
        question=question,
        service=service,
        traffic=traffic,
        objectives=objectives,
        look=Lookup(recorder.off(), engine),
        compute_factor=question.power_cap_fraction**exponent,
        peak=peak,
        mean=mean,
    )


def _load(question: ServingSizeQuestion) -> tuple[float, float]:
    """Requests per second in the busiest hour and in a mean one."""
    load = question.load
    factors = np.array(profile_factors(question.demand_profile))
    share = float(factors.mean() / factors.max())
    if load.kind == "daily_tokens":
        tokens = question.input_tokens_mean + question.output_tokens_mean
        mean = load.tokens_per_day / SECONDS_PER_DAY / tokens
        return mean / share, mean
    if load.kind == "trace":
        return load.requests_per_s_mean * load.peak_over_mean, load.requests_per_s_mean
    if load.kind == "users":
        active = load.user_count * load.active_fraction
        peak = active * load.requests_per_active_user_hour / SECONDS_PER_HOUR
    else:
        peak = load.peak_requests_per_s
    return peak, peak * share


def _candidates(
    sizing: Sizing, gpus: list[Gpu]
) -> tuple[list[ReplicaShape], list[Offer], list[Rejected]]:
    """GPUs with a price, a matrix rate and constants; the others with what they lack."""
    snapshot = sizing.recorder.snapshot
    rows: dict[str, list[RentalPrice]] = defaultdict(list)
    for row in snapshot.rental_prices:
        rows[row.gpu].append(row)
    shapes: list[ReplicaShape] = []
    offers: list[Offer] = []
    rejected: list[Rejected] = []
    for gpu in gpus:
        own = replace(snapshot, rental_prices=tuple(rows[gpu.key]))
        shape = _shape(sizing, gpu)
        offer = _offer(sizing.question, gpu, own) if isinstance(shape, ReplicaShape) else None
        if isinstance(shape, Infeasibility):
            rejected.append(Rejected(gpu=gpu.key, reason=shape))
        elif isinstance(offer, Infeasibility):
            rejected.append(Rejected(gpu=gpu.key, reason=offer))
        elif offer is not None:
            shapes.append(shape)
            offers.append(offer)
    return shapes, offers, rejected


def _shape(sizing: Sizing, gpu: Gpu) -> ReplicaShape | Infeasibility:
    shape = resolve_shape(sizing.service, gpu, sizing.recorder, "")
    if isinstance(shape, Infeasibility):
        return shape
    if not sizing.recorder.has_assumption("gemm_fixed_us", gpu.gpu_class):
        missing = NoConstants(f"the catalog holds no constants of {gpu.gpu_class}")
        return no_constants(sizing.service, gpu, missing)
    return shape


def _offer(
    question: ServingSizeQuestion, gpu: Gpu, snapshot: CatalogSnapshot
) -> Offer | Infeasibility:
    given = question.prices_per_gpu_hour.get(gpu.key)
    if given is not None:
        return Offer(given, gpu.node_gpu_count, "given in the request")
    method = RentMethod(kind="rent", commitment=question.commitment)
    row = cheapest_offer(method, gpu=gpu, currency=CURRENCY, snapshot=snapshot)
    if row is None:
        return Infeasibility(
            workload=None,
            code="no_price",
            limit=f"price of {gpu.name}",
            needed=None,
            available=None,
            unit=None,
            nearest_fix=explain_missing_offer(
                method, gpu=gpu, currency=CURRENCY, snapshot=snapshot
            ),
        )
    price = row.price_per_gpu_hour + (row.host_price_per_gpu_hour or Decimal(0))
    return Offer(price, row.gpu_count, f"{row.provider} {row.instance_type} {row.region}")


def _option(
    sizing: Sizing, many: ManyReplicas, place: int, offer: Offer
) -> tuple[SizeOption, Choice] | Rejected:
    shape, found = many.shapes[place], many.of(place)
    if found.running.shape[0] == 0:
        needed, available = many.roomiest(place)
        return Rejected(gpu=shape.gpu.key, reason=_no_room(sizing, needed, available))
    choice = cheapest(found, sizing.objectives, offer.gpu_multiple, sizing.held)
    if choice is None:
        missed = objectives_missed(sizing.service, found, sizing.objectives)
        return Rejected(gpu=shape.gpu.key, reason=missed)
    rate = float(found.state.units_per_s[place_of(found, choice)])
    gpus = float(sizing.held(rate)) * int(choice.layout.gpu_count)
    if not gpus * float(offer.price) < MAXIMUM_PER_HOUR or not gpus < MAX_COUNT:
        return Rejected(gpu=shape.gpu.key, reason=_beyond_counting(sizing, gpus))
    return _priced(sizing, shape, found, choice, offer), choice


def _beyond_counting(sizing: Sizing, gpus: float) -> Infeasibility:
    return Infeasibility(
        workload=sizing.service.name,
        code="fleet",
        limit=f"fleet of {MAX_COUNT} GPUs or {MAXIMUM_PER_HOUR:g} USD an hour",
        needed=gpus if np.isfinite(gpus) else None,
        available=float(MAX_COUNT),
        unit="gpu",
        nearest_fix="less load, fewer spare replicas, or shorter requests",
    )


def _no_room(sizing: Sizing, needed: float, available: float) -> Infeasibility:
    return Infeasibility(
        workload=sizing.service.name,
        code="memory",
        limit="weights, engine and one sequence at the 95th percentile on each GPU",
        needed=needed / BYTES_PER_GIB,
        available=available / BYTES_PER_GIB,
        unit="GiB",
        nearest_fix="a narrower weight_format or kv_cache_format, shorter sequences, another GPU",
    )


def _priced(
    sizing: Sizing, shape: ReplicaShape, found: Sweep, choice: Choice, offer: Offer
) -> SizeOption:
    row, column = place_of(found, choice)
    state, traffic, gpu = found.state, sizing.traffic, shape.gpu
    rate = float(state.units_per_s[row, column])
    held = int(sizing.held(rate))
    count = ceil(held * int(choice.layout.gpu_count) / offer.gpu_multiple) * offer.gpu_multiple
    amount = count * offer.price
    hourly = float(amount) / (sizing.mean * SECONDS_PER_HOUR) * TOKENS_PER_MILLION
    share = _prompt_share(sizing, choice, state, (row, column))
    ttft = float(state.ttft_p95_s[row, column])
    power = _watts(sizing, gpu, count)
    output = sizing.mean * traffic.output_tokens_mean
    return SizeOption(
        gpu=gpu.key,
        price_per_gpu_hour=offer.price,
        price_source=offer.source,
        layout=_layout(choice),
        gpu_count_per_replica=int(choice.layout.gpu_count),
        running_requests=choice.running,
        units_per_s_per_replica=_ranged(sizing, shape, "units_residual_factor", rate),
        tpot_mean_s=_ranged(
            sizing, shape, "tpot_residual_factor", float(state.tpot_mean_s[row, column])
        ),
        ttft_p95_s=ttft if np.isfinite(ttft) else None,
        held_replica_count=held,
        gpu_count=count,
        amount_per_hour=amount,
        cost_per_million_tokens=hourly / traffic.sequence_tokens_mean,
        cost_per_million_input_tokens=hourly * share / max(traffic.input_tokens_mean, 1.0),
        cost_per_million_output_tokens=hourly * (1 - share) / traffic.output_tokens_mean,
        joules_per_output_token=None if power is None else power / output,
        output_tokens_per_s_per_watt=None if power is None else output / power,
    )


def _layout(choice: Choice) -> ReplicaLayout:
    return ReplicaLayout(
        tensor_parallel=choice.tensor_parallel,
        pipeline_parallel=choice.pipeline_parallel,
        attention_data_parallel=choice.data_parallel,
    )


def _prompt_share(
    sizing: Sizing, choice: Choice, state: SteadyState, place: tuple[int, int]
) -> float:
    """Share of a full replica's time that prompts take. [1]"""
    prompts = choice.running * float(state.prefill_share_s[place])
    answers = sizing.traffic.output_tokens_mean * float(state.decode_step_s[place])
    return prompts / (prompts + answers)


def place_of(found: Sweep, choice: Choice) -> tuple[int, int]:
    """Row and column of a choice in its sweep."""
    layout = found.layout
    rows = np.flatnonzero(
        (layout.tensor_parallel == choice.tensor_parallel)
        & (layout.pipeline_parallel == choice.pipeline_parallel)
        & (layout.data_parallel == choice.data_parallel)
    )
    row = int(rows[0])
    return row, int(np.argmin(np.abs(found.running[row] - choice.running)))


def _watts(sizing: Sizing, gpu: Gpu, count: int) -> float | None:
    """Power of the held GPUs under load and cap. [W]"""
    if gpu.thermal_design_power_w is None:
        return None
    load = sizing.recorder.assume("power_load_fraction").value
    return count * gpu.thermal_design_power_w * min(load, sizing.question.power_cap_fraction)


def _ranged(sizing: Sizing, shape: ReplicaShape, name: str, value: float) -> Range:
    kind = "mixture" if shape.architecture.is_mixture else "dense"
    factor = sizing.look.assumption(name, kind)
    return Range(value=value, low=value * factor.low, high=value * factor.high)
