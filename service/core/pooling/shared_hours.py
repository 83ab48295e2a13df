"""What the hours of a pool did that is shared or has a given size, and for whom it stood idle."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import Use, WorkloadKind
from service.core.hardware import Gpu
from service.core.hours.harvest import Schedule, most_at_once
from service.core.hours.holding import Holding
from service.core.hours.timeline import Amounts, Counts, Timeline
from service.core.pooling.separate_pool import (
    Owner,
    PoolMonth,
    Served,
    in_proportion,
    replicas_of,
    without_noise,
)
from service.core.pooling.workloads import (
    LAST_MOMENT,
    HeldGpus,
    HourlyWork,
    HourUse,
    PoolUse,
    RunHours,
    RunNeed,
    RunSchedule,
)
from service.core.scenarios.procurement import PoolKind
from service.core.units import HOURS_PER_DAY

Span = tuple[float, float]
HeldFor = Callable[[int, float], Mapping[Owner, float]]
"""Splits the idle GPU-hours of a month over the workloads for which they are held."""


class _Row(NamedTuple):
    """What one use of one workload takes in each month, between two hours of the horizon."""

    kind: WorkloadKind
    workload: str | None
    use: Use
    gpu_hours: Amounts
    gpu_counts: Counts
    span: Span


@dataclass(frozen=True)
class SharedPool:
    """A pool whose size and schedules are settled, to be written down."""

    gpu: Gpu
    needs: Sequence[RunNeed]
    services: Sequence[Served]
    timeline: Timeline
    held: Counts
    """GPUs that serving holds in each hour, spare included."""
    schedules: Sequence[Schedule]
    size: int
    outside: int
    """GPUs that the pool holds for serving while no run is under way."""
    always: int = 0
    """GPUs that it holds all the time."""
    kind: PoolKind = "shared"
    holding: Holding = field(kw_only=True)
    """How its GPUs come."""

    @property
    def _full(self) -> Span:
        """Hours in which its full size is held."""
        return (0.0, float(self.held.size)) if self.always >= self.size else self._runs_span

    @property
    def _outside_runs(self) -> Amounts:
        """GPUs held in each hour while no run is under way. [count]"""
        return np.maximum(self.outside * self._share(self._serving_span), self.always)

    @property
    def allocated(self) -> Amounts:
        """GPU-hours held in each hour. [gpu_hour]"""
        share = self._share(self._full)
        return self.size * share + self._outside_runs * (1 - share)

    def use(self) -> PoolUse:
        """Write down what the hours of the pool did."""
        full = self._full
        share, served = self._share(full), self._share(self._serving_span)
        without_runs = self._outside_runs.astype(np.int64)
        most = np.where(share > 0, self.size, without_runs)
        last = np.where(share == 1, self.size, without_runs)
        training = most_at_once(self.schedules, self.held.size)
        needed = [demand.hourly_needed for _, demand in self.services]
        busy = training + self.timeline.together(needed)
        at_end = self._at_end_of_hour() + self.timeline.together(needed)
        idle = np.maximum(most - busy, last - at_end)
        outside = (1 - share) * (self._outside_runs - self.timeline.together(needed))
        held_for = self._held_for(share > 0, self.timeline.by_month(outside))
        return PoolUse(
            kind=self.kind,
            gpu=self.gpu,
            held_gpu_count=int(most.max()),
            needed_peak_gpu_count=int(busy.max()),
            hours=float(share.size if self.always else np.maximum(share, served).sum()),
            hour_uses=tuple(self._uses(idle, full, held_for)),
            services=tuple(
                replicas_of(served, gpu_count=int(served[1].monthly(served[1].held).max()))
                for served in self.services
            ),
            runs=tuple(map(self._run_schedule, self.needs, self.schedules)),
            held=HeldGpus(training=training, serving=self.held, allocated=most),
            hourly=HourlyWork(
                allocated=self.allocated,
                serving_held=self.held,
                serving_needed=self.timeline.together(needed),
                training_used=self._worked("used"),
                redo=self._worked("redo"),
            ),
            preempted_gpu_count_per_day=self._preempted_per_day(),
            harvested_gpu_hours=self._harvested(training),
            existing_gpu_count=min(self.size, self.holding.existing_gpu_count),
        )

    @property
    def _runs_span(self) -> Span:
        """First start and last end of a run."""
        starts = [schedule.job.start for schedule in self.schedules]
        return min(starts, default=0.0), max(map(self._end, self.schedules), default=0.0)

    @property
    def _serving_span(self) -> Span:
        """First hour of service and the hour after the last."""
        hours = [demand.hours for _, demand in self.services]
        first = min((float(each.start) for each in hours), default=0.0)
        return first, max((float(each.stop) for each in hours), default=0.0)

    def _end(self, schedule: Schedule) -> float:
        return float(self.held.size) if schedule.finish is None else schedule.finish

    def _share(self, span: Span) -> Amounts:
        """Share of each hour that lies in a span."""
        hours = np.arange(self.held.size)
        inside: Amounts = np.minimum(hours + 1, span[1]) - np.maximum(hours, span[0])
        return inside.clip(0.0, 1.0)

    def _spread(self, schedule: Schedule, part: NDArray[Any]) -> NDArray[Any]:
        """Hours of a run laid into those of the horizon."""
        hours = np.zeros(self.held.size, dtype=part.dtype)
        hours[schedule.hours] = part
        return hours

    def _worked(self, use: Use) -> Amounts:
        """GPU-hours of all runs in each hour. [gpu_hour]"""
        hours = np.zeros(self.held.size)
        for schedule in self.schedules:
            hours[schedule.hours] += schedule.used if use == "used" else schedule.redo
        return hours

    def _at_end_of_hour(self) -> Counts:
        """GPUs that runs hold as each hour ends; one may end within its last. [count]"""
        gpus = self.timeline.together([self._spread(s, s.gpus) for s in self.schedules])
        for schedule in self.schedules:
            if schedule.finish is not None and schedule.finish < schedule.hours.stop:
                gpus[schedule.hours.stop - 1] -= schedule.gpus[-1]
        return gpus

    def _run_schedule(self, need: RunNeed, schedule: Schedule) -> RunSchedule:
        """When a run ends; one that outlives the horizon goes on at its mean pace until then."""
        done, redone = float(schedule.used.sum()), float(schedule.redo.sum())
        need = replace(need, start=self.timeline.moment(schedule.job.start))
        hours = RunHours(
            schedule.first, schedule.gpus, schedule.used, schedule.redo, schedule.returned
        )
        if schedule.finish is not None:
            finish = self.timeline.moment(schedule.finish)
            return RunSchedule(need, finish, done + redone, hours)
        last = self.timeline.hour_of(LAST_MOMENT)
        if not done:
            return RunSchedule(need, LAST_MOMENT, schedule.job.gpu_hours, hours)
        start, longer = schedule.job.start, schedule.job.gpu_hours / done
        end = min(last, start + (self.held.size - start) * longer)
        return RunSchedule(need, self.timeline.moment(end), (done + redone) * longer, hours)

    def _preempted_per_day(self) -> float:
        """GPUs that runs give back while serving grows, on a mean day between start and end."""
        start, end = self._runs_span
        if start == end:
            return 0.0
        before = np.concatenate((self.held[HOURS_PER_DAY - 1 : HOURS_PER_DAY], self.held[:-1]))
        grows = self.held > before
        returned = sum(int(s.returned[grows[s.hours]].sum()) for s in self.schedules)
        return returned / ((end - start) / HOURS_PER_DAY)

    def _harvested(self, training: Counts) -> float:
        """GPU-hours of runs beyond what the serving peak in whole instances would leave them."""
        beyond = np.maximum(training - max(0, self.size - self.serving_peak), 0)
        share = self._worked("used") + self._worked("redo")
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = np.where(training > 0, share / training, 0.0)
        return float((beyond * busy).sum())

    @property
    def serving_peak(self) -> int:
        """GPUs that services would hold all the time in a pool of their own. [count]"""
        return int(self.holding.whole(int(self.held.max())))

    def _held_for(self, inside: NDArray[np.bool_], outside_gpu_hours: Amounts) -> HeldFor:
        """Whose idle hours are: outside the runs' span serving's, inside by peak holdings.

        Inside, each side counts with the most GPUs that it holds at once, and within a side each
        workload with its own most.
        """
        served: dict[Owner, Counts] = {
            ("serving", demand.service.name): demand.hourly_held for _, demand in self.services
        }
        trained: dict[Owner, Counts] = {
            ("training", need.run.name): self._spread(schedule, schedule.gpus)
            for need, schedule in zip(self.needs, self.schedules, strict=True)
        }
        peaks: dict[Owner, float] = {}
        at_once = most_at_once(self.schedules, self.held.size)
        for side, together in ((trained, at_once), (served, self.held)):
            own = {owner: float(gpus[inside].max(initial=0)) for owner, gpus in side.items()}
            peaks |= in_proportion(float(together[inside].max(initial=0)), own)
        outside_peaks = {owner: float(gpus.max()) for owner, gpus in served.items()}

        def split(month: int, idle: float) -> dict[Owner, float]:
            outside = min(idle, float(outside_gpu_hours[month])) if peaks else idle
            outside *= bool(outside_peaks)
            shares = in_proportion(outside, outside_peaks)
            for owner, hours in in_proportion(idle - outside, peaks).items():
                shares[owner] = shares.get(owner, 0.0) + hours
            return shares

        return split

    def _uses(self, idle_gpus: Counts, full: Span, held_for: HeldFor) -> Iterator[HourUse]:
        rows = [*self._run_rows(), *self._service_rows()]
        by_month = self.timeline.by_month
        held = by_month(self.allocated)
        idle = without_noise(held - sum(row.gpu_hours for row in rows), held)
        spans = [span for span in (full, self._serving_span) if span[0] < span[1]]
        span = 0.0, float(self.held.size)
        if not self.always:
            span = min(first for first, _ in spans), max(last for _, last in spans)
        rows.append(_Row(self.kind, None, "idle", idle, by_month(idle_gpus, np.maximum), span))
        for month in range(len(self.timeline.months)):
            here = PoolMonth(self.kind, self.gpu, self.timeline, month)
            for row in rows:
                if row.gpu_hours[month] > 0:
                    yield here.use(
                        row.kind,
                        row.workload,
                        row.use,
                        gpu_hours=row.gpu_hours[month],
                        gpu_count=row.gpu_counts[month],
                        first=row.span[0],
                        last=row.span[1],
                        held_for=(
                            None if row.workload else held_for(month, float(row.gpu_hours[month]))
                        ),
                    )

    def _run_rows(self) -> Iterator[_Row]:
        for need, schedule in zip(self.needs, self.schedules, strict=True):
            span = schedule.job.start, self._end(schedule)
            parts: tuple[tuple[Use, Amounts], ...] = (
                ("used", schedule.used),
                ("redo", schedule.redo),
            )
            for use, part in parts:
                gpus = self._spread(schedule, schedule.gpus * (part > 0))
                hours = self.timeline.by_month(self._spread(schedule, part))
                most = self.timeline.by_month(gpus, np.maximum)
                yield _Row("training", need.run.name, use, hours, most, span)

    def _service_rows(self) -> Iterator[_Row]:
        for _, demand in self.services:
            hours, most = demand.used_gpu_hours(), demand.monthly(demand.needed)
            yield _Row("serving", demand.service.name, "used", hours, most, self._serving_span)
