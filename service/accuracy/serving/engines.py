"""Names of engines and versions as benchmark records write them, as the catalog knows them."""

import re

from service.core.assumptions import engine_and_version, engines_named
from service.core.snapshot import CatalogSnapshot, engine_families, plain_name

CURRENT = {"vllm": "0.18", "sglang": "0.5", "tensorrt-llm": "1.0"}
"""Version that stands for "not stated"."""
FIXED = {"mlperf-submission": "1", "llama-cpp": "1", "compiled": "1", "transformers": "4"}
OLD = re.compile(r"\b(2023|2024)\b|(?<![\d.])v?2[34]\.(0[1-9]|1[0-2])\b|\bv0\b", re.IGNORECASE)
"""A year, a container's year and month, or the first generation of vLLM by its own name."""
OF_OLD = {"vllm": "0.6", "tensorrt-llm": "0.10"}
"""Version that stands for those years."""
DATED = re.compile(r"(?<![\d.])v?2\d\.(0[1-9]|1[0-2])\b")
OTHERS = re.compile(
    r"(rocm|cuda|cu|torch|pytorch|transformers|tensorrt|python|driver|rhel)[ _-]*v?\d+(\.\d+)*",
    re.IGNORECASE,
)
"""Versions of what runs beside or below the engine."""
ANY_DIGIT = re.compile(r"(\.\d)x")
"""A version with its last digit left open stands for the middle of them."""
VERSION = re.compile(r"(?<![\d.])v?(\d+(?:\.\d+)+)")


def runtime_of(engine: str, snapshot: CatalogSnapshot) -> str | None:
    """The engine that a record names, without its version, by the catalog's table of spellings.

    Where the table has no such name, the longest of its names that is part of it counts.
    """
    exact = snapshot.key_of("engine", engine)
    if exact is not None or ("engine", plain_name(engine)) in snapshot.aliases:
        return exact
    spellings = {
        plain: alias.target for (kind, plain), alias in snapshot.aliases.items() if kind == "engine"
    }
    spellings |= {plain_name(key): key for key in engine_families(snapshot.assumptions)}
    parts = [plain for plain in spellings if len(plain) > 2 and plain in plain_name(engine)]
    return spellings[max(parts, key=len)] if parts else None


def family_of(engine: str, version: str, snapshot: CatalogSnapshot) -> str | None:
    """The engine whose constants hold: a record of MLPerf is one of a tuned submission."""
    return runtime_of("MLPerf" if "mlperf" in version.lower() else engine, snapshot)


def engine_of(engine: str, version: str, snapshot: CatalogSnapshot) -> str | None:
    """The engine with its version as the catalog names them; None when it is none of them.

    A year before 2025 stands for the generation before 0.8 of vLLM; an unnamed version for the
    current one; one older than all that were measured for the oldest of these.
    """
    family = family_of(engine, version, snapshot) if engine.strip() else None
    if family is None:
        return None
    if family in FIXED:
        return f"{family}-{FIXED[family]}"
    if "nim" in engine.lower() and family == "tensorrt-llm":
        return f"{family}-0.20"
    written = OTHERS.sub("", f"{version} {engine}")
    found = VERSION.search(ANY_DIGIT.sub(r"\g<1>2", DATED.sub("", written)))
    if found:
        return _measured(family, found[1], snapshot)
    is_old = family in OF_OLD and OLD.search(written)
    return f"{family}-{OF_OLD[family] if is_old else CURRENT[family]}"


def _measured(family: str, version: str, snapshot: CatalogSnapshot) -> str:
    """The engine in that version, or in the oldest one that there are constants of."""
    held = (engine_and_version(each) for each in engines_named(snapshot.assumptions))
    oldest = min(pair[1] for pair in held if pair and pair[0] == family)
    if tuple(map(int, version.split("."))) >= oldest:
        return f"{family}-{version}"
    return f"{family}-{'.'.join(map(str, oldest))}"
