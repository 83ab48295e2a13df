"""Fits the constants of serving to the validation set, ten times with a tenth of groups left out.

    .venv/bin/python benchmarks/fit_serving.py

Writes tests/validation/serving_folds.csv (factors of the ten fits on the catalog's values) and
prints each constant's factor with its range over the ten. Values go into the catalog by hand.
"""

import csv
from datetime import date
from pathlib import Path

import numpy as np

from service.accuracy.serving.fit import (
    SPEED,
    WAITING,
    fit,
    group_folds,
    is_loaded_first_token,
)
from service.accuracy.serving.score import FOLD_COUNT, fitted_cases
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder

ROOT = Path(__file__).resolve().parents[1]
VALIDATION = ROOT / "tests" / "validation"


def main() -> None:
    """Fit, write the folds, print the constants."""
    snapshot = snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))
    recorder = Recorder(snapshot).off()
    with (VALIDATION / "serving.csv").open(encoding="utf-8", newline="") as file:
        cases = fitted_cases(list(csv.DictReader(file)), snapshot)
    folds = group_folds(cases, FOLD_COUNT)
    kept = np.stack([np.ones(len(cases), bool), *(folds != n for n in range(FOLD_COUNT))])
    waits = np.array([is_loaded_first_token(case) for case in cases])
    with np.errstate(all="ignore"):
        quick = [case for case, wait in zip(cases, waits, strict=True) if not wait]
        speed = fit(quick, SPEED, kept[:, ~waits], recorder)
        fixed = {name: np.exp(speed[:, place]) for place, name in enumerate(SPEED)}
        slow = [case for case, wait in zip(cases, waits, strict=True) if wait]
        waiting = fit(slow, WAITING, kept[:, waits], recorder, fixed=fixed)
    factors = np.exp(np.hstack([speed, waiting]))
    with (VALIDATION / "serving_folds.csv").open("w", encoding="utf-8", newline="") as file:
        file.write("name,fold,factor\n")
        for place, name in enumerate((*SPEED, *WAITING)):
            column = factors[:, place]
            print(f"{name:55} {column[0]:.3f}  {column[1:].min():.3f}..{column[1:].max():.3f}")
            for fold in range(FOLD_COUNT):
                file.write(f"{name},{fold},{column[1 + fold] / column[0]:.4f}\n")


if __name__ == "__main__":
    main()
