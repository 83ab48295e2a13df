"""A plan as an Excel workbook whose totals are live: sums over its own sheet of lines.

Text is written as text, whatever it begins with; a number or a date is written as one. Every
formula carries its value, for readers that do not calculate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import xlsxwriter

from service.core.estimates import CostLine
from service.core.plans import Plan
from service.exports.plan_lines import LINE_FIELDS
from service.exports.table import Cell, Column, fields

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ROW_LIMIT = 1_048_576
"""Rows of a sheet, the header's included."""
LONGEST_CELL = 32_767
MONEY_FORMAT = "#,##0.00"
DATE_FORMAT = "yyyy-mm-dd"
TIME_FORMAT = "yyyy-mm-dd hh:mm:ss"
LINE_COLUMNS = fields(*LINE_FIELDS)
ASSUMPTION_COLUMNS = fields("name", "value", "low", "high", "unit", "source", "override_at")


@dataclass(frozen=True)
class _Book:
    file: Any
    line_count: int
    money: Any
    date: Any
    time: Any
    bold: Any

    @classmethod
    def opened(cls, buffer: BytesIO, line_count: int) -> "_Book":
        file = xlsxwriter.Workbook(
            buffer,
            {
                "constant_memory": True,
                "default_date_format": DATE_FORMAT,
                "strings_to_formulas": False,
                "strings_to_numbers": False,
                "strings_to_urls": False,
            },
        )
        formats = (
            {"num_format": MONEY_FORMAT},
            {"num_format": DATE_FORMAT},
            {"num_format": TIME_FORMAT},
            {"bold": True},
        )
        return cls(file, line_count, *(file.add_format(each) for each in formats))

    def range(self, name: str) -> str:
        """Cells of a field on the sheet of lines, which has fewer columns than letters."""
        letter = chr(ord("A") + LINE_FIELDS.index(name))
        return f"Lines!${letter}$2:${letter}${max(self.line_count, 1) + 1}"

    def write(self, sheet: Any, row: int, column: int, cell: Cell, shape: Any = None) -> None:
        """Write a cell by its type; what is absent stays empty."""
        if cell is None:
            return
        if isinstance(cell, bool):
            sheet.write_boolean(row, column, cell)
        elif isinstance(cell, (int, float, Decimal)):
            sheet.write_number(row, column, float(cell), shape)
        elif isinstance(cell, datetime):
            naive = cell.astimezone(UTC).replace(tzinfo=None)
            sheet.write_datetime(row, column, naive, self.time)
        elif isinstance(cell, date):
            sheet.write_datetime(row, column, cell, self.date)
        else:
            sheet.write_string(row, column, str(cell)[:LONGEST_CELL], shape)

    def table(self, sheet: Any, first_row: int, columns: Sequence[Column[Any]], rows: Any) -> int:
        """Write a header and rows; the number of the row after them."""
        for index, column in enumerate(columns):
            self.write(sheet, first_row, index, column.name, self.bold)
        number = first_row
        for number, row in enumerate(rows, first_row + 1):
            for index, column in enumerate(columns):
                is_money = column.name in {"amount", "cash_amount"}
                shape = self.money if is_money else None
                self.write(sheet, number, index, column.cell(row), shape)
        return number + 1


def plan_workbook(plan: Plan, lines: Sequence[CostLine]) -> bytes:
    """Write a plan with fewer lines than `ROW_LIMIT`: its sums, its inputs and its lines."""
    buffer = BytesIO()
    book = _Book.opened(buffer, len(lines))
    # A plan never changes, so its file does not either: else it would be stamped with this moment.
    book.file.set_properties({"created": plan.created_at})
    _write_sums(book, plan, lines)
    _write_inputs(book, plan)
    sheet = book.file.add_worksheet("Lines")
    sheet.freeze_panes(1, 0)
    book.table(sheet, 0, LINE_COLUMNS, lines)
    book.file.close()
    return buffer.getvalue()


def _write_sums(book: _Book, plan: Plan, lines: Sequence[CostLine]) -> None:
    sheet = book.file.add_worksheet("Summary")
    sheet.set_column(0, 0, 28)
    sheet.set_column(1, 2, 18)
    about: tuple[tuple[str, Cell], ...] = (
        ("name", plan.name),
        ("id", str(plan.id)),
        ("created_at", plan.created_at),
        ("catalog_release", plan.catalog_release.version),
        ("as_of_date", plan.as_of_date),
        ("engine_version", plan.engine_version),
        ("currency", plan.scenario.currency),
    )
    for row, (name, cell) in enumerate(about):
        book.write(sheet, row, 0, name, book.bold)
        book.write(sheet, row, 1, cell)
    row = len(about) + 1
    for column, title in enumerate(("sum of the lines", "amount", "cash_amount")):
        book.write(sheet, row, column, title, book.bold)
    _write_sum(book, sheet, row + 1, "total", summed=lines)
    row += 2
    for name in ("month", "workload_kind", "pool", "category", "use"):
        row += 1
        book.write(sheet, row, 0, name, book.bold)
        grouped: dict[str, list[CostLine]] = {}
        for line in lines:
            grouped.setdefault(getattr(line, name), []).append(line)
        for row, label in enumerate(sorted(grouped), row + 1):  # noqa: B020 goes on below
            _write_sum(book, sheet, row, label, summed=grouped[label], name=name)
        row += 1


def _write_sum(
    book: _Book,
    sheet: Any,
    row: int,
    label: str,
    *,
    summed: Sequence[CostLine],
    name: str | None = None,
) -> None:
    """Write the live sums of the lines that have the label in a column; of all without one."""
    book.write(sheet, row, 0, label)
    for column, field in enumerate(("amount", "cash_amount"), 1):
        value = float(sum((getattr(line, field) for line in summed), Decimal(0)))
        formula = f"=SUM({book.range(field)})"
        if name is not None:
            # A comparison of texts: SUMIFS would take 2027-01 for a date, and * for any text.
            formula = f"=SUMPRODUCT(--({book.range(name)}=$A${row + 1}),{book.range(field)})"
        sheet.write_formula(row, column, formula, book.money, value)


def _write_inputs(book: _Book, plan: Plan) -> None:
    """The scenario as it was sent, one value a row, and the assumptions that filled the rest."""
    sheet = book.file.add_worksheet("Inputs")
    sheet.set_column(0, 0, 48)
    sheet.set_column(1, 5, 18)
    book.write(sheet, 0, 0, "input", book.bold)
    book.write(sheet, 0, 1, "value", book.bold)
    sent = plan.model_dump(mode="json")["scenario"]
    row = 0
    for row, (pointer, cell) in enumerate(_leaves("/scenario", sent), 1):
        book.write(sheet, row, 0, pointer)
        book.write(sheet, row, 1, cell)
    book.table(sheet, row + 2, ASSUMPTION_COLUMNS, plan.assumptions)


def _leaves(pointer: str, value: Any) -> Iterable[tuple[str, Cell]]:
    """Every plain value of a JSON document with its pointer."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(f"{pointer}/{index}", inner)
    else:
        yield pointer, value
