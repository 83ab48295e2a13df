"""What the months of an owned pool cost, and how their bills are split."""

from datetime import UTC, datetime
from decimal import Decimal

from service.core.formulas.calendar import hours_in_month
from service.core.pricing import total
from service.core.scenarios.scenario import Horizon
from tests.core.planners.test_ownership import (
    given_price,
    hours,
    owned,
    pool_size,
    price,
    through,
)


def test_a_month_of_an_owned_pool():
    # 64 GPUs, all of January used by one service: 64 x 744 = 47,616 GPU-hours.
    uses = [hours("2027-01", 47616.0)]
    lines = price(uses, {"serving": owned()}, [pool_size("serving", 64)], months=1)
    found = {
        line.category: (str(line.quantity), str(line.unit_price), str(line.amount))
        for line in lines
    }
    assert found == {
        # 30,000 x 0.9 / 48 = 562.50 a GPU and month; 2,400 / 48 = 50, nothing left at the end.
        "hardware": ("64", "562.5", "36000.00"),
        "network": ("64", "50", "3200.00"),
        # 64 / 8 x 10.2 kW x 0.8 x 1.25 x 744 h = 60,710.4 kWh at 0.08.
        "power": ("60710.4", "0.08", "4856.83"),
        # 81.6 kW of highest draw at 195, without PUE.
        "facility": ("81.6", "195", "15912.00"),
        "staff": ("64", "100", "6400.00"),
        "support": ("64", "125", "8000.00"),
    }
    assert {(line.purchase_kind, line.site, line.provider) for line in lines} == {
        ("owned", "ohio", None)
    }


def test_energy_follows_the_real_length_of_the_month():
    uses = [
        hours(month, 8.0 * hours_in_month(month))
        for month in Horizon(start_month="2028-01", month_count=12).months
    ]
    lines = price(uses, {"serving": owned()}, [pool_size("serving", 8)], start_month="2028-01")
    energy = [line.quantity for line in lines if line.category == "power"]
    # 10.2 kW x 0.8 x 1.25 = 10.2 kW: 744 h in January, 696 in the leap February, 720 in April.
    assert energy[:2] == [Decimal("7588.8"), Decimal("7099.2")]
    assert energy[3] == Decimal(7344)


def test_idle_gpus_draw_less():
    # 8 GPUs of one node for 744 h: 2,000 GPU-hours used, 3,952 idle. A GPU's share of the node is
    # 10.2 / 8 = 1.275 kW: 2,000 x 1.275 x 0.8 x 1.25 = 2,550 kWh; 3,952 x 1.275 x 0.3 x 1.25 =
    # 1,889.55 kWh; at 0.08 that is 204.00 and 151.16.
    uses = through(1, 8, [hours("2027-01", 2000.0)])
    lines = price(uses, {"serving": owned()}, [pool_size("serving", 8)], months=1)
    energy = {
        line.use: (str(line.quantity), str(line.amount))
        for line in lines
        if line.category == "power"
    }
    assert energy == {"used": ("2550", "204.00"), "idle": ("1889.55", "151.16")}


def test_idle_gpus_that_are_switched_off_have_no_line_of_power():
    uses = through(1, 8)
    off = owned(idle_power_fraction=0.0)
    lines = price(uses, {"serving": off}, [pool_size("serving", 8)], months=1)
    assert "power" not in {line.category for line in lines}


def test_cash_pays_the_purchase_in_the_first_month_and_spreads_nothing():
    lines = price(through(12, 8), {"serving": owned()}, [pool_size("serving", 8)])
    hardware = [line for line in lines if line.category == "hardware"]
    assert [str(line.cash_amount) for line in hardware] == ["240000.00"] + ["0.00"] * 11
    assert {str(line.amount) for line in hardware} == {"4500.00"}
    staff = [line for line in lines if line.category == "staff"]
    assert all(line.cash_amount == line.amount for line in staff)


def test_a_life_that_ends_within_the_plan_returns_its_residual_and_buys_again():
    short = owned(useful_life_months=12, network=given_price("0"))
    lines = price(through(18, 8), {"serving": short}, [pool_size("serving", 8)], months=18)
    cash = [line.cash_amount for line in lines if line.category == "hardware"]
    # 8 x 30,000 bought, a tenth returned in the twelfth month, bought again in the thirteenth.
    assert cash == [240000, *[0] * 10, -24000, 240000, *[0] * 5]
    year = [line for line in lines if line.category == "hardware"][:12]
    # 30,000 x 0.9 / 12 x 8: over one life both views are equal.
    assert total(line.amount for line in year) == total(line.cash_amount for line in year) == 216000


def test_an_owned_pool_is_paid_for_in_months_that_nothing_uses():
    training = {"pool": "training", "workload": "pretrain", "gpu_count": 8}
    uses = [hours("2027-01", 8 * 744.0, **training), hours("2027-02", 8 * 300.0, **training)]
    uses = through(3, 8, uses, pool="training")
    lines = price(uses, {"training": owned()}, [pool_size("training", 8)], months=3)
    staff = [
        (line.month, line.workload, line.workload_kind, line.use, str(line.quantity))
        for line in lines
        if line.category == "staff"
    ]
    assert staff == [
        ("2027-01", "pretrain", "training", "used", "8"),
        # 300 of 672 hours used: 8 x 300 / 672 = 3.571428.., and the rest.
        ("2027-02", "pretrain", "training", "used", "3.571429"),
        ("2027-02", None, "training", "idle", "4.428571"),
        ("2027-03", None, "training", "idle", "8"),
    ]
    whole = [line for line in lines if line.month == "2027-03"]
    assert whole[0].charge_period_start == datetime(2027, 3, 1, tzinfo=UTC)
    assert whole[0].charge_period_end == datetime(2027, 4, 1, tzinfo=UTC)


def test_one_bill_is_split_to_the_cent():
    uses = [hours("2027-01", 992.0, workload=name) for name in "abcdef"]  # 8 x 744 / 6 each
    lines = price(uses, {"serving": owned()}, [pool_size("serving", 8)], months=1)
    staff = [line for line in lines if line.category == "staff"]
    # 800.00 over six: 133.333.., so two of them get the cents that are left.
    assert sorted(str(line.amount) for line in staff) == ["133.33"] * 4 + ["133.34"] * 2
    assert total(line.amount for line in staff) == 800
    hardware = [line for line in lines if line.category == "hardware"]
    assert total(line.cash_amount for line in hardware) == 240000


def test_a_zero_price_makes_no_lines():
    free = owned(network=given_price("0"), colocation_kw_month=given_price("0"))
    lines = price(through(1, 8), {"serving": free}, [pool_size("serving", 8)], months=1)
    assert {line.category for line in lines} == {"hardware", "power", "staff", "support"}
