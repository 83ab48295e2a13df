"""Scoring of files, or of the project's own validation set when none is given."""

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from service.accuracy.scoring import FileScore
from service.accuracy.serving import score_serving
from service.accuracy.training import cross_validate_training, score_training
from service.catalog.resolve import snapshot_from_folder

FileRows = list[dict[str, str]]
"""Rows of a CSV file by column name."""


def read_rows(path: Path) -> FileRows:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def accuracy(
    *, root: Path, as_of_date: date, training: Path | None, serving: Path | None
) -> Sequence[FileScore]:
    """Score the given files, or both files of the project and cross-validate them.

    Args:
        root: Folder of the project, which holds the catalog and the validation set.
        as_of_date: Day whose dated facts are used.
        training: File of training rows.
        serving: File of serving rows.
    """
    snapshot = snapshot_from_folder(root / "catalog", as_of_date)
    scores: list[FileScore] = []
    if training is None and serving is None:
        own = root / "tests" / "validation"
        rows = read_rows(own / "training.csv")
        scores.append(score_training(rows, snapshot))
        folds = read_rows(own / "training_folds.csv")
        scores.append(cross_validate_training(rows, folds, snapshot))
        scores.append(score_serving(read_rows(own / "serving.csv"), snapshot))
    if training is not None:
        scores.append(score_training(read_rows(training), snapshot))
    if serving is not None:
        scores.append(score_serving(read_rows(serving), snapshot))
    return scores
