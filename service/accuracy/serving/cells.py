"""Cells of a row of results: numbers, counts and shares; what cannot be read is named."""

import re
from collections.abc import Mapping
from math import isfinite

Row = Mapping[str, str]

UNSTATED = {"", "-", "?", "auto", "n/a", "na", "none", "not stated", "unknown", "unspecified"}
"""What says that a value is not known."""
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
COUNT = r"(?:{name}[ =]*)?0*(\d{1,9})(?:\.0*)?\??"
"""A whole number below a billion, with the name of its column before it or a doubt behind it."""


class Unpredictable(Exception):
    """A row that cannot be predicted, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def text(row: Row, name: str) -> str:
    """A cell without spaces around it; empty where the row says that it does not know."""
    written = (row.get(name) or "").strip()
    return "" if written.lower() in UNSTATED else written


def as_number(written: str) -> float | None:
    """A finite number; None for anything else."""
    try:
        value = float(written.replace(",", "") if THOUSANDS.fullmatch(written) else written)
    except ValueError:
        return None
    return value if isfinite(value) else None


def number(row: Row, name: str, *, least: float = 0.0) -> float | None:
    """A cell as a number; None when it states nothing.

    Raises:
        Unpredictable: If it says something else, or a number below the least.
    """
    written = text(row, name)
    if not written:
        return None
    value = as_number(written)
    if value is None or value < least:
        raise Unpredictable(f"{name} cannot be read")
    return value


def positive(row: Row, name: str) -> float | None:
    """A cell as a number above zero; None when it states nothing.

    Raises:
        Unpredictable: If it says something else.
    """
    value = number(row, name)
    if value == 0:
        raise Unpredictable(f"{name} cannot be read")
    return value


def count(row: Row, name: str) -> int:
    """A cell as a whole number; 0 when it states nothing.

    Raises:
        Unpredictable: If it says something else.
    """
    written = text(row, name).lower()
    found = re.fullmatch(COUNT.replace("{name}", name), written)
    if written and found is None:
        raise Unpredictable(f"{name} cannot be read")
    return int(found[1]) if found else 0


def fraction(row: Row, name: str) -> float | None:
    """A cell as a share of one, written so or in percent; None when it states nothing.

    Raises:
        Unpredictable: If it is no share.
    """
    written = text(row, name)
    value = as_number(written.rstrip("% "))
    if value is not None and (value > 1 or written.endswith("%")):
        value /= 100
    if written and (value is None or not 0 < value <= 1):
        raise Unpredictable(f"{name} cannot be read")
    return value
