"""Pools over time: how many GPUs training and serving hold, month by month, and what they do."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain
from typing import TypeVar

import numpy as np

from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, PoolSize
from service.core.formulas.calendar import hours_in_month, month_index, month_of
from service.core.formulas.demand import (
    idle_gpu_hours,
    mean_over_peak_fraction,
)
from service.core.hardware import Gpu
from service.core.hours.harvest import HOUR_NOISE
from service.core.hours.holding import Holding
from service.core.hours.service_demand import service_demand
from service.core.hours.timeline import Counts, Timeline
from service.core.pooling.counts import note_counts
from service.core.pooling.separate_pool import (
    Served,
    plan_serving_pool,
    plan_training_pool,
)
from service.core.pooling.shared_pool import plan_shared_pool, too_few
from service.core.pooling.workloads import (
    PoolsOutcome,
    PoolUse,
    ReplicaCapacity,
    RunNeed,
    RunSchedule,
    gpu_hour_ranges,
    gpu_hours_by_use,
    noted_size,
)
from service.core.recorder import Recorder
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.scenario import Scenario
from service.core.value import LAST_MONTH

Multiple = Callable[[PoolKind, Gpu], int]
SiteOf = Callable[[PoolKind, Gpu], str | None]
IsOwned = Callable[[PoolKind, Gpu], bool]
CountInTime = Callable[[RunNeed, date], int | None]
Workload = TypeVar("Workload")
MAX_MONTH_COUNT = 120
"""Longest horizon that a scenario may have."""


def plan_pools(
    scenario: Scenario,
    runs: Sequence[RunNeed],
    services: Sequence[ReplicaCapacity],
    *,
    recorder: Recorder,
    gpu_multiple: Multiple,
    site_of: SiteOf,
    is_owned: IsOwned,
    count_in_time: CountInTime,
) -> PoolsOutcome:
    """Size every pool of a plan and say what its GPU-hours do.

    Args:
        scenario: The question; its horizon and pooling decide.
        runs: What each training run needs on GPUs of its own.
        services: What a replica of each service serves.
        recorder: Takes the quantities of pools and services.
        gpu_multiple: GPUs of the instance or node that a pool's GPU comes in.
        site_of: Site of a pool's GPU, where it is owned.
        is_owned: Whether a pool's GPUs are owned: then they are held over the whole horizon.
        count_in_time: Fewest GPUs on which a run ends by a day, None where none do.

    Raises:
        InvalidScenario: If a run starts outside the horizon, two different GPUs have one key, or
            a fleet size is given for several kinds of GPU.
    """
    timeline = Timeline.of(scenario.horizon)
    planning = _Planning(
        scenario, timeline, recorder, gpu_multiple, site_of, is_owned, count_in_time
    )
    planning.check_starts(runs)
    _check_keys([need.gpu for need in runs] + [capacity.gpu for capacity in services])
    served, lacks = planning.served(services)
    planned = planning.separate if scenario.pooling.kind == "separate" else planning.shared
    pools, late = planned(runs, served, scenario.pooling.fleet_gpu_count)
    return planning.outcome(pools, runs, (*lacks, *late))


def _by_gpu(
    workloads: Iterable[Workload], gpu_of: Callable[[Workload], Gpu]
) -> dict[Gpu, list[Workload]]:
    """Workloads of each GPU, in the order in which GPUs first appear."""
    groups: dict[Gpu, list[Workload]] = {}
    for workload in workloads:
        groups.setdefault(gpu_of(workload), []).append(workload)
    return groups


def _check_keys(gpus: Iterable[Gpu]) -> None:
    """Refuse two GPUs under one key: pools, prices and lines are told apart by it."""
    known: dict[str, Gpu] = {}
    for gpu in gpus:
        if known.setdefault(gpu.key, gpu) != gpu:
            raise InvalidScenario(
                f"two different GPUs are described under the key {gpu.key!r}: give each its own",
                pointer="/scenario",
            )


@dataclass(frozen=True)
class _Planning:
    """What all steps of one plan's pools look up."""

    scenario: Scenario
    timeline: Timeline
    recorder: Recorder
    gpu_multiple: Multiple
    site_of: SiteOf
    is_owned: IsOwned
    count_in_time: CountInTime

    def check_starts(self, runs: Iterable[RunNeed]) -> None:
        """Refuse a run that starts where the plan has no hours."""
        numbers = {run.name: number for number, run in enumerate(self.scenario.training_runs)}
        for need in runs:
            if (
                need.run.after is None
                and not 0 <= self.timeline.hour_of(need.start) < self.timeline.hour_count
            ):
                raise InvalidScenario(
                    f"{need.run.name!r} starts on {need.start.date()}, outside the horizon",
                    pointer=f"/scenario/training_runs/{numbers[need.run.name]}/start_date",
                )

    def served(
        self, services: Sequence[ReplicaCapacity]
    ) -> tuple[list[Served], list[Infeasibility]]:
        """Demand of each service, and services whose demand is beyond counting."""
        numbers = {item.name: number for number, item in enumerate(self.scenario.serving_services)}
        found: list[Served] = []
        refused: list[Infeasibility] = []
        for capacity in services:
            name = capacity.service.name
            demand = service_demand(
                capacity.service,
                units_per_s_per_replica=capacity.units_per_s_per_replica,
                replica=capacity.size,
                timeline=self.timeline,
                recorder=self.recorder.within(f"service:{name}"),
                pointer=f"/scenario/serving_services/{numbers[name]}",
            )
            if isinstance(demand, Infeasibility):
                refused.append(demand)
            else:
                found.append((capacity, demand))
        return found, refused

    def holding(self, pool: PoolKind, gpu: Gpu, *, taken: int = 0) -> Holding:
        """How the GPUs of a pool come; existing ones that another pool has taken are gone."""
        site = self.site_of(pool, gpu)
        existing = sum(
            lot.gpu_count for lot in self.scenario.existing_gpus if lot.serves(gpu.key, site)
        )
        return Holding(
            gpu_multiple=self.gpu_multiple(pool, gpu),
            owned=self.is_owned(pool, gpu),
            existing_gpu_count=max(0, existing - taken),
        )

    def separate(
        self, runs: Sequence[RunNeed], services: Sequence[Served], fleet_gpu_count: int | None
    ) -> tuple[list[PoolUse], list[Infeasibility]]:
        """A pool for the runs and one for the services of each GPU; a given size is that of both.

        Services take existing GPUs first: they hold theirs all the time. A run that follows one
        which outlives the horizon has no hours in it.
        """
        needs = _by_gpu(runs, lambda need: need.gpu)
        served = _by_gpu(services, lambda item: item[0].gpu)
        serving = {
            gpu: plan_serving_pool(
                gpu, items, holding=self.holding("serving", gpu), timeline=self.timeline
            )
            for gpu, items in served.items()
        }
        if fleet_gpu_count is not None and (needs or served):
            return self._in_fleet(needs, served, serving, fleet_gpu_count)
        begun = [run for run in runs if self.timeline.hour_of(run.start) < self.timeline.hour_count]
        training = [
            plan_training_pool(
                gpu,
                items,
                holding=self.holding("training", gpu, taken=_existing_of(serving.get(gpu))),
                timeline=self.timeline,
            )
            for gpu, items in _by_gpu(begun, lambda need: need.gpu).items()
        ]
        late = [self._too_long(need) for need in runs if self._is_too_long(need)]
        return [*training, *serving.values()], late

    def _in_fleet(
        self,
        needs: Mapping[Gpu, Sequence[RunNeed]],
        served: Mapping[Gpu, Sequence[Served]],
        serving: Mapping[Gpu, PoolUse],
        fleet_gpu_count: int,
    ) -> tuple[list[PoolUse], list[Infeasibility]]:
        """Serving holds its peak of a fleet of a given size, and runs queue for the rest."""
        gpu = self._only_gpu({**needs, **served})
        pool, items = serving.get(gpu), served.get(gpu, [])
        taken = _existing_of(pool)
        apart = 0 if pool is None else int(pool.held.allocated.max())
        holding = self.holding("training", gpu, taken=taken)
        rest = fleet_gpu_count - apart
        if rest < 0 or (needs and not rest):
            short = too_few(
                items,
                needs.get(gpu, ()),
                self.timeline,
                available=fleet_gpu_count,
                serving_gpu_count=apart,
                holding=holding,
            )
            return [], list(short)
        if not needs:
            return list(serving.values()), []
        training, lacks = plan_shared_pool(
            gpu,
            needs[gpu],
            [],
            fleet_gpu_count=rest,
            holding=holding,
            timeline=self.timeline,
            kind="training",
            apart_gpu_count=apart,
        )
        return [*([] if training is None else [training]), *serving.values()], list(lacks)

    def _only_gpu(self, gpus: Mapping[Gpu, object]) -> Gpu:
        """The one kind of GPU that a given fleet size is about."""
        if len(gpus) > 1:
            raise InvalidScenario(
                f"the workloads stand on {len(gpus)} kinds of GPU, which share nothing: "
                "one fleet size does not say how many there are of each",
                pointer="/scenario/pooling/fleet_gpu_count",
            )
        return next(iter(gpus))

    def shared(
        self, runs: Sequence[RunNeed], services: Sequence[Served], fleet_gpu_count: int | None
    ) -> tuple[list[PoolUse], list[Infeasibility]]:
        """One pool for all workloads of each GPU; a given size is that of the only one."""
        lacks: list[Infeasibility] = []
        if fleet_gpu_count is None:
            lacks = [self._too_long(need) for need in runs if self._is_too_long(need)]
            runs = [need for need in runs if not self._is_too_long(need)]
        needs = _by_gpu(runs, lambda need: need.gpu)
        served = _by_gpu(services, lambda item: item[0].gpu)
        gpus = list({**needs, **served})
        if fleet_gpu_count is not None and gpus:
            self._only_gpu({**needs, **served})
        pools: list[PoolUse] = []
        for gpu in gpus:
            pool, missing = plan_shared_pool(
                gpu,
                needs.get(gpu, []),
                served.get(gpu, []),
                fleet_gpu_count=fleet_gpu_count,
                holding=self.holding("shared", gpu),
                timeline=self.timeline,
            )
            lacks += missing
            pools += [] if pool is None else [pool]
        return pools, lacks

    def _is_too_long(self, need: RunNeed) -> bool:
        hours = self.timeline.hour_of(need.start) + need.wall_clock_hours.value
        return hours > self.timeline.hour_count + HOUR_NOISE

    def _too_long(self, need: RunNeed) -> Infeasibility:
        """A run that would still run when the horizon ends, and what would help."""
        available = max(0.0, self.timeline.hour_count - self.timeline.hour_of(need.start))
        last_day = (self.timeline.moment(self.timeline.hour_count) - timedelta(days=1)).date()
        count = self.count_in_time(need, last_day) if available > 0 else None
        months = self._months_until(need)
        fixes = [] if count is None else [f"gpu_count {count}, which ends the run by {last_day}"]
        fixes += [] if months is None else [f"a horizon of {months} months"]
        share = available / need.wall_clock_hours.value
        tokens = int(need.run.tokens * share * (1 - HOUR_NOISE))
        shorter = f"training_tokens {tokens:,} on as many GPUs"
        if tokens == 0:
            shorter = f"an earlier end of {need.run.after!r}, which it follows"
        return Infeasibility(
            workload=need.run.name,
            code="deadline",
            limit="horizon",
            needed=need.wall_clock_hours.value,
            available=available,
            unit="h",
            nearest_fix=" or ".join(fixes or [shorter]),
        )

    def _months_until(self, need: RunNeed) -> int | None:
        """Months of a horizon in which a run ends, where a horizon can be so long. [count]"""
        hours = self.timeline.hour_of(need.start) + need.wall_clock_hours.value
        first = month_index(self.timeline.months[0])
        most = min(MAX_MONTH_COUNT, month_index(LAST_MONTH) - first + 1)
        for count in range(1, most + 1):
            hours -= hours_in_month(month_of(first + count - 1))
            if hours <= 0:
                return count
        return None

    def outcome(
        self,
        pools: Sequence[PoolUse],
        needs: Sequence[RunNeed],
        infeasibilities: Sequence[Infeasibility],
    ) -> PoolsOutcome:
        """All pools together, in the order of the request; a run without one as it is alone."""
        kinds = Counter(pool.kind for pool in pools)
        uses = sorted(chain(*(pool.hour_uses for pool in pools)), key=lambda use: use.month)
        runs = {need.run.name: RunSchedule(need, need.finish, need.gpu_hours) for need in needs}
        runs |= {item.need.run.name: item for pool in pools for item in pool.runs}
        services = {item.capacity.service.name: item for pool in pools for item in pool.services}
        return PoolsOutcome(
            pools=tuple(self._size(pool, alone=kinds[pool.kind] == 1) for pool in pools),
            hour_uses=tuple(uses),
            services=tuple(
                services[item.name]
                for item in self.scenario.serving_services
                if item.name in services
            ),
            runs=tuple(
                runs[item.name] for item in self.scenario.training_runs if item.name in runs
            ),
            training_gpu_counts=self._most_by_month([pool.held.training for pool in pools]),
            serving_gpu_counts=self._most_by_month([pool.held.serving for pool in pools]),
            peak_gpu_count=max(self._most_by_month([pool.held.allocated for pool in pools])),
            loads={(pool.kind, pool.gpu.key): pool.held.allocated for pool in pools},
            allocated_gpu_hours=tuple(gpu_hour_ranges(pool)[0] for pool in pools),
            uses=tuple(pools),
            infeasibilities=tuple(infeasibilities),
        )

    def _most_by_month(self, held: Sequence[Counts]) -> tuple[int, ...]:
        total = self.timeline.together(held)
        return tuple(self.timeline.by_month(total, np.maximum).tolist())

    def _size(self, pool: PoolUse, *, alone: bool) -> PoolSize:
        """Size and use of a pool, remembered under its name, and its GPU where there are more."""
        name = pool.kind if alone else f"{pool.kind}:{pool.gpu.key}"
        recorder = self.recorder.within(f"pool:{name}")
        multiple, existing = self.gpu_multiple(pool.kind, pool.gpu), pool.existing_gpu_count
        gpu_count = noted_size(pool, multiple, recorder)
        note_counts(pool, multiple, recorder)
        hours = gpu_hours_by_use(pool)
        held, used = gpu_hour_ranges(pool)
        allocated = held.value
        recorder.note("allocated_gpu_hours", allocated, low=held.low, high=held.high)
        recorder.note("used_gpu_hours", hours["used"], low=used.low, high=used.high)
        recorder.note("redo_gpu_hours", hours["redo"])
        recorder.note("preempted_gpu_count_per_day", pool.preempted_gpu_count_per_day)
        return PoolSize(
            name=pool.kind,
            gpu=pool.gpu.key,
            site=self.site_of(pool.kind, pool.gpu),
            gpu_count=gpu_count,
            existing_gpu_count=existing,
            added_gpu_count=gpu_count - existing,
            node_count=-(-gpu_count // multiple),
            allocated_gpu_hours=allocated,
            used_gpu_hours=hours["used"],
            idle_gpu_hours=recorder.evaluate(
                idle_gpu_hours,
                allocated_gpu_hours=allocated,
                used_gpu_hours=hours["used"],
                redo_gpu_hours=hours["redo"],
            ),
            redo_gpu_hours=hours["redo"],
            mean_over_peak_fraction=recorder.evaluate(
                mean_over_peak_fraction,
                needed_gpu_hours=hours["used"] + hours["redo"],
                peak_gpu_count=max(1, pool.needed_peak_gpu_count),
                hours=pool.hours or 1.0,  # a run may be over before a double tells
            ),
            preempted_gpu_count_per_day=pool.preempted_gpu_count_per_day,
        )


def _existing_of(pool: PoolUse | None) -> int:
    return 0 if pool is None else pool.existing_gpu_count
