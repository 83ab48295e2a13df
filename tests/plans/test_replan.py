"""A stored scenario run again: a new plan beside the old one, which stays as it is."""

import json
from uuid import UUID

import pytest

from service.core.errors import UnknownKey
from service.core.plans import ReplanRequest
from service.plans import repository
from service.plans.create import Making
from service.plans.errors import PlanNotFound
from service.plans.replan import replan
from tests.plans.conftest import load_snapshot
from tests.plans.examples import ASSUMPTIONS, REQUEST, estimate, request


class Planner:
    """Answers, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, scenario, *, snapshot):
        self.asked.append((scenario, snapshot))
        return estimate(), ASSUMPTIONS


async def run_again(store, plan_id, *, team="red", planner=None, **wanted):
    return await replan(
        store.opener(team),
        plan_id,
        ReplanRequest(**wanted),
        Making(
            team=team,
            estimate=planner or Planner(),
            load_snapshot=load_snapshot,
            hold=store.locks.hold,
            **store.next_identity(),
        ),
    )


async def test_the_same_scenario_is_run_on_another_release_and_day(store):
    old = await store.make(request(catalog_release="2026.11.1", as_of_date="2026-01-31"))
    planner = Planner()
    new = await run_again(
        store, old.id, planner=planner, catalog_release="2026.11.2", as_of_date="2026-06-30"
    )
    ((scenario, snapshot),) = planner.asked
    assert scenario == request().scenario
    assert (snapshot.release.version, snapshot.as_of_date.isoformat()) == (
        "2026.11.2",
        "2026-06-30",
    )
    document = json.loads(new.body)
    assert document["derived_from"] == str(old.id)
    assert document["catalog_release"]["version"] == "2026.11.2"
    assert document["as_of_date"] == "2026-06-30"
    assert document["scenario"] == REQUEST["scenario"]


async def test_the_old_plan_stays_as_it_is(store):
    old = await store.make()
    new = await run_again(store, old.id, name="again")
    assert new.id != old.id
    async with store.session() as session:
        assert (await repository.find_body(session, old.id)).body == old.body


async def test_the_name_the_latest_release_and_today_stand_where_nothing_is_said(store):
    old = await store.make(request(catalog_release="2026.11.1", as_of_date="2026-01-31"))
    document = json.loads((await run_again(store, old.id)).body)
    assert document["name"] == "2027 base case"
    assert document["catalog_release"]["version"] == "2026.11.2"
    assert document["as_of_date"] == "2026-11-29"


async def test_what_the_release_lacks_is_the_fault_of_the_release_asked_for(store):
    old = await store.make()

    def refuse(scenario, *, snapshot):
        raise UnknownKey("gpu", "h100", release="2026.11.2", pointer="/scenario/training_runs/0")

    with pytest.raises(UnknownKey, match=r"2026\.11\.2 has no gpu 'h100'") as caught:
        await run_again(store, old.id, planner=refuse)
    assert caught.value.pointer == "/catalog_release"
    assert await store.count() == 1


async def test_a_replan_can_be_run_again(store):
    first = await store.make()
    second = await run_again(store, first.id)
    third = await run_again(store, second.id)
    assert json.loads(third.body)["derived_from"] == str(second.id)


async def test_the_plan_of_another_team_is_not_there(store):
    theirs = await store.make(team="blue")
    for unknown in (theirs.id, UUID(int=1)):
        with pytest.raises(PlanNotFound, match=str(unknown)):
            await run_again(store, unknown)
    assert await store.count() == 0
