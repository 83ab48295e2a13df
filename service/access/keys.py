"""API keys: made for a team, shown once, kept as a hash, good until they expire or are revoked."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid4

from service.access import repository
from service.access.errors import AccessError, KeyNotFound
from service.access.repository import ApiKey, Connection
from service.access.scopes import Scope

KEY_PREFIX = "gpuplan_"
"""Lets people and scanners of secrets know a key when they see one."""
KEY_RANDOM_BYTES = 20
"""160 random bits: nobody finds a key by trying."""
KEY_PATTERN = re.compile(rf"{KEY_PREFIX}[0-9a-f]{{{2 * KEY_RANDOM_BYTES}}}")
TEAM_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
MAX_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made: the one time at which the key itself is known."""

    secret: str
    key: ApiKey


def hash_of(secret: str) -> bytes:
    """Hash a key.

    A key is random, not chosen by a person, so there is no list of likely ones to try, which a slow
    or salted hash is made against. One plain SHA-256 also lets an index find the key: how long that
    takes tells of the hash at most, which whoever tries keys cannot steer.
    """
    return sha256(secret.encode()).digest()


async def create_key(
    connection: Connection,
    *,
    team: str,
    name: str,
    scopes: Iterable[Scope],
    now: datetime,
    expires_at: datetime | None = None,
) -> NewKey:
    """Make a key for a team.

    Raises:
        AccessError: the team or the name has the wrong form, no scope is given, or the key would
            have expired already.
    """
    if not TEAM_PATTERN.fullmatch(team):
        raise AccessError(
            f"{team!r} is no name of a team: 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a "
            "letter or digit."
        )
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise AccessError(f"the name of a key is 1 to {MAX_NAME_LENGTH} printable characters.")
    allowed = tuple(scope for scope in Scope if scope in set(scopes))
    if not allowed:
        raise AccessError("a key needs at least one scope.")
    if expires_at is not None and expires_at <= now:
        raise AccessError(f"a key that expires at {expires_at.isoformat()} would never work.")
    secret = KEY_PREFIX + secrets.token_hex(KEY_RANDOM_BYTES)
    key = ApiKey(uuid4(), team, name, allowed, now, expires_at, revoked_at=None)
    await repository.insert_key(connection, key, hash_of(secret))
    return NewKey(secret, key)


async def revoke_key(connection: Connection, key_id: UUID, *, now: datetime) -> ApiKey:
    """Let a key never work again; doing so twice changes nothing.

    Raises:
        KeyNotFound: there is no such key.
    """
    key = await repository.revoke_key(connection, key_id, now)
    if key is None:
        raise KeyNotFound(f"there is no key {key_id}; `gpuplan key list` names those that exist.")
    return key


def key_table(keys: Sequence[ApiKey], *, now: datetime) -> list[str]:
    """Write keys as lines of one table."""
    rows = [("ID", "TEAM", "NAME", "SCOPES", "CREATED", "EXPIRES", "STATE")]
    for key in keys:
        expires = "never" if key.expires_at is None else key.expires_at.date().isoformat()
        created = key.created_at.date().isoformat()
        scopes = ",".join(key.scopes)
        rows.append((str(key.id), key.team, key.name, scopes, created, expires, _state(key, now)))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_expired = key.expires_at is not None and key.expires_at <= now
    return "expired" if is_expired else "good"
