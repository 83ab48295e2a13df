"""Golden estimates: what the planners answer today, so that a change of any number is seen.

The baseline says whether something changed, never whether it is right; it changes by
`gpuplan baseline write` and a reviewed diff.
"""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import CatalogSnapshot

SIGNIFICANT_DIGITS = 12
BASELINE_AS_OF_DATE = date(2026, 11, 29)
"""Day of the golden estimates: they change with the planners and the catalog, never with time."""


def baseline_of(scenario: Scenario, snapshot: CatalogSnapshot) -> dict[str, Any]:
    """Everything that identifies an answer: totals, pools, layouts, reasons and quantities."""
    estimate, assumptions = estimate_fleet(scenario, snapshot=snapshot)
    document = estimate.model_dump(
        mode="json",
        include={
            "feasible",
            "infeasibilities",
            "totals",
            "pools",
            "training_runs",
            "serving_services",
            "months",
        },
    )
    document["advisories"] = [advisory.code for advisory in estimate.advisories]
    document["line_count"] = len(estimate.lines)
    document["quantities"] = {f"{q.scope} {q.name}": q.value for q in estimate.quantities}
    document["assumptions"] = {used.name: used.value for used in assumptions}
    rounded: dict[str, Any] = _rounded(document)
    return rounded


def baselines(folder: Path, snapshot: CatalogSnapshot) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each scenario file of a folder with its baseline document, in the order of names."""
    for path in sorted((folder / "scenarios").glob("*.json")):
        scenario = Scenario.model_validate_json(path.read_bytes())
        yield folder / path.name, baseline_of(scenario, snapshot)


def write_baselines(folder: Path, snapshot: CatalogSnapshot) -> list[Path]:
    """Write the baseline of every scenario beside the scenarios' folder; return the files."""
    written = []
    for path, document in baselines(folder, snapshot):
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        written.append(path)
    return written


def _rounded(item: Any) -> Any:
    """Floats to twelve digits: the last ones differ between processors."""
    if isinstance(item, float):
        return float(f"{item:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(item, dict):
        return {key: _rounded(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_rounded(value) for value in item]
    return item
