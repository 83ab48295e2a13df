"""Comparing stored plans with one of them."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from service.core.planners.comparison import PlanNumbers, compare_plans
from service.core.plans import PlanComparison, PlanSummary
from service.plans import repository
from service.plans.errors import CannotCompare, PlanNotFound
from service.plans.repository import QuantityFilters, Session

MIN_PLANS, MAX_PLANS = 2, 10


async def compare(
    session: Session, plan_ids: Sequence[UUID], *, baseline: UUID | None = None
) -> PlanComparison:
    """Compare plans of the team with a baseline: the one named, else the first.

    Raises:
        CannotCompare: too few or too many plans, one twice, a baseline that is none of them, or
            plans in several currencies.
        PlanNotFound: the team has no such plan.
    """
    first = plan_ids[0] if baseline is None and plan_ids else baseline
    _check(plan_ids, first)
    ordered = sorted(plan_ids, key=lambda plan_id: plan_id != first)  # stable: the rest as asked
    summaries = await repository.read_summaries(session, ordered)
    for plan_id in ordered:
        if plan_id not in summaries:
            raise PlanNotFound(plan_id)
    plans = [summaries[plan_id] for plan_id in ordered]
    _check_currencies(plans)
    numbers = [await _numbers(session, plan) for plan in plans]
    return await asyncio.to_thread(compare_plans, numbers[0], numbers[1:])


def _check(plan_ids: Sequence[UUID], baseline: UUID | None) -> None:
    if not MIN_PLANS <= len(plan_ids) <= MAX_PLANS:
        raise CannotCompare(
            f"{MIN_PLANS} to {MAX_PLANS} plans can be compared, not {len(plan_ids)}"
        )
    for plan_id in plan_ids:
        if plan_ids.count(plan_id) > 1:
            raise CannotCompare(f"plan {plan_id} is named twice")
    if baseline not in plan_ids:
        raise CannotCompare(f"the baseline {baseline} is none of the plans to compare")


def _check_currencies(plans: Sequence[PlanSummary]) -> None:
    for plan in plans[1:]:
        if plan.currency != plans[0].currency:
            raise CannotCompare(
                f"amounts in different currencies are not compared: plan {plans[0].id} is in "
                f"{plans[0].currency}, plan {plan.id} in {plan.currency}"
            )


async def _numbers(session: Session, plan: PlanSummary) -> PlanNumbers:
    found = await repository.read_quantities(
        session, plan.id, QuantityFilters(), after=0, limit=None
    )
    return PlanNumbers(plan, [quantity for _, quantity in found])
