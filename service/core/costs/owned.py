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
        return printed(self.price.value)

    def quantities(self, weights: Sequence[Decimal]) -> Sequence[Decimal]:
        """Shares of the quantity, by weight."""
        return split_bill(printed(self.quantity), self.unit_price, weights)

    def cash_amounts(self, weights: Sequence[Decimal]) -> Sequence[Decimal | None]:
        """Shares of the cash view, by weight."""
        if self.cash_amount is None:
            return [None] * len(weights)
        return split_by_largest_remainder(self.cash_amount, weights)


def owned_bills(
    owned: Ownership, gpu_count: int, uses: Sequence[HeldHours], months_owned: int
) -> list[Bill]:
    """What a pool costs in one month; what costs nothing is left out.

    Energy is for the mean draw and holds what cools it; rent of the hall is for the highest draw,
    and its cooling is in it: power usage effectiveness would be paid twice.
    """
    peak_kw = it_power_kw(
        gpu_count=gpu_count,
        node_power_kw=owned.node_power_kw,
        node_gpu_count=owned.node_gpu_count,
        power_load_fraction=1.0,
    )
    node = f"{owned.node_power_kw:g} kW / {owned.node_gpu_count} GPUs"
    bought = partial(
        _purchase,
        gpu_count=gpu_count,
        useful_life_months=owned.useful_life_months,
        months_owned=months_owned,
        is_owned_already=owned.is_owned_already,
    )
    lease = owned.lease_gpu_month or UnitPrice(Decimal(0), "bought")
    bills = (
        bought("hardware", owned.purchase, residual_fraction=owned.residual_fraction),
        Bill("hardware", gpu_count, "gpu_month", lease, "GPUs; leased"),
        bought("network", owned.network, residual_fraction=0.0),
        _power(owned, uses, node),
        Bill("facility", peak_kw, "kW_month", owned.colocation_kw_month, f"GPUs x {node}"),
        Bill("staff", gpu_count, "gpu_month", owned.staff_gpu_month, "GPUs"),
        Bill("support", gpu_count, "gpu_month", owned.support_gpu_month, "GPUs"),
    )
    return [bill for bill in bills if (bill.quantity and bill.unit_price) or bill.cash_amount]


def _power(owned: Ownership, uses: Sequence[HeldHours], node: str) -> Bill:
    """Energy of a month; idle GPUs draw less than busy ones."""
    kwh = [
        facility_energy_kwh(
            it_power_kw=it_power_kw(
                gpu_count=use.gpu_hours / hours_in_month(use.month),
                node_power_kw=owned.node_power_kw,
                node_gpu_count=owned.node_gpu_count,
                power_load_fraction=(
                    owned.idle_power_fraction if use.use == "idle" else owned.power_load_fraction
                ),
            ),
            power_usage_effectiveness=owned.power_usage_effectiveness,
            hours=hours_in_month(use.month),
        )
        for use in uses
    ]
    load = f"load {owned.power_load_fraction:g} (idle {owned.idle_power_fraction:g})"
    return Bill(
        category="power",
        quantity=sum(kwh),
        unit="kWh",
        price=owned.kwh,
        formula=f"GPU-hours x {node} x {load} x PUE {owned.power_usage_effectiveness:g}",
        weights=kwh,
    )


def _purchase(
    category: CostCategory,
    price: UnitPrice,
    *,
    gpu_count: int,
    residual_fraction: float,
    useful_life_months: int,
    months_owned: int,
    is_owned_already: bool,
) -> Bill:
    """Depreciation of a month, straight-line; the cash view has the purchase and the sale.

    What is bought in the first month is sold for its residual value in the last month of its
    life, and bought again at the same price when the plan goes on. What is owned already was paid
    before: its depreciation is sunk, and only what can still be avoided is in the cash view.
    """
    monthly = straight_line_charge_per_month(
        purchase_price=float(price.value),
        residual_fraction=residual_fraction,
        useful_life_months=useful_life_months,
    )
    cash = Decimal(0)
    if months_owned % useful_life_months == 0 and not (is_owned_already and months_owned == 0):
        cash += price.value
    if (months_owned + 1) % useful_life_months == 0:
        cash -= price.value * Decimal(repr(residual_fraction))
    return Bill(
        category=category,
        quantity=gpu_count,
        unit="gpu_month",
        price=replace(price, value=printed(monthly)),
        formula=(
            f"GPUs; price is {price.value:f} x (1 - {residual_fraction:g}) / "
            f"{useful_life_months} months"
        ),
        cash_amount=money(gpu_count * cash),
    )
