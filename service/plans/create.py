"""Making a plan: the estimate of a scenario, stored once as the bytes that are answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Protocol
from uuid import UUID

from service import __version__
from service.core.assumptions import AssumptionUsed
from service.core.estimates import FleetEstimate
from service.core.plans import SCHEMA_VERSION, Plan, PlanLinks, PlanRequest
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import CatalogSnapshot
from service.plans import repository
from service.plans.beside import run_beside_the_loop
from service.plans.errors import PlanNotFound, RequestInFlight
from service.plans.idempotency import Claim, HoldNumber, check_key, keep_key, kept_plan
from service.plans.identity import plan_etag, request_digest
from service.plans.repository import OpenSession, Session
from service.price_books.repository import find_price_book

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


@dataclass(frozen=True, slots=True)
class Making:
    """For whom one plan is made, when, and by what."""

    team: str
    now: datetime
    plan_id: UUID
    estimate: Estimator
    load_snapshot: SnapshotLoader
    hold: HoldNumber
    idempotency_key: str | None = None


async def create_plan(
    open_session: OpenSession,
    request: PlanRequest,
    making: Making,
    *,
    derived_from: UUID | None = None,
) -> StoredPlan:
    """Estimate a scenario and store the answer, each in its own time: none holds a connection.

    Raises:
        InvalidIdempotencyKey: the key has the wrong form.
        IdempotencyKeyReused: the key belongs to another request.
        RequestInFlight: a request with the same key is not yet answered.
        TooMuchAtOnce, TookTooLong: the estimate cannot be made now, or not in time.
        CoreError: the scenario cannot be answered, such as for an unknown key.
    """

    async def make(claim: Claim | None) -> StoredPlan:
        snapshot = await _snapshot(open_session, request, making.now, making.load_snapshot)
        answer, used = await run_beside_the_loop(
            making.estimate, request.scenario, snapshot=snapshot
        )
        plan = make_plan(
            request,
            answer,
            used,
            snapshot=snapshot,
            plan_id=making.plan_id,
            team=making.team,
            now=making.now,
            derived_from=derived_from,
        )
        return await _store(open_session, plan, answer, claim)

    key = making.idempotency_key
    if key is None:
        return await make(None)
    check_key(key)
    claim = Claim(making.team, key, _fingerprint(request, derived_from), making.now)
    async with making.hold(claim.number) as is_ours:
        earlier = await _earlier(open_session, claim)
        if earlier is None and not is_ours:
            raise RequestInFlight
        return earlier or await make(claim)


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


async def _snapshot(
    open_session: OpenSession, request: PlanRequest, now: datetime, load_snapshot: SnapshotLoader
) -> CatalogSnapshot:
    as_of_date = request.as_of_date or now.astimezone(UTC).date()
    async with open_session() as session:
        snapshot = await load_snapshot(session, request.catalog_release, as_of_date)
        return await with_price_book(session, snapshot, request.scenario.price_book)


async def with_price_book(
    session: Session, snapshot: CatalogSnapshot, name: str | None
) -> CatalogSnapshot:
    """A snapshot with a price book of the team; without one where the team has none so named."""
    book = None if name is None else await find_price_book(session, name)
    return snapshot if book is None else replace(snapshot, price_book=book)


def _fingerprint(request: PlanRequest, derived_from: UUID | None) -> str:
    """The same body means another thing as a new plan and as a re-run of a stored one."""
    digest = request_digest(request)
    return digest if derived_from is None else f"{digest} of {derived_from}"


async def _earlier(open_session: OpenSession, claim: Claim) -> StoredPlan | None:
    """Read the plan that a key already stands for. Raises IdempotencyKeyReused."""
    async with open_session() as session:
        plan_id = await kept_plan(session, claim)
        if plan_id is None:
            return None
        stored = await repository.find_body(session, plan_id)
    if stored is None:
        raise PlanNotFound(plan_id)
    etag = plan_etag(plan_id, stored.schema_version)
    return StoredPlan(plan_id, stored.body, etag, created=False)


async def _store(
    open_session: OpenSession, plan: Plan, answer: FleetEstimate, claim: Claim | None
) -> StoredPlan:
    body = plan.model_dump_json().encode()
    async with open_session() as session:
        await repository.insert_plan(session, plan, body, answer)
        is_kept = claim is None or await keep_key(session, claim, plan.id)
        if not is_kept:
            await session.rollback()
    if claim is not None and not is_kept:
        # The lock of the key was lost with its connection, and another worker was quicker.
        earlier = await _earlier(open_session, claim)
        if earlier is not None:
            return earlier
    return StoredPlan(plan.id, body, plan_etag(plan.id, plan.schema_version), created=True)


def _links(plan_id: UUID) -> PlanLinks:
    address = f"/v1/plans/{plan_id}"
    return PlanLinks(lines=f"{address}/lines", quantities=f"{address}/quantities")
