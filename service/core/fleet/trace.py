"""Reading a trace of requests: when each came, how long its prompt and its answer were."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO

import numpy as np

from service.core.errors import InvalidScenario
from service.core.hours.timeline import Amounts
from service.core.value import MAX_TOKENS

COLUMNS: Sequence[frozenset[str]] = (
    frozenset({"timestamp"}),
    frozenset({"inputtokens", "contexttokens"}),
    frozenset({"outputtokens", "generatedtokens"}),
)
"""Names of the three columns without spaces, dashes and underscores, in lower case."""
LONGEST_SPAN_DAYS = 400
SEPARATORS = ",;\t"
YEARS = range(1971, 2100)
"""Years of a trace: those whose clocks are known, wherever they are."""
POINTER = "/trace_csv"


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival."""

    arrival_s: Amounts
    """Seconds since 1970, UTC."""
    input_tokens: Amounts
    output_tokens: Amounts


def read_trace(text: str) -> Trace:
    """Read CSV of three columns: timestamp, input tokens, output tokens.

    A header may name them, also as `TIMESTAMP,ContextTokens,GeneratedTokens`, in any order and
    beside others. Cells are set apart by commas, semicolons or tabs, whichever the first line has
    most of; blank lines do not count. A timestamp is ISO 8601; one without a zone is UTC.

    Raises:
        InvalidScenario: If a line cannot be read, or there are fewer than two requests.
    """
    try:
        rows = list(_rows(text))
    except csv.Error as error:
        raise InvalidScenario(f"this is not CSV: {error}", pointer=POINTER) from error
    if len(rows) < 2:
        raise InvalidScenario(
            f"a trace needs at least 2 requests, not {len(rows)}", pointer=POINTER
        )
    table = np.array(rows)
    table = table[np.argsort(table[:, 0], kind="stable")]
    if np.ptp(table[:, 0]) > LONGEST_SPAN_DAYS * 86_400:
        raise InvalidScenario(
            f"the trace spans more than {LONGEST_SPAN_DAYS} days", pointer=POINTER
        )
    return Trace(table[:, 0], table[:, 1], table[:, 2])


def _rows(text: str) -> Iterator[tuple[float, float, float]]:
    text = text.removeprefix("\ufeff")
    first = next(filter(str.strip, text.splitlines()), "")
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(StringIO(text, newline=None), delimiter=separator, strict=True)
    places, width = list[int](), 0
    for cells in reader:
        if not any(map(str.strip, cells)):
            continue
        if not places:
            found = _places_of(cells)
            places, width = found or [0, 1, 2], len(cells) if found else len(COLUMNS)
            if found:
                continue
        if len(cells) != width:
            raise _fault(reader.line_num, f"has {len(cells)} cells, not {width}")
        when, prompt, answer = (cells[place].strip() for place in places)
        yield (
            _seconds(when, reader.line_num),
            _tokens(prompt, reader.line_num),
            _tokens(answer, reader.line_num),
        )


def _places_of(cells: Sequence[str]) -> list[int] | None:
    """Where a header has the three columns; None where the line is no header."""
    names = ["".join(each for each in cell.lower() if each.isalnum()) for cell in cells]
    found = [[place for place, name in enumerate(names) if name in known] for known in COLUMNS]
    if not any(found):
        return None
    if not all(len(each) == 1 for each in found):
        raise InvalidScenario(
            "the header must name timestamp, input_tokens and output_tokens (or TIMESTAMP, "
            f"ContextTokens and GeneratedTokens) once each; it names {', '.join(cells)[:200]}",
            pointer=POINTER,
        )
    return [each[0] for each in found]


def _fault(line: int, what: str) -> InvalidScenario:
    return InvalidScenario(f"line {line} {what}", pointer=POINTER)


def _seconds(cell: str, line: int) -> float:
    try:
        when = datetime.fromisoformat(cell if cell.isprintable() else "")
    except ValueError:
        raise _fault(line, f"has no ISO timestamp: {cell[:40]!r}") from None
    if when.year not in YEARS:
        raise _fault(line, f"lies before {YEARS.start} or after {YEARS[-1]}: {cell[:40]!r}")
    zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return zoned.timestamp()


def _tokens(cell: str, line: int) -> float:
    whole, _, part = cell.partition(".")
    is_whole = whole.isascii() and whole.isdigit() and len(whole) <= len(str(MAX_TOKENS))
    if not is_whole or part.strip("0") or int(whole) > MAX_TOKENS:
        raise _fault(line, f"has no whole number of tokens: {cell[:40]!r}")
    return float(whole)
