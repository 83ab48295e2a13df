"""Checks of the price files: each kind of wrong row that price lists in the wild have shown."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from statistics import median
from typing import Any, TypeVar

from service.catalog.files import CatalogFolder, Located, rental_context, token_context
from service.catalog.findings import Finding
from service.catalog.price_entries import PurchaseEntry, RentalRow, TokenRow
from service.catalog.resolve import (
    ArchitectureNames,
    purchase_price,
    rental_prices,
    token_price,
)
from service.core.prices import PurchasePrice, RentalPrice, TokenPrice

PriceCheck = Callable[[CatalogFolder], Iterator[Finding]]

TRUSTED = ("listed", "third_party", "memory")
"""Qualities that a row must earn; a row that is marked as suspect is known to be odd."""
PER_GPU_SPREAD = Decimal(3)
"""Highest ratio between prices per GPU of instances that differ in their number of GPUs."""
FAR_ABOVE = Decimal(5)
"""Ratio to the median of a GPU's prices from which a price is that of several GPUs."""
MANY_PRICES = 4
"""Prices from which a median says something."""
TOKEN_SPREAD = Decimal(10)
"""Ratio to the median of a model's prices that speed and margin of a seller do not explain."""


@dataclass(frozen=True)
class PricedRow:
    """One price and the row that states it."""

    row: Located[RentalRow]
    price: RentalPrice

    def finding(self, message: str) -> Finding:
        """A fault of this price."""
        return self.row.finding(message, self.price.commitment)

    @property
    def total(self) -> Decimal:
        """Price of the whole instance."""
        return self.price.price_per_gpu_hour * self.price.gpu_count


def priced_rows(folder: CatalogFolder, *, trusted: bool = False) -> list[PricedRow]:
    """Every price with its row; only those that are not marked as odd where `trusted`."""
    priced = [PricedRow(row, price) for row in folder.rental_rows for price in rental_prices(row)]
    return [each for each in priced if not trusted or each.price.quality in TRUSTED]


def overlap(a: Any, b: Any) -> bool:
    """True when two prices hold on one and the same day."""
    first_end, second_end = a.valid_to or date.max, b.valid_to or date.max
    return bool(a.valid_from <= second_end and b.valid_from <= first_end)


GroupedT = TypeVar("GroupedT")


def grouped(items: list[GroupedT], key: Callable[[GroupedT], Any]) -> Iterator[list[GroupedT]]:
    """Items that share a key, each group in the order of the files."""
    groups: dict[Any, list[GroupedT]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    yield from groups.values()


def prices_name_known_gpus(folder: CatalogFolder) -> Iterator[Finding]:
    """Instances and purchases name GPUs of the catalog."""
    known = {located.entry.key for located in folder.gpus}
    files = {rental_context(row)[1].provider: row for row in folder.rental_rows}
    for row in files.values():
        for name, instance in rental_context(row)[1].instances.items():
            if instance.gpu not in known:
                place = ("instances", name, "gpu")
                yield row.document.finding(place, f"unknown gpu {instance.gpu!r}")
    for purchase in folder.purchases:
        if purchase.entry.gpu not in known:
            yield purchase.finding(f"unknown gpu {purchase.entry.gpu!r}", "gpu")


def price_keys_are_unique(folder: CatalogFolder) -> Iterator[Finding]:
    """No two prices share a key, which is made of plain letters of their names."""
    seen: dict[str, Finding] = {}
    for each in priced_rows(folder):
        here = each.finding("")
        first = seen.setdefault(each.price.key, here)
        if first is not here:
            yield each.finding(f"key {each.price.key!r} is that of {first.file}:{first.line}")


def dates_run_forward(folder: CatalogFolder) -> Iterator[Finding]:
    """A price ends on or after the day on which it begins."""
    for each in priced_rows(folder):
        if each.price.valid_to is not None and each.price.valid_to < each.price.valid_from:
            yield each.row.finding("ends before it begins", "valid_to")
    for located in folder.purchases:
        end = located.entry.valid_to
        if end is not None and end < located.entry.valid_from:
            yield located.finding("ends before it begins", "valid_to")


def rental_dates_do_not_overlap(folder: CatalogFolder) -> Iterator[Finding]:
    """On each day at most one price holds for one instance, region and commitment."""

    def key(each: PricedRow) -> tuple[str, ...]:
        price = each.price
        return (price.provider, price.region, price.instance_type, price.commitment)

    for group in grouped(priced_rows(folder), key):
        for index, each in enumerate(group):
            for other in group[:index]:
                if overlap(each.price, other.price):
                    place = other.finding("")
                    yield each.finding(
                        f"holds on days on which {place.file}:{place.line} holds too; end the "
                        "older one with valid_to"
                    )


def purchase_dates_do_not_overlap(folder: CatalogFolder) -> Iterator[Finding]:
    """On each day at most one purchase price holds for one GPU and scope."""

    def key(pair: tuple[Located[PurchaseEntry], PurchasePrice]) -> tuple[str, str]:
        return (pair[1].gpu, pair[1].includes)

    pairs = [(located, purchase_price(located)) for located in folder.purchases]
    for group in grouped(pairs, key):
        for index, (located, price) in enumerate(group):
            if any(overlap(price, other) for _, other in group[:index]):
                yield located.finding("holds on days on which an earlier entry holds too", "gpu")


def purchase_ranges_are_ordered(folder: CatalogFolder) -> Iterator[Finding]:
    """The typical price lies between low and high."""
    for located in folder.purchases:
        price = located.entry.price
        if not price.low <= price.typical <= price.high:
            yield located.finding("low <= typical <= high does not hold", "price")


def spot_is_below_on_demand(folder: CatalogFolder) -> Iterator[Finding]:
    """Interruptible time costs less; a column that repeats on-demand means that none is known."""

    def key(each: PricedRow) -> tuple[str, ...]:
        return (each.price.provider, each.price.region, each.price.instance_type)

    for group in grouped(priced_rows(folder, trusted=True), key):
        regular = [each.price for each in group if each.price.commitment == "on_demand"]
        for each in group:
            limits = [p.price_per_gpu_hour for p in regular if overlap(p, each.price)]
            too_high = each.price.price_per_gpu_hour >= min(limits, default=Decimal("Infinity"))
            if each.price.commitment == "spot" and too_high:
                yield each.finding(
                    f"spot {each.price.price_per_gpu_hour} is not below on-demand {min(limits)}; "
                    "leave it out, or mark the row as suspect"
                )


def more_gpus_cost_more(folder: CatalogFolder) -> Iterator[Finding]:
    """An instance with more GPUs costs more, and per GPU about the same.

    A total that does not rise, or a price per GPU that falls or rises several times, is a price
    of other GPUs, of one GPU for all, or of all for one.
    """

    def key(each: PricedRow) -> tuple[str, ...]:
        price = each.price
        return (price.provider, price.region, price.gpu, price.commitment, price.billing_basis)

    for group in grouped(priced_rows(folder, trusted=True), key):
        cheapest = sorted(group, key=lambda each: (each.price.gpu_count, each.total))
        for each in cheapest:
            for smaller in cheapest:
                if smaller.price.gpu_count >= each.price.gpu_count:
                    break
                if overlap(smaller.price, each.price):
                    yield from _against_smaller(each, smaller)


def _against_smaller(each: PricedRow, smaller: PricedRow) -> Iterator[Finding]:
    place = smaller.finding("")
    where = f"{smaller.price.instance_type} ({place.file}:{place.line})"
    if each.total <= smaller.total:
        yield each.finding(
            f"{each.price.gpu_count} GPUs for {each.total} an hour, not more than "
            f"{smaller.price.gpu_count} for {smaller.total} as {where}"
        )
        return
    ratio = each.price.price_per_gpu_hour / smaller.price.price_per_gpu_hour
    if not 1 / PER_GPU_SPREAD <= ratio <= PER_GPU_SPREAD:
        yield each.finding(
            f"{each.price.price_per_gpu_hour} per GPU against "
            f"{smaller.price.price_per_gpu_hour} as {where}: a price of the whole instance in a "
            "field per GPU, or the other way round?"
        )


def prices_per_gpu_are_not_those_of_instances(folder: CatalogFolder) -> Iterator[Finding]:
    """No price per GPU is several times the median of its GPU and commitment."""

    def key(each: PricedRow) -> tuple[str, str]:
        return (each.price.gpu, each.price.commitment)

    for group in grouped(priced_rows(folder, trusted=True), key):
        middle = median(each.price.price_per_gpu_hour for each in group)
        for each in group if len(group) >= MANY_PRICES else ():
            if each.price.price_per_gpu_hour >= FAR_ABOVE * middle:
                yield each.finding(
                    f"{each.price.price_per_gpu_hour} per GPU-hour is "
                    f"{each.price.price_per_gpu_hour / middle:.1f} times the median of "
                    f"{each.price.gpu}, {middle}: a price of the whole instance?"
                )


TokenPair = tuple[Located[TokenRow], TokenPrice]


def token_pairs(folder: CatalogFolder) -> list[TokenPair]:
    """Every price of hosted tokens with its row."""
    names = ArchitectureNames(folder)
    return [(row, token_price(row, names)) for row in folder.token_rows]


def token_dates_do_not_overlap(folder: CatalogFolder) -> Iterator[Finding]:
    """On each day a provider has at most one price for what it lists under one name."""

    def key(pair: TokenPair) -> tuple[str, str]:
        # As in the key of the entry: names that differ in odd signs alone are one.
        return (pair[1].provider, pair[1].key.rpartition(".")[0])

    for group in grouped(token_pairs(folder), key):
        for index, (row, price) in enumerate(group):
            for other_row, other in group[:index]:
                if overlap(price, other):
                    place = other_row.finding("", "listed_as")
                    message = f"holds on days on which {place.file}:{place.line} holds too"
                    yield row.finding(message, "listed_as")


def token_dates_run_forward(folder: CatalogFolder) -> Iterator[Finding]:
    """A list of token prices ends on or after the day on which it begins."""
    for row in folder.token_rows:
        price_list = token_context(row)[0]
        if price_list.valid_to is not None and price_list.valid_to < price_list.valid_from:
            yield row.document.finding((*row.place[:2], "valid_to"), "ends before it begins")


def cached_tokens_cost_no_more(folder: CatalogFolder) -> Iterator[Finding]:
    """Reading from a cache costs at most as much as reading anew."""
    for row in folder.token_rows:
        cached = row.entry.cached_input
        if cached is not None and cached > row.entry.input:
            message = f"cached input {cached} is above input {row.entry.input}"
            yield row.finding(message, "cached_input")


def written_tokens_cost_no_less(folder: CatalogFolder) -> Iterator[Finding]:
    """No seller asks less for a token that is written than for one that is read."""
    for row in folder.token_rows:
        if row.entry.output < row.entry.input:
            message = f"output {row.entry.output} is below input {row.entry.input}: swapped?"
            yield row.finding(message, "output")


def token_prices_are_per_million(folder: CatalogFolder) -> Iterator[Finding]:
    """No price is many times the median of its model, or a small part of it."""
    pairs = [pair for pair in token_pairs(folder) if pair[1].quality in TRUSTED]
    for group in grouped(pairs, lambda pair: pair[1].model_name):
        middle = median(price.output_price_per_million_tokens for _, price in group)
        for row, price in group if len(group) >= MANY_PRICES else ():
            ratio = price.output_price_per_million_tokens / middle
            if not 1 / TOKEN_SPREAD <= ratio <= TOKEN_SPREAD:
                yield row.finding(
                    f"output {price.output_price_per_million_tokens} is {ratio:.4g} times the "
                    f"median of {price.model_name}, {middle}: a price of another number of "
                    "tokens? If it is right, mark the row as suspect",
                    "output",
                )


PRICE_CHECKS: tuple[PriceCheck, ...] = (
    prices_name_known_gpus,
    price_keys_are_unique,
    dates_run_forward,
    rental_dates_do_not_overlap,
    purchase_dates_do_not_overlap,
    purchase_ranges_are_ordered,
    spot_is_below_on_demand,
    more_gpus_cost_more,
    prices_per_gpu_are_not_those_of_instances,
    token_dates_do_not_overlap,
    token_dates_run_forward,
    cached_tokens_cost_no_more,
    written_tokens_cost_no_less,
    token_prices_are_per_million,
)
