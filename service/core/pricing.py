"""Amounts in exact decimals, of lines and of single estimates: the only place that rounds money.

A line's amount is its printed quantity (six decimals) times its printed unit price (six decimals),
half-even to cents. Totals are sums of such lines, so a spreadsheet's own SUM agrees to the cent.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import cached_property
from typing import Protocol, TypeVar

from service.core.errors import InvalidScenario
from service.core.estimates import CostCategory, CostLine, PurchaseKind, Use, WorkloadKind
from service.core.hardware import Gpu
from service.core.scenarios.procurement import PoolKind
from service.core.units import TOKENS_PER_MILLION

CENT = Decimal("0.01")
MILLIONTH = Decimal("0.000001")
BOUND = Decimal(10) ** 12
"""Amounts have at most twelve digits before the point, in JSON as in the database."""
_EXACT = Context(prec=100, rounding=ROUND_HALF_EVEN)
"""Wide enough that products are rounded once, where it is meant."""

Group = TypeVar("Group", bound=Hashable)


class AmountTooLarge(InvalidScenario):
    """An amount with more digits than are kept; knows whose it is, where that is one workload's."""

    def __init__(
        self, what: str = "an amount", workload: str | None = None, *, pointer: str = ""
    ) -> None:
        super().__init__(f"{what} has more than twelve digits before the point", pointer=pointer)
        self.workload = workload


@dataclass(frozen=True)
class UnitPrice:
    """The price of one unit, and where it comes from."""

    value: Decimal
    source: str
    as_of_date: date | None = None
    verified: bool = True

    @cached_property
    def printed(self) -> Decimal:
        """The price as it is printed: a month's lines share it."""
        return printed(self.value)


@dataclass(frozen=True)
class Terms:
    """Who is paid, and on what terms; fields are named as those of a line."""

    currency: str
    purchase_kind: PurchaseKind
    provider: str | None = None
    region: str | None = None
    site: str | None = None


class ChargedHours(Protocol):
    """GPU-hours of one month, pool, workload and use: what a line is charged for."""

    @property
    def month(self) -> str:
        """Calendar month."""

    @property
    def start(self) -> datetime:
        """Start of the charge, UTC."""

    @property
    def end(self) -> datetime:
        """End of the charge, UTC, not included."""

    @property
    def pool(self) -> PoolKind:
        """Pool that is charged."""

    @property
    def gpu(self) -> Gpu | None:
        """GPU of the pool; None for hosted tokens."""

    @property
    def workload_kind(self) -> WorkloadKind:
        """Whose cost it is."""

    @property
    def workload(self) -> str | None:
        """Run or service; None for what all share."""

    @property
    def use(self) -> Use:
        """What the hours did."""

    @property
    def gpu_count(self) -> int:
        """Most GPUs at once."""


def printed(number: Decimal | float) -> Decimal:
    """A quantity or unit price as it is printed: six decimals, half-even, no trailing zeros.

    A float is taken by the digits that identify it, so 0.1 is one tenth.

    Raises:
        AmountTooLarge: If it has more than twelve digits before the point.

    Examples:
        >>> printed(22196.0), printed(1 / 3), printed(Decimal("0.0000005"))
        (Decimal('22196'), Decimal('0.333333'), Decimal('0'))
    """
    return _plain(_rounded(number, MILLIONTH))


def money(amount: Decimal | float) -> Decimal:
    """An amount in cents, half-even.

    Raises:
        AmountTooLarge: If it has more than twelve digits before the point.

    Examples:
        The binary double nearest to 7.825 lies above it; its digits do not.

        >>> money(Decimal("7.825")), money(7.825), money(Decimal("7.835"))
        (Decimal('7.82'), Decimal('7.82'), Decimal('7.84'))
    """
    return _rounded(amount, CENT)


def _rounded(number: Decimal | float, step: Decimal) -> Decimal:
    exact = number if isinstance(number, Decimal) else Decimal(repr(float(number)))
    if exact.is_nan() or abs(exact) >= BOUND:
        raise AmountTooLarge
    rounded = _EXACT.quantize(exact, step)
    if abs(rounded) >= BOUND:
        raise AmountTooLarge
    return rounded or abs(rounded)  # zero has no sign


def _plain(number: Decimal) -> Decimal:
    """Without trailing zeros, and without the exponent that normalising gives to 380,000."""
    normal = number.normalize(_EXACT)
    exponent = normal.as_tuple().exponent
    whole = isinstance(exponent, int) and exponent > 0
    return normal.quantize(Decimal(1), context=_EXACT) if whole else normal


def priced(quantity: Decimal, unit_price: Decimal) -> Decimal:
    """Amount of a printed quantity at a printed unit price: half-even to cents.

    Examples:
        >>> priced(Decimal("380928"), Decimal("6.88"))
        Decimal('2620784.64')
    """
    return money(_EXACT.multiply(quantity, unit_price))


@contextmanager
def amounts_of(what: str, *, pointer: str) -> Iterator[None]:
    """Name what amounts are of, and the field that makes them smaller, where one is too large."""
    try:
        yield
    except AmountTooLarge as error:
        raise AmountTooLarge(what, pointer=pointer) from error


def cost_of_units(quantity: float, unit_price: Decimal) -> Decimal:
    """What so many units cost in a single estimate: rounded as a line of a plan is.

    A quantity of more than twelve digits is taken whole: as a float it has no six decimals.

    Raises:
        AmountTooLarge: If the amount has more than twelve digits before the point.

    Examples:
        >>> cost_of_units(380928.0, Decimal("6.88"))
        Decimal('2620784.64')
    """
    units = printed(quantity) if abs(quantity) < float(BOUND) else Decimal(repr(float(quantity)))
    return priced(units, unit_price)


def split_by_largest_remainder(
    total: Decimal, weights: Sequence[Decimal], *, step: Decimal = CENT
) -> tuple[Decimal, ...]:
    """Shares of a total in whole steps, in proportion to the weights, that sum to it exactly.

    Each share is rounded towards zero; the steps that are left go to the largest remainders, the
    first of equal ones first.

    References:
        Hamilton's method: Balinski and Young, Fair Representation, 1982, chapter 3.

    Raises:
        ValueError: If the total is not in whole steps, a weight is negative or all are zero.

    Examples:
        >>> split_by_largest_remainder(Decimal("1.00"), [Decimal(1)] * 3)
        (Decimal('0.34'), Decimal('0.33'), Decimal('0.33'))
    """
    step_count, part = divmod(abs(total), step)
    scale = max((-_exponent(weight) for weight in weights), default=0)
    whole = [int(weight.scaleb(max(scale, 0), _EXACT)) for weight in weights]
    if part or min(whole, default=0) < 0 or not any(whole):
        raise ValueError("a total in whole steps and weights of zero and above are needed")
    shares = [divmod(int(step_count) * weight, sum(whole)) for weight in whole]
    left = int(step_count) - sum(floor for floor, _ in shares)
    by_remainder = sorted(range(len(shares)), key=lambda index: -shares[index][1])
    one_more = frozenset(by_remainder[:left])
    sign = -1 if total < 0 else 1
    return tuple(
        _EXACT.multiply(step, Decimal(sign * (floor + (index in one_more))))
        for index, (floor, _) in enumerate(shares)
    )


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError("a weight is not finite")
    return exponent


def split_bill(
    quantity: Decimal, unit_price: Decimal, weights: Sequence[Decimal]
) -> tuple[Decimal, ...]:
    """Printed quantities of the shares of one bill, whose priced amounts sum to the bill's.

    Amounts are split to the cent, each with the quantity next to its own share that prices to it.
    Where a millionth of a unit costs more than a cent no such quantity need exist: then
    the quantities themselves are split, and the total is again the sum of the lines.
    """
    amounts = split_by_largest_remainder(priced(quantity, unit_price), weights)
    quantities = split_by_largest_remainder(quantity, weights, step=MILLIONTH)
    return tuple(
        _plain(_pricing_to(amount, unit_price, near=share))
        for amount, share in zip(amounts, quantities, strict=True)
    )


def _pricing_to(amount: Decimal, unit_price: Decimal, *, near: Decimal) -> Decimal:
    if priced(near, unit_price) == amount:
        return near
    nearest = _rounded(_EXACT.divide(amount, unit_price), MILLIONTH)
    return nearest if priced(nearest, unit_price) == amount else near


def _printed_amount(
    hours: ChargedHours, category: CostCategory, quantity: Decimal | float, price: UnitPrice
) -> tuple[Decimal, Decimal, Decimal]:
    """Printed quantity, printed price and their amount; what is too large is named by its owner."""
    try:
        printed_quantity, printed_price = printed(quantity), price.printed
        return printed_quantity, printed_price, priced(printed_quantity, printed_price)
    except AmountTooLarge as error:
        whose = f"workload {hours.workload!r}" if hours.workload else f"the {hours.pool} pool"
        what = f"the amount of {category} for {whose} in {hours.month}"
        raise AmountTooLarge(what, hours.workload) from error


def price_line(
    hours: ChargedHours,
    terms: Terms,
    *,
    line_number: int,
    category: CostCategory,
    quantity: Decimal | float,
    unit: str,
    price: UnitPrice,
    formula: str,
    cash_amount: Decimal | None = None,
) -> CostLine:
    """Price one line: the printed quantity times the printed unit price, half-even to cents.

    Args:
        hours: What the line is charged for.
        terms: Who is paid, and on what terms.
        line_number: Position of the line, from 1.
        category: What is paid for.
        quantity: Units; rounded to six decimals.
        unit: Name of the unit.
        price: Price of one unit; rounded to six decimals.
        formula: How the quantity was made.
        cash_amount: Cash view in cents, where it is not the accrual view.

    Raises:
        AmountTooLarge: If an amount has more than twelve digits before the point.
    """
    printed_quantity, printed_price, amount = _printed_amount(hours, category, quantity, price)
    return CostLine(
        line_number=line_number,
        month=hours.month,
        charge_period_start=hours.start,
        charge_period_end=hours.end,
        pool=hours.pool,
        workload_kind=hours.workload_kind,
        workload=hours.workload,
        use=hours.use,
        category=category,
        gpu=None if hours.gpu is None else hours.gpu.key,
        **vars(terms),
        quantity=printed_quantity,
        unit=unit,
        unit_price=printed_price,
        amount=amount,
        cash_amount=amount if cash_amount is None else cash_amount,
        gpu_count=hours.gpu_count,
        formula=formula,
        price_source=price.source,
        price_as_of_date=price.as_of_date,
        price_verified=price.verified,
    )


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Sum of rounded amounts.

    Raises:
        AmountTooLarge: If it has more than twelve digits before the point.
    """
    return money(sum(amounts, start=Decimal(0)))


def amounts_by(
    lines: Iterable[CostLine], group: Callable[[CostLine], Group]
) -> dict[Group, Decimal]:
    """Sums of the rounded lines of each group: of a month, a workload, a pool."""
    groups: dict[Group, list[Decimal]] = {}
    for line in lines:
        groups.setdefault(group(line), []).append(line.amount)
    return {key: total(amounts) for key, amounts in groups.items()}


def cost_per_million_tokens(amount: Decimal, tokens: float) -> Decimal | None:
    """Cost of a million tokens, in cents half-even.

    None when there are no tokens, or so few that the cost does not fit into twelve digits.

    Examples:
        >>> cost_per_million_tokens(Decimal("3857203.20"), 1.3441e12)
        Decimal('2.87')
    """
    millions = _EXACT.divide(Decimal(repr(float(tokens))), Decimal(repr(TOKENS_PER_MILLION)))
    if millions <= 0 or abs(amount) >= _EXACT.multiply(BOUND - 1, millions):
        return None
    return money(_EXACT.divide(amount, millions))
