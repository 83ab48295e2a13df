"""What a reader should know of a training run: one function for each published code."""

from datetime import date

from service.core.estimates import Advisory, Range

SEEN = 1.005
"""Ratio from which two decimals show a difference."""


def impossible_measurement(workload: str, name: str, reported: float, limit: float) -> Advisory:
    """A reported number that the hardware does not allow."""
    return Advisory(
        code="implausible_measurement",
        workload=workload,
        message=(
            f"{name} of {reported:,.6g} cannot be: {limit:,.4g} is what the hardware allows, at "
            "the dense peak of the compute precision or in all of the card's memory. Check for a "
            "sparse peak, another card or precision, and numbers of a node in place of a GPU."
        ),
    )


def price_unknown(workload: str, gpu: str) -> Advisory:
    """An amount that buys an unknown number of tokens."""
    return Advisory(
        code="price_unknown",
        workload=workload,
        message=(
            f"No price of a GPU-hour of {gpu} is listed that may be used, so the run has no amount "
            "and the budget buys an unknown number of tokens: give price_per_gpu_hour."
        ),
    )


def deadline_may_be_missed(
    workload: str, day: date, *, late_hours: float, gpu_count: int | None, tokens: int
) -> Advisory:
    """A date that typical hours meet, and hours at the 90th percentile do not."""
    fixes = [] if gpu_count is None else [f"{gpu_count:,} GPUs"]
    fixes.append(f"{tokens:,} training_tokens")
    return Advisory(
        code="deadline_may_be_missed",
        workload=workload,
        message=(
            f"Typical hours meet {day}; the high end of their band, which one run in ten exceeds, "
            f"misses it by {late_hours:,.1f} h. {' or '.join(fixes)} would hold the date then, too."
        ),
    )


def decoding_not_counted(workload: str, *, step_s: float, low_s: float, high_s: float) -> Advisory:
    """Time of 4-bit weights that the speed of an adapter's run leaves out."""
    return Advisory(
        code="decoding_not_counted",
        workload=workload,
        message=(
            "The speed is that of a 16-bit base. Decoding 4-bit weights for every micro-batch adds "
            f"{low_s:,.3g} to {high_s:,.3g} s to a step of {step_s:,.3g} s, by steps that were "
            "published of the same models with both; larger micro-batches make it less."
        ),
    )


def published_runs_book_more(
    workload: str, *, priced_gpu_hours: float, booked: Range, run_multiplier: float
) -> Advisory | None:
    """GPU-hours of an estimated run, all of which are priced, below what one such run books."""
    more = booked.value / priced_gpu_hours
    if more < SEEN:
        return None
    return Advisory(
        code="published_runs_book_more",
        workload=workload,
        message=(
            f"{priced_gpu_hours:,.0f} GPU-hours are counted for this run, by an estimate of its "
            f"speed. Published runs of this kind booked {more:.2f} times as many: "
            f"{booked.value:,.0f}, in eight of ten cases between {booked.low:,.0f} and "
            f"{booked.high:,.0f}, with restarts, idle time and slow phases. A run_multiplier of "
            f"{run_multiplier * more:.2f} counts them."
        ),
    )
