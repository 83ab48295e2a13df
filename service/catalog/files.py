"""The catalog's folder as entries, each of which knows its file and its lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from service.catalog.documents import Document, Place, read_document
from service.catalog.entries import (
    AliasEntry,
    AliasFile,
    ArchitectureEntry,
    ArchitectureFile,
    AssumptionEntry,
    AssumptionFile,
    FormatEntry,
    FormatFile,
    GpuEntry,
    GpuFile,
    NodeEntry,
    NodeFile,
    SiteEntry,
    SiteFile,
    Sourced,
)
from service.catalog.findings import Finding, InvalidCatalog
from service.catalog.price_entries import (
    CostEntry,
    CostFile,
    PurchaseEntry,
    PurchaseFile,
    RentalFile,
    RentalList,
    RentalRow,
    TokenFile,
    TokenList,
    TokenRow,
)

EntryT = TypeVar("EntryT", bound=Sourced)
FileT = TypeVar("FileT", bound=Sourced)

FILE_KINDS: dict[str, type[Sourced]] = {
    "gpus/*.yaml": GpuFile,
    "nodes/*.yaml": NodeFile,
    "formats.yaml": FormatFile,
    "architectures/*.yaml": ArchitectureFile,
    "sites/*.yaml": SiteFile,
    "assumptions/*.yaml": AssumptionFile,
    "prices/rental/*.yaml": RentalFile,
    "prices/purchase.yaml": PurchaseFile,
    "prices/tokens/*.yaml": TokenFile,
    "costs/*.yaml": CostFile,
    "aliases/*.yaml": AliasFile,
}
"""Which schema holds for which files of the folder."""


@dataclass(frozen=True)
class Located(Generic[EntryT]):
    """An entry, what surrounds it, and where it stands."""

    entry: EntryT
    parents: tuple[Sourced, ...]
    """What it falls back to for sources and checks, the nearest first."""
    document: Document
    place: Place

    def finding(self, message: str, *steps: str | int) -> Finding:
        """A fault in one field of the entry."""
        return self.document.finding((*self.place, *steps), message)

    @property
    def _chain(self) -> tuple[Sourced, ...]:
        return (self.entry, *self.parents)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the entry; empty when none is given anywhere around it."""
        return next((tuple(part.sources) for part in self._chain if part.sources), ())

    @property
    def checked(self) -> date | None:
        """Day of the last comparison with the sources."""
        return next((part.checked for part in self._chain if part.checked), None)

    @property
    def verified(self) -> bool:
        """True unless the entry, or the nearest around it that says anything, says false."""
        said = (part.verified for part in self._chain if part.verified is not None)
        return next(said, True)


@dataclass(frozen=True)
class CatalogFolder:
    """All entries of the folder."""

    gpus: tuple[Located[GpuEntry], ...]
    nodes: tuple[Located[NodeEntry], ...]
    formats: tuple[Located[FormatEntry], ...]
    architectures: tuple[Located[ArchitectureEntry], ...]
    sites: tuple[Located[SiteEntry], ...]
    assumptions: tuple[Located[AssumptionEntry], ...]
    rental_rows: tuple[Located[RentalRow], ...]
    purchases: tuple[Located[PurchaseEntry], ...]
    token_rows: tuple[Located[TokenRow], ...]
    costs: tuple[Located[CostEntry], ...]
    aliases: tuple[Located[AliasEntry], ...]

    def everything(self) -> Iterator[Located[Any]]:
        """Every entry, kind by kind."""
        for entries in vars(self).values():
            yield from entries


def _validated(document: Document, schema: type[FileT]) -> FileT:
    try:
        return schema.model_validate(document.value)
    except ValidationError as error:
        raise InvalidCatalog(
            document.finding(item["loc"], f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
            for item in error.errors(include_url=False)
        ) from error


class _Reader:
    """Reads file by file and keeps what is wrong, so that one run names every fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.findings: list[Finding] = []
        self.files: dict[type[Sourced], list[tuple[Document, Any]]] = {}

    def read(self) -> None:
        if not self.folder.is_dir():
            raise InvalidCatalog([Finding(str(self.folder), 1, "no such folder")])
        known: set[Path] = set()
        for pattern, schema in FILE_KINDS.items():
            paths = sorted(self.folder.glob(pattern))
            known.update(paths)
            self.files[schema] = [pair for path in paths for pair in self._file(path, schema)]
        for path in sorted({*self.folder.rglob("*.yaml"), *self.folder.rglob("*.yml")} - known):
            name = path.relative_to(self.folder).as_posix()
            self.findings.append(Finding(name, 1, "no kind of catalog file has this place"))

    def _file(self, path: Path, schema: type[Sourced]) -> Iterator[tuple[Document, Sourced]]:
        try:
            document = read_document(self.folder, path)
            yield document, _validated(document, schema)
        except InvalidCatalog as error:
            self.findings.extend(error.findings)

    def entries(self, schema: type[Sourced], name: str) -> tuple[Located[Any], ...]:
        return tuple(
            Located(entry, (file,), document, (name, index))
            for document, file in self.files[schema]
            for index, entry in enumerate(getattr(file, name))
        )

    def price_rows(self, schema: type[RentalFile | TokenFile]) -> Iterable[Located[Any]]:
        for document, file in self.files[schema]:
            for number, price_list in enumerate(file.price_lists):
                for index, row in enumerate(price_list.prices):
                    place: Place = ("price_lists", number, "prices", index)
                    yield Located(row, (price_list, file), document, place)


def rental_context(row: Located[RentalRow]) -> tuple[RentalList, RentalFile]:
    """The price list and the file that a row stands in."""
    return cast("tuple[RentalList, RentalFile]", row.parents)


def token_context(row: Located[TokenRow]) -> tuple[TokenList, TokenFile]:
    """The price list and the file that a row of token prices stands in."""
    return cast("tuple[TokenList, TokenFile]", row.parents)


def read_folder(folder: Path) -> CatalogFolder:
    """Read every file of the catalog's folder.

    Raises:
        InvalidCatalog: With every fault of form in any file.
    """
    reader = _Reader(folder)
    reader.read()
    content = CatalogFolder(
        gpus=reader.entries(GpuFile, "gpus"),
        nodes=reader.entries(NodeFile, "nodes"),
        formats=reader.entries(FormatFile, "formats"),
        architectures=reader.entries(ArchitectureFile, "architectures"),
        sites=reader.entries(SiteFile, "sites"),
        assumptions=reader.entries(AssumptionFile, "assumptions"),
        rental_rows=tuple(reader.price_rows(RentalFile)),
        purchases=reader.entries(PurchaseFile, "purchases"),
        token_rows=tuple(reader.price_rows(TokenFile)),
        costs=reader.entries(CostFile, "costs"),
        aliases=reader.entries(AliasFile, "aliases"),
    )
    findings = [*reader.findings, *_without_origin(content)]
    if findings:
        raise InvalidCatalog(findings)
    return content


def _without_origin(content: CatalogFolder) -> Iterator[Finding]:
    for located in content.everything():
        if not located.sources:
            yield located.finding("no source, neither here nor for the file")
        if located.checked is None:
            yield located.finding("no day of the last check, neither here nor for the file")
