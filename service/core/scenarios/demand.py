"""What a service is asked for: load, shape of the day, time zone."""

from functools import cache
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from service.core.value import Count, Fraction, Number, Positive, PositiveFraction, Text, Value

DemandPreset = Literal["office_assistant", "consumer_evening", "global_app", "flat"]
"""Named shapes of a day, local hours 0 to 23, peak 1.00."""

PRESET_PROFILES: dict[DemandPreset, tuple[float, ...]] = {
    "office_assistant": (
        *(0.06, 0.05, 0.05, 0.05, 0.05, 0.08, 0.18, 0.40, 0.72, 0.93, 1.00, 0.98),
        *(0.86, 0.92, 1.00, 0.96, 0.86, 0.62, 0.36, 0.22, 0.16, 0.12, 0.09, 0.08),
    ),
    "consumer_evening": (
        *(0.55, 0.42, 0.32, 0.25, 0.22, 0.22, 0.28, 0.38, 0.46, 0.50, 0.52, 0.54),
        *(0.58, 0.58, 0.57, 0.58, 0.62, 0.70, 0.80, 0.90, 0.98, 1.00, 0.84, 0.63),
    ),
    "global_app": (
        *(0.78, 0.74, 0.71, 0.69, 0.68, 0.68, 0.70, 0.73, 0.77, 0.80, 0.83, 0.85),
        *(0.87, 0.88, 0.89, 0.91, 0.93, 0.96, 0.99, 1.00, 0.98, 0.94, 0.89, 0.83),
    ),
    "flat": (1.0,) * 24,
}
"""Presets are part of the published contract: their numbers never change under a name."""

HOURS_OF_DAY_PROFILE = 24
HOURS_OF_WEEK_PROFILE = 168


def _whole_cycle(hours: tuple[float, ...]) -> tuple[float, ...]:
    if len(hours) not in (HOURS_OF_DAY_PROFILE, HOURS_OF_WEEK_PROFILE):
        raise ValueError(f"needs 24 or 168 hourly factors, not {len(hours)}")
    if max(hours) == 0:
        raise ValueError("every hour is 0: a service without any load needs no plan")
    return hours


@cache
def _zones() -> frozenset[str]:
    """Names of all zones, read from the files of the time zone database once."""
    return frozenset(available_timezones())


def _known_zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"{name!r} is not an IANA time zone")
    return name


HourlyProfile = Annotated[
    tuple[Fraction, ...],
    Field(min_length=HOURS_OF_DAY_PROFILE, max_length=HOURS_OF_WEEK_PROFILE),
    AfterValidator(_whole_cycle),
]
"""24 hourly factors of a day, or 168 of a week from Monday 0 h; 1 is the peak, 0 is legal."""


def _preset_or_hours(value: Any) -> str:
    return "preset" if isinstance(value, str) else "hours"


DemandProfile = TypeAliasType(
    "DemandProfile",
    Annotated[
        Annotated[DemandPreset, Tag("preset")] | Annotated[HourlyProfile, Tag("hours")],
        Discriminator(_preset_or_hours),
    ],
)
"""A preset's name, or the hourly factors themselves."""
TimeZone = Annotated[Text, AfterValidator(_known_zone)]
"""IANA time zone, such as "Europe/Berlin"."""


class PeakRequestsLoad(Value):
    """Units per second in the busiest hour of the first month."""

    kind: Literal["peak_requests"]
    """Kind of load."""
    peak_requests_per_s: Annotated[Positive, Field(le=1e12)]
    """Units per second where the profile is 1."""


class DailyTokensLoad(Value):
    """Input and output tokens of a mean day of the first month."""

    kind: Literal["daily_tokens"]
    """Kind of load."""
    tokens_per_day: Annotated[Positive, Field(le=1e18)]
    """Tokens a day, prompt and answer together."""


class UsersLoad(Value):
    """People, how many of them are active in the busiest hour, and how much each asks for."""

    kind: Literal["users"]
    """Kind of load."""
    user_count: Annotated[Count, Field(le=10_000_000_000)]
    """People with access."""
    active_fraction: PositiveFraction
    """Share of them that is active in the busiest hour."""
    requests_per_active_user_hour: Annotated[Positive, Field(le=1e6)]
    """Requests of one active person in an hour."""


class TraceLoad(Value):
    """Summary of a recorded trace."""

    kind: Literal["trace"]
    """Kind of load."""
    requests_per_s_mean: Annotated[Positive, Field(le=1e12)]
    """Mean over the trace, which is that of the profile's hours."""
    peak_over_mean: Annotated[Number, Field(ge=1, le=1000)]
    """Busiest interval that must be served over the mean: what it has above the profile's busiest
    hour is held as a burst."""


Load = TypeAliasType(
    "Load",
    Annotated[
        PeakRequestsLoad | DailyTokensLoad | UsersLoad | TraceLoad, Field(discriminator="kind")
    ],
)
"""How much a service is asked for."""


def profile_factors(profile: "DemandPreset | tuple[float, ...]") -> tuple[float, ...]:
    """Hourly factors of a profile, 24 or 168 of them."""
    return PRESET_PROFILES[profile] if isinstance(profile, str) else profile
