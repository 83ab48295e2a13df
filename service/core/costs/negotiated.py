"""Prices of the team's price book as offers, which stand above those of the catalog."""

from collections.abc import Iterable, Iterator, Sequence

from service.core.costs.terms import CommitmentMix, Ownership, Rental
from service.core.errors import InvalidScenario
from service.core.hardware import Gpu
from service.core.prices import NegotiatedPrice, PriceBook, PriceBookUsed, RentalPrice
from service.core.scenarios.procurement import RentMethod
from service.core.snapshot import CatalogSnapshot
from service.core.value import LongText, Provenance

ANY = "any"
"""Region or instance of an offer that holds whatever is asked for."""


class NegotiatedOffer(RentalPrice):
    """A row of a price book in the shape of a rental price."""

    row: NegotiatedPrice
    """The row."""
    described: LongText
    """Name of the book, and the row's note."""


def negotiated_offers(gpu: Gpu, snapshot: CatalogSnapshot) -> Iterator[NegotiatedOffer]:
    """Rows of the price book for a GPU that are in force, each for every instance."""
    book = snapshot.price_book
    if book is None:
        return
    for row in book.rows:
        if row.gpu == gpu.key and row.holds_on(snapshot.as_of_date):
            yield _offer(book, row, gpu, snapshot)


def _offer(
    book: PriceBook, row: NegotiatedPrice, gpu: Gpu, snapshot: CatalogSnapshot
) -> NegotiatedOffer:
    described = f"price book {book.key}, revision {book.revision}"
    # A list price by the GPU is of no instance: by its count of one, a negotiated price would stand
    # behind every whole node, whatever that costs.
    return NegotiatedOffer(
        key=book.key,
        provider=row.provider,
        region=row.region or ANY,
        instance_type=ANY,
        gpu=row.gpu,
        gpu_count=instance_size(
            gpu,
            (listed for listed in snapshot.rental_prices if listed.is_of_an_instance),
            provider=row.provider,
            region=row.region,
        ),
        commitment=row.commitment,
        price_per_gpu_hour=row.price_per_gpu_hour,
        currency=row.currency,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        note=row.note,
        provenance=Provenance(sources=(described,)),
        row=row,
        described=described if row.note is None else f"{described}: {row.note}"[:2000],
    )


def instance_size(
    gpu: Gpu,
    rows: Iterable[RentalPrice],
    *,
    provider: str | None,
    region: str | None,
    instance_type: str | None = None,
) -> int:
    """GPUs of the instance that a price of no instance of its own is for. [count]

    The provider's instance in that region that comes nearest to the usual node from below, or from
    above where all are larger; the usual node of a provider of whom there are no rows.
    """
    sizes = {
        row.gpu_count
        for row in rows
        if row.gpu == gpu.key
        and row.provider == provider
        and (row.region == ANY or region in {None, row.region})
        and instance_type in {None, row.instance_type}
    }
    usual = gpu.node_gpu_count
    return max((size for size in sizes if size <= usual), default=min(sizes, default=usual))


def without_replaced(rows: Sequence[RentalPrice], method: RentMethod) -> list[RentalPrice]:
    """Offers less those in whose place the team has negotiated a price.

    A row of the book replaces what the same provider asks on the same terms in the same region; a
    row for every region all of that, but for a row of the book for the region that is asked for.
    It does so even where it cannot be used itself, such as for its currency: the list price is not
    what the team would pay.
    """
    negotiated = [row for row in rows if isinstance(row, NegotiatedOffer)]
    return [row for row in rows if not any(_replaces(by, row, method) for by in negotiated)]


def _replaces(by: NegotiatedOffer, row: RentalPrice, method: RentMethod) -> bool:
    if (by.provider, by.commitment) != (row.provider, row.commitment) or by is row:
        return False
    if row.region == ANY:
        return by.region == method.region or (
            by.region == ANY and not isinstance(row, NegotiatedOffer)
        )
    return not isinstance(row, NegotiatedOffer) and by.region in {ANY, row.region}


def check_price_book(name: str | None, snapshot: CatalogSnapshot, *, pointer: str) -> None:
    """Refuse a price book that the team does not have.

    Raises:
        InvalidScenario: If a book is named and the snapshot holds none of that name.
    """
    book = snapshot.price_book
    if name is not None and (book is None or book.key != name):
        raise InvalidScenario(f"the team has no price book {name!r}", pointer=pointer)


def price_book_used(
    snapshot: CatalogSnapshot, terms: Iterable[Rental | CommitmentMix | Ownership]
) -> PriceBookUsed | None:
    """The book of a plan with the rows whose prices it uses, in the book's order."""
    book = snapshot.price_book
    if book is None:
        return None
    rentals = [rental for each in terms for rental in _rentals(each)]
    used = [rental.negotiated for rental in rentals if rental.negotiated is not None]
    return PriceBookUsed(
        key=book.key,
        revision=book.revision,
        digest=book.digest,
        rows=tuple(row for row in book.rows if row in used),
    )


def _rentals(terms: Rental | CommitmentMix | Ownership) -> Sequence[Rental]:
    if isinstance(terms, CommitmentMix):
        return terms.committed, terms.rest
    return (terms,) if isinstance(terms, Rental) else ()
