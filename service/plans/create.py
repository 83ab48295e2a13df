"""Making a plan: the estimate of a scenario, stored once as the bytes that are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import ParamSpec, Protocol, TypeVar
from uuid import UUID

from service import __version__
from service.core.assumptions import AssumptionUsed
from service.core.estimates import FleetEstimate
from service.core.plans import SCHEMA_VERSION, Plan, PlanLinks, PlanRequest
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import CatalogSnapshot
from service.plans import repository
from service.plans.errors import PlanNotFound
from service.plans.idempotency import Claim, claim_key, keep_key
from service.plans.identity import plan_etag, request_digest
from service.plans.repository import Session

# Estimates hold the interpreter's lock most of the time: more threads would only wait for it.
_ESTIMATES = ThreadPoolExecutor(max_workers=2, thread_name_prefix="estimate")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
SnapshotLoader = Callable[[Session, str, date], Awaitable[CatalogSnapshot]]
"""Resolves a release ("latest" or a version) and a day to plain values."""


class Estimator(Protocol):
    """Answers a scenario: `service.core.planners.plan.estimate_fleet`."""

    def __call__(
        self, scenario: Scenario, *, snapshot: CatalogSnapshot
    ) -> tuple[FleetEstimate, tuple[AssumptionUsed, ...]]:
        """Estimate the fleet, and name the assumptions that were used."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan as it is answered."""

    id: UUID
    body: bytes
    etag: str
    created: bool
    """False when the plan was made by an earlier request with the same key."""


async def create_plan(
    session: Session,
    request: PlanRequest,
    *,
    team: str,
    now: datetime,
    plan_id: UUID,
    estimate: Estimator,
    load_snapshot: SnapshotLoader,
    idempotency_key: str | None = None,
    derived_from: UUID | None = None,
) -> StoredPlan:
    """Estimate a scenario and store the answer in the transaction of the session.

    Raises:
        InvalidIdempotencyKey: the key has the wrong form.
        IdempotencyKeyReused: the key belongs to another request.
        RequestInFlight: a request with the same key is not yet answered.
        CoreError: the scenario cannot be answered, such as for an unknown key.
    """
    claim = None
    if idempotency_key is not None:
        # The same body means another thing as a new plan and as a re-run of a stored one.
        digest = request_digest(request)
        fingerprint = digest if derived_from is None else f"{digest} of {derived_from}"
        claim = Claim(team, idempotency_key, fingerprint, now)
        earlier = await claim_key(session, claim)
        if earlier is not None:
            return await _stored(session, earlier)
    as_of_date = request.as_of_date or now.astimezone(UTC).date()
    snapshot = await load_snapshot(session, request.catalog_release, as_of_date)
    answer, assumptions = await run_beside_the_loop(estimate, request.scenario, snapshot=snapshot)
    plan = make_plan(
        request,
        answer,
        assumptions,
        snapshot=snapshot,
        plan_id=plan_id,
        team=team,
        now=now,
        derived_from=derived_from,
    )
    return await _store(session, plan, answer, claim)


def make_plan(
    request: PlanRequest,
    answer: FleetEstimate,
    assumptions: tuple[AssumptionUsed, ...],
    *,
    snapshot: CatalogSnapshot,
    plan_id: UUID,
    team: str,
    now: datetime,
    derived_from: UUID | None = None,
) -> Plan:
    """Give an estimate its identity; its lines and quantities become rows of their own."""
    shared = FleetEstimate.model_fields.keys() & Plan.model_fields.keys()
    return Plan(
        **{name: getattr(answer, name) for name in shared},
        id=plan_id,
        schema_version=SCHEMA_VERSION,
        name=request.name,
        created_at=now,
        team=team,
        catalog_release=snapshot.release,
        as_of_date=snapshot.as_of_date,
        engine_version=__version__,
        derived_from=derived_from,
        scenario=request.scenario,
        request_digest=request_digest(request),
        assumptions=assumptions,
        line_count=len(answer.lines),
        links=_links(plan_id),
    )


async def _stored(session: Session, plan_id: UUID) -> StoredPlan:
    stored = await repository.find_body(session, plan_id)
    if stored is None:
        raise PlanNotFound(plan_id)
    return StoredPlan(
        plan_id, stored.body, plan_etag(plan_id, stored.schema_version), created=False
    )


async def run_beside_the_loop(
    work: Callable[Arguments, Result], *given: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Run an estimate in a thread of its own: the event loop goes on answering others."""
    return await asyncio.get_running_loop().run_in_executor(
        _ESTIMATES, partial(work, *given, **named)
    )


async def _store(
    session: Session, plan: Plan, answer: FleetEstimate, claim: Claim | None
) -> StoredPlan:
    body = plan.model_dump_json().encode()
    await repository.insert_plan(session, plan, body, answer)
    if claim is not None:
        await keep_key(session, claim, plan.id)
    return StoredPlan(plan.id, body, plan_etag(plan.id, plan.schema_version), created=True)


def _links(plan_id: UUID) -> PlanLinks:
    address = f"/v1/plans/{plan_id}"
    return PlanLinks(lines=f"{address}/lines", quantities=f"{address}/quantities")
