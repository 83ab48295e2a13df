"""The hours of a plan: numbered in UTC, grouped by real months, told apart by local time."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.formulas.calendar import (
    cycle_hours,
    first_day,
    hours_in_month,
    midnight,
    utc_offsets_s,
)
from service.core.scenarios.scenario import Horizon
from service.core.units import SECONDS_PER_HOUR

Counts = NDArray[np.int64]
Amounts = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """The hours of a horizon: numbered in UTC from its first, grouped by real months."""

    months: tuple[str, ...]
    start: datetime
    edges: Counts
    """Hour in which each month begins, and the hour after the last."""
    _cycles: dict[tuple[str, int], tuple[Counts, Counts]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, horizon: Horizon) -> "Timeline":
        """Number the hours of a horizon."""
        lengths = [hours_in_month(month) for month in horizon.months]
        edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        return cls(horizon.months, midnight(first_day(horizon.start_month)), edges)

    @property
    def hour_count(self) -> int:
        """Hours of the horizon. [h]"""
        return int(self.edges[-1])

    @property
    def month_hours(self) -> Counts:
        """Hours of each month. [h]"""
        return np.diff(self.edges)

    @cached_property
    def month_of_hour(self) -> Counts:
        """Number of the month in which each hour lies."""
        return np.repeat(np.arange(len(self.months)), self.month_hours)

    def hour_of(self, moment: datetime) -> float:
        """Hours from the start of the horizon to a moment. [h]"""
        return (moment - self.start).total_seconds() / SECONDS_PER_HOUR

    def moment(self, hour: float) -> datetime:
        """Moment of an hour's number."""
        return self.start + timedelta(hours=hour)

    def by_month(self, hours: NDArray[np.generic], combine: np.ufunc = np.add) -> NDArray[Any]:
        """Sum (or the most) of the hours of each month."""
        result: NDArray[Any] = combine.reduceat(hours, self.edges[:-1])
        return result

    def together(self, parts: Iterable[Counts]) -> Counts:
        """Sum of what several hold in each hour. [count]"""
        return sum(parts, start=np.zeros(self.hour_count, dtype=np.int64))

    def cycle(self, time_zone: str, hours_per_cycle: int) -> tuple[Counts, Counts]:
        """Local hour of the day or week in each UTC hour, and how often each falls in a month."""
        key = (time_zone, hours_per_cycle)
        if key not in self._cycles:
            offsets = utc_offsets_s(
                start=self.start, hour_count=self.hour_count, time_zone=time_zone
            )
            local = cycle_hours(
                start=self.start, offsets_s=offsets, hours_per_cycle=hours_per_cycle
            )
            numbered = self.month_of_hour * hours_per_cycle + local
            size = len(self.months) * hours_per_cycle
            often = np.bincount(numbered, minlength=size).reshape(-1, hours_per_cycle)
            self._cycles[key] = local, often.astype(np.int64)
        return self._cycles[key]

    def often(self, time_zone: str, hours_per_cycle: int, hours: slice) -> Counts:
        """How often each local hour of the day or week falls in each month, within some hours."""
        local, often = self.cycle(time_zone, hours_per_cycle)
        if hours == slice(0, self.hour_count):
            return often
        numbered = self.month_of_hour[hours] * hours_per_cycle + local[hours]
        counts = np.bincount(numbered, minlength=often.size)
        return counts.reshape(often.shape).astype(np.int64)

    def charge_period(self, month: int, first: float, last: float) -> tuple[datetime, datetime]:
        """The part of a month that lies between two hours of the horizon."""
        start, stop = self.edges[month], self.edges[month + 1]
        return self.moment(max(float(start), first)), self.moment(min(float(stop), last))
