"""How many nodes must be held so that enough of them work."""

from math import lgamma

import numpy as np


def node_count_with_spares(
    *, needed_count: int, availability_fraction: float, target_fraction: float
) -> int:
    """Smallest number of nodes of which enough work at a time, with a wanted probability. [count]

    The smallest n with P(Binomial(n, A) >= k) >= target. Dividing by A is too few: it holds for
    the mean alone.

    References:
        Barlow and Proschan, Mathematical Theory of Reliability, 1965, k-out-of-n systems.

    Examples:
        >>> [node_count_with_spares(needed_count=k, availability_fraction=a, target_fraction=0.999)
        ...     for k, a in ((10, 0.9871), (100, 0.9871), (100, 0.95))]
        [12, 106, 114]
    """
    low, high = needed_count, int(2 * needed_count / availability_fraction) + 50
    while low < high:
        middle = (low + high) // 2
        if _enough_work(middle, needed_count, availability_fraction) >= target_fraction:
            high = middle
        else:
            low = middle + 1
    return low


def _enough_work(count: int, needed_count: int, availability_fraction: float) -> float:
    """P(Binomial(count, A) >= needed), summed over the number of failed nodes."""
    failed = np.arange(count - needed_count + 1)
    ways = [lgamma(count + 1) - lgamma(i + 1) - lgamma(count - i + 1) for i in failed]
    down = max(1.0 - availability_fraction, float(np.finfo(float).tiny))
    logs = np.array(ways) + (count - failed) * np.log(availability_fraction) + failed * np.log(down)
    return float(np.exp(logs).sum())
