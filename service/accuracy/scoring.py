"""Errors of predictions against what was measured, and their summary over rows or groups."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

FileKind = Literal["training", "serving"]
ALL = "all"
UNUSABLE = "measured value not usable"
SMALLEST, LARGEST = 1e-100, 1e100
"""Far beyond anything measured; the ratio of two numbers between them is finite."""


UNFORESEEN = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Faults of cells that nobody foresaw: they cost their own row only."""


def unforeseen(fault: Exception) -> str:
    """Why a row with such a cell is not predicted."""
    return f"its cells cannot be used: {type(fault).__name__}"


def is_usable(value: float) -> bool:
    """True for a number that can be compared with another."""
    return SMALLEST <= value <= LARGEST


@dataclass(frozen=True)
class Split:
    """Classes of a row by which errors are reported apart."""

    dense_or_moe: str = ALL
    generation: str = ALL
    stack: str = ALL


@dataclass(frozen=True)
class ScoredRow:
    """One row that was predicted, with its 80 % band, in the row's own unit."""

    id: str
    kind: str
    group: str
    """Run or table that it belongs to: rows of one group share their faults."""
    split: Split
    predicted: float
    low: float
    high: float
    actual: float
    higher_is_better: bool = True
    """False for times: the sign of their error is turned, so that bias means the same for all."""
    part: str | None = None
    """Part of the kind that is reported apart, too."""

    @property
    def error(self) -> float:
        """ln(predicted / actual), in the sense of more. [1]"""
        value = float(np.log(self.predicted / self.actual))
        return value if self.higher_is_better else -value

    @property
    def is_in_band(self) -> bool:
        """True when the measured value lies between low and high."""
        return self.low <= self.actual <= self.high


@dataclass(frozen=True)
class UnpredictedRow:
    """One row without a prediction, and why."""

    id: str
    kind: str
    reason: str


@dataclass(frozen=True)
class FileScore:
    """Everything that came of one file."""

    file: FileKind
    scored: tuple[ScoredRow, ...]
    unpredicted: tuple[UnpredictedRow, ...] = ()
    by_group: bool = False
    """True when errors are averaged within a group before groups are compared."""
    cross_validated: bool = False
    """True when every row was predicted by constants that were fitted without its group."""
    held_out: Literal["group", "source"] = "group"
    """What was left out together, where rows were predicted without their own."""
    is_floor: bool = False
    """True for what a simpler model says of the same rows: reported, and no answer of ours."""
    warned: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows known to be wrong, by kind: how many there are, and how many raise a warning."""
    warnings: dict[str, str] = field(default_factory=dict)
    """Why a row is doubted, by its id: those known to be wrong, and any other."""


def summary(rows: Sequence[ScoredRow], *, by_group: bool) -> dict[str, Any]:
    """Median, tail, bias and band coverage of rows, as shares (0.1 is 10 %)."""
    errors = np.array([row.error for row in rows])
    inside = np.array([float(row.is_in_band) for row in rows])
    names = sorted({row.group for row in rows})
    sizes, signed, held = np.abs(errors), errors, inside
    if by_group:
        members = [[i for i, row in enumerate(rows) if row.group == name] for name in names]
        sizes = np.array([np.abs(errors[m]).mean() for m in members])
        signed = np.array([errors[m].mean() for m in members])
        held = np.array([inside[m].mean() for m in members])
    return {
        "n_rows": len(rows),
        "n_groups": len(names),
        "median": float(np.median(sizes)),
        "p80": float(np.percentile(sizes, 80)),
        "p90": float(np.percentile(sizes, 90)),
        "bias": float(np.median(signed)),
        "band_coverage": float(held.mean()),
    }


def splits_of(rows: Iterable[ScoredRow]) -> list[Split]:
    """Everything together, then each class of each kind of split on its own."""
    found: dict[Split, None] = {Split(): None}
    for name in ("dense_or_moe", "generation", "stack"):
        for value in sorted({getattr(row.split, name) for row in rows} - {ALL}):
            found[replace(Split(), **{name: value})] = None
    return list(found)


def belongs(row: ScoredRow, split: Split) -> bool:
    """True when a row is in every class that a split names."""
    return all(
        getattr(split, name) in {ALL, getattr(row.split, name)}
        for name in ("dense_or_moe", "generation", "stack")
    )


def grouped(score: FileScore, kinds: Callable[[str], Iterable[str]]) -> list[dict[str, Any]]:
    """One entry for every kind and split that has rows; `kinds` names a kind and its pools."""
    named = [(row, {*kinds(row.kind), row.part or row.kind}) for row in score.scored]
    names = sorted({name for _, own in named for name in own})
    entries = []
    for name in names:
        rows = [row for row, own in named if name in own]
        for split in splits_of(rows):
            members = [row for row in rows if belongs(row, split)]
            entry: dict[str, Any] = {"file": score.file, "kind": name, "split": vars(split).copy()}
            entry |= summary(members, by_group=score.by_group)
            if score.cross_validated:
                entry["cross_validated"] = True
            entries.append(entry)
    return entries
