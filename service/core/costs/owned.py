"""The bills of an owned pool: what it costs in one month, by kind."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Protocol

from service.core.costs.terms import Ownership
from service.core.estimates import CostCategory, Use
from service.core.formulas.calendar import hours_in_month
from service.core.formulas.finance import straight_line_charge_per_month
from service.core.formulas.power import facility_energy_kwh, it_power_kw
from service.core.pricing import (
    UnitPrice,
    money,
    printed,
    split_bill,
    split_by_largest_remainder,
)


class HeldHours(Protocol):
    """GPU-hours of one month and use."""

    @property
    def month(self) -> str:
        """Calendar month."""

    @property
    def use(self) -> Use:
        """What the hours did."""

    @property
    def gpu_hours(self) -> float:
        """How many."""

    @property
    def power_cap_fraction(self) -> float:
        """Power that their GPUs may draw over their limit."""


@dataclass(frozen=True)
class Bill:
    """One month's cost of one kind for a whole owned pool."""

    category: CostCategory
    quantity: float
    unit: str
    price: UnitPrice
    formula: str
    cash_amount: Decimal | None = None
    """Cash view, where it is not the accrual view."""
    weights: Sequence[float] | None = None
    """How the bill is split over the uses, where not by their GPU-hours."""

    @property
    def unit_price(self) -> Decimal:
        """Price of a unit as it is printed."""
        return self.price.printed

    def quantities(self, weights: Sequence[Decimal]) -> Sequence[Decimal]:
        """Shares of the quantity, by weight."""
        return split_bill(printed(self.quantity), self.unit_price, weights)

    def cash_amounts(self, weights: Sequence[Decimal]) -> Sequence[Decimal | None]:
        """Shares of the cash view, by weight."""
        if self.cash_amount is None:
            return [None] * len(weights)
        return split_by_largest_remainder(self.cash_amount, weights)


@dataclass(frozen=True)
class Purchase:
    """GPUs that are bought at once."""

    month: int
    """Months since the first one of the plan; below zero for what was bought before."""
    gpu_count: int


def gpus_owned(purchases: Sequence[Purchase], month: int) -> int:
    """GPUs that have been bought by a month of the plan. [count]"""
    return sum(each.gpu_count for each in purchases if each.month <= month)


def owned_bills(
    owned: Ownership, purchases: Sequence[Purchase], uses: Sequence[HeldHours], month: int
) -> list[Bill]:
    """What a pool costs in one month of the plan; what costs nothing is left out.

    Energy is for the mean draw and holds what cools it; rent of the hall is for the highest draw,
    and its cooling is in it: power usage effectiveness would be paid twice.
    """
    gpu_count = gpus_owned(purchases, month)
    peak_kw = it_power_kw(
        gpu_count=gpu_count,
        node_power_kw=owned.node_power_kw,
        node_gpu_count=owned.node_gpu_count,
        power_load_fraction=1.0,
    )
    node = f"{owned.node_power_kw:g} kW / {owned.node_gpu_count} GPUs"
    bought = partial(_purchase, owned=owned, purchases=purchases, month=month)
    monthly = partial(Bill, quantity=gpu_count, unit="gpu_month")
    lease = owned.lease_gpu_month or UnitPrice(Decimal(0), "bought")
    share = "GPUs; share of all that is bought"
    bills = (
        bought("hardware", owned.purchase, residual_fraction=owned.residual_fraction),
        monthly("hardware", price=lease, formula="GPUs; leased"),
        bought("network", owned.network),
        bought("storage", owned.storage),
        bought("installation", owned.installation),
        _power(owned, uses, node),
        Bill("facility", peak_kw, "kW_month", owned.colocation_kw_month, f"GPUs x {node}"),
        monthly("staff", price=owned.staff_gpu_month, formula="GPUs"),
        monthly("support", price=owned.support_gpu_month, formula="GPUs"),
        monthly("spares", price=owned.spares_gpu_month, formula=share),
        monthly("insurance", price=owned.insurance_gpu_month, formula=share),
        monthly("tax", price=owned.tax_gpu_month, formula=share),
        monthly(
            "financing",
            price=owned.interest_gpu_month,
            formula="GPUs; annuity less depreciation",
            cash_amount=Decimal("0.00"),
        ),
    )
    return [bill for bill in bills if (bill.quantity and bill.unit_price) or bill.cash_amount]


def book_value(owned: Ownership, purchases: Sequence[Purchase], month_count: int) -> Decimal:
    """What is left of all that is owned when the plan ends, by straight-line depreciation.

    What ends its useful life in the last month is sold in it. Of what was owned already, nothing
    counts before it is bought again: it is there whatever the plan.
    """
    value = Decimal(0)
    life = owned.useful_life_months
    for each in purchases:
        age = month_count - each.month
        if age % life == 0 or age <= 0 or (owned.is_owned_already and age < life):
            continue
        left = 1 - Decimal(age % life) / life
        residual = owned.purchase.value * Decimal(repr(owned.residual_fraction))
        bought = owned.network.value + owned.storage.value + owned.installation.value
        worn = (owned.purchase.value - residual) * left + residual + bought * left
        value += each.gpu_count * worn
    return money(value)


def _power(owned: Ownership, uses: Sequence[HeldHours], node: str) -> Bill:
    """Energy of a month; idle GPUs draw less than busy ones, and none more than its cap."""
    load, idle = owned.power_load_fraction, owned.idle_power_fraction
    kwh = [
        facility_energy_kwh(
            it_power_kw=it_power_kw(
                gpu_count=use.gpu_hours / hours_in_month(use.month),
                node_power_kw=owned.node_power_kw,
                node_gpu_count=owned.node_gpu_count,
                power_load_fraction=min(
                    idle if use.use == "idle" else load, use.power_cap_fraction
                ),
            ),
            power_usage_effectiveness=owned.power_usage_effectiveness,
            hours=hours_in_month(use.month),
        )
        for use in uses
    ]
    caps = sorted({use.power_cap_fraction for use in uses if use.power_cap_fraction < load})
    loads = ", ".join([f"idle {idle:g}", *(f"capped {cap:g}" for cap in caps)])
    use_of_power = f"PUE {owned.power_usage_effectiveness:g}"
    return Bill(
        category="power",
        quantity=sum(kwh),
        unit="kWh",
        price=owned.kwh,
        formula=f"GPU-hours x {node} x load {load:g} ({loads}) x {use_of_power}",
        weights=kwh,
    )


def _purchase(
    category: CostCategory,
    price: UnitPrice,
    *,
    owned: Ownership,
    purchases: Sequence[Purchase],
    month: int,
    residual_fraction: float = 0.0,
) -> Bill:
    """Depreciation of a month, straight-line; the cash view has the purchases and the sales.

    What is bought in a month is sold for its residual value in the last month of its life, and
    bought again at the same price when the plan goes on. What is owned already was paid before: its
    depreciation is sunk, and only what can still be avoided is in the cash view.
    """
    life = owned.useful_life_months
    monthly = straight_line_charge_per_month(
        purchase_price=float(price.value),
        residual_fraction=residual_fraction,
        useful_life_months=life,
    )
    cash = Decimal(0)
    for each in purchases:
        age = month - each.month
        is_paid = age > 0 or not owned.is_owned_already
        if age >= 0 and age % life == 0 and is_paid:
            cash += each.gpu_count * price.value
        if age >= 0 and (age + 1) % life == 0:
            cash -= each.gpu_count * price.value * Decimal(repr(residual_fraction))
    return Bill(
        category=category,
        quantity=gpus_owned(purchases, month),
        unit="gpu_month",
        price=replace(price, value=printed(monthly)),
        formula=(f"GPUs; price is {price.value:f} x (1 - {residual_fraction:g}) / {life} months"),
        cash_amount=money(cash),
    )
