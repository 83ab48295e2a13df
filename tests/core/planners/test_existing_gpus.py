"""GPUs that are owned already: used first, sunk in the books, and added to in whole instances."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import UnknownKey
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests.pool_builders import need, pools, run, service, shared, snapshot

FULL = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
HOURS = 744 + 672  # January and February 2027
# 8 kW a node of 8 GPUs, used or idle; no cooling; 0.10 a kWh; staff 10 a GPU and month.
RUNNING = {
    "kind": "own",
    "purchase_price_per_gpu": "30000",
    "network_price_per_gpu": "0",
    "useful_life_years": 4,
    "power_price_per_kwh": "0.10",
    "power_usage_effectiveness": 1,
    "node_power_kw": 8,
    "power_load_fraction": 1,
    "idle_power_fraction": 1,
    "colocation_price_per_kw_month": "0",
    "staff_price_per_gpu_month": "10",
    "support_fraction_per_year": 0,
}


def lot(count=24, **fields):
    return {
        "gpu": "h100-sxm5-80gb",
        "gpu_count": count,
        "book_value_per_gpu": "12000",
        "remaining_life_months": 12,
        "method": RUNNING,
    } | fields


def plan(*lots, method=None, pooling="separate", months=2, runs=()):
    # 10 units/s at 1 unit/s a replica of 4 GPUs: 40 GPUs in every hour.
    steady = service(peak=10, capacity=1, headroom=FULL).model_dump() | {"gpu": "h100-sxm5-80gb"}
    rent = {"kind": "rent", "price_per_gpu_hour": "2"}
    document = {
        "horizon": {"start_month": "2027-01", "month_count": months},
        "serving_services": [steady],
        "training_runs": list(runs),
        "pooling": {"kind": pooling},
        "procurement": [{"method": method or rent}],
        "existing_gpus": list(lots),
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())[0]


def by_category(found):
    amounts = {}
    for line in found.lines:
        amounts[line.category] = amounts.get(line.category, 0) + line.amount
    return amounts


def test_existing_gpus_are_used_first_and_what_is_added_comes_in_whole_instances():
    # 40 needed, 21 there: 19 more are three instances of 8.
    (pool,) = plan(lot(21)).pools
    assert (pool.existing_gpu_count, pool.added_gpu_count, pool.gpu_count) == (21, 24, 45)


def test_existing_gpus_cost_their_write_off_and_their_running_and_no_purchase():
    found = plan(lot())
    assert by_category(found) == {
        "gpu_rental": Decimal(16 * HOURS * 2),  # 40 needed, 24 there
        "hardware": Decimal(24 * 1000 * 2),  # 12,000 over 12 months
        "staff": Decimal(24 * 10 * 2),
        "power": Decimal("0.10") * 3 * 8 * HOURS,  # 24 GPUs are 3 nodes of 8 kW
    }
    assert found.existing.sunk_amount == 48_000
    assert found.existing.avoidable_amount == found.totals.amount - 48_000
    assert found.totals.cash_amount == found.existing.avoidable_amount


def test_a_lot_that_is_written_off_costs_its_running_alone():
    found = plan(lot(remaining_life_months=1))
    written_off = [line for line in found.lines if line.category == "hardware"]
    assert {line.month for line in written_off} == {"2027-01"}
    assert sum(line.amount for line in written_off) == 24 * 12_000


def test_the_life_that_is_left_counts_from_the_purchase():
    # Bought in July 2023 with a life of 4 years: 42 of 48 months are gone, 6 are left.
    dated = lot(remaining_life_months=None, purchase_date="2023-07-15")
    assert plan(dated).existing.sunk_amount == 24 * 12_000 / 6 * 2


def test_no_more_existing_gpus_are_charged_than_a_plan_needs():
    found = plan(lot(100))
    (pool,) = found.pools
    assert (found.existing.used_gpu_count, found.existing.unused_gpu_count) == (40, 60)
    assert (pool.existing_gpu_count, pool.added_gpu_count) == (40, 0)
    assert "gpu_rental" not in by_category(found)


def test_what_is_added_may_be_bought_too():
    found = plan(lot(), method=RUNNING)
    # Added: 16 GPUs, (30,000 less the catalog's residual) over 48 months; existing: 1,000 a month.
    assert found.existing.sunk_amount == 48_000
    bought = [line for line in found.lines if line.category == "hardware"]
    added = sum(line.quantity for line in bought if "sunk" not in line.formula)
    assert added == 16 * 2
    assert sum(line.cash_amount for line in bought) == 16 * 30_000


def test_lots_are_used_in_their_order():
    found = plan(lot(24), lot(24, book_value_per_gpu="6000"))
    # 24 of the first and 16 of the second: 24 · 1,000 + 16 · 500 a month.
    assert found.existing.sunk_amount == (24_000 + 8_000) * 2


def test_serving_takes_existing_gpus_before_training():
    trained = {
        "name": "pretrain",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 36 * 10**9,
        "sequence_length_tokens": 1024,
        "sizing": {"kind": "gpu_count", "gpu_count": 64},
        "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
    }
    training, serving = plan(lot(56), runs=[trained]).pools
    assert (serving.existing_gpu_count, training.existing_gpu_count) == (40, 16)
    assert training.added_gpu_count == 48


def test_existing_gpus_stay_when_a_run_is_over():
    alone = need(run(gpu_count=64), gpu_count=64, hours=100, copy=8)
    outcome = pools([alone], months=2, existing=[40])
    (pool,) = outcome.pools
    assert (pool.existing_gpu_count, pool.added_gpu_count) == (40, 24)
    assert pool.allocated_gpu_hours == 40 * HOURS + 24 * 100
    assert pool.idle_gpu_hours == 40 * (HOURS - 100)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    existing=st.integers(0, 200),
    kind=st.sampled_from(("separate", "shared")),
    gpus=st.sampled_from((8, 24, 64)),
    hours=st.floats(1, 1000),
)
def test_gpu_hours_balance_every_hour_whatever_is_there_already(existing, kind, gpus, hours):
    day = service(demand_profile="office_assistant", time_zone="Europe/Berlin")
    trained = need(run(gpu_count=gpus), gpu_count=gpus, hours=hours, copy=8)
    pooling = shared() if kind == "shared" else {"kind": kind}
    outcome = pools(
        [trained], [day], months=2, pooling=pooling, existing=[existing] * (existing > 0)
    )
    for pool, use in zip(outcome.pools, outcome.uses, strict=True):
        assert (use.hourly.idle >= 0).all()
        assert use.hourly.allocated.sum() == pytest.approx(pool.allocated_gpu_hours)
        assert use.hourly.idle.sum() == pytest.approx(pool.idle_gpu_hours, abs=1e-3)
        assert (use.hourly.allocated >= pool.existing_gpu_count).all()
    assert sum(pool.existing_gpu_count for pool in outcome.pools) <= existing


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"remaining_life_months": None}, "purchase_date"),
        ({"purchase_date": "2027-01-02"}, "after the first day"),
        ({"method": RUNNING | {"lease_price_per_gpu_month": "900"}}, "leased"),
        ({"gpu_count": 0}, "greater than or equal to 1"),
        ({"book_value_per_gpu": "-1"}, "string"),
    ],
)
def test_a_lot_that_contradicts_itself_is_refused(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan(lot(**fields))


def test_a_lot_of_an_unknown_gpu_is_refused():
    with pytest.raises(UnknownKey):
        plan(lot(gpu="nothing-like-it"))


def test_a_lot_whose_running_cost_is_not_known_makes_the_plan_infeasible():
    found = plan(lot(method=RUNNING | {"power_price_per_kwh": None}), months=1)
    assert found.feasible  # the catalog knows a tariff
    euros = Scenario.model_validate(
        {
            "horizon": {"start_month": "2027-01", "month_count": 1},
            "currency": "EUR",
            "serving_services": [service().model_dump() | {"gpu": "h100-sxm5-80gb"}],
            "pooling": {"kind": "separate"},
            "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2"}}],
            "existing_gpus": [lot(method=RUNNING | {"power_price_per_kwh": None})],
        }
    )
    (lack,) = estimate_fleet(euros, snapshot=snapshot())[0].infeasibilities
    assert lack.code == "no_price"
    assert "/scenario/existing_gpus/0" in lack.nearest_fix
    assert "power_price_per_kwh" in lack.nearest_fix
