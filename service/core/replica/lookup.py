"""Looking constants up: for an engine and its version, in core units, varied for a range.

The same lookups serve twice: once for typical values, once with every constant at its low and at
its high end in turn, so that one pass over arrays shows what each contributes to a range.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.core.assumptions import (
    ENGINE_OVERHEAD,
    AssumptionUsed,
    engine_and_version,
    engines_named,
)
from service.core.estimates import Range
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB, BYTES_PER_MIB

_SCALE = {
    "_us": 1e-6,
    "_ms": 1e-3,
    "_gib": BYTES_PER_GIB,
    "_mib_per_1000_vocabulary": BYTES_PER_MIB / 1000,
}


def engine_qualifiers(snapshot: CatalogSnapshot, engine: str, *, pointer: str) -> dict[str, str]:
    """Qualifier of an engine for each assumption that knows it: the newest not above its version.

    Raises:
        UnknownKey: If the catalog holds no overhead of this engine or of an older version.
    """
    wanted = engine_and_version(engine)
    newest: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in snapshot.assumptions:
        base, *qualifiers = name.split(".")
        held = engine_and_version(qualifiers[0]) if qualifiers else None
        if held is None:
            continue
        if wanted and held[0] == wanted[0] and held[1] <= wanted[1]:
            newest[base] = max(newest.get(base, ((), "")), (held[1], qualifiers[0]))
    if ENGINE_OVERHEAD not in newest:
        held_engines = engines_named(snapshot.assumptions)
        known = f"known, each with later versions: {', '.join(held_engines)}"
        raise snapshot.unknown("engine", engine, held_engines, pointer=pointer, known=known)
    return {base: qualifier for base, (_, qualifier) in newest.items()}


@dataclass(frozen=True)
class Lookup:
    """Looks constants up in core units and remembers which assumptions they came from."""

    recorder: Recorder
    engine: Mapping[str, str]
    used: dict[str, AssumptionUsed] = field(default_factory=dict)
    places: Mapping[str, int] | None = None
    """Where each uncertain assumption is varied; None for typical values alone."""
    _seen: dict[tuple[str, tuple[str, ...]], tuple[AssumptionUsed, float]] = field(
        default_factory=dict, repr=False
    )
    """Every lookup so far: a sweep over kinds of GPU asks for the same constants many times."""

    def __call__(self, name: str, *qualifiers: str) -> Any:
        """A number, or an array of its typical value with its low and high end in their places."""
        found, scale = self._found(name, qualifiers)
        self.used[found.name] = found
        if self.places is None:
            return found.value * scale
        values = np.full(2 * len(self.places) + 1, found.value)
        if found.name in self.places:
            values[self.places[found.name]] = found.low
            values[self.places[found.name] + len(self.places)] = found.high
        return values * scale

    def assumption(self, name: str, *qualifiers: str) -> AssumptionUsed:
        """The assumption itself, with both its ends."""
        return self._found(name, qualifiers)[0]

    def exact(self, name: str, *qualifiers: str) -> float:
        """A threshold or a setting: a choice that is made once, not varied for a range."""
        found, scale = self._found(name, qualifiers)
        return found.value * scale

    def _found(self, name: str, qualifiers: tuple[str, ...]) -> tuple[AssumptionUsed, float]:
        seen = self._seen.get((name, qualifiers))
        if seen is None:
            seen = self._seen[name, qualifiers] = self._looked_up(name, qualifiers)
        return seen

    def _looked_up(self, name: str, qualifiers: tuple[str, ...]) -> tuple[AssumptionUsed, float]:
        engine = self.engine.get(name)
        own = qualifiers if engine is None else (engine, *qualifiers)
        found = self.recorder.assume(name, *own)
        return found, next((s for suffix, s in _SCALE.items() if name.endswith(suffix)), 1.0)

    def varied(self) -> "Lookup":
        """The same lookups with each uncertain assumption so far at its two ends in turn."""
        uncertain = sorted(name for name, used in self.used.items() if used.low < used.high)
        places = {name: place for place, name in enumerate(uncertain, start=1)}
        return Lookup(self.recorder.off(), self.engine, {}, places)


def spread(values: Any) -> Range:
    """Range of a result from its typical value and its values with one constant varied at a time.

    Constants are taken as independent: their logarithmic effects add in squares, those that
    lower the result apart from those that raise it.
    """
    value = float(values[0])
    if value <= 0:
        return Range(value=value, low=float(values.min()), high=float(values.max()))
    with np.errstate(divide="ignore"):
        ends = np.log(values[1:] / value).reshape(2, -1)
    up = np.sqrt(np.sum(np.maximum(ends.max(axis=0), 0.0) ** 2))
    down = np.sqrt(np.sum(np.minimum(ends.min(axis=0), 0.0) ** 2))
    return Range(value=value, low=value * float(np.exp(-down)), high=value * float(np.exp(up)))


def widened(band: Range, factor: float) -> Range:
    """The same range with its logarithms times a factor."""
    if band.low <= 0:
        return band
    return Range(
        value=band.value,
        low=band.value * (band.low / band.value) ** factor,
        high=band.value * (band.high / band.value) ** factor,
    )


def weakest_assumption(values: Any, places: Mapping[str, int]) -> str | None:
    """The constant whose own uncertainty moves a result most; None where none does."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.abs(np.log(values[1:] / values[0])).reshape(2, -1).max(axis=0)
    if ends.size == 0 or not ends.max() > 0:
        return None
    return next(name for name, place in places.items() if place == int(np.argmax(ends)) + 1)
