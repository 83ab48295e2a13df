"""Collects the quantities and assumptions that an answer stands on while a planner runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

from service.core.assumptions import Assumption, AssumptionUsed
from service.core.errors import InvalidScenario, NoConstants
from service.core.estimates import Quantity, Range
from service.core.registry import definition_named, definition_of
from service.core.snapshot import CatalogSnapshot
from service.core.value import Provenance

GIVEN = "given in the request"
OVERRIDE_FACTOR = 1000.0
SHARE_OF_ANOTHER_PEAK = "bf16_peak_fraction"


@dataclass(frozen=True)
class _Notes:
    quantities: dict[tuple[str, str], Quantity] = field(default_factory=dict)
    assumptions: dict[str, AssumptionUsed] = field(default_factory=dict)
    looked_up: dict[tuple[str, ...], AssumptionUsed] = field(default_factory=dict)
    """Every lookup so far, remembered or not: a plan asks for the same constant many times."""
    unverified: set[str] = field(default_factory=set)
    """Entries, their fields and prices that were used and found in no second place."""


@dataclass(frozen=True)
class Recorder:
    """Evaluates formulas and looks up assumptions for one scope, and remembers both.

    Inside a sweep the recorder is off: formulas run on whole arrays and nothing is kept.
    """

    snapshot: CatalogSnapshot
    overrides: dict[str, float] = field(default_factory=dict)
    scope: str = "plan"
    is_on: bool = True
    override_pointer: str = "/scenario/assumption_overrides"
    """JSON pointer of the overrides in the request."""
    bands: Mapping[str, Range] = field(default_factory=dict)
    """Ranges of published numbers that are known before the numbers are evaluated."""
    _notes: _Notes = field(default_factory=_Notes)

    def __post_init__(self) -> None:
        unknown = sorted(name for name in self.overrides if name not in self.snapshot.assumptions)
        if unknown:
            raise InvalidScenario(
                f"catalog release {self.snapshot.release.version} has no assumption {unknown[0]!r}",
                pointer=f"{self.override_pointer}/{unknown[0]}",
            )
        for name, value in self.overrides.items():
            lowest, highest = override_bounds(self.snapshot.assumptions[name])
            if not lowest <= value <= highest:
                raise InvalidScenario(
                    f"{name} must lie between {lowest:g} and {highest:g}",
                    pointer=f"{self.override_pointer}/{name}",
                )

    def within(self, scope: str) -> "Recorder":
        """The same recorder, writing under another scope such as "run:pretrain"."""
        return replace(self, scope=scope)

    def ranged(self, bands: Mapping[str, Range]) -> "Recorder":
        """The same recorder, giving the named numbers these ranges."""
        return replace(self, bands=bands)

    def off(self) -> "Recorder":
        """The same lookups without remembering anything: for sweeps."""
        return self._quiet if self.is_on else self

    @cached_property
    def _quiet(self) -> "Recorder":
        return replace(self, is_on=False)

    def evaluate(
        self,
        formula: Callable[..., Any],
        *,
        low: float | None = None,
        high: float | None = None,
        shown: float | None = None,
        **inputs: Any,
    ) -> Any:
        """Call a registered formula and remember its result as a quantity of this scope.

        `shown` is remembered instead, where the formula alone does not decide what holds.
        """
        value = formula(**inputs)
        if self.is_on:
            kept = value if shown is None else shown
            self._keep(definition_of(formula).name, kept, low, high, inputs)
        return value

    def note(
        self, name: str, value: float | None, *, low: float | None = None, high: float | None = None
    ) -> None:
        """Remember a number whose name was published with `define_quantity`."""
        if self.is_on:
            self._keep(name, value, low, high, {})

    def _keep(
        self,
        name: str,
        value: Any,
        low: float | None,
        high: float | None,
        inputs: dict[str, Any],
    ) -> None:
        definition = definition_named(name)
        number = None if value is None else float(value)
        if low is None and high is None and name in self.bands:
            low, high = self.bands[name].low, self.bands[name].high
        self._notes.quantities[self.scope, name] = Quantity(
            scope=self.scope,
            name=name,
            value=number,
            low=number if low is None else float(low),
            high=number if high is None else float(high),
            unit=definition.unit,
            per=definition.per,
            formula=definition.formula,
            inputs={key: _plain(item) for key, item in inputs.items()},
            sources=definition.sources,
        )

    def assume(self, name: str, *qualifiers: str) -> AssumptionUsed:
        """Return the most specific assumption of that name, overridden where the request says so.

        Raises:
            NoConstants: If neither the qualified name nor any shorter one is in the catalog.
        """
        asked = (name, *qualifiers)
        used = self._notes.looked_up.get(asked)
        if used is None:
            used = self._notes.looked_up[asked] = self._used(self._found(asked))
        if self.is_on:
            self._notes.assumptions[used.name] = used
        return used

    def _found(self, asked: tuple[str, ...]) -> Assumption:
        found = self.snapshot.assumption(*asked)
        if found is None:
            raise NoConstants(
                f"catalog release {self.snapshot.release.version} holds no {'.'.join(asked)!r}"
            )
        return found

    def has_assumption(self, name: str, *qualifiers: str) -> bool:
        """True when the catalog holds the name, qualified or not."""
        return self.snapshot.assumption(name, *qualifiers) is not None

    def holds(self, name: str, *qualifiers: str) -> bool:
        """True when the catalog holds this very name."""
        return ".".join((name, *qualifiers)) in self.snapshot.assumptions

    def _used(self, found: Assumption) -> AssumptionUsed:
        override = self.overrides.get(found.name)
        given = override is not None
        return AssumptionUsed(
            name=found.name,
            value=found.value if override is None else override,
            low=found.low if override is None else override,
            high=found.high if override is None else override,
            unit=found.unit,
            source=GIVEN if given else "; ".join(found.provenance.sources)[:2000],
            verified=given or found.provenance.verified,
            override_at=f"{self.override_pointer}/{found.name}",
        )

    def assume_given(
        self, name: str, given: float | None, *qualifiers: str, override_at: str
    ) -> float:
        """Return a value given in the request, else the assumption's; remember which it was."""
        if given is None:
            return self.assume(name, *qualifiers).value
        found = self.snapshot.assumption(name, *qualifiers)
        used = AssumptionUsed(
            name=name,
            value=given,
            low=given,
            high=given,
            unit="1" if found is None else found.unit,
            source=GIVEN,
            verified=True,
            override_at=override_at,
        )
        if self.is_on:
            self._notes.assumptions[f"{self.scope} {name}"] = used
        return given

    def rest_on(self, name: str, provenance: Provenance, *fields: str) -> None:
        """Remember that the answer uses an entry of the catalog, or these of its fields alone."""
        weak = set(provenance.unverified_fields)
        if fields:
            weak = weak & set(fields) if provenance.verified else set(fields)
        found = {f"{name}.{each}" for each in weak}
        if not provenance.verified and not fields:
            found.add(name)
        if self.is_on:
            self._notes.unverified.update(found)

    def rest_on_price(self, source: str, *, verified: bool) -> None:
        """Remember that the answer uses a price."""
        if self.is_on and not verified:
            self._notes.unverified.add(f"price: {source}")

    def unverified(self) -> tuple[str, ...]:
        """What the answer uses and was found in no second place: assumptions, entries, prices."""
        assumed = {used.name for used in self.assumptions() if not used.verified}
        return tuple(sorted(assumed | self._notes.unverified))

    def quantities(self) -> tuple[Quantity, ...]:
        """Everything remembered, in the order in which it was first computed."""
        return tuple(self._notes.quantities.values())

    def assumptions(self) -> tuple[AssumptionUsed, ...]:
        """Every assumption that was used, once each, by name and where it was given."""
        notes = self._notes.assumptions.values()
        return tuple(sorted(notes, key=lambda used: (used.name, used.override_at)))


def override_bounds(assumption: Assumption) -> tuple[float, float]:
    """Smallest and largest override of an assumption: a factor of 1,000 outside its range.

    What cannot be negative or zero in the catalog cannot be so in a request: a negative overhead
    would make room in memory, and a rate of zero would divide by it. What is farther away is taken
    for a mistaken unit. A share of a whole does not exceed it.
    """
    low, high = assumption.low, assumption.high
    lowest = low / OVERRIDE_FACTOR if low >= 0 else low * OVERRIDE_FACTOR
    highest = high * OVERRIDE_FACTOR if high > 0 else OVERRIDE_FACTOR
    base = assumption.name.split(".")[0]
    # A share of the peak of another precision may exceed 1.
    is_share = base.endswith("_fraction") and not base.endswith(SHARE_OF_ANOTHER_PEAK)
    return lowest, 1.0 if is_share and low >= 0 and high <= 1 else highest


def _plain(item: Any) -> Any:
    """Numbers and text as JSON can carry them; what is unbounded becomes null."""
    if isinstance(item, (str, bool, int, type(None))):
        return item
    if hasattr(item, "tolist"):
        return _plain(item.tolist())
    if isinstance(item, (list, tuple)):
        return [_plain(part) for part in item]
    return float(item) if isfinite(item) else None
