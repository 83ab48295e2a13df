"""How the uncertainty of runs and replicas reaches the GPU-hours and amounts of pools and plans."""

from collections.abc import Iterable
from math import hypot

from service.core.estimates import Range


def scaled(value: float, band: Range) -> Range:
    """A number that is as uncertain as another one, by its share."""
    if not band.value:
        return Range.exactly(value)
    below, above = band.low / band.value, band.high / band.value
    return Range(value=value, low=value * below, high=value * above)


def around(value: float, band: Range) -> Range:
    """The same number summed in another order: floats must not put it outside of its range."""
    return Range(
        value=value,
        low=value - (band.value - band.low),
        high=value + (band.high - band.value),
    )


def together(parts: Iterable[Range]) -> Range:
    """Sum of numbers that err independently: deviations add up as the root of their squares.

    Examples:
        10 with 3 to either side and 20 with 4: 30 with 5.

        >>> together([Range(value=10, low=7, high=13), Range(value=20, low=16, high=24)])
        Range(value=30.0, low=25.0, high=35.0)
    """
    parts = tuple(parts)
    value = float(sum(part.value for part in parts))
    low = hypot(*(part.value - part.low for part in parts))
    high = hypot(*(part.high - part.value for part in parts))
    return Range(value=value, low=value - low, high=value + high)
