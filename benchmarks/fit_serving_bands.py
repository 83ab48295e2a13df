"""Bands of serving from residuals of constants that were fitted without the row's group.

    .venv/bin/python benchmarks/fit_serving_bands.py [--coverage]

Prints low and high of each residual factor in the catalog: quantiles of measured over estimated,
groups weighing the same, classes of few groups leaning on the wider class. With --coverage it
prints errors and how often the catalog's bands hold, by group and with whole sources left out.
"""

import csv
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from service.accuracy.scoring import FileScore, ScoredRow, summary
from service.accuracy.serving.cells import Row
from service.accuracy.serving.fit import HELD_OUT
from service.accuracy.serving.rows import ServingRow, resolved
from service.accuracy.serving.score import (
    cross_validate_serving,
    residual_names,
    score_serving,
)
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot

ROOT = Path(__file__).resolve().parents[1]
VALIDATION = ROOT / "tests" / "validation"
FOLDS = "serving_folds.csv"
TAIL = 0.09
"""Share of results beyond either end: a little less than a tenth, for sources never seen."""
PARENT_GROUPS = 15
"""Groups that the wider class weighs."""


def read(name: str) -> list[Row]:
    """Rows of a file of the validation set."""
    with (VALIDATION / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ends(logs: Sequence[tuple[str, float]]) -> np.ndarray:
    """Both quantiles of measured over estimated, each group weighing one."""
    groups = [group for group, _ in logs]
    weights = np.array([1 / groups.count(group) for group in groups])
    values = np.array([value for _, value in logs])
    order = np.argsort(values)
    place = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return np.interp([TAIL, 1 - TAIL], place, values[order])


def bands(
    rows: Sequence[ScoredRow], snapshot: CatalogSnapshot, cases: dict[str, ServingRow]
) -> None:
    """Print low and high of every residual factor of the catalog."""
    logs: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        for name in residual_names(cases[row.id], snapshot):
            logs.setdefault(name, []).append((row.group, float(np.log(row.actual / row.predicted))))
    found: dict[str, np.ndarray] = {}
    for name in sorted(logs, key=lambda name: (name.count("."), name)):
        count = len({group for group, _ in logs[name]})
        own, parent = ends(logs[name]), _parent(name, found)
        weight = 0 if parent is None else PARENT_GROUPS
        wider = own if parent is None else parent
        found[name] = (count * own + weight * wider) / (count + weight)
        if name in snapshot.assumptions:
            low, high = np.exp(found[name])
            print(f"{name} {min(low, 1):.3g} {max(high, 1):.3g} {count}")


def _parent(name: str, found: dict[str, np.ndarray]) -> np.ndarray | None:
    """The class without its engine or its kind, else the factor of all rows."""
    base, *own = name.split(".")
    shorter = (".".join((base, *own[1:])), ".".join((base, *own[:-1])), base) if own else ()
    return next((found[wider] for wider in shorter if wider in found), None)


def coverage(score: FileScore, title: str) -> None:
    """Print errors of each part, and how often the catalog's bands hold."""
    print(title)
    for part in sorted({row.part for row in score.scored if row.part}):
        for kind in ("dense", "moe", None):
            members = [
                row
                for row in score.scored
                if row.part == part and kind in {None, row.split.dense_or_moe}
            ]
            if members:
                entry = summary(members, by_group=True)
                print(
                    f"{part:22}{kind or 'all':6}{entry['n_groups']:4} "
                    f"{entry['median']:.3f} {entry['p80']:.3f} band {entry['band_coverage']:.2f}"
                )


def main() -> None:
    """Print the bands, or how often they hold."""
    rows = read("serving.csv")
    snapshot, folds = snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29)), read(FOLDS)
    with np.errstate(all="ignore"):
        if "--coverage" in sys.argv:
            coverage(score_serving(rows, snapshot), "constants of the catalog")
            for held_out in HELD_OUT:
                found = cross_validate_serving(rows, folds, snapshot, held_out)
                coverage(found, f"whole {held_out}s left out")
            return
        score = cross_validate_serving(rows, folds, snapshot)
        known = {row.id for row in score.scored}
        recorder = Recorder(snapshot).off()
        cases = {row["id"]: resolved(row, snapshot, recorder) for row in rows if row["id"] in known}
        bands(score.scored, snapshot, cases)


if __name__ == "__main__":
    main()
