"""A service under more load than it can bear says so soon, and says that it lives."""

import asyncio
import contextlib
import json
import threading
import time
from pathlib import Path

import httpx
import pytest

from service.api.v1 import plan_making
from service.app import create_app
from service.core.planners.plan import estimate_fleet
from service.db.session import POOL_SIZE, POOL_WAIT_S, team_session
from service.plans import beside
from service.plans.beside import MAX_WAITING, THREADS, WORKSHOP, Workshop
from service.settings import Settings

pytestmark = pytest.mark.anyio

REQUEST = json.loads(
    (Path(__file__).resolve().parents[2] / "openapi/examples/create_plan.request.json").read_text()
)


class Gate:
    """Estimates that end when they are let."""

    def __init__(self):
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, scenario, *, snapshot):
        self.began.set()
        assert self.may_end.wait(timeout=60)
        return estimate_fleet(scenario, snapshot=snapshot)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setattr(plan_making, "estimate_fleet", gate)
    monkeypatch.setattr(beside, "WORKSHOP", Workshop(limit_s=60))
    yield gate
    gate.may_end.set()


@pytest.fixture
async def app(server, published, monkeypatch):
    monkeypatch.setattr(WORKSHOP, "limit_s", WORKSHOP.limit_s)  # to have it back afterwards
    with server.clone(template=published) as database:
        app = create_app(Settings(database_url=database.service_url, access_mode="open"))
        async with app.lifespan():
            yield app


@pytest.fixture
async def local(app):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=60
    ) as client:
        yield client


def assert_unavailable(response, kind="unavailable"):
    assert (response.status_code, response.json()["type"]) == (503, f"/problems/{kind}")
    assert int(response.headers["retry-after"]) >= 1


async def test_requests_are_told_to_come_back_when_no_connection_is_free(app, local):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(POOL_SIZE):
            await stack.enter_async_context(team_session(app.state.engine, "local"))
        began = time.monotonic()
        assert_unavailable(await local.get("/v1/plans"))
        assert_unavailable(await local.post("/v1/plans", json=REQUEST))
        # The first rows are read before the answer begins: it is no table that breaks off.
        assert_unavailable(await local.get("/v1/plans.csv"))
        assert 3 * POOL_WAIT_S <= time.monotonic() - began < 6 * POOL_WAIT_S
        assert (await local.get("/health/ready")).status_code == 200
    assert (await local.get("/v1/plans")).status_code == 200


async def test_estimates_hold_no_connection(app, local, gate):
    """As many as may be at work and wait: more than the pool has connections."""
    count = THREADS + MAX_WAITING
    assert count > POOL_SIZE
    posts = [asyncio.create_task(local.post("/v1/plans", json=REQUEST)) for _ in range(count)]
    async with asyncio.timeout(60):
        while beside.WORKSHOP._places.acquire(blocking=False):
            beside.WORKSHOP._places.release()
            await asyncio.to_thread(time.sleep, 0.05)
        assert (await local.get("/v1/plans")).status_code == 200
        assert (await local.get("/health/ready")).status_code == 200
        while app.state.engine.pool.checkedout():
            await asyncio.to_thread(time.sleep, 0.01)
        assert_unavailable(await local.post("/v1/plans", json=REQUEST))
    gate.may_end.set()
    assert {(await post).status_code for post in posts} == {201}


async def test_an_estimate_that_takes_too_long_is_given_up_and_stores_nothing(local, gate):
    beside.WORKSHOP.limit_s = 0.2
    key = {"Idempotency-Key": "k"}
    assert_unavailable(
        await local.post("/v1/plans", json=REQUEST, headers=key), "estimate-took-too-long"
    )
    gate.may_end.set()
    beside.WORKSHOP.limit_s = 60
    assert (await local.get("/v1/plans")).json()["items"] == []
    assert (await local.post("/v1/plans", json=REQUEST, headers=key)).status_code == 201


def test_the_limit_of_an_estimate_is_a_setting(monkeypatch):
    monkeypatch.setattr(WORKSHOP, "limit_s", 30.0)
    create_app(Settings.from_environment({"ESTIMATE_LIMIT_S": "7.5"}))
    assert WORKSHOP.limit_s == 7.5


async def test_a_request_in_flight_says_when_to_come_back_and_replays_never_do(local, gate):
    key = {"Idempotency-Key": "k"}
    first = asyncio.create_task(local.post("/v1/plans", json=REQUEST, headers=key))
    await asyncio.to_thread(gate.began.wait, 60)
    second = await local.post("/v1/plans", json=REQUEST, headers=key)
    assert (second.status_code, second.headers["retry-after"]) == (409, "1")
    assert second.json()["type"] == "/problems/request-in-flight"
    gate.may_end.set()
    made = await first
    replays = await asyncio.gather(
        *(local.post("/v1/plans", json=REQUEST, headers=key) for _ in range(8))
    )
    assert {(each.status_code, each.content) for each in replays} == {(201, made.content)}
