"""Finance against published worked values and against arithmetic shown beside the case."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas import finance
from service.core.formulas.finance import (
    annuity_per_year,
    break_even_month,
    break_even_utilization_fraction,
    capital_recovery_fraction_per_year,
    changed_price,
    cluster_cost_per_architecture,
    committed_load_quantile,
    crossover_days,
    cumulative_crossover_months,
    effective_cost_per_gpu_hour,
    net_present_value,
    ownership_cost_per_gpu_hour,
    price_per_million_tokens,
    serving_flop_per_day,
    serving_gpu_hours_per_day,
    single_month_crossover_months,
    straight_line_charge_per_month,
    tokens_served_at_training_flops,
)

rates = st.floats(0.001, 1)
years = st.integers(1, 15)


def test_owning_a_gpu_of_40_000():
    # 10 % left after 4 years at 10 %: 0.31547; the annuity over 8,760 hours is 1.342 an hour.
    terms = {"discount_rate_per_year_fraction": 0.10, "useful_life_years": 4}
    assert capital_recovery_fraction_per_year(**terms) == pytest.approx(0.31547, abs=5e-6)
    annuity = annuity_per_year(purchase_price=40_000, residual_fraction=0.1, **terms)
    assert annuity / 8760 == pytest.approx(1.342, abs=5e-4)

    # Plus 5 % a year and 1.73 kW (cooling held) x 0.8 x 0.08: 1.681; 2.402 a used hour at 70 %.
    hourly = ownership_cost_per_gpu_hour(
        annuity_per_year=annuity,
        other_cost_per_year=0.05 * 40_000,
        power_kw=1.73 * 0.8,
        power_price_per_kwh=0.08,
    )
    assert hourly == pytest.approx(1.681, abs=5e-4)
    used = effective_cost_per_gpu_hour(cost=hourly * 8760, used_gpu_hours=0.7 * 8760)
    assert used == pytest.approx(2.402, abs=5e-4)


def test_owning_beats_renting_from_the_share_of_hours_at_which_they_cost_the_same():
    share = break_even_utilization_fraction(
        ownership_cost_per_gpu_hour=1.6811, rental_price_per_gpu_hour=6.88
    )
    # At that share an owned used hour costs what a rented one does: 1.6811 / 0.24435 = 6.88.
    assert effective_cost_per_gpu_hour(cost=1.6811, used_gpu_hours=share) == pytest.approx(6.88)


def test_the_month_in_which_a_purchase_is_earned():
    # 40,000 against 6.88 x 730 = 5,022.4 of rent and 400 of running cost: 40,000 / 4,622.4 = 8.65.
    month = break_even_month(
        purchase_price=40_000, running_cost_per_month=400, rental_cost_per_month=6.88 * 730
    )
    assert month == pytest.approx(8.6535, abs=1e-4)


def test_renting_below_the_running_cost_is_never_overtaken():
    month = break_even_month(
        purchase_price=40_000, running_cost_per_month=400, rental_cost_per_month=400
    )
    assert month == math.inf


def test_straight_line_spreads_what_is_lost():
    # FC of a published policy: 40,000 less 10 % over 48 months.
    monthly = straight_line_charge_per_month(
        purchase_price=40_000, residual_fraction=0.1, useful_life_months=48
    )
    assert monthly == pytest.approx(750)


def test_an_annuity_without_interest_is_straight_line():
    annuity = annuity_per_year(
        purchase_price=40_000,
        residual_fraction=0.1,
        discount_rate_per_year_fraction=0.0,
        useful_life_years=4,
    )
    assert annuity == pytest.approx(40_000 * 0.9 / 4)


@given(rate=rates, life=years, residual=st.floats(0, 1))
def test_an_annuity_has_the_present_value_of_the_purchase_and_its_sale(rate, life, residual):
    annuity = annuity_per_year(
        purchase_price=1000.0,
        residual_fraction=residual,
        discount_rate_per_year_fraction=rate,
        useful_life_years=life,
    )
    payments = net_present_value(
        cash_flows=[0.0] + [annuity] * life, discount_rate_per_period_fraction=rate
    )
    trade = net_present_value(
        cash_flows=[1000.0] + [0.0] * (life - 1) + [-1000.0 * residual],
        discount_rate_per_period_fraction=rate,
    )
    assert payments == pytest.approx(trade, rel=1e-9, abs=1e-6)


def test_a_net_present_value_by_hand():
    # -1000 + 300/1.1 + 420/1.21 + 680/1.331 = -1000 + 272.727 + 347.107 + 510.894 = 130.729.
    value = net_present_value(
        cash_flows=[-1000, 300, 420, 680], discount_rate_per_period_fraction=0.1
    )
    assert value == pytest.approx(130.729, abs=1e-3)


def test_net_present_values_of_many_rates_at_once():
    values = net_present_value(
        cash_flows=[-1000, 600, 600], discount_rate_per_period_fraction=np.array([0.0, 0.1])
    )
    assert values == pytest.approx(np.array([200.0, 41.322314]))


def test_a_price_changes_by_its_yearly_fraction_in_a_year():
    prices = changed_price(
        price=6.88, price_change_per_year_fraction=-0.2, months=np.array([0, 12, 24])
    )
    assert prices == pytest.approx([6.88, 5.504, 4.4032])


def test_a_commitment_covers_the_load_that_is_there_often_enough():
    # 4.24 committed against 6.88: worth it from 61.6 % of the hours, the 38.4 % quantile.
    assert committed_load_quantile(committed_price=4.24, on_demand_price=6.88) == pytest.approx(
        0.38372, abs=1e-5
    )


def test_a_commitment_at_the_on_demand_price_commits_nothing():
    assert committed_load_quantile(committed_price=7.0, on_demand_price=6.88) == 0


@pytest.mark.parametrize(
    ("price", "speed", "expected"),
    # gmicloud.ai: one stream each; a batch is 10 to 100 times cheaper.
    [(2.00, 85, 6.54), (2.60, 140, 5.16), (2.00, 120, 4.63), (2.00, 400, 1.39)],
)
def test_the_price_of_a_million_tokens(price, speed, expected):
    found = price_per_million_tokens(price_per_hour=price, tokens_per_s=speed)
    assert round(float(found), 2) == expected


def test_nothing_served_has_no_price_rather_than_none():
    assert price_per_million_tokens(price_per_hour=2.0, tokens_per_s=0) == math.inf
    assert effective_cost_per_gpu_hour(cost=2.0, used_gpu_hours=0) == math.inf


def test_a_cluster_shared_by_what_is_trained_on_it():
    # 50 M over 10 a year.
    assert cluster_cost_per_architecture(
        cluster_price=50e6, architectures_per_year=10
    ) == pytest.approx(5e6, rel=1e-9)


def test_serving_overtakes_training_in_flops():
    # 405B on 15.6T tokens: 3 x 15.6T = 46.8T served tokens, 468 days at 100 G a day.
    tokens = tokens_served_at_training_flops(training_tokens=15.6e12)
    assert tokens == pytest.approx(46.8e12, rel=1e-6)
    assert crossover_days(training_total=tokens, serving_per_day=1e11) == pytest.approx(468)
    assert serving_flop_per_day(active_parameter_count=405e9, tokens_per_day=1e11) == pytest.approx(
        8.1e22, rel=1e-6
    )


def test_serving_overtakes_training_in_gpu_hours():
    # 8.1e22 / (989e12 x 0.1) / 3600 = 227,502.5 GPU-hours a day; 30.84 M / that = 135.56 days.
    per_day = serving_gpu_hours_per_day(
        serving_flop_per_day=8.1e22, peak_tflops=989, serving_mfu_fraction=0.1
    )
    assert per_day == pytest.approx(227_502.5, rel=1e-4)
    assert per_day / 24 == pytest.approx(9479.27, rel=1e-4)
    days = crossover_days(training_total=30.84e6, serving_per_day=per_day)
    assert days == pytest.approx(135.559, rel=1e-4)


def test_serving_that_grows_overtakes_training():
    # F/S0 4.45 at 5 % a month: ln(1 + 0.05 x 4.45)/ln 1.05 and ln 4.45/ln 1.05.
    terms = {"training_over_first_month_serving": 4.45, "growth_per_month_fraction": 0.05}
    assert cumulative_crossover_months(**terms) == pytest.approx(4.1176, rel=1e-4)
    assert single_month_crossover_months(**terms) == pytest.approx(30.5985, rel=1e-4)


def test_serving_that_does_not_grow_or_shrinks():
    flat = {"training_over_first_month_serving": 4.45, "growth_per_month_fraction": 0.0}
    assert cumulative_crossover_months(**flat) == pytest.approx(4.45)
    assert single_month_crossover_months(**flat) == math.inf
    # Shrinking by half a month, all serving to come is 2 first months: less than 4.45 of them.
    halving = {"training_over_first_month_serving": 4.45, "growth_per_month_fraction": -0.5}
    assert cumulative_crossover_months(**halving) == math.inf
    # 1 + 0.5 = 1.5 first months after two.
    soon = {"training_over_first_month_serving": 1.5, "growth_per_month_fraction": -0.5}
    assert cumulative_crossover_months(**soon) == pytest.approx(2)


@given(ratio=st.floats(0.01, 1000), growth=st.floats(1e-6, 1))
def test_the_months_of_a_crossover_add_up_to_the_training(ratio, growth):
    months = cumulative_crossover_months(
        training_over_first_month_serving=ratio, growth_per_month_fraction=growth
    )
    # The sum of a geometric series of so many (fractional) months.
    assert math.expm1(months * math.log1p(growth)) / growth == pytest.approx(ratio, rel=1e-6)


def test_every_formula_says_its_unit_and_shows_a_worked_value():
    functions = [
        item
        for name, item in vars(finance).items()
        if callable(item) and item.__module__ == finance.__name__ and not name.startswith("_")
    ]
    assert len(functions) > 15
    for function in functions:
        assert "[" in function.__doc__.splitlines()[0], function.__name__
        assert ">>>" in function.__doc__, function.__name__
