"""Names of engines and versions as benchmark records write them, as the catalog knows them."""

import re

from service.core.snapshot import CatalogSnapshot, engine_families, plain_name

CURRENT = {"vllm": "0.18", "sglang": "0.5", "tensorrt-llm": "1.0"}
"""Version that stands for "not stated"."""
FIXED = {"mlperf-submission": "1", "llama-cpp": "1", "compiled": "1", "transformers": "4"}
OLD = re.compile(r"\b(2023|2024)\b")
ANY_DIGIT = re.compile(r"(\.\d)x")
"""A version with its last digit left open stands for the middle of them."""
VERSION = re.compile(r"(?<![\d.])v?(\d+(?:\.\d+)+)")


def family_of(engine: str, version: str, snapshot: CatalogSnapshot) -> str | None:
    """The engine that a record names, without its version, by the catalog's table of spellings.

    Where the table has no such name, the longest of its names that is part of it counts. A record
    of MLPerf is one of a tuned submission, whatever runs it.
    """
    name = "MLPerf" if "mlperf" in version.lower() else engine
    exact = snapshot.key_of("engine", name)
    if exact is not None or ("engine", plain_name(name)) in snapshot.aliases:
        return exact
    spellings = {
        plain: alias.target for (kind, plain), alias in snapshot.aliases.items() if kind == "engine"
    }
    spellings |= {plain_name(key): key for key in engine_families(snapshot.assumptions)}
    parts = [plain for plain, key in spellings.items() if key and plain in plain_name(name)]
    return spellings[max(parts, key=len)] if parts else None


def engine_of(engine: str, version: str, snapshot: CatalogSnapshot) -> str | None:
    """The engine with its version as the catalog names them; None when it is none of them.

    A year before 2025 stands for the generation before 0.8 of vLLM; an unnamed version for the
    current one.
    """
    family = family_of(engine, version, snapshot) if engine.strip() else None
    if family is None:
        return None
    if family in FIXED:
        return f"{family}-{FIXED[family]}"
    if "nim" in engine.lower():
        return f"{family}-0.20"
    found = VERSION.search(ANY_DIGIT.sub(r"\g<1>2", version))
    if found:
        return f"{family}-{found[1]}"
    if family == "vllm" and OLD.search(version):
        return "vllm-0.6"
    return f"{family}-{CURRENT[family]}"
