"""Months and hours of the plan's calendar in UTC, with their real lengths, and clocks of zones."""

from bisect import bisect_left
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from service.core.units import HOURS_PER_DAY, MONTHS_PER_YEAR, SECONDS_PER_HOUR

DAYS_PER_WEEK = 7
EPOCH_WEEKDAY = 3
"""1 January 1970 was a Thursday, day 3 of a week that begins on Monday."""


def month_index(month: str) -> int:
    """Number of a month since year 0, so that months can be counted."""
    year, number = month.split("-")
    return int(year) * MONTHS_PER_YEAR + int(number) - 1


def month_of(index: int) -> str:
    """Month of a number that `month_index` gave."""
    year, zero_based = divmod(index, MONTHS_PER_YEAR)
    return f"{year:04d}-{zero_based + 1:02d}"


def first_day(month: str) -> date:
    """First day of a month."""
    year, number = month.split("-")
    return date(int(year), int(number), 1)


def last_day(month: str) -> date:
    """Last day of a month."""
    return first_day(month).replace(day=days_in_month(month))


def days_in_month(month: str) -> int:
    """Days of a month. [d]"""
    day = first_day(month)
    return monthrange(day.year, day.month)[1]


def hours_in_month(month: str) -> int:
    """Hours of a month: 672 to 744. [h]"""
    return days_in_month(month) * HOURS_PER_DAY


def midnight(day: date) -> datetime:
    """Start of a day in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def utc_offsets_s(*, start: datetime, hour_count: int, time_zone: str) -> NDArray[np.int64]:
    """Offset of a zone from UTC at the start of each hour from `start`. [s]

    The zone is asked once a week; the hour of a change within a week is found by bisection. No
    zone changes its clock twice in a week.

    Examples:
        >>> from datetime import UTC
        >>> spring = datetime(2027, 3, 28, 0, tzinfo=UTC)
        >>> utc_offsets_s(start=spring, hour_count=3, time_zone="Europe/Berlin").tolist()
        [3600, 7200, 7200]
    """
    zone = ZoneInfo(time_zone)

    def offset(hour: int) -> int:
        local = (start + timedelta(hours=hour)).astimezone(zone).utcoffset()
        return int((local or timedelta()).total_seconds())

    week = HOURS_PER_DAY * DAYS_PER_WEEK
    marks = [*range(0, hour_count, week), hour_count]
    at_marks = [offset(mark) for mark in marks]
    offsets = np.repeat(np.array(at_marks[:-1], dtype=np.int64), np.diff(marks))
    for mark, stop, before, after in zip(marks, marks[1:], at_marks, at_marks[1:], strict=False):
        if before != after:
            change = bisect_left(range(mark, stop), x=True, key=lambda hour: offset(hour) != before)
            offsets[mark + change : stop] = after
    return offsets


def cycle_hours(
    *, start: datetime, offsets_s: NDArray[np.int64], hours_per_cycle: int
) -> NDArray[np.int64]:
    """Local hour of the day (of 24) or of the week (of 168, Monday 0 h first) of UTC hours.

    An hour counts as the local hour in which it starts, so zones off the full hour and days of 23
    or 25 hours need no rule of their own.

    Examples:
        5 January 2027 is a Tuesday: 0 h UTC is 5:30 in Kolkata, hour 24 + 5 of the week.

        >>> from datetime import UTC
        >>> kolkata = np.array([19800])
        >>> cycle_hours(start=datetime(2027, 1, 5, tzinfo=UTC), offsets_s=kolkata,
        ...             hours_per_cycle=168).tolist()
        [29]
    """
    first = int(start.timestamp())
    hours = np.arange(offsets_s.size, dtype=np.int64)
    second = int(SECONDS_PER_HOUR)
    local = (first + offsets_s) // second + hours
    if hours_per_cycle != HOURS_PER_DAY:
        local += EPOCH_WEEKDAY * HOURS_PER_DAY
    return local % hours_per_cycle
