"""What a release holds, in the one form whose digest names it."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Literal

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, Site
from service.core.prices import PurchasePrice, RentalPrice
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import Value

Kind = Literal[
    "gpus",
    "nodes",
    "formats",
    "architectures",
    "sites",
    "assumptions",
    "rental_prices",
    "purchase_prices",
]
"""Kinds of entries, named as the collections of the API are."""

VALUE_TYPES: dict[Kind, type[Value]] = {
    "gpus": Gpu,
    "nodes": Node,
    "formats": NumberFormat,
    "architectures": ModelArchitecture,
    "sites": Site,
    "assumptions": Assumption,
    "rental_prices": RentalPrice,
    "purchase_prices": PurchasePrice,
}
"""The core value that an entry of each kind is."""


@dataclass(frozen=True)
class CatalogContent:
    """Every entry of a release with all its dates, before an as-of date picks those that hold."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[Node, ...]
    formats: tuple[NumberFormat, ...]
    architectures: tuple[ModelArchitecture, ...]
    sites: tuple[Site, ...]
    assumptions: tuple[Assumption, ...]
    rental_prices: tuple[RentalPrice, ...]
    purchase_prices: tuple[PurchasePrice, ...]

    def entries(self) -> Iterator[tuple[Kind, str, Value]]:
        """Every entry with its kind and its key, in the order of the files."""
        for kind in VALUE_TYPES:
            for value in getattr(self, kind):
                yield kind, entry_key(value), value

    def snapshot(self, release: ReleaseRef, as_of_date: date) -> CatalogSnapshot:
        """The entries as they hold on one day."""
        lists = {field.name: getattr(self, field.name) for field in fields(self)}
        return CatalogSnapshot.build(release=release, as_of_date=as_of_date, **lists)

    def digest(self) -> str:
        """SHA-256 over the canonical form; the order of entries does not matter."""
        entries = sorted(
            ([kind, key, document(value)] for kind, key, value in self.entries()),
            key=lambda entry: (entry[0], entry[1]),
        )
        return f"sha256:{hashlib.sha256(canonical_json(entries)).hexdigest()}"


def entry_key(value: Any) -> str:
    """The key of an entry: assumptions are known by their name."""
    return str(value.name if isinstance(value, Assumption) else value.key)


def document(value: Value) -> dict[str, Any]:
    """An entry as it is stored: every field, amounts and dates as text."""
    return value.model_dump(mode="json")


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, so that equal content gives equal bytes."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def unpublished(content: CatalogContent) -> ReleaseRef:
    """The name of content that was read from files and is in no database."""
    return ReleaseRef(version="unpublished", digest=content.digest())
