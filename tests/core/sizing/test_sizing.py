"""GPUs for a date or a budget, tokens for either: fixes work, and no search goes on for ever."""

import re
from datetime import date, timedelta

import pytest
from pydantic import ValidationError

from service.core.errors import InvalidScenario
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.training_run import TokensSizing
from service.core.sizing import solve

RUN = {
    "name": "pretrain",
    "architecture": "llama-3.1-70b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 15 * 10**12,
    "sizing": {"kind": "finish_by", "finish_date": "2027-01-03"},
}
TINY = {
    "key": "tiny",
    "name": "no room for anything",
    "memory_gb": 0.001,
    "memory_bandwidth_gb_per_s": 3000,
    "peak_tflops": {"bf16": 1000},
    "scale_up_gb_per_s_per_direction": 450,
    "scale_up_domain_gpu_count": 8,
    "gpu_class": "hopper",
}


def estimate(snapshot, **changes):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 12},
        "training_runs": [RUN | changes],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2.50"}}],
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot)[0]


def test_the_date_named_for_a_missed_one_is_met_and_is_about_the_earliest(snapshot):
    missed = estimate(snapshot)
    [reason] = missed.infeasibilities
    assert reason.code == "deadline"
    days = reason.needed / 24
    earliest = date(2027, 1, 1) + timedelta(days=days)
    assert f"finish_date {earliest}" in reason.nearest_fix
    applied = estimate(snapshot, sizing={"kind": "finish_by", "finish_date": f"{earliest}"})
    assert applied.feasible
    # No legal count does it in much less: a week earlier is missed as well.
    sooner = {"kind": "finish_by", "finish_date": f"{earliest - timedelta(days=7)}"}
    assert not estimate(snapshot, sizing=sooner).feasible


@pytest.mark.parametrize("memory_gb", [0.001, 1.0])
def test_what_fits_on_no_number_of_gpus_is_found_out_at_once(snapshot, monkeypatch, memory_gb):
    searches = []
    choose = solve.choose

    def counted(case, gpu_count):
        searches.append(gpu_count)
        return choose(case, gpu_count)

    monkeypatch.setattr(solve, "choose", counted)
    answer = estimate(snapshot, gpu=TINY | {"memory_gb": memory_gb})
    assert [reason.code for reason in answer.infeasibilities] == ["memory"]
    assert len(searches) <= 2


MEASURED = {
    "architecture": None,
    "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
    "reliability": {"failures_per_1000_node_days": 0, "checkpoint_save_s": 0},
}


def budget(amount, finish_date=None):
    return {"kind": "budget", "amount": f"{amount}", "finish_date": finish_date}


def tokens(gpu_count, **limits):
    return {"kind": "tokens", "gpu_count": gpu_count, **limits}


def test_a_budget_buys_the_fastest_count_that_it_pays(snapshot):
    rich, poor = (estimate(snapshot, sizing=budget(a)) for a in (14_000_000, 11_000_000))
    for found, amount in ((rich, 14_000_000), (poor, 11_000_000)):
        assert found.feasible
        assert 0.8 * amount < found.totals.amount <= amount
        [run] = found.training_runs
        # What it costs is what the plan says of the same count by itself.
        alone = {"kind": "gpu_count", "gpu_count": run.gpu_count}
        assert estimate(snapshot, sizing=alone).totals.amount == found.totals.amount
    hours = [found.training_runs[0].wall_clock_hours.value for found in (rich, poor)]
    assert hours[0] < hours[1]


def test_a_budget_with_a_date_takes_the_fewest_gpus_that_end_in_time(snapshot):
    by_date = {"kind": "finish_by", "finish_date": "2027-06-30"}
    wanted = estimate(snapshot, sizing=by_date)
    found = estimate(snapshot, sizing=budget(20_000_000, "2027-06-30"))
    assert found.training_runs == wanted.training_runs
    assert found.totals == wanted.totals


def test_what_a_budget_lacks_is_named_and_enough(snapshot):
    poor = estimate(snapshot, sizing=budget(1_000_000))
    [reason] = poor.infeasibilities
    assert (reason.code, reason.available, reason.unit) == ("budget", 1_000_000, "currency")
    amount, tokens_that_do = re.findall(r"(?:amount|training_tokens) ([\d,]+)", reason.nearest_fix)
    assert estimate(snapshot, sizing=budget(amount)).feasible
    fewer = int(tokens_that_do.replace(",", ""))
    assert estimate(snapshot, sizing=budget(1_000_000), training_tokens=fewer).feasible


def test_a_budget_too_small_for_a_date_names_the_date_that_it_pays(snapshot):
    soon = estimate(snapshot, sizing=budget(11_000_000, "2027-03-05"))
    [reason] = soon.infeasibilities
    assert reason.code == "budget"
    later = re.search(r"finish_date (\d{4}-\d\d-\d\d)", reason.nearest_fix).group(1)
    assert estimate(snapshot, sizing=budget(11_000_000, later)).feasible


def test_tokens_are_what_gpus_train_on_until_a_day(snapshot):
    # 64 GPUs · 1,000 token/s · 31 days · 86,400 s = 171,417,600,000, to the microsecond before.
    found = estimate(
        snapshot, **MEASURED, training_tokens=None, sizing=tokens(64, finish_date="2027-01-31")
    )
    [run] = found.training_runs
    assert run.training_tokens == pytest.approx(64 * 1000 * 31 * 86_400, rel=1e-8)
    assert f"{run.finish_date}" == "2027-01-31"


def test_tokens_are_what_an_amount_buys(snapshot):
    # 160,000 at 2.50 are 64,000 GPU-hours: 1,000 h of 64 GPUs, 1,000 token/s each.
    found = estimate(snapshot, **MEASURED, training_tokens=None, sizing=tokens(64, amount="160000"))
    [run] = found.training_runs
    assert run.training_tokens == pytest.approx(64_000 * 3600 * 1000, rel=1e-6)
    assert 159_999.90 <= found.totals.amount <= 160_000


def test_tokens_stop_at_what_is_reached_first(snapshot):
    date_and_money = tokens(64, finish_date="2027-01-31", amount="160000")
    found = estimate(snapshot, **MEASURED, training_tokens=None, sizing=date_and_money)
    assert f"{found.training_runs[0].finish_date}" == "2027-01-31"
    # There are no more than were given.
    found = estimate(snapshot, **MEASURED, training_tokens=10**9, sizing=date_and_money)
    assert found.training_runs[0].training_tokens == 10**9


def test_prices_that_change_are_paid_month_by_month(snapshot):
    # 744 h of January at 2.50, February at 2.50 · 2^(1/12): as-of November 2026, two months later.
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 12},
        "training_runs": [RUN | MEASURED | {"sizing": tokens(64, amount="160000")}],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2.50"}}],
        "assumption_overrides": {"price_change_per_year_fraction": 1.0},
    }
    found = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot)[0]
    prices = [float(line.unit_price) for line in found.lines]
    assert prices == pytest.approx([2.5 * 2 ** (2 / 12), 2.5 * 2 ** (3 / 12)], rel=1e-6)
    january = 64 * 744 * prices[0]
    hours = 744 + (160_000 - january) / 64 / prices[1]
    assert found.training_runs[0].wall_clock_hours.value == pytest.approx(hours, rel=1e-5)
    assert found.totals.amount <= 160_000


def test_less_than_one_step_is_refused(snapshot):
    found = estimate(snapshot, **MEASURED, training_tokens=None, sizing=tokens(8, amount="0.01"))
    assert [each.code for each in found.infeasibilities] == ["budget"]


@pytest.mark.parametrize("sizing", [budget(10**6), tokens(64, amount="1000")])
@pytest.mark.parametrize(
    ("pooling", "method"),
    [
        ({"kind": "shared"}, {"kind": "rent", "price_per_gpu_hour": "2.50"}),
        ({"kind": "separate"}, {"kind": "own", "purchase_price_per_gpu": "30000"}),
    ],
)
def test_an_amount_needs_a_price_by_the_hour(snapshot, sizing, pooling, method):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 12},
        "training_runs": [RUN | {"sizing": sizing}],
        "pooling": pooling,
        "procurement": [{"method": method}],
    }
    with pytest.raises(InvalidScenario, match="rented by the hour") as refused:
        estimate_fleet(Scenario.model_validate(document), snapshot=snapshot)
    assert refused.value.pointer == "/scenario/training_runs/0/sizing/amount"


def test_tokens_are_needed_where_they_are_not_asked_for(snapshot):
    with pytest.raises(InvalidScenario) as refused:
        estimate(snapshot, training_tokens=None)
    assert refused.value.pointer == "/scenario/training_runs/0/training_tokens"


def test_tokens_need_a_date_or_an_amount():
    with pytest.raises(ValidationError, match="either finish_date or amount"):
        TokensSizing.model_validate(tokens(64))


@pytest.mark.parametrize("finish_date", [None, "2027-06-30"])
def test_a_run_that_never_ends_is_no_question_of_money(snapshot, finish_date):
    # 1,000 stops a day on each server: nothing is ever done between two of them.
    stops = {"failures_per_1000_node_days": 1_000_000, "restart_s": 1200}
    found = estimate(snapshot, sizing=budget(10**6, finish_date), reliability=stops)
    assert [each.code for each in found.infeasibilities] == ["deadline"]
