"""Who may call: what an address asks of its caller, checked before anything else is looked at.

What an address asks for stands in its options, from which its description is made as well. Not in
Litestar's `security`, to which a handler can only add alternatives.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from litestar import Request

from service.access.keys import KEY_PATTERN, KEY_PREFIX, hash_of
from service.access.repository import find_caller
from service.access.scopes import MEANINGS, Caller, Scope
from service.api.problems import ProblemError, ProblemKind

SCHEME = "bearer"
SECURITY_SCHEMES = {
    SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": f"{KEY_PREFIX}...",
        "description": "An API key, which belongs to one team. Each operation names the scopes it"
        " needs: "
        + "; ".join(f"`{scope}` to {meaning}" for scope, meaning in MEANINGS.items())
        + ". A service in open mode looks at no key: every caller acts as one team.",
    }
}
SCOPES = "scopes"
"""Option of a handler or router: the scopes a key must have; without it, no key is asked for."""
OPEN_ON_LOOPBACK = "open_on_loopback"
"""Option of a handler that asks nothing of callers on this machine."""
CHALLENGE = 'Bearer realm="gpuplan"'


def needs(*scopes: Scope) -> dict[str, Any]:
    """Ask for a key with all of these scopes; what a handler asks for replaces its router's."""
    return {SCOPES: tuple(str(scope) for scope in scopes)}


async def authorize(request: Request[Any, Any, Any]) -> None:
    """Refuse a caller who may not do this, and keep who calls as `request.auth`.

    Raises:
        ProblemError: the key is missing or not valid, or lacks a scope.
    """
    options = request.route_handler.opt
    scopes = options.get(SCOPES)
    if scopes is None or (options.get(OPEN_ON_LOOPBACK) and _is_on_loopback(request)):
        return
    caller: Caller = request.app.state.open_caller or await _caller(request)
    if missing := [scope for scope in scopes if scope not in caller.scopes]:
        raise ProblemError(
            ProblemKind.MISSING_SCOPE,
            f"The API key lacks {' and '.join(missing)}.",
            headers={
                "WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope",'
                f' scope="{" ".join(scopes)}"'
            },
        )
    request.scope["auth"] = caller


def _is_on_loopback(request: Request[Any, Any, Any]) -> bool:
    """Tell where the connection comes from; for a caller behind a proxy, where the proxy is."""
    return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback


async def _caller(request: Request[Any, Any, Any]) -> Caller:
    given = request.headers.getall("authorization", [])
    if not given:
        raise ProblemError(
            ProblemKind.UNAUTHENTICATED,
            "Send an API key: Authorization: Bearer <key>.",
            headers={"WWW-Authenticate": CHALLENGE},
        )
    scheme, _, key = given[0].partition(" ")
    if len(given) == 1 and scheme.lower() == "bearer" and KEY_PATTERN.fullmatch(key):
        caller = await find_caller(request.app.state.read_pool, hash_of(key))
        if caller is not None:
            return caller
    # One answer for all: which keys exist or existed is nobody's business.
    raise ProblemError(
        ProblemKind.UNAUTHENTICATED,
        "This is no valid API key: it is unknown, has expired or was revoked.",
        headers={"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"'},
    )
