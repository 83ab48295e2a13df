"""Owning a fleet, by hand.

One GPU at 40,000, 10 % left after 4 years, 10 % interest; support 5 % a year; a node of 8 GPUs and
13.84 kW (1.73 each) that draws 80 %, used or idle, and 0.08 a kWh; nothing else.

    annuity     i (1+i)^4 / ((1+i)^4 - 1) = 0.1 x 1.4641 / 0.4641 = 0.3154708
                40,000 x 0.3154708 - 4,000 x (0.3154708 - 0.1)   = 11,756.95 a year
    support     40,000 x 0.05 = 2,000.00; a month 166.666667, twelve of them 2,000.00
    power       1.73 x 0.8 x 8760 = 12,123.84 kWh x 0.08 = 969.91
    together    14,726.86 a year; / 8760 = 1.681148 an hour; / 0.7 = 2.40164 a used hour
    straight    36,000 / 4 = 9,000; (9,000 + 2,969.91) / 8760 = 1.366428 an hour
"""

from decimal import Decimal

import pytest

from service.core.money.fleet_ownership import estimate_ownership
from service.core.money.fleet_ownership_types import OwnershipQuestion
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests.core.money.money_catalog import SNAPSHOT

METHOD = {
    "kind": "own",
    "purchase_price_per_gpu": "40000",
    "network_price_per_gpu": "0",
    "useful_life_years": 4,
    "residual_fraction": 0.1,
    "power_price_per_kwh": "0.08",
    "power_usage_effectiveness": 1,
    "node_power_kw": 13.84,
    "power_load_fraction": 0.8,
    "idle_power_fraction": 0.8,
    "colocation_price_per_kw_month": "0",
    "staff_price_per_gpu_month": "0",
    "support_fraction_per_year": 0.05,
}
RENT = {"kind": "rent", "price_per_gpu_hour": "2.40"}


def ask(**changed):
    fields = {
        "gpu": "h100-sxm5-80gb",
        "gpu_count": 1,
        "method": METHOD,
        "utilization_fraction": 0.7,
        "rent": RENT,
        "assumption_overrides": {"discount_rate_per_year_fraction": 0.1},
    }
    return estimate_ownership(OwnershipQuestion.model_validate(fields | changed), SNAPSHOT)


def test_a_gpu_costs_what_the_hand_says():
    cost = ask().ownership
    assert cost.capex_amount == Decimal("40000.00")
    assert cost.residual_amount == Decimal("4000.00")
    assert cost.annuity_per_year == Decimal("11756.95")
    assert {part.name: part.amount for part in cost.opex_per_year} == {
        "power": Decimal("969.91"),
        "facility": Decimal("0.00"),
        "staff": Decimal("0.00"),
        "support": Decimal("2000.00"),
    }
    assert cost.opex_amount_per_year == Decimal("2969.91")
    assert cost.equivalent_annual_cost == Decimal("14726.86")
    assert float(cost.cost_per_gpu_hour) == pytest.approx(1.681148, abs=2e-6)
    assert float(cost.cost_per_used_gpu_hour) == pytest.approx(2.40164, abs=2e-5)
    assert cost.depreciation_per_year == Decimal("9000.00")
    assert float(cost.accrual_cost_per_gpu_hour) == pytest.approx(1.366428, abs=2e-6)


def test_the_net_present_cost_is_that_of_the_payments():
    """40,000 today, 2,969.91 after each of 4 years, 4,000 back after the last."""
    by_hand = 40000 + sum(2969.91 / 1.1**year for year in (1, 2, 3, 4)) - 4000 / 1.1**4
    assert float(ask().ownership.net_present_cost) == pytest.approx(by_hand, abs=0.01)
    assert ask().ownership.total_cost == Decimal("47879.64")  # 36,000 + 4 x 2,969.91


def test_rent_breaks_even_where_the_hand_says():
    """1.681148 / 2.40 = 70.05 %; a month of rent at 70 % of 730 h is 1,226.40.

    Running costs 247.4925 a month, so 40,000 / (1,226.40 - 247.4925) = 40.86 months.
    """
    rent = ask().rent
    assert rent.break_even_utilization_fraction == pytest.approx(0.700478, abs=1e-5)
    assert rent.break_even_months == pytest.approx(40000 / (1226.40 - 247.4925), abs=1e-3)
    assert rent.amount_per_year == Decimal("14716.80")  # 8,760 x 0.7 x 2.40


def test_rent_that_never_costs_more_has_no_break_even_month():
    assert ask(rent={**RENT, "price_per_gpu_hour": "0.30"}).rent.break_even_months is None
    late = ask(rent={**RENT, "price_per_gpu_hour": "1.50"}).rent
    assert late.break_even_months is None  # 40,000 / (766.5 - 247.49) = 77 months, beyond 48


def test_everything_else_that_is_bought_or_paid_is_named():
    """Purchase 40,000 + 1,500 + 800 = 42,300; 3 %, 1 % and 0.5 % of it: 1,269, 423, 211.50."""
    more = {
        "storage_price_per_gpu": "1500",
        "installation_price_per_gpu": "800",
        "spare_fraction_per_year": 0.03,
        "insurance_fraction_per_year": 0.01,
        "property_tax_fraction_per_year": 0.005,
    }
    cost = ask(method=METHOD | more).ownership
    assert {part.name: part.amount for part in cost.capex} == {
        "gpu_and_server": Decimal("40000.00"),
        "storage": Decimal("1500.00"),
        "installation": Decimal("800.00"),
    }
    yearly = {part.name: part.amount for part in cost.opex_per_year}
    assert yearly["spares"] == Decimal("1269.00")
    assert yearly["insurance"] == Decimal("423.00")
    assert yearly["property_tax"] == Decimal("211.50")
    assert cost.residual_amount == Decimal("4000.00")  # of the GPUs and their servers alone


def test_a_fleet_is_so_many_gpus():
    one, many = ask().ownership, ask(gpu_count=64).ownership
    assert many.capex_amount == 64 * one.capex_amount
    assert many.energy_kwh_per_year == pytest.approx(64 * 12123.84)


def test_energy_has_the_carbon_of_its_electricity():
    """12,123.84 kWh x 370 g = 4,485.82 kg."""
    assert ask(carbon_g_per_kwh=370).ownership.carbon_kg_per_year == pytest.approx(4485.8208)
    assert ask().ownership.carbon_kg_per_year is None


def test_a_server_of_ten_kilowatts_pays_for_energy_what_was_published():
    """10 kW at PUE 1.3 and 0.08 a kWh: 10 x 1.3 x 8760 x 0.08 = 9,110.40 a year."""
    method = METHOD | {
        "node_power_kw": 10,
        "power_load_fraction": 1.0,
        "idle_power_fraction": 1.0,
        "power_usage_effectiveness": 1.3,
    }
    cost = ask(method=method, gpu_count=8).ownership
    assert next(p.amount for p in cost.opex_per_year if p.name == "power") == Decimal("9110.40")


def test_without_a_price_the_answer_says_which_is_missing():
    answer = ask(currency="EUR", method={"kind": "own"}, rent={"kind": "rent"})
    assert not answer.feasible
    assert answer.ownership is None
    assert answer.rent is None
    assert [each.code for each in answer.infeasibilities] == ["no_price", "no_price"]
    assert "purchase_price_per_gpu" in answer.infeasibilities[0].nearest_fix


def test_the_rent_that_is_compared_is_the_cheapest_listed_one_by_default():
    answer = ask(rent={"kind": "rent"})
    assert answer.feasible
    assert answer.rent.price_source


def test_what_is_owned_already_is_sunk_and_no_comparison_counts_it():
    # Opex of a year: 2,000 of support and 1.384 kW x 8,760 h x 0.08 = 969.91; / 8,760 = 0.339.
    bought, owned = ask(), ask(method=METHOD | {"is_owned_already": True})
    cost = owned.ownership
    assert (bought.ownership.sunk_amount, cost.sunk_amount) == (0, Decimal("40000.00"))
    assert float(cost.avoidable_cost_per_gpu_hour) == pytest.approx(2969.91 / 8760, rel=1e-3)
    assert cost.cost_per_gpu_hour == bought.ownership.cost_per_gpu_hour
    assert bought.ownership.avoidable_cost_per_gpu_hour == bought.ownership.cost_per_gpu_hour
    assert owned.rent.break_even_utilization_fraction == pytest.approx(0.339 / 2.40, rel=1e-3)
    assert owned.rent.break_even_months == 0
    # Rent below what running takes: even what is paid for already does not pay.
    cheap = ask(
        method=METHOD | {"is_owned_already": True}, rent={**RENT, "price_per_gpu_hour": "0.3"}
    )
    assert cheap.rent.break_even_months is None
    assert cheap.rent.break_even_utilization_fraction > 1


def test_a_lease_takes_the_place_of_the_purchase():
    # 1,000 a month are 12,000 a year; nothing is bought, nothing is left, support is of nothing.
    cost = ask(method=METHOD | {"lease_price_per_gpu_month": "1000"}).ownership
    assert (cost.capex_amount, cost.residual_amount, cost.annuity_per_year) == (0, 0, 0)
    yearly = {part.name: part.amount for part in cost.opex_per_year}
    assert yearly["lease"] == Decimal("12000.00")
    assert float(cost.cost_per_gpu_hour) == pytest.approx((12000 + 969.91) / 8760, rel=1e-4)


def test_idle_hours_draw_idle_power_and_owning_breaks_even_where_both_cost_the_same():
    """1.73 kW at 80 % in 70 % of the hours and at 30 % in 30 %: 1.73 x 0.65 x 8760 = 9,850.62 kWh.

    Idle throughout: 11,756.95 + 2,000 + 1.73 x 0.3 x 8760 x 0.08 (363.72) = 14,120.67 a year, or
    1.611949 an hour; use adds 1.73 x 0.5 x 0.08 = 0.0692. 1.611949 / (2.40 - 0.0692) = 0.691586.
    """
    idle = METHOD | {"idle_power_fraction": 0.3}
    answer = ask(method=idle)
    assert answer.ownership.energy_kwh_per_year == pytest.approx(9850.62)
    share = answer.rent.break_even_utilization_fraction
    assert share == pytest.approx(0.691586, abs=2e-6)
    # Asked again at that share, an hour of use costs what the rent does.
    there = ask(method=idle, utilization_fraction=share).ownership
    assert float(there.cost_per_used_gpu_hour) == pytest.approx(2.40, abs=1e-4)
    # A GPU-hour whose power alone costs as much as its rent is never worth owning.
    cheap = ask(method=idle, rent={**RENT, "price_per_gpu_hour": "0.06"})
    assert cheap.rent.break_even_utilization_fraction is None


@pytest.mark.parametrize("used", [8, 5])
def test_a_fleet_costs_what_the_same_fleet_costs_in_a_plan_of_a_year(used):
    """Eight GPUs, all of them in use or five; 2027 has the 8,760 hours of the estimate's year.

    Depreciation and all that running takes are the accrual view of both.
    """
    method = METHOD | {"idle_power_fraction": 0.3}
    service = {
        "name": "chat",
        "gpu": "h100-sxm5-80gb",
        "load": {"kind": "peak_requests", "peak_requests_per_s": used},
        "capacity": {"kind": "measured", "units_per_s_per_replica": 1, "gpu_count_per_replica": 1},
        "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 0.0},
    }
    scenario = {
        "horizon": {"start_month": "2027-01", "month_count": 12},
        "serving_services": [service],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": method}],
    }
    plan, _ = estimate_fleet(Scenario.model_validate(scenario), snapshot=SNAPSHOT)
    cost = ask(method=method, gpu_count=8, utilization_fraction=used / 8).ownership
    yearly = cost.depreciation_per_year + cost.opex_amount_per_year
    # Monthly lines round a price of a month to a millionth and each amount to the cent.
    assert float(plan.totals.amount) == pytest.approx(float(yearly), abs=0.5)
