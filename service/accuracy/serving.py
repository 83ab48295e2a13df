"""Rows of serving results against the estimate of a replica."""

from collections.abc import Mapping, Sequence

from service.accuracy.scoring import FileScore, UnpredictedRow
from service.core.snapshot import CatalogSnapshot


def score_serving(rows: Sequence[Mapping[str, str]], snapshot: CatalogSnapshot) -> FileScore:
    """Name every serving row as not predicted: only training rows are scored so far."""
    del snapshot  # the rows are not resolved
    unpredicted = tuple(
        UnpredictedRow(row["id"], row.get("kind") or "serving", "serving rows are not scored yet")
        for row in rows
    )
    return FileScore(file="serving", scored=(), unpredicted=unpredicted, by_group=True)
