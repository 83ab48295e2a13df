"""Who bears what a shared pool costs, by allocation and by usage, idle shown."""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from service.core.money.charge_back import Charges, charge_back
from service.core.planners.plan import estimate_fleet
from service.core.plans import PlanRequest
from service.plans.create import make_plan
from tests.core.planners.test_plan_laws import snapshot

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
RENT = {"kind": "rent", "price_per_gpu_hour": "1.00", "gpu_count_per_instance": 8}


def service(name, load, **facts):
    """Replicas of 8 GPUs that serve 10 a second, each with a spare beside it."""
    return {
        "name": name,
        "gpu": "h100-sxm5-80gb",
        "load": {"kind": "peak_requests", "peak_requests_per_s": load},
        "capacity": {"kind": "measured", "units_per_s_per_replica": 10, "gpu_count_per_replica": 8},
        "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 0},
        **facts,
    }


def planned(services, *, kind="separate", method=RENT, **facts):
    request = PlanRequest.model_validate(
        {
            "name": "plan",
            "scenario": {
                "horizon": {"start_month": "2027-01", "month_count": 1},
                "serving_services": services,
                "pooling": {"kind": kind},
                "procurement": [{"method": method}],
                **facts,
            },
        }
    )
    answer, used = estimate_fleet(request.scenario, snapshot=snapshot())
    identity = {"plan_id": UUID(int=1), "team": "red", "now": NOON}
    return make_plan(request, answer, used, snapshot=snapshot(), **identity), answer.lines


def charged(plan, lines, by):
    charges = Charges()
    charges.add(lines)
    return charge_back(plan, charges, by)


def by_workload(found):
    return {row.workload: (row.used_amount, row.idle_amount, row.amount) for row in found.rows}


SPARED = {"headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 1.0}}


def test_idle_is_borne_by_those_for_whom_it_is_held_or_by_those_who_use_the_pool():
    # January has 744 hours. "spared" uses 8 GPUs and holds 8 more, "lean" uses 24: 32 used, 8 idle.
    plan, lines = planned([service("spared", 10, **SPARED), service("lean", 30)])
    assert by_workload(charged(plan, lines, "allocation")) == {
        "spared": (5952, 5952, 11904),
        "lean": (17856, 0, 17856),
    }
    # By usage a quarter of what is idle is borne by "spared", which uses a quarter of what is used.
    assert by_workload(charged(plan, lines, "usage")) == {
        "spared": (5952, 1488, 7440),
        "lean": (17856, 4464, 22320),
    }


def test_both_views_bear_the_whole_and_show_the_same_idle():
    plan, lines = planned([service("spared", 10, **SPARED), service("lean", 30)])
    found = [charged(plan, lines, by) for by in ("allocation", "usage")]
    assert {each.amount for each in found} == {plan.totals.amount} == {Decimal(29760)}
    assert {each.idle_amount for each in found} == {Decimal(5952)}


def test_by_allocation_each_bears_its_amount_in_the_plan():
    run = {
        "name": "tune",
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 10**10,
        "sizing": {"kind": "gpu_count", "gpu_count": 64},
        "speed": {"kind": "mfu", "mfu_fraction": 0.4},
    }
    own = {"kind": "own", "purchase_price_per_gpu": "30000"}
    for kind in ("separate", "shared"):
        services = [service("chat", 25, demand_profile="consumer_evening")]
        plan, lines = planned(services, kind=kind, method=own, training_runs=[run])
        found = by_workload(charged(plan, lines, "allocation"))
        assert {name: amount for name, (_, _, amount) in found.items()} == {
            "tune": plan.training_runs[0].amount,
            "chat": plan.serving_services[0].amount,
        }


def test_cents_that_do_not_divide_are_borne_by_the_largest_remainders():
    # Three equal users of 8 GPUs and 8 idle ones: 5,952.00 / 3 = 1,984.00; at 1.01 6,011.52 / 3.
    services = [service(name, 10) for name in ("a", "b")] + [service("c", 10, **SPARED)]
    method = RENT | {"price_per_gpu_hour": "1.000007"}
    plan, lines = planned(services, method=method)
    found = charged(plan, lines, "usage")
    assert sum(row.amount for row in found.rows) == plan.totals.amount
    idle = [row.idle_amount for row in found.rows]
    assert max(idle) - min(idle) <= Decimal("0.01")


def test_lines_may_come_in_parts():
    plan, lines = planned([service("spared", 10, **SPARED), service("lean", 30)])
    charges = Charges()
    for line in lines:
        charges.add([line])
    assert charge_back(plan, charges, "usage") == charged(plan, lines, "usage")


@pytest.mark.parametrize("by", ["allocation", "usage"])
def test_an_infeasible_plan_has_nothing_to_bear(by):
    plan, lines = planned([service("chat", 10)], currency="EUR", method={"kind": "rent"})
    assert not plan.feasible
    found = charged(plan, lines, by)
    assert (found.rows, found.amount) == ((), 0)
