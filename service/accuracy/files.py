"""Files of rows: read by column name, or refused with what is wrong with them."""

import csv
from collections.abc import Collection, Iterable
from pathlib import Path

FileRows = list[dict[str, str]]
"""Rows of a CSV file by column name."""
EXTRA = "cells beyond the last column"
"""Name under which a row holds what no column names."""
TRAINING_COLUMNS = ("id", "kind", "gpu", "measured_metric", "measured_value")
SERVING_COLUMNS = (
    *("id", "kind", "model", "gpu", "engine", "measured_metric", "measured_value"),
    *("per", "note", "group"),
)
"""Columns without which no row of a file can be predicted."""


class UnreadableFile(ValueError):
    """A file that holds no rows of results, and why."""


def read_rows(path: Path, needed: Collection[str] = ()) -> FileRows:
    """Rows of a CSV file, whose first line names the columns.

    Raises:
        UnreadableFile: If it is no CSV, lacks a column that is needed, or holds no rows.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restval="", restkey=EXTRA)
        try:
            columns = reader.fieldnames or ()
            rows = [_plain(row) for row in reader]
        except csv.Error as error:
            raise UnreadableFile(f"{path}: line {reader.reader.line_num}: {error}") from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"{path}: it is not written in UTF-8") from error
    if not rows or columns[0].lstrip().startswith(("{", "[")):
        raise UnreadableFile(f"{path}: it holds no rows below a line that names their columns")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise UnreadableFile(
            f"{path}: there is no column {', '.join(missing)}: the first line must name the "
            "columns, with commas between them"
        )
    return rows


def _plain(row: dict[str, str]) -> dict[str, str]:
    """A row whose cells beyond the last column are one text, or none where they are empty."""
    extra: Iterable[str] = row.pop(EXTRA, ())
    beyond = " ".join(cell for cell in extra if cell.strip())
    return row | {EXTRA: beyond} if beyond else row
