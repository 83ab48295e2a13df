"""Cursors come back as they went out; nothing else is taken for one."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.plans.cursors import plan_cursor, read_plan_cursor, read_row_cursor, row_cursor
from service.plans.errors import InvalidCursor

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACE = (datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC), UUID(int=7))


@given(
    st.integers(0, 7 * 10**15).map(lambda n: EPOCH + timedelta(microseconds=n)),
    st.uuids(),
)
def test_a_place_comes_back_to_the_microsecond(created_at, plan_id):
    assert read_plan_cursor(plan_cursor((created_at, plan_id))) == (created_at, plan_id)


@given(st.integers(0, 10**9), st.sampled_from(["lines", "quantities"]))
def test_a_position_comes_back(position, kind):
    assert read_row_cursor(kind, row_cursor(kind, position)) == position


def test_a_cursor_can_stand_in_an_address_unescaped():
    assert plan_cursor(PLACE).replace("-", "a").replace("_", "a").isalnum()


def test_a_cursor_of_another_list_is_refused():
    for read in (lambda c: read_row_cursor("quantities", c), read_plan_cursor):
        with pytest.raises(InvalidCursor):
            read(row_cursor("lines", 5))
    with pytest.raises(InvalidCursor):
        read_row_cursor("lines", plan_cursor(PLACE))


MALFORMED = ["", "=", "a", "x" * 10_000, "ü", "\x00", "!!!!", " ", "bAAAAAU\n", "////////", "%00"]


@pytest.mark.parametrize("cursor", MALFORMED)
def test_malformed_text_is_refused(cursor):
    with pytest.raises(InvalidCursor):
        read_plan_cursor(cursor)
    with pytest.raises(InvalidCursor):
        read_row_cursor("lines", cursor)


def reads_or_refuses(read, cursor):
    try:
        return read(cursor)
    except InvalidCursor:
        return None


@given(st.text() | st.text("AB-_bp019", min_size=30, max_size=36))
def test_any_text_is_read_or_refused(cursor):
    place = reads_or_refuses(read_plan_cursor, cursor)
    assert place is None or plan_cursor(place) == cursor


@given(st.binary(min_size=25, max_size=25), st.binary(min_size=5, max_size=5))
def test_any_bytes_of_the_right_length_are_read_or_refused(long, short):
    cursor = urlsafe_b64encode(b"p" + long[1:]).decode().rstrip("=")
    place = reads_or_refuses(read_plan_cursor, cursor)
    assert place is None or place[0].year <= 2255  # what the database can be asked for
    cursor = urlsafe_b64encode(b"l" + short[1:]).decode().rstrip("=")
    position = reads_or_refuses(lambda c: read_row_cursor("lines", c), cursor)
    assert position is None or 0 <= position <= 10**9
