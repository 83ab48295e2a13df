"""Columns of a table, and their rows as CSV (RFC 4180) that spreadsheets can open without harm.

Comma, double quote, CRLF, UTF-8, a header row of snake_case names. A number is plain digits with a
point; a time is ISO 8601 in UTC; what is unknown is an empty cell. Text that a spreadsheet would
run as a formula gets a leading apostrophe; numbers never do, so that -12.50 stays a number.
"""

import csv
import io
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, TypeVar
from uuid import UUID

from service.core.value import decimal_text

Row = TypeVar("Row")
Cell = str | bool | int | float | Decimal | date | UUID | None
"""What a cell is made of; its type decides how it is written."""

MEDIA_TYPE = "text/csv; charset=utf-8; header=present"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DOUBLE_DIGITS = 15
"""Decimal digits that every double keeps: more would show the artefacts of binary fractions."""

_FORMULA_START = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its name in the header, and its cell in a row."""

    name: str
    """Name with its unit as suffix."""
    cell: Callable[[Row], Cell]
    """Reads the cell from a row."""


def fields(*names: str) -> tuple[Column[Any], ...]:
    """Columns that are attributes of the row by the same name."""
    return tuple(Column(name, attrgetter(name)) for name in names)


def constants(**cells: Cell) -> tuple[Column[Any], ...]:
    """Columns that hold the same cell in every row."""

    def always(cell: Cell) -> Callable[[Any], Cell]:
        return lambda _: cell

    return tuple(Column(name, always(cell)) for name, cell in cells.items())


def guard(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    Text that already begins with apostrophes before such a character gets one more: taking one
    away gives back the text as it was.
    """
    return f"'{text}" if _FORMULA_START.match(text) else text


def number_text(number: float) -> str:
    """Plain digits of a float: no exponent, and none of the digits that only binary has."""
    digits = format(Decimal(format(number, f".{DOUBLE_DIGITS}g")), "f")
    return "0" if digits == "-0" else digits


def _instant_text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: guard,
    bool: lambda flag: "true" if flag else "false",
    int: str,
    float: number_text,
    Decimal: decimal_text,
    datetime: _instant_text,
    date: date.isoformat,
    UUID: str,
    NoneType: lambda _: "",
}


def _inherited_writer(kind: type) -> Callable[[Any], str]:
    """Find the writer of the nearest base; drivers have subclasses of their own, as for UUID."""
    for base in kind.__mro__:
        if base in _WRITERS:
            return _WRITERS[base]
    raise TypeError(f"a cell cannot be of type {kind.__name__}")


def cell_text(cell: Cell) -> str:
    """What stands in the file for a cell, before quoting."""
    kind = type(cell)
    return (_WRITERS.get(kind) or _inherited_writer(kind))(cell)


def joined(texts: Iterable[str]) -> str:
    """Several texts in one cell."""
    return "; ".join(texts)


def _encode(records: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerows(records)
    return buffer.getvalue().encode()


def _head(columns: Sequence[Column[Row]], byte_order_mark: bool) -> bytes:
    mark = BYTE_ORDER_MARK if byte_order_mark else b""
    return mark + _encode([[column.name for column in columns]])


def _body(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> bytes:
    cells = [column.cell for column in columns]
    return _encode([cell_text(cell(row)) for cell in cells] for row in rows)


def csv_bytes(
    columns: Sequence[Column[Row]], rows: Iterable[Row], *, byte_order_mark: bool = False
) -> bytes:
    """Write a whole table; for those that are small by nature."""
    return _head(columns, byte_order_mark) + _body(columns, rows)


async def csv_stream(
    columns: Sequence[Column[Row]],
    batches: AsyncIterable[Sequence[Row]],
    *,
    byte_order_mark: bool = False,
) -> AsyncIterator[bytes]:
    """Write a table batch by batch, holding one batch at a time."""
    yield _head(columns, byte_order_mark)
    async for rows in batches:
        yield _body(columns, rows)
