"""Columns of a table, and their rows as CSV (RFC 4180) that spreadsheets can open without harm.

Comma, double quote, CRLF, UTF-8, a header row of snake_case names. A number is plain digits with a
point; a time is ISO 8601 in UTC; what is unknown is an empty cell. Text that a spreadsheet would
run as a formula gets a leading apostrophe; numbers never do, so that -12.50 stays a number.
Where decimals follow a comma, spreadsheets take the other form: `;` between cells, `,` in numbers.
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

_UNSEEN = (
    "\x01-\x20\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    "\ufe00-\ufe0f\ufeff"
)
"""Spaces, control characters and others without width: spreadsheets trim some before reading."""
FORMULA_START = f"^'*[{_UNSEEN}]*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Pattern of text that must not stand as it is; PostgreSQL reads it as Python does."""
_FORMULA_START = re.compile(FORMULA_START)


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its name in the header, and its cell in a row."""

    name: str
    """Name with its unit as suffix."""
    cell: Callable[[Row], Cell]
    """Reads the cell from a row."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a table is written."""

    byte_order_mark: bool = False
    """Begin with the mark by which Excel knows UTF-8."""
    decimal_comma: bool = False
    """Write `;` between cells and `,` in numbers."""
    null: str = ""
    """What stands for an unknown value."""

    @property
    def separator(self) -> str:
        """What stands between two cells."""
        return ";" if self.decimal_comma else ","

    @property
    def decimal_point(self) -> str:
        """What stands before the decimals of a number."""
        return "," if self.decimal_comma else "."


PLAIN = CsvForm()


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


def formed_text(cell: Cell, form: CsvForm) -> str:
    """What stands in a file of a given form for a cell, before quoting."""
    if cell is None:
        return form.null
    text = cell_text(cell)
    if form.decimal_comma and isinstance(cell, (float, Decimal)):
        return text.replace(".", form.decimal_point)
    return text


def _encode(records: Iterable[Iterable[str]], form: CsvForm) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=form.separator, lineterminator="\r\n").writerows(records)
    return buffer.getvalue().encode()


def _head(columns: Sequence[Column[Row]], form: CsvForm) -> bytes:
    mark = BYTE_ORDER_MARK if form.byte_order_mark else b""
    return mark + _encode([[column.name for column in columns]], form)


async def with_head(head: bytes, rows: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Put the header row before rows that are written already, in one part with the first."""
    async for part in rows:
        yield head + part
        head = b""
    if head:
        yield head


def _body(columns: Sequence[Column[Row]], rows: Iterable[Row], form: CsvForm) -> bytes:
    cells = [column.cell for column in columns]
    return _encode(([formed_text(cell(row), form) for cell in cells] for row in rows), form)


def csv_bytes(
    columns: Sequence[Column[Row]], rows: Iterable[Row], *, form: CsvForm = PLAIN
) -> bytes:
    """Write a whole table; for those that are small by nature."""
    return _head(columns, form) + _body(columns, rows, form)


async def csv_stream(
    columns: Sequence[Column[Row]],
    batches: AsyncIterable[Sequence[Row]],
    *,
    form: CsvForm = PLAIN,
) -> AsyncIterator[bytes]:
    """Write a table batch by batch, holding one batch at a time."""
    bodies = (_body(columns, rows, form) async for rows in batches)
    async for part in with_head(_head(columns, form), bodies):
        yield part
