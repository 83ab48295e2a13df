"""Request bodies: strict JSON in, core values out, each fault with a pointer to its place.

Parsers differ in what they let through: NaN, 1e999, a key given twice. A proxy and the service
must never read one body in two ways, so all of that is refused here.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from litestar import Request
from litestar.plugins.pydantic import PydanticInitPlugin
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from service.api.problems import MAX_LISTED_ERRORS, FieldProblem, ProblemError, ProblemKind
from service.core.value import KEY_PATTERN, Value

ValueT = TypeVar("ValueT", bound=Value)

JSON_WORDS = (
    (re.compile(r"a valid tuple|a valid (frozen)?set"), "a valid list"),
    (re.compile(r"a valid dictionary( or instance of \w+| or object to extract .*)?"), "an object"),
    (re.compile(r"^(Tuple|Frozenset|Set) should"), "List should"),
    (re.compile(r"^Dictionary should"), "Object should"),
    (re.compile(r" after validation"), ""),
)
"""What the validator calls by the names of Python, and what JSON calls it."""
MAX_MEMBERS = 1000
"""Items of one list, and members of one object, at most; most fields publish less."""


class _Fault:
    """Stands in the parsed document where something is not acceptable."""

    def __init__(self, detail: str) -> None:
        self.detail = detail


class _Reader:
    """Hooks of the JSON parser; it knows no places, so faults are left in the document."""

    def __init__(self) -> None:
        self.found_fault = False

    def _fault(self, detail: str) -> _Fault:
        self.found_fault = True
        return _Fault(detail)

    def read_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        counts = Counter(name for name, _ in pairs)
        fault = self._fault("This key is given more than once.")
        return {name: fault for name, count in counts.items() if count > 1}

    def read_float(self, text: str) -> float | _Fault:
        number = float(text)
        if math.isfinite(number):
            return number
        return self._fault("This number is beyond the largest double, about 1.798e308.")

    def read_constant(self, name: str) -> _Fault:
        return self._fault(f"{name} is not a JSON number.")


def _is_unpaired(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _places(document: object) -> Iterator[tuple[str, object]]:
    """Walk every key and value of a document with its pointer, without recursion."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        pointer, value = waiting.pop()
        yield pointer, value
        if isinstance(value, dict):
            waiting.extend((f"{pointer}/{escape(name)}", name) for name in value)
            waiting.extend((f"{pointer}/{escape(name)}", each) for name, each in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{index}", each) for index, each in enumerate(value))


def escape(name: str) -> str:
    """Write a key as one token of a JSON pointer (RFC 6901, section 3)."""
    shown = name.encode("utf-8", "replace").decode()
    return shown.replace("~", "~0").replace("/", "~1")


def _faults(document: object) -> list[FieldProblem]:
    found = []
    for pointer, value in _places(document):
        if isinstance(value, _Fault):
            found.append(FieldProblem(pointer=pointer, detail=value.detail))
        elif isinstance(value, str) and _is_unpaired(value):
            detail = "This text holds half of a surrogate pair, which is no character."
            found.append(FieldProblem(pointer=pointer, detail=detail))
    return found


def _refusal(detail: str, errors: list[FieldProblem] | None = None) -> ProblemError:
    return ProblemError(ProblemKind.MALFORMED_BODY, detail, errors=errors or ())


def parse_json(body: bytes) -> object:
    """Parse a body; whatever RFC 8259 leaves to the parser's taste is refused.

    Raises:
        ProblemError: the body is not UTF-8, not JSON, nested too deep, or holds a key twice, a
            number that is not finite or an unpaired surrogate.
    """
    reader = _Reader()
    try:
        text = body.decode("utf-8")
        document = json.loads(
            text,
            object_pairs_hook=reader.read_object,
            parse_float=reader.read_float,
            parse_constant=reader.read_constant,
        )
    except UnicodeDecodeError as error:
        raise _refusal(f"The body is not UTF-8: {error.reason} at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _refusal(f"The body is not JSON: {error.msg} at {place}.") from error
    except RecursionError as error:
        raise _refusal("The body is nested too deep.") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise _refusal("The body holds an integer of several thousand digits.") from error
    if (reader.found_fault or "\\u" in text) and (errors := _faults(document)):
        raise _refusal("The body holds what JSON does not allow; see errors.", errors)
    return document


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is read by `parse_json`."""

    async def json(self) -> object:
        """Parse the body."""
        return parse_json(await self.body())


def pointer_of(location: tuple[int | str, ...], document: object, *, missing: bool = False) -> str:
    """Turn pydantic's location of an error into a JSON pointer into the document.

    A location also names the branches of unions it went through: the tag (always the field
    `kind` here) or the name of a type. Those are no part of the document and are left out.
    """
    tokens: list[str] = []
    tagged = False
    for position, step in enumerate(location):
        last = missing and position == len(location) - 1
        if isinstance(document, list) and isinstance(step, int):
            inside = step < len(document)
            document, tagged = (document[step] if inside else None), False
        elif isinstance(document, dict) and isinstance(step, str):
            if step == document.get("kind") and not tagged and not last:
                tagged = True
                continue
            if step not in document and not last:
                continue
            document, tagged = document.get(step), False
        elif not last:
            continue
        tokens.append(escape(str(step)))
    return "".join(f"/{token}" for token in tokens)


def _field_problem(error: ErrorDetails, document: object) -> FieldProblem:
    pointer = pointer_of(error["loc"], document, missing=error["type"] == "missing")
    if KEY_PATTERN in error["msg"]:
        return FieldProblem(pointer=pointer, detail=_no_key(pointer, document))
    detail = error["msg"]
    for python, json_words in JSON_WORDS:
        detail = python.sub(json_words, detail)
    return FieldProblem(pointer=pointer, detail=detail)


def _no_key(pointer: str, document: object) -> str:
    """What a key is made of, and the one that may be meant."""
    detail = (
        "Should be a key: lower case letters, digits, points, dashes and underscores, the first a "
        "letter or a digit, 100 at most"
    )
    sent = next((value for place, value in _places(document) if place == pointer), None)
    written = re.sub("[^a-z0-9._-]+", "-", sent.lower()) if isinstance(sent, str) else ""
    near = written.strip("-._")[:100]
    return f"{detail}, such as {near!r}" if near else detail


def _refuse_crowds(document: object) -> None:
    """Refuse what is longer than any list of the API, before each of its items is looked at."""
    for pointer, value in _places(document):
        if isinstance(value, (list, dict)) and len(value) > MAX_MEMBERS:
            detail = f"This should have at most {MAX_MEMBERS} items, not {len(value)}."
            raise ProblemError(
                ProblemKind.VALIDATION,
                "A value is not acceptable; see errors.",
                errors=[FieldProblem(pointer=pointer, detail=detail)],
            )


def decode_value(value_type: type[ValueT], document: object) -> ValueT:
    """Make a core value of a parsed body.

    Raises:
        ProblemError: with one entry for each field at fault.
    """
    _refuse_crowds(document)
    try:
        return value_type.model_validate(document)
    except ValidationError as error:
        found = _without_echoes(
            error.errors(include_url=False, include_context=False, include_input=False)
        )
        errors = [_field_problem(each, document) for each in found[:MAX_LISTED_ERRORS]]
        count = f"{len(found)} values are" if len(found) > 1 else "A value is"
        detail = f"{count} not acceptable; see errors."
        raise ProblemError(ProblemKind.VALIDATION, detail, errors=errors) from error


def _without_echoes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out that a list is too short where that is only because an item was refused."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short"
        or not any(place[: len(error["loc"])] == error["loc"] != place for place in places)
    ]


def _is_value_type(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Value)


class StrictBodies(PydanticInitPlugin):
    """Litestar's plugin for pydantic, less its decoder of values, which loses an error's place."""

    @classmethod
    def decoders(
        cls, validate_strict: bool = False
    ) -> list[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]]]:
        """Try `decode_value` first; Litestar takes the first decoder that fits."""
        return [(_is_value_type, decode_value), *super().decoders(validate_strict)]
