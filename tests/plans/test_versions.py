"""Stored plans of every version stay readable; the frozen ones stay as they are."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from service.core.plans import SCHEMA_VERSION
from service.plans import versions
from service.plans.versions import read_plan

FIXTURES = Path(__file__).parent / "fixtures"
# A plan that was stored cannot be changed: a new shape takes a new version and a new file.
FROZEN = {1: "00a23e058fa82b962dd67f41146ffd92a45e193962fc9ad185ef448a59ca8851"}


def body(version):
    return (FIXTURES / f"plan_v{version}.json").read_bytes()


def test_every_version_has_a_frozen_plan():
    assert set(FROZEN) == set(range(1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("version", FROZEN)
def test_a_frozen_plan_is_unchanged(version):
    assert sha256(body(version)).hexdigest() == FROZEN[version]


@pytest.mark.parametrize("version", FROZEN)
def test_a_frozen_plan_is_read(version):
    plan = read_plan(body(version), version)
    document = json.loads(body(version))
    assert str(plan.id) == document["id"]
    assert plan.name == document["name"]
    assert str(plan.totals.amount) == document["totals"]["amount"]


def without_new_empty_fields(found, document):
    """What was read, less null, zero and empty fields that the stored document lacks."""
    if isinstance(found, dict):
        kept = found.keys() if not isinstance(document, dict) else document.keys()
        return {
            key: without_new_empty_fields(value, (document or {}).get(key))
            for key, value in found.items()
            if key in kept or value not in (None, 0, [], {})
        }
    if isinstance(found, list):
        return [without_new_empty_fields(a, b) for a, b in zip(found, document, strict=True)]
    return found


def test_a_plan_of_version_1_comes_back_as_it_was():
    document = json.loads(body(1))
    found = json.loads(read_plan(body(1), 1).model_dump_json())
    assert without_new_empty_fields(found, document) == document


def test_a_plan_of_an_old_shape_is_led_through_every_step(monkeypatch):
    document = json.loads(body(1))
    document["title"] = document.pop("name")
    document["schema_version"] = 0

    def rename_title(old):
        renamed = {**old, "name": old["title"], "schema_version": 1}
        del renamed["title"]
        return renamed

    monkeypatch.setattr(versions, "STEPS", {0: rename_title})
    plan = read_plan(json.dumps(document).encode(), 0)
    assert plan == read_plan(body(1), 1)


def test_a_plan_from_a_later_release_is_refused_by_name():
    with pytest.raises(LookupError, match=f"version {SCHEMA_VERSION + 1} are newer"):
        read_plan(body(1), SCHEMA_VERSION + 1)
