"""Which rental offer of the catalog a rule takes, and why the others may not be used."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from service.core.costs.negotiated import (
    ANY,
    instance_size,
    negotiated_offers,
    without_replaced,
)
from service.core.hardware import Gpu
from service.core.prices import RentalPrice, TokenPrice
from service.core.scenarios.procurement import HostedMethod, RentMethod
from service.core.snapshot import CatalogSnapshot
from service.core.value import decimal_text

NAMED_OFFER_COUNT = 5
"""Offers named in a refusal; the rest are counted."""


def cheapest_offer(
    method: RentMethod, *, gpu: Gpu, currency: str, snapshot: CatalogSnapshot
) -> RentalPrice | None:
    """Return the cheapest offer that the method asks for and whose price may be used.

    Host and accelerator count together. Prices that rest on memory come after all others and only
    where the provider is named. Where no instance is named, whole nodes come before smaller
    instances, whatever these cost: GPUs of different instances do not share the fast link that
    layouts count on. Of equal ones the newest price comes first. A price that the team has
    negotiated takes the place of the list price of the same offer, whichever is lower.

    Returns:
        The offer, None when there is none.
    """
    rows = _offers(gpu, method, snapshot)
    asked_for = (row for row in rows if _difference_count(row, method) == 0)
    usable = (row for row in asked_for if objection(row, method, currency) is None)
    return min(
        _newest(usable),
        key=lambda row: (
            row.quality == "memory",
            (0, 0) if method.instance_type else _distance_from_node(row, gpu),
            _price(row),
            -row.valid_from.toordinal(),
            row.gpu_count,
            row.key,
        ),
        default=None,
    )


def offers_by_size(
    method: RentMethod,
    *,
    gpu: Gpu,
    listed: Sequence[RentalPrice],
    currency: str,
    snapshot: CatalogSnapshot,
) -> tuple[RentalPrice, ...]:
    """The cheapest usable offer of each size of instance.

    Size against price is the asker's to weigh: a large instance holds larger groups, a small one
    leaves less idle.

    Args:
        method: What is asked for.
        gpu: The GPU.
        listed: Prices of the catalog for it.
        currency: Currency of the amounts.
        snapshot: Holds the team's price book.
    """
    rows = without_replaced([*negotiated_offers(gpu, snapshot), *listed], method)
    asked_for = (row for row in rows if _difference_count(row, method) == 0)
    usable = [row for row in asked_for if objection(row, method, currency) is None]
    found: dict[int, RentalPrice] = {}
    for row in sorted(
        _newest(usable),
        key=lambda row: (
            row.quality == "memory",
            _price(row),
            -row.valid_from.toordinal(),
            row.key,
        ),
    ):
        found.setdefault(row.gpu_count, row)
    return tuple(found.values())


def explain_missing_offer(
    method: RentMethod, *, gpu: Gpu, currency: str, snapshot: CatalogSnapshot
) -> str:
    """Say which usable offer comes nearest to what was asked for, and which were left out why."""
    rows = _offers(gpu, method, snapshot)
    usable = [row for row in rows if objection(row, method, currency) is None]
    nearest = min(
        usable,
        key=lambda row: (
            _difference_count(row, method),
            _distance_from_node(row, gpu),
            row.commitment == "spot",
            _price(row),
        ),
        default=None,
    )
    said = ["Give price_per_gpu_hour"]
    if nearest is not None:
        said.append(f" or ask for {_described(nearest)}")
    said.append(".")
    objections = [
        f"{row.key} ({why})"
        for row in rows
        if _difference_count(row, method) == 0
        and (why := objection(row, method, currency)) is not None
    ]
    if objections:
        more = len(objections) - NAMED_OFFER_COUNT
        said.append(f" Left out: {'; '.join(objections[:NAMED_OFFER_COUNT])}")
        said.append(f" and {more} more." if more > 0 else ".")
    return "".join(said)


def rented_at_once(method: RentMethod, *, gpu: Gpu, snapshot: CatalogSnapshot) -> int:
    """GPUs of the instance that a given price is for. [count]

    What the request says; else the provider's instance that comes nearest to the usual node.
    """
    if method.gpu_count_per_instance is not None:
        return method.gpu_count_per_instance
    return instance_size(
        gpu,
        snapshot.rental_prices,
        provider=method.provider,
        region=method.region,
        instance_type=method.instance_type,
    )


def _offers(gpu: Gpu, method: RentMethod, snapshot: CatalogSnapshot) -> list[RentalPrice]:
    listed = [row for row in snapshot.rental_prices if row.gpu == gpu.key]
    return without_replaced([*negotiated_offers(gpu, snapshot), *listed], method)


def _difference_count(row: RentalPrice, method: RentMethod) -> int:
    """In how many respects an offer is not what was asked for."""
    return sum(
        (
            method.provider not in {None, row.provider},
            row.region != ANY and method.region not in {None, row.region},
            row.instance_type != ANY and method.instance_type not in {None, row.instance_type},
            method.commitment != row.commitment,
        )
    )


def objection(
    row: RentalPrice | TokenPrice, method: RentMethod | HostedMethod, currency: str
) -> str | None:
    """Why a price may not be used, None when it may."""
    if row.currency != currency:
        return f"priced in {row.currency}, the plan in {currency}"
    if isinstance(row, RentalPrice) and not row.is_complete:
        return "accelerator only, the price of its host is not known"
    if row.quality == "suspect":
        return "a suspect price"
    if row.quality == "marketplace_minimum":
        return "the least price of a marketplace, not one that can be counted on"
    if row.quality == "memory" and method.provider is None:
        return "from memory, used only when its provider is named"
    return None


def _newest(rows: Iterable[RentalPrice]) -> Iterable[RentalPrice]:
    """The newest price of each offer: an older list that was never closed does not count."""
    oldest_first = sorted(
        rows, key=lambda row: (row.quality != "memory", row.valid_from, -_price(row))
    )
    return {
        (row.provider, row.region, row.instance_type, row.commitment): row for row in oldest_first
    }.values()


def _distance_from_node(row: RentalPrice, gpu: Gpu) -> tuple[int, int]:
    """Sorts whole nodes first, then the largest part of one, then what holds several."""
    if row.gpu_count == gpu.node_gpu_count:
        return 0, 0
    return (1, -row.gpu_count) if row.gpu_count < gpu.node_gpu_count else (2, row.gpu_count)


def _price(row: RentalPrice) -> Decimal:
    """Price of one GPU with its host for one hour."""
    return row.price_per_gpu_hour + (row.host_price_per_gpu_hour or 0)


def _described(row: RentalPrice) -> str:
    price = decimal_text(_price(row))
    return (
        f"provider {row.provider}, region {row.region}, instance {row.instance_type}, "
        f"{row.commitment}: {price} {row.currency} per GPU-hour"
    )
