"""What a reader should know beside the numbers: one function for each published code."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import accumulate
from math import isfinite
from statistics import NormalDist

from service.core.architecture.model import ModelArchitecture
from service.core.estimates import (
    Advisory,
    CostLine,
    FleetEstimate,
    PoolSize,
    Range,
    ServingServiceEstimate,
    TrainingMemory,
    TrainingRunEstimate,
)
from service.core.hardware import Gpu
from service.core.recorder import Recorder
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import STATE_RECIPES
from service.core.units import BYTES_PER_GIB

DAYS_PER_YEAR = 365
WIDER = NormalDist().inv_cdf(0.995) / NormalDist().inv_cdf(0.9)
"""Half of the band of 99 in 100 over half of the band of eight in ten, on the logarithm: 2.01."""


@dataclass(frozen=True)
class RunFacts:
    """A run with what it resolves to, whether or not it could be planned."""

    run: TrainingRun
    architecture: ModelArchitecture | None
    gpu: Gpu
    available_bytes: float
    estimate: TrainingRunEstimate | None


@dataclass(frozen=True)
class ServiceFacts:
    """A service with what it resolves to, whether or not it could be planned."""

    service: ServingService
    architecture: ModelArchitecture | None
    gpu: Gpu
    estimate: ServingServiceEstimate | None


def training_sized_from_serving(facts: RunFacts) -> Advisory | None:
    """A given GPU count that holds the weights but not the training state."""
    count, architecture = facts.run.given_gpu_count, facts.architecture
    if count is None or architecture is None or facts.run.adapter is not None:
        return None
    recipe = STATE_RECIPES[facts.run.state_recipe]
    fleet = count * facts.available_bytes
    weights = recipe.weight_bytes * architecture.parameter_count
    state = recipe.total_bytes * architecture.parameter_count
    if not weights <= fleet < state:
        return None
    return Advisory(
        code="training_sized_from_serving",
        workload=facts.run.name,
        message=(
            f"{count} GPUs hold the weights ({weights / BYTES_PER_GIB:.0f} GiB), as "
            f"serving needs, but not the training state of {recipe.total_bytes:g} bytes a "
            f"parameter ({state / BYTES_PER_GIB:.0f} GiB) before any activation."
        ),
    )


def memory_not_checked(run: TrainingRun, architecture: ModelArchitecture | None) -> Advisory | None:
    """A run whose memory cannot be counted, since the layers are not known."""
    if architecture is not None and architecture.has_layers:
        return None
    counted = "nothing of its memory is checked: give an architecture"
    if architecture is not None:
        counted = (
            "only the state of its parameters, spread evenly over all GPUs, is checked against "
            "their memory; activations, logits and buffers are not: give an architecture with "
            "layers"
        )
    return Advisory(
        code="memory_not_checked",
        workload=run.name,
        message=f"The layers of this run are not known, so {counted}.",
    )


def memory_may_not_fit(workload: str, memory: TrainingMemory | None) -> Advisory | None:
    """A run that fits as estimated, and not at the high end of what such runs were measured at."""
    if memory is None or memory.total_low is None or memory.total_high is None:
        return None
    if memory.total_high <= memory.available:
        return None
    return Advisory(
        code="memory_may_not_fit",
        workload=workload,
        message=(
            f"The fullest GPU holds {memory.total:.1f} GiB by the estimate, and eight of ten such "
            f"runs between {memory.total_low:.1f} and {memory.total_high:.1f}: more than the "
            f"{memory.available:.1f} GiB that programs can address. Measure a step, or keep a "
            "layout that holds less at hand."
        ),
    )


def activations_outgrow_state(facts: RunFacts) -> Advisory | None:
    """Activations above weights, gradients and optimizer together."""
    memory = facts.estimate.memory_gib_per_gpu if facts.estimate else None
    if memory is None:
        return None
    state = memory.weights + memory.gradients + memory.optimizer
    if memory.activations <= state:
        return None
    return Advisory(
        code="activations_outgrow_state",
        workload=facts.run.name,
        message=(
            f"Activations take {memory.activations:.1f} GiB of each GPU, weights, gradients and "
            f"optimizer {state:.1f} GiB: sharding the state further frees little; sequence length, "
            "micro-batch and recompute decide."
        ),
    )


def serving_judged_by_utilization(pool: PoolSize, *, threshold: float) -> Advisory | None:
    """A serving pool whose use of the hours paid for invites the wrong conclusion."""
    if pool.name != "serving" or pool.allocated_gpu_hours == 0:
        return None
    used = pool.used_gpu_hours / pool.allocated_gpu_hours
    if used >= threshold:
        return None
    return Advisory(
        code="serving_judged_by_utilization",
        workload=None,
        message=(
            f"The serving pool on {pool.gpu} needs {used:.0%} of the GPU-hours it holds. The rest "
            "covers the peak, the spare and whole instances: judge it by latency and by cost per "
            "token, not by utilisation, and look at a shared pool before cutting it."
        ),
    )


def serving_overtakes_training(
    months: Sequence[str], training: Sequence[Decimal], serving: Sequence[Decimal]
) -> Advisory | None:
    """First month in which all serving so far has cost more than all training so far."""
    if not any(training) or not any(serving):
        return None
    so_far = zip(months, accumulate(training), accumulate(serving), strict=True)
    for month, spent_on_training, spent_on_serving in so_far:
        if spent_on_serving > spent_on_training > 0:
            return Advisory(
                code="serving_overtakes_training",
                workload=None,
                message=(
                    f"By {month} serving has cost more than training in all: "
                    f"{spent_on_serving:,.2f} against {spent_on_training:,.2f}."
                ),
            )
    return None


def no_price_change_assumed(recorder: Recorder) -> Advisory | None:
    """Prices are kept as they are over the whole horizon."""
    if recorder.assume("price_change_per_year_fraction").value != 0:
        return None
    return Advisory(
        code="no_price_change_assumed",
        workload=None,
        message=(
            "Prices of the as-of date are used for every month; give "
            "assumption_overrides.price_change_per_year_fraction to plan with another."
        ),
    )


def wide_band(workload: str, name: str, band: Range | None) -> Advisory | None:
    """A range whose high end is more than twice its low end."""
    if band is None or band.low <= 0 or band.high <= 2 * band.low:
        return None
    return Advisory(
        code="wide_band",
        workload=workload,
        message=(
            f"{name} lies between {band.low:.4g} and {band.high:.4g} in eight of ten cases: "
            "measure it, or give a measured value, before it decides an order."
        ),
    )


def stale_price(lines: Iterable[CostLine], *, as_of_date: date) -> Advisory | None:
    """Prices found more than a year before the as-of date."""
    stale = {
        (line.price_source, line.price_as_of_date)
        for line in lines
        if line.price_as_of_date and (as_of_date - line.price_as_of_date).days > DAYS_PER_YEAR
    }
    if not stale:
        return None
    listed = "; ".join(f"{source} of {day}" for source, day in sorted(stale))
    return Advisory(
        code="stale_price",
        workload=None,
        message=f"More than a year older than {as_of_date}: {listed}"[:2000],
    )


def no_objectives(service: ServingService) -> Advisory | None:
    """A service sized for throughput only."""
    if service.objectives is not None and (
        service.objectives.ttft_p95_s or service.objectives.tpot_mean_s
    ):
        return None
    return Advisory(
        code="no_objectives",
        workload=service.name,
        message=(
            "No latency objective is given, so replicas are sized for throughput alone; "
            "give objectives.ttft_p95_s or objectives.tpot_mean_s."
        ),
    )


def hosted_break_even(
    workload: str,
    provider: str,
    amount: Decimal,
    *,
    alone: FleetEstimate | None,
    break_even_tokens_per_day: float | None,
    tokens_per_day: float,
) -> Advisory:
    """What hosted tokens cost beside GPUs of one's own, or why the two cannot be compared."""
    said = f"Tokens of {provider} cost {amount:,.2f}."
    if alone is None or alone.totals is None or break_even_tokens_per_day is None:
        reasons = () if alone is None else alone.infeasibilities
        why = "; ".join(f"{each.code}: {each.limit}" for each in reasons) or "no estimate"
        said += f" GPUs of its own cannot be compared: {why}."
    else:
        totals = alone.totals
        said += f" {totals.peak_gpu_count} GPUs of its own would cost {totals.amount:,.2f}."
        said += (
            f" They pay from {break_even_tokens_per_day:,.0f} tokens a day on"
            if isfinite(break_even_tokens_per_day)
            else " They do not pay at any load of this shape"
        )
        said += f"; the service has {tokens_per_day:,.0f} a day."
    return Advisory(code="hosted_break_even", workload=workload, message=said[:2000])


def speed_models_disagree(
    workload: str, rate: float | None, table_rate: float | None, *, threshold: float
) -> Advisory | None:
    """A training speed by the terms of a step far from what the table of shares says."""
    if not rate or not table_rate or max(rate / table_rate, table_rate / rate) <= threshold:
        return None
    return Advisory(
        code="speed_models_disagree",
        workload=workload,
        message=(
            f"The terms of a step give {rate:,.0f} tokens/s per GPU, the table of shares of the "
            f"peak {table_rate:,.0f}: the answer uses the terms. Measure a few steps before this "
            "decides an order; long sequences, hybrids and experts are where the table fails, "
            "small experts and young software where the terms do."
        ),
    )


def implausible_measurement(
    workload: str, name: str, reported: float, band: Range
) -> Advisory | None:
    """A given or reported number that lies outside of what the estimate holds likely.

    One true number in five lies outside of the band of eight in ten; this band holds 99 of 100.
    """
    low, high = (band.value * (end / band.value) ** WIDER for end in (band.low, band.high))
    if low <= reported <= high:
        return None
    return Advisory(
        code="implausible_measurement",
        workload=workload,
        message=(
            f"{name} of {reported:,.6g} lies outside of {low:,.4g} to {high:,.4g}, where 99 of "
            f"100 such runs lie, around {band.value:,.4g} (eight of ten: {band.low:,.4g} to "
            f"{band.high:,.4g}). Check what it counts: sparse or dense peak, which card and "
            "precision, recompute, per GPU or per node, the main run or all that was booked."
        ),
    )


def carbon_unknown(unknown: Sequence[str]) -> tuple[Advisory, ...]:
    """Pools of a plan with owned GPUs whose carbon is not known, and so not the plan's."""
    if not unknown:
        return ()
    message = f"The carbon of the plan is not known, and is not zero: {'; '.join(unknown)}."
    return (Advisory(code="carbon_unknown", workload=None, message=message[:2000]),)


def short_trace(covered_hour_count: int) -> Advisory:
    """A trace that leaves hours of the day unknown."""
    return Advisory(
        code="short_trace",
        workload=None,
        message=(
            f"The trace covers {covered_hour_count} of the 24 hours of a day. The others are not "
            "known, so the profile is flat at the peak that was seen: give a profile of your own, "
            "or a trace of a day or a week."
        ),
    )
