"""What GPUs cost that are owned already: a sunk book value, and what running them takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from service.core.costs.owned import Bill, HeldHours, Purchase, owned_bills
from service.core.costs.terms import Ownership
from service.core.estimates import CostLine
from service.core.pricing import UnitPrice, printed, total

SUNK = "sunk: GPUs owned already x book value"
"""How the formula of a sunk line begins."""


@dataclass(frozen=True)
class ExistingLot:
    """Equal GPUs that are owned already, as far as one pool uses them."""

    gpu_count: int
    running: Ownership
    """What running them takes; its purchase is not paid."""
    book_value: UnitPrice
    """Of one GPU with its share of server and network, when the plan begins."""
    remaining_life_months: int
    site: str | None = None
    """Site of the lot."""


def taken_from(
    lots: Sequence[ExistingLot], count: int
) -> tuple[list[ExistingLot], list[ExistingLot]]:
    """Lots of the first so many GPUs, and what is left for the next pool."""
    taken, left = [], []
    for lot in lots:
        used = min(lot.gpu_count, count)
        count -= used
        if used:
            taken.append(replace(lot, gpu_count=used))
        if used < lot.gpu_count:
            left.append(replace(lot, gpu_count=lot.gpu_count - used))
    return taken, left


def existing_bills(lot: ExistingLot, uses: Sequence[HeldHours], months_owned: int) -> list[Bill]:
    """What a lot costs in one month: its write-off while it lasts, and what running it takes."""
    bought = {"hardware", "network", "storage", "installation", "financing"}
    running = owned_bills(lot.running, [Purchase(0, lot.gpu_count)], uses, months_owned)
    bills = [bill for bill in running if bill.category not in bought]
    monthly = printed(lot.book_value.value / lot.remaining_life_months)
    if months_owned < lot.remaining_life_months and monthly:
        write_off = Bill(
            category="hardware",
            quantity=lot.gpu_count,
            unit="gpu_month",
            price=replace(lot.book_value, value=monthly),
            formula=f"{SUNK} {lot.book_value.value:f} / {lot.remaining_life_months} months",
            cash_amount=Decimal("0.00"),
        )
        bills.insert(0, write_off)
    return bills


def sunk_amount(lines: Iterable[CostLine]) -> Decimal:
    """What lines write off that was paid before the plan: no decision of the plan avoids it."""
    return total(line.amount for line in lines if line.formula.startswith(SUNK))
