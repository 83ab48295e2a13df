from math import e

import pytest

from service.accuracy.report import as_text, document
from service.accuracy.scoring import FileScore, ScoredRow, Split, UnpredictedRow, summary


def row(name, predicted, *, group="a", kind="throughput", split=None, actual=1.0, more=True):
    return ScoredRow(
        id=name,
        kind=kind,
        group=group,
        split=split or Split("dense", "hopper", "vendor_tuned"),
        predicted=predicted,
        low=predicted * 0.9,
        high=predicted * 1.1,
        actual=actual,
        higher_is_better=more,
    )


def test_an_error_is_the_logarithm_of_predicted_over_actual():
    assert row("x", e).error == pytest.approx(1.0)


def test_a_time_that_is_too_long_counts_as_too_slow():
    assert row("x", e, more=False).error == pytest.approx(-1.0)


def test_a_summary_holds_median_tail_bias_and_coverage():
    # |ln| of e^0, e^1, e^2, e^3, e^4: median 2, 80th percentile 0.8 · 4 = 3.2, 90th 3.6;
    # only the first lies in its band
    rows = [row(str(i), e**i) for i in range(5)]
    found = summary(rows, by_group=False)
    assert found["n_rows"] == 5
    assert found["n_groups"] == 1
    assert [found[k] for k in ("median", "p80", "p90", "bias", "band_coverage")] == pytest.approx(
        [2.0, 3.2, 3.6, 2.0, 0.2]
    )


def test_groups_are_averaged_before_they_are_compared():
    # group a: |errors| 1 and 3, mean 2; group b: 4; median of 2 and 4
    rows = [row("1", e), row("2", e**3), row("3", e**4, group="b")]
    assert summary(rows, by_group=True)["median"] == pytest.approx(3.0)


def test_the_report_names_what_was_not_predicted():
    score = FileScore(
        "training",
        (row("1", e),),
        (UnpredictedRow("2", "memory", "no shape"), UnpredictedRow("3", "memory", "no shape")),
    )
    report = document([score], with_rows=True)
    assert report["unpredicted"] == [{"kind": "memory", "reason": "no shape", "count": 2}]
    assert [entry["id"] for entry in report["rows"]] == ["1"]
    everything = [g for g in report["groups"] if set(g["split"].values()) == {"all"}]
    assert sorted(g["kind"] for g in everything) == ["speed", "throughput"]


def test_the_report_says_why_a_row_is_doubted():
    score = FileScore("training", (row("1", e),), warnings={"2": "repeats 1"})
    report = document([score], with_rows=False)
    assert report["warnings"] == [{"id": "2", "reason": "repeats 1"}]


def test_rows_are_printed_only_on_demand():
    assert "rows" not in document([FileScore("training", ())], with_rows=False)


def test_whole_sources_held_out_stand_beside_groups_held_out():
    own = FileScore("training", (row("1", e),))
    by_group = FileScore("training", (row("1", e**2),), cross_validated=True)
    by_source = FileScore("training", (row("1", e**3),), cross_validated=True, held_out="source")
    report = document([own, by_group, by_source], with_rows=False)

    def medians(entries):
        return [
            entry["median"]
            for entry in entries
            if entry["kind"] == "speed" and set(entry["split"].values()) == {"all"}
        ]

    assert medians(report["groups"]) == pytest.approx([1, 2])
    assert medians(report["groups_without_source"]) == pytest.approx([3])
    line = next(
        text for text in as_text(report).splitlines() if " speed " in text and " all " in text
    )
    assert [line.count(share) for share in ("100.0%", "200.0%", "300.0%")] == [4, 4, 4]
