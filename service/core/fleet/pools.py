"""Pools apart beside pools shared, by the planners that plans use."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.answers import recorder_for, shared_fields
from service.core.assumptions import AssumptionUsed
from service.core.errors import CoreError
from service.core.estimates import Infeasibility, PoolSize
from service.core.fleet.pools_types import (
    GpusLeft,
    HourSeries,
    ModeEstimate,
    PoolInMode,
    PoolsAnswer,
    PoolsQuestion,
    RunInMode,
)
from service.core.hours.timeline import Amounts, Timeline
from service.core.planners.answer import service_estimate
from service.core.planners.buying import Buying
from service.core.planners.plan import Workloads, check_gpus, plan_workloads, pool_workloads
from service.core.pooling.counts import serving_counts
from service.core.pooling.workloads import PoolsOutcome, PoolUse, RunSchedule
from service.core.recorder import Recorder
from service.core.scenarios.demand import (
    HOURS_OF_DAY_PROFILE,
    HOURS_OF_WEEK_PROFILE,
    profile_factors,
)
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import CatalogSnapshot

SCENARIO = "/scenario"
"""Where planners think that the workloads stand; here they stand at the root."""
UNPRICED = {"kind": "rent", "price_per_gpu_hour": "1"}
"""Pools are sized without any price: what is added is rented instance by instance."""


def estimate_pools(question: PoolsQuestion, snapshot: CatalogSnapshot) -> PoolsAnswer:
    """Plan the same workloads in pools apart and in one pool.

    Raises:
        CoreError: If the question names what the release does not hold, or contradicts itself.
    """
    recorder = recorder_for(question, snapshot)
    try:
        return _answer(question, recorder)
    except CoreError as error:
        error.pointer = error.pointer.removeprefix(SCENARIO)
        raise


def _answer(question: PoolsQuestion, recorder: Recorder) -> PoolsAnswer:
    apart = _Mode.of(question, "separate", recorder)
    check_gpus(apart.scenario, recorder.snapshot)
    workloads = plan_workloads(apart.scenario, apart.buying)
    together = _Mode.of(question, "shared", recorder)
    separate, shared = apart.outcome(workloads), together.outcome(workloads)
    modes = [mode for mode in (separate, shared) if mode is not None]
    first = next(iter(modes), None)
    lacks = (*workloads.refused, *(lack for mode in modes for lack in mode.infeasibilities))
    fields = shared_fields(recorder, infeasibilities=tuple(dict.fromkeys(lacks)))
    fields["assumptions"] = tuple(map(_at_root, fields["assumptions"]))
    saved = None
    is_searched = question.fleet_gpu_count is None
    if separate is not None and shared is not None and not lacks and is_searched:
        saved = separate.peak_gpu_count - shared.peak_gpu_count
    return PoolsAnswer(
        **fields,
        serving_counts=() if first is None else tuple(apart.counts(first)),
        serving_services=(
            () if first is None else tuple(service_estimate(each, None) for each in first.services)
        ),
        series_month=apart.series_month,
        separate=None if separate is None else apart.describe(separate),
        shared=None if shared is None else together.describe(shared),
        saved_gpu_count=saved,
    )


def _at_root(used: AssumptionUsed) -> AssumptionUsed:
    return used.model_copy(update={"override_at": used.override_at.removeprefix(SCENARIO)})


@dataclass(frozen=True)
class _Mode:
    """One way to pool the workloads of a question."""

    scenario: Scenario
    buying: Buying
    series_month: str

    @classmethod
    def of(cls, question: PoolsQuestion, kind: str, recorder: Recorder) -> "_Mode":
        """The question as a scenario of this mode."""
        rent = UNPRICED | {"gpu_count_per_instance": question.gpu_count_per_instance}
        scenario = Scenario.model_validate(
            {
                "horizon": question.horizon,
                "training_runs": question.training_runs,
                "serving_services": question.serving_services,
                "existing_gpus": question.existing_gpus,
                "pooling": {"kind": kind, "fleet_gpu_count": question.fleet_gpu_count},
                "procurement": [{"method": rent}],
            }
        )
        month = question.series_month or question.horizon.start_month
        return cls(scenario, Buying(scenario, recorder), month)

    def outcome(self, workloads: Workloads) -> PoolsOutcome | None:
        """Pools of this mode; None when no workload could be planned."""
        return pool_workloads(self.scenario, workloads, self.buying)

    @property
    def timeline(self) -> Timeline:
        """Hours of the horizon."""
        return Timeline.of(self.scenario.horizon)

    def counts(self, outcome: PoolsOutcome) -> Iterator[Any]:
        """Five counts of each pool that serves."""
        for use in outcome.uses:
            found = serving_counts(use, self.buying.gpu_multiple(use.kind, use.gpu))
            if found is not None:
                yield found

    def describe(self, outcome: PoolsOutcome) -> ModeEstimate:
        """Put the pools of this mode into the published shape."""
        lacks: tuple[Infeasibility, ...] = outcome.infeasibilities
        pairs = zip(outcome.pools, outcome.uses, strict=True)
        return ModeEstimate(
            feasible=not lacks,
            infeasibilities=lacks,
            peak_gpu_count=outcome.peak_gpu_count if outcome.pools else None,
            idle_gpu_hours=(
                sum(pool.idle_gpu_hours for pool in outcome.pools) if outcome.pools else None
            ),
            training_left=_left(outcome.uses) if outcome.pools else None,
            pools=tuple(self._pool(size, use) for size, use in pairs),
            training_runs=tuple(self._run(run) for run in outcome.runs if run.hours is not None),
        )

    def _pool(self, size: PoolSize, use: PoolUse) -> PoolInMode:
        work = use.hourly
        held = float(work.allocated.sum()) or 1.0  # a run may be over before a double tells
        by_runs = float((work.training_used + work.redo).sum())
        return PoolInMode(
            size=size,
            allocated_fraction=min(1.0, (float(work.serving_held.sum()) + by_runs) / held),
            busy_fraction=min(1.0, float((work.serving_needed + work.training_used).sum()) / held),
            harvested_gpu_hours=use.harvested_gpu_hours,
            series=HourSeries(
                allocated_gpus=self._typical(work.allocated),
                serving_held_gpus=self._typical(work.serving_held),
                serving_needed_gpus=self._typical(work.serving_needed),
                training_gpus=self._typical(work.training_used),
                redo_gpus=self._typical(work.redo),
                idle_gpus=self._typical(work.idle),
            ),
        )

    def _typical(self, by_hour: NDArray[Any]) -> tuple[float, ...]:
        """Mean of each hour of the day or week over the month that is shown."""
        timeline = self.timeline
        month = timeline.months.index(self.series_month)
        hours = slice(*timeline.edges[[month, month + 1]])
        weekly = any(
            len(profile_factors(service.demand_profile)) == HOURS_OF_WEEK_PROFILE
            for service in self.scenario.serving_services
        )
        size = HOURS_OF_WEEK_PROFILE if weekly else HOURS_OF_DAY_PROFILE
        local = timeline.cycle("UTC", size)[0][hours]
        sums = np.bincount(local, weights=by_hour[hours], minlength=size)
        return tuple((sums / np.bincount(local, minlength=size)).tolist())

    def _run(self, schedule: RunSchedule) -> RunInMode:
        need, hours = schedule.need, schedule.hours
        assert hours is not None  # noqa: S101 runs without hours have no pool, and are left out
        events = int(np.count_nonzero(hours.returned))
        lost_s = need.checkpoint_interval_s / 2 + need.checkpoint_write_s + need.restart_s
        restarts = need.restart_s / lost_s if lost_s else 0.0
        redone = float(hours.redo.sum())
        days = (schedule.finish - need.start) / timedelta(days=1)
        done = np.zeros(self.timeline.hour_count)
        done[hours.first : hours.first + hours.used.size] = hours.used
        return RunInMode(
            name=need.run.name,
            finish=schedule.finish,
            gpu_hours=schedule.gpu_hours,
            preemption_count=events,
            preempted_gpu_count=int(hours.returned.sum()),
            redo_gpu_hours=redone * (1 - restarts),
            restart_gpu_hours=redone * restarts,
            cost_gpu_hours_per_preemption=redone / events if events else 0.0,
            finished_fraction_per_day=_pace(days, is_begun=bool(done.any())),
            finished_fraction_by_month=tuple(
                np.minimum(1.0, self.timeline.by_month(done) / need.gpu_hours).tolist()
            ),
        )


def _pace(days: float, *, is_begun: bool) -> float:
    """Share of a run that a mean day finishes; a run that is over at once takes a day for it."""
    if not days:
        return 1.0
    return 1.0 / days if is_begun else 0.0


def _left(uses: tuple[PoolUse, ...]) -> GpusLeft:
    """GPUs of each hour that no service holds and no pool of serving alone has."""
    left: list[Amounts] = [
        use.hourly.allocated - use.hourly.serving_held for use in uses if use.kind != "serving"
    ]
    total: Amounts = np.sum(left, axis=0) if left else np.zeros(1)
    held: Amounts = np.sum([use.hourly.allocated for use in uses], axis=0) if left else np.ones(1)
    hours = total[held > 0] if held.any() else np.zeros(1)
    return GpusLeft(least=int(hours.min()), mean=float(hours.mean()), most=int(hours.max()))
