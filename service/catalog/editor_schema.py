"""JSON Schemas of the catalog's files, for editors that check and complete while one types."""

import json
from pathlib import Path
from typing import Any

from service.catalog.entries import CoreEntry
from service.catalog.files import FILE_KINDS

NAMES = {pattern: pattern.removesuffix("/*.yaml").removesuffix(".yaml") for pattern in FILE_KINDS}
"""Pattern of the files -> name of the schema."""


def schema_of(pattern: str) -> dict[str, Any]:
    """The schema of the files under a pattern."""
    schema = FILE_KINDS[pattern].model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    hidden = {entry.__name__ for entry in CoreEntry.__subclasses__()}
    for name, definition in schema.get("$defs", {}).items():
        if name in hidden:
            definition["properties"].pop("provenance")
    return schema


def write_schemas(folder: Path) -> list[Path]:
    """Write one file per kind."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for pattern, name in NAMES.items():
        path = folder / f"{name.replace('/', '-')}.json"
        text = json.dumps(schema_of(pattern), indent=2, sort_keys=True, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        paths.append(path)
    return paths
