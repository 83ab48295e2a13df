"""Predictions of a row's speed and of its whole run, with their bands."""

from math import sqrt

from service.accuracy.training_cases import PreparedRow, Unpredictable
from service.accuracy.training_memory import as_it_fits
from service.accuracy.training_speed import (
    published_run,
    published_speed,
    steady_share,
)
from service.core.estimates import Range
from service.core.formulas import flops
from service.core.run.hours import booked_mfu_fraction
from service.core.run.speed import RARE_STACKS, speed_residual
from service.core.run.step_constants import Look
from service.core.scenarios.stacks import SHARDED_STACKS


def token_rate(prepared: PreparedRow, look: Look | None = None) -> float:
    """Tokens per second and GPU by the time of a step. [token/s]

    A layout that the row does not name is taken as tuned: it loses a quarter of the bubble.

    Raises:
        NoConstants: If the GPU's class or the precision has no constants.
    """
    settings, axes = prepared.settings, prepared.settings.axes
    times = prepared.step_model(look).times(axes)
    total = times.total_s
    if "layout" in settings.assumed:
        total = total - 0.75 * times.bubble_s
    per_copy = axes.micro_batch_sequences * axes.micro_batch_count * settings.sequence_tokens
    return axes.data * per_copy / (total * axes.gpu_count)  # type: ignore[no-any-return]


def _recomputed(prepared: PreparedRow) -> PreparedRow:
    """The row with full recompute, where it names none and its named layout needs it to fit.

    Only on stacks of plain PyTorch, which recompute whole layers or nothing; and not where a batch
    may have been cut instead.
    """
    settings = prepared.settings
    is_named = not {"layout", "gpu_count"} & set(settings.assumed)
    if prepared.traits.name in SHARDED_STACKS and is_named and not settings.batch_may_be_cut:
        return as_it_fits(prepared)
    return prepared


def predicted_speed(prepared: PreparedRow) -> Range:
    """Speed in the row's own unit.

    Raises:
        NoConstants: If the GPU's class or the precision has no constants.
    """
    rate = float(token_rate(_recomputed(prepared)))
    low, high = _band(prepared)
    ends = sorted(published_speed(prepared.published, rate * end) for end in (low, high))
    return Range(value=published_speed(prepared.published, rate), low=ends[0], high=ends[1])


def predicted_run(prepared: PreparedRow) -> Range:
    """Hours, days or minutes of a whole run in the row's own unit.

    Raises:
        Unpredictable: If the row names no tokens.
        NoConstants: If the GPU's class or the precision has no constants.
    """
    row = prepared.row
    tokens = row.tokens or (1e12 if row.metric.endswith("per_T_tokens") else None)
    if tokens is None:
        raise Unpredictable("no number of tokens")
    assume = prepared.recorder.assume
    share = steady_share(row, assume("training_end_to_end_fraction").value)
    rate = float(token_rate(_recomputed(prepared))) * share
    if share < 1:
        rate = sqrt(rate * booked_rate(prepared))
    value = published_run(prepared.published, rate, tokens)
    band = assume("training_hours_residual_factor")
    return Range(value=value, low=value * band.low, high=value * band.high)


def booked_rate(prepared: PreparedRow) -> float:
    """Tokens per second and GPU over all hours that published runs book. [token/s]"""
    fraction = booked_mfu_fraction(
        prepared.gpu,
        prepared.recorder,
        is_mixture=prepared.architecture.is_mixture,
        stack=prepared.traits.name,
        precision=prepared.settings.precision,
    )
    work = flops.training_flops_per_token(
        active_parameter_count=prepared.architecture.active_parameter_count
    )
    return float(fraction * (prepared.gpu.peak_flop_per_s("bf16") or 0.0) / work)


def speed_kind(prepared: PreparedRow) -> str:
    """Class of a row whose band holds."""
    if prepared.architecture.is_mixture:
        return "mixture"
    is_rare = prepared.traits.name in RARE_STACKS
    return "thin" if prepared.settings.is_thin or is_rare else "dense"


def _band(prepared: PreparedRow) -> tuple[float, float]:
    """Actual speed over the predicted one, 10th and 90th percentile of what was held out."""
    band = speed_residual(prepared.gpu, prepared.recorder, kind=speed_kind(prepared))
    return band.low, band.high
