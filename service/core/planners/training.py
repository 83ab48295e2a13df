"""From a training run to the GPUs and hours it needs, or the reasons why it cannot be had."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from service.core.costs.spending import Spending
from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Infeasibility
from service.core.factors import ranged, spread
from service.core.failures.fixes import never_ends, smaller_counts
from service.core.failures.published import publish
from service.core.formulas import flops, reliability, training_time
from service.core.formulas.calendar import first_day, midnight
from service.core.parallelism.rules import on_gpus
from service.core.pooling.workloads import LAST_MOMENT, RunNeed
from service.core.recorder import Recorder
from service.core.run.case import RunCase, resolve
from service.core.run.choice import Choice, choose
from service.core.run.hours import RunHours, run_hours
from service.core.run.rates import rate_of, untrainable
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import TrainingRun
from service.core.sizing.budget import count_for_budget
from service.core.sizing.solve import count_for_deadline, tokens_for
from service.core.snapshot import CatalogSnapshot
from service.core.units import SECONDS_PER_HOUR
from service.core.value import MAX_TOKENS

ROUNDING = 1e-9
"""Relative error that is not taken for a utilisation above the peak."""


def plan_training_run(
    run: TrainingRun,
    *,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    horizon: Horizon,
    gpu_multiple: int,
    pointer: str,
    instance_gpu_count: int | None = None,
    start: datetime | None = None,
    spending: Spending | None = None,
    until: datetime | None = None,
) -> RunNeed | tuple[Infeasibility, ...]:
    """What a run needs when it has its GPUs to itself, or why it cannot be had.

    Args:
        run: The run as it was asked for.
        snapshot: The catalog on the plan's as-of date.
        recorder: Collects the quantities of the answer under the scope of the run.
        horizon: Its first day is the start of runs that name none.
        gpu_multiple: GPUs that are rented or bought at once; a solved count is a multiple of it.
        pointer: JSON pointer of the run in the request.
        instance_gpu_count: GPUs that share a host; `gpu_multiple` when None.
        start: When the run that it follows ends; its own start_date where it follows none.
        spending: What its GPUs cost; None where no price by the hour holds for them.
        until: When it should have ended, whatever it costs; None where nothing ends.

    Raises:
        UnknownKey: If the run names a GPU or an architecture that the catalog does not hold.
        InvalidScenario: If its fields contradict one another, or mean a utilisation above 1.
    """
    scoped = recorder.within(f"run:{run.name}")
    case = resolve(
        _with_tokens(run, pointer),
        snapshot=snapshot,
        recorder=scoped,
        gpu_multiple=gpu_multiple,
        pointer=pointer,
        instance_gpu_count=instance_gpu_count or gpu_multiple,
    )
    start = start or midnight(run.start_date or first_day(horizon.start_month))
    try:
        sized = untrainable(case) or _sized(case, start, spending, until)
    except NoConstants as gap:
        fix = "give an MFU or a measured speed, or a GPU whose class has constants"
        return (case.refusal("no_constants", gap.message[:200], fix),)
    if isinstance(sized, Infeasibility):
        return (sized,)
    case, choice = sized
    hours = _hours(case, choice)
    if hours is None:
        return (_never_ends(case, choice.gpu_count),)
    if hours.wall_clock.value > (LAST_MOMENT - start).total_seconds() / SECONDS_PER_HOUR:
        return (_ends_too_late(case, hours, start),)
    return _need(case, choice, hours, start)


def _with_tokens(run: TrainingRun, pointer: str) -> TrainingRun:
    """The run with one step at the least, and the most tokens there may be where none are given."""
    if run.training_tokens is not None:
        tokens = max(run.training_tokens, run.global_batch_tokens)
        return run.model_copy(update={"training_tokens": tokens})
    if run.sizing.kind != "tokens":
        raise InvalidScenario(
            "tokens are needed, unless sizing.kind is tokens",
            pointer=f"{pointer}/training_tokens",
        )
    return run.model_copy(update={"training_tokens": MAX_TOKENS})


def _sized(
    case: RunCase, start: datetime, spending: Spending | None, until: datetime | None
) -> tuple[RunCase, Choice] | Infeasibility:
    """The run with its tokens, and the layout and GPUs that its sizing means."""
    _check_utilization(case)
    sizing = case.run.sizing
    found: Choice | Infeasibility
    if sizing.kind == "gpu_count":
        found = choose(case, sizing.gpu_count)
    elif sizing.kind == "finish_by":
        found = count_for_deadline(case, start, sizing.finish_date)
    elif sizing.kind == "budget":
        found = (
            _unpriced(case)
            if spending is None
            else count_for_budget(case, start, sizing, spending, until=until)
        )
    elif sizing.amount is not None and spending is None:
        found = _unpriced(case)
    else:
        solved = tokens_for(case, start, sizing, spending)
        if not isinstance(solved, Infeasibility):
            run = case.run.model_copy(update={"training_tokens": solved[1]})
            return replace(case, run=run), solved[0]
        found = solved
    return found if isinstance(found, Infeasibility) else (case, found)


def _unpriced(case: RunCase) -> Infeasibility:
    """An amount can size a run only where its GPU-hours have a price."""
    return case.refusal(
        "no_price",
        f"price of a GPU-hour of {case.gpu.key}",
        "a price by the hour, or a gpu_count or a finish_date instead of an amount",
    )


def _check_utilization(case: RunCase) -> None:
    """A given speed must not mean that the hardware runs above its dense peak."""
    if case.speed is None or case.run.speed.kind == "estimated":
        return
    given = case.given_layout
    axes = None if given is None else on_gpus(given, 1, 1)
    quiet = case.recorder.off()
    rate = float(rate_of(case, axes, quiet)[0])
    used = training_time.training_hfu_fraction(
        tokens_per_s_per_gpu=rate,
        executed_flops_per_token=case.speed.executed_flops_per_token(axes, quiet),
        peak_flop_per_s=case.speed.peak_flop_per_s,
    )
    if used <= 1 + ROUNDING:
        return
    raise InvalidScenario(
        f"this speed means {used:.1%} of the dense {case.run.compute_precision} peak of "
        f"{case.gpu.key}; utilisation is counted against the dense peak, without sparsity, and "
        "cannot exceed 100 %",
        pointer=f"{case.pointer}/speed",
    )


def _hours(case: RunCase, choice: Choice) -> RunHours | None:
    return run_hours(
        case.run,
        case.failures,
        rate=choice.rate,
        speed_factors=choice.speed_factors,
        gpu_count=choice.gpu_count,
        recorder=case.recorder,
    )


def _never_ends(case: RunCase, gpu_count: int) -> Infeasibility:
    """Failures and saves eat all of the time."""
    counts: list[int] = []
    if case.run.given_gpu_count is not None:
        layouts = case.layouts
        counts = (
            list(smaller_counts(case.failures, gpu_count))
            if layouts is None
            else [
                int(count)
                for count in layouts.rules.usable_gpu_counts(layouts.degrees)[::-1]
                if count < gpu_count
            ]
        )
    return never_ends(
        case.failures,
        gpu_count,
        counts,
        workload=case.run.name,
        is_usable=lambda count: not isinstance(choose(case, count), Infeasibility),
    )


def _ends_too_late(case: RunCase, hours: RunHours, start: datetime) -> Infeasibility:
    """The run would end after the last day that a date can name."""
    return case.refusal(
        "deadline",
        f"end of {LAST_MOMENT.date()}",
        "more GPUs or fewer training_tokens",
        needed=hours.wall_clock.value,
        available=(LAST_MOMENT - start).total_seconds() / SECONDS_PER_HOUR,
        unit="h",
    )


def _need(case: RunCase, choice: Choice, hours: RunHours, start: datetime) -> RunNeed:
    """The answer, with every number of it recorded."""
    recorder, axes, layouts = case.recorder, choice.axes, case.layouts
    rate_of(case, axes, recorder)
    model_flops, mfu = _work(case, choice)
    memory = None
    if axes is not None and layouts is not None:
        memory = layouts.memory.answer(axes, recorder)
        if traffic := case.traffic(axes, choice.rate, recorder):
            traffic.publish(float(layouts.network.step_s(axes, choice.rate)), recorder)
    _publish_hours(case, choice, hours)
    return RunNeed(
        run=case.run,
        gpu=case.gpu,
        gpu_count=choice.gpu_count,
        layout=None if axes is None else axes.layout(),
        memory=memory,
        model_flops=model_flops,
        mfu_fraction=mfu,
        speed_basis="measured" if case.speed is None else case.speed.basis,
        steady_hours=hours.steady,
        goodput_fraction=hours.goodput,
        wall_clock_hours=hours.wall_clock,
        checkpoint_bytes=_checkpoint_bytes(case),
        checkpoint_interval_s=case.failures.interval_s(choice.gpu_count).value,
        checkpoint_write_s=case.failures.write_s(choice.gpu_count).value,
        restart_s=case.failures.restart_s.value,
        start=start,
    )


def _publish_hours(case: RunCase, choice: Choice, hours: RunHours) -> None:
    """Record failures, GPU-hours and steps."""
    wall = hours.wall_clock
    publish(case.failures, choice.gpu_count, case.recorder)
    ranged(
        case.recorder,
        training_time.training_gpu_hours,
        less=wall.value / wall.low,
        more=wall.high / wall.value,
        gpu_count=choice.gpu_count,
        wall_clock_hours=wall.value,
    )
    case.recorder.evaluate(
        training_time.training_step_count,
        training_tokens=case.run.tokens,
        global_batch_tokens=case.run.global_batch_tokens,
    )


def _work(case: RunCase, choice: Choice) -> tuple[float | None, float | None]:
    """Model FLOPs of the run by the 6P convention, and the MFU they mean."""
    if case.speed is None:
        return None, None
    recorder, speed = case.recorder, case.speed
    per_token = speed.flops_per_token(recorder)
    executed = speed.executed_flops_per_token(choice.axes, recorder)
    if case.layouts is not None:
        speed.flops_per_token_with_attention(recorder)
    model_flops = recorder.evaluate(
        flops.training_model_flops,
        flops_per_token=per_token,
        training_tokens=case.run.tokens,
    )
    slow, fast = spread(choice.speed_factors)
    shared: dict[str, Any] = {
        "less": slow,
        "more": fast,
        "tokens_per_s_per_gpu": choice.rate,
        "peak_flop_per_s": speed.peak_flop_per_s,
    }
    mfu = ranged(recorder, training_time.training_mfu_fraction, flops_per_token=per_token, **shared)
    ranged(
        recorder,
        training_time.training_hfu_fraction,
        executed_flops_per_token=executed,
        **shared,
    )
    return float(model_flops), mfu


def _checkpoint_bytes(case: RunCase) -> float | None:
    """Size of one checkpoint of everything that is trained. [B]"""
    if case.checkpoint_parameters is None:
        return None
    count, width = case.checkpoint_parameters
    return float(
        case.recorder.evaluate(
            reliability.checkpoint_bytes, parameter_count=count, bytes_per_parameter=width
        )
    )
