"""Services whose tokens are bought: what they cost, and what GPUs of their own would."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from service.core.advice.advisories import hosted_break_even
from service.core.advice.sides import Charge, amounts_by_workload
from service.core.costs.hosted import hosted_terms
from service.core.costs.terms import HostedTokens
from service.core.errors import InvalidScenario
from service.core.estimates import (
    Advisory,
    CostLine,
    FleetEstimate,
    Infeasibility,
    PoolSize,
    ServingServiceEstimate,
    Use,
    WorkloadKind,
)
from service.core.formulas.calendar import first_day, midnight, month_index, month_of
from service.core.formulas.demand import hosting_break_even_tokens_per_day
from service.core.hours.headroom import resolved_headroom
from service.core.hours.service_demand import units_by_month
from service.core.hours.timeline import Timeline
from service.core.planners.procurement import no_price
from service.core.planners.serving_question import check_keys
from service.core.prices import Commitment
from service.core.pricing import Terms, UnitPrice, cost_per_million_tokens, price_line
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import PoolKind, ProcurementRule, RentMethod
from service.core.scenarios.scenario import Scenario, SeparatePooling
from service.core.scenarios.serving_service import ServingService
from service.core.units import HOURS_PER_DAY, TOKENS_PER_MILLION

PriceAt = Callable[[UnitPrice, str, Commitment], UnitPrice]
"""A price as it is in a month."""
SERVING: PoolKind = "serving"

for _name, _unit, _formula in (
    ("hosted_input_tokens", "token", "units of all months x mean input tokens"),
    ("hosted_output_tokens", "token", "units of all months x mean output tokens"),
    ("hosted_amount", "currency", "sum of the service's lines"),
    (
        "hosted_price_per_million_tokens",
        "currency/million_token",
        "prices of input and output, weighted by the mean tokens of a unit",
    ),
    ("self_hosted_amount", "currency", "total of a plan of the service alone on its own GPUs"),
):
    define_quantity(_name, unit=_unit, per="service", formula=_formula)  # type: ignore[arg-type]


@dataclass(frozen=True)
class HostedService:
    """A service whose tokens are bought, month by month."""

    service: ServingService
    tokens: HostedTokens
    months: tuple[str, ...]
    units: tuple[float, ...]
    """Units of each month of the horizon."""
    mean_over_peak_fraction: float
    day_count: float
    """Days of the months in which it is used."""
    alone: FleetEstimate | None = None
    """The same service planned on GPUs of its own."""

    @property
    def units_served(self) -> float:
        """Units of all months."""
        return sum(self.units)

    @property
    def input_tokens(self) -> float:
        """Mean tokens that a unit reads."""
        return self.service.input_tokens_mean or 0.0

    @property
    def output_tokens(self) -> float:
        """Mean tokens that a unit writes."""
        return self.service.output_tokens_mean or 0.0

    @property
    def price_per_million_tokens(self) -> float:
        """Price of a million tokens of the service's mix."""
        paid = sum(tokens * float(price.value) for _, tokens, price in self.charges())
        return paid / (self.input_tokens + self.output_tokens)

    def charges(self) -> tuple[tuple[str, float, UnitPrice], ...]:
        """What a unit is charged for: kind of tokens, how many, and the price of a million."""
        return self.tokens.charges(
            self.input_tokens,
            self.output_tokens,
            self.service.replica.prefix_cache_hit_fraction,
        )


@dataclass(frozen=True)
class _HostedMonth:
    """What a line of hosted tokens is charged for."""

    month: str
    start: datetime
    end: datetime
    workload: str
    pool: PoolKind = SERVING
    gpu: None = None
    workload_kind: WorkloadKind = "serving"
    use: Use = "used"
    gpu_count: int = 0


def check_hosted_rules(scenario: Scenario, *, pointer: str) -> None:
    """Refuse a rule for a service that is not there: it would match nothing.

    Raises:
        InvalidScenario: If a rule names no service of the scenario.
    """
    names = {service.name for service in scenario.serving_services}
    for index, rule in enumerate(scenario.procurement):
        if rule.service is not None and rule.service not in names:
            raise InvalidScenario(
                f"no service is named {rule.service!r}", pointer=f"{pointer}/{index}/service"
            )


def _rule_for(
    service: ServingService, gpu_key: str, scenario: Scenario
) -> tuple[int, ProcurementRule] | None:
    """The first rule that matches a service, where it buys tokens."""
    shared = scenario.pooling.kind == "shared"
    pool: PoolKind = "shared" if shared else SERVING
    for index, rule in enumerate(scenario.procurement):
        hosted = rule.method.kind == "hosted"
        is_meant = rule.service in {None, service.name}
        if is_meant and rule.matches(SERVING if hosted else pool, gpu_key):
            return (index, rule) if hosted else None
    return None


def plan_hosted(
    service: ServingService, *, scenario: Scenario, recorder: Recorder, pointer: str
) -> HostedService | tuple[Infeasibility, ...] | None:
    """Count the tokens of a service that are bought; None for one that runs on GPUs.

    Raises:
        CoreError: If the service names what the catalog does not hold.
    """
    snapshot = recorder.snapshot
    found = _rule_for(service, snapshot.gpu(service.gpu, pointer=f"{pointer}/gpu").key, scenario)
    if found is None:
        return None
    index, rule = found
    check_keys(service, snapshot, pointer, replica_pointer=f"{pointer}/replica")
    if rule.method.kind != "hosted":
        return None
    terms = hosted_terms(
        rule.method, service=service, currency=scenario.currency, snapshot=snapshot
    )
    if isinstance(terms, str):
        missing = no_price(
            f"price of hosted tokens for {service.name}", f"/scenario/procurement/{index}: {terms}"
        )
        return (missing.model_copy(update={"workload": service.name}),)
    timeline = Timeline.of(scenario.horizon)
    scope = recorder.within(f"service:{service.name}")
    units, mean_over_peak = units_by_month(service, timeline=timeline, recorder=scope)
    hours = float(timeline.month_hours[units > 0].sum())
    return HostedService(
        service=service,
        tokens=terms,
        months=timeline.months,
        units=tuple(units.tolist()),
        mean_over_peak_fraction=mean_over_peak,
        day_count=hours / HOURS_PER_DAY,
    )


def on_own_gpus(service: ServingService, scenario: Scenario) -> Scenario:
    """The question what one service would take on GPUs of its own.

    By the scenario's rules for GPUs; where none matches, rented at the cheapest listed price.
    """
    rules = [rule for rule in scenario.procurement if rule.method.kind != "hosted"]
    rented = ProcurementRule(method=RentMethod(kind="rent"))
    return scenario.model_copy(
        update={
            "training_runs": (),
            "serving_services": (service,),
            "pooling": SeparatePooling(kind="separate"),
            "procurement": (*rules, rented),
            "existing_gpus": (),  # what is owned already may be at work for others
        }
    )


def hosted_lines(
    hosted: HostedService,
    month: str,
    currency: str,
    numbers: Iterator[int],
    price_at: PriceAt,
) -> Iterator[CostLine]:
    """Lines of one month: tokens that are read, those of a cache apart, and that are written."""
    units = hosted.units[hosted.months.index(month)]
    hours = _HostedMonth(
        month=month,
        start=midnight(first_day(month)),
        end=midnight(first_day(month_of(month_index(month) + 1))),
        workload=hosted.service.name,
    )
    terms = Terms(currency, "hosted", provider=hosted.tokens.provider)
    for kind, tokens, price in hosted.charges():
        if units * tokens:
            yield price_line(
                hours,
                terms,
                line_number=next(numbers),
                category="hosted_tokens",
                quantity=units * tokens / TOKENS_PER_MILLION,
                unit=f"million_{kind}_tokens",
                price=price_at(price, month, "on_demand"),
                formula=(f"units of the month x {tokens:g} {kind.replace('_', ' ')} tokens / 10^6"),
            )


def token_costs(amount: Decimal | None, service: ServingService, units: float) -> dict[str, Any]:
    """Cost of a million tokens: of all, of those written, of those read."""
    return {
        name: (
            None if amount is None or tokens is None else cost_per_million_tokens(amount, tokens)
        )
        for name, tokens in tokens_counted(service, units).items()
    }


def tokens_counted(service: ServingService, units: float) -> dict[str, float | None]:
    """Tokens that each cost of a million tokens is counted over; None where they are not known."""
    counted = {
        "cost_per_million_tokens": service.tokens_per_unit,
        "cost_per_million_output_tokens": service.output_tokens_mean,
        "cost_per_million_input_tokens": service.input_tokens_mean,
    }
    return {name: None if tokens is None else units * tokens for name, tokens in counted.items()}


def describe_hosted(hosted: HostedService, amount: Decimal | None) -> ServingServiceEstimate:
    """A service that holds no GPUs, in the published shape."""
    return ServingServiceEstimate(
        name=hosted.service.name,
        layout=None,
        gpu_count_per_replica=0,
        units_per_s_per_replica=0.0,
        needed_replica_count_peak=0,
        held_replica_count=0,
        gpu_count=0,
        memory_gib_per_gpu=None,
        kv_cache_tokens_per_replica=None,
        concurrency_per_replica=None,
        ttft_p95_s=None,
        tpot_mean_s=None,
        amount=amount,
        hosted_by=hosted.tokens.provider,
        **token_costs(amount, hosted.service, hosted.units_served),
    )


def empty_pools(hosted: Sequence[HostedService], pools: Sequence[PoolSize]) -> Iterator[PoolSize]:
    """Pools that hold no GPUs because the tokens of all their services are bought."""
    taken = {(pool.name, pool.gpu) for pool in pools}
    for each in hosted:
        gpu = each.service.gpu if isinstance(each.service.gpu, str) else each.service.gpu.key
        if (SERVING, gpu) not in taken:
            taken.add((SERVING, gpu))
            yield PoolSize(
                name=SERVING,
                gpu=gpu,
                site=None,
                gpu_count=0,
                node_count=0,
                allocated_gpu_hours=0.0,
                used_gpu_hours=0.0,
                idle_gpu_hours=0.0,
                mean_over_peak_fraction=0.0,
                preempted_gpu_count_per_day=0.0,
            )


def compare_hosted(
    hosted: Sequence[HostedService], charged: Mapping[Charge, Decimal], recorder: Recorder
) -> tuple[Advisory, ...]:
    """What each hosted service would cost on GPUs of its own, and from which load it would pay."""
    amounts = amounts_by_workload(charged)
    return tuple(
        _compare(each, amounts[each.service.name], recorder)
        for each in hosted
        if each.service.name in amounts
    )


def _compare(hosted: HostedService, amount: Decimal, recorder: Recorder) -> Advisory:
    scope = recorder.within(f"service:{hosted.service.name}")
    scope.note("hosted_input_tokens", hosted.units_served * hosted.input_tokens)
    scope.note("hosted_output_tokens", hosted.units_served * hosted.output_tokens)
    scope.note("hosted_amount", float(amount))
    scope.note("hosted_price_per_million_tokens", hosted.price_per_million_tokens)
    alone = hosted.alone
    tokens = None
    if alone is not None and alone.totals is not None:
        scope.note("self_hosted_amount", float(alone.totals.amount))
        tokens = _break_even_tokens(hosted, alone, scope)
    load = hosted.units_served * (hosted.input_tokens + hosted.output_tokens) / hosted.day_count
    return hosted_break_even(
        hosted.service.name,
        hosted.tokens.provider,
        amount,
        alone=alone,
        break_even_tokens_per_day=tokens,
        tokens_per_day=load,
    )


def _break_even_tokens(hosted: HostedService, alone: FleetEstimate, scope: Recorder) -> float:
    """Tokens a day from which GPUs of its own cost less, at what they cost for the same load."""
    [replica], totals = alone.serving_services, alone.totals
    if totals is None or totals.gpu_hours <= 0:
        return float("inf")
    headroom = resolved_headroom(hosted.service, scope.off(), pointer="")
    served = replica.units_per_s_per_replica * (hosted.input_tokens + hosted.output_tokens)
    pool = next(pool for pool in alone.pools if pool.gpu_count)
    tokens = float(
        hosting_break_even_tokens_per_day(
            hosted_price_per_million_tokens=hosted.price_per_million_tokens,
            cost_per_gpu_hour=float(totals.amount) / totals.gpu_hours,
            tokens_per_s_per_replica=(
                served * headroom.target_utilization_fraction * hosted.mean_over_peak_fraction
            ),
            gpu_count_per_replica=replica.gpu_count_per_replica,
            gpu_count_per_instance=pool.gpu_count // pool.node_count,
            spare_fraction=headroom.spare_fraction,
            spare_replica_count=headroom.spare_replica_count,
            minimum_replica_count=headroom.minimum_replica_count,
        )
    )
    scope.note("hosting_break_even_tokens_per_day", tokens if isfinite(tokens) else None)
    return tokens
