"""Work beside the event loop: in few threads, with a bound on what waits and on how long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import BoundedSemaphore
from typing import ParamSpec, TypeVar

from service.plans.errors import TookTooLong, TooMuchAtOnce

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

THREADS = 2
"""Estimates hold the interpreter's lock most of the time: more threads would only wait for it."""
MAX_WAITING = 16
"""Estimates that may wait for a thread: the next one is told at once to come back."""


class Workshop:
    """The threads of a process, and who may still come in."""

    def __init__(self, *, limit_s: float = 30.0) -> None:
        self.limit_s = limit_s
        """Seconds after which an answer is no longer waited for, the time in the queue included."""
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="estimate")
        self._places = BoundedSemaphore(THREADS + MAX_WAITING)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread. Raises TooMuchAtOnce, TookTooLong."""
        if not self._places.acquire(blocking=False):
            raise TooMuchAtOnce
        future: Future[Result] = self._threads.submit(work)
        # A thread cannot be ended: its place is free when it ends by itself.
        future.add_done_callback(lambda _: self._places.release())
        limit = asyncio.timeout(self.limit_s)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if not limit.expired():
                raise
            never_began = future.cancel()
            raise (TooMuchAtOnce() if never_began else TookTooLong(self.limit_s)) from error


WORKSHOP = Workshop()


async def run_beside_the_loop(
    work: Callable[Arguments, Result], *given: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Run work in a thread of its own: the event loop goes on answering others.

    No transaction may be open meanwhile: its connection would wait with it.

    Raises:
        TooMuchAtOnce: as much is waiting as may wait.
        TookTooLong: the work is not done within the limit.
    """
    return await WORKSHOP.run(partial(work, *given, **named))
