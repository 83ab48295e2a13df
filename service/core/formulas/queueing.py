"""How arrivals scatter, and what they wait for one of several servers.

Erlang C with its extension to general service times.
"""

from statistics import NormalDist
from typing import Any

import numpy as np


def erlang_c(*, server_count: Any, offered_load: Any) -> Any:
    """Probability that an arrival must wait for one of c servers. [1]

    C = (a^c/c!)·c/(c − a) / (Σ_{k<c} a^k/k! + (a^c/c!)·c/(c − a)), a = arrival rate · service
    time, computed relative to the term a^c/c! so that it holds for thousands of servers.

    References:
        Erlang 1917; Kleinrock, Queueing Systems I, 1975, equation 3.43.

    Special cases:
        1 where the load is not below the servers: the queue grows without end. 0 without load.

    Examples:
        >>> [round(float(erlang_c(server_count=c, offered_load=a)), 4)
        ...     for c, a in ((10, 8.0), (100, 90.0))]
        [0.4092, 0.2169]
    """
    servers, load = np.broadcast_arrays(np.asarray(server_count), np.asarray(offered_load, float))
    stable = (load < servers) & (load > 0)
    a = np.where(stable, load, 0.5)[..., None]
    c = np.where(stable, servers, 1)[..., None]
    k = np.arange(int(np.max(c, initial=1)))
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, k.size + 1)))))
    log_term = (k - c) * np.log(a) + log_factorial[c] - log_factorial[k]
    free = np.sum(np.exp(np.minimum(log_term, 650.0)) * (k < c), axis=-1)
    busy = (c / (c - a))[..., 0]
    return np.where(stable, busy / (free + busy), np.where(load > 0, 1.0, 0.0))


def waiting_time_mean_s(
    *,
    wait_probability: Any,
    server_count: Any,
    arrival_rate_per_s: Any,
    service_time_s: Any,
    arrival_squared_variation: Any,
    service_squared_variation: Any,
) -> Any:
    """Mean wait in a queue with general arrivals and service times. [s]

    (C_a² + C_s²)/2 · C / (c/S − λ): the mean of M/M/c, stretched by Allen and Cunneen's factor.

    References:
        Allen, Probability, Statistics and Queueing Theory, 1990, section 5.2.6.

    Special cases:
        Unbounded (inf) where the load is not below the servers.

    Examples:
        10 servers of 1 s each at 8 arrivals a second: 0.4092/2 s.

        >>> round(float(waiting_time_mean_s(wait_probability=0.4092, server_count=10,
        ...     arrival_rate_per_s=8.0, service_time_s=1.0, arrival_squared_variation=1.0,
        ...     service_squared_variation=1.0)), 4)
        0.2046
    """
    spare_rate = server_count / np.asarray(service_time_s) - arrival_rate_per_s
    stretch = (arrival_squared_variation + np.asarray(service_squared_variation)) / 2
    wait = stretch * wait_probability / np.where(spare_rate > 0, spare_rate, 1.0)
    return np.where(spare_rate > 0, wait, np.inf)


def waiting_time_quantile_s(
    *,
    wait_probability: Any,
    quantile: Any,
    server_count: Any,
    arrival_rate_per_s: Any,
    service_time_s: Any,
    arrival_squared_variation: Any,
    service_squared_variation: Any,
) -> Any:
    """Quantile of the wait in a queue with general arrivals and service times. [s]

    (C_a² + C_s²)/2 · ln(C/(1 − q)) / (c/S − λ): the exponential tail of M/M/c, stretched by
    Allen and Cunneen's factor.

    References:
        Allen, Probability, Statistics and Queueing Theory, 1990, section 5.2.6 (mean wait);
        Kleinrock, Queueing Systems I, 1975, section 3.5 (tail of M/M/c).

    Special cases:
        0 where fewer than 1 − q of the arrivals wait. Unbounded (inf) where the load is not below
        the servers.

    Examples:
        10 servers of 1 s each at 8 arrivals a second, 95th percentile: ln(0.4092/0.05)/2 s.

        >>> round(float(waiting_time_quantile_s(wait_probability=0.4092, quantile=0.95,
        ...     server_count=10, arrival_rate_per_s=8.0, service_time_s=1.0,
        ...     arrival_squared_variation=1.0, service_squared_variation=1.0)), 4)
        1.0511
    """
    spare_rate = server_count / np.asarray(service_time_s) - arrival_rate_per_s
    stretch = (arrival_squared_variation + np.asarray(service_squared_variation)) / 2
    tail = np.log(np.maximum(np.asarray(wait_probability) / (1.0 - quantile), 1.0))
    wait = stretch * tail / np.where(spare_rate > 0, spare_rate, 1.0)
    return np.where(spare_rate > 0, wait, np.inf)


def squared_variation_of_lengths(*, p95_over_mean: Any) -> Any:
    """Squared coefficient of variation of lengths whose 95th percentile is known. [1]

    exp(σ²) − 1 with σ of the log-normal distribution that has this ratio: ln r = z·σ − σ²/2, so
    σ = z − √(z² − 2·ln r), z = 1.645 the normal 95th percentile.

    References:
        Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1, 1994, section 14.3.

    Special cases:
        A log-normal 95th percentile is at most exp(z²/2) = 3.87 times its mean; a larger ratio
        takes that limit, σ = z.

    Examples:
        >>> [round(float(squared_variation_of_lengths(p95_over_mean=r)), 3) for r in (1, 2)]
        [0.0, 0.279]
    """
    z = 1.6448536269514722
    log_ratio = np.log(np.maximum(p95_over_mean, 1.0))
    sigma = z - np.sqrt(np.maximum(z**2 - 2 * log_ratio, 0.0))
    return np.expm1(sigma**2)


def burst_units_per_s(
    *,
    demand_units_per_s: Any,
    percentile_fraction: float,
    window_s: float,
    arrival_dispersion_ratio: float,
) -> Any:
    """Demand of a busy window within an hour of a mean demand. [unit/s]

    λ + z_p · sqrt(D · λ / w), with D the variance over the mean of the counts of windows of w
    seconds, whose sum over many users is near normal.

    References:
        Cox and Lewis, The Statistical Analysis of Series of Events, 1966, section 4.5 (index of
        dispersion of counts).

    Special cases:
        Without demand there is no burst.

    Examples:
        40/s for a minute, Poisson: 40 + 2.3263 · sqrt(40/60).

        >>> round(float(burst_units_per_s(demand_units_per_s=40, percentile_fraction=0.99,
        ...                               window_s=60, arrival_dispersion_ratio=1)), 3)
        41.899
    """
    deviations = max(0.0, NormalDist().inv_cdf(percentile_fraction))
    scatter = np.sqrt(arrival_dispersion_ratio * np.asarray(demand_units_per_s) / window_s)
    return demand_units_per_s + deviations * scatter
