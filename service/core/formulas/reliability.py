"""Failures, checkpoints, the share of time that makes progress, and what is held beside losses.

Arguments may be numpy arrays; they broadcast. The lost share is taken of the time itself, so a run
whose failures come faster than it recovers has a goodput of zero or below and never ends.
"""

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.formulas.demand import rounded_up
from service.core.registry import quantity
from service.core.units import HOURS_PER_DAY, SECONDS_PER_HOUR

NODE_DAYS = 1000.0
"""Failure rates are published per 1,000 node-days."""
TINY = 1e-12
"""Stands for no event where something is divided by their number."""
_YOUNG = "Young, CACM 17(9), 1974"
_DALY = "Daly, Future Generation Computer Systems 22, 2006, equation 37"
_KOKOLIS = "Kokolis et al., arXiv 2410.21680"


def server_count(*, gpu_count: Any, gpus_per_server: Any) -> Any:
    """Servers that a run keeps busy, a partly used one counted whole. [count]

    Examples:
        >>> float(server_count(gpu_count=12, gpus_per_server=8))
        2.0
    """
    return np.ceil(gpu_count / gpus_per_server)


@quantity(
    "failures_per_day",
    unit="1/d",
    per="run",
    formula="(failures + spot interruptions per 1,000 node-days) · servers / 1000 + preemptions",
    sources=(_KOKOLIS,),
)
def failures_per_day(
    *,
    failures_per_1000_node_days: Any,
    node_count: Any,
    spot_interruptions_per_1000_node_days: Any = 0.0,
    preemptions_per_day: Any = 0.0,
) -> Any:
    """Failures that stop a run, a day. [1/d]

    Any server stops the whole job, so the rate grows with their number; a preemption is one stop of
    the job.

    References:
        Kokolis et al., arXiv 2410.21680.

    Examples:
        419 stops in 54 days on 2,048 servers are 3.79 per 1,000 node-days and 7.76 a day.

        >>> round(failures_per_day(failures_per_1000_node_days=419 / 54 / 2.048,
        ...                        node_count=2048), 2)
        7.76
    """
    rate = failures_per_1000_node_days + spot_interruptions_per_1000_node_days
    return rate * node_count / NODE_DAYS + preemptions_per_day


@quantity(
    "observed_failures_per_node_day",
    unit="1/d",
    per="node",
    formula="incidents / (servers watched · days)",
    sources=("Wilson and Hilferty, PNAS 17(12), 1931, for the range",),
)
def observed_failures_per_node_day(*, incident_count: Any, node_count: Any, days: Any) -> Any:
    """Failures of a server a day, from incidents that were counted. [1/d]

    k/(n·t).

    Examples:
        419 stops in 54 days on 2,048 servers, Llama 3: 419 / 110,592, or 3.789 in 1,000 node-days.

        >>> round(observed_failures_per_node_day(incident_count=419, node_count=2048, days=54), 6)
        0.003789
    """
    return incident_count / (node_count * days)


def poisson_mean_bound(*, event_count: Any, deviation: Any) -> Any:
    """Bound of the mean behind a count of events, so many standard deviations away. [count]

    n·(1 - 1/(9n) + z/(3·sqrt(n)))³, n being the count below the mean and one more above it: half of
    the chi-square of 2n degrees, the exact bound, within 1 % from two events on.

    References:
        Garwood, Biometrika 28, 1936; Wilson and Hilferty, PNAS 17(12), 1931.

    Special cases:
        No event: from 0.

    Examples:
        The 10th and 90th percentile, 1.2816 deviations away.

        >>> [round(float(poisson_mean_bound(event_count=419, deviation=z)), 1)
        ...  for z in (-1.2816, 1.2816)]
        [393.0, 446.5]
    """
    count = np.maximum(event_count + (np.asarray(deviation) > 0), TINY)
    root = 1.0 - 1.0 / (9.0 * count) + deviation / (3.0 * np.sqrt(count))
    return count * np.maximum(0.0, root) ** 3


@quantity(
    "mean_time_to_failure_hours",
    unit="h",
    per="run",
    formula="24 / failures per day",
    sources=(_KOKOLIS,),
)
def mean_time_to_failure_hours(*, failures_per_day: Any) -> Any:
    """Mean time between failures of the whole job. [h]

    Examples:
        64 servers at 4 per 1,000 node-days: 0.256 a day.

        >>> mean_time_to_failure_hours(failures_per_day=0.256)
        93.75
    """
    return HOURS_PER_DAY / failures_per_day


@quantity(
    "lost_s_per_failure",
    unit="s",
    per="run",
    formula="checkpoint interval / 2 + restart + write of an asynchronous checkpoint",
)
def lost_s_per_failure(
    *, checkpoint_interval_s: Any, restart_s: Any, checkpoint_write_s: Any = 0.0
) -> Any:
    """Time that one failure costs: work since the last checkpoint, and the restart. [s]

    Half an interval is lost on average, because a failure may fall anywhere in it; and the time in
    which a checkpoint is written beside the run, because it counts only then.

    Examples:
        >>> lost_s_per_failure(checkpoint_interval_s=1800, restart_s=1200)
        2100.0
    """
    return checkpoint_interval_s / 2.0 + restart_s + checkpoint_write_s


@quantity(
    "goodput_fraction",
    unit="1",
    per="run",
    formula="1 - failures per day · lost s per failure / 86400 - save s / checkpoint interval s",
    sources=(_KOKOLIS,),
)
def goodput_fraction(
    *,
    failures_per_day: Any,
    checkpoint_interval_s: Any,
    restart_s: Any,
    checkpoint_save_s: Any = 0.0,
    checkpoint_write_s: Any = 0.0,
) -> Any:
    """Share of the time that makes progress. [1]

    1 - (τ/2 + R + w)/M - δ/τ, with τ the checkpoint interval, R the restart, w the time in which a
    checkpoint is written beside the run, M the mean time between failures and δ the time for which
    a save stops the run.

    References:
        Kokolis et al., arXiv 2410.21680 (effective training time ratio).

    Special cases:
        Zero or below means that the run never ends.

    Examples:
        >>> round(goodput_fraction(failures_per_day=0.256, checkpoint_interval_s=1800,
        ...                        restart_s=1200), 6)
        0.993778
    """
    lost = lost_s_per_failure(
        checkpoint_interval_s=checkpoint_interval_s,
        restart_s=restart_s,
        checkpoint_write_s=checkpoint_write_s,
    )
    per_day = HOURS_PER_DAY * SECONDS_PER_HOUR
    return 1.0 - failures_per_day * lost / per_day - checkpoint_save_s / checkpoint_interval_s


@quantity(
    "wasted_gpu_hours_per_day",
    unit="gpu_hour",
    per="run",
    formula="GPUs · 24 · (1 - goodput)",
)
def wasted_gpu_hours_per_day(*, gpu_count: Any, goodput_fraction: Any) -> Any:
    """GPU-hours a day that make no progress. [gpu_hour]

    Examples:
        16,384 GPUs, 7.76 failures a day, 25 minutes lost each: 13.5 % of the time.

        >>> round(wasted_gpu_hours_per_day(gpu_count=16384, goodput_fraction=1 - 0.134709))
        52970
    """
    return gpu_count * HOURS_PER_DAY * (1.0 - goodput_fraction)


def young_checkpoint_interval_s(*, checkpoint_save_s: Any, mean_time_to_failure_s: Any) -> Any:
    """Checkpoint interval that loses least, to first order. [s]

    sqrt(2·δ·M).

    References:
        Young, CACM 17(9), 1974, page 531.

    Examples:
        >>> round(float(young_checkpoint_interval_s(checkpoint_save_s=60,
        ...                                   mean_time_to_failure_s=3.093 * 3600)))
        1156
    """
    return np.sqrt(2.0 * checkpoint_save_s * mean_time_to_failure_s)


@quantity(
    "optimal_checkpoint_interval_s",
    unit="s",
    per="run",
    formula="sqrt(2·save·MTTF)·(1 + sqrt(save/(2·MTTF))/3 + save/(18·MTTF)) - save; "
    "MTTF where the save takes twice as long or more",
    sources=(_DALY, _YOUNG),
)
def daly_checkpoint_interval_s(*, checkpoint_save_s: Any, mean_time_to_failure_s: Any) -> Any:
    """Checkpoint interval that loses least, where a save is not short against failures. [s]

    sqrt(2·δ·M)·(1 + sqrt(δ/2M)/3 + (δ/2M)/9) - δ for δ < 2M, else M.

    References:
        Daly, Future Generation Computer Systems 22, 2006, equation 37.

    Examples:
        >>> round(float(daly_checkpoint_interval_s(checkpoint_save_s=60,
        ...                                  mean_time_to_failure_s=3.093 * 3600)))
        1116
    """
    ratio = checkpoint_save_s / (2.0 * mean_time_to_failure_s)
    first = young_checkpoint_interval_s(
        checkpoint_save_s=checkpoint_save_s, mean_time_to_failure_s=mean_time_to_failure_s
    )
    series = first * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - checkpoint_save_s
    return np.where(ratio < 1.0, series, mean_time_to_failure_s)[()]


@quantity(
    "checkpoint_bytes",
    unit="B",
    per="run",
    formula="parameters · bytes of the kept weights, gradients, master copy and moments",
    sources=("Rajbhandari et al., ZeRO, arXiv 1910.02054, section 3.1",),
)
def checkpoint_bytes(*, parameter_count: Any, bytes_per_parameter: Any) -> Any:
    """Size of one checkpoint from which training can go on. [B]

    References:
        Rajbhandari et al., arXiv 1910.02054, section 3.1, for the parts.

    Examples:
        >>> checkpoint_bytes(parameter_count=405e9, bytes_per_parameter=16)
        6480000000000.0
    """
    return parameter_count * bytes_per_parameter


@quantity(
    "checkpoint_write_s",
    unit="s",
    per="run",
    formula="checkpoint bytes / min(bandwidth of the store, nodes · bandwidth of one)",
)
def checkpoint_write_s(
    *,
    checkpoint_bytes: Any,
    storage_bytes_per_s: Any,
    writer_count: Any,
    writer_bytes_per_s: Any,
) -> Any:
    """Time to write one checkpoint: storage or writers limit it. [s]

    size / min(storage, writers · rate of one writer).

    Examples:
        BLOOM, 2.47 TB from 48 servers into 58 GB/s.

        >>> round(float(checkpoint_write_s(checkpoint_bytes=2.467e12, storage_bytes_per_s=58e9,
        ...                          writer_count=48, writer_bytes_per_s=12.5e9)), 1)
        42.5
    """
    return checkpoint_bytes / np.minimum(storage_bytes_per_s, writer_count * writer_bytes_per_s)


def availability_fraction(*, failures_per_day: Any, repair_hours: Any) -> Any:
    """Share of the time in which one node works. [1]

    1/(1 + λ·MTTR).

    Examples:
        A failure in 100 days, a day to repair.

        >>> round(availability_fraction(failures_per_day=0.01, repair_hours=24), 4)
        0.9901
    """
    return 1.0 / (1.0 + failures_per_day * repair_hours / 24.0)


NEGLIGIBLE = 40.0
"""What is smaller by so much in logarithms changes no double."""
MOST_SUMMED_COUNT = 20_000
"""Above so many nodes the number of failed ones is normal to within a node or two."""


def node_count_with_spares(
    *, needed_count: Any, availability_fraction: float, target_fraction: float
) -> Any:
    """Smallest number of nodes of which enough work at a time, with a wanted probability. [count]

    The smallest n with P(Binomial(n, A) >= k) >= target. That is the probability that the k-th
    working node comes before the (n - k + 1)-th failed one, so its terms are summed over the number
    j of failed nodes: C(k+j-1, j) · A^k · (1-A)^j. Dividing by A is too few: it holds for the mean
    alone.

    References:
        Barlow and Proschan, Mathematical Theory of Reliability, 1965, k-out-of-n systems.

    Special cases:
        None needed, none held. Above 20,000 the normal limit of the sum is taken.

    Examples:
        >>> [int(node_count_with_spares(needed_count=k, availability_fraction=a,
        ...                             target_fraction=0.999))
        ...     for k, a in ((10, 0.9871), (100, 0.9871), (100, 0.95))]
        [12, 106, 114]
    """
    needed = np.atleast_1d(np.asarray(needed_count, dtype=np.float64))
    down = 1.0 - availability_fraction
    mean = needed * down / availability_fraction
    width = np.sqrt(mean / availability_fraction)
    spares = np.maximum(np.ceil(mean + NormalDist().inv_cdf(target_fraction) * width), 0)
    few = (needed <= MOST_SUMMED_COUNT) & (needed > 0)
    if down > 0:
        spares[few] = _spares(needed[few], availability_fraction, target_fraction)
    return (needed + spares).reshape(np.shape(needed_count))[()]


def _spares(needed: NDArray[np.float64], up: float, target: float) -> NDArray[np.float64]:
    """Failed nodes up to which the probability reaches the target, summed in logarithms."""
    term = needed * np.log(up)
    total, spares, failed = term.copy(), np.zeros(needed.shape), 0
    while (short := (total < np.log(target)) & (term > total - NEGLIGIBLE)).any():
        term += np.log((needed + failed) / (failed + 1)) + np.log1p(-up)
        failed += 1
        total[short] = np.logaddexp(total[short], term[short])
        spares[short] = failed
    return spares


def count_beside_maintenance(*, replica_count: Any, out_fraction: Any) -> Any:
    """Replicas of which so many are left while a share of them is out. [count]

    ⌈n / (1 - m)⌉.

    Examples:
        >>> float(count_beside_maintenance(replica_count=20, out_fraction=0.05))
        22.0
    """
    return rounded_up(replica_count / (1 - out_fraction))


def count_over_zones(*, replica_count: Any, zone_count: Any) -> Any:
    """Replicas spread evenly over zones, of which enough are left when one zone is lost. [count]

    z · ⌈n / (z - 1)⌉: each zone holds as much as the others need of it.

    Examples:
        15 in three zones: 8 in each, so that two hold 16; 15 · 3/2 would be 22.5.

        >>> float(count_over_zones(replica_count=15, zone_count=3))
        24.0
    """
    return zone_count * rounded_up(replica_count / (zone_count - 1))
