"""What a fleet costs: one line for each month, pool, workload, category and use.

Rented GPUs cost their hours. Owned ones cost the whole pool; each month's bills are split over what
its GPU-hours did, idle ones included, which draw less power.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, count
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from service.core.costs.commitment import TERM_MONTHS, Commitments
from service.core.costs.existing import ExistingLot, existing_bills
from service.core.costs.owned import Bill, Purchase, owned_bills
from service.core.costs.owning import assume_within
from service.core.costs.terms import CommitmentMix, Ownership, Rental, ResolvedProcurement
from service.core.estimates import CostCategory, CostLine, PoolSize
from service.core.formulas.calendar import (
    first_day,
    hours_in_month,
    midnight,
    month_index,
    month_of,
)
from service.core.formulas.finance import (
    changed_price,
    effective_cost_per_gpu_hour,
)
from service.core.hours.harvest import HOUR_NOISE
from service.core.planners.hosted import HostedService, hosted_lines
from service.core.planners.staging import purchases_of
from service.core.pooling.workloads import HourUse
from service.core.prices import Commitment
from service.core.pricing import (
    Terms,
    UnitPrice,
    price_line,
    priced,
    printed,
    split_by_largest_remainder,
    total,
)
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import PoolKind
from service.core.scenarios.scenario import Scenario

PoolKey = tuple[PoolKind, str]
"""A pool and the key of its GPU."""

GPU_HOURS = "GPU-hours of the month"
REDO_HOURS = "GPU-hours of the month x share done again after interruptions"

define_quantity(
    "energy_kwh",
    unit="kWh",
    per="pool",
    formula=(
        "sum over months and uses of GPU-hours x node power / GPUs per node x load x PUE; the load "
        "of idle hours is idle_power_fraction, and none is above a service's power cap"
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
    loads: Mapping[PoolKey, NDArray[np.int64]] = MappingProxyType({}),
    hosted: Sequence[HostedService] = (),
    existing: Mapping[PoolKey, Sequence[ExistingLot]] = MappingProxyType({}),
    staged: Mapping[PoolKey, Sequence[int]] = MappingProxyType({}),
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
        loads: GPUs that each pool holds, hour by hour of the horizon; of pools with a commitment.
        hosted: Services whose tokens are bought; their lines follow those of the pools.
        existing: GPUs of each pool that are owned already; the rest is paid for by its terms.
        staged: GPUs by month of pools that are bought as needed.

    Returns:
        Lines numbered from 1.

    Raises:
        InvalidScenario: If an override is out of its bounds or an amount out of twelve digits.
    """
    by_month: dict[str, list[HourUse]] = {}
    for hours in hour_uses:
        by_month.setdefault(hours.month, []).append(hours)
    months = scenario.horizon.months
    owned = purchases_of(pools, procurement, months[0], staged=staged, existing=existing)
    pricing = _Pricing(
        procurement=procurement,
        purchases=owned,
        currency=scenario.currency,
        change=PriceChange.assumed(recorder, months[0]),
        first_month=months[0],
        numbers=count(1),
        commitments=_commitments(procurement, loads, existing, scenario),
        existing=existing,
    )
    lines = tuple(
        line
        for month in months
        for line in chain(
            pricing.lines(month, by_month.get(month, [])), pricing.tokens(month, hosted)
        )
    )
    _note(lines, pools, recorder)
    return lines


@dataclass(frozen=True)
class PriceChange:
    """Yearly change of rental prices from the as-of month on."""

    per_year_fraction: float
    as_of_month: int
    first_month: int

    @classmethod
    def assumed(cls, recorder: Recorder, first_month: str) -> "PriceChange":
        """Change by the assumption of the catalog, or as it was overridden.

        Raises:
            InvalidScenario: If an override is out of its bounds.
        """
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
class _Pricing:
    """Makes the lines of one month after the other."""

    procurement: Mapping[PoolKey, ResolvedProcurement]
    purchases: Mapping[PoolKey, Sequence[Purchase]]
    currency: str
    change: PriceChange
    first_month: str
    numbers: Iterator[int]
    commitments: Mapping[PoolKey, Commitments]
    existing: Mapping[PoolKey, Sequence[ExistingLot]]

    def lines(self, month: str, hour_uses: Sequence[HourUse]) -> Iterator[CostLine]:
        """Lines of one month: an owned pool where its first use stands."""
        billed: set[PoolKey] = set()
        for hours in hour_uses:
            key = (hours.pool, hours.gpu.key)
            terms = self.procurement[key].terms
            if isinstance(terms, Rental) and key not in self.existing:
                yield from self._rented([hours], terms)
            elif key not in billed:
                billed.add(key)
                uses = [use for use in hour_uses if (use.pool, use.gpu.key) == key]
                if key in self.existing:
                    uses = yield from self._existing(month, key, uses)
                yield from self._added(month, key, uses)
        for key, found in self.procurement.items():
            if key not in billed and isinstance(found.terms, CommitmentMix):
                yield from self._mixed(month, key, found.terms, [])

    def tokens(self, month: str, hosted: Sequence[HostedService]) -> Iterator[CostLine]:
        """Lines of tokens that are bought in a month."""
        for each in hosted:
            yield from hosted_lines(each, month, self.currency, self.numbers, self.change.at)

    def _added(self, month: str, key: PoolKey, uses: Sequence[HourUse]) -> Iterator[CostLine]:
        """Lines of what the plan itself rents or buys for a pool."""
        terms = self.procurement[key].terms
        if isinstance(terms, CommitmentMix):
            yield from self._mixed(month, key, terms, uses)
        elif isinstance(terms, Rental):
            for use in uses:
                yield from self._rented([use], terms)
        elif uses:
            yield from self._owned(month, key, terms, uses)

    def _mixed(
        self, month: str, key: PoolKey, mix: CommitmentMix, uses: Sequence[HourUse]
    ) -> Iterator[CostLine]:
        """Lines of what is committed, used or not, then of what goes beyond it."""
        held = self.commitments[key]
        covered = held.covered_fraction(month)
        shares = [replace(use, gpu_hours=use.gpu_hours * covered) for use in uses]
        unused = held.gpu_hours(month) - float(sum(printed(use.gpu_hours) for use in shares))
        if printed(unused) > 0:
            found = self.procurement[key]
            idle = _nobodys(month, found, unused, held.gpu_count)
            shares.append(replace(idle, use="unused_commitment"))
        shares = [share for share in shares if printed(share.gpu_hours)]
        prepaid = held.prepaid_gpu_hours(month) if mix.paid_upfront else None
        if shares:
            yield from self._rented(shares, mix.committed, prepaid_gpu_hours=prepaid)
        if uses and covered < 1:
            beyond = [replace(use, gpu_hours=use.gpu_hours * (1 - covered)) for use in uses]
            yield from self._rented(beyond, mix.rest)

    def _rented(
        self,
        shares: Sequence[HourUse],
        rental: Rental,
        *,
        prepaid_gpu_hours: float | None = None,
    ) -> Iterator[CostLine]:
        """Lines of rented hours; what is paid upfront is all cash when it is paid."""
        terms = Terms(
            currency=self.currency,
            purchase_kind=rental.commitment,
            provider=rental.provider,
            region=rental.region,
        )
        bills = list(self._rental_bills(shares, rental, prepaid_gpu_hours))
        for index, share in enumerate(shares):
            for use in with_redo(share, rental.redo_fraction):
                for category, price, cash_amounts in bills:
                    yield price_line(
                        use,
                        terms,
                        line_number=next(self.numbers),
                        category=category,
                        quantity=use.gpu_hours,
                        unit="gpu_hour",
                        price=price,
                        formula=GPU_HOURS if use is share else REDO_HOURS,
                        cash_amount=cash_amounts[index] if use is share else None,
                    )

    def _rental_bills(
        self, shares: Sequence[HourUse], rental: Rental, prepaid_gpu_hours: float | None
    ) -> Iterator[tuple[CostCategory, UnitPrice, Sequence[Decimal | None]]]:
        """What a rented hour costs by kind, and the cash of each share where it is paid upfront."""
        prices: tuple[tuple[CostCategory, UnitPrice | None], ...] = (
            ("gpu_rental", rental.gpu_hour),
            ("host_rental", rental.host_hour),
        )
        for category, price in prices:
            if price is None:
                continue
            now = self.change.at(price, shares[0].month, rental.commitment)
            if prepaid_gpu_hours is None:
                yield category, now, [None] * len(shares)
            else:
                paid = priced(printed(prepaid_gpu_hours), now.printed)
                weights = [printed(share.gpu_hours) for share in shares]
                yield category, now, split_by_largest_remainder(paid, weights)

    def _existing(
        self, month: str, key: PoolKey, uses: Sequence[HourUse]
    ) -> Generator[CostLine, None, list[HourUse]]:
        """Lines of GPUs that are owned already; returns what the pool's terms pay for."""
        held, hours = sum(use.gpu_hours for use in uses), hours_in_month(month)
        lots = self.existing[key]
        for lot in lots:
            share = min(1.0, lot.gpu_count * hours / held)
            own = [_part_of(use, share, lot.gpu_count) for use in uses]
            yield from self._billed(
                own, existing_bills(lot, own, self._months_owned(month)), lot.site
            )
        count = sum(lot.gpu_count for lot in lots)
        rest = 1.0 - count * hours / held
        if rest * held <= HOUR_NOISE:
            return []
        return [_part_of(use, rest, max(0, use.gpu_count - count)) for use in uses]

    def _owned(
        self, month: str, key: PoolKey, owned: Ownership, uses: Sequence[HourUse]
    ) -> Iterator[CostLine]:
        """Lines of an owned pool: workload by workload, then category by category."""
        bills = owned_bills(owned, self.purchases[key], uses, self._months_owned(month))
        yield from self._billed(uses, bills, self.procurement[key].site)

    def _months_owned(self, month: str) -> int:
        return month_index(month) - month_index(self.first_month)

    def _billed(
        self, uses: Sequence[HourUse], bills: Sequence[Bill], site: str | None
    ) -> Iterator[CostLine]:
        """Lines of the bills of owned GPUs, split over what their hours did."""
        terms = Terms(currency=self.currency, purchase_kind="owned", site=site)
        shares = []
        for bill in bills:
            weights = bill.weights or [use.gpu_hours for use in uses]
            parts = [Decimal(repr(weight)) for weight in weights]
            shares.append((bill, bill.quantities(parts), bill.cash_amounts(parts)))
        for workload in dict.fromkeys(use.workload for use in uses):
            for bill, quantities, cash_amounts in shares:
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


def _part_of(use: HourUse, share: float, most: int) -> HourUse:
    """A share of the hours of a use, on so many GPUs at most."""
    return replace(use, gpu_hours=use.gpu_hours * share, gpu_count=max(1, min(use.gpu_count, most)))


def _nobodys(month: str, found: ResolvedProcurement, gpu_hours: float, gpu_count: int) -> HourUse:
    """Hours of a pool that no workload holds."""
    return HourUse(
        month=month,
        start=midnight(first_day(month)),
        end=midnight(first_day(month_of(month_index(month) + 1))),
        pool=found.pool,
        gpu=found.gpu,
        workload_kind=found.pool,
        workload=None,
        use="idle",
        gpu_hours=gpu_hours,
        gpu_count=gpu_count,
    )


def with_redo(use: HourUse, redo_fraction: float) -> Iterator[HourUse]:
    """A use, and what training does again of it after interruptions."""
    yield use
    if redo_fraction and use.workload_kind == "training" and use.use == "used":
        yield replace(use, use="redo", gpu_hours=use.gpu_hours * redo_fraction)


def _commitments(
    procurement: Mapping[PoolKey, ResolvedProcurement],
    loads: Mapping[PoolKey, NDArray[np.int64]],
    existing: Mapping[PoolKey, Sequence[ExistingLot]],
    scenario: Scenario,
) -> dict[PoolKey, Commitments]:
    owned = {key: sum(lot.gpu_count for lot in lots) for key, lots in existing.items()}
    return {
        key: Commitments.of(found.terms, loads[key] - owned.get(key, 0), scenario.horizon.months)
        for key, found in procurement.items()
        if isinstance(found.terms, CommitmentMix)
    }


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
