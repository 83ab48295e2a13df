"""Requests that may be sent twice: under one key, the second gets the plan of the first."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from uuid import UUID

from service.plans import repository
from service.plans.errors import IdempotencyKeyReused, InvalidIdempotencyKey
from service.plans.repository import Session

KEY_LIFETIME = timedelta(hours=24)
KEY_PATTERN = r"^[ -~]{1,255}$"
"""1 to 255 printable ASCII characters."""
HoldNumber = Callable[[int], AbstractAsyncContextManager[bool]]
"""Holds a number against all other requests of all workers; False when another one holds it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A key that a request wants for itself."""

    team: str
    key: str
    fingerprint: str
    """What the request asks for: the same for the same request alone."""
    now: datetime

    @property
    def number(self) -> int:
        """Stands for team and key among all workers: 64 bits, signed."""
        digest = sha256(f"idempotency\x00{self.team}\x00{self.key}".encode()).digest()
        return int.from_bytes(digest[:8], signed=True)


def check_key(key: str) -> None:
    """Refuse a key of the wrong form. Raises InvalidIdempotencyKey."""
    if not re.fullmatch(KEY_PATTERN, key):
        raise InvalidIdempotencyKey("an idempotency key has 1 to 255 printable ASCII characters")


async def kept_plan(session: Session, claim: Claim) -> UUID | None:
    """Find the plan that a key already stands for.

    Raises:
        IdempotencyKeyReused: the key belongs to another request of the last 24 hours.
    """
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


async def keep_key(session: Session, claim: Claim, plan_id: UUID) -> bool:
    """Let the key stand for a plan from now on, and clear away keys that ran out.

    False when the key stands for another plan by now, whose request was quicker.
    """
    kept = repository.KeptKey(claim.fingerprint, plan_id)
    since = claim.now - KEY_LIFETIME
    if not await repository.keep_key(
        session, claim.team, claim.key, kept, now=claim.now, since=since
    ):
        return False
    await repository.drop_keys(session, claim.team, until=since)
    return True
