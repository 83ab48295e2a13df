"""Stored plans side by side: which may stand there, and in which order."""

from decimal import Decimal
from uuid import UUID

import pytest

from service.plans.compare import compare
from service.plans.errors import CannotCompare, PlanNotFound
from tests.plans.examples import (
    INFEASIBLE,
    JANUARY,
    JANUARY_AMOUNT,
    REQUEST,
    estimate,
    quantity,
    request,
)


async def compared(store, *plans, baseline=None, team="red"):
    ids = [plan if isinstance(plan, UUID) else plan.id for plan in plans]
    async with store.session(team) as session:
        return await compare(session, ids, baseline=baseline)


def row(comparison, scope, name):
    (found,) = [one for one in comparison.quantities if (one.scope, one.name) == (scope, name)]
    return found


async def test_totals_and_quantities_of_stored_plans_are_compared(store):
    base = await store.make(answer=estimate(quantities=(quantity("run:a", "hours", 10.0),)))
    other = await store.make(
        answer=estimate(JANUARY[:1], (quantity("run:a", "hours", 8.0), quantity("run:b", "hours")))
    )
    comparison = await compared(store, base, other)
    # Without serving: 2,948,382.72 - 2,620,784.64 = 327,598.08 less.
    amount = row(comparison, "plan", "amount")
    assert Decimal(str(amount.baseline_value)) == JANUARY_AMOUNT
    assert amount.values[0].difference == -327598.08
    hours = row(comparison, "run:a", "hours").values[0]
    assert (hours.difference, hours.relative_difference_fraction) == (-2.0, -0.2)
    assert row(comparison, "run:b", "hours").baseline_value is None


async def test_the_first_plan_is_the_baseline_unless_one_is_named(store):
    plans = [await store.make(request(name=name)) for name in "abc"]
    comparison = await compared(store, *plans)
    assert [plan.name for plan in comparison.plans] == ["a", "b", "c"]
    comparison = await compared(store, *plans, baseline=plans[1].id)
    assert comparison.baseline_id == plans[1].id
    assert [plan.name for plan in comparison.plans] == ["b", "a", "c"]


async def test_more_quantities_than_a_page_are_compared(store):
    many = tuple(quantity("plan", f"q{number}", float(number)) for number in range(700))
    first, second = [await store.make(answer=estimate(quantities=many)) for _ in range(2)]
    comparison = await compared(store, first, second)
    assert row(comparison, "plan", "q699").values[0].difference == 0.0


async def test_an_infeasible_plan_is_compared_by_what_it_has(store):
    base = await store.make()
    comparison = await compared(store, base, await store.make(answer=INFEASIBLE))
    assert row(comparison, "plan", "amount").values[0].value is None


async def in_euro(store, answer=None):
    scenario = {**REQUEST["scenario"], "currency": "EUR"}
    return await store.make(request(scenario=scenario), answer=answer or estimate(currency="EUR"))


async def test_amounts_in_two_currencies_are_not_compared(store):
    dollars, euros = await store.make(), await in_euro(store)
    with pytest.raises(CannotCompare, match=r"is in USD, plan .* in EUR"):
        await compared(store, dollars, euros)
    assert row(await compared(store, euros, await in_euro(store)), "plan", "amount")


async def test_an_infeasible_plan_in_another_currency_is_refused_as_well(store):
    with pytest.raises(CannotCompare, match="currencies"):
        await compared(store, await store.make(), await in_euro(store, INFEASIBLE))


@pytest.mark.parametrize("count", [0, 1, 11])
async def test_two_to_ten_plans_can_be_compared(store, count):
    with pytest.raises(CannotCompare, match="2 to 10 plans"):
        await compared(store, *(UUID(int=number) for number in range(1, count + 1)))


async def test_ten_plans_can_be_compared(store):
    plans = [await store.make() for _ in range(10)]
    assert len((await compared(store, *plans)).plans) == 10


async def test_a_plan_cannot_be_compared_with_itself(store):
    made = await store.make()
    with pytest.raises(CannotCompare, match="twice"):
        await compared(store, made, made)


async def test_the_baseline_is_one_of_the_plans(store):
    plans = [await store.make() for _ in range(2)]
    with pytest.raises(CannotCompare, match="none of the plans"):
        await compared(store, *plans, baseline=UUID(int=1))


async def test_the_plan_of_another_team_is_not_there(store):
    ours, theirs = await store.make(), await store.make(team="blue")
    with pytest.raises(PlanNotFound, match=str(theirs.id)):
        await compared(store, ours, theirs)
