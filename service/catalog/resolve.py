"""From located entries to core values: units in the names, provenance filled in."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from service.catalog.content import CatalogContent, unpublished
from service.catalog.entries import (
    AliasEntry,
    ArchitectureEntry,
    AssumptionEntry,
    Fact,
    FormatEntry,
    GpuEntry,
    NodeEntry,
    SiteEntry,
    SourcedEntry,
)
from service.catalog.files import (
    CatalogFolder,
    Located,
    read_folder,
    rental_context,
    token_context,
)
from service.catalog.findings import Finding, InvalidCatalog
from service.catalog.price_entries import CostEntry, PurchaseEntry, RentalRow, TokenRow
from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, PeakRates, Site
from service.core.prices import Commitment, CostFact, PurchasePrice, RentalPrice, TokenPrice
from service.core.snapshot import Alias, CatalogSnapshot, by_spelling, key_named, plain_name
from service.core.value import Provenance, Value

EntryT = TypeVar("EntryT", bound=SourcedEntry)
ValueT = TypeVar("ValueT", bound=Value)

GPU_FACTS = {
    "memory": "memory_gb",
    "memory_reported": "memory_reported_mib",
    "memory_cuda": "memory_cuda_mib",
    "memory_bandwidth": "memory_bandwidth_gb_per_s",
    "scale_up_bandwidth_per_direction": "scale_up_gb_per_s_per_direction",
    "pcie_bandwidth_per_direction": "pcie_gb_per_s_per_direction",
    "thermal_design_power": "thermal_design_power_w",
}
NODE_FACTS = {
    "maximum_power": "maximum_power_kw",
    "scale_out_bandwidth_per_gpu": "scale_out_gbit_per_s_per_gpu",
    "host_memory": "host_memory_gib",
}
SITE_FACTS = {
    "power_price": "power_price_per_kwh",
    "power_usage_effectiveness": "power_usage_effectiveness",
    "carbon": "carbon_g_per_kwh",
}
"""Field of the file -> field of the core, whose name carries the unit."""
NO_FACTS: Mapping[str, str] = MappingProxyType({})

COMMITMENTS: tuple[Commitment, ...] = (
    "on_demand",
    "spot",
    "committed_1yr",
    "committed_3yr",
    "capacity_block",
    "negotiated",
)
PRICE_STEP = Decimal("0.000001")


def provenance(located: Located[Any], facts: Mapping[str, str] = NO_FACTS) -> Provenance:
    """Where an entry comes from; facts with a source of their own add it."""
    sources = list(located.sources)
    unverified = list(located.entry.unverified_fields)
    for name, core_name in facts.items():
        fact: Fact[Any] | None = getattr(located.entry, name)
        if fact is not None and fact.source is not None and fact.source not in sources:
            sources.append(fact.source)
        if fact is not None and fact.verified is False:
            unverified.append(core_name)
    return Provenance(
        sources=tuple(sources),
        checked=located.checked,
        verified=located.verified,
        unverified_fields=tuple(unverified),
    )


def _fields(
    entry: Any, value_type: type[Value], facts: Mapping[str, str] = NO_FACTS
) -> dict[str, Any]:
    """Fields that the entry shares by name with the core value, and its facts by core name."""
    shared = value_type.model_fields.keys() & type(entry).model_fields.keys()
    shared -= {"provenance", *facts}
    figures = {core: getattr(entry, name) for name, core in facts.items()}
    return {name: getattr(entry, name) for name in shared} | {
        core: fact.value for core, fact in figures.items() if fact is not None
    }


def gpu(located: Located[GpuEntry]) -> Gpu:
    """A GPU as the core takes it."""
    entry = located.entry
    rates = {name: getattr(entry.peaks, name) for name in PeakRates.model_fields}
    return Gpu(
        **_fields(entry, Gpu, GPU_FACTS),
        peak_tflops=PeakRates(**rates),
        provenance=provenance(located, GPU_FACTS),
    )


def node(located: Located[NodeEntry]) -> Node:
    """A node as the core takes it."""
    fields = _fields(located.entry, Node, NODE_FACTS)
    return Node(**fields, provenance=provenance(located, NODE_FACTS))


def number_format(located: Located[FormatEntry], gpus: Iterable[Gpu] = ()) -> NumberFormat:
    """A number format as the core takes it, with its bytes and the GPUs that multiply it."""
    entry = located.entry
    facts = _fields(entry, NumberFormat) | {
        "element_bytes": entry.bytes_per_element,
        "native_gpus": tuple(gpu.key for gpu in gpus if entry.is_native_on(gpu)),
    }
    return NumberFormat(**facts, provenance=provenance(located))


def architecture(located: Located[ArchitectureEntry]) -> ModelArchitecture:
    """An architecture as the core takes it."""
    fields = _fields(located.entry, ModelArchitecture)
    return ModelArchitecture(**fields, provenance=provenance(located))


def site(located: Located[SiteEntry]) -> Site:
    """A site as the core takes it; the tariff's unit names the currency."""
    return Site(
        **_fields(located.entry, Site, SITE_FACTS),
        currency=located.entry.power_price.unit.removesuffix("/kWh"),
        provenance=provenance(located, SITE_FACTS),
    )


def assumption(located: Located[AssumptionEntry]) -> Assumption:
    """An assumption as the core takes it; topic and kind may stand on the file."""
    file: Any = located.parents[0]
    fields = _fields(located.entry, Assumption)
    fields["kind"] = located.entry.kind or file.kind or "judgement"
    return Assumption(**fields, topic=file.topic, provenance=provenance(located))


def price_key(*parts: str) -> str:
    """A stable key from what tells one price from another."""
    return re.sub(r"[^a-z0-9._-]+", "-", ".".join(parts).lower())


def rental_prices(located: Located[RentalRow]) -> Iterator[RentalPrice]:
    """The prices of one row, one for each commitment that it names."""
    row = located.entry
    price_list, file = rental_context(located)
    instance = file.instances.get(row.instance)
    if instance is None:
        raise InvalidCatalog(
            [located.finding(f"instance {row.instance!r} is not in the file's list", "instance")]
        )
    currency, per = price_list.unit.split("/")
    share = instance.gpu_count if per == "instance_hour" else 1

    def per_gpu(price: Decimal) -> Decimal:
        return (price / share).quantize(PRICE_STEP, ROUND_HALF_EVEN).normalize()

    names = (file.provider, row.region, row.instance)
    for commitment in COMMITMENTS:
        price: Decimal | None = getattr(row, commitment)
        if price is None:
            continue
        yield RentalPrice(
            key=price_key(*names, commitment, price_list.valid_from.isoformat()),
            provider=file.provider,
            region=row.region,
            instance_type=row.instance,
            gpu=instance.gpu,
            gpu_count=instance.gpu_count,
            commitment=commitment,
            price_per_gpu_hour=per_gpu(price),
            host_price_per_gpu_hour=None if row.host is None else per_gpu(row.host),
            currency=currency,
            billing_basis=price_list.billing_basis,
            quality=row.quality or price_list.quality,
            valid_from=price_list.valid_from,
            valid_to=row.valid_to or price_list.valid_to,
            note=row.note or price_list.note,
            provenance=provenance(located),
        )


def purchase_price(located: Located[PurchaseEntry]) -> PurchasePrice:
    """A purchase price as the core takes it."""
    entry = located.entry
    return PurchasePrice(
        **_fields(entry, PurchasePrice),
        key=price_key("purchase", entry.gpu, entry.includes, entry.valid_from.isoformat()),
        low=entry.price.low,
        typical=entry.price.typical,
        high=entry.price.high,
        currency=entry.price.unit.removesuffix("/gpu"),
        provenance=provenance(located),
    )


def cost_fact(located: Located[CostEntry]) -> CostFact:
    """A cost fact as the core takes it; its topic stands on the file."""
    file: Any = located.parents[0]
    fields = _fields(located.entry, CostFact)
    return CostFact(**fields, topic=file.topic, provenance=provenance(located))


class ArchitectureNames:
    """Which architecture a model's name stands for: its key, an alias, or none on purpose."""

    def __init__(self, folder: CatalogFolder) -> None:
        self._keys = [located.entry.key for located in folder.architectures]
        self._aliases = by_spelling(a for located in folder.aliases for a in aliases(located))

    def key_of(self, name: str) -> str | None:
        """The key that a name stands for; None for one that names none on purpose.

        Raises:
            KeyError: Neither a key nor an alias: perhaps a slip of the pen.
        """
        key = key_named("architecture", name, self._keys, self._aliases)
        if key is None and ("architecture", plain_name(name)) not in self._aliases:
            raise KeyError(name)
        return key


def token_price(located: Located[TokenRow], names: ArchitectureNames) -> TokenPrice:
    """A price of hosted tokens as the core takes it."""
    row = located.entry
    price_list, file = token_context(located)
    try:
        architecture_key = names.key_of(row.model_name)
    except KeyError:
        raise InvalidCatalog(
            [
                located.finding(
                    f"{row.model_name!r} is no architecture and no alias of one; a name that "
                    "stands for none on purpose is an alias without target",
                    "model_name",
                )
            ]
        ) from None
    return TokenPrice(
        key=price_key(file.provider, row.listed_as, price_list.valid_from.isoformat()),
        provider=file.provider,
        architecture=architecture_key,
        **_fields(row, TokenPrice) | {"quality": row.quality or price_list.quality},
        input_price_per_million_tokens=row.input,
        output_price_per_million_tokens=row.output,
        cached_input_price_per_million_tokens=row.cached_input,
        currency=price_list.unit.removesuffix("/million_tokens"),
        valid_from=price_list.valid_from,
        valid_to=price_list.valid_to,
        provenance=provenance(located),
    )


def aliases(located: Located[AliasEntry]) -> Iterator[Alias]:
    """One alias for each spelling."""
    file: Any = located.parents[0]
    origin = provenance(located)
    for name in located.entry.names:
        yield Alias(
            kind=file.kind,
            name=name,
            target=located.entry.target,
            note=located.entry.note,
            provenance=origin,
        )


@dataclass
class _Collector:
    """Resolves entry by entry and keeps what is wrong with each."""

    findings: list[Finding]

    def all(
        self,
        entries: Iterable[Located[EntryT]],
        resolve_one: Callable[[Located[EntryT]], Iterable[ValueT]],
    ) -> tuple[ValueT, ...]:
        values: list[ValueT] = []
        for located in entries:
            try:
                values.extend(resolve_one(located))
            except InvalidCatalog as error:
                self.findings.extend(error.findings)
            except ValidationError as error:
                self.findings.extend(
                    located.finding(f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
                    for item in error.errors(include_url=False)
                )
        return tuple(values)

    def each(
        self,
        entries: Iterable[Located[EntryT]],
        resolve_one: Callable[[Located[EntryT]], ValueT],
    ) -> tuple[ValueT, ...]:
        return self.all(entries, lambda located: (resolve_one(located),))


def resolve_folder(folder: CatalogFolder) -> CatalogContent:
    """Turn every entry into its core value.

    Raises:
        InvalidCatalog: With every entry that the core refuses.
    """
    collector = _Collector([])
    names = ArchitectureNames(folder)
    gpus = collector.each(folder.gpus, gpu)
    content = CatalogContent(
        gpus=gpus,
        nodes=collector.each(folder.nodes, node),
        formats=collector.each(folder.formats, lambda entry: number_format(entry, gpus)),
        architectures=collector.each(folder.architectures, architecture),
        sites=collector.each(folder.sites, site),
        assumptions=collector.each(folder.assumptions, assumption),
        prices=(
            *collector.all(folder.rental_rows, rental_prices),
            *collector.each(folder.purchases, purchase_price),
        ),
        token_prices=collector.each(folder.token_rows, lambda row: token_price(row, names)),
        cost_facts=collector.each(folder.costs, cost_fact),
        aliases=collector.all(folder.aliases, aliases),
    )
    if collector.findings:
        raise InvalidCatalog(collector.findings)
    return content


def snapshot_from_folder(path: Path, as_of_date: date) -> CatalogSnapshot:
    """The snapshot of a folder that need not be published.

    Raises:
        InvalidCatalog: If any file is wrong in form.
    """
    content = resolve_folder(read_folder(path))
    return content.snapshot(unpublished(content), as_of_date)
