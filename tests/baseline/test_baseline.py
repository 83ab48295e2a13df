"""Golden estimates: any change of a number shows here and is written by one command."""

import json
from pathlib import Path

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.core.scenarios.scenario import Scenario
from service.plans.baseline import BASELINE_AS_OF_DATE, baseline_of

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_from_folder(FOLDER.parents[1] / "catalog", BASELINE_AS_OF_DATE)


def assert_close(now, golden, where):
    if isinstance(golden, dict):
        assert now.keys() == golden.keys(), where
        for key, value in golden.items():
            assert_close(now[key], value, f"{where}/{key}")
    elif isinstance(golden, list):
        assert len(now) == len(golden), where
        for index, value in enumerate(golden):
            assert_close(now[index], value, f"{where}/{index}")
    elif isinstance(golden, float):
        assert now == pytest.approx(golden, rel=1e-9), where
    else:
        assert now == golden, where


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "scenarios").glob("*.json")), ids=lambda p: p.stem
)
def test_answers_are_the_golden_ones_until_they_are_written_anew(path, snapshot):
    scenario = Scenario.model_validate_json(path.read_bytes())
    golden = json.loads((FOLDER / path.name).read_text(encoding="utf-8"))
    assert_close(baseline_of(scenario, snapshot), golden, path.stem)
