"""Fits the constants of serving to the validation set, ten times with a tenth of groups left out,
and ten times with whole sources left out.

    .venv/bin/python benchmarks/fit_serving.py

Writes tests/validation/serving_folds.csv (factors of those fits on the catalog's values) and
prints each constant's factor with its range over the ten. Values go into the catalog by hand.
"""

import csv
from datetime import date
from pathlib import Path

import numpy as np

from service.accuracy.serving.fit import (
    FOLD_COUNT,
    HELD_OUT,
    SPEED,
    WAITING,
    fit,
    folds_of,
    is_loaded_first_token,
)
from service.accuracy.serving.score import fitted_cases
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
    left_out = [(kind, fold) for kind in HELD_OUT for fold in range(FOLD_COUNT)]
    folds = {kind: folds_of(cases, kind) for kind in HELD_OUT}
    kept = np.stack([np.ones(len(cases), bool), *(folds[kind] != n for kind, n in left_out)])
    waits = np.array([is_loaded_first_token(case) for case in cases])
    with np.errstate(all="ignore"):
        quick = [case for case, wait in zip(cases, waits, strict=True) if not wait]
        speed = fit(quick, SPEED, kept[:, ~waits], recorder)
        fixed = {name: np.exp(speed[:, place]) for place, name in enumerate(SPEED)}
        slow = [case for case, wait in zip(cases, waits, strict=True) if wait]
        waiting = fit(slow, WAITING, kept[:, waits], recorder, fixed=fixed)
    factors = np.exp(np.hstack([speed, waiting]))
    with (VALIDATION / "serving_folds.csv").open("w", encoding="utf-8", newline="") as file:
        file.write("name,held_out,fold,factor\n")
        for place, name in enumerate((*SPEED, *WAITING)):
            column = factors[:, place]
            print(f"{name:55} {column[0]:.3f}  {column[1:].min():.3f}..{column[1:].max():.3f}")
            for (kind, fold), factor in zip(left_out, column[1:], strict=True):
                file.write(f"{name},{kind},{fold},{factor / column[0]:.4f}\n")


if __name__ == "__main__":
    main()
