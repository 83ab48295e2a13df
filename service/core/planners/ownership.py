"""What a fleet costs: one line for each month, pool, workload, category and use.

Rented GPUs cost their hours. Owned ones cost the whole pool; each month's bills are split over what
its GPU-hours did, idle ones included, which draw less power.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import count

from service.core.estimates import CostCategory, CostLine, PoolSize
from service.core.formulas.calendar import hours_in_month, month_index
from service.core.formulas.finance import (
    changed_price,
    effective_cost_per_gpu_hour,
    straight_line_charge_per_month,
)
from service.core.formulas.power import facility_energy_kwh, it_power_kw
from service.core.planners.procurement import (
    Ownership,
    Rental,
    ResolvedProcurement,
    assume_within,
)
from service.core.planners.workloads import HourUse
from service.core.prices import Commitment
from service.core.pricing import (
    Terms,
    UnitPrice,
    money,
    price_line,
    printed,
    split_bill,
    split_by_largest_remainder,
    total,
)
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.scenario import Scenario

PoolKey = tuple[PoolKind, str]
"""A pool and the key of its GPU."""

TERM_MONTHS: Mapping[Commitment, int] = {"committed_1yr": 12, "committed_3yr": 36}
"""Months for which a committed price holds once it is agreed."""

define_quantity(
    "energy_kwh",
    unit="kWh",
    per="pool",
    formula=(
        "sum over months and uses of GPU-hours x node power / GPUs per node x load x PUE; the load "
        "of idle hours is idle_power_fraction"
    ),
    sources=("ISO/IEC 30134-2:2016, Power usage effectiveness",),
)


def price_fleet(
    hour_uses: Sequence[HourUse],
    *,
    procurement: Mapping[PoolKey, ResolvedProcurement],
    pools: Sequence[PoolSize],
    scenario: Scenario,
    recorder: Recorder,
) -> tuple[CostLine, ...]:
    """Price the whole fleet, month by month and in the order in which its use is given.

    An owned pool stands where its first use of the month does.

    Args:
        hour_uses: GPU-hours that are held, by month, pool, workload and use; of an owned pool in
            every month all its hours.
        procurement: How each pool's GPUs are paid for.
        pools: Sizes of the pools.
        scenario: Horizon and currency.
        recorder: Assumptions.

    Returns:
        Lines numbered from 1.

    Raises:
        InvalidScenario: If an override is out of its bounds or an amount out of twelve digits.
    """
    by_month: dict[str, list[HourUse]] = {}
    for hours in hour_uses:
        by_month.setdefault(hours.month, []).append(hours)
    months = scenario.horizon.months
    owned = {
        key: pool.gpu_count
        for pool in pools
        if isinstance(procurement[key := (pool.name, pool.gpu)].terms, Ownership)
    }
    pricing = _Pricing(
        procurement=procurement,
        owned_gpu_counts=owned,
        currency=scenario.currency,
        change=_PriceChange.assumed(recorder, months[0]),
        first_month=months[0],
        numbers=count(1),
    )
    lines = tuple(
        line for month in months for line in pricing.lines(month, by_month.get(month, []))
    )
    _note(lines, pools, recorder)
    return lines


@dataclass(frozen=True)
class _PriceChange:
    """Yearly change of rental prices from the as-of month on."""

    per_year_fraction: float
    as_of_month: int
    first_month: int

    @classmethod
    def assumed(cls, recorder: Recorder, first_month: str) -> "_PriceChange":
        used = assume_within(recorder, "price_change_per_year_fraction", -0.99, 10)
        as_of = recorder.snapshot.as_of_date
        return cls(used.value, month_index(f"{as_of:%Y-%m}"), month_index(first_month))

    def at(self, price: UnitPrice, month: str, commitment: Commitment) -> UnitPrice:
        """A price as it is in a month; a committed one moves only when its term is renewed."""
        if self.per_year_fraction == 0:
            return price
        term = TERM_MONTHS.get(commitment, 1)
        renewals = (month_index(month) - self.first_month) // term
        months = max(0, self.first_month + renewals * term - self.as_of_month)
        value = changed_price(
            price=float(price.value),
            price_change_per_year_fraction=self.per_year_fraction,
            months=months,
        )
        changed = f"changed by {self.per_year_fraction:+g} a year, from {price.source}"
        return replace(price, value=printed(value), source=changed[:2000])


@dataclass(frozen=True)
class _Bill:
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


@dataclass(frozen=True)
class _Pricing:
    """Makes the lines of one month after the other."""

    procurement: Mapping[PoolKey, ResolvedProcurement]
    owned_gpu_counts: Mapping[PoolKey, int]
    currency: str
    change: _PriceChange
    first_month: str
    numbers: Iterator[int]

    def lines(self, month: str, hour_uses: Sequence[HourUse]) -> Iterator[CostLine]:
        """Lines of one month: an owned pool where its first use stands."""
        billed: set[PoolKey] = set()
        for hours in hour_uses:
            key = (hours.pool, hours.gpu.key)
            terms = self.procurement[key].terms
            if isinstance(terms, Rental):
                yield from self._rented(hours, terms)
            elif key not in billed:
                billed.add(key)
                uses = [use for use in hour_uses if (use.pool, use.gpu.key) == key]
                yield from self._owned(month, key, terms, uses)

    def _rented(self, hours: HourUse, rental: Rental) -> Iterator[CostLine]:
        terms = Terms(
            currency=self.currency,
            purchase_kind=rental.commitment,
            provider=rental.provider,
            region=rental.region,
        )
        prices: tuple[tuple[CostCategory, UnitPrice | None], ...] = (
            ("gpu_rental", rental.gpu_hour),
            ("host_rental", rental.host_hour),
        )
        for category, price in prices:
            if price is not None:
                yield price_line(
                    hours,
                    terms,
                    line_number=next(self.numbers),
                    category=category,
                    quantity=hours.gpu_hours,
                    unit="gpu_hour",
                    price=self.change.at(price, hours.month, rental.commitment),
                    formula="GPU-hours of the month",
                )

    def _owned(
        self, month: str, key: PoolKey, owned: Ownership, uses: Sequence[HourUse]
    ) -> Iterator[CostLine]:
        """Lines of an owned pool: workload by workload, then category by category."""
        gpu_count = self.owned_gpu_counts[key]
        terms = Terms(
            currency=self.currency, purchase_kind="owned", site=self.procurement[key].site
        )
        months_owned = month_index(month) - month_index(self.first_month)
        bills = []
        for bill in _bills(owned, gpu_count, uses, months_owned):
            weights = bill.weights or [use.gpu_hours for use in uses]
            parts = [Decimal(repr(weight)) for weight in weights]
            bills.append((bill, bill.quantities(parts), bill.cash_amounts(parts)))
        for workload in dict.fromkeys(use.workload for use in uses):
            for bill, quantities, cash_amounts in bills:
                for index, use in enumerate(uses):
                    if use.workload == workload:
                        yield price_line(
                            use,
                            terms,
                            line_number=next(self.numbers),
                            category=bill.category,
                            quantity=quantities[index],
                            unit=bill.unit,
                            price=bill.price,
                            formula=bill.formula,
                            cash_amount=cash_amounts[index],
                        )


def _bills(
    owned: Ownership, gpu_count: int, uses: Sequence[HourUse], months_owned: int
) -> list[_Bill]:
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
    )
    bills = (
        bought("hardware", owned.purchase, residual_fraction=owned.residual_fraction),
        bought("network", owned.network, residual_fraction=0.0),
        _power(owned, uses, node),
        _Bill("facility", peak_kw, "kW_month", owned.colocation_kw_month, f"GPUs x {node}"),
        _Bill("staff", gpu_count, "gpu_month", owned.staff_gpu_month, "GPUs"),
        _Bill("support", gpu_count, "gpu_month", owned.support_gpu_month, "GPUs"),
    )
    return [bill for bill in bills if (bill.quantity and bill.unit_price) or bill.cash_amount]


def _power(owned: Ownership, uses: Sequence[HourUse], node: str) -> _Bill:
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
    return _Bill(
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
) -> _Bill:
    """Depreciation of a month, straight-line; the cash view has the purchase and the sale.

    What is bought in the first month is sold for its residual value in the last month of its
    life, and bought again at the same price when the plan goes on.
    """
    monthly = straight_line_charge_per_month(
        purchase_price=float(price.value),
        residual_fraction=residual_fraction,
        useful_life_months=useful_life_months,
    )
    cash = Decimal(0)
    if months_owned % useful_life_months == 0:
        cash += price.value
    if (months_owned + 1) % useful_life_months == 0:
        cash -= price.value * Decimal(repr(residual_fraction))
    return _Bill(
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


def _note(lines: Sequence[CostLine], pools: Sequence[PoolSize], recorder: Recorder) -> None:
    """Remember what each pool's used hours cost, and the energy of owned ones."""
    for name in dict.fromkeys(pool.name for pool in pools):
        scope = recorder.within(f"pool:{name}")
        of_pool = [line for line in lines if line.pool == name]
        cost = float(total(line.amount for line in of_pool))
        used = sum(pool.used_gpu_hours for pool in pools if pool.name == name)
        if used > 0:
            scope.evaluate(effective_cost_per_gpu_hour, cost=cost, used_gpu_hours=used)
        energy = [line.quantity for line in of_pool if line.category == "power"]
        if energy:
            scope.note("energy_kwh", float(sum(energy)))
