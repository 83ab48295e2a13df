"""What is checked of every routed request before its handler runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from litestar import Request

from service.api.access import authorize
from service.api.problems import FieldProblem, ProblemError, ProblemKind

JSON_MEDIA_TYPE = "application/json"
ID_PATTERN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# RFC 9110, 8.3.1: parameters are tokens or quoted text. Litestar drops those that it cannot read.
WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
PARAMETER = rf'[ \t]*;[ \t]*(?:{WORD}=(?:{WORD}|"[ !#-\[\]-~]*"))?'
CONTENT_TYPE = re.compile(rf"{JSON_MEDIA_TYPE}(?:{PARAMETER})*[ \t]*", re.IGNORECASE)
CHARSET = re.compile(r';[ \t]*charset="?([^";]*?)"?[ \t]*(?=;|$)', re.IGNORECASE)


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema["type"] == "string" and "format" not in schema


def _check_query(request: Request[Any, Any, Any], known: Mapping[str, Mapping[str, Any]]) -> None:
    query = request.scope["query_string"].decode("latin-1")
    if not query:
        return
    pairs = parse_qsl(query, keep_blank_values=True)
    counts = Counter(name for name, _ in pairs)
    errors = [
        FieldProblem(
            parameter=name,
            detail="This parameter is given more than once."
            if name in known
            else "This address has no such parameter.",
        )
        for name, count in counts.items()
        if name not in known or count > 1
    ]
    if errors:
        detail = f"The query string is not acceptable; known here: {sorted(known) or 'none'}."
        raise ProblemError(ProblemKind.MALFORMED_QUERY, detail, errors=errors)
    for name, value in pairs:
        # Litestar reads the word as no value at all; whoever has none leaves the parameter out.
        if value.lower() == "null" and not _is_text(known[name]):
            error = FieldProblem(parameter=name, detail='"null" is no value of this parameter.')
            detail = "A parameter is not acceptable; see errors."
            raise ProblemError(ProblemKind.VALIDATION, detail, errors=[error])


def _check_ids(request: Request[Any, Any, Any], known: Mapping[str, Mapping[str, Any]]) -> None:
    """Take ids as they are given out, in lower case with dashes; Python reads other forms too."""
    steps = request.scope["path"].split("/")
    for value in request.path_params.values():
        if isinstance(value, UUID) and str(value) not in steps:
            detail = f"There is nothing at this address; the id is written {value}."
            raise ProblemError(ProblemKind.NOT_FOUND, detail)
    # Reading the parameters costs more than all other checks of a request that has none.
    query = request.query_params.items() if request.scope["query_string"] else ()
    for name, text in query:
        if known.get(name, {}).get("format") == "uuid" and not ID_PATTERN.fullmatch(text):
            error = FieldProblem(
                parameter=name, detail="This should be an id: lower case, with dashes."
            )
            detail = "A parameter is not acceptable; see errors."
            raise ProblemError(ProblemKind.VALIDATION, detail, errors=[error])


def _check_headers(request: Request[Any, Any, Any]) -> None:
    """Refuse two names for one request: whichever were taken, the caller may mean the other."""
    if len(request.headers.getall("idempotency-key", [])) > 1:
        error = FieldProblem(
            parameter="Idempotency-Key", detail="This header is given more than once."
        )
        detail = "A header is not acceptable; see errors."
        raise ProblemError(ProblemKind.MALFORMED_REQUEST, detail, errors=[error])


async def _check_body(request: Request[Any, Any, Any]) -> None:
    content_types = request.headers.getall("content-type", [])
    is_json = len(content_types) == 1 and CONTENT_TYPE.fullmatch(content_types[0])
    charsets = {name.lower() for each in content_types for name in CHARSET.findall(each)}
    encodings = {each.lower() for each in request.headers.getall("content-encoding", [])}
    if not is_json or charsets - {"utf-8"} or encodings - {"identity"}:
        raise ProblemError(
            ProblemKind.UNSUPPORTED_MEDIA_TYPE,
            f"Send {JSON_MEDIA_TYPE} in UTF-8 without content encoding.",
            headers={"Accept": JSON_MEDIA_TYPE},
        )
    if not await request.body():
        raise ProblemError(ProblemKind.MALFORMED_BODY, "The body is empty; a JSON object is due.")


def request_checks(
    known_parameters: Mapping[str, Mapping[str, Any]],
) -> Callable[[Request[Any, Any, Any]], Awaitable[None]]:
    """Make the hook that runs before each handler.

    Args:
        known_parameters: the query parameters of each operation with their schemas, by its id.
    """

    async def check(request: Request[Any, Any, Any]) -> None:
        await authorize(request)
        handler = request.route_handler
        known = known_parameters.get(str(handler.operation_id), {})
        _check_query(request, known)
        _check_ids(request, known)
        _check_headers(request)
        if "data" in handler.parsed_fn_signature.parameters:
            await _check_body(request)

    return check
