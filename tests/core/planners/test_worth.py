"""What a plan costs as a whole: today, a year, an hour, a token and a run; and its carbon."""

from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType

import pytest

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests.core.costs.test_purchases import OWN
from tests.core.planners.test_plan_laws import snapshot

# Two replicas of 8 GPUs, one of them a spare, around the clock; 8 units a second of 2,000 tokens.
STEADY = {
    "name": "chat",
    "gpu": "h100-sxm5-80gb",
    "load": {"kind": "peak_requests", "peak_requests_per_s": 8},
    "input_tokens_mean": 1500,
    "output_tokens_mean": 500,
    "capacity": {"kind": "measured", "units_per_s_per_replica": 8, "gpu_count_per_replica": 8},
    "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 1.0},
}
RENT = {"kind": "rent", "price_per_gpu_hour": "2.00", "gpu_count_per_instance": 8}
ANNUAL = {"discount_rate_per_year_fraction": 0.1}


def plan(*rules, month_count=12, catalog=None, **facts):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": month_count},
        "serving_services": [STEADY],
        "pooling": {"kind": "separate"},
        "procurement": list(rules) or [{"method": RENT}],
        "assumption_overrides": ANNUAL,
        **facts,
    }
    found = snapshot() if catalog is None else catalog
    return estimate_fleet(Scenario.model_validate(document), snapshot=found)[0]


def quantity(answer, scope, name):
    [found] = [q for q in answer.quantities if (q.scope, q.name) == (scope, name)]
    return found.value


def at_site(carbon_g_per_kwh):
    """The catalog with one site of that carbon."""
    key, site = next(iter(snapshot().sites.items()))
    here = site.model_copy(
        update={
            "carbon_g_per_kwh": carbon_g_per_kwh,
            "currency": "USD",
            "power_price_per_kwh": 0.1,
            "power_usage_effectiveness": 1.25,
        }
    )
    return key, replace(snapshot(), sites=MappingProxyType({key: here}))


def test_what_is_paid_later_counts_less():
    # 16 GPUs at 2.00: 31 x 24 x 32 = 23,808 in January, 21,504 in February, 1.1^(1/12) = 1.007974.
    answer = plan(month_count=2)
    present = quantity(answer, "plan", "plan_net_present_cost")
    assert present == pytest.approx(23808 + 21504 / 1.1 ** (1 / 12), abs=1e-6)
    # Two months are a sixth of a year: 0.1 / (1 - 1.1^(-1/6)) = 6.3452 of it a year.
    recovery = 0.1 / (1 - 1.1 ** (-1 / 6))
    assert quantity(answer, "plan", "plan_equivalent_annual_cost") == pytest.approx(
        present * recovery
    )


def test_with_next_to_no_interest_the_present_cost_is_the_cash_and_the_yearly_cost_its_mean():
    answer = plan(assumption_overrides={"discount_rate_per_year_fraction": 0.0001})
    cash = float(answer.totals.cash_amount)
    present = quantity(answer, "plan", "plan_net_present_cost")
    assert present == pytest.approx(cash, rel=1e-4)
    assert present < cash == 16 * 8760 * 2
    yearly = quantity(answer, "plan", "plan_equivalent_annual_cost")
    assert yearly == pytest.approx(cash, rel=1e-4)


def test_what_is_left_of_owned_gpus_when_the_plan_ends_is_taken_off():
    # 16 bought for 30,000; after 12 of 48 months 23,250 each are left: 372,000, a year from now.
    answer = plan({"method": OWN}, assumption_overrides=ANNUAL)
    left = quantity(answer, "plan", "plan_book_value_at_end")
    assert left == 372000
    cash = {}
    for line in answer.lines:
        cash[line.month] = cash.get(line.month, 0.0) + float(line.cash_amount)
    by_hand = sum(each / 1.1 ** (number / 12) for number, each in enumerate(cash.values()))
    present = quantity(answer, "plan", "plan_net_present_cost")
    assert present == pytest.approx(by_hand - 372000 / 1.1)


def test_nothing_is_left_of_what_is_rented():
    assert quantity(plan(), "plan", "plan_book_value_at_end") == 0


def test_what_is_left_of_a_term_paid_in_advance_is_taken_off():
    # 16 GPUs at 2.00 for three years, 2027 to 2029, 26,304 hours: 841,728.00 paid in January. Of
    # it a year is used, 8,760 hours or 280,320.00, and 561,408.00 are left a year from then.
    committed = RENT | {"commitment": "committed_3yr"}
    mix = {"kind": "mix", "committed": committed, "rest": RENT | {"price_per_gpu_hour": "3.00"}}
    mix |= {"committed_gpu_count": 16, "paid_upfront": True}
    answer = plan({"method": mix})
    assert (answer.totals.cash_amount, answer.totals.amount) == (841728, 280320)
    assert quantity(answer, "plan", "plan_book_value_at_end") == 561408
    present = quantity(answer, "plan", "plan_net_present_cost")
    assert present == pytest.approx(841728 - 561408 / 1.1)
    # Over the whole term nothing is left, and cash is cost.
    whole = plan({"method": mix}, month_count=36)
    assert quantity(whole, "plan", "plan_book_value_at_end") == 0
    assert whole.totals.cash_amount == whole.totals.amount == 841728


def test_a_small_model_s_tokens_cost_less_than_a_cent_and_not_nothing():
    # 0.02 an hour for each of 16 GPUs: 0.32 over 57.6 million tokens is 0.005556 a million.
    answer = plan({"method": RENT | {"price_per_gpu_hour": "0.02"}})
    found = quantity(answer, "service:chat", "service_cost_per_million_tokens")
    assert found == pytest.approx(0.32 / 57.6)


def test_an_hour_costs_less_held_than_used():
    # 16 held at 2.00, 8 used: 2.00 for each hour held, 4.00 for each used.
    answer = plan()
    assert quantity(answer, "pool:serving", "cost_per_available_gpu_hour") == pytest.approx(2.0)
    assert quantity(answer, "pool:serving", "effective_cost_per_gpu_hour") == pytest.approx(4.0)


def test_a_million_tokens_cost_by_what_is_read_written_and_both():
    # 32.00 an hour over 8 x 3,600 x 2,000 = 57.6 million tokens: 0.5556; three quarters are read:
    # 32 / 43.2 = 0.7407, and a quarter is written: 32 / 14.4 = 2.2222. The answer shows cents.
    answer = plan()
    [service] = answer.serving_services
    both, read, written = (
        quantity(answer, "service:chat", f"service_cost_per_million_{kind}tokens")
        for kind in ("", "input_", "output_")
    )
    assert (both, read, written) == pytest.approx((32 / 57.6, 32 / 43.2, 32 / 14.4))
    assert service.cost_per_million_input_tokens == Decimal("0.74")
    assert quantity(answer, "service:chat", "service_amount") == float(service.amount)


def test_a_run_costs_its_lines():
    run = {
        "name": "tune",
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 10**10,
        "sizing": {"kind": "gpu_count", "gpu_count": 64},
        "speed": {"kind": "mfu", "mfu_fraction": 0.4},
    }
    answer = plan(training_runs=[run])
    [estimate] = answer.training_runs
    lines = sum(line.amount for line in answer.lines if line.workload == "tune")
    assert quantity(answer, "run:tune", "run_amount") == float(estimate.amount) == float(lines)


def test_carbon_is_the_energy_at_the_intensity_of_the_site():
    # 8 GPUs used and 8 idle of nodes of 10 kW over January: (10 x 0.8 + 10 x 0.3) x 1.25 x 744 h.
    key, catalog = at_site(400)
    method = OWN | {"power_load_fraction": 0.8, "idle_power_fraction": 0.3}
    method = {name: value for name, value in method.items() if name != "power_price_per_kwh"}
    answer = plan({"site": key, "method": method}, month_count=1, catalog=catalog)
    kwh = (8 + 3) * 1.25 * 744
    assert quantity(answer, "plan", "plan_energy_kwh") == pytest.approx(kwh)
    assert quantity(answer, "pool:serving", "carbon_kg") == pytest.approx(kwh * 0.4)
    assert quantity(answer, "plan", "plan_carbon_kg") == pytest.approx(kwh * 0.4)
    assert "carbon_unknown" not in {each.code for each in answer.advisories}


def test_carbon_that_is_not_known_is_named_and_not_zero():
    key, catalog = at_site(None)
    at_unknown = plan({"site": key, "method": OWN}, catalog=catalog)
    nowhere = plan({"method": OWN})
    for answer, why in ((at_unknown, f"site {key} is not known"), (nowhere, "at no site")):
        assert quantity(answer, "plan", "plan_carbon_kg") is None
        [advisory] = [each for each in answer.advisories if each.code == "carbon_unknown"]
        assert "serving on h100-sxm5-80gb" in advisory.message
        assert why in advisory.message


def test_carbon_of_rented_gpus_is_not_known():
    assert quantity(plan(), "plan", "plan_carbon_kg") is None
    assert quantity(plan(), "pool:serving", "carbon_kg") is None


def test_an_infeasible_plan_is_worth_nothing_that_is_said():
    answer = plan({"pool": "training", "method": RENT})
    assert not answer.feasible
    assert not [q for q in answer.quantities if q.name.startswith("plan_net")]
