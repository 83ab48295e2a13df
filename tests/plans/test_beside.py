"""Estimates run in few threads; what cannot be done in time is refused, not queued for ever."""

import asyncio
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from service.core.studies.runs import TrainingRunQuestion
from service.plans.beside import MAX_WAITING, THREADS, WORKSHOP, Workshop
from service.plans.errors import TookTooLong, TooMuchAtOnce
from service.plans.estimate import answer_estimate
from tests.core.training_questions import RUN
from tests.core.training_runs import snapshot


@asynccontextmanager
async def no_session():
    yield None


async def given_snapshot(*_):
    return snapshot()


async def test_what_would_wait_beyond_the_bound_is_refused_at_once():
    workshop, may_end = Workshop(), threading.Event()

    def work():
        assert may_end.wait(timeout=30)
        return 1

    accepted = [asyncio.create_task(workshop.run(work)) for _ in range(THREADS + MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(TooMuchAtOnce):
        await workshop.run(work)
    may_end.set()
    assert await asyncio.gather(*accepted) == [1] * (THREADS + MAX_WAITING)
    assert await workshop.run(work) == 1


async def test_work_that_takes_too_long_is_given_up_and_keeps_its_place_until_it_ends():
    workshop, may_end = Workshop(limit_s=0.05), threading.Event()
    running = [workshop.run(lambda: may_end.wait(timeout=30)) for _ in range(THREADS)]
    ended = await asyncio.gather(*running, return_exceptions=True)
    assert [type(each) for each in ended] == [TookTooLong] * THREADS
    assert "0.05 s" in ended[0].message
    with pytest.raises(TooMuchAtOnce):  # its turn never came
        await workshop.run(lambda: pytest.fail("was given up before it began"))
    may_end.set()
    workshop.limit_s = 30.0
    assert await workshop.run(lambda: 1) == 1


async def test_what_the_work_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await Workshop().run(lambda: 1 / 0)


async def test_places_of_requests_that_were_cancelled_come_back():
    workshop, may_end = Workshop(), threading.Event()
    tasks = [
        asyncio.create_task(workshop.run(lambda: may_end.wait(timeout=30)))
        for _ in range(THREADS + MAX_WAITING)
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # The threads are still at work; all that only waited has given up its place.
    again = [asyncio.create_task(workshop.run(lambda: 1)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*again) == [1] * MAX_WAITING


async def test_what_is_not_done_in_time_names_what_to_ask_less_of(monkeypatch):
    monkeypatch.setattr(WORKSHOP, "limit_s", 0.02)
    may_end = threading.Event()
    asked = TrainingRunQuestion.model_validate({"run": RUN})
    with pytest.raises(TookTooLong) as late:
        await answer_estimate(
            no_session,
            asked,
            lambda *_: may_end.wait(timeout=30),
            now=datetime(2026, 11, 29, tzinfo=UTC),
            load_snapshot=given_snapshot,
        )
    may_end.set()
    assert "0.02 s" in late.value.message
    assert "fewer ranked_gpus" in late.value.message
    assert "months" not in late.value.message
