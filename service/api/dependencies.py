"""What handlers ask for by name: who calls, the session of the request, how to open more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from litestar import Request
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import SkipValidation

from service.access.scopes import Caller
from service.api.downloads import csv_form
from service.db.session import team_session
from service.plans.idempotency import HoldNumber
from service.plans.repository import OpenSession, Session

RequestCaller = NamedDependency[Caller]


async def _caller(request: Request[Any, Any, Any]) -> Caller:
    """Tell who sends the request, as `authorize` has found out."""
    caller: Caller = request.auth
    return caller


async def _session(state: State, caller: RequestCaller) -> AsyncIterator[Session]:
    """Open the one transaction of a request; it ends before the answer is sent.

    What the handler raises rolls it back.
    """
    async with team_session(state.engine, caller.team) as session:
        yield session


async def _open_session(state: State, caller: RequestCaller) -> OpenSession:
    """Give a stream the means to open transactions after the request's own has ended."""
    return partial(team_session, state.engine, caller.team)


async def _hold(state: State) -> HoldNumber:
    """Give a request the means to keep other workers from the same work."""
    hold: HoldNumber = state.locks.hold
    return hold


DEPENDENCIES = {
    "caller": Provide(_caller),
    "session": Provide(_session),
    "open_session": Provide(_open_session),
    "form": Provide(csv_form),
    "hold": Provide(_hold),
}
RequestSession = NamedDependency[Session]
NumberHolder = NamedDependency[SkipValidation[HoldNumber]]  # as below
SessionOpener = NamedDependency[SkipValidation[OpenSession]]  # a protocol, which cannot be checked
