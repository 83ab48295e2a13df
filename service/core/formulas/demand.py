"""Demand through the day, replicas that serve it, GPUs that hold them, and what a preemption costs.

Formulas take numbers or numpy arrays and broadcast.
"""

from typing import Any

import numpy as np

from service.core.registry import define_quantity, quantity
from service.core.units import (
    HOURS_PER_DAY,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    TOKENS_PER_MILLION,
)

FLOAT_NOISE = 1e-12
"""Relative size below which a surplus over a whole number is rounding noise, not need."""

allocated_gpu_hours = define_quantity(
    "allocated_gpu_hours",
    unit="gpu_hour",
    per="pool",
    formula="sum over hours of the GPUs that the pool holds",
)
used_gpu_hours = define_quantity(
    "used_gpu_hours",
    unit="gpu_hour",
    per="pool",
    formula="sum over hours of needed replicas · GPUs per replica and of GPUs of runs, less redo",
)
existing_gpu_count = define_quantity(
    "existing_gpu_count",
    unit="count",
    per="pool",
    formula="GPUs of the pool that are owned already",
)
redo_gpu_hours = define_quantity(
    "redo_gpu_hours",
    unit="gpu_hour",
    per="pool",
    formula="GPU-hours in which runs repeat what preemptions made them lose, and restart",
)
preempted_gpu_count_per_day = define_quantity(
    "preempted_gpu_count_per_day",
    unit="1/d",
    per="pool",
    formula="GPUs that runs give back while serving grows / days from first start to last end",
)


def rounded_up(number: Any) -> Any:
    """Next whole number, where a surplus within float noise is none. [count]

    Examples:
        10 replicas and a tenth are 11, although 10 · 1.1 is 11.000000000000002 in floats.

        >>> float(rounded_up(10 * 1.1)), float(rounded_up(11.01))
        (11.0, 12.0)
    """
    return np.ceil(np.asarray(number) * (1 - FLOAT_NOISE))


@quantity(
    "peak_units_per_s",
    unit="unit/s",
    per="service",
    formula="tokens per day / (86,400 · mean over peak of the profile · tokens per unit)",
    sources=("definition: the day's units are the mean rate times 86,400 s",),
)
def peak_units_per_s(
    *, tokens_per_day: Any, mean_over_peak_fraction: Any, tokens_per_unit: Any
) -> Any:
    """Units a second in the busiest hour of a day with that many tokens. [unit/s]

    T / (86,400 · m · t) with m the profile's mean over its peak and t the prompt and answer tokens
    of one unit.

    Examples:
        1e11 tokens a day of 1,900 each on a day of mean 0.56: 1e11/(86,400 · 0.56 · 1,900).

        >>> round(float(peak_units_per_s(tokens_per_day=1e11, mean_over_peak_fraction=0.56,
        ...                              tokens_per_unit=1900)), 3)
        1087.789
    """
    return tokens_per_day / (SECONDS_PER_DAY * mean_over_peak_fraction * tokens_per_unit)


@quantity(
    "users_units_per_s",
    unit="unit/s",
    per="service",
    formula="users · active fraction · requests of an active user in an hour / 3,600",
    sources=("definition: requests of everyone who is active, over the seconds of the hour",),
)
def users_units_per_s(
    *, user_count: Any, active_fraction: Any, requests_per_active_user_hour: Any
) -> Any:
    """Units a second in the hour in which the most users are active. [unit/s]

    Examples:
        >>> users_units_per_s(user_count=7200, active_fraction=.5, requests_per_active_user_hour=2)
        2.0
    """
    return user_count * active_fraction * requests_per_active_user_hour / SECONDS_PER_HOUR


def growth_factor(*, growth_per_month_fraction: Any, month_count: Any) -> Any:
    """Demand after some months over demand in the first. [1]

    (1 + g)^n.

    Examples:
        >>> round(growth_factor(growth_per_month_fraction=0.05, month_count=12), 6)
        1.795856
    """
    return (1 + growth_per_month_fraction) ** month_count


@quantity(
    "needed_replica_count_peak",
    unit="count",
    per="service",
    formula="max(minimum, ⌈demand / (capacity · target utilisation)⌉) in the busiest hour",
)
def needed_replica_count(
    *,
    demand_units_per_s: Any,
    units_per_s_per_replica: Any,
    target_utilization_fraction: Any,
    minimum_replica_count: Any,
) -> Any:
    """Whole replicas that serve a demand at the planned utilisation. [count]

    max(minimum, ⌈λ / (c · u)⌉).

    Special cases:
        An hour without any demand needs the minimum.

    Examples:
        ⌈40 / (4 · 0.8)⌉ = ⌈12.5⌉.

        >>> float(needed_replica_count(demand_units_per_s=40, units_per_s_per_replica=4,
        ...     target_utilization_fraction=0.8, minimum_replica_count=1))
        13.0
    """
    served = units_per_s_per_replica * target_utilization_fraction
    return np.maximum(minimum_replica_count, rounded_up(demand_units_per_s / served))


@quantity(
    "held_replica_count",
    unit="count",
    per="service",
    formula="⌈needed · (1 + spare fraction)⌉ + spare count in the busiest hour; needed holds the "
    "named causes that are on; over zones of which one may be lost: zones · ⌈that / (zones - 1)⌉",
)
def held_replica_count(
    *, needed_replica_count: Any, spare_fraction: Any, spare_replica_count: Any
) -> Any:
    """Replicas that are held for a need, spare on whole replicas included. [count]

    ⌈n · (1 + s)⌉ + k.

    Examples:
        ⌈13 · 1.1⌉ = ⌈14.3⌉.

        >>> float(held_replica_count(needed_replica_count=13, spare_fraction=0.1,
        ...                          spare_replica_count=0))
        15.0
    """
    return rounded_up(needed_replica_count * (1 + spare_fraction)) + spare_replica_count


@quantity(
    "pool_gpu_count",
    unit="count",
    per="pool",
    formula="⌈GPUs / GPUs of one instance or node⌉ · GPUs of one instance or node, at the peak; "
    "beside existing GPUs, which are used first",
)
def whole_instances_gpu_count(*, gpu_count: Any, gpu_count_per_instance: Any) -> Any:
    """GPUs of the fewest whole instances (or nodes) that hold so many. [count]

    ⌈n / g⌉ · g.

    Examples:
        >>> int(whole_instances_gpu_count(gpu_count=60, gpu_count_per_instance=8))
        64
    """
    return -(-gpu_count // gpu_count_per_instance) * gpu_count_per_instance


@quantity(
    "mean_over_peak_fraction",
    unit="1",
    per="pool",
    formula="GPU-hours needed / (most GPUs needed at once · hours in which the pool is held)",
)
def mean_over_peak_fraction(*, needed_gpu_hours: Any, peak_gpu_count: Any, hours: Any) -> Any:
    """Mean need of a pool over its peak need. [1]

    W / (n · h), at most 1: a mean is no more than its peak, whatever floats make of it.

    Examples:
        39 GPU-hours needed in one hour at a peak of 52 GPUs: 39/52.

        >>> float(mean_over_peak_fraction(needed_gpu_hours=39, peak_gpu_count=52, hours=1))
        0.75
    """
    return np.minimum(1.0, needed_gpu_hours / (peak_gpu_count * hours))


@quantity(
    "idle_gpu_hours",
    unit="gpu_hour",
    per="pool",
    formula="allocated GPU-hours − used GPU-hours − redo GPU-hours",
)
def idle_gpu_hours(*, allocated_gpu_hours: Any, used_gpu_hours: Any, redo_gpu_hours: Any) -> Any:
    """GPU-hours that are held and do nothing. [gpu_hour]

    Examples:
        >>> idle_gpu_hours(allocated_gpu_hours=47616, used_gpu_hours=22196, redo_gpu_hours=0)
        25420
    """
    return allocated_gpu_hours - used_gpu_hours - redo_gpu_hours


@quantity(
    "hosting_break_even_tokens_per_day",
    unit="token",
    per="service",
    formula=(
        "cost of a day of the smallest fleet / price of a hosted token, where that fleet serves as "
        "many tokens"
    ),
)
def hosting_break_even_tokens_per_day(
    *,
    hosted_price_per_million_tokens: Any,
    cost_per_gpu_hour: Any,
    tokens_per_s_per_replica: Any,
    gpu_count_per_replica: Any,
    gpu_count_per_instance: Any,
    spare_fraction: Any,
    spare_replica_count: Any,
    minimum_replica_count: Any,
    largest_replica_count: int = 10_000,
) -> Any:
    """Tokens a day from which GPUs of one's own cost less than hosted tokens. [token]

    The least 24 · c · N(n) / p over fleets of n needed replicas that serve as many: N(n) are the
    GPUs held for them, spare and whole instances included, and n · v · 86,400 the tokens they serve
    on a mean day.

    Args:
        hosted_price_per_million_tokens: What a million tokens costs, input and output together.
        cost_per_gpu_hour: What a GPU that is held costs for an hour.
        tokens_per_s_per_replica: Tokens a needed replica serves on a mean day, so the daily shape
            and the target utilisation are in it.
        gpu_count_per_replica: GPUs of a replica.
        gpu_count_per_instance: GPUs that are rented or bought at once.
        spare_fraction: Replicas above the need.
        spare_replica_count: Replicas on top of that.
        minimum_replica_count: Replicas that are needed even without load.
        largest_replica_count: Fleets that are looked at.

    Special cases:
        Infinite where no fleet serves what it would have to: hosted tokens cost less at any load.

    Examples:
        One replica of 8 GPUs at 2.00 an hour is 384 a day, the price of 384 million tokens at 1.00.
        At 10,000 tokens a second it serves 864 million.

        >>> float(hosting_break_even_tokens_per_day(
        ...     hosted_price_per_million_tokens=1.0, cost_per_gpu_hour=2.0,
        ...     tokens_per_s_per_replica=10_000, gpu_count_per_replica=8,
        ...     gpu_count_per_instance=8, spare_fraction=0.0, spare_replica_count=0,
        ...     minimum_replica_count=1))
        384000000.0
    """
    needed = np.arange(minimum_replica_count, minimum_replica_count + largest_replica_count)
    held = held_replica_count(
        needed_replica_count=needed,
        spare_fraction=spare_fraction,
        spare_replica_count=spare_replica_count,
    )
    gpus = whole_instances_gpu_count(
        gpu_count=(held * gpu_count_per_replica).astype(np.int64),
        gpu_count_per_instance=gpu_count_per_instance,
    )
    price = hosted_price_per_million_tokens / TOKENS_PER_MILLION
    tokens = gpus * cost_per_gpu_hour * HOURS_PER_DAY / price
    serves = needed * tokens_per_s_per_replica * SECONDS_PER_DAY
    return np.min(np.where(tokens <= serves, tokens, np.inf))


def steepest_rise_units_per_s(*, demand_units_per_s: Any, duration_s: float) -> Any:
    """Most that a cyclic demand rises within a time, going straight from hour to hour. [unit/s]

    max over t of λ(t + d) - λ(t). Between two bends a difference of straight lines is straight, so
    its most is at an hour, or so long before one.

    Args:
        demand_units_per_s: Demand in each hour of the cycle, along the last axis.
        duration_s: Time within which the rise counts.

    Examples:
        From 10 to 40 in an hour, half an hour to start: half of 30.

        >>> float(steepest_rise_units_per_s(demand_units_per_s=[10, 40, 40], duration_s=1800))
        15.0
    """
    demand = np.asarray(demand_units_per_s, dtype=np.float64)
    hours = np.arange(demand.shape[-1])
    whole, part = divmod(duration_s / SECONDS_PER_HOUR, 1.0)

    def at(offset: int) -> Any:
        return np.take(demand, (hours + offset) % hours.size, axis=-1)

    later = at(int(whole)) * (1 - part) + at(int(whole) + 1) * part
    earlier = at(-int(whole)) * (1 - part) + at(-int(whole) - 1) * part
    return np.maximum((later - demand).max(axis=-1), (demand - earlier).max(axis=-1))


def cold_start_s(
    *, replica_start_s: Any, weight_bytes_per_node: Any, storage_bytes_per_s: Any
) -> Any:
    """Time from the wish for a replica to its first answer. [s]

    start + weights that one node loads / rate at which it reads them.

    Examples:
        140 GB at 2 GB/s after 90 s: 90 + 70.

        >>> cold_start_s(replica_start_s=90, weight_bytes_per_node=140e9, storage_bytes_per_s=2e9)
        160.0
    """
    return replica_start_s + weight_bytes_per_node / storage_bytes_per_s
