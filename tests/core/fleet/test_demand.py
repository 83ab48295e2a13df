"""A measured trace, reduced to what a service needs."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import InvalidScenario
from service.core.fleet.demand import DemandQuestion, estimate_demand
from tests.pool_builders import pools, service, snapshot

LAWS = settings(max_examples=30, deadline=None, derandomize=True)
MONDAY = datetime(2027, 1, 4, tzinfo=UTC)


def estimate(text, **fields):
    return estimate_demand(DemandQuestion(trace_csv=text, **fields), snapshot())


def trace(rows, *, header="timestamp,input_tokens,output_tokens", start=MONDAY):
    lines = [
        f"{(start + timedelta(seconds=second)).isoformat()},{prompt},{answer}"
        for second, prompt, answer in rows
    ]
    return "\n".join(([header] if header else []) + lines) + "\n"


def seconds_of_the_published_hour():
    """19,366 requests in 3,501.7 s: busiest minute 507, busiest second 16, 38 seconds empty."""
    counts = np.zeros(3502, dtype=int)
    busy, quiet = np.arange(600, 660), np.linspace(30, 3400, 38).astype(int)
    quiet = np.where((quiet >= 600) & (quiet < 660), quiet + 120, quiet)
    counts[busy] = [16] + [8] * 41 + [9] * 17 + [0]
    counts[659] = 507 - counts[busy].sum()
    others = np.setdiff1d(np.arange(3502), np.concatenate((busy, quiet)))
    each, more = divmod(19_366 - 507, others.size)
    counts[others] = each
    counts[others[np.linspace(0, others.size - 1, more).astype(int)]] += 1
    assert (counts.sum(), counts.max(), np.count_nonzero(counts == 0)) == (19_366, 16, 38)
    arrivals = np.repeat(np.arange(3502.0), counts)
    arrivals[-1] = 3501.7
    return arrivals


def lengths_of(*, count, mean, p99, least, most):
    """Lengths with a mean, a 99th percentile, a shortest and a longest."""
    tail = int(count * 0.01)
    lengths = np.full(count, float(round(mean)))
    lengths[:tail] = p99 + 1
    lengths[tail] = p99
    lengths[0], lengths[-1] = most, least
    body = slice(tail + 1, count - 1)
    size = count - tail - 2
    left = round(mean * count) - int(lengths[: tail + 1].sum()) - least
    each, more = divmod(left, size)
    lengths[body] = each
    lengths[tail + 1 : tail + 1 + more] = each + 1
    return lengths.astype(int)


def test_a_trace_made_to_published_statistics_gives_them_back():
    # One hour of a conversation service, Azure LLM inference trace 2023 (Azure/AzurePublicDataset).
    arrivals = seconds_of_the_published_hour()
    prompts = lengths_of(count=19_366, mean=1154.7, p99=4142, least=2, most=14_050)
    answers = lengths_of(count=19_366, mean=211.1, p99=601, least=1, most=1000)
    start = datetime(2023, 11, 16, 18, 0, tzinfo=UTC)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for second, prompt, answer in zip(arrivals, prompts, answers, strict=True):
        when = start + timedelta(seconds=float(second))
        lines.append(f"{when:%Y-%m-%d %H:%M:%S.%f}0,{prompt},{answer}")  # seven decimals, no zone
    found = estimate("\n".join(lines), percentile_fraction=1.0)
    assert found.request_count == 19_366
    assert found.span_s == pytest.approx(3501.7)
    assert found.mean_requests_per_s == pytest.approx(5.53, abs=0.005)
    assert found.busiest_window_request_count == 507
    assert found.peak_requests_per_s == pytest.approx(8.45)
    assert found.busiest_window_over_mean_ratio == pytest.approx(1.53, abs=0.005)
    assert found.busiest_second_request_count == 16
    assert found.empty_second_count == 38
    assert found.input_tokens.mean == pytest.approx(1154.7, abs=0.05)
    assert (found.input_tokens.p99, found.input_tokens.maximum) == (4142, 14_050)
    assert found.input_tokens.minimum == 2
    assert found.output_tokens.mean == pytest.approx(211.1, abs=0.05)
    assert (found.output_tokens.p99, found.output_tokens.maximum) == (601, 1000)
    # An hour says nothing of the other 23.
    assert found.service.demand_profile == "flat"
    assert [advisory.code for advisory in found.advisories] == ["short_trace"]
    assert len("\n".join(lines)) < 1_000_000


def day_of(counts, *, days=1):
    """Requests at even distances in each hour; one more begins the first day and ends the last."""
    rows = [(0, 100, 10)]
    for day in range(days):
        for hour, count in enumerate(counts):
            start = (day * 24 + hour) * 3600
            rows += [(start + 3600 * i / count, 100, 10) for i in range(count)]
    return trace([*rows, (days * 86_400 - 1, 100, 10)])


def test_the_profile_is_each_hours_percentile_over_that_of_the_busiest():
    # 60 windows of a minute: 240 requests are 4 in each, 120 are 2, none are none.
    counts = [0] * 8 + [120] * 8 + [240] * 8
    found = estimate(day_of(counts))
    assert found.service.demand_profile == (0.0,) * 8 + (0.5,) * 8 + (1.0,) * 8
    assert found.peak_requests_per_s == pytest.approx(4 / 60)
    assert found.covered_hour_count == 24
    assert found.advisories == ()


def test_hours_are_told_in_the_zone_that_is_asked_for():
    counts = [0] * 8 + [120] * 8 + [240] * 8
    berlin = estimate(day_of(counts), time_zone="Europe/Berlin").service
    assert berlin.demand_profile == (1.0,) + (0.0,) * 8 + (0.5,) * 8 + (1.0,) * 7
    assert berlin.time_zone == "Europe/Berlin"


def test_a_week_makes_a_profile_of_168_hours():
    profile = estimate(day_of([60] * 24, days=7)).service.demand_profile
    assert len(profile) == 168
    assert set(profile) == {1.0}


def test_the_peak_is_the_percentile_and_not_the_mean_or_the_most():
    # 100 minutes of 1 request and, in the busy hour, 3 windows of 60 with 30.
    rows = [(60 * minute, 100, 10) for minute in range(60 * 24)]
    rows += [(3600 * 12 + 60 * minute + i, 100, 10) for minute in (0, 1, 2) for i in range(1, 30)]
    rows.append((86_399, 100, 10))
    assert estimate(trace(rows)).peak_requests_per_s == pytest.approx(1 / 60)
    assert estimate(trace(rows), percentile_fraction=0.96).peak_requests_per_s == 0.5


def test_the_answer_goes_into_a_service_as_it_is():
    fields = estimate(day_of([60] * 8 + [600] * 16)).service.model_dump()
    (pool,) = pools([], [service(**fields)], months=1, multiple=1).pools
    assert pool.gpu_count > 0


def test_long_tails_never_put_the_95th_percentile_below_the_mean():
    rows = [(second, 1, 1) for second in range(0, 3600, 10)] + [(3599, 10**6, 1)]
    found = estimate(trace(rows)).service
    assert found.sequence_tokens_p95 == found.input_tokens_mean + found.output_tokens_mean


def test_answers_without_a_token_are_planned_as_one():
    # Prompts of 0 tokens and answers of 1: nobody divides by the time that they take.
    rows = [(second, 0, 0) for second in range(0, 3600, 10)]
    found = estimate(trace(rows)).service
    assert (found.input_tokens_mean, found.output_tokens_mean) == (0, 1)


@pytest.mark.parametrize(
    "header",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "timestamp,input tokens,output tokens",
        "\ufeffTimestamp,Input_Tokens,Output-Tokens",
        "",
    ],
)
def test_layouts_of_a_trace_are_read_alike(header):
    rows = [(second, 5, 7) for second in range(0, 600, 5)]
    found = estimate(trace(rows, header=header))
    assert (found.request_count, found.input_tokens.mean) == (120, 5)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\n  \n", "\n\n"])
@pytest.mark.parametrize("header", ["TIMESTAMP,ContextTokens,GeneratedTokens", ""])
def test_files_of_other_programs_are_read_alike(separator, line_end, header):
    rows = [(second, 5, 7) for second in range(0, 600, 5)]
    text = trace(rows, header=header).replace(",", separator).replace("\n", line_end)
    found = estimate(text)
    assert (found.request_count, found.output_tokens.mean) == (120, 7)


def test_whole_numbers_may_be_written_with_a_point():
    rows = [(second, "5.0", "7.00") for second in range(0, 600, 5)]
    assert estimate(trace(rows)).input_tokens.mean == 5


def test_other_columns_and_another_order_do_not_matter():
    text = "id,output_tokens,timestamp,input_tokens\n" + "".join(
        f"{n},7,2027-01-04T00:{n:02d}:00Z,5\n" for n in range(60)
    )
    found = estimate(text)
    assert (found.input_tokens.mean, found.output_tokens.mean) == (5, 7)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("timestamp,input_tokens\n2027-01-01,1\n", "must name"),
        ("timestamp,input_tokens,output_tokens\n", "at least 2"),
        ("2027-01-01T00:00:00,1,1\nyesterday,1,1\n", "line 2 has no ISO timestamp"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,1.5,1\n", "line 2 has no whole number"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,-1,1\n", "line 2 has no whole number"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,1\n", "line 2 has 2 cells"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,1,200,1\n", "line 2 has 4 cells, not 3"),
        ("timestamp,input_tokens,output_tokens\n2027-01-01,1,200,1\n", "line 2 has 4 cells, not 3"),
        ("2027-01-01T00:00:00,1,200,1\n2027-01-01T00:00:01,1,1\n", "line 1 has 4 cells, not 3"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,1,1\n", "shorter than a window"),
        ("2027-01-01T00:00:00,1,1\n2029-01-01T00:00:00,1,1\n", "400 days"),
        ('2027-01-01T00:00:00,"1,1\n', "not CSV"),
        ("9999-12-31T22:00:00,1,1\n9999-12-31T23:59:59,1,1\n", "line 1 lies before 1971 or after"),
        ("0001-01-01T00:00:00+14:00,1,1\n2027-01-01,1,1\n", "line 1 lies before 1971 or after"),
        ("2027-01-01T00:00:00\x00,1,1\n2027-01-01T00:10:00,1,1\n", "line 1 has no ISO timestamp"),
        ("2027-01-01T00:00:00,1,1\n2027-01-01T00:00:01,99999999999999999999,1\n", "whole number"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_with_its_line(text, complaint):
    with pytest.raises(InvalidScenario, match=complaint) as refusal:
        estimate(text)
    assert refusal.value.pointer == "/trace_csv"


def test_a_trace_with_nothing_at_its_percentile_is_refused():
    with pytest.raises(InvalidScenario, match="higher percentile"):
        estimate(trace([(0, 1, 1), (86_399, 1, 1)]), percentile_fraction=0.5)


@pytest.mark.parametrize("fields", [{"window_s": 7}, {"percentile_fraction": 0}, {"trace_csv": ""}])
def test_a_question_out_of_its_bounds_is_refused(fields):
    with pytest.raises(ValueError, match=r"window_s|divisor of 3600|greater than|at least 1"):
        DemandQuestion.model_validate({"trace_csv": "x"} | fields)


@LAWS
@given(
    counts=st.lists(st.sampled_from((0, 1, 30, 240)), min_size=24, max_size=24).filter(
        lambda counts: max(counts) > 30
    ),
    percentile=st.sampled_from((0.5, 0.95, 1.0)),
)
def test_a_profile_has_its_peak_at_1_and_a_higher_percentile_no_lower_rate(counts, percentile):
    text = day_of(counts)
    found, most = (
        estimate(text, percentile_fraction=percentile),
        estimate(text, percentile_fraction=1.0),
    )
    assert max(found.service.demand_profile) == 1.0
    assert found.peak_requests_per_s <= most.peak_requests_per_s
    assert found.mean_requests_per_s <= most.peak_requests_per_s + 1e-9
