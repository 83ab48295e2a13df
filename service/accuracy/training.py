"""Rows of published training results against the estimate."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from service.accuracy.scoring import (
    UNFORESEEN,
    FileScore,
    ScoredRow,
    Split,
    UnpredictedRow,
    is_usable,
    unforeseen,
)
from service.accuracy.training_cases import PreparedRow, Unpredictable, prepare
from service.accuracy.training_memory import predicted_memory
from service.accuracy.training_rows import SPEED_KINDS, TrainingRow, training_row
from service.accuracy.training_run import predicted_run, predicted_speed
from service.accuracy.training_speed import is_run, is_speed, is_time
from service.accuracy.training_warnings import warnings_of
from service.core.errors import CoreError
from service.core.estimates import Range
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot

Records = Sequence[Mapping[str, str]]


def score_training(records: Records, snapshot: CatalogSnapshot) -> FileScore:
    """Predict every row by the catalog's own constants."""
    recorder = Recorder(snapshot).off()
    rows, unread = _read(records)
    scored, unpredicted = _predict(rows, recorder)
    doubts = warnings_of(rows, scored, unpredicted, recorder)
    wrong = {row.id for row in rows if row.quality == "C"}
    return FileScore(
        "training",
        tuple(row for row in scored if row.id not in wrong),
        (*unread, *(row for row in unpredicted if row.id not in wrong)),
        warned=_warned(rows, doubts),
        warnings=doubts,
    )


def cross_validate_training(
    records: Records,
    folds: Records,
    snapshot: CatalogSnapshot,
    *,
    scheme: Literal["group", "source"] = "group",
) -> FileScore:
    """Predict every speed and run by constants that were fitted without its group.

    Args:
        records: The rows.
        folds: Constants of each fold: scheme, held_out, name, value.
        snapshot: The catalog, whose other constants hold.
        scheme: What was held out together: "group" or "source".
    """
    held_out = _overrides(folds, scheme)
    scored: list[ScoredRow] = []
    for row in _read(records)[0]:
        if row.quality != "C":
            # Constants of groups without speed rows were fitted on other groups anyway.
            recorder = Recorder(
                snapshot, overrides=held_out.get(row.group if scheme == "group" else row.origin, {})
            ).off()
            scored += _predict([row], recorder)[0]
    return FileScore("training", tuple(scored), cross_validated=True, held_out=scheme)


def _read(records: Records) -> tuple[list[TrainingRow], list[UnpredictedRow]]:
    """Rows of a file, and those in which nothing was measured."""
    rows, unread = [], []
    for number, record in enumerate(records, start=1):
        name, kind = record.get("id") or "", record.get("kind") or "unknown"
        is_named = name.isprintable() and bool(name.strip())
        try:
            row = training_row(record)
            if not is_named:
                raise ValueError("its id is empty or holds what cannot be printed")
            rows.append(row)
        except UNFORESEEN as fault:
            why = str(fault) if type(fault) in {ValueError, KeyError} else unforeseen(fault)
            unread.append(UnpredictedRow(name if is_named else f"row {number}", kind, why))
    return rows, unread


def _overrides(folds: Records, scheme: str) -> dict[str, dict[str, float]]:
    """Constants of each held-out group, by name."""
    found: dict[str, dict[str, float]] = {}
    for record in folds:
        if record["scheme"] == scheme:
            found.setdefault(record["held_out"], {})[record["name"]] = float(record["value"])
    return found


def _predict(
    rows: Iterable[TrainingRow], recorder: Recorder
) -> tuple[list[ScoredRow], list[UnpredictedRow]]:
    scored, unpredicted = [], []
    for row in rows:
        try:
            scored.append(_scored(row, recorder))
        except Unpredictable as reason:
            unpredicted.append(UnpredictedRow(row.id, row.kind, str(reason)))
        except CoreError as error:
            unpredicted.append(UnpredictedRow(row.id, row.kind, error.message[:120]))
        except UNFORESEEN as fault:
            unpredicted.append(UnpredictedRow(row.id, row.kind, unforeseen(fault)))
    return scored, unpredicted


def _scored(row: TrainingRow, recorder: Recorder) -> ScoredRow:
    """One row with its prediction.

    Raises:
        Unpredictable: If the row lacks what a prediction needs.
    """
    if row.kind in SPEED_KINDS and is_speed(row.metric):
        prepared = prepare(row, recorder)
        return _entry(row, prepared, predicted_speed(prepared), higher=not is_time(row.metric))
    if is_run(row.metric):
        prepared = prepare(row, recorder)
        return _entry(row, prepared, predicted_run(prepared), higher=False)
    if row.kind == "memory":
        predicted, case = predicted_memory(row, recorder)
        return _entry(row, case, predicted)
    raise Unpredictable(f"no estimate of {row.metric.split(':')[0]}")


def _entry(
    row: TrainingRow, prepared: PreparedRow | None, found: Range, *, higher: bool = True
) -> ScoredRow:
    if not is_usable(found.value):
        raise Unpredictable("no finite estimate")
    split = Split(stack=row.stack)
    if prepared is not None:
        mixture = "moe" if prepared.architecture.is_mixture else "dense"
        split = replace(split, dense_or_moe=mixture, generation=prepared.gpu.gpu_class)
    kind = row.kind
    if kind == "memory" and not row.metric.startswith("peak_memory"):
        kind = "memory_analytic"
    return ScoredRow(
        id=row.id,
        kind=kind,
        group=row.group,
        split=split,
        predicted=found.value,
        low=found.low,
        high=found.high,
        actual=row.value,
        higher_is_better=higher,
    )


def _warned(rows: Iterable[TrainingRow], doubts: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Rows that are known to be wrong, by kind: how many, and how many do not pass unnoticed."""
    counts: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.quality == "C":
            total, warned = counts.get(row.kind, (0, 0))
            counts[row.kind] = (total + 1, warned + (row.id in doubts))
    return counts
