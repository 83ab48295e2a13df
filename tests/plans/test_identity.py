"""Ids, digests and entity tags: the same from the same, another from another."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.plans.identity import plan_etag, request_digest, time_ordered_id
from tests.plans.examples import REQUEST, request

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Up to the year 2191, in microseconds.
INSTANTS = st.integers(0, 7 * 10**15).map(lambda n: EPOCH + timedelta(microseconds=n))
RANDOM = st.binary(min_size=8, max_size=8)


def test_an_id_is_the_one_of_the_standard():
    # RFC 9562, appendix A.6: 2022-02-22 14:22:22.00 -05:00 is 0x017F22E279B0 milliseconds.
    # The example's other bits are random; ours are 0x000 (no rest) and 0x18C4DC0C0C07398F.
    zone = timezone(timedelta(hours=-5))
    now = datetime(2022, 2, 22, 14, 22, 22, tzinfo=zone)
    made = time_ordered_id(now, bytes.fromhex("18C4DC0C0C07398F"))
    assert made == UUID("017F22E2-79B0-7000-98C4-DC0C0C07398F")


@given(INSTANTS, RANDOM)
def test_every_id_is_of_version_seven(now, random_bytes):
    made = time_ordered_id(now, random_bytes)
    assert (made.version, made.variant) == (7, RFC_4122)


@given(INSTANTS, RANDOM, RANDOM)
def test_an_id_made_a_microsecond_later_is_larger(now, first, second):
    later = now + timedelta(microseconds=1)
    assert time_ordered_id(now, first) < time_ordered_id(later, second)


def test_random_bits_tell_ids_of_one_instant_apart():
    now = datetime(2026, 11, 29, tzinfo=UTC)
    assert time_ordered_id(now, bytes(8)) != time_ordered_id(now, b"\0" * 7 + b"\1")


def test_a_digest_does_not_depend_on_the_order_of_fields():
    turned = {name: REQUEST[name] for name in reversed(REQUEST)}
    turned["scenario"] = dict(reversed(REQUEST["scenario"].items()))
    assert request_digest(request(**turned)) == request_digest(request())


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"as_of_date": "2026-11-28"},
        {"catalog_release": "latest"},  # said aloud: another request than one that leaves it out
        {"scenario": {**REQUEST["scenario"], "currency": "EUR"}},
    ],
)
def test_another_request_has_another_digest(changed):
    assert request_digest(request(**changed)) != request_digest(request())


def test_a_digest_names_its_algorithm():
    algorithm, digits = request_digest(request()).split(":")
    assert algorithm == "sha256"
    assert len(bytes.fromhex(digits)) == 32


def test_an_etag_is_quoted_and_differs_between_plans():
    first, second = plan_etag(UUID(int=1), 1), plan_etag(UUID(int=2), 1)
    assert first == '"00000000000000000000000000000001.1"'
    assert first != second
