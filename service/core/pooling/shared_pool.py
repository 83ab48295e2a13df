"""One pool for all: serving takes what each hour needs, training whole copies of the rest."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import ceil

from service.core.estimates import Infeasibility
from service.core.formulas.calendar import midnight
from service.core.formulas.demand import FLOAT_NOISE
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
from service.core.hours.holding import Holding
from service.core.hours.timeline import Counts, Timeline
from service.core.pooling.separate_pool import Served
from service.core.pooling.shared_hours import SharedPool
from service.core.pooling.workloads import PoolUse, RunNeed
from service.core.scenarios.procurement import PoolKind
from service.core.units import SECONDS_PER_HOUR

LONGEST_TEXT = 2000


def plan_shared_pool(
    gpu: Gpu,
    needs: Sequence[RunNeed],
    services: Sequence[Served],
    *,
    fleet_gpu_count: int | None,
    holding: Holding,
    timeline: Timeline,
    kind: PoolKind = "shared",
    apart_gpu_count: int = 0,
) -> tuple[PoolUse | None, tuple[Infeasibility, ...]]:
    """Size the pool, or take the size that is given, and run every workload in it.

    A size that was found is held from the first start of a run to the last end; outside, the pool
    is as large as serving needs at its peak. A size that was given, or is owned, is held all the
    time, as existing GPUs are.

    Args:
        gpu: GPU of the pool.
        needs: What each run needs on GPUs of its own.
        services: What each service needs and holds.
        fleet_gpu_count: Size of the pool where it is given.
        holding: How its GPUs come.
        timeline: Hours of the horizon.
        kind: Name of the pool: of training where serving has the rest of a fleet to itself.
        apart_gpu_count: GPUs of the fleet that are not in the pool, for the fix that is named.

    Returns:
        The pool, None when it cannot even serve, and what it lacks.
    """
    jobs = _jobs_of(needs, timeline)
    held = timeline.together([demand.hourly_held for _, demand in services])
    outside = int(holding.whole(int(held.max())))
    make = partial(SharedPool, gpu, needs, services, timeline, held, kind=kind, holding=holding)
    if fleet_gpu_count is None:
        size, schedules = smallest_fleet(jobs, held, holding=holding)
        found = make(schedules, size, outside, always=holding.always(size)).use()
        return replace(found, fixed=frozenset({"training"} if holding.owned else ())), ()
    size = int(holding.whole(fleet_gpu_count))
    fits = size >= held.max()
    schedules = schedules_in(size, jobs, held) if fits else []
    late = [pair for pair in zip(needs, schedules, strict=False) if pair[1].is_late]
    pool = make(schedules, size, size, always=size).use() if fits else None
    if pool is not None and not late:
        return replace(pool, fixed=frozenset({"training", "serving"})), ()
    smallest = None
    if can_be_alone(jobs, held):
        enough, schedules = smallest_fleet(jobs, held, holding=holding)
        smallest = make(schedules, enough, outside, always=holding.always(enough))
    fix = (
        _fleet_for_long_runs(needs, jobs, held, holding, apart_gpu_count)
        if smallest is None
        else _fleet_that_does(smallest, apart_gpu_count)
    )
    if pool is None:
        return None, _too_small(services, timeline, size, fix)
    return pool, tuple(_late(*pair, held.size, fix) for pair in late)


def _jobs_of(needs: Sequence[RunNeed], timeline: Timeline) -> list[Job]:
    """What each run needs of the pool, those that follow another by its number."""
    numbers = {need.run.name: number for number, need in enumerate(needs)}
    return [
        replace(_job_of(need, timeline), after=numbers.get(need.run.after or "")) for need in needs
    ]


def _job_of(need: RunNeed, timeline: Timeline) -> Job:
    start = timeline.hour_of(need.start)
    hours = need.wall_clock_hours.value
    if abs(start + hours - timeline.hour_count) <= HOUR_NOISE:
        hours = timeline.hour_count - start
    due = start + hours
    if need.run.last_date is not None:
        due = max(due, timeline.hour_of(midnight(need.run.last_date + timedelta(days=1))))
    least, most = _copies(need)
    lost_s = lost_s_per_failure(
        checkpoint_interval_s=need.checkpoint_interval_s,
        restart_s=need.restart_s,
        checkpoint_write_s=need.checkpoint_write_s,
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
        has_date=need.run.last_date is not None,
        priority=need.run.priority,
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


def _too_small(
    services: Sequence[Served], timeline: Timeline, available: int, fix: str
) -> tuple[Infeasibility, ...]:
    """Services that go short in the hour that needs most, the highest priority served first."""
    demands = [demand for _, demand in services]
    hourly = [demand.hourly_held for demand in demands]
    busiest = int(timeline.together(hourly).argmax())
    short: list[Infeasibility] = []
    left = available
    for index in sorted(range(len(demands)), key=lambda n: (-demands[n].service.priority, n)):
        needed = int(hourly[index][busiest])
        if needed > left:
            short.append(_short(demands[index].service.name, needed, left, fix))
        left = max(0, left - needed)
    return tuple(short)


def too_few(
    services: Sequence[Served],
    needs: Sequence[RunNeed],
    timeline: Timeline,
    *,
    available: int,
    serving_gpu_count: int,
    holding: Holding,
) -> tuple[Infeasibility, ...]:
    """Who goes short where a fleet does not hold the serving pool, or nothing beside it."""
    largest = max((need.gpus_per_copy for need in needs), default=0)
    fix = f"fleet_gpu_count {serving_gpu_count + int(holding.whole(largest))} holds the serving"
    fix += " peak and one copy of the largest run." if largest else " peak."
    short = _too_small(services, timeline, available, fix)
    least = min((need.gpus_per_copy for need in needs), default=0)
    names = [need.run.name for need in needs] or [item[0].service.name for item in services]
    return short or tuple(_short(name, serving_gpu_count + least, available, fix) for name in names)


def _short(workload: str, needed: int, available: int, fix: str) -> Infeasibility:
    return Infeasibility(
        workload=workload,
        code="fleet",
        limit="fleet_gpu_count",
        needed=needed,
        available=available,
        unit="gpu",
        nearest_fix=fix,
    )


def _fleet_that_does(pool: SharedPool, apart_gpu_count: int) -> str:
    """The smallest fleet, and whether it costs less to leave its size open."""
    runs = " and ends each run by its date, or as early as on GPUs of its own" if pool.needs else ""
    fix = f"fleet_gpu_count {pool.size + apart_gpu_count} serves every hour{runs}."
    always = pool.size * pool.held.size
    while_needed = float(pool.allocated.sum())
    if apart_gpu_count or while_needed >= always * (1 - FLOAT_NOISE):
        return fix
    return (
        f"{fix} fleet_gpu_count null is cheaper: it holds as many only while they are needed, "
        f"{while_needed:,.0f} GPU-hours instead of {always:,.0f}."
    )


def _fleet_for_long_runs(
    needs: Sequence[RunNeed],
    jobs: Sequence[Job],
    held: Counts,
    holding: Holding,
    apart_gpu_count: int,
) -> str:
    """What helps where a run on GPUs of its own would outlive the horizon."""
    size = smallest_size(jobs, held, holding=holding)
    if size is not None:
        return (
            f"fleet_gpu_count {size + apart_gpu_count} serves every hour and ends each run within "
            "the horizon."
        )
    shorter = [shortened(job, held.size) for job in jobs]
    enough, _ = smallest_fleet(shorter, held, holding=holding)
    tokens = []
    for need, job, short in zip(needs, jobs, shorter, strict=True):
        share = short.own_hours / job.own_hours
        if share < 1:
            most = int(need.run.tokens * share * (1 - HOUR_NOISE))
            tokens.append(f"training_tokens {most:,} for {need.run.name!r}")
    return f"fleet_gpu_count {enough + apart_gpu_count} with {', '.join(tokens)}."[:LONGEST_TEXT]


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
