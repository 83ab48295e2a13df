"""Who bears what a pool costs: by what is held for each workload, or by what each uses.

Both views bear all of a plan's amount to the cent, and show how much of each share is idle.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Literal, NamedTuple

from service.core.estimates import CostLine, WorkloadKind
from service.core.plans import Plan
from service.core.pricing import split_by_largest_remainder, total
from service.core.scenarios.procurement import PoolKind
from service.core.value import Amount, Currency, Text, Value

ChargeBasis = Literal["allocation", "usage"]
"""By which a pool's cost is borne."""
ZERO = Decimal("0.00")


class ChargeBackRow(Value):
    """What one workload bears of one pool."""

    pool: PoolKind
    """Pool that is charged."""
    gpu: Text | None
    """Key of its GPU; null for hosted tokens."""
    workload_kind: WorkloadKind
    """Kind of the workload."""
    workload: Text | None
    """Run or service; null for a pool that no workload uses in any month."""
    used_amount: Amount
    """Cost of the hours, or tokens, that it uses, redo included."""
    idle_amount: Amount
    """Its share of what is paid for without use: idle hours and unused commitment."""
    amount: Amount
    """Both together."""


class ChargeBack(Value):
    """A plan's amount by who bears it; the rows are together `totals.amount`."""

    by: ChargeBasis
    """allocation: idle hours are borne by those for whom they are held, as `amount` of each run
    and service; usage: by those who use the pool, in proportion to what they use in the month."""
    currency: Currency
    """Currency of all amounts."""
    amount: Amount
    """Sum of the rows."""
    idle_amount: Amount
    """What is paid for without use."""
    rows: tuple[ChargeBackRow, ...]
    """Pool by pool, in the order of the plan's lines."""


class _Pool(NamedTuple):
    name: PoolKind
    gpu: str | None


class _Owner(NamedTuple):
    kind: WorkloadKind
    workload: str | None


class Charges:
    """Sums of a plan's lines by month, pool, workload and use; lines may come in parts."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, _Pool, _Owner, bool], Decimal] = {}

    def add(self, lines: Iterable[CostLine]) -> None:
        """Add lines of the plan."""
        for line in lines:
            pool, owner = _Pool(line.pool, line.gpu), _Owner(line.workload_kind, line.workload)
            key = line.month, pool, owner, line.use in {"used", "redo"}
            self._sums[key] = self._sums.get(key, ZERO) + line.amount

    def by_usage(self) -> "Shares":
        """Idle cost of each month and pool split over what is used there in the month.

        Where nothing is used in the month, by what is used there in all months.
        """
        shares, ever = Shares(), self._used_ever()
        idle: dict[tuple[str, _Pool], Decimal] = {}
        used: dict[tuple[str, _Pool], dict[_Owner, Decimal]] = {}
        for (month, pool, owner, is_used), amount in self._sums.items():
            if is_used:
                shares.add(pool, owner, used=amount)
                month_used = used.setdefault((month, pool), {})
                month_used[owner] = month_used.get(owner, ZERO) + amount
            else:
                idle[month, pool] = idle.get((month, pool), ZERO) + amount
        for (month, pool), amount in idle.items():
            weights = (
                used.get((month, pool)) or ever.get(pool) or {_Owner(pool.name, None): Decimal(1)}
            )
            shares.split(pool, amount, weights)
        return shares

    def by_allocation(self, amounts: Mapping[str, Decimal]) -> "Shares":
        """Idle cost of each workload's own, and what its amount in the plan holds beyond it."""
        shares = Shares()
        owns: dict[str, tuple[_Pool, _Owner]] = {}
        for (_, pool, owner, is_used), amount in self._sums.items():
            if owner.workload is None:
                continue
            owns.setdefault(owner.workload, (pool, owner))
            shares.add(pool, owner, **{"used" if is_used else "idle": amount})
        for workload, amount in amounts.items():
            if workload in owns:
                pool, owner = owns[workload]
                shares.add(pool, owner, idle=amount - shares.of(pool, owner))
        return shares

    def _used_ever(self) -> dict[_Pool, dict[_Owner, Decimal]]:
        ever: dict[_Pool, dict[_Owner, Decimal]] = {}
        for (_, pool, owner, is_used), amount in self._sums.items():
            if is_used and amount:
                owners = ever.setdefault(pool, {})
                owners[owner] = owners.get(owner, ZERO) + amount
        return ever


class Shares:
    """What each workload bears of each pool, used and idle."""

    def __init__(self) -> None:
        self._rows: dict[tuple[_Pool, _Owner], tuple[Decimal, Decimal]] = {}

    def add(
        self, pool: _Pool, owner: _Owner, *, used: Decimal = ZERO, idle: Decimal = ZERO
    ) -> None:
        """Add to what a workload bears."""
        before = self._rows.get((pool, owner), (ZERO, ZERO))
        self._rows[pool, owner] = before[0] + used, before[1] + idle

    def of(self, pool: _Pool, owner: _Owner) -> Decimal:
        """All that a workload bears so far."""
        return sum(self._rows.get((pool, owner), (ZERO, ZERO)), ZERO)

    def split(self, pool: _Pool, amount: Decimal, weights: Mapping[_Owner, Decimal]) -> None:
        """Split idle cost to the cent, by largest remainder."""
        # What is used may cost nothing: then what is idle is borne by all alike.
        is_used = any(weights.values())
        parts = [each if is_used else Decimal(1) for each in weights.values()]
        for owner, share in zip(weights, split_by_largest_remainder(amount, parts), strict=True):
            self.add(pool, owner, idle=share)

    def rows(self) -> tuple[ChargeBackRow, ...]:
        """One row for each pool and workload."""
        pools = dict.fromkeys(pool for pool, _ in self._rows)
        return tuple(
            ChargeBackRow(
                pool=pool.name,
                gpu=pool.gpu,
                workload_kind=owner.kind,
                workload=owner.workload,
                used_amount=used,
                idle_amount=idle,
                amount=used + idle,
            )
            for pool in pools
            for (of, owner), (used, idle) in self._rows.items()
            if of == pool
        )


def charge_back(plan: Plan, charges: Charges, by: ChargeBasis) -> ChargeBack:
    """Say who bears a plan's amount.

    Args:
        plan: The plan; without totals nobody bears anything.
        charges: Sums of its lines.
        by: Which view.
    """
    amounts = {each.name: each.amount or ZERO for each in plan.training_runs}
    amounts |= {each.name: each.amount or ZERO for each in plan.serving_services}
    shares = charges.by_usage() if by == "usage" else charges.by_allocation(amounts)
    rows = shares.rows()
    return ChargeBack(
        by=by,
        currency=plan.scenario.currency,
        amount=total(row.amount for row in rows),
        idle_amount=total(row.idle_amount for row in rows),
        rows=rows,
    )
