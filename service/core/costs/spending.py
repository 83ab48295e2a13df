"""What the GPUs of a run cost from its start on, month by month, and how long an amount lasts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, inf

from service.core.formulas.calendar import first_day, midnight, month_index, month_of
from service.core.units import SECONDS_PER_HOUR

ROUNDING = 0.02
"""Most that rounding the lines of a month to cents adds: two lines of used and redone hours, each
with its host beside it."""
LAST_MONTH_INDEX = month_index("2100-12")
"""From here on prices stand still: no answer reaches beyond."""


@dataclass(frozen=True)
class Spending:
    """GPUs that are rented by the hour, in whole instances."""

    price_in: Callable[[str], float]
    """Price of one GPU with its host for one hour of a month, work that is done again included."""
    gpu_multiple: int = 1
    """GPUs that are rented at once."""

    def amount(self, gpu_count: int, start: datetime, hours: float) -> float:
        """Most that so many GPUs cost for so many hours from a moment on. [currency]"""
        if hours == inf:
            return inf
        spent = 0.0
        for length, price in self._months(start):
            part = min(length, hours)
            spent += self._held(gpu_count) * part * price + ROUNDING
            hours -= part
            if hours <= 0:
                break
        return spent

    def hours(self, gpu_count: int, start: datetime, amount: float) -> float:
        """Hours that so many GPUs can be held from a moment on for an amount. [h]"""
        held, total = self._held(gpu_count), 0.0
        for length, price in self._months(start):
            part = min(length, max(0.0, amount - ROUNDING) / (held * price))
            total += part
            amount -= held * part * price + ROUNDING
            if part < length:
                break
        return total

    def _held(self, gpu_count: int) -> int:
        return ceil(gpu_count / self.gpu_multiple) * self.gpu_multiple

    def _months(self, start: datetime) -> Iterator[tuple[float, float]]:
        """Hours of each month from a moment on, and the price in it; the last has no end."""
        index = month_index(f"{start:%Y-%m}")
        while index < LAST_MONTH_INDEX:
            stop = midnight(first_day(month_of(index + 1)))
            yield (
                (stop - start) / timedelta(seconds=SECONDS_PER_HOUR),
                self.price_in(month_of(index)),
            )
            start, index = stop, index + 1
        yield inf, self.price_in(month_of(LAST_MONTH_INDEX - 1))
