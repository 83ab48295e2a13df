"""Planning assumptions: every constant that a planner uses, with its range and its source.

An assumption is named by what it is, with its unit as suffix; where one constant differs by GPU
class, precision, engine or stack, qualifiers follow after points, most general first:
`gemm_bandwidth_fraction.hopper.bf16`. Lookups fall back from the longest name to the shortest.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from service.core.value import LongText, Number, Provenance, Text, Value

AssumptionTopic = Literal[
    "training",
    "serving",
    "reliability",
    "demand",
    "facility",
    "finance",
    "hardware",
    "advisory",
]
AssumptionName = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,80}(\.[a-z0-9_-]{1,40}){0,4}$")]
"""Name with its unit as suffix, qualifiers after points."""


ENGINE_OVERHEAD = "engine_overhead_gib"
"""An engine is known when the catalog holds its overhead."""
_ENGINE = re.compile(r"([a-z][a-z0-9-]*?)-([0-9]+(?:[._][0-9]+)*)")


def engine_and_version(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Read an engine such as "vllm-0.18"; in a qualifier its points are underscores."""
    found = _ENGINE.fullmatch(text)
    return found and (found[1], tuple(int(part) for part in re.split("[._]", found[2])))


def engines_named(names: Iterable[str]) -> list[str]:
    """Engines for which there are constants, each with its first version, the oldest first."""
    parts = (name.split(".") for name in names)
    held = {part[1] for part in parts if part[0] == ENGINE_OVERHEAD and len(part) > 1}
    return sorted(
        (each.replace("_", ".") for each in held if engine_and_version(each)),
        key=lambda each: engine_and_version(each) or ("", ()),
    )


class Assumption(Value):
    """One constant: a typical value between its 10th and 90th percentile."""

    name: AssumptionName
    """Name with unit suffix and qualifiers."""
    topic: AssumptionTopic
    """What it is about."""
    value: Number
    """Typical value."""
    low: Number
    """10th percentile."""
    high: Number
    """90th percentile."""
    unit: Text
    """Unit of the three values; "1" for a plain ratio."""
    kind: Literal["published", "measured", "fitted", "judgement", "rule"] = "judgement"
    """How it is known; a fitted constant names its data set in `note` and borrows no source."""
    note: LongText | None = None
    """What it means, and for "fitted" the data set, method and date."""
    provenance: Provenance = Provenance()
    """Where it comes from."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError("low <= value <= high does not hold")
        return self


class AssumptionUsed(Value):
    """An assumption as one answer used it."""

    name: AssumptionName
    """Name, to be used in `assumption_overrides`."""
    value: Number
    """Value that was used."""
    low: Number
    """10th percentile; equals the value when it was given."""
    high: Number
    """90th percentile; equals the value when it was given."""
    unit: Text
    """Unit of the three values."""
    source: LongText
    """Where it comes from, or "given in the request"."""
    verified: bool
    """False when it rests on memory or on one weak source."""
    override_at: LongText
    """JSON pointer in the request where another value can be given."""
