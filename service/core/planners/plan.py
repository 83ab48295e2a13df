"""The whole answer to a scenario: runs, replicas, pools over time, priced lines, advisories.

This is the only place where training and serving meet; each step is a planner of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from service.core.advice.sides import HeldFor, charges
from service.core.assumptions import AssumptionUsed
from service.core.costs.existing import ExistingLot
from service.core.costs.negotiated import check_price_book, price_book_used
from service.core.costs.owned import Purchase
from service.core.costs.terms import Ownership
from service.core.costs.worth import note_worth
from service.core.errors import CoreError, InvalidScenario
from service.core.estimates import Advisory, CostLine, FleetEstimate, Infeasibility, WorkloadKind
from service.core.formulas.calendar import first_day, midnight, month_index, month_of
from service.core.hardware import Gpu
from service.core.hours.timeline import Timeline
from service.core.planners.answer import Answer, describe
from service.core.planners.buying import Buying
from service.core.planners.hosted import (
    HostedService,
    check_hosted_rules,
    on_own_gpus,
    plan_hosted,
)
from service.core.planners.ownership import PoolKey, price_fleet
from service.core.planners.pools import plan_pools
from service.core.planners.procurement import (
    check_procurement_rules,
)
from service.core.planners.run_warnings import given_speed, run_warnings
from service.core.planners.serving import plan_replica
from service.core.planners.stages import order_of_stages
from service.core.planners.staging import Staged, purchases_of, staged_counts, with_staged
from service.core.planners.training import plan_training_run
from service.core.pooling.run_bands import speed_of
from service.core.pooling.workloads import HourUse, PoolsOutcome, ReplicaCapacity, RunNeed
from service.core.pricing import AmountTooLarge
from service.core.recorder import Recorder
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.scenario import Scenario, months_of_service
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import FinishBySizing, TrainingRun
from service.core.snapshot import CatalogSnapshot


def estimate_fleet(
    scenario: Scenario, *, snapshot: CatalogSnapshot
) -> tuple[FleetEstimate, tuple[AssumptionUsed, ...]]:
    """Plan every workload of a scenario, the pools they share, and what they cost.

    Returns:
        The estimate, and every assumption it used. What cannot be done is in the estimate.

    Raises:
        CoreError: If the request names what the catalog release does not hold.
    """
    recorder = Recorder(snapshot, overrides=dict(scenario.assumption_overrides))
    _check_buying(scenario, snapshot)
    buying = Buying(scenario, recorder)
    workloads = plan_workloads(scenario, buying)
    outcome = pool_workloads(scenario, workloads, buying)
    staged: Staged = {}
    if outcome is not None:
        outcome, staged = _grown(outcome, buying)
    lots, unknown = buying.existing(() if outcome is None else outcome.uses)
    refused = (
        *workloads.refused,
        *(() if outcome is None else outcome.infeasibilities),
        *unknown,
        *buying.refused.values(),
    )
    answer = Answer(
        scenario,
        recorder,
        outcome,
        refused,
        price_book=price_book_used(snapshot, [each.terms for each in buying.resolved.values()]),
        hosted=tuple(workloads.hosted),
        procurement=buying.resolved,
        of_runs=tuple(_of_runs(outcome, buying)),
    )
    try:
        if answer.feasible and outcome is not None:
            answer = _price(answer, outcome, buying, lots, staged)
        estimate = describe(answer)
    except AmountTooLarge as error:
        error.pointer = _grows_at(scenario, error.workload)
        raise
    return estimate, recorder.assumptions()


def _of_runs(outcome: PoolsOutcome | None, buying: Buying) -> Iterator[Advisory]:
    """What is to be known of each run in its pool."""
    pooling = buying.scenario.pooling
    is_alone = pooling.kind == "separate" and pooling.fleet_gpu_count is None
    for schedule in () if outcome is None else outcome.runs:
        need = schedule.need
        recorder = buying.recorder.within(f"run:{need.run.name}")
        found = run_warnings(
            need,
            given_speed(need, speed_of(need, recorder).value, recorder),
            recorder,
            hours=schedule.hours_taken,
            gpu_hours=schedule.gpu_hours,
            count_in_time=partial(_count_in_time, buying) if is_alone else None,
        )
        yield from (advisory for advisory in found if advisory is not None)


def _check_buying(scenario: Scenario, snapshot: CatalogSnapshot) -> None:
    """Refuse rules and books that name what is not there."""
    pointer, gpu_keys = "/scenario/procurement", check_gpus(scenario, snapshot)
    check_procurement_rules(
        scenario.procurement, gpu_keys=gpu_keys, snapshot=snapshot, pointer=pointer
    )
    check_hosted_rules(scenario, pointer=pointer)
    check_price_book(scenario.price_book, snapshot, pointer="/scenario/price_book")


def _grows_at(scenario: Scenario, workload: str | None) -> str:
    """Where to make an amount smaller: at the growth of the service that it is for, if it grows."""
    for index, service in enumerate(scenario.serving_services):
        if service.growth_per_month_fraction > 0 and workload in {None, service.name}:
            return f"/scenario/serving_services/{index}/growth_per_month_fraction"
    return "/scenario/horizon"


def check_gpus(scenario: Scenario, snapshot: CatalogSnapshot) -> set[str]:
    """Keys of all GPUs of the workloads; two parts under one key would share a pool and a price.

    Raises:
        CoreError: If one is unknown, or one key stands for two; or the site of a lot is unknown.
    """
    described: dict[str, Gpu] = {}
    keys: set[str] = set()
    for kind in ("training_runs", "serving_services"):
        for index, workload in enumerate(getattr(scenario, kind)):
            pointer = f"/scenario/{kind}/{index}/gpu"
            gpu = snapshot.gpu(workload.gpu, pointer=pointer)
            keys.add(gpu.key)
            if gpu is not workload.gpu:
                continue
            if gpu.key in snapshot.gpus or described.setdefault(gpu.key, gpu) != gpu:
                raise InvalidScenario(
                    f"key {gpu.key!r} names another GPU already: give this one a key of its own",
                    pointer=f"{pointer}/key",
                )
    for index, lot in enumerate(scenario.existing_gpus):
        if lot.gpu not in keys:
            snapshot.gpu(lot.gpu, pointer=f"/scenario/existing_gpus/{index}/gpu")
        if lot.site is not None:
            snapshot.site(lot.site, pointer=f"/scenario/existing_gpus/{index}/site")
    return keys


def _pool_of(scenario: Scenario, own: PoolKind) -> PoolKind:
    return "shared" if scenario.pooling.kind == "shared" else own


@dataclass(frozen=True)
class Workloads:
    """What each workload needs on its own, before any pool is sized."""

    runs: Sequence[RunNeed]
    replicas: Sequence[ReplicaCapacity]
    hosted: Sequence[HostedService]
    """Services whose tokens are bought."""
    refused: tuple[Infeasibility, ...]
    """Why others cannot run."""


def plan_workloads(scenario: Scenario, buying: Buying) -> Workloads:
    """Plan each run and each replica of a scenario."""
    runs: list[RunNeed] = []
    services: list[ReplicaCapacity] = []
    hosted: list[HostedService] = []
    refused: list[Infeasibility] = []
    pointers = [f"/scenario/training_runs/{n}" for n in range(len(scenario.training_runs))]
    order = order_of_stages(
        scenario.training_runs,
        pointers=pointers,
        shared=scenario.pooling.kind == "shared" or scenario.pooling.fleet_gpu_count is not None,
    )
    ends: dict[str, datetime] = {}
    for index in order:
        run = scenario.training_runs[index]
        if run.after is not None and run.after not in ends:
            continue  # what it follows has no end: the reason is among the refusals
        start = None if run.after is None else ends[run.after]
        need = _plan_run(run, pointers[index], scenario, buying, start=start)
        if isinstance(need, RunNeed):
            runs.append(need)
            ends[run.name] = need.finish
        else:
            refused.extend(need)
    numbers = {run.name: number for number, run in enumerate(scenario.training_runs)}
    runs.sort(key=lambda need: numbers[need.run.name])
    for index, service in enumerate(scenario.serving_services):
        pointer = f"/scenario/serving_services/{index}"
        found = plan_hosted(service, scenario=scenario, recorder=buying.recorder, pointer=pointer)
        if isinstance(found, HostedService):
            hosted.append(found)
            continue
        capacity = found or _plan_service(service, pointer, scenario, buying)
        if isinstance(capacity, ReplicaCapacity):
            services.append(capacity)
        else:
            refused.extend(capacity)
    return Workloads(runs, services, hosted, tuple(refused))


def pool_workloads(scenario: Scenario, workloads: Workloads, buying: Buying) -> PoolsOutcome | None:
    """Size the pools of planned workloads; None when none of them could be planned."""
    if not workloads.runs and not workloads.replicas and not workloads.hosted:
        return None
    return plan_pools(
        scenario,
        workloads.runs,
        workloads.replicas,
        recorder=buying.recorder,
        gpu_multiple=buying.gpu_multiple,
        site_of=buying.site_of,
        is_owned=buying.is_owned,
        count_in_time=partial(_count_in_time, buying),
    )


def _alone(
    hosted: HostedService, scenario: Scenario, snapshot: CatalogSnapshot
) -> FleetEstimate | None:
    """The same service on GPUs of its own, to compare with; None where it cannot be priced."""
    try:
        return estimate_fleet(on_own_gpus(hosted.service, scenario), snapshot=snapshot)[0]
    except CoreError:
        return None


def _plan_run(
    run: TrainingRun,
    pointer: str,
    scenario: Scenario,
    buying: Buying,
    *,
    start: datetime | None = None,
) -> RunNeed | tuple[Infeasibility, ...]:
    recorder = buying.recorder.within(f"run:{run.name}")
    gpu = recorder.snapshot.gpu(run.gpu, pointer=f"{pointer}/gpu")
    pool = _pool_of(scenario, "training")
    return plan_training_run(
        run,
        snapshot=recorder.snapshot,
        recorder=recorder,
        horizon=scenario.horizon,
        gpu_multiple=buying.gpu_multiple(pool, gpu),
        pointer=pointer,
        start=start,
        until=midnight(first_day(month_of(month_index(scenario.horizon.last_month) + 1))),
        spending=None if run.most_amount is None else buying.spending(pool, gpu, pointer),
    )


def _count_in_time(buying: Buying, late: RunNeed, last_day: date) -> int | None:
    """Fewest GPUs on which a run ends by a day, None where none do. [count]"""
    sizing = FinishBySizing(kind="finish_by", finish_date=last_day)
    need = _plan_run(
        late.run.model_copy(update={"sizing": sizing}),
        "/scenario/training_runs",
        buying.scenario,
        replace(buying, recorder=buying.recorder.off()),
        start=late.start,
    )
    return need.gpu_count if isinstance(need, RunNeed) else None


def _plan_service(
    service: ServingService, pointer: str, scenario: Scenario, buying: Buying
) -> ReplicaCapacity | tuple[Infeasibility, ...]:
    recorder = buying.recorder.within(f"service:{service.name}")
    gpu = recorder.snapshot.gpu(service.gpu, pointer=f"{pointer}/gpu")
    return plan_replica(
        service,
        snapshot=recorder.snapshot,
        recorder=recorder,
        gpu_multiple=buying.gpu_multiple(_pool_of(scenario, "serving"), gpu),
        pointer=pointer,
        month_count=months_of_service(service, scenario.horizon),
    )


def _grown(outcome: PoolsOutcome, buying: Buying) -> tuple[PoolsOutcome, Staged]:
    """The pools as they grow that are bought as needed."""
    if outcome.infeasibilities:
        return outcome, {}
    timeline, pooling = Timeline.of(buying.scenario.horizon), buying.scenario.pooling
    is_given = pooling.kind == "shared" and pooling.fleet_gpu_count is not None
    staged = staged_counts(outcome, buying.resolved, timeline, is_given=is_given)
    return with_staged(outcome, staged, timeline, buying.recorder), staged


def _price(
    answer: Answer,
    outcome: PoolsOutcome,
    buying: Buying,
    lots: Mapping[PoolKey, Sequence[ExistingLot]],
    staged: Staged,
) -> Answer:
    snapshot = answer.recorder.snapshot
    hosted = [
        replace(each, alone=_alone(each, answer.scenario, snapshot)) for each in answer.hosted
    ]
    lines = price_fleet(
        _capped(outcome.hour_uses, answer.scenario),
        procurement=buying.resolved,
        pools=outcome.pools,
        scenario=answer.scenario,
        recorder=answer.recorder,
        loads=outcome.loads,
        existing=lots,
        hosted=answer.hosted,
        staged=staged,
    )
    bought = purchases_of(
        outcome.pools,
        buying.resolved,
        answer.scenario.horizon.start_month,
        staged=staged,
        existing=lots,
    )
    _note_worth(lines, bought, buying)
    return replace(
        answer,
        lines=lines,
        hosted=tuple(hosted),
        charges=charges(lines, _held_for(answer.scenario, outcome)),
    )


def _capped(uses: Sequence[HourUse], scenario: Scenario) -> list[HourUse]:
    """Hours with the power cap of the service that they serve or are held for."""
    caps = {each.name: each.replica.power_cap_fraction for each in scenario.serving_services}
    return [
        replace(use, power_cap_fraction=caps[use.workload])
        if use.workload_kind == "serving" and use.workload in caps
        else use
        for use in uses
    ]


def _note_worth(
    lines: Sequence[CostLine], bought: Mapping[PoolKey, Sequence[Purchase]], buying: Buying
) -> None:
    note_worth(
        lines,
        months=buying.scenario.horizon.months,
        owned={
            key: (terms, bought[key])
            for key, found in buying.resolved.items()
            if key in bought and isinstance(terms := found.terms, Ownership)
        },
        recorder=buying.recorder,
    )


def _held_for(scenario: Scenario, outcome: PoolsOutcome) -> HeldFor:
    """Whose the hours of a month and pool are that stand in nobody's name.

    Those of a commitment in a month in which none are held belong to all that the pool ever holds.
    """
    ever: dict[tuple[PoolKind, str], dict[tuple[WorkloadKind, str], float]] = {}
    for use in outcome.hour_uses:
        if use.workload is not None:
            owners = ever.setdefault((use.pool, use.gpu.key), {})
            owner = (use.workload_kind, use.workload)
            owners[owner] = owners.get(owner, 0.0) + use.gpu_hours
    held: dict[tuple[str, PoolKind, str | None], Mapping[tuple[WorkloadKind, str], float]] = {
        (month, *pool): owners for month in scenario.horizon.months for pool, owners in ever.items()
    }
    return held | {
        (use.month, use.pool, use.gpu.key): use.held_for
        for use in outcome.hour_uses
        if use.workload is None
    }
