"""What handlers ask for by name: the session of a request, and how to open more of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import SkipValidation

from service.db.session import team_session
from service.plans.repository import OpenSession, Session


async def _session(state: State) -> AsyncIterator[Session]:
    """Open the one transaction of a request; it ends before the answer is sent.

    What the handler raises rolls it back.
    """
    async with team_session(state.engine, state.team) as session:
        yield session


async def _open_session(state: State) -> OpenSession:
    """Give a stream the means to open transactions after the request's own has ended."""
    return partial(team_session, state.engine, state.team)


DEPENDENCIES = {"session": Provide(_session), "open_session": Provide(_open_session)}
RequestSession = NamedDependency[Session]
SessionOpener = NamedDependency[SkipValidation[OpenSession]]  # a protocol, which cannot be checked
