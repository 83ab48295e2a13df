"""Requests that may be sent twice: under one key, the second gets the plan of the first."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from service.plans import repository
from service.plans.errors import IdempotencyKeyReused, InvalidIdempotencyKey, RequestInFlight
from service.plans.repository import Session

KEY_LIFETIME = timedelta(hours=24)
KEY_PATTERN = r"^[ -~]{1,255}$"
"""1 to 255 printable ASCII characters."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A key that a request wants for itself."""

    team: str
    key: str
    fingerprint: str
    """What the request asks for: the same for the same request alone."""
    now: datetime


async def claim_key(session: Session, claim: Claim) -> UUID | None:
    """Hold a key until the transaction ends, or give back the plan that it already stands for.

    Raises:
        InvalidIdempotencyKey: the key has the wrong form.
        IdempotencyKeyReused: the key belongs to another request of the last 24 hours.
        RequestInFlight: another transaction holds the key.
    """
    if not re.fullmatch(KEY_PATTERN, claim.key):
        raise InvalidIdempotencyKey("an idempotency key has 1 to 255 printable ASCII characters")
    if not await repository.take_key(session, claim.team, claim.key):
        raise RequestInFlight(
            "a request with this idempotency key is still being answered; send it again later"
        )
    # A statement of its own: it must see what the last holder of the key has committed.
    since = claim.now - KEY_LIFETIME
    kept = await repository.find_key(session, claim.team, claim.key, since=since)
    if kept is None:
        return None
    if kept.fingerprint != claim.fingerprint:
        raise IdempotencyKeyReused(
            "this idempotency key was used for another request within the last 24 hours; "
            "use a new key for a new request"
        )
    return kept.plan_id


async def keep_key(session: Session, claim: Claim, plan_id: UUID) -> None:
    """Let the key stand for a plan from now on, and clear away keys that ran out."""
    kept = repository.KeptKey(claim.fingerprint, plan_id)
    await repository.keep_key(session, claim.team, claim.key, kept, now=claim.now)
    await repository.drop_keys(session, claim.team, until=claim.now - KEY_LIFETIME)
