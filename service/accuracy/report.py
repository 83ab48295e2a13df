"""The accuracy report: its document, and the same as a table to read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from service import __version__
from service.accuracy.scoring import ALL, FileScore, grouped

REPORT_VERSION = 1
POOLS = {"throughput": "speed", "mfu": "speed", "scaling": "speed"}
"""Kinds that ask the same of the estimate are reported together, too."""


def kinds_of(kind: str) -> tuple[str, ...]:
    """A kind and the pool that it belongs to."""
    return (kind, POOLS[kind]) if kind in POOLS else (kind,)


def document(scores: Sequence[FileScore], *, with_rows: bool) -> dict[str, Any]:
    """The report as one JSON document."""
    report: dict[str, Any] = {
        "version": REPORT_VERSION,
        "engine_version": __version__,
        "groups": _groups(score for score in scores if score.held_out == "group"),
        "unpredicted": _unpredicted(scores),
        "known_to_be_wrong": [
            {"kind": kind, "count": count, "warned": warned}
            for score in _plain(scores)
            for kind, (count, warned) in sorted(score.warned.items())
        ],
        "warnings": [
            {"id": name, "reason": reason}
            for score in _plain(scores)
            for name, reason in score.warnings.items()
        ],
    }
    by_source = _groups(score for score in scores if score.held_out == "source")
    if by_source:
        report["groups_without_source"] = by_source
    if with_rows:
        report["rows"] = [
            {
                "id": row.id,
                "predicted": row.predicted,
                "low": row.low,
                "high": row.high,
                "actual": row.actual,
            }
            for score in _plain(scores)
            for row in score.scored
        ]
    return report


def _groups(scores: Iterable[FileScore]) -> list[dict[str, Any]]:
    return [entry for score in scores for entry in grouped(score, kinds_of)]


def _plain(scores: Iterable[FileScore]) -> list[FileScore]:
    """Scores by the catalog's own constants: what a user of the estimate would see."""
    return [score for score in scores if not score.cross_validated and not score.is_floor]


def _unpredicted(scores: Iterable[FileScore]) -> list[dict[str, Any]]:
    counts = Counter(
        (row.kind, row.reason) for score in _plain(scores) for row in score.unpredicted
    )
    return [
        {"kind": kind, "reason": reason, "count": count}
        for (kind, reason), count in sorted(counts.items())
    ]


HEADING = (
    f"{'file':9}{'kind':34}{'split':32}{'rows':>5}{'median':>8}{'p80':>7}{'p90':>7}{'bias':>7}"
    f"{'band':>6}   cross-validated without the group: median, p80, p90, bias, band"
    "   without the whole source: the same"
)


def as_text(report: dict[str, Any]) -> str:
    """The groups of a report as a table, in-sample and cross-validated side by side."""
    held_out = [
        {_key(entry): entry for entry in entries if entry.get("cross_validated")}
        for entries in (report["groups"], report.get("groups_without_source", []))
    ]
    plain = [entry for entry in report["groups"] if not entry.get("cross_validated")]
    lines = [
        HEADING,
        *(_line(entry, [found.get(_key(entry)) for found in held_out]) for entry in plain),
    ]
    lines += [
        f"not predicted: {entry['count']:4} {entry['kind']:12} {entry['reason']}"
        for entry in report["unpredicted"]
    ]
    lines += [
        f"known to be wrong: {entry['count']} {entry['kind']}, of which {entry['warned']} warn"
        for entry in report["known_to_be_wrong"]
    ]
    return "\n".join(lines)


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["file"], entry["kind"], *entry["split"].values()


def _line(entry: dict[str, Any], held_out: Sequence[dict[str, Any] | None]) -> str:
    split = " ".join(value for value in entry["split"].values() if value != ALL) or ALL
    beside = "".join("   " + _numbers(found) for found in held_out if found is not None)
    start = f"{entry['file']:9}{entry['kind']:34}{split:32}{entry['n_rows']:5}"
    return start + _numbers(entry) + beside


def _numbers(entry: dict[str, Any]) -> str:
    return (
        f"{entry['median']:8.1%}{entry['p80']:7.1%}{entry['p90']:7.1%}{entry['bias']:+7.1%}"
        f"{entry['band_coverage']:6.0%}"
    )
