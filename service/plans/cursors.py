"""Places in a list, as opaque text that stays valid while rows are added."""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from service.plans.errors import InvalidCursor

RowKind = Literal["lines", "quantities"]
PlanPlace = tuple[datetime, UUID]
"""Where a plan stands in a list: when it was made, and its id."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_PLACE = 2**53 - 1
"""Microseconds up to the year 2255: what is beyond was never given out."""
_LAST_POSITION = 10**9
"""Far beyond any plan, and far enough below what an integer column can be compared with."""
_PLAN = struct.Struct(">1sQ16s")
_POSITION = struct.Struct(">1sI")
_TAGS: dict[RowKind, bytes] = {"lines": b"l", "quantities": b"q"}
_PLAN_TAG = b"p"


def plan_cursor(place: PlanPlace) -> str:
    """Name the place of the last plan of a page."""
    created_at, plan_id = place
    microseconds = (created_at - _EPOCH) // timedelta(microseconds=1)
    return _text(_PLAN.pack(_PLAN_TAG, microseconds, plan_id.bytes))


def read_plan_cursor(cursor: str) -> PlanPlace:
    """Give back the place. Raises InvalidCursor."""
    tag, microseconds, plan_id = _unpack(_PLAN, cursor)
    if tag != _PLAN_TAG or microseconds > _LAST_PLACE:
        raise InvalidCursor
    return _EPOCH + timedelta(microseconds=microseconds), UUID(bytes=plan_id)


def row_cursor(kind: RowKind, position: int) -> str:
    """Name the place of the last line or quantity of a page."""
    return _text(_POSITION.pack(_TAGS[kind], position))


def read_row_cursor(kind: RowKind, cursor: str) -> int:
    """Give back the position. Raises InvalidCursor, also for a cursor of another list."""
    tag, position = _unpack(_POSITION, cursor)
    if tag != _TAGS[kind] or position > _LAST_POSITION:
        raise InvalidCursor
    return int(position)


def _text(packed: bytes) -> str:
    return urlsafe_b64encode(packed).decode().rstrip("=")


def _unpack(layout: struct.Struct, cursor: str) -> tuple[Any, ...]:
    try:
        packed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        fields = layout.unpack(packed)
    except (ValueError, struct.error):
        raise InvalidCursor from None
    if _text(packed) != cursor:  # the decoder passes over characters outside of its alphabet
        raise InvalidCursor
    return fields
