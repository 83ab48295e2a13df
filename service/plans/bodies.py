"""The hot read: bytes of plans, kept for a while in the process because they never change."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from uuid import UUID

from service.plans.repository import StoredBody

ReadBody = Callable[[str, UUID], Awaitable[StoredBody | None]]
"""Reads a plan of a team from the database."""
KEPT_BYTES = 32 * 2**20


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
