"""What a caller may do, and on whose behalf."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """A kind of request that a key allows."""

    PLAN_READ = "plan:read"
    PLAN_WRITE = "plan:write"
    CATALOG_WRITE = "catalog:write"


MEANINGS = {
    Scope.PLAN_READ: "read the team's plans and price books, and the catalog",
    Scope.PLAN_WRITE: "make plans and write price books for the team",
    Scope.CATALOG_WRITE: "publish and retire releases of the catalog",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request."""

    team: str
    """The team whose plans are seen and made."""
    scopes: frozenset[str]
    """What the caller may do; a scope that this code does not know allows nothing."""
