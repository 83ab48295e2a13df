"""What owning and renting cost: depreciation, annuities, break-even points, crossovers.

Formulas stay float; amounts are rounded where lines are priced. Arguments may be numpy arrays.
A quotient without a meaning (nothing is saved, nothing is served) is infinity, never zero.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity
from service.core.units import (
    FLOP_PER_S_PER_TFLOPS,
    HOURS_PER_YEAR,
    MONTHS_PER_YEAR,
    SECONDS_PER_HOUR,
    TOKENS_PER_MILLION,
)


def straight_line_charge_per_month(
    *, purchase_price: Any, residual_fraction: Any, useful_life_months: Any
) -> Any:
    """Depreciation of one month. [currency]

    C · (1 − ρ) / n: the loss of value spread evenly over the useful life.

    References:
        IAS 16 Property, Plant and Equipment, paragraphs 50 to 62.

    Examples:
        40,000 less 10 % over 48 months: 750 a month.

        >>> straight_line_charge_per_month(purchase_price=40000, residual_fraction=0.1,
        ...                                useful_life_months=48)
        750.0
    """
    return purchase_price * (1 - residual_fraction) / useful_life_months


def capital_recovery_fraction_per_year(
    *, discount_rate_per_year_fraction: Any, useful_life_years: Any
) -> Any:
    """Yearly payment that repays one unit of capital with interest. [1]

    i (1+i)^n / ((1+i)^n − 1), payments at the end of each year.

    References:
        Park, Contemporary Engineering Economics, 6th edition, 2016, equation 3.13 (A/P factor).

    Special cases:
        Without interest it is 1/n.

    Examples:
        >>> round(float(capital_recovery_fraction_per_year(
        ...     discount_rate_per_year_fraction=0.10, useful_life_years=4)), 5)
        0.31547
    """
    rate = np.asarray(discount_rate_per_year_fraction, dtype=float)
    some = np.where(rate == 0, 1.0, rate)
    with_interest = some / -np.expm1(-useful_life_years * np.log1p(some))
    return np.where(rate == 0, 1 / useful_life_years, with_interest)[()]


def annuity_per_year(
    *,
    purchase_price: Any,
    residual_fraction: Any,
    discount_rate_per_year_fraction: Any,
    useful_life_years: Any,
) -> Any:
    """Equal yearly cost of capital of a purchase that is sold at the end. [currency]

    C · i(1+i)^n / ((1+i)^n − 1) − ρ·C · i / ((1+i)^n − 1); the second factor is the first less i.

    References:
        Park, Contemporary Engineering Economics, 6th edition, 2016, section 6.2 (capital recovery
        with salvage value).

    Special cases:
        Without interest it is straight-line: C · (1 − ρ) / n.

    Examples:
        40,000, 10 % left after 4 years, 10 %: 12,618.83 − 861.88 = 11,756.95 a year, 1.342 an hour.

        >>> round(float(annuity_per_year(purchase_price=40000, residual_fraction=0.1,
        ...     discount_rate_per_year_fraction=0.1, useful_life_years=4)) / 8760, 3)
        1.342
    """
    recovery = capital_recovery_fraction_per_year(
        discount_rate_per_year_fraction=discount_rate_per_year_fraction,
        useful_life_years=useful_life_years,
    )
    sinking = recovery - discount_rate_per_year_fraction
    return purchase_price * (recovery - residual_fraction * sinking)


def ownership_cost_per_gpu_hour(
    *, annuity_per_year: Any, other_cost_per_year: Any, power_kw: Any, power_price_per_kwh: Any
) -> Any:
    """What one owned GPU costs for each hour of the year, used or not. [currency/gpu_hour]

    (A + O) / 8760 + P · tariff. A power figure that holds the cooling takes no PUE on top.

    References:
        Barroso, Hölzle and Ranganathan, The Datacenter as a Computer, 3rd edition, 2018, chapter 6.

    Examples:
        11,756.95 + 5 % of 40,000 a year, 1.73 kW all-in at 80 %, 0.08 a kWh: 1.681 an hour.

        >>> round(ownership_cost_per_gpu_hour(annuity_per_year=11756.95, other_cost_per_year=2000,
        ...     power_kw=1.73 * 0.8, power_price_per_kwh=0.08), 3)
        1.681
    """
    return (annuity_per_year + other_cost_per_year) / HOURS_PER_YEAR + (
        power_kw * power_price_per_kwh
    )


@quantity(
    "effective_cost_per_gpu_hour",
    unit="currency/gpu_hour",
    per="gpu",
    formula="cost of the pool over its used GPU-hours",
)
def effective_cost_per_gpu_hour(*, cost: Any, used_gpu_hours: Any) -> Any:
    """Cost over the hours that did something. [currency/gpu_hour]

    C / h_used; infinite when nothing was used.

    Examples:
        1.681 for each of 100 hours of which 70 are used: 2.401 a used hour.

        >>> round(float(effective_cost_per_gpu_hour(cost=168.1, used_gpu_hours=70)), 3)
        2.401
    """
    return _over(cost, used_gpu_hours)


def net_present_value(*, cash_flows: Any, discount_rate_per_period_fraction: Any) -> Any:
    """Value today of cash flows, the first one today. [currency]

    Σ c_k / (1+i)^k, k from 0, along the last axis.

    References:
        Park, Contemporary Engineering Economics, 6th edition, 2016, section 5.3.

    Examples:
        −1,000 today, 600 after one and after two periods at 10 %: −1000 + 545.45 + 495.87 = 41.32.

        >>> round(float(net_present_value(cash_flows=[-1000, 600, 600],
        ...                               discount_rate_per_period_fraction=0.1)), 2)
        41.32
    """
    flows = np.asarray(cash_flows, dtype=float)
    growth = 1 + np.asarray(discount_rate_per_period_fraction, dtype=float)[..., np.newaxis]
    return np.sum(flows / growth ** np.arange(flows.shape[-1]), axis=-1)


def changed_price(*, price: Any, price_change_per_year_fraction: Any, months: Any) -> Any:
    """Price some months later under a yearly change. [currency]

    p · (1 + g)^(m/12): compounded monthly to the yearly change.

    Examples:
        6.88 falling 20 % a year, after 12 and after 24 months: 5.504 and 4.4032.

        >>> round(changed_price(price=6.88, price_change_per_year_fraction=-0.2, months=24), 6)
        4.4032
    """
    return price * (1 + price_change_per_year_fraction) ** (months / MONTHS_PER_YEAR)


def break_even_utilization_fraction(
    *, ownership_cost_per_gpu_hour: Any, rental_price_per_gpu_hour: Any
) -> Any:
    """Share of all hours from which owning is cheaper than renting the used hours alone. [1]

    c_own / p_rent. Above 1 owning never is.

    Examples:
        1.681 owned against 2.40 rented: 70 %.

        >>> round(break_even_utilization_fraction(ownership_cost_per_gpu_hour=1.681,
        ...                                       rental_price_per_gpu_hour=2.40), 3)
        0.7
    """
    return ownership_cost_per_gpu_hour / rental_price_per_gpu_hour


def break_even_month(
    *, purchase_price: Any, running_cost_per_month: Any, rental_cost_per_month: Any
) -> Any:
    """Months after which what was bought has cost less than renting. [count]

    C / (rent − running cost); infinite when renting costs no more than running.

    Examples:
        40,000 against 2,000 a month of rent and 400 of running cost: 25 months.

        >>> float(break_even_month(purchase_price=40000, running_cost_per_month=400,
        ...                        rental_cost_per_month=2000))
        25.0
    """
    return _over(purchase_price, rental_cost_per_month - running_cost_per_month)


def committed_load_quantile(*, committed_price: Any, on_demand_price: Any) -> Any:
    """Quantile of the load up to which a commitment is worth its price. [1]

    1 − p_committed / p_on_demand: a committed GPU pays when it is used for at least that share of
    the hours, so the load at this quantile is committed and the rest bought on demand.

    References:
        Arrow, Harris and Marschak, Optimal Inventory Policy, Econometrica 19(3), 1951.

    Special cases:
        A commitment that is no cheaper commits nothing: 0.

    Examples:
        4.24 committed against 6.88 on demand: what is used 61.6 % of the hours and more.

        >>> round(float(committed_load_quantile(committed_price=4.24, on_demand_price=6.88)), 4)
        0.3837
    """
    return np.maximum(0.0, 1 - np.asarray(committed_price) / on_demand_price)


def price_per_million_tokens(*, price_per_hour: Any, tokens_per_s: Any) -> Any:
    """Cost of a million tokens at a steady speed. [currency/million_token]

    p / (3600 · v) · 10^6. The speed of one stream is not that of a batch.

    Examples:
        2.00 an hour at 85 tokens a second: 6.54.

        >>> round(float(price_per_million_tokens(price_per_hour=2.00, tokens_per_s=85)), 2)
        6.54
    """
    return _over(price_per_hour * TOKENS_PER_MILLION, tokens_per_s * SECONDS_PER_HOUR)


def cluster_cost_per_architecture(*, cluster_price: Any, architectures_per_year: Any) -> Any:
    """A year's cluster cost spread over the architectures trained on it in that year. [currency]

    Examples:
        >>> cluster_cost_per_architecture(cluster_price=50e6, architectures_per_year=10)
        5000000.0
    """
    return cluster_price / architectures_per_year


def tokens_served_at_training_flops(*, training_tokens: Any) -> Any:
    """Served tokens that take as many FLOPs as the training did. [token]

    6·P·T = 2·P·x, so x = 3·T, whatever the size.

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1.

    Examples:
        >>> tokens_served_at_training_flops(training_tokens=15.6e12)
        46800000000000.0
    """
    return 3 * training_tokens


def serving_flop_per_day(*, active_parameter_count: Any, tokens_per_day: Any) -> Any:
    """Operations that a day of serving takes, attention over the context left out. [FLOP]

    2·P·tokens.

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1.

    Examples:
        >>> serving_flop_per_day(active_parameter_count=405e9, tokens_per_day=1e11)
        8.1e+22
    """
    return 2 * active_parameter_count * tokens_per_day


def serving_gpu_hours_per_day(
    *, serving_flop_per_day: Any, peak_tflops: Any, serving_mfu_fraction: Any
) -> Any:
    """GPU-hours that a day of serving takes; over 24 the GPUs around the clock. [gpu_hour]

    F / (peak · MFU) / 3600.

    References:
        Pope et al., arXiv 2211.05102, section 2.

    Examples:
        405B parameters, 10^11 tokens a day, 989 TFLOPS at 10 %: 9,479 GPUs around the clock.

        >>> round(serving_gpu_hours_per_day(serving_flop_per_day=8.1e22, peak_tflops=989,
        ...                                 serving_mfu_fraction=0.1), 1)
        227502.5
    """
    speed = peak_tflops * FLOP_PER_S_PER_TFLOPS * serving_mfu_fraction
    return serving_flop_per_day / speed / SECONDS_PER_HOUR


def crossover_days(*, training_total: Any, serving_per_day: Any) -> Any:
    """Days after which steady serving has taken as much as the training. [d]

    F / S, both in the same unit: FLOPs, tokens of equal FLOPs, GPU-hours or money.

    Examples:
        3 · 15.6·10^12 tokens at 10^11 a day: 468 days.

        >>> float(crossover_days(training_total=46.8e12, serving_per_day=1e11))
        468.0
    """
    return _over(training_total, serving_per_day)


def cumulative_crossover_months(
    *, training_over_first_month_serving: Any, growth_per_month_fraction: Any
) -> Any:
    """Months after which all serving so far has taken as much as the training. [count]

    ln(1 + g·F/S0) / ln(1+g), S0 the first month's serving.

    Special cases:
        Without growth it is F/S0. Serving that shrinks may never get there: infinite.

    Examples:
        >>> round(float(cumulative_crossover_months(training_over_first_month_serving=4.45,
        ...                                         growth_per_month_fraction=0.05)), 4)
        4.1176
    """
    ratio = np.asarray(training_over_first_month_serving, dtype=float)
    growth = np.asarray(growth_per_month_fraction, dtype=float)
    some = np.where(growth == 0, 1.0, growth)
    sum_of_months = 1 + some * ratio
    reached = sum_of_months > 0
    months = np.log(np.where(reached, sum_of_months, 1.0)) / np.log1p(some)
    return np.where(growth == 0, ratio, np.where(reached, months, np.inf))[()]


def single_month_crossover_months(
    *, training_over_first_month_serving: Any, growth_per_month_fraction: Any
) -> Any:
    """Months after which one month's serving alone takes as much as the whole training. [count]

    ln(F/S0) / ln(1+g).

    Special cases:
        0 when the first month already does; infinite when serving does not grow.

    Examples:
        >>> round(float(single_month_crossover_months(training_over_first_month_serving=4.45,
        ...                                           growth_per_month_fraction=0.05)), 4)
        30.5985
    """
    ratio = np.asarray(training_over_first_month_serving, dtype=float)
    growth = np.asarray(growth_per_month_fraction, dtype=float)
    some = np.where(growth > 0, growth, 1.0)
    months = np.log(np.maximum(ratio, 1.0)) / np.log1p(some)
    return np.where(ratio <= 1, 0.0, np.where(growth > 0, months, np.inf))[()]


def _over(numerator: Any, denominator: Any) -> Any:
    """Quotient that is infinite where the denominator is zero or less."""
    below = np.asarray(denominator, dtype=float)
    quotient = np.asarray(numerator, dtype=float) / np.where(below > 0, below, 1.0)
    return np.where(below > 0, quotient, np.inf)[()]
