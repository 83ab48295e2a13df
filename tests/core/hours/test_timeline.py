"""Hours of real months, and their local time."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.formulas.calendar import cycle_hours, utc_offsets_s
from service.core.hours.timeline import Timeline
from service.core.scenarios.scenario import Horizon


def test_a_year_has_8760_hours_and_a_leap_year_8784():
    for month, hours in (("2027-01", 8760), ("2028-01", 8784)):
        timeline = Timeline.of(Horizon(start_month=month, month_count=12))
        assert timeline.hour_count == hours
    assert timeline.month_hours.tolist()[:3] == [744, 696, 744]


def test_hours_and_moments_are_two_names_of_the_same():
    timeline = Timeline.of(Horizon(start_month="2027-01", month_count=2))
    moment = datetime(2027, 2, 1, 12, 30, tzinfo=UTC)
    assert timeline.hour_of(moment) == 756.5
    assert timeline.moment(756.5) == moment


def test_months_are_summed_and_compared_apart():
    timeline = Timeline.of(Horizon(start_month="2027-01", month_count=2))
    hours = np.arange(timeline.hour_count)
    assert timeline.by_month(hours).tolist() == [743 * 744 // 2, sum(range(744, 744 + 672))]
    assert timeline.by_month(hours, np.maximum).tolist() == [743, 1415]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    zone=st.sampled_from(sorted(available_timezones())),
    start=st.dates(date(2024, 1, 1), date(2032, 1, 1)),
)
def test_every_hour_has_the_local_time_that_the_zone_says(zone, start):
    first = datetime(start.year, start.month, start.day, tzinfo=UTC)
    offsets = utc_offsets_s(start=first, hour_count=4000, time_zone=zone)
    local = [(first + timedelta(hours=hour)).astimezone(ZoneInfo(zone)) for hour in range(4000)]
    days = cycle_hours(start=first, offsets_s=offsets, hours_per_cycle=24)
    weeks = cycle_hours(start=first, offsets_s=offsets, hours_per_cycle=168)
    assert days.tolist() == [moment.hour for moment in local]
    assert weeks.tolist() == [moment.weekday() * 24 + moment.hour for moment in local]


@pytest.mark.parametrize("hours_per_cycle", [24, 168])
def test_hours_of_each_month_are_counted_once(hours_per_cycle):
    timeline = Timeline.of(Horizon(start_month="2027-01", month_count=12))
    local, often = timeline.cycle("America/New_York", hours_per_cycle)
    assert local.size == often.sum() == 8760
    assert often.sum(axis=1).tolist() == timeline.month_hours.tolist()
