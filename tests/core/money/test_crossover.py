"""Training against serving, by hand.

A model with P active weights trained on 15.6e12 tokens takes 6 P x 15.6e12 FLOP; a day of 1e11
tokens takes 2 P x 1e11. So serving has caught up after 3 x 15.6e12 / 1e11 = 468 days, whatever P.
At an MFU of 0.4 in training and 0.1 in serving a served FLOP takes 4 times as many GPU-hours: 117
days. If a GPU-hour of serving costs 3.00 and one of training 2.40: 117 x 2.40 / 3.00 = 93.6 days.
"""

from decimal import Decimal
from math import log

import pytest

from service.core.money.crossover import CrossoverQuestion, estimate_crossover
from tests.core.money.money_catalog import SNAPSHOT

MONTH_DAYS = 730 / 24


def ask(**changed):
    fields = {
        "architecture": "llama-3.1-405b",
        "training_tokens": 15_600_000_000_000,
        "gpu": "h100-sxm5-80gb",
        "traffic": {"kind": "daily_tokens", "tokens_per_day": 1e11},
        "training_rent": {"kind": "rent", "price_per_gpu_hour": "2.40"},
        "serving_rent": {"kind": "rent", "price_per_gpu_hour": "3.00"},
    }
    return estimate_crossover(CrossoverQuestion.model_validate(fields | changed), SNAPSHOT)


def test_steady_serving_crosses_in_each_measure_on_its_own_day():
    answer = ask()
    assert answer.flop.cumulative_days == pytest.approx(468)
    assert answer.gpu_hours.cumulative_days == pytest.approx(117)
    assert answer.amount.cumulative_days == pytest.approx(93.6)
    assert answer.flop.single_month_months is None  # it never grows


def test_training_costs_its_gpu_hours():
    """6 P T / (989e12 x 0.4) / 3600 GPU-hours at 2.40."""
    answer = ask()
    flop = 6 * answer.active_parameter_count * 15.6e12
    assert answer.training_flop == pytest.approx(flop)
    peak = SNAPSHOT.gpus["h100-sxm5-80gb"].peak_tflops.bf16 * 1e12
    assert answer.training_gpu_hours == pytest.approx(flop / (peak * 0.4) / 3600)
    assert float(answer.training_amount) == pytest.approx(answer.training_gpu_hours * 2.4, abs=0.01)


def test_growing_serving_crosses_sooner_and_one_month_alone_later():
    """F/S0 = 468 / 30.4167 = 15.386 months; ln(1 + 0.05 x 15.386) / ln 1.05 = 11.69 months."""
    answer = ask(growth_per_month_fraction=0.05)
    ratio = 468 / MONTH_DAYS
    by_hand = log(1 + 0.05 * ratio) / log(1.05)
    assert answer.flop.cumulative_days == pytest.approx(by_hand * MONTH_DAYS)
    assert answer.flop.single_month_months == pytest.approx(log(ratio) / log(1.05))


def test_shrinking_serving_may_never_cross():
    assert ask(growth_per_month_fraction=-0.2).flop.cumulative_days is None


def test_the_series_meets_the_training_where_the_days_say():
    answer = ask(growth_per_month_fraction=0.05, month_count=24)
    assert [point.month for point in answer.series] == list(range(1, 25))
    before = [point for point in answer.series if point.day < answer.flop.cumulative_days]
    after = [point for point in answer.series if point.day >= answer.flop.cumulative_days]
    assert all(point.serving_flop < answer.training_flop for point in before)
    assert all(point.serving_flop >= answer.training_flop for point in after)
    first, second = answer.series[:2]
    assert first.serving_gpu_hours == pytest.approx(answer.training_gpu_hours / 117 * MONTH_DAYS)
    assert second.tokens_per_day == pytest.approx(1.05e11)
    assert float(first.serving_amount) == pytest.approx(first.serving_gpu_hours * 3, abs=0.01)


def test_traffic_of_a_usual_size_is_an_assumption_that_is_named():
    answer = ask(traffic={"kind": "preset", "preset": "product"})
    (used,) = [each for each in answer.assumptions if each.name.startswith("traffic_")]
    assert used.name == "traffic_tokens_per_day.product"
    assert answer.tokens_per_day == used.value


def test_without_a_price_flops_and_hours_are_answered_and_money_is_not():
    answer = ask(currency="EUR", serving_rent={"kind": "rent"})
    assert not answer.feasible
    assert answer.infeasibilities[0].code == "no_price"
    assert answer.amount is None
    assert answer.flop.cumulative_days == pytest.approx(468)
    assert answer.series[0].serving_amount is None


def test_serving_beyond_twelve_digits_has_no_amount_and_every_number_is_finite():
    answer = ask(growth_per_month_fraction=1.0, month_count=360)
    assert answer.series[-1].serving_amount is None
    assert answer.series[0].serving_amount > Decimal(0)
    assert "Infinity" not in answer.model_dump_json()
