"""The collections of a catalog release, and what a page of each looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.catalog.content import Kind
from service.catalog.release import Release
from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, Site
from service.core.prices import CatalogPrice, CostFact, TokenPrice
from service.core.snapshot import ReleaseRef
from service.core.value import Value
from service.exports import catalog as columns
from service.exports.table import Column


class ReleasePage(Value):
    """Some releases, newest first."""

    items: tuple[Release, ...]
    """The releases of this page."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


class ReleaseContents(Release):
    """A release, and how much it holds."""

    entry_counts: dict[Kind, int]
    """Entries of each kind; aliases are other spellings of keys, and no collection."""


class EntryPage(Value):
    """What a page of any collection says beside its items."""

    catalog_release: ReleaseRef
    """Release of these entries."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


class GpuPage(EntryPage):
    """Some GPUs of a release."""

    items: tuple[Gpu, ...]
    """The GPUs of this page."""


class NodePage(EntryPage):
    """Some nodes of a release."""

    items: tuple[Node, ...]
    """The nodes of this page."""


class ArchitecturePage(EntryPage):
    """Some architectures of a release."""

    items: tuple[ModelArchitecture, ...]
    """The architectures of this page."""


class PricePage(EntryPage):
    """Some prices of a release."""

    items: tuple[CatalogPrice, ...]
    """The prices of this page."""


class TokenPricePage(EntryPage):
    """Some prices of hosted tokens of a release."""

    items: tuple[TokenPrice, ...]
    """The prices of this page."""


class CostFactPage(EntryPage):
    """Some cost facts of a release."""

    items: tuple[CostFact, ...]
    """The facts of this page."""


class AssumptionPage(EntryPage):
    """Some assumptions of a release."""

    items: tuple[Assumption, ...]
    """The assumptions of this page."""


class SitePage(EntryPage):
    """Some sites of a release."""

    items: tuple[Site, ...]
    """The sites of this page."""


class FormatPage(EntryPage):
    """Some number formats of a release."""

    items: tuple[NumberFormat, ...]
    """The number formats of this page."""


@dataclass(frozen=True)
class Collection:
    """One kind of entries: how it is named, typed and written as a table."""

    kind: Kind
    entry: str
    """Its entry in the name of an operation."""
    title: str
    """Its entries in a sentence."""
    entry_type: Any
    page_type: Any
    columns: tuple[Column[Any], ...]

    @property
    def path(self) -> str:
        """Its name in an address."""
        return self.kind.replace("_", "-")


COLLECTIONS = (
    Collection("gpus", "gpu", "GPUs", Gpu, GpuPage, columns.GPU_COLUMNS),
    Collection("nodes", "node", "nodes", Node, NodePage, columns.NODE_COLUMNS),
    Collection(
        "architectures",
        "architecture",
        "model architectures",
        ModelArchitecture,
        ArchitecturePage,
        columns.ARCHITECTURE_COLUMNS,
    ),
    Collection("prices", "price", "prices", CatalogPrice, PricePage, columns.PRICE_COLUMNS),
    Collection(
        "token_prices",
        "token_price",
        "prices of hosted tokens",
        TokenPrice,
        TokenPricePage,
        columns.TOKEN_PRICE_COLUMNS,
    ),
    Collection(
        "cost_facts", "cost_fact", "cost facts", CostFact, CostFactPage, columns.COST_FACT_COLUMNS
    ),
    Collection(
        "assumptions",
        "assumption",
        "planning assumptions",
        Assumption,
        AssumptionPage,
        columns.ASSUMPTION_COLUMNS,
    ),
    Collection("sites", "site", "sites", Site, SitePage, columns.SITE_COLUMNS),
    Collection(
        "formats", "format", "number formats", NumberFormat, FormatPage, columns.FORMAT_COLUMNS
    ),
)
