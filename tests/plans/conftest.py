"""A database with two catalog releases, and the ways into the store that most tests take."""

from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import insert, text

from service.db.locks import WorkerLocks
from service.db.session import connect, team_session
from service.db.tables import CatalogRelease
from service.plans.create import Making, create_plan
from service.plans.identity import time_ordered_id
from tests.plans.examples import ASSUMPTIONS, NEWER, NOON, RELEASE, estimate, request, snapshot


async def load_snapshot(session, release, as_of_date):
    """Stands in for the catalog: the newer release is the latest."""
    found = {"latest": NEWER, RELEASE.version: RELEASE, NEWER.version: NEWER}[release]
    return snapshot(found, as_of_date)


def estimator(answer):
    """Stands in for the planners: the same answer to every scenario."""

    def estimate_fleet(scenario, *, snapshot):
        return answer, ASSUMPTIONS

    return estimate_fleet


class Store:
    """The store of one database, asked by whichever team a test names."""

    def __init__(self, engine, locks=None):
        self.engine = engine
        self.locks = locks
        self.made_count = 0

    def session(self, team="red"):
        return team_session(self.engine, team)

    def opener(self, team="red"):
        return partial(self.session, team)

    def next_identity(self):
        """Each plan is made a second after the one before it."""
        self.made_count += 1
        now = NOON + timedelta(seconds=self.made_count)
        return {"now": now, "plan_id": time_ordered_id(now, self.made_count.to_bytes(8))}

    async def make(self, body=None, *, team="red", answer=None, **arguments):
        """Make a plan of the example, or of what the test gives instead."""
        values = {
            "estimate": estimator(estimate() if answer is None else answer),
            "load_snapshot": load_snapshot,
            "hold": self.locks and self.locks.hold,
            **self.next_identity(),
            **arguments,
        }
        return await create_plan(self.opener(team), body or request(), Making(team=team, **values))

    async def count(self, table="plan", *, team="red"):
        async with self.session(team) as session:
            return await session.scalar(text(f"SELECT count(*) FROM {table}"))


@pytest.fixture
async def store(engine, database):
    """The store of a database of its own, with two catalog releases."""
    async with engine.begin() as connection:
        for release in (RELEASE, NEWER):
            await connection.execute(
                insert(CatalogRelease).values(
                    version=release.version, digest=release.digest, published_at=NOON, notes=""
                )
            )
    locks = WorkerLocks(partial(connect, database.service_url))
    yield Store(engine, locks)
    await locks.close()
