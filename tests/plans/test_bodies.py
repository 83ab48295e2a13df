"""Plans kept in the process: the same bytes, within a size, never across teams."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from service.plans.bodies import PlanBodies, Retirements
from service.plans.repository import StoredBody

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))


@pytest.fixture
def store():
    """Plans of 10 bytes by team and id, and the reads that reached the database."""
    plans = {("a", each): StoredBody(bytes([each.int]) * 10, 1) for each in (ONE, TWO, THREE)}
    reads = []

    async def read(team, plan_id):
        reads.append((team, plan_id))
        return plans.get((team, plan_id))

    return plans, reads, read


async def test_a_plan_is_read_once_and_then_kept(store):
    plans, reads, read = store
    kept = PlanBodies(read)
    assert await kept.find("a", ONE) == plans["a", ONE]
    assert await kept.find("a", ONE) == plans["a", ONE]
    assert reads == [("a", ONE)]


async def test_what_one_team_has_read_no_other_team_is_given(store):
    _, _, read = store
    kept = PlanBodies(read)
    await kept.find("a", ONE)
    assert await kept.find("b", ONE) is None


async def test_a_plan_that_was_not_there_is_found_once_it_is(store):
    plans, _, read = store
    kept = PlanBodies(read)
    assert await kept.find("b", ONE) is None
    plans["b", ONE] = StoredBody(b"new", 1)
    assert await kept.find("b", ONE) == plans["b", ONE]


async def test_the_plan_read_longest_ago_makes_room(store):
    _, reads, read = store
    kept = PlanBodies(read, kept_bytes=25)  # two plans of 10 bytes
    for plan_id in (ONE, TWO, ONE, THREE, ONE, TWO):
        await kept.find("a", plan_id)
    assert [plan_id for _, plan_id in reads] == [ONE, TWO, THREE, TWO]


async def test_a_plan_larger_than_the_room_is_not_kept(store):
    _, reads, read = store
    kept = PlanBodies(read, kept_bytes=9)
    await kept.find("a", ONE)
    await kept.find("a", ONE)
    assert len(reads) == 2


BODY = b'{"id":"x","catalog_release":{"version":"2026.11.1","digest":"sha256:0"},"totals":null}'
DAY = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept_s", "known_later"),
    [(0.0, DAY), (3600.0, None)],
    ids=["at once", "within the hour"],
)
async def test_a_retirement_is_known_once_what_was_read_is_too_old(kept_s, known_later):
    days = {}

    async def read():
        return dict(days)

    retirements = Retirements(read, kept_s=kept_s)
    assert await retirements.of_plan(BODY) is None
    days["2026.11.1"] = DAY
    assert await retirements.of_plan(BODY) == known_later


async def test_a_plan_on_another_release_is_not_said_to_rest_on_a_retired_one():
    async def read():
        return {"2026.10.1": DAY}

    assert await Retirements(read).of_plan(BODY) is None
