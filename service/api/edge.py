"""The outermost layer: what holds for every request, whether a route exists for it or not.

Litestar routes before its middleware runs, so HEAD, OPTIONS and the host check wrap the whole
application. Each function takes an ASGI application and returns one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from secrets import token_hex
from typing import Any

import structlog

from service.api.metrics import count_request
from service.api.problems import (
    PROBLEM_MEDIA_TYPE,
    REQUEST_ID,
    ProblemError,
    ProblemKind,
    problem_document,
)

# ASGI's scopes and messages are plain dicts whose keys depend on their type.
Scope = Any
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
HOST_PATTERN = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
# A method that no route has: the router answers it with the methods that it does have.
PROBE_METHOD = "TRACE"

OF_THE_BODY = frozenset({b"content-length", b"content-type"})
REFUSED_BODY_LIMIT_BYTES = 32 * 2**20
REFUSED_BODY_LIMIT_S = 5.0

log = structlog.get_logger(__name__)


def _header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Read the values of a header; ASGI hands names over in lower case."""
    return [value.decode("latin-1") for key, value in headers if key == name]


async def _send_problem(send: Send, scope: Scope, error: ProblemError) -> None:
    body = problem_document(error, scope.get(REQUEST_ID))
    headers = [
        (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": error.kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def observe(inner: ASGIApp) -> ASGIApp:
    """Give the request an id, and leave one line in the log and one count in the metrics.

    Neither holds a body, a query or a header: a scenario is its owner's business.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        given = "".join(_header_values(scope["headers"], b"x-request-id"))
        request_id = given if REQUEST_ID_PATTERN.fullmatch(given) else token_hex(16)
        scope[REQUEST_ID] = request_id
        method, started, status = scope["method"], time.perf_counter(), 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            await inner(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - started
            route = str(scope.get("path_template") or "unmatched")
            count_request(method, route, status, seconds)
            log.info(
                "request",
                request_id=request_id,
                method=method,
                route=route,
                status=status,
                duration_ms=round(1000 * seconds, 1),
            )

    return app


def check_host(inner: ASGIApp, allowed_hosts: Iterable[str]) -> ASGIApp:
    """Refuse host names that are not ours, so that no web page reaches the service by DNS.

    A page on a foreign name can point that name at 127.0.0.1; its requests then carry that name.
    """
    allowed = LOOPBACK_HOSTS | {host.lower() for host in allowed_hosts}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        hosts = _header_values(scope["headers"], b"host")
        match = HOST_PATTERN.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match and match["name"].lower() in allowed:
            await inner(scope, receive, send)
            return
        detail = "The Host header must be localhost, 127.0.0.1, [::1] or a configured name."
        await _send_problem(send, scope, ProblemError(ProblemKind.WRONG_HOST, detail))

    return app


def join_conditions(inner: ASGIApp) -> ASGIApp:
    """Make one line of the lines of If-Match, which is a list (RFC 9110, 5.3).

    The router reads one line alone.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        lines = _header_values(scope["headers"], b"if-match")
        if len(lines) > 1:
            joined = (b"if-match", ", ".join(lines).encode("latin-1"))
            others = [pair for pair in scope["headers"] if pair[0] != b"if-match"]
            scope["headers"] = [*others, joined]
        await inner(scope, receive, send)

    return app


def answer_head_and_options(inner: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET without its body, and OPTIONS with the methods of the address."""

    async def answer_head(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        scope["method"] = "GET"
        await inner(scope, receive, send_without_body)

    async def answer_options(scope: Scope, receive: Receive, send: Send) -> None:
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        scope["method"] = PROBE_METHOD
        await inner(scope, receive, keep)
        start = answer[0]
        if start["status"] == 405:
            headers = [(name, value) for name, value in start["headers"] if name == b"allow"]
            answer = [
                {"type": "http.response.start", "status": 204, "headers": headers},
                {"type": "http.response.body", "body": b"", "more_body": False},
            ]
        for message in answer:
            await send(message)

    answers = {"HEAD": answer_head, "OPTIONS": answer_options}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answers.get(scope["method"], inner)(scope, receive, send)

    return app


def read_refused_bodies(inner: ASGIApp) -> ASGIApp:
    """Read what is left of a body before refusing it, within bounds.

    A server that answers and closes while the caller still sends makes the caller's system drop
    the answer: a refusal that is never read.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ended = False

        async def receive_part() -> Message:
            nonlocal ended
            message = await receive()
            ended = not message.get("more_body", False)
            return message

        async def read_rest() -> None:
            size = 0
            while not ended and size < REFUSED_BODY_LIMIT_BYTES:
                size += len((await receive_part()).get("body", b""))

        async def send_after_body(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400 and not ended:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(read_rest(), REFUSED_BODY_LIMIT_S)
            await send(message)

        await inner(scope, receive_part, send_after_body)

    return app


def entity_tag(body: bytes) -> str:
    """Make the strong entity tag of a body."""
    return f'"{sha256(body).hexdigest()[:32]}"'


def _names(header: str, tag: str) -> bool:
    """Tell whether If-None-Match names a tag, by weak comparison (RFC 9110, 13.1.2)."""
    given = {each.strip() for each in header.split(",")}
    return "*" in given or tag in {each.removeprefix("W/") for each in given}


def _tag(start: Message, body: bytes) -> str:
    """Give the tag that an answer has, or give it one."""
    given = _header_values(start["headers"], b"etag")
    if not given:
        given = [entity_tag(body)]
        start["headers"].append((b"etag", given[0].encode()))
    return given[0]


def tag_answers(inner: ASGIApp) -> ASGIApp:
    """Tag whole answers, and answer 304 where the caller already has the same.

    An answer sent in pieces passes untouched: its tag would be known only after its last piece.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reading = scope["method"] == "GET"
        held: Message | None = None

        async def tag(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and (
                message["status"] == 201 or (reading and message["status"] == 200)
            ):
                held = message
                return
            if held is not None and message["type"] == "http.response.body":
                start, held = held, None
                if not message["more_body"]:
                    tag_of = _tag(start, message["body"])
                    known = ",".join(_header_values(scope["headers"], b"if-none-match"))
                    if reading and known and _names(known, tag_of):
                        start["status"] = 304
                        start["headers"] = [
                            pair for pair in start["headers"] if pair[0] not in OF_THE_BODY
                        ]
                        message["body"] = b""
                await send(start)
            await send(message)

        await inner(scope, receive, tag)

    return app


def wrap(inner: ASGIApp, *, allowed_hosts: Iterable[str]) -> ASGIApp:
    """Put the whole edge around an application."""
    asked = answer_head_and_options(join_conditions(tag_answers(inner)))
    answering = check_host(asked, allowed_hosts)
    http = observe(read_refused_bodies(answering))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (http if scope["type"] == "http" else inner)(scope, receive, send)

    return app
