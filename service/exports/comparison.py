"""A comparison as a table: one row for each quantity and each plan beside the baseline."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.plans import ComparedQuantity, ComparedValue, PlanComparison, PlanSummary
from service.exports.table import Column


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One quantity of one plan against the baseline."""

    baseline: PlanSummary
    plan: PlanSummary
    quantity: ComparedQuantity
    compared: ComparedValue


def comparison_rows(comparison: PlanComparison) -> Iterator[ComparisonRow]:
    """Rows in the order of the quantities, and within one of the plans."""
    plans = {plan.id: plan for plan in comparison.plans}
    baseline = plans[comparison.baseline_id]
    for quantity in comparison.quantities:
        for compared in quantity.values:
            yield ComparisonRow(baseline, plans[compared.plan_id], quantity, compared)


COMPARISON_COLUMNS: tuple[Column[ComparisonRow], ...] = (
    Column("scope", lambda row: row.quantity.scope),
    Column("name", lambda row: row.quantity.name),
    Column("unit", lambda row: row.quantity.unit),
    Column("per", lambda row: row.quantity.per),
    Column("baseline_plan_id", lambda row: row.baseline.id),
    Column("baseline_plan_name", lambda row: row.baseline.name),
    Column("baseline_value", lambda row: row.quantity.baseline_value),
    Column("plan_id", lambda row: row.plan.id),
    Column("plan_name", lambda row: row.plan.name),
    Column("value", lambda row: row.compared.value),
    Column("difference", lambda row: row.compared.difference),
    Column("relative_difference_fraction", lambda row: row.compared.relative_difference_fraction),
    Column("currency", lambda row: row.plan.currency),
)
