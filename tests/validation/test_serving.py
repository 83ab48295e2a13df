"""Published serving results against the estimate: what is reached is held.

Errors are |ln(predicted/measured)|, averaged within a group of rows, then the median over groups.
The limits stand a little above what the model reaches, so that a change that loses accuracy fails;
`./dev accuracy` prints the whole report.
"""

import csv
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from service.accuracy.scoring import summary
from service.accuracy.serving.fit import SPEED, WAITING
from service.accuracy.serving.rows import ServingRow, resolved
from service.accuracy.serving.score import cross_validate_serving, score_serving
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]
FULL = {"full", "latent"}


def read(name):
    path = ROOT / "tests" / "validation" / name
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


ROWS = read("serving.csv")


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))


@pytest.fixture(scope="module")
def score(snapshot):
    return score_serving(ROWS, snapshot)


@pytest.fixture(scope="module")
def held_out(snapshot):
    return cross_validate_serving(ROWS, read("serving_folds.csv"), snapshot)


@pytest.fixture(scope="module")
def source_held_out(snapshot):
    return cross_validate_serving(ROWS, read("serving_folds.csv"), snapshot, "source")


@pytest.fixture(scope="module")
def cases(snapshot, score):
    recorder = Recorder(snapshot).off()
    known = {row.id for row in score.scored}
    return {row["id"]: resolved(row, snapshot, recorder) for row in ROWS if row["id"] in known}


def median(found, part, kind=None, among=None):
    rows = [
        row
        for row in found.scored
        if row.part == part
        and kind in {None, row.split.dense_or_moe}
        and (among is None or row.id in among)
    ]
    return summary(rows, by_group=True)["median"]


def test_nearly_every_row_is_predicted(score):
    share = len(score.unpredicted) / (len(score.unpredicted) + len(score.scored))
    assert share <= 0.08
    assert all(row.reason for row in score.unpredicted)


# Limits with groups held out, with sources held out, and of the catalog's constants. Where what is
# wanted is not reached, it stands beside: the rest lies in hosts, limits of tests and schedulers
# that publications do not state.
@pytest.mark.parametrize(
    ("part", "kind", "most", "most_by_source", "most_in_sample"),
    [
        ("offline_throughput", "dense", 0.105, 0.114, 0.095),
        ("offline_throughput", "moe", 0.128, 0.13, 0.116),
        ("online_throughput", "dense", 0.195, 0.195, 0.192),
        ("online_throughput", "moe", 0.23, 0.22, 0.21),
        ("tpot_alone", None, 0.14, 0.151, 0.139),  # wanted 0.12
        ("tpot_loaded", "dense", 0.134, 0.146, 0.138),  # wanted 0.13
        ("tpot_loaded", "moe", 0.15, 0.148, 0.145),
        ("ttft_alone", None, 0.126, 0.126, 0.104),
        ("ttft_loaded", None, 0.368, 0.372, 0.365),
    ],
)
def test_speeds_are_as_near_as_they_were(
    score, held_out, source_held_out, part, kind, most, most_by_source, most_in_sample
):
    assert median(score, part, kind) <= most_in_sample
    assert median(held_out, part, kind) <= most
    assert median(source_held_out, part, kind) <= most_by_source


# Wanted: 0.085 and 0.135. The best published tool on measured kernels has 0.088 and 0.201.
@pytest.mark.parametrize(("kind", "most"), [("dense", 0.10), ("moe", 0.135)])
def test_current_engines_at_stated_concurrency_are_nearer(held_out, cases, kind, most):
    current = {key for key, case in cases.items() if case.is_current_sweep}
    assert median(held_out, "tpot_loaded", kind, current) <= most


def test_weights_are_within_a_sixtieth_of_what_engines_log(score):
    logged = {r["id"] for r in ROWS if r["measured_metric"] == "model_load_gib_per_gpu"}
    assert median(score, "memory", among=logged) <= 0.015


def holds_whole_caches(case: ServingRow) -> bool:
    kinds = {group.attention.kind for group in case.shape.architecture.layer_groups}
    return case.shape.gpu.memory_gb >= 70 and kinds <= FULL


def test_pools_of_large_cards_hold_the_tokens_that_engines_log(score, cases):
    large = {key for key, case in cases.items() if holds_whole_caches(case)}
    assert median(score, "kv_capacity", among=large) <= 0.010


def test_pools_hold_the_tokens_that_engines_log(score):
    assert median(score, "kv_capacity") <= 0.02


PARTS = (
    "offline_throughput",
    "online_throughput",
    "tpot_alone",
    "tpot_loaded",
    "ttft_alone",
    "ttft_loaded",
    "kv_capacity",
    "memory",
    "cost",
)


def covered(found, part):
    rows = [row for row in found.scored if row.part == part]
    return summary(rows, by_group=True)["band_coverage"]


@pytest.mark.parametrize("part", PARTS)
def test_bands_hold_about_four_fifths_of_what_was_measured(held_out, source_held_out, part):
    assert 0.75 <= covered(held_out, part) <= 0.90
    assert 0.75 <= covered(source_held_out, part) <= 0.90


def test_no_more_than_sixty_constants_are_fitted():
    assert len(set(SPEED + WAITING)) == len(SPEED + WAITING) <= 60


def test_an_error_in_the_rows_would_be_seen(score):
    halved = replace(
        score, scored=tuple(replace(r, predicted=r.predicted / 2) for r in score.scored)
    )
    assert median(halved, "offline_throughput", "dense") > 0.5
