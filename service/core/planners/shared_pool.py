"""One pool for all: serving takes what each hour needs, training whole copies of the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import Infeasibility, Use, WorkloadKind
from service.core.formulas.calendar import midnight
from service.core.formulas.demand import whole_instances_gpu_count
from service.core.formulas.reliability import lost_s_per_failure
from service.core.hardware import Gpu
from service.core.hours.harvest import (
    HOUR_NOISE,
    Job,
    Schedule,
    harvest_in_turn,
    side_by_side,
    smallest_fleet,
)
from service.core.hours.timeline import Amounts, Counts, Timeline
from service.core.planners.separate_pool import (
    Owner,
    PoolMonth,
    Served,
    in_proportion,
    replicas_of,
    without_noise,
)
from service.core.planners.workloads import HeldGpus, HourUse, PoolUse, RunNeed, RunSchedule
from service.core.recorder import Recorder
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR


def plan_shared_pool(
    gpu: Gpu,
    needs: Sequence[RunNeed],
    services: Sequence[Served],
    *,
    fleet_gpu_count: int | None,
    gpu_multiple: int,
    timeline: Timeline,
    recorder: Recorder,
    owned: bool,
) -> tuple[PoolUse | None, tuple[Infeasibility, ...]]:
    """Size the pool, or take the size that is given, and run every workload in it.

    A size that was found is held from the first start of a run to the last end; outside, the pool
    is as large as serving needs at its peak. A size that was given, or is owned, is held all the
    time.

    Returns:
        The pool, None when it cannot even serve, and what it lacks.
    """
    jobs = [_job_of(need, timeline, recorder) for need in needs]
    held = _sum_by_hour(timeline, [demand.hourly(demand.held) for _, demand in services])
    whole = partial(whole_instances_gpu_count, gpu_count_per_instance=gpu_multiple)
    if fleet_gpu_count is None:
        size, schedules = smallest_fleet(jobs, held, gpu_multiple=gpu_multiple)
        outside = int(whole(gpu_count=int(held.max())))
        lacks: tuple[Infeasibility, ...] = ()
    else:
        size = outside = int(whole(gpu_count=fleet_gpu_count))
        if size < held.max():
            return None, (_too_small(jobs, held, size, gpu_multiple),)
        schedules = _schedules_in(size, jobs, held)
        lacks = _late(needs, schedules, held, gpu_multiple)
    pool = _SharedPool(gpu, needs, services, timeline, held, schedules, size, outside)
    return pool.use(always=owned or fleet_gpu_count is not None), lacks


def _sum_by_hour(timeline: Timeline, parts: Sequence[Counts]) -> Counts:
    total = np.zeros(timeline.hour_count, dtype=np.int64)
    for part in parts:
        total += part
    return total


def _job_of(need: RunNeed, timeline: Timeline, recorder: Recorder) -> Job:
    start = timeline.hour_of(need.start)
    sizing, hours = need.run.sizing, need.wall_clock_hours.value
    if abs(start + hours - timeline.hour_count) <= HOUR_NOISE:
        hours = timeline.hour_count - start
    due = start + hours
    if sizing.kind == "finish_by":
        due = max(due, timeline.hour_of(midnight(sizing.finish_date + timedelta(days=1))))
    least, most = _copies(need)
    lost_s = recorder.within(f"run:{need.run.name}").evaluate(
        lost_s_per_failure,
        checkpoint_interval_s=need.checkpoint_interval_s,
        restart_s=need.restart_s,
    )
    return Job(
        start=start,
        due=min(due, float(timeline.hour_count)),
        own_gpu_count=need.gpu_count,
        own_hours=hours,
        copy_gpu_count=need.gpus_per_copy,
        least_copies=least,
        most_copies=most,
        redo_hours=lost_s / SECONDS_PER_HOUR,
        elastic=need.run.elastic,
    )


def _copies(need: RunNeed) -> tuple[int, int]:
    """Fewest copies that hold the state they shard, and most that the batch can feed. [count]"""
    own = max(1, need.gpu_count // need.gpus_per_copy)
    sequences = need.run.global_batch_tokens // need.run.sequence_length_tokens
    if need.layout is None or need.memory is None:
        return 1, max(own, sequences)
    layout, memory = need.layout, need.memory
    sharded = {
        "none": 0.0,
        "hybrid": 0.0,
        "zero_1": memory.optimizer,
        "zero_2": memory.optimizer + memory.gradients,
        "zero_3": memory.optimizer + memory.gradients + memory.weights,
    }[layout.sharding]
    room = memory.available - (memory.total - sharded)
    fitting = ceil(own * sharded / room) if room > 0 else own
    experts = ceil(layout.expert_parallel / (layout.tensor_parallel * layout.context_parallel))
    most = max(own, sequences // layout.micro_batch_sequences)
    return min(own, max(1, fitting, experts)), most


def _schedules_in(size: int, jobs: Sequence[Job], held: Counts) -> list[Schedule]:
    """Hours of all runs in a fleet of a given size; side by side where only that ends in time."""
    found = dict(harvest_in_turn(jobs, size - held, stop=held.size))
    schedules = [found[number] for number in range(len(jobs))]
    if all(schedule.in_time for schedule in schedules) or not _can_be_alone(jobs, held):
        return schedules
    enough, apart = side_by_side(jobs, held)
    return apart if enough <= size else schedules


def _can_be_alone(jobs: Sequence[Job], held: Counts) -> bool:
    return all(job.start + job.own_hours <= held.size for job in jobs)


def _too_small(
    jobs: Sequence[Job], held: Counts, available: int, gpu_multiple: int
) -> Infeasibility:
    return Infeasibility(
        workload=None,
        code="fleet",
        limit="fleet_gpu_count",
        needed=float(held.max()),
        available=available,
        unit="gpu",
        nearest_fix=_fleet_that_does(jobs, held, gpu_multiple),
    )


def _fleet_that_does(jobs: Sequence[Job], held: Counts, gpu_multiple: int) -> str:
    if not _can_be_alone(jobs, held):
        return "More GPUs and a longer horizon: a run is too long for it on GPUs of its own."
    enough, _ = smallest_fleet(jobs, held, gpu_multiple=gpu_multiple)
    runs = " and ends each run by its date, or as early as on GPUs of its own" if jobs else ""
    return f"A fleet of {enough} GPUs serves every hour{runs}."


def _late(
    needs: Sequence[RunNeed], schedules: Sequence[Schedule], held: Counts, gpu_multiple: int
) -> tuple[Infeasibility, ...]:
    """Runs that do not end within the horizon, or after the date that the request names."""
    late = [
        (need, schedule)
        for need, schedule in zip(needs, schedules, strict=True)
        if schedule.finish is None or (need.run.sizing.kind == "finish_by" and not schedule.in_time)
    ]
    if not late:
        return ()
    fix = _fleet_that_does([schedule.job for schedule in schedules], held, gpu_multiple)
    return tuple(
        Infeasibility(
            workload=need.run.name,
            code="deadline",
            limit="horizon" if schedule.finish is None else "finish_date",
            needed=schedule.job.gpu_hours,
            available=_done_when_due(schedule, held.size),
            unit="gpu_hour",
            nearest_fix=fix,
        )
        for need, schedule in late
    )


def _done_when_due(schedule: Schedule, hour_count: int) -> float:
    """GPU-hours of progress by the date of a run, or by the end of the horizon. [gpu_hour]"""
    due = hour_count if schedule.finish is None else int(schedule.job.due)
    return float(schedule.used[: due - schedule.first].sum())


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
class _SharedPool:
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

    def use(self, *, always: bool) -> PoolUse:
        """Write down what the hours of the pool did; `always` holds its full size throughout."""
        full = (0.0, float(self.held.size)) if always else self._runs_span
        share, served = self._share(full), self._share(self._serving_span)
        allocated = self.size * share + self.outside * served * (1 - share)
        serving_only = self.outside * served.astype(np.int64)
        most = np.where(share > 0, self.size, serving_only)
        last = np.where(share == 1, self.size, serving_only)
        training = _sum_by_hour(self.timeline, [self._spread(s, s.gpus) for s in self.schedules])
        needed = [demand.hourly(demand.needed) for _, demand in self.services]
        busy = training + _sum_by_hour(self.timeline, needed)
        idle = np.maximum(most - busy, last - busy + self._ending_gpus())
        outside = served * (1 - share) * (self.outside - _sum_by_hour(self.timeline, needed))
        held_for = self._held_for(share > 0, self.timeline.by_month(outside))
        return PoolUse(
            kind="shared",
            gpu=self.gpu,
            held_gpu_count=int(most.max()),
            needed_peak_gpu_count=int(busy.max()),
            hours=float(np.maximum(share, served).sum()),
            hour_uses=tuple(self._uses(allocated, idle, full, held_for)),
            services=tuple(
                replicas_of(served, gpu_count=int(served[1].monthly(served[1].held).max()))
                for served in self.services
            ),
            runs=tuple(map(self._run_schedule, self.needs, self.schedules)),
            held=HeldGpus(training=training, serving=self.held, allocated=most),
            preempted_gpu_count_per_day=self._preempted_per_day(),
        )

    @property
    def _runs_span(self) -> Span:
        """First start and last end of a run."""
        starts = [schedule.job.start for schedule in self.schedules]
        return min(starts, default=0.0), max(map(self._end, self.schedules), default=0.0)

    @property
    def _serving_span(self) -> Span:
        """First hour of service and the hour after the last."""
        edges = self.timeline.edges
        first = min((float(edges[demand.first]) for _, demand in self.services), default=0.0)
        return first, max((float(edges[demand.stop]) for _, demand in self.services), default=0.0)

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

    def _ending_gpus(self) -> Counts:
        """GPUs that a run leaves before the hour is over, in the hour in which it ends. [count]"""
        gpus = np.zeros(self.held.size, dtype=np.int64)
        for schedule in self.schedules:
            if schedule.finish is not None and schedule.finish < schedule.hours.stop:
                gpus[schedule.hours.stop - 1] += schedule.gpus[-1]
        return gpus

    def _run_schedule(self, need: RunNeed, schedule: Schedule) -> RunSchedule:
        return RunSchedule(
            need=need,
            finish=self.timeline.moment(self._end(schedule)),
            gpu_hours=float(schedule.used.sum() + schedule.redo.sum()),
        )

    def _preempted_per_day(self) -> float:
        """GPUs that runs give back while serving grows, on a mean day between start and end."""
        start, end = self._runs_span
        if start == end:
            return 0.0
        before = np.concatenate((self.held[HOURS_PER_DAY - 1 : HOURS_PER_DAY], self.held[:-1]))
        grows = self.held > before
        returned = sum(int(s.returned[grows[s.hours]].sum()) for s in self.schedules)
        return returned / ((end - start) / HOURS_PER_DAY)

    def _held_for(self, inside: NDArray[np.bool_], outside_gpu_hours: Amounts) -> HeldFor:
        """Whose idle hours are: outside the runs' span serving's, inside by peak holdings.

        Inside, each side counts with the most GPUs that it holds at once, and within a side each
        workload with its own most.
        """
        served: dict[Owner, Counts] = {
            ("serving", demand.service.name): demand.hourly(demand.held)
            for _, demand in self.services
        }
        trained: dict[Owner, Counts] = {
            ("training", need.run.name): self._spread(schedule, schedule.gpus)
            for need, schedule in zip(self.needs, self.schedules, strict=True)
        }
        peaks: dict[Owner, float] = {}
        for side in (trained, served):
            together = _sum_by_hour(self.timeline, list(side.values()))
            own = {owner: float(gpus[inside].max(initial=0)) for owner, gpus in side.items()}
            peaks |= in_proportion(float(together[inside].max(initial=0)), own)
        outside_peaks = {owner: float(gpus.max()) for owner, gpus in served.items()}

        def split(month: int, idle: float) -> dict[Owner, float]:
            outside = min(idle, float(outside_gpu_hours[month])) if peaks else idle
            shares = in_proportion(outside, outside_peaks)
            for owner, hours in in_proportion(idle - outside, peaks).items():
                shares[owner] = shares.get(owner, 0.0) + hours
            return shares

        return split

    def _uses(
        self, allocated: Amounts, idle_gpus: Counts, full: Span, held_for: HeldFor
    ) -> Iterator[HourUse]:
        rows = [*self._run_rows(), *self._service_rows()]
        by_month = self.timeline.by_month
        held = by_month(allocated)
        idle = without_noise(held - sum(row.gpu_hours for row in rows), held)
        spans = [span for span in (full, self._serving_span) if span[0] < span[1]]
        span = min(first for first, _ in spans), max(last for _, last in spans)
        rows.append(_Row("shared", None, "idle", idle, by_month(idle_gpus, np.maximum), span))
        for month in range(len(self.timeline.months)):
            here = PoolMonth("shared", self.gpu, self.timeline, month)
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
