"""Names that follow from content or time: ids, digests and entity tags."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from service.core.plans import PlanRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID_RANDOM_BYTES = 8


def time_ordered_id(now: datetime, random_bytes: bytes) -> UUID:
    """Make a UUID of version 7 (RFC 9562, 5.7): later ones sort after earlier ones.

    The twelve bits after the milliseconds hold the rest of the microsecond (section 6.2, method 3).

    Args:
        now: the time, with its zone.
        random_bytes: eight random bytes.
    """
    microseconds = (now - _EPOCH) // timedelta(microseconds=1)
    milliseconds, rest = divmod(microseconds, 1000)
    random_bits = int.from_bytes(random_bytes) & (1 << 62) - 1
    time_bits = milliseconds << 80 | 0x7 << 76 | (rest * 4096 // 1000) << 64
    return UUID(int=time_bits | 0b10 << 62 | random_bits)


def request_digest(request: PlanRequest) -> str:
    """Digest of a request as it was sent: SHA-256 over JSON with sorted keys, without defaults."""
    document = request.model_dump(mode="json", exclude_unset=True)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(canonical.encode()).hexdigest()}"


def plan_etag(plan_id: UUID, schema_version: int) -> str:
    """Strong entity tag of a plan: its bytes never change, so its name is enough."""
    return f'"{plan_id.hex}.{schema_version}"'
