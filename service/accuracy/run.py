"""Scoring of files, or of the project's own validation set when none is given."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from service.accuracy.files import SERVING_COLUMNS, TRAINING_COLUMNS, read_rows
from service.accuracy.scoring import FileScore
from service.accuracy.serving.score import (
    cross_validate_serving,
    score_roofline,
    score_serving,
)
from service.accuracy.training import cross_validate_training, score_training
from service.catalog.resolve import snapshot_from_folder


def accuracy(
    *, root: Path, as_of_date: date, training: Path | None, serving: Path | None
) -> Sequence[FileScore]:
    """Score the given files, or both files of the project and cross-validate them.

    Args:
        root: Folder of the project, which holds the catalog and the validation set.
        as_of_date: Day whose dated facts are used.
        training: File of training rows.
        serving: File of serving rows.

    Raises:
        UnreadableFile: If a file holds no such rows.
    """
    snapshot = snapshot_from_folder(root / "catalog", as_of_date)
    scores: list[FileScore] = []
    if training is None and serving is None:
        own = root / "tests" / "validation"
        rows = read_rows(own / "training.csv")
        scores.append(score_training(rows, snapshot))
        folds = read_rows(own / "training_folds.csv")
        scores.append(cross_validate_training(rows, folds, snapshot))
        scores.append(cross_validate_training(rows, folds, snapshot, scheme="source"))
        rows = read_rows(own / "serving.csv")
        scores.append(score_serving(rows, snapshot))
        folds = read_rows(own / "serving_folds.csv")
        scores.append(cross_validate_serving(rows, folds, snapshot))
        scores.append(score_roofline(rows, snapshot))
    if training is not None:
        scores.append(score_training(read_rows(training, TRAINING_COLUMNS), snapshot))
    if serving is not None:
        rows = read_rows(serving, SERVING_COLUMNS)
        scores += [score_serving(rows, snapshot), score_roofline(rows, snapshot)]
    return scores
