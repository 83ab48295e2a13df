"""Puts what the planners found into the published shape of an estimate."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from service.core.advice.advisories import carbon_unknown
from service.core.advice.review import review
from service.core.advice.sides import Charge, amounts_by_side, amounts_by_workload
from service.core.costs.existing import sunk_amount
from service.core.costs.terms import ResolvedProcurement
from service.core.costs.worth import note_pools, note_workloads
from service.core.estimates import (
    Advisory,
    CostLine,
    ExistingUse,
    FleetEstimate,
    Infeasibility,
    PlanMonth,
    PlanTotals,
    PoolSize,
    Range,
    ServingServiceEstimate,
    TrainingRunEstimate,
)
from service.core.formulas.calendar import hours_in_month
from service.core.hours.bands import around, scaled, together
from service.core.planners.hosted import (
    HostedService,
    compare_hosted,
    describe_hosted,
    empty_pools,
    token_costs,
    tokens_counted,
)
from service.core.pooling.workloads import PoolsOutcome, RunSchedule, ServiceReplicas
from service.core.prices import PriceBookUsed
from service.core.pricing import amounts_by, total
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.training_run import mfu_convention
from service.core.units import HOURS_PER_DAY

for _name, _formula in (
    ("plan_amount", "sum of the rounded lines"),
    ("plan_cash_amount", "sum of the rounded lines, cash view"),
    ("plan_training_amount", "sum of the lines that training causes"),
    ("plan_serving_amount", "sum of the lines that serving causes"),
    ("plan_sunk_amount", "sum of the lines that write off GPUs owned already"),
    ("plan_avoidable_amount", "sum of all other lines"),
):
    define_quantity(_name, unit="currency", per="plan", formula=_formula)
define_quantity(
    "plan_peak_gpu_count", unit="count", per="plan", formula="most GPUs that all pools hold at once"
)
define_quantity(
    "plan_gpu_hours", unit="gpu_hour", per="plan", formula="sum of allocated hours over all pools"
)


PRINTED_DECIMALS = 6
"""GPU-hours of an answer are printed as its lines print them, so that the two agree."""


@dataclass(frozen=True)
class Answer:
    """Everything the planners found for one scenario."""

    scenario: Scenario
    recorder: Recorder
    outcome: PoolsOutcome | None = None
    infeasibilities: tuple[Infeasibility, ...] = ()
    lines: tuple[CostLine, ...] = ()
    """Priced lines; empty when anything is infeasible."""
    charges: Mapping[Charge, Decimal] = field(default_factory=dict)
    """What each workload causes in each month; together they are the sum of the lines."""
    price_book: PriceBookUsed | None = None
    """The team's price book, with the rows that are used."""
    hosted: tuple[HostedService, ...] = ()
    """Services whose tokens are bought."""
    procurement: Mapping[tuple[PoolKind, str], ResolvedProcurement] = field(default_factory=dict)
    """How the GPUs of each pool are paid for."""
    of_runs: tuple[Advisory, ...] = ()
    """What is to be known of each run that was planned."""

    @property
    def feasible(self) -> bool:
        """True when nothing ran out."""
        return not self.infeasibilities


def describe(answer: Answer) -> FleetEstimate:
    """Put an answer into the published shape; money only where everything is feasible."""
    totals = _totals(answer) if answer.feasible else None
    runs = tuple(_runs(answer))
    services = tuple(_services(answer))
    pools = tuple(_pools(answer))
    advisories = review(
        answer.scenario,
        answer.recorder,
        runs=runs,
        services=services,
        pools=pools,
        lines=answer.lines,
        charged=answer.charges,
        of_planned_runs=answer.of_runs,
    )
    advisories += compare_hosted(answer.hosted, answer.charges, answer.recorder)
    if totals is not None:
        note_workloads(runs, services, dict(_tokens(answer)), answer.recorder)
        unknown = note_pools(answer.lines, pools, answer.procurement, answer.recorder)
        advisories += carbon_unknown(unknown)
    return FleetEstimate(
        feasible=answer.feasible,
        infeasibilities=answer.infeasibilities,
        advisories=advisories,
        totals=totals,
        existing=_existing(answer, totals),
        pools=pools,
        training_runs=runs,
        serving_services=services,
        months=tuple(_months(answer)),
        lines=answer.lines,
        quantities=answer.recorder.quantities(),
        price_book=answer.price_book,
    )


def _pools(answer: Answer) -> Iterator[PoolSize]:
    if answer.outcome is None or not answer.feasible:
        return
    hours = ("allocated_gpu_hours", "used_gpu_hours", "idle_gpu_hours", "redo_gpu_hours")
    for pool in answer.outcome.pools:
        printed = {name: round(getattr(pool, name), PRINTED_DECIMALS) for name in hours}
        yield pool.model_copy(update=printed)
    yield from empty_pools(answer.hosted, answer.outcome.pools)


def _runs(answer: Answer) -> Iterator[TrainingRunEstimate]:
    amounts = amounts_by_workload(answer.charges)
    for schedule in answer.outcome.runs if answer.outcome else ():
        yield _run(schedule, amounts.get(schedule.need.run.name))


def _run(schedule: RunSchedule, amount: Decimal | None) -> TrainingRunEstimate:
    need = schedule.need
    hours = schedule.hours_taken
    return TrainingRunEstimate(
        name=need.run.name,
        training_tokens=need.run.tokens,
        start_date=need.start.date(),
        gpu_count=need.gpu_count,
        layout=need.layout,
        memory_gib_per_gpu=need.memory,
        model_flops=need.model_flops,
        mfu_fraction=need.mfu_fraction,
        mfu_convention=mfu_convention(need.run),
        speed_basis=need.speed_basis,
        steady_hours=need.steady_hours,
        goodput_fraction=need.goodput_fraction,
        wall_clock_hours=hours,
        wall_clock_days=hours.value / HOURS_PER_DAY,
        finish_date=_last_day(schedule),
        gpu_hours=round(schedule.gpu_hours, PRINTED_DECIMALS),
        checkpoint_bytes=need.checkpoint_bytes,
        amount=amount,
    )


def _last_day(schedule: RunSchedule) -> date:
    """Last day on which the run is running: one that ends at midnight ends on the day before."""
    return (schedule.finish - timedelta(microseconds=1)).date()


def _services(answer: Answer) -> Iterator[ServingServiceEstimate]:
    amounts = amounts_by_workload(answer.charges)
    own = answer.outcome.services if answer.outcome else ()
    found = {each.capacity.service.name: each for each in own}
    hosted = {each.service.name: each for each in answer.hosted}
    for name in (service.name for service in answer.scenario.serving_services):
        if name in hosted:
            yield describe_hosted(hosted[name], amounts.get(name))
        elif name in found:
            yield service_estimate(found[name], amounts.get(name))


def _tokens(answer: Answer) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Tokens of each service by the cost that is counted over them."""
    for own in answer.outcome.services if answer.outcome else ():
        service = own.capacity.service
        yield service.name, tokens_counted(service, own.units_served)
    for each in answer.hosted:
        yield each.service.name, tokens_counted(each.service, each.units_served)


def service_estimate(replicas: ServiceReplicas, amount: Decimal | None) -> ServingServiceEstimate:
    """What one service needs and holds, and what it costs where that is known."""
    capacity = replicas.capacity
    return ServingServiceEstimate(
        name=capacity.service.name,
        layout=capacity.layout,
        gpu_count_per_replica=capacity.gpu_count_per_replica,
        units_per_s_per_replica=capacity.units_per_s_per_replica.value,
        needed_replica_count_peak=replicas.needed_replica_count_peak,
        held_replica_count=replicas.held_replica_count,
        headroom=replicas.headroom,
        gpu_count=replicas.gpu_count,
        memory_gib_per_gpu=capacity.memory,
        kv_cache_tokens_per_replica=capacity.kv_cache_tokens_per_replica,
        concurrency_per_replica=capacity.concurrency_per_replica,
        ttft_p95_s=capacity.ttft_p95_s,
        tpot_mean_s=capacity.tpot_mean_s,
        amount=amount,
        **token_costs(amount, capacity.service, replicas.units_served),
    )


def _months(answer: Answer) -> Iterator[PlanMonth]:
    if answer.outcome is None or not answer.feasible:
        return
    amounts = amounts_by(answer.lines, lambda line: line.month)
    gpu_hours: dict[str, float] = {}
    for use in answer.outcome.hour_uses:
        gpu_hours[use.month] = gpu_hours.get(use.month, 0.0) + use.gpu_hours
    held = zip(
        answer.scenario.horizon.months,
        answer.outcome.training_gpu_counts,
        answer.outcome.serving_gpu_counts,
        strict=True,
    )
    for month, training, serving in held:
        yield PlanMonth(
            month=month,
            hours=hours_in_month(month),
            training_gpu_count=training,
            serving_gpu_count=serving,
            gpu_hours=round(gpu_hours.get(month, 0.0), PRINTED_DECIMALS),
            amount=amounts.get(month, Decimal("0.00")),
        )


def _amount_range(answer: Answer, outcome: PoolsOutcome) -> Range:
    """Amount of the plan, each pool's as uncertain as the GPU-hours that it holds."""
    amounts = amounts_by(answer.lines, lambda line: (line.pool, line.gpu))
    of_pools = [
        scaled(float(amounts.get((pool.name, pool.gpu), 0)), hours)
        for pool, hours in zip(outcome.pools, outcome.allocated_gpu_hours, strict=True)
    ]
    of_tokens = total(amount for (_, gpu), amount in amounts.items() if gpu is None)
    return together([*of_pools, Range.exactly(float(of_tokens))])


def _totals(answer: Answer) -> PlanTotals | None:
    if answer.outcome is None:
        return None
    training, serving = amounts_by_side(answer.charges)
    pools = answer.outcome.pools
    totals = PlanTotals(
        peak_gpu_count=answer.outcome.peak_gpu_count,
        gpu_hours=round(sum(pool.allocated_gpu_hours for pool in pools), PRINTED_DECIMALS),
        amount=total(line.amount for line in answer.lines),
        cash_amount=total(line.cash_amount for line in answer.lines),
        currency=answer.scenario.currency,
        training_amount=training,
        serving_amount=serving,
    )
    recorder = answer.recorder.within("plan")
    recorder.note("plan_peak_gpu_count", totals.peak_gpu_count)
    held = around(totals.gpu_hours, together(answer.outcome.allocated_gpu_hours))
    recorder.note("plan_gpu_hours", totals.gpu_hours, low=held.low, high=held.high)
    spent = around(float(totals.amount), _amount_range(answer, answer.outcome))
    recorder.note("plan_amount", float(totals.amount), low=spent.low, high=spent.high)
    cash = scaled(float(totals.cash_amount), spent)
    recorder.note("plan_cash_amount", cash.value, low=cash.low, high=cash.high)
    recorder.note("plan_training_amount", float(totals.training_amount))
    recorder.note("plan_serving_amount", float(totals.serving_amount))
    return totals


def _existing(answer: Answer, totals: PlanTotals | None) -> ExistingUse | None:
    owned = sum(lot.gpu_count for lot in answer.scenario.existing_gpus)
    if totals is None or answer.outcome is None or not owned:
        return None
    used, sunk = (
        sum(pool.existing_gpu_count for pool in answer.outcome.pools),
        sunk_amount(answer.lines),
    )
    recorder = answer.recorder.within("plan")
    recorder.note("plan_sunk_amount", float(sunk))
    recorder.note("plan_avoidable_amount", float(totals.amount - sunk))
    return ExistingUse(
        used_gpu_count=used,
        unused_gpu_count=owned - used,
        sunk_amount=sunk,
        avoidable_amount=totals.amount - sunk,
    )
