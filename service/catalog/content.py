"""What a release holds, in the one form whose digest names it."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Literal

from pydantic import TypeAdapter

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, Site
from service.core.prices import CatalogPrice, CostFact, PurchasePrice, RentalPrice, TokenPrice
from service.core.snapshot import Alias, CatalogSnapshot, ReleaseRef, plain_name
from service.core.value import Value

Kind = Literal[
    "gpus",
    "nodes",
    "formats",
    "architectures",
    "sites",
    "assumptions",
    "prices",
    "token_prices",
    "cost_facts",
    "aliases",
]
"""Kinds of entries, named as the collections of the API are."""

_ADAPTERS: dict[Kind, TypeAdapter[Any]] = {
    "gpus": TypeAdapter(Gpu),
    "nodes": TypeAdapter(Node),
    "formats": TypeAdapter(NumberFormat),
    "architectures": TypeAdapter(ModelArchitecture),
    "sites": TypeAdapter(Site),
    "assumptions": TypeAdapter(Assumption),
    "prices": TypeAdapter(CatalogPrice),
    "token_prices": TypeAdapter(TokenPrice),
    "cost_facts": TypeAdapter(CostFact),
    "aliases": TypeAdapter(Alias),
}
KINDS: tuple[Kind, ...] = tuple(_ADAPTERS)


@dataclass(frozen=True)
class CatalogContent:
    """Every entry of a release with all its dates, before an as-of date picks those that hold."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[Node, ...]
    formats: tuple[NumberFormat, ...]
    architectures: tuple[ModelArchitecture, ...]
    sites: tuple[Site, ...]
    assumptions: tuple[Assumption, ...]
    prices: tuple[RentalPrice | PurchasePrice, ...]
    token_prices: tuple[TokenPrice, ...]
    cost_facts: tuple[CostFact, ...]
    aliases: tuple[Alias, ...]

    def entries(self) -> Iterator[tuple[Kind, Value]]:
        """Every entry with its kind, in the order of the files."""
        for kind in KINDS:
            for value in getattr(self, kind):
                yield kind, value

    def snapshot(self, release: ReleaseRef, as_of_date: date) -> CatalogSnapshot:
        """The entries as they hold on one day."""
        lists = {field.name: getattr(self, field.name) for field in fields(self)}
        prices = lists.pop("prices")
        return CatalogSnapshot.build(
            release=release,
            as_of_date=as_of_date,
            rental_prices=[price for price in prices if isinstance(price, RentalPrice)],
            purchase_prices=[price for price in prices if isinstance(price, PurchasePrice)],
            **lists,
        )

    def digest(self) -> str:
        """SHA-256 over the canonical form; the order of entries does not matter."""
        entries = sorted(
            ([kind, entry_key(value), to_document(value)] for kind, value in self.entries()),
            key=lambda entry: (entry[0], entry[1]),
        )
        return f"sha256:{hashlib.sha256(canonical_json(entries)).hexdigest()}"


def entry_key(value: Any) -> str:
    """The key of an entry: assumptions are known by their name, aliases by kind and plain name."""
    if isinstance(value, Alias):
        return f"{value.kind} {plain_name(value.name)}"
    return str(value.name if isinstance(value, Assumption) else value.key)


def to_document(value: Value) -> dict[str, Any]:
    """An entry as it is stored: every field, amounts and dates as text."""
    return value.model_dump(mode="json")


def from_document(kind: Kind, document: Any) -> Any:
    """The core value of a stored entry."""
    return _ADAPTERS[kind].validate_python(document)


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, so that equal content gives equal bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def unpublished(content: CatalogContent) -> ReleaseRef:
    """The name of content that was read from files and is in no database."""
    return ReleaseRef(version="unpublished", digest=content.digest())
