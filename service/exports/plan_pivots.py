"""A plan's lines summed into wide tables: by workload, and by month.

Sums are made of whole cents, so that a table's cells add up to the plan's totals exactly. There
are no rows of subtotals: a spreadsheet's own sum over a column is the total.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

import pandas as pd

from service.core.estimates import CostCategory, CostLine, Use
from service.core.formulas.calendar import month_index, month_of
from service.core.plans import PlanSummary
from service.exports.plan_lines import plan_constants
from service.exports.table import Cell, Column

View = Literal["accrual", "cash"]
"""Which amounts are summed: as they are incurred, or as they are paid."""

WORKLOAD_KEYS = ("pool", "gpu", "workload_kind", "workload", "currency")
MONTH_KEYS = (
    *("pool", "gpu", "workload_kind", "workload", "use", "category"),
    *("provider", "region", "site", "purchase_kind", "currency"),
)
USES: tuple[str, ...] = get_args(Use)
CATEGORIES: tuple[str, ...] = get_args(CostCategory)

Wide = dict[str, Cell]
"""One row of a wide table, by column."""


def _cents(amount: Decimal) -> int:
    return int(amount.scaleb(2))


def _money(cents: Any) -> Decimal:
    return Decimal(int(cents)).scaleb(-2)


def _frame(lines: Iterable[CostLine], names: Sequence[str]) -> pd.DataFrame:
    """The named fields of the lines, amounts in whole cents; text that is absent becomes empty."""
    rows = (
        (
            *(getattr(line, name) or "" for name in names),
            line.month,
            line.use,
            line.category,
            _cents(line.amount),
            _cents(line.cash_amount),
        )
        for line in lines
    )
    columns = [*names, "_month", "_use", "_category", "amount", "cash_amount"]
    return pd.DataFrame.from_records(list(rows), columns=columns)


def _named(names: Sequence[str]) -> tuple[Column[Wide], ...]:
    def reader(name: str) -> Any:
        return lambda row: row[name]

    return tuple(Column(name, reader(name)) for name in names)


def _identity(names: Sequence[str], values: Any) -> Wide:
    texts = values if isinstance(values, tuple) else (values,)
    return {name: text or None for name, text in zip(names, texts, strict=True)}


def workload_table(
    plan: PlanSummary, lines: Iterable[CostLine]
) -> tuple[tuple[Column[Wide], ...], list[Wide]]:
    """One row for each pool and workload, its amounts by use and by category in columns."""
    frame = _frame(lines, WORKLOAD_KEYS)
    by_use = [f"{use}_amount" for use in USES]
    by_category = [f"{category}_amount" for category in CATEGORIES]
    columns = (
        *_named((*WORKLOAD_KEYS, "amount", "cash_amount", *by_use, *by_category)),
        *plan_constants(plan),
    )
    rows: list[Wide] = []
    for values, group in frame.groupby(list(WORKLOAD_KEYS), sort=False):
        uses = group.groupby("_use")["amount"].sum()
        categories = group.groupby("_category")["amount"].sum()
        rows.append(
            _identity(WORKLOAD_KEYS, values)
            | {name: _money(group[name].sum()) for name in ("amount", "cash_amount")}
            | {f"{use}_amount": _money(uses.get(use, 0)) for use in USES}
            | {f"{each}_amount": _money(categories.get(each, 0)) for each in CATEGORIES}
        )
    return columns, rows


def month_table(
    plan: PlanSummary, lines: Iterable[CostLine], view: View
) -> tuple[tuple[Column[Wide], ...], list[Wide]]:
    """One row for each pool, workload, use and category, one column for each month.

    Every month between the first and the last that has a line gets a column.
    """
    frame = _frame(lines, MONTH_KEYS)
    amounts = "amount" if view == "accrual" else "cash_amount"
    months = _months(frame["_month"])
    columns = (*_named((*MONTH_KEYS, *months, "amount")), *plan_constants(plan))
    rows: list[Wide] = []
    for values, group in frame.groupby(list(MONTH_KEYS), sort=False):
        by_month = group.groupby("_month")[amounts].sum()
        rows.append(
            _identity(MONTH_KEYS, values)
            | {month: _money(by_month.get(month, 0)) for month in months}
            | {"amount": _money(group[amounts].sum())}
        )
    return columns, rows


def _months(held: pd.Series) -> list[str]:
    if held.empty:
        return []
    return [
        month_of(index) for index in range(month_index(held.min()), month_index(held.max()) + 1)
    ]
