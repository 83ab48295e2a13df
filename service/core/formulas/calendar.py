"""Months and hours of the plan's calendar, in UTC and with their real lengths."""

from calendar import monthrange
from datetime import UTC, date, datetime

from service.core.units import HOURS_PER_DAY, MONTHS_PER_YEAR


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
