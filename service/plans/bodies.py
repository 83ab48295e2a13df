"""The hot read: bytes of plans, kept for a while in the process because they never change.

What changes around a plan, the retirement of its release, is read anew every second.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from service.plans.repository import StoredBody

ReadBody = Callable[[str, UUID], Awaitable[StoredBody | None]]
"""Reads a plan of a team from the database."""
ReadRetirements = Callable[[], Awaitable[Mapping[str, datetime]]]
"""Reads which releases are retired since when."""
KEPT_BYTES = 32 * 2**20
RETIREMENTS_KEPT_S = 1.0
"""How late a read may tell that a release was retired: less than a person needs to act on it."""


class PlanBodies:
    """Reads plans, and keeps those read last, under their team and id, up to a size in bytes.

    A plan is immutable and never deleted, so what is kept cannot become wrong; that there is no
    such plan is never kept, since it may be made a moment later. The caller is authorised before.
    """

    def __init__(self, read: ReadBody, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._read = read
        self._limit = kept_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[str, UUID], StoredBody] = OrderedDict()

    async def find(self, team: str, plan_id: UUID) -> StoredBody | None:
        """Return a plan of a team, None when the team has no such plan."""
        kept = self._kept.get((team, plan_id))
        if kept is not None:
            self._kept.move_to_end((team, plan_id))
            return kept
        stored = await self._read(team, plan_id)
        if stored is not None:
            self._keep((team, plan_id), stored)
        return stored

    def _keep(self, key: tuple[str, UUID], stored: StoredBody) -> None:
        if key in self._kept or len(stored.body) > self._limit:
            return
        self._kept[key] = stored
        self._size += len(stored.body)
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.body)


class _Release(msgspec.Struct):
    version: str


class _Document(msgspec.Struct):
    """What is looked at in a plan's bytes; the rest is passed over."""

    catalog_release: _Release


_DOCUMENT = msgspec.json.Decoder(_Document)


class Retirements:
    """Tells since when the release of a plan is retired, at most some time late."""

    def __init__(self, read: ReadRetirements, *, kept_s: float = RETIREMENTS_KEPT_S) -> None:
        self._read = read
        self._kept_s = kept_s
        self._known: Mapping[str, datetime] = {}
        self._good_until = float("-inf")
        self._reading = asyncio.Lock()

    async def of_plan(self, body: bytes) -> datetime | None:
        """Return when the release that a plan rests on was retired, None while it is not."""
        known = await self._current()
        # Most of the time nothing is retired, and no plan is looked into.
        return known.get(_DOCUMENT.decode(body).catalog_release.version) if known else None

    async def _current(self) -> Mapping[str, datetime]:
        if time.monotonic() >= self._good_until:
            async with self._reading:
                if time.monotonic() >= self._good_until:
                    asked_at = time.monotonic()
                    self._known = await self._read()
                    self._good_until = asked_at + self._kept_s
        return self._known
