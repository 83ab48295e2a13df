"""Speed of layouts of a run: known or not, and possible below the peak or not."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np

from service.core.errors import NoConstants
from service.core.estimates import Infeasibility
from service.core.factors import Factor
from service.core.hardware import ComputePrecision
from service.core.parallelism.axes import LayoutAxes
from service.core.parallelism.rules import on_gpus
from service.core.recorder import Recorder
from service.core.run.case import RunCase
from service.core.run.mechanism import mechanism_of


def rate_of(case: RunCase, axes: LayoutAxes | None, recorder: Recorder) -> tuple[Any, list[Factor]]:
    """Tokens per second and GPU for one layout or many, and what an estimate rests on.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    speed = case.run.speed
    if speed.kind == "measured":
        recorder.note("training_tokens_per_s_per_gpu", speed.tokens_per_s_per_gpu)
        return speed.tokens_per_s_per_gpu, []
    if case.speed is None:
        raise LookupError("a run without an architecture has a measured speed")
    if speed.kind != "estimated":
        return case.speed.given_rate(axes, recorder), []
    if axes is None:
        raise LookupError("a run without layers has a given speed")
    return case.speed.estimated_rate(axes, recorder)


def is_possible(case: RunCase, axes: LayoutAxes, rate: Any) -> Any:
    """Layouts whose speed is known, and under which the hardware would stay below its peak."""
    if case.speed is None or case.speed.peak_flop_per_s is None:
        return rate > 0
    executed = case.speed.executed_flops_per_token(axes, case.recorder.off())
    return (rate > 0) & (rate * executed <= case.speed.peak_flop_per_s)


def possible_rates(case: RunCase, axes: LayoutAxes) -> Any:
    """Speeds of layouts, 0 where none is known or possible. [token/s]"""
    shape = np.shape(axes.tensor)
    if shape == (0,):
        return np.zeros(0)
    try:
        rate = np.broadcast_to(rate_of(case, axes, case.recorder.off())[0], shape)
    except NoConstants:
        return np.zeros(shape)[()]
    return np.where(is_possible(case, axes, rate), rate, 0.0)[()]


def check_known(case: RunCase) -> None:
    """Refuse a speed that is known for no layout at all, before a layout is called at fault.

    Raises:
        NoConstants: If the speed cannot be estimated on this GPU.
    """
    if case.speed is not None and case.run.speed.kind == "estimated":
        case.speed.ceiling_rate(case.recorder.off())


def untrainable(case: RunCase) -> Infeasibility | None:
    """Why a GPU trains nothing in this way, whatever the layout: it only serves or has no peak."""
    return _serves_alone(case) or _missing_peak(case)


def _serves_alone(case: RunCase) -> Infeasibility | None:
    """A part that is sold to serve alone trains only where somebody measured it."""
    if not case.gpu.inference_only or case.run.speed.kind == "measured":
        return None
    fix = "a GPU that is sold to train, or the speed that was measured on this one"
    return case.refusal("no_constants", f"training on {case.gpu.name}, which only serves", fix)


def _missing_peak(case: RunCase) -> Infeasibility | None:
    """The compute precision has no dense peak on this GPU, so no utilisation means anything."""
    if case.speed is None:
        return None
    wanted: list[ComputePrecision] = [case.run.compute_precision]
    if case.run.speed.kind == "estimated":
        wanted.append("bf16")
    missing = next((p for p in wanted if case.gpu.peak_flop_per_s(p) is None), None)
    if missing is None:
        return None
    rates = [name for name in get_args(ComputePrecision) if case.gpu.peak_flop_per_s(name)]
    answered = [name for name in rates if _is_known_in(case, name)]
    fix = f"compute_precision {' or '.join(answered)}, which {case.gpu.name} has"
    if not answered:
        given = f"a given MFU or measured speed with compute_precision {' or '.join(rates)}"
        fix = f"{given}, which {case.gpu.name} has" if rates else "a GPU whose dense peak is known"
    return case.refusal("format", f"dense peak of {missing} on {case.gpu.key}", fix)


def _is_known_in(case: RunCase, precision: ComputePrecision) -> bool:
    """Whether the run would have a speed in another precision."""
    if case.run.speed.kind != "estimated" or case.speed is None or case.architecture is None:
        return True
    if case.gpu.peak_flop_per_s("bf16") is None:
        return False
    quiet = case.recorder.off()
    run = case.run.model_copy(update={"compute_precision": precision})
    mechanism = mechanism_of(run, case.gpu, case.architecture, quiet)
    changed = replace(case, run=run, speed=replace(case.speed, run=run, mechanism=mechanism))
    try:
        check_known(changed)
        if case.given_layout is not None:
            rate_of(changed, on_gpus(case.given_layout, 1, 1), quiet)
    except NoConstants:
        return False
    return True
