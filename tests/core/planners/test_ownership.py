"""Every month's lines: rented hours, owned pools, and what is shared between workloads."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.advice.sides import (
    amounts_by_side,
    amounts_by_workload,
    charges,
    monthly_amounts_by_side,
)
from service.core.assumptions import Assumption
from service.core.costs.terms import Ownership, Rental, ResolvedProcurement
from service.core.errors import InvalidScenario
from service.core.estimates import PoolSize
from service.core.formulas.calendar import first_day, hours_in_month, midnight
from service.core.hardware import Gpu, PeakRates
from service.core.planners.ownership import price_fleet
from service.core.pooling.workloads import HourUse
from service.core.pricing import UnitPrice, amounts_by, priced, total
from service.core.recorder import Recorder
from service.core.scenarios.scenario import Horizon, Scenario
from service.core.snapshot import CatalogSnapshot, ReleaseRef

H100 = Gpu(
    key="h100",
    name="H100",
    memory_gb=80,
    memory_bandwidth_gb_per_s=3350,
    peak_tflops=PeakRates(bf16=989),
)
B200 = H100.model_copy(update={"key": "b200"})
RENTED = Rental("aws", "us-east-1", "on_demand", UnitPrice(Decimal("6.88"), "list"))


def given_price(value):
    return UnitPrice(Decimal(value), "given in the request")


def owned(**changes):
    facts = {
        "purchase": given_price("30000"),
        "network": given_price("2400"),
        "useful_life_months": 48,
        "residual_fraction": 0.1,
        "node_power_kw": 10.2,
        "node_gpu_count": 8,
        "power_load_fraction": 0.8,
        "idle_power_fraction": 0.3,
        "power_usage_effectiveness": 1.25,
        "kwh": given_price("0.08"),
        "colocation_kw_month": given_price("195"),
        "staff_gpu_month": given_price("100"),
        "support_gpu_month": given_price("125"),
        **changes,
    }
    return Ownership(**facts)


def hours(month, gpu_hours, *, pool="serving", workload="assistant", use="used", gpu=H100, **facts):
    start = midnight(first_day(month))
    return HourUse(
        month=month,
        start=start,
        end=start + timedelta(hours=hours_in_month(month)),
        pool=pool,
        gpu=gpu,
        workload_kind=facts.get("workload_kind", pool),
        workload=workload,
        use=use,
        gpu_hours=gpu_hours,
        gpu_count=facts.get("gpu_count", 64),
        held_for=facts.get("held_for", {}),
    )


def nobodys(month, gpu_hours, *, pool="serving", held_for=None):
    """Idle hours in nobody's name, held for one service unless said otherwise."""
    return hours(
        month,
        gpu_hours,
        pool=pool,
        workload=None,
        use="idle",
        held_for=held_for or {("serving", "assistant"): gpu_hours},
    )


def through(months, gpu_count, uses=(), *, start_month="2027-01", pool="serving"):
    """Uses of an owned pool, with what is left of each month in nobody's name."""
    filled = list(uses)
    for month in Horizon(start_month=start_month, month_count=months).months:
        used = sum(use.gpu_hours for use in uses if use.month == month)
        left = gpu_count * hours_in_month(month) - used
        filled += [nobodys(month, left, pool=pool)] if left > 0 else []
    return sorted(filled, key=lambda use: use.month)


def charged(lines, uses):
    """What each workload causes."""
    owners = {(use.month, use.pool, use.gpu.key): use.held_for for use in uses if not use.workload}
    return charges(lines, owners)


def pool_size(name, gpu_count, *, used=1.0, gpu="h100"):
    return PoolSize(
        name=name,
        gpu=gpu,
        site=None,
        gpu_count=gpu_count,
        node_count=gpu_count // 8,
        allocated_gpu_hours=used,
        used_gpu_hours=used,
        idle_gpu_hours=0,
        mean_over_peak_fraction=1,
        preempted_gpu_count_per_day=0,
    )


def scenario(month_count=12, start_month="2027-01", currency="USD"):
    return Scenario.model_construct(
        horizon=Horizon(start_month=start_month, month_count=month_count), currency=currency
    )


def recorder(change=0.0):
    assumed = Assumption(
        name="price_change_per_year_fraction", topic="finance", value=0, low=-1, high=1, unit="1"
    )
    snapshot = CatalogSnapshot.build(
        release=ReleaseRef(version="2026.11.1", digest="sha256:0"),
        as_of_date=date(2026, 11, 29),
        assumptions=[assumed],
    )
    return Recorder(snapshot, overrides={assumed.name: change} if change else {})


def price(uses, terms, pools, *, months=12, start_month="2027-01", change=0.0, notes=None):
    """Price with the terms of each (pool, GPU key)."""
    keys = {(pool.name, pool.gpu) for pool in pools}
    procurement = {
        (pool, gpu): ResolvedProcurement(
            pool, H100 if gpu == "h100" else B200, 8, terms[pool], "ohio"
        )
        for pool, gpu in keys
    }
    return price_fleet(
        uses,
        procurement=procurement,
        pools=pools,
        scenario=scenario(months, start_month),
        recorder=notes or recorder(change),
    )


def published_example():
    """The example of the contract: 512 GPUs of training, 64 of serving, a year from 2027-01.

    Training: 512 x 744 = 380,928 GPU-hours in January, the rest of 597,967.252881 in February.
    Serving: 716 GPU-hours used a day (261,340 / 365), 820 idle.
    """
    january, february = 380928.0, 597967.252881 - 380928.0
    training = {"pool": "training", "workload": "pretrain-70b", "gpu_count": 512}
    uses = [hours("2027-01", january, **training), hours("2027-02", february, **training)]
    for month in Horizon(start_month="2027-01", month_count=12).months:
        days = hours_in_month(month) // 24
        uses.append(hours(month, 716.0 * days))
        uses.append(hours(month, 820.0 * days, use="idle"))
    uses.sort(key=lambda use: use.month)
    return uses, [
        pool_size("training", 512, used=597967.252881),
        pool_size("serving", 64, used=261340.0),
    ]


def test_the_published_example_of_rented_pools():
    uses, pools = published_example()
    lines = price(uses, {"training": RENTED, "serving": RENTED}, pools)

    assert [line.line_number for line in lines] == list(range(1, 27))
    first = [(str(line.quantity), str(line.unit_price), str(line.amount)) for line in lines[:3]]
    assert first == [
        ("380928", "6.88", "2620784.64"),
        ("22196", "6.88", "152708.48"),
        ("25420", "6.88", "174889.60"),
    ]
    assert [line.use for line in lines[:3]] == ["used", "used", "idle"]
    assert {(line.category, line.unit, line.purchase_kind) for line in lines} == {
        ("gpu_rental", "gpu_hour", "on_demand")
    }
    assert {(line.provider, line.region, line.site) for line in lines} == {
        ("aws", "us-east-1", None)
    }
    assert str(total(line.amount for line in lines)) == "7971217.90"
    assert all(line.cash_amount == line.amount for line in lines)
    by_workload = amounts_by(lines, lambda line: line.workload)
    assert by_workload == {
        "pretrain-70b": Decimal("4114014.70"),
        "assistant": Decimal("3857203.20"),
    }
    shares = charged(lines, uses)
    assert amounts_by_side(shares) == (Decimal("4114014.70"), Decimal("3857203.20"))
    months = monthly_amounts_by_side(shares)
    january = amounts_by(lines, lambda line: line.month)["2027-01"]
    assert sum(months["2027-01"]) == january == Decimal("2948382.72")


def test_what_used_hours_cost_is_remembered_for_each_pool():
    uses, pools = published_example()
    notes = recorder()
    price(uses, {"training": RENTED, "serving": RENTED}, pools, notes=notes)
    quantities = {(found.scope, found.name): found.value for found in notes.quantities()}
    # 3,857,203.20 / 261,340 used GPU-hours.
    assert quantities["pool:serving", "effective_cost_per_gpu_hour"] == pytest.approx(
        14.759329, abs=1e-6
    )
    assert quantities["pool:training", "effective_cost_per_gpu_hour"] == pytest.approx(6.88)


def test_a_pool_that_nothing_uses_has_no_cost_of_a_used_hour():
    notes = recorder()
    idle = [hours("2027-01", 64.0, use="idle")]
    price(idle, {"serving": RENTED}, [pool_size("serving", 8, used=0.0)], months=1, notes=notes)
    assert notes.quantities() == ()


def test_a_host_that_is_billed_apart_is_a_line_of_its_own():
    apart = Rental(
        "gcp",
        "us-east4",
        "on_demand",
        UnitPrice(Decimal("9.79655"), "list"),
        UnitPrice(Decimal("1.272918"), "list"),
    )
    lines = price(
        [hours("2027-01", 100.0)], {"serving": apart}, [pool_size("serving", 8)], months=1
    )
    # 979.655 and 127.2918, half-even: the half of the first goes to the even cent.
    assert [(line.category, str(line.amount)) for line in lines] == [
        ("gpu_rental", "979.66"),
        ("host_rental", "127.29"),
    ]


def test_lines_keep_the_order_in_which_use_is_given():
    uses = [
        hours("2027-01", 1.0, workload="b"),
        hours("2027-01", 1.0, workload="c", gpu=B200),
        hours("2027-01", 1.0, workload="a"),
    ]
    pools = [pool_size("serving", 8), pool_size("serving", 8, gpu="b200")]
    lines = price(uses, {"serving": RENTED}, pools, months=1)
    assert [line.workload for line in lines] == ["b", "c", "a"]


def test_a_price_change_applies_by_the_month_from_the_as_of_month():
    uses = [hours("2027-11", 100.0), hours("2028-11", 100.0)]
    lines = price(uses, {"serving": RENTED}, [pool_size("serving", 8)], months=24, change=-0.2)
    # 2026-11 to 2027-11 is a year: 6.88 x 0.8 = 5.504; another: 4.4032.
    assert [str(line.unit_price) for line in lines] == ["5.504", "4.4032"]
    assert lines[0].price_source == "changed by -0.2 a year, from list"


def test_a_committed_price_moves_when_its_term_is_renewed():
    committed = Rental("aws", None, "committed_1yr", UnitPrice(Decimal(4), "list"))
    uses = [hours(month, 1.0) for month in ("2026-11", "2027-10", "2027-11", "2028-10")]
    lines = price(
        uses,
        {"serving": committed},
        [pool_size("serving", 8)],
        months=24,
        start_month="2026-11",
        change=-0.5,
    )
    assert [str(line.unit_price) for line in lines] == ["4", "4", "2", "2"]


def test_prices_before_the_as_of_month_are_not_extrapolated_backwards():
    lines = price(
        [hours("2026-01", 1.0)],
        {"serving": RENTED},
        [pool_size("serving", 8)],
        months=1,
        start_month="2026-01",
        change=-0.2,
    )
    assert str(lines[0].unit_price) == "6.88"


def test_a_price_change_out_of_its_bounds_is_refused():
    with pytest.raises(InvalidScenario) as refusal:
        price([hours("2027-01", 1.0)], {"serving": RENTED}, [pool_size("serving", 8)], change=-1.0)
    assert refusal.value.pointer.endswith("/price_change_per_year_fraction")


def test_a_fleet_beyond_twelve_digits_is_refused():
    dear = owned(purchase=given_price("999999999999"))
    with pytest.raises(InvalidScenario, match="twelve digits"):
        price(through(1, 1_000_000), {"serving": dear}, [pool_size("serving", 1_000_000)], months=1)


def test_hours_in_nobodys_name_are_charged_to_those_for_whom_they_are_held():
    both = {("training", "run"): 7.0, ("serving", "assistant"): 3.0}
    uses = [
        hours("2027-01", 300.0, pool="shared", workload_kind="training", workload="run"),
        hours("2027-01", 200.0, pool="shared", workload_kind="serving"),
        nobodys("2027-01", 10.0, pool="shared", held_for=both),
        nobodys("2027-02", 5.0, pool="shared"),
    ]
    lines = price(uses, {"shared": RENTED}, [pool_size("shared", 8)], months=2)
    shares = charged(lines, uses)
    # January: 300 x 6.88 = 2,064 and 200 x 6.88 = 1,376; of 68.80 seven tenths are 48.16.
    # February: 5 x 6.88 = 34.40, all for the service.
    assert monthly_amounts_by_side(shares) == {
        "2027-01": (Decimal("2112.16"), Decimal("1396.64")),
        "2027-02": (Decimal("0.00"), Decimal("34.40")),
    }
    assert amounts_by_workload(shares) == {
        "run": Decimal("2112.16"),
        "assistant": Decimal("1431.04"),
    }


fleets = st.lists(
    st.tuples(
        st.sampled_from(["2027-01", "2027-02", "2027-03"]),
        st.floats(0, 8 * 672 / 6),
        st.sampled_from(["training", "serving"]),
        st.sampled_from(["used", "idle", "redo"]),
        st.sampled_from(["one", "two"]),
    ),
    max_size=6,
    unique_by=lambda use: (use[0], use[2], use[3], use[4]),
)
purchases = st.decimals(min_value="0.01", max_value=60000, places=2)


def uses_of(fleet):
    uses = [
        hours(
            month,
            gpu_hours,
            pool="shared",
            workload_kind=kind,
            workload=f"{kind} {name}",
            use=use,
        )
        for month, gpu_hours, kind, use, name in fleet
        if gpu_hours > 0
    ]
    return through(3, 8, uses, pool="shared")


@given(
    fleet=fleets,
    terms=st.one_of(st.just(RENTED), purchases.map(lambda p: owned(purchase=UnitPrice(p, "x")))),
)
def test_lines_price_to_their_amounts_and_sum_to_the_totals(fleet, terms):
    uses = uses_of(fleet)
    lines = price(uses, {"shared": terms}, [pool_size("shared", 8)], months=3)
    for line in lines:
        assert line.amount == priced(line.quantity, line.unit_price)
        assert line.amount >= 0
        assert line.quantity >= 0
    shares = charged(lines, uses)
    whole = total(line.amount for line in lines)
    assert sum(amounts_by_side(shares)) == sum(amounts_by_workload(shares).values()) == whole
    assert all(amount >= 0 for amount in shares.values())


@given(fleet=fleets, purchase=purchases)
def test_an_owned_fleet_costs_the_same_whoever_uses_it_but_for_its_power(fleet, purchase):
    terms = owned(purchase=UnitPrice(purchase, "x"))
    pools = [pool_size("shared", 8)]
    used = price(uses_of(fleet), {"shared": terms}, pools, months=3)
    unused = price(through(3, 8, pool="shared"), {"shared": terms}, pools, months=3)
    for view in ("amount", "cash_amount"):
        of_used, of_unused = (
            total(getattr(line, view) for line in lines if line.category != "power")
            for lines in (used, unused)
        )
        assert of_used == of_unused


@given(fleet=fleets)
def test_pricing_is_deterministic(fleet):
    uses, pools = uses_of(fleet), [pool_size("shared", 8)]
    assert price(uses, {"shared": owned()}, pools) == price(uses, {"shared": owned()}, pools)
