"""Rows of a table that PostgreSQL itself writes as CSV: in Python they take four times as long."""

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, DateTime, Numeric, Text
from sqlalchemy.ext.asyncio import AsyncSession

from service.db.base import Base

SECONDS = 'YYYY-MM-DD"T"HH24:MI:SS'
_QUOTED_OR_LINE_END = re.compile(rb'"[^"]*"|\n')


@dataclass(frozen=True, slots=True)
class CsvRows:
    """What is written of each row, and in which form."""

    names: tuple[str, ...]
    """Columns of the table, in order; text among them."""
    ending: tuple[str, ...] = ()
    """Texts that end every row."""
    formula_start: str = "(?!)"
    """Pattern of text that gets a leading apostrophe; it begins with no letter of ASCII."""
    separator: str = ","
    decimal_point: str = "."


async def copy_csv(
    session: AsyncSession, model: type[Base], rows: CsvRows, condition: str, *given: Any
) -> tuple[bytes, int]:
    """Read the rows that meet a condition, and say how many they are.

    Args:
        session: a session of the team whose rows are seen.
        model: the table.
        rows: what is written.
        condition: SQL after WHERE, its parameters numbered from $1.
        given: the parameters.
    """
    parts: list[bytes] = []

    async def take(part: bytes) -> None:
        parts.append(bytes(part))

    connection: Any = await (await session.connection()).get_raw_connection()
    status = await connection.driver_connection.copy_from_query(
        _query(model, rows, condition, len(given)),
        *given,
        rows.formula_start,
        *rows.ending,
        output=take,
        format="csv",
        delimiter=rows.separator,
    )
    count = int(status.split()[1])
    return _with_carriage_returns(b"".join(parts), count), count


def _query(model: type[Base], rows: CsvRows, condition: str, given_count: int) -> str:
    pattern = given_count + 1
    cells = [_cell(model.__table__.columns[name], rows, pattern) for name in rows.names]
    ending = [
        f"CAST(${number} AS text)" for number in range(pattern + 1, pattern + 1 + len(rows.ending))
    ]
    return (
        f"SELECT {', '.join(cells + ending)} FROM {model.__tablename__}"  # noqa: S608 our own names
        f" WHERE {condition}"
    )


def _cell(column: Any, rows: CsvRows, pattern: int) -> str:
    """SQL of a cell: digits with the point asked for, times of ISO 8601, harmless text."""
    name, kind = column.name, column.type
    if isinstance(kind, Numeric):
        digits = f"CAST({name if kind.scale == 2 else f'trim_scale({name})'} AS text)"
        point = rows.decimal_point
        return digits if point == "." else f"replace({digits}, '.', '{point}')"
    if isinstance(kind, DateTime):
        whole = f"{name} = date_trunc('second', {name})"
        pattern_of_time = f"""CASE WHEN {whole} THEN '{SECONDS}"Z"' ELSE '{SECONDS}.US"Z"' END"""
        return f"to_char({name} AT TIME ZONE 'UTC', {pattern_of_time})"
    if isinstance(kind, Boolean):
        return f"CAST({name} AS text)"
    if isinstance(kind, Text):
        # No pattern matches a letter, and to look at one is much quicker than to match.
        guarded = f"ascii({name}) NOT BETWEEN 65 AND 122 AND {name} ~ ${pattern}"
        return f"CASE WHEN {guarded} THEN '''' || {name} ELSE NULLIF({name}, '') END"
    return f"{name}"


def _with_carriage_returns(rows: bytes, count: int) -> bytes:
    """End rows as RFC 4180 asks; a line end inside a quoted cell stays what it is."""
    if rows.count(b"\n") == count:
        return rows.replace(b"\n", b"\r\n")
    return _QUOTED_OR_LINE_END.sub(lambda found: b"\r\n" if found[0] == b"\n" else found[0], rows)
