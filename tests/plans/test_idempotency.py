"""A request may be sent twice under one key; it is answered once."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from service.core.plans import ReplanRequest
from service.db.locks import WorkerLocks
from service.db.session import connect
from service.plans import repository
from service.plans.create import Making
from service.plans.errors import IdempotencyKeyReused, InvalidIdempotencyKey, RequestInFlight
from service.plans.replan import replan
from tests.plans.conftest import estimator, load_snapshot
from tests.plans.examples import ASSUMPTIONS, NOON, REQUEST, estimate, request


async def test_the_same_request_gets_the_same_answer(store):
    first = await store.make(idempotency_key="k")
    second = await store.make(idempotency_key="k")
    assert (first.created, second.created) == (True, False)
    assert (second.id, second.body, second.etag) == (first.id, first.body, first.etag)
    assert await store.count() == 1


async def test_the_same_request_in_another_order_is_the_same(store):
    first = await store.make(idempotency_key="k")
    turned = request(**dict(reversed(REQUEST.items())))
    assert (await store.make(turned, idempotency_key="k")).id == first.id


async def test_without_a_key_every_request_makes_a_plan(store):
    first, second = await store.make(), await store.make()
    assert first.id != second.id
    assert await store.count() == 2


async def test_another_request_under_the_key_is_refused(store):
    await store.make(idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused, match="24 hours"):
        await store.make(request(name="other"), idempotency_key="k")
    assert await store.count() == 1


async def test_keys_belong_to_their_team(store):
    red = await store.make(idempotency_key="k", team="red")
    blue = await store.make(request(name="other"), idempotency_key="k", team="blue")
    assert red.id != blue.id


@pytest.mark.parametrize(
    ("hours", "created"), [(timedelta(hours=23, minutes=59), False), (timedelta(hours=24), True)]
)
async def test_a_key_lives_for_24_hours(store, hours, created):
    first = await store.make(idempotency_key="k", now=NOON)
    again = await store.make(idempotency_key="k", now=NOON + hours)
    assert again.created is created
    assert (again.id != first.id) is created


async def test_a_key_that_ran_out_may_stand_for_another_request(store):
    await store.make(idempotency_key="k", now=NOON)
    day_later = NOON + timedelta(days=1)
    other = await store.make(request(name="other"), idempotency_key="k", now=day_later)
    again = await store.make(request(name="other"), idempotency_key="k", now=day_later)
    assert (other.created, again.id) == (True, other.id)


async def test_keys_that_ran_out_are_dropped(store):
    for number in range(3):
        await store.make(idempotency_key=f"old {number}", now=NOON)
    await store.make(idempotency_key="others", now=NOON, team="blue")
    await store.make(idempotency_key="new", now=NOON + timedelta(days=2))
    assert await store.count("idempotency_key") == 1
    assert await store.count("idempotency_key", team="blue") == 1
    assert await store.count() == 4  # their plans stay


async def test_keys_that_another_request_is_dropping_are_not_waited_for(store):
    await store.make(idempotency_key="old", now=NOON)
    async with store.session() as first:
        await repository.drop_keys(first, "red", until=NOON)
        async with asyncio.timeout(10), store.session() as second:
            await repository.drop_keys(second, "red", until=NOON)
    assert await store.count("idempotency_key") == 0


async def test_a_request_that_failed_leaves_its_key_free(store):
    def fail(scenario, *, snapshot):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.make(idempotency_key="k", estimate=fail)
    assert (await store.make(request(name="other"), idempotency_key="k")).created


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\t", "line\n", "ü", "\x7f", "\x00"])
async def test_a_key_of_the_wrong_form_is_refused(store, key):
    with pytest.raises(InvalidIdempotencyKey):
        await store.make(idempotency_key=key)
    assert await store.count() == 0


@pytest.mark.parametrize("key", ["x", "x" * 255, "a b", "'; --", "~!"])
async def test_any_printable_key_is_taken(store, key):
    first = await store.make(idempotency_key=key)
    assert (await store.make(idempotency_key=key)).id == first.id


class Gate:
    """An estimate that tells when it began and ends when it is let."""

    def __init__(self):
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, scenario, *, snapshot):
        self.began.set()
        assert self.may_end.wait(timeout=30)
        return estimate(), ASSUMPTIONS


async def test_a_request_in_flight_is_told_so_until_it_is_answered(store):
    gate = Gate()
    first = asyncio.create_task(store.make(idempotency_key="k", estimate=gate))
    await asyncio.to_thread(gate.began.wait, 30)
    for body in (request(), request(name="other")):
        with pytest.raises(RequestInFlight):
            await store.make(body, idempotency_key="k")
    other_team = await store.make(idempotency_key="k", team="blue")
    other_key = await store.make(idempotency_key="K")
    gate.may_end.set()
    answered = await first
    assert other_team.created
    assert other_key.created
    assert (await store.make(idempotency_key="k")).id == answered.id


@contextlib.asynccontextmanager
async def worker_of(database):
    """The locks of another worker."""
    locks = WorkerLocks(partial(connect, database.service_url))
    yield locks
    await locks.close()


async def test_another_worker_knows_what_is_in_flight_until_that_worker_dies(store, database):
    gate = Gate()
    async with worker_of(database) as other:
        first = asyncio.create_task(store.make(idempotency_key="k", estimate=gate))
        await asyncio.to_thread(gate.began.wait, 30)
        with pytest.raises(RequestInFlight):
            await store.make(idempotency_key="k", hold=other.hold)
        store.locks._connection.terminate()  # as the end of its process would
        # The server frees the lock once it notices.
        deadline = time.monotonic() + 10
        while True:
            try:
                quicker = await store.make(idempotency_key="k", hold=other.hold)
                break
            except RequestInFlight:
                assert time.monotonic() < deadline
        gate.may_end.set()
        # Whoever stores last answers with what is stored.
        slower = await first
    assert (quicker.created, slower.created) == (True, False)
    assert (slower.id, slower.body) == (quicker.id, quicker.body)
    assert await store.count() == 1
    assert await store.count("idempotency_key") == 1


async def test_the_slower_of_two_different_requests_under_a_key_is_refused(store, database):
    gate = Gate()
    async with worker_of(database) as other:
        first = asyncio.create_task(store.make(idempotency_key="k", estimate=gate))
        await asyncio.to_thread(gate.began.wait, 30)
        store.locks._connection.terminate()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(RequestInFlight):
                await store.make(request(name="other"), idempotency_key="k", hold=other.hold)
                break
        gate.may_end.set()
        with pytest.raises(IdempotencyKeyReused):
            await first
    assert await store.count() == 1


async def test_replays_at_once_of_what_is_answered_all_get_its_plan(store):
    made = await store.make(idempotency_key="k")
    replays = await asyncio.gather(*(store.make(idempotency_key="k") for _ in range(12)))
    assert {replay.id for replay in replays} == {made.id}
    assert not any(replay.created for replay in replays)


async def test_a_lock_is_free_again_after_its_request_was_cancelled(store):
    gate = Gate()
    first = asyncio.create_task(store.make(idempotency_key="k", estimate=gate))
    await asyncio.to_thread(gate.began.wait, 30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.may_end.set()
    assert (await store.make(idempotency_key="k")).created


async def test_requests_at_once_make_one_plan(store):
    results = await asyncio.gather(
        *(store.make(idempotency_key="k") for _ in range(12)), return_exceptions=True
    )
    kinds = Counter(
        type(result).__name__ if isinstance(result, Exception) else result.created
        for result in results
    )
    assert kinds[True] == 1
    assert kinds[True] + kinds[False] + kinds["RequestInFlight"] == 12
    assert await store.count() == 1


async def test_a_replan_and_a_new_plan_are_two_requests(store):
    original = await store.make()

    async def again(key, name):
        return await replan(
            store.opener(),
            original.id,
            ReplanRequest(name=name),
            Making(
                team="red",
                estimate=estimator(estimate()),
                load_snapshot=load_snapshot,
                hold=store.locks.hold,
                idempotency_key=key,
                **store.next_identity(),
            ),
        )

    first = await again("k", "again")
    assert (await again("k", "again")).id == first.id
    with pytest.raises(IdempotencyKeyReused):
        await again("k", "other")
    # The body that the replan stands for, sent as a new plan.
    same = request(name="again", catalog_release="latest", as_of_date=None)
    with pytest.raises(IdempotencyKeyReused):
        await store.make(same, idempotency_key="k")
