"""Running a stored plan's scenario again, on another catalog release or as of another day."""

from uuid import UUID

from service.core.errors import CoreError
from service.core.plans import PlanRequest, ReplanRequest
from service.plans.create import Making, StoredPlan, create_plan
from service.plans.read import read_plan
from service.plans.repository import OpenSession


async def replan(
    open_session: OpenSession,
    old_id: UUID,
    request: ReplanRequest,
    making: Making,
) -> StoredPlan:
    """Make a new plan of an old one's scenario; the old one stays as it is.

    Raises:
        PlanNotFound: the team has no such plan.
        PlanError, CoreError: as `create_plan`.
    """
    async with open_session() as session:
        old = await read_plan(session, old_id)
    again = PlanRequest(
        name=request.name or old.name,
        catalog_release=request.catalog_release,
        as_of_date=request.as_of_date,
        scenario=old.scenario,
    )
    try:
        return await create_plan(open_session, again, making, derived_from=old_id)
    except CoreError as error:
        error.pointer = _in_this_request(error.pointer)
        raise


def _in_this_request(pointer: str) -> str:
    """The scenario is not in this request: what it asks for is a release that lacks it.

    A price book of that scenario which is gone is no fault of any field.
    """
    if pointer == "/scenario/price_book":
        return ""
    return "/catalog_release" if pointer.startswith("/scenario") else pointer
