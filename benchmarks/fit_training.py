"""Fit the constants of the time of a training step, with whole groups and sources held out.

    python benchmarks/fit_training.py [--write]

Prints the constants, their range over the folds, and errors in-sample, by group and by source;
then the bands of speed, hours and memory that hold about 80 % of sources that were left out.
--write stores the constants of each fold in tests/validation/training_folds.csv, from which the
accuracy report cross-validates.

The fit minimises the log error of speed under a soft-L1 loss (scale 0.12) by Gauss-Newton on the
logarithms of the constants. A row weighs 1/√(rows of its group), 0.7 of that in quality B; each
constant is pulled towards its start by a log-normal prior.
"""

import argparse
import csv
from datetime import date
from pathlib import Path

import numpy as np

from service.accuracy.files import read_rows
from service.accuracy.training_cases import Unpredictable, prepare
from service.accuracy.training_memory import memory_kind, predicted_memory
from service.accuracy.training_rows import SPEED_KINDS, training_row
from service.accuracy.training_run import predicted_run, speed_kind, token_rate
from service.accuracy.training_speed import is_run, is_speed, rate_from
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "tests" / "validation"
FOLDS_FILE = OWN / "training_folds.csv"
SCALE, STEP, ROUNDS, FOLDS = 0.12, 0.01, 8, 10
LEAST_HELD, MOST_HELD = 0.77, 0.90  # of sources left out, of the band's own rows
CONSTANTS = {  # start, width of the prior, names in the catalog and their share of it
    "hopper": (0.88, 0.12, {"training_sustained_fraction.hopper": 1}),
    "blackwell": (0.88, 0.12, {"training_sustained_fraction.blackwell": 1}),
    "b300": (
        0.985,
        0.15,
        {
            "training_sustained_fraction.b300-sxm-288gb": 1,
            "training_sustained_fraction.gb300-nvl72": 1,
        },
    ),
    "megatron_deepspeed": (0.855, 0.15, {"training_stack_fraction.megatron_deepspeed": 1}),
    "attention": (1.0, 0.5, {"training_attention_level_fraction": 1}),
    "flash_2": (
        0.68,
        0.3,
        {
            "training_attention_kernel_fraction.flash_2.hopper": 1,
            "training_attention_kernel_fraction.flash_2.blackwell": 1,
        },
    ),
    "mixture_host": (
        4e-3,
        0.5,
        {
            "training_host_s_per_mixture_layer": 1,
            "training_host_s_per_mixture_layer.gb200-nvl72": 0.6,
            "training_host_s_per_mixture_layer.gb300-nvl72": 0.6,
        },
    ),
}
START = np.log([start for start, _, _ in CONSTANTS.values()])
WIDTH = np.array([width for _, width, _ in CONSTANTS.values()])


def snapshot_of_today():
    """The catalog as it stands."""
    return snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))


def look_with(snapshot, logs):
    """Assumptions with the fitted constants replaced; `logs` has one row per constant."""
    given = {
        name: share * np.exp(log)
        for log, (_, _, names) in zip(logs, CONSTANTS.values(), strict=True)
        for name, share in names.items()
    }

    def look(name, *qualifiers):
        found = snapshot.assumption(name, *qualifiers)
        return given.get(found.name, found.value)

    return look


class Rows:
    """Speed rows with what the fit needs of each."""

    def __init__(self, snapshot):
        self.snapshot, self.recorder = snapshot, Recorder(snapshot).off()
        self.prepared, self.actual = [], []
        for record in read_rows(OWN / "training.csv"):
            row = training_row(record)
            if row.kind in SPEED_KINDS and row.quality != "C" and is_speed(row.metric):
                try:
                    prepared = prepare(row, self.recorder)
                except Unpredictable:
                    continue
                self.prepared.append(prepared)
                self.actual.append(rate_from(prepared.published, row.value))
        rows = [p.row for p in self.prepared]
        self.group = np.array([row.group for row in rows])
        self.origin = np.array([row.origin for row in rows])
        self.kind = np.array([speed_kind(p) for p in self.prepared])
        self.is_mixture = np.array([p.architecture.is_mixture for p in self.prepared])
        size = {name: np.sum(self.group == name) for name in set(self.group)}
        quality = np.array([0.7 if row.quality == "B" else 1.0 for row in rows])
        self.weight = quality / np.sqrt([size[name] for name in self.group])

    def errors(self, logs, mask):
        """Log errors of speed: one row per result, one column per set of constants."""
        look = look_with(self.snapshot, logs)
        chosen = np.flatnonzero(mask)
        rates = [np.atleast_1d(token_rate(self.prepared[i], look)) for i in chosen]
        columns = np.shape(logs)[1]
        actual = np.array(self.actual)[chosen, None]
        return np.log(np.array([np.broadcast_to(r, columns) for r in rates]) / actual)


def fit(rows, mask):
    """Logarithms of the constants that fit the rows under a mask."""
    x, count = START.copy(), len(START)
    weight = rows.weight[mask]
    for _ in range(ROUNDS):
        moved = np.column_stack([x, *(x + STEP * np.eye(count)[i] for i in range(count))])
        errors = rows.errors(moved, mask)
        residual, jacobian = errors[:, 0], (errors[:, 1:] - errors[:, :1]) / STEP
        robust = weight / np.sqrt(1.0 + (residual / SCALE) ** 2) / SCALE**2
        normal = jacobian.T @ (robust[:, None] * jacobian) + np.diag(1.0 / WIDTH**2)
        gradient = jacobian.T @ (robust * residual) + (x - START) / WIDTH**2
        x = x - np.linalg.solve(normal, gradient)
    return x


def held_out(rows, labels, fold_of):
    """Errors of every row by constants that were fitted without its fold, and those constants."""
    errors, constants = np.empty(len(labels)), {}
    for fold in sorted(set(fold_of.values())):
        inside = np.array([fold_of[label] == fold for label in labels])
        x = fit(rows, ~inside)
        errors[inside] = rows.errors(x[:, None], inside)[:, 0]
        constants |= dict.fromkeys(labels[inside], x)
    return errors, constants


def described(errors):
    size = np.abs(errors)
    ends = np.percentile(size, (50, 80, 90))
    return " ".join(f"{end:6.1%}" for end in ends) + f" bias {np.median(errors):+.1%}"


def band(signed, labels, stretch=1.0):
    """10 % and 90 % points of actual over predicted, groups weighted by the root of their size."""
    size = {label: np.sum(labels == label) for label in set(labels)}
    weight = np.array([1.0 / np.sqrt(size[label]) for label in labels])
    order = np.argsort(signed)
    share = (np.cumsum(weight[order]) - 0.5 * weight[order]) / weight.sum()
    middle, low, high = np.interp((0.5, 0.1, 0.9), share, signed[order])
    return middle + stretch * (low - middle), middle + stretch * (high - middle)


def held_by_others(signed, origins, groups, stretch):
    """Whether each row lies in the band that is made of all other sources."""
    held = np.zeros(len(signed), dtype=bool)
    for origin in set(origins):
        inside = origins == origin
        if not inside.all():
            low, high = band(signed[~inside], groups[~inside], stretch)
            held[inside] = (low <= signed[inside]) & (signed[inside] <= high)
    return held


def stretch_of(signed, origins, groups):
    """How much wider than its own rows a class's band must be, so that it holds new sources.

    1 + 2/sources, but no more than holds nine of ten of the rows that it is made of, and at least
    so much that bands made without a source hold nearly four fifths of that source's rows.
    """
    tried = np.arange(1.0, 3.0, 0.01)
    ends = [band(signed, groups, one) for one in tried]
    own = np.array([np.mean((signed >= low) & (signed <= high)) for low, high in ends])
    others = np.array([held_by_others(signed, origins, groups, one).mean() for one in tried])
    most = tried[own <= MOST_HELD].max(initial=1.0)
    least = tried[others >= LEAST_HELD].min(initial=tried[-1])
    return max(least, min(1.0 + 2.0 / len(set(origins)), most))


def show_bands(name, signed, kinds, origins, groups):
    """The band of each class, and how much it holds: of its own rows, and of sources left out."""
    for kind in sorted(set(kinds)):
        mask = kinds == kind
        rows = signed[mask], origins[mask], groups[mask]
        stretch = stretch_of(*rows)
        low, high = band(rows[0], rows[2], stretch)
        inside = np.mean((rows[0] >= low) & (rows[0] <= high))
        others = held_by_others(*rows, stretch).mean()
        print(
            f"  {name} {kind:10} {mask.sum():4} rows, {len(set(rows[1])):2} sources, "
            f"stretch {stretch:.2f}: {np.exp(low):.3f} to {np.exp(high):.3f}  "
            f"holds {inside:.0%}, {others:.0%} of sources left out"
        )


def other_bands(rows):
    """Bands of hours and of memory, which have no fitted constants."""
    found = {"hours": [], "memory": []}
    for record in read_rows(OWN / "training.csv"):
        row = training_row(record)
        try:
            if row.quality == "C":
                continue
            if is_run(row.metric):
                value, kind = predicted_run(prepare(row, rows.recorder)).value, "all"
                found["hours"].append((np.log(row.value / value), kind, row.origin, row.group))
            elif row.metric.startswith("peak_memory"):
                value, prepared = predicted_memory(row, rows.recorder)
                error = np.log(row.value / value.value)
                for kind in ("all", memory_kind(prepared)):
                    found["memory"].append((error, kind, row.origin, row.group))
        except Unpredictable:
            continue
    for name, entries in found.items():
        signed, kinds, origins, groups = (np.array(column) for column in zip(*entries, strict=True))
        own = signed[kinds == "all"]
        print(f"{name}: {described(-own)}; {np.mean(own > np.log(1 / 0.9)):.0%} short by 10 %")
        show_bands(name, signed, kinds, origins, groups)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    snapshot = snapshot_of_today()
    rows = Rows(snapshot)
    everything = np.ones(len(rows.prepared), dtype=bool)
    x = fit(rows, everything)
    names = sorted(set(rows.group))
    folds = {name: i % FOLDS for i, name in enumerate(np.random.default_rng(7).permutation(names))}
    by_group, constants = held_out(rows, rows.group, folds)
    by_origin, of_origin = held_out(rows, rows.origin, {n: n for n in set(rows.origin)})
    for i, name in enumerate(CONSTANTS):
        over = np.exp([c[i] for c in constants.values()])
        print(f"{name:20} {np.exp(x[i]):.5g}  folds {over.min():.4g} to {over.max():.4g}")
    for kind, mask in (("dense", ~rows.is_mixture), ("mixture", rows.is_mixture)):
        print(kind, mask.sum(), "rows: median, p80, p90")
        print(
            "  catalog      ",
            described(rows.errors(current(snapshot)[:, None], everything)[mask, 0]),
        )
        print("  in-sample    ", described(rows.errors(x[:, None], everything)[mask, 0]))
        print("  without group", described(by_group[mask]))
        print("  without source", described(by_origin[mask]))
    show_bands("speed", -by_origin, rows.kind, rows.origin, rows.group)
    other_bands(rows)
    if arguments.write:
        write(constants, of_origin)


def current(snapshot):
    """Logarithms of the constants as they stand in the catalog."""
    return np.log([snapshot.assumptions[next(iter(n))].value for _, _, n in CONSTANTS.values()])


def write(constants, of_origin):
    with FOLDS_FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("scheme", "held_out", "name", "value"))
        for scheme, found in (("group", constants), ("source", of_origin)):
            for label in sorted(found):
                for log, (_, _, names) in zip(found[label], CONSTANTS.values(), strict=True):
                    for name, share in names.items():
                        writer.writerow((scheme, label, name, f"{share * np.exp(log):.6g}"))


if __name__ == "__main__":
    main()
