"""Asks each advisory of an answer, in the order in which a reader should see them."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from service.core.advice import advisories
from service.core.advice.advisories import RunFacts
from service.core.advice.sides import Charge, monthly_amounts_by_side
from service.core.answers import entries_named, unverified_facts
from service.core.architecture.model import ModelArchitecture
from service.core.estimates import (
    Advisory,
    CostLine,
    PoolSize,
    ServingServiceEstimate,
    TrainingRunEstimate,
)
from service.core.recorder import Recorder
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import CatalogSnapshot

NOTHING = (Decimal(0), Decimal(0))


def review(
    scenario: Scenario,
    recorder: Recorder,
    *,
    runs: Sequence[TrainingRunEstimate],
    services: Sequence[ServingServiceEstimate],
    pools: Sequence[PoolSize],
    lines: Sequence[CostLine],
    charged: Mapping[Charge, Decimal],
    of_planned_runs: Sequence[Advisory] = (),
) -> tuple[Advisory, ...]:
    """Return everything that a reader should know beside the numbers."""
    found = (
        *_of_runs(scenario, recorder, runs),
        *of_planned_runs,
        *_of_services(scenario, services),
        *_of_pools(recorder, pools),
        _of_sides(scenario, charged),
        advisories.no_price_change_assumed(recorder),
        advisories.stale_price(lines, as_of_date=recorder.snapshot.as_of_date),
        unverified_facts(_unverified(scenario, recorder, lines)),
    )
    return tuple(advisory for advisory in found if advisory is not None)


def _of_runs(
    scenario: Scenario, recorder: Recorder, estimates: Sequence[TrainingRunEstimate]
) -> Iterator[Advisory | None]:
    by_name = {estimate.name: estimate for estimate in estimates}
    lookups = recorder.off()
    threshold = lookups.assume("training_speed_disagreement_factor").value
    speeds = {(found.scope, found.name): found.value for found in recorder.quantities()}
    hbm = lookups.assume("hbm_usable_fraction").value
    gddr = lookups.assume("gddr_usable_fraction").value
    for run in scenario.training_runs:
        gpu = recorder.snapshot.gpu(run.gpu)
        estimate = by_name.get(run.name)
        facts = RunFacts(
            run=run,
            architecture=_architecture(run.architecture, recorder.snapshot),
            gpu=gpu,
            available_bytes=gpu.available_memory_bytes(hbm_fraction=hbm, gddr_fraction=gddr),
            estimate=estimate,
        )
        yield advisories.training_sized_from_serving(facts)
        yield advisories.activations_outgrow_state(facts)
        if estimate is not None:
            yield advisories.memory_not_checked(run, facts.architecture)
            yield advisories.memory_may_not_fit(run.name, estimate.memory_gib_per_gpu)
            yield advisories.wide_band(run.name, "wall_clock_hours", estimate.wall_clock_hours)
            yield advisories.speed_models_disagree(
                run.name,
                speeds.get((f"run:{run.name}", "training_tokens_per_s_per_gpu")),
                speeds.get((f"run:{run.name}", "training_table_tokens_per_s_per_gpu")),
                threshold=threshold,
            )


def _of_services(
    scenario: Scenario, estimates: Sequence[ServingServiceEstimate]
) -> Iterator[Advisory | None]:
    for service in scenario.serving_services:
        yield advisories.no_objectives(service)
    for estimate in estimates:
        yield advisories.wide_band(estimate.name, "tpot_mean_s", estimate.tpot_mean_s)
        yield advisories.wide_band(estimate.name, "ttft_p95_s", estimate.ttft_p95_s)


def _of_pools(recorder: Recorder, pools: Sequence[PoolSize]) -> Iterator[Advisory | None]:
    threshold = recorder.off().assume("serving_low_use_fraction").value
    for pool in pools:
        yield advisories.serving_judged_by_utilization(pool, threshold=threshold)


def _of_sides(scenario: Scenario, charged: Mapping[Charge, Decimal]) -> Advisory | None:
    months = scenario.horizon.months
    sides = monthly_amounts_by_side(charged)
    training, serving = zip(*(sides.get(month, NOTHING) for month in months), strict=True)
    return advisories.serving_overtakes_training(months, training, serving)


def _architecture(
    ref: str | ModelArchitecture | None, snapshot: CatalogSnapshot
) -> ModelArchitecture | None:
    return None if ref is None else snapshot.architecture(ref)


def _unverified(
    scenario: Scenario, recorder: Recorder, lines: Sequence[CostLine]
) -> tuple[str, ...]:
    """Entries of the workloads, prices of the lines, and what the planners have used."""
    workloads = (*scenario.training_runs, *scenario.serving_services)
    for key, provenance in entries_named(workloads, recorder.snapshot):
        recorder.rest_on(key, provenance)
    for line in lines:
        recorder.rest_on_price(line.price_source, verified=line.price_verified)
    return recorder.unverified()
