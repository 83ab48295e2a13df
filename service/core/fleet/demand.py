"""What a measured trace asks for: profile, peak and lengths, ready to be put into a service."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from service.core.advice.advisories import short_trace
from service.core.answers import EstimateAnswer, EstimateQuestion, recorder_for, shared_fields
from service.core.errors import InvalidScenario
from service.core.estimates import Advisory
from service.core.fleet.trace import POINTER, Trace, read_trace
from service.core.formulas.calendar import cycle_hours, utc_offsets_s
from service.core.hours.timeline import Amounts
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.demand import (
    HOURS_OF_DAY_PROFILE,
    HOURS_OF_WEEK_PROFILE,
    DemandProfile,
    PeakRequestsLoad,
    TimeZone,
)
from service.core.snapshot import CatalogSnapshot
from service.core.units import SECONDS_PER_HOUR
from service.core.value import Count, PositiveFraction, Value

LONGEST_TRACE = 1_000_000
PROFILE_DECIMALS = 6
HALF = 0.5

for _name, _unit, _formula in (
    ("trace_mean_requests_per_s", "request/s", "requests / seconds from the first to the last"),
    ("trace_peak_requests_per_s", "request/s", "rate percentile of the busiest hour's windows"),
    ("trace_arrival_dispersion", "1", "variance / mean of the requests of whole windows"),
):
    define_quantity(_name, unit=_unit, per="service", formula=_formula)  # type: ignore[arg-type]


class DemandQuestion(EstimateQuestion):
    """A trace of requests, and how it is read."""

    trace_csv: Annotated[str, Field(min_length=1, max_length=LONGEST_TRACE)]
    """CSV of timestamp, input tokens and output tokens, one request a line, with or without a
    header; the layout TIMESTAMP,ContextTokens,GeneratedTokens is read too, and semicolons or tabs
    in place of commas. Timestamps are ISO 8601, those without a zone UTC. At most 1,000,000
    characters, about 25,000 requests, over at most 400 days; a body above the service's limit
    (1 MiB) is refused whole."""
    time_zone: TimeZone = "UTC"
    """IANA zone in whose hours the profile is given."""
    percentile_fraction: PositiveFraction = 0.95
    """Share of the windows of an hour that its rate covers: peaks are percentiles, not means."""
    window_s: Annotated[Count, Field(le=3600)] = 60
    """Length of a window in seconds; a whole number of them fills an hour."""

    @field_validator("window_s")
    @classmethod
    def _fills_an_hour(cls, window_s: int) -> int:
        if SECONDS_PER_HOUR % window_s:
            raise ValueError("a whole number of windows must fill an hour: give a divisor of 3600")
        return window_s


class TokenLengths(Value):
    """Lengths of prompts or answers, in tokens; each percentile is one that was seen."""

    mean: float
    """Mean."""
    minimum: float
    """Shortest."""
    p50: float
    """Half are no longer."""
    p95: float
    """95 of 100 are no longer."""
    p99: float
    """99 of 100 are no longer."""
    maximum: float
    """Longest."""


class TracedDemand(Value):
    """Fields of a serving service; they go into a scenario as they are."""

    load: PeakRequestsLoad
    """Rate where the profile is 1: the percentile of the busiest hour."""
    demand_profile: DemandProfile
    """Percentile of each hour over that of the busiest: a week where the trace covers one, else a
    day, else flat."""
    time_zone: TimeZone
    """Zone of the profile's hours."""
    input_tokens_mean: float
    """Mean prompt length."""
    output_tokens_mean: float
    """Mean answer length, at least 1."""
    sequence_tokens_p95: float
    """95th percentile of prompt and answer together, at least their mean."""


class DemandAnswer(EstimateAnswer):
    """What a trace asks for."""

    request_count: int
    """Requests of the trace."""
    span_s: float
    """Seconds from the first request to the last."""
    mean_requests_per_s: float
    """Mean rate."""
    peak_requests_per_s: float
    """Rate of the busiest hour at the percentile asked for."""
    percentile_fraction: float
    """That percentile."""
    window_s: int
    """Seconds of a window."""
    busiest_window_request_count: int
    """Requests of the busiest window."""
    busiest_window_over_mean_ratio: float
    """Its rate over the mean rate."""
    busiest_second_request_count: int
    """Requests of the busiest second."""
    empty_second_count: int
    """Seconds without a request, between the first and the last."""
    arrival_dispersion_ratio: float | None
    """Variance over mean of the requests of whole windows: 1 for independent arrivals; null with
    fewer than two whole windows."""
    covered_hour_count: int
    """Hours of the profile's day or week of which whole windows of the trace cover half or more."""
    input_tokens: TokenLengths
    """Prompts."""
    output_tokens: TokenLengths
    """Answers."""
    service: TracedDemand
    """What goes into a service."""


@dataclass(frozen=True)
class _Windows:
    """Requests of each window, in clock time, from the first hour of the trace to the last."""

    counts: NDArray[np.int64]
    whole: NDArray[np.bool_]
    """Windows that lie between the first request and the last."""
    window_s: int
    start: datetime
    """Start of the first hour."""

    @classmethod
    def of(cls, trace: Trace, window_s: int) -> Self:
        """Count the requests of a trace."""
        first, last = float(trace.arrival_s[0]), float(trace.arrival_s[-1])
        hour = first // SECONDS_PER_HOUR * SECONDS_PER_HOUR
        hours = int((last - hour) // SECONDS_PER_HOUR) + 1
        size = int(hours * SECONDS_PER_HOUR) // window_s
        numbers = ((trace.arrival_s - hour) // window_s).astype(np.int64)
        starts = hour + np.arange(size) * window_s
        return cls(
            counts=np.bincount(numbers, minlength=size).astype(np.int64),
            whole=(starts >= first // 1) & (starts + window_s <= last + 1),
            window_s=window_s,
            start=datetime.fromtimestamp(hour, UTC),
        )

    def cycle(self, time_zone: str, hours_per_cycle: int) -> NDArray[np.int64]:
        """Local hour of the day or week of each window."""
        per_hour = int(SECONDS_PER_HOUR) // self.window_s
        offsets = utc_offsets_s(
            start=self.start, hour_count=self.counts.size // per_hour, time_zone=time_zone
        )
        local = cycle_hours(start=self.start, offsets_s=offsets, hours_per_cycle=hours_per_cycle)
        return np.repeat(local, per_hour)

    def rates(self, time_zone: str, hours_per_cycle: int, percentile: float) -> Amounts:
        """Percentile rate of each hour; NaN where less than half of an hour is covered. [1/s]"""
        local = self.cycle(time_zone, hours_per_cycle)[self.whole]
        counts, enough = self.counts[self.whole], HALF * SECONDS_PER_HOUR / self.window_s
        found = np.full(hours_per_cycle, np.nan)
        for hour in np.unique(local).tolist():
            inside = counts[local == hour]
            if inside.size >= enough:
                found[hour] = _percentile(inside, percentile) / self.window_s
        return found


def estimate_demand(question: DemandQuestion, snapshot: CatalogSnapshot) -> DemandAnswer:
    """Reduce a trace to profile, percentile peak and lengths.

    Raises:
        InvalidScenario: If the trace cannot be read, or has no load at the percentile.
    """
    recorder = recorder_for(question, snapshot)
    trace = read_trace(question.trace_csv)
    windows, span = _Windows.of(trace, question.window_s), float(np.ptp(trace.arrival_s))
    rates, covered, peak = _peak(windows, span, question)
    seconds = np.bincount((trace.arrival_s - trace.arrival_s[0] // 1).astype(np.int64))
    mean, dispersion = trace.arrival_s.size / span, _dispersion(windows)
    _note(recorder, mean, peak, dispersion)
    busiest = int(windows.counts.max())
    return DemandAnswer(
        **shared_fields(recorder, advisories=_advisories(rates, covered)),
        request_count=int(trace.arrival_s.size),
        span_s=span,
        mean_requests_per_s=mean,
        peak_requests_per_s=peak,
        percentile_fraction=question.percentile_fraction,
        window_s=question.window_s,
        busiest_window_request_count=busiest,
        busiest_window_over_mean_ratio=busiest / question.window_s / mean,
        busiest_second_request_count=int(seconds.max()),
        empty_second_count=int(np.count_nonzero(seconds == 0)),
        arrival_dispersion_ratio=dispersion,
        covered_hour_count=covered,
        input_tokens=_lengths(trace.input_tokens),
        output_tokens=_lengths(trace.output_tokens),
        service=_service(trace, rates, peak, question.time_zone),
    )


def _peak(windows: _Windows, span_s: float, question: DemandQuestion) -> tuple[Amounts, int, float]:
    """Rates of the profile's hours, how many are known, and the highest; it must be above 0."""
    if span_s < question.window_s:
        raise InvalidScenario(
            f"the trace lasts {span_s:g} s, shorter than a window of {question.window_s} s",
            pointer=POINTER,
        )
    rates, covered = _profile(windows, question)
    peak = float(np.nanmax(rates))
    if peak <= 0:
        raise InvalidScenario(
            f"at percentile {question.percentile_fraction:g} no window of {question.window_s} s "
            "has a request: ask for a higher percentile or longer windows",
            pointer="/percentile_fraction",
        )
    return rates, covered, peak


def _profile(windows: _Windows, question: DemandQuestion) -> tuple[Amounts, int]:
    """Rates of a whole week or day where the trace has one, else its one rate; hours covered."""
    percentile, covered, rates = question.percentile_fraction, 0, np.array([np.nan])
    for hours in (HOURS_OF_WEEK_PROFILE, HOURS_OF_DAY_PROFILE):
        rates = windows.rates(question.time_zone, hours, percentile)
        covered = int(np.count_nonzero(~np.isnan(rates)))
        if covered == hours:
            return rates, covered
    whole = windows.counts[windows.whole]
    counts = whole if whole.size else windows.counts
    one = _percentile(counts, percentile) / question.window_s
    return np.array([float(np.nanmax(np.append(rates, one)))]), covered


def _service(trace: Trace, rates: Amounts, peak: float, time_zone: str) -> TracedDemand:
    together = trace.input_tokens + trace.output_tokens
    profile = tuple(np.round(rates / peak, PROFILE_DECIMALS).tolist())
    prompt, answer = float(trace.input_tokens.mean()), max(1.0, float(trace.output_tokens.mean()))
    return TracedDemand(
        load=PeakRequestsLoad(kind="peak_requests", peak_requests_per_s=peak),
        demand_profile="flat" if len(profile) == 1 else profile,
        time_zone=time_zone,
        input_tokens_mean=prompt,
        output_tokens_mean=answer,
        sequence_tokens_p95=max(_percentile(together, 0.95), prompt + answer),
    )


def _percentile(values: NDArray[Any], fraction: float) -> float:
    """Smallest value that was seen which covers the share."""
    return float(np.quantile(values, fraction, method="inverted_cdf"))


def _lengths(tokens: Amounts) -> TokenLengths:
    return TokenLengths(
        mean=float(tokens.mean()),
        minimum=float(tokens.min()),
        p50=_percentile(tokens, 0.50),
        p95=_percentile(tokens, 0.95),
        p99=_percentile(tokens, 0.99),
        maximum=float(tokens.max()),
    )


def _dispersion(windows: _Windows) -> float | None:
    counts = windows.counts[windows.whole]
    if counts.size < 2 or not counts.any():
        return None
    return float(counts.var(ddof=1) / counts.mean())


def _note(recorder: Recorder, mean: float, peak: float, dispersion: float | None) -> None:
    recorder.note("trace_mean_requests_per_s", mean)
    recorder.note("trace_peak_requests_per_s", peak)
    recorder.note("trace_arrival_dispersion", dispersion)


def _advisories(rates: Amounts, covered: int) -> tuple[Advisory, ...]:
    return () if len(rates) > 1 else (short_trace(covered),)
