"""When owned GPUs are bought, what else is bought with them, and what is left at the end."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from service.core.costs.owned import Purchase, book_value
from service.core.costs.owning import owned_terms
from service.core.planners.plan import estimate_fleet
from service.core.recorder import Recorder
from service.core.scenarios.procurement import OwnMethod
from service.core.scenarios.scenario import Scenario
from tests.core.planners.test_plan_laws import snapshot

OWN = {
    "kind": "own",
    "purchase_price_per_gpu": "30000",
    "network_price_per_gpu": "0",
    "useful_life_years": 4,
    "residual_fraction": 0.1,
    "power_price_per_kwh": "0.08",
    "node_power_kw": 10,
    "colocation_price_per_kw_month": "0",
    "staff_price_per_gpu_month": "0",
    "support_fraction_per_year": 0,
}
# A replica of 8 GPUs serves 10 a second; the load of 10 doubles each month: 8, 16 and 32 GPUs.
DOUBLING = {
    "name": "chat",
    "gpu": "h100-sxm5-80gb",
    "load": {"kind": "peak_requests", "peak_requests_per_s": 10},
    "capacity": {"kind": "measured", "units_per_s_per_replica": 10, "gpu_count_per_replica": 8},
    "growth_per_month_fraction": 1.0,
    "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 0},
}


def plan(*, kind="separate", month_count=3, start_month="2027-01", overrides=None, **method):
    document = {
        "horizon": {"start_month": start_month, "month_count": month_count},
        "serving_services": [DOUBLING],
        "pooling": {"kind": kind},
        "procurement": [{"method": OWN | method}],
        "assumption_overrides": overrides or {},
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())[0]


def by_month(answer, category="hardware", field="amount"):
    months = dict.fromkeys((line.month for line in answer.lines), Decimal(0))
    for line in answer.lines:
        if line.category == category:
            months[line.month] += getattr(line, field)
    return list(months.values())


def owned(**method):
    recorder = Recorder(snapshot())
    gpu = snapshot().gpu("h100-sxm5-80gb")
    return owned_terms(
        OwnMethod.model_validate(OWN | method),
        gpu=gpu,
        site=None,
        currency="USD",
        recorder=recorder,
    )


def test_all_is_bought_in_the_first_month_unless_said_otherwise():
    # 32 GPUs at 30,000 are 960,000; 27,000 over 48 months are 562.50 a GPU and month.
    answer = plan()
    assert by_month(answer, field="cash_amount") == [960000, 0, 0]
    assert by_month(answer) == [Decimal("18000.00")] * 3


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_a_pool_that_grows_buys_more_in_the_month_of_the_need(kind):
    # 8, 8 more and 16 more at 30,000; depreciation of each from its own month on.
    answer = plan(kind=kind, purchases="as_needed")
    assert by_month(answer, field="cash_amount") == [240000, 240000, 480000]
    assert by_month(answer) == [4500, 9000, 18000]
    [pool] = answer.pools
    held = 8 * 744 + 16 * 672 + 32 * 744
    assert (pool.gpu_count, pool.allocated_gpu_hours, pool.idle_gpu_hours) == (32, held, 0)
    assert sum(line.amount for line in answer.lines) == answer.totals.amount


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_what_is_bought_ahead_is_idle_until_it_is_needed(kind):
    answer = plan(kind=kind, purchases="as_needed", purchase_lead_month_count=1)
    assert by_month(answer, field="cash_amount") == [480000, 480000, 0]
    assert by_month(answer) == [9000, 18000, 18000]
    [pool] = answer.pools
    assert pool.idle_gpu_hours == 8 * 744 + 16 * 672


def test_a_purchase_of_a_later_month_ends_its_life_later():
    # Bought 8 in January 2027 and 8 in February, with a life of 12 months: sold for 3,000 each in
    # December and in January; renewed in the month after.
    document = plan(purchases="as_needed", useful_life_years=1, month_count=2)
    assert document.feasible
    steady = plan(purchases="as_needed", useful_life_years=1, month_count=14).lines
    cash = {}
    for line in steady:
        if line.category == "hardware":
            cash[line.month] = cash.get(line.month, 0) + line.cash_amount
    # December: 8 x 3,000 are sold, and what growth needs is bought: 2^11 replicas in all.
    bought = 30000 * 8 * (2**11 - 2**10)
    assert cash["2027-12"] == bought - 8 * 3000


def test_a_run_that_starts_later_is_bought_for_when_it_starts():
    run = {
        "name": "tune",
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 10**10,
        "start_date": "2027-03-01",
        "sizing": {"kind": "gpu_count", "gpu_count": 64},
        "speed": {"kind": "mfu", "mfu_fraction": 0.4},
    }
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 4},
        "training_runs": [run],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": OWN | {"purchases": "as_needed"}}],
    }
    answer, _ = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())
    cash = {}
    for line in answer.lines:
        cash[line.month] = (
            cash.get(line.month, 0) + (line.category == "hardware") * line.cash_amount
        )
    assert cash == {"2027-03": 64 * 30000, "2027-04": 0}  # kept once it is bought
    assert answer.pools[0].allocated_gpu_hours == 64 * (744 + 720)


def test_what_was_bought_before_ends_its_life_when_it_does():
    # Bought in April 2023 for 4 years: sold in March 2027 for a tenth, bought again in April.
    answer = plan(
        is_owned_already=True, purchase_month="2023-04", month_count=4, start_month="2027-01"
    )
    # 64 GPUs (2^3 replicas of 8): no cash before, 64 x 3,000 back, then 64 x 30,000.
    assert by_month(answer, field="cash_amount") == [0, 0, -192000, 1920000]
    assert by_month(answer) == [36000] * 4


def test_everything_that_is_bought_is_written_off_and_what_is_a_share_of_it_is_paid_monthly():
    # 30,000 + 1,200 + 1,500 + 480 = 33,180 a GPU; 32 of them.
    answer = plan(
        month_count=3,
        network_price_per_gpu="1200",
        storage_price_per_gpu="1500",
        installation_price_per_gpu="480",
        spare_fraction_per_year=0.03,
        insurance_fraction_per_year=0.01,
        property_tax_fraction_per_year=0.005,
    )
    first = {
        category: (by_month(answer, category)[0], by_month(answer, category, "cash_amount")[0])
        for category in ("network", "storage", "installation", "spares", "insurance", "tax")
    }
    assert first == {
        "network": (32 * 25, 32 * 1200),
        "storage": (32 * Decimal("31.25"), 32 * 1500),
        "installation": (32 * 10, 32 * 480),
        "spares": (32 * Decimal("82.95"), 32 * Decimal("82.95")),
        "insurance": (32 * Decimal("27.65"), 32 * Decimal("27.65")),
        "tax": (Decimal("442.40"), Decimal("442.40")),  # 33,180 x 0.005 / 12 = 13.825
    }


def test_interest_is_the_annuity_less_the_depreciation_and_no_cash():
    # 40,000, a tenth left after 4 years, 10 %: 11,756.95 a year; straight line 9,000.
    answer = plan(
        month_count=1,
        purchase_price_per_gpu="40000",
        with_interest=True,
        overrides={"discount_rate_per_year_fraction": 0.1},
    )
    monthly = (11756.9496 - 9000) / 12
    [line] = [line for line in answer.lines if line.category == "financing"]
    assert float(line.amount) == pytest.approx(8 * monthly, abs=0.01)
    assert line.cash_amount == 0


def test_colocation_is_rent_for_the_highest_draw_without_what_cools_it():
    # 8 GPUs of a node of 10 kW at 150 a kW and month.
    answer = plan(month_count=1, colocation_price_per_kw_month="150", power_usage_effectiveness=2)
    assert by_month(answer, "facility") == [1500]


@pytest.mark.parametrize(
    ("months", "left"),
    [
        (12, 23250),  # 30,000 - 12 x 562.50
        (48, 0),  # sold in the last month for its residual
        (60, 23250),  # bought again after 48
    ],
)
def test_what_is_left_at_the_end_is_the_price_less_its_depreciation(months, left):
    assert book_value(owned(), [Purchase(0, 1)], months) == left


def test_each_purchase_is_worn_by_its_own_age():
    # 12 and 6 months: 2 x 23,250 + 1 x 26,625.
    assert book_value(owned(), [Purchase(0, 2), Purchase(6, 1)], 12) == 73125


def test_installation_and_network_leave_nothing_of_their_own():
    terms = owned(network_price_per_gpu="4800", installation_price_per_gpu="480")
    assert book_value(terms, [Purchase(0, 1)], 24) == 16500 + 2400 + 240


def test_what_was_owned_before_the_plan_is_no_value_of_the_plan():
    already = owned(is_owned_already=True)
    assert book_value(already, [Purchase(-12, 1)], 24) == 0
    # Its life ended after 36 months of the plan; what was bought then is 12 months old.
    assert book_value(already, [Purchase(-12, 1)], 48) == 23250


@pytest.mark.parametrize(
    "method",
    [
        {"purchase_month": "2025-01"},
        {"is_owned_already": True, "purchases": "as_needed"},
        {"purchase_lead_month_count": 2},
        {"purchase_lead_month_count": 25, "purchases": "as_needed"},
        {"spare_fraction_per_year": 1.5},
        {"installation_price_per_gpu": "-1"},
    ],
)
def test_purchases_that_contradict_themselves_are_refused(method):
    with pytest.raises(ValidationError):
        OwnMethod.model_validate(OWN | method)
