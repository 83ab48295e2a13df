"""Published names of quantities: which function computes which number.

A formula is registered where it is written, so one search for a quantity's name leads from a
spreadsheet cell to the code that computes it. Published names are frozen by a test; functions may
be renamed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from service.core.units import Per, Unit

Formula = TypeVar("Formula", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class QuantityDefinition:
    """What is published about one quantity name."""

    name: str
    unit: Unit
    per: Per
    formula: str
    """The equation, in words and symbols, as a reader would recompute it by hand."""
    sources: tuple[str, ...]
    """References of the equation."""


_definitions: dict[str, QuantityDefinition] = {}
_ATTRIBUTE = "__quantity__"


def define_quantity(
    name: str, *, unit: Unit, per: Per, formula: str, sources: tuple[str, ...] = ()
) -> QuantityDefinition:
    """Register a published quantity name.

    Raises:
        ValueError: If the name is taken by another definition.
    """
    definition = QuantityDefinition(name, unit, per, formula, sources)
    if _definitions.setdefault(name, definition) != definition:
        raise ValueError(f"quantity {name!r} is defined twice")
    return definition


def quantity(
    name: str, *, unit: Unit, per: Per, formula: str, sources: tuple[str, ...] = ()
) -> Callable[[Formula], Formula]:
    """Register the decorated function as the one that computes the named quantity."""
    definition = define_quantity(name, unit=unit, per=per, formula=formula, sources=sources)

    def register(function: Formula) -> Formula:
        setattr(function, _ATTRIBUTE, definition)
        return function

    return register


def definition_of(function: Callable[..., Any]) -> QuantityDefinition:
    """Return the definition that a registered formula computes.

    Raises:
        LookupError: If the function was not registered with `quantity`.
    """
    definition = getattr(function, _ATTRIBUTE, None)
    if not isinstance(definition, QuantityDefinition):
        raise LookupError(f"{function.__qualname__} computes no published quantity")
    return definition


def definition_named(name: str) -> QuantityDefinition:
    """Return the definition of a published name.

    Raises:
        LookupError: If the name is not published.
    """
    try:
        return _definitions[name]
    except KeyError:
        raise LookupError(f"no quantity is published as {name!r}") from None


def all_definitions() -> tuple[QuantityDefinition, ...]:
    """Return every published definition in the order of names."""
    return tuple(_definitions[name] for name in sorted(_definitions))
