"""The schemas for editors are generated: what is committed is what the code makes."""

import json

import pytest

from service.catalog.documents import read_document
from service.catalog.editor_schema import NAMES, schema_of
from service.catalog.files import FILE_KINDS
from service.settings import PROJECT_ROOT

CATALOG = PROJECT_ROOT / "catalog"


@pytest.mark.parametrize("pattern", FILE_KINDS)
def test_the_committed_schema_is_up_to_date(pattern):
    path = CATALOG / "schema" / f"{NAMES[pattern].replace('/', '-')}.json"
    assert json.loads(path.read_text(encoding="utf-8")) == schema_of(pattern)


def test_there_is_a_schema_of_each_kind_and_no_other():
    names = {path.stem for path in (CATALOG / "schema").iterdir()}
    assert names == {name.replace("/", "-") for name in NAMES.values()}


def test_the_unit_of_a_fact_is_part_of_the_schema():
    definitions = schema_of("gpus/*.yaml")["$defs"]
    units = {
        d["properties"]["unit"].get("const")
        for d in definitions.values()
        if "unit" in d.get("properties", {})
    }
    assert {"GB", "MiB", "GB/s", "W", "TFLOPS"} <= units


@pytest.mark.parametrize("path", sorted(CATALOG.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_file_names_its_lines(path):
    document = read_document(CATALOG, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, number in document.lines.items():
        if place and isinstance(place[-1], str):
            assert place[-1] in lines[number - 1]
