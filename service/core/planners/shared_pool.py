"""One pool for all: serving takes what each hour needs, training whole copies of the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.estimates import Infeasibility, Use, WorkloadKind
from service.core.formulas.calendar import midnight
from service.core.formulas.demand import FLOAT_NOISE, whole_instances_gpu_count
from service.core.formulas.reliability import lost_s_per_failure
from service.core.hardware import Gpu
from service.core.hours.given_fleet import (
    can_be_alone,
    schedules_in,
    shortened,
    smallest_size,
)
from service.core.hours.harvest import (
    HOUR_NOISE,
    Job,
    Schedule,
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
from service.core.planners.training import LAST_MOMENT
from service.core.planners.workloads import HeldGpus, HourUse, PoolUse, RunNeed, RunSchedule
from service.core.recorder import Recorder
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR

LONGEST_TEXT = 2000


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
    held = timeline.together([demand.hourly(demand.held) for _, demand in services])
    whole = partial(whole_instances_gpu_count, gpu_count_per_instance=gpu_multiple)
    outside = int(whole(gpu_count=int(held.max())))
    make = partial(_SharedPool, gpu, needs, services, timeline, held)
    if fleet_gpu_count is None:
        size, schedules = smallest_fleet(jobs, held, gpu_multiple=gpu_multiple)
        found = make(schedules, size, outside).use(always=owned)
        return replace(found, fixed=frozenset({"training"} if owned else ())), ()
    size = int(whole(gpu_count=fleet_gpu_count))
    fits = size >= held.max()
    schedules = schedules_in(size, jobs, held) if fits else []
    pool = make(schedules, size, size)
    late = [pair for pair in zip(needs, schedules, strict=False) if pair[1].is_late]
    if fits and not late:
        return replace(pool.use(always=True), fixed=frozenset({"training", "serving"})), ()
    if can_be_alone(jobs, held):
        enough, schedules = smallest_fleet(jobs, held, gpu_multiple=gpu_multiple)
        fix = _fleet_that_does(make(schedules, enough, outside), owned=owned)
    else:
        fix = _fleet_for_long_runs(needs, jobs, held, gpu_multiple)
    if not fits:
        return None, (_too_small(held, size, fix),)
    return pool.use(always=True), tuple(_late(*pair, held.size, fix) for pair in late)


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
        has_date=sizing.kind == "finish_by",
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


def _too_small(held: Counts, available: int, fix: str) -> Infeasibility:
    return Infeasibility(
        workload=None,
        code="fleet",
        limit="fleet_gpu_count",
        needed=float(held.max()),
        available=available,
        unit="gpu",
        nearest_fix=fix,
    )


def _fleet_that_does(pool: "_SharedPool", *, owned: bool) -> str:
    """The smallest fleet, and whether it costs less to leave its size open."""
    runs = " and ends each run by its date, or as early as on GPUs of its own" if pool.needs else ""
    fix = f"fleet_gpu_count {pool.size} serves every hour{runs}."
    always = pool.size * pool.held.size
    while_needed = float(pool.allocated(always=False).sum())
    if owned or while_needed >= always * (1 - FLOAT_NOISE):
        return fix
    return (
        f"{fix} fleet_gpu_count null is cheaper: it holds as many only while they are needed, "
        f"{while_needed:,.0f} GPU-hours instead of {always:,.0f}."
    )


def _fleet_for_long_runs(
    needs: Sequence[RunNeed], jobs: Sequence[Job], held: Counts, gpu_multiple: int
) -> str:
    """What helps where a run on GPUs of its own would outlive the horizon."""
    size = smallest_size(jobs, held, gpu_multiple=gpu_multiple)
    if size is not None:
        return f"fleet_gpu_count {size} serves every hour and ends each run within the horizon."
    shorter = [shortened(job, held.size) for job in jobs]
    enough, _ = smallest_fleet(shorter, held, gpu_multiple=gpu_multiple)
    tokens = []
    for need, job, short in zip(needs, jobs, shorter, strict=True):
        share = short.own_hours / job.own_hours
        if share < 1:
            most = int(need.run.training_tokens * share * (1 - HOUR_NOISE))
            tokens.append(f"training_tokens {most:,} for {need.run.name!r}")
    return f"fleet_gpu_count {enough} with {', '.join(tokens)}."[:LONGEST_TEXT]


def _late(need: RunNeed, schedule: Schedule, hour_count: int, fix: str) -> Infeasibility:
    return Infeasibility(
        workload=need.run.name,
        code="deadline",
        limit="horizon" if schedule.finish is None else "finish_date",
        needed=schedule.job.gpu_hours,
        available=schedule.done_when_due(hour_count),
        unit="gpu_hour",
        nearest_fix=fix,
    )


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

    def _full(self, always: bool) -> Span:
        """Hours in which its full size is held."""
        return (0.0, float(self.held.size)) if always else self._runs_span

    def allocated(self, *, always: bool) -> Amounts:
        """GPU-hours held in each hour. [gpu_hour]"""
        share, served = self._share(self._full(always)), self._share(self._serving_span)
        return self.size * share + self.outside * served * (1 - share)

    def use(self, *, always: bool) -> PoolUse:
        """Write down what the hours of the pool did; `always` holds its full size throughout."""
        full = self._full(always)
        share, served = self._share(full), self._share(self._serving_span)
        serving_only = self.outside * served.astype(np.int64)
        most = np.where(share > 0, self.size, serving_only)
        last = np.where(share == 1, self.size, serving_only)
        training = self.timeline.together([self._spread(s, s.gpus) for s in self.schedules])
        needed = [demand.hourly(demand.needed) for _, demand in self.services]
        busy = training + self.timeline.together(needed)
        idle = np.maximum(most - busy, last - busy + self._ending_gpus())
        outside = served * (1 - share) * (self.outside - self.timeline.together(needed))
        held_for = self._held_for(share > 0, self.timeline.by_month(outside))
        return PoolUse(
            kind="shared",
            gpu=self.gpu,
            held_gpu_count=int(most.max()),
            needed_peak_gpu_count=int(busy.max()),
            hours=float(np.maximum(share, served).sum()),
            hour_uses=tuple(self._uses(self.allocated(always=always), idle, full, held_for)),
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
        """When a run ends; one that outlives the horizon goes on at its mean pace until then."""
        done, redone = float(schedule.used.sum()), float(schedule.redo.sum())
        if schedule.finish is not None:
            return RunSchedule(need, self.timeline.moment(schedule.finish), done + redone)
        last = self.timeline.hour_of(LAST_MOMENT)
        if not done:
            return RunSchedule(need, LAST_MOMENT, schedule.job.gpu_hours)
        start, longer = schedule.job.start, schedule.job.gpu_hours / done
        finish = min(last, start + (self.held.size - start) * longer)
        return RunSchedule(need, self.timeline.moment(finish), (done + redone) * longer)

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
            together = self.timeline.together(list(side.values()))
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
