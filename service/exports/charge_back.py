"""Who bears what a plan costs, as a table; its columns are only ever appended."""

from service.core.money.charge_back import ChargeBack, ChargeBackRow
from service.core.plans import PlanSummary
from service.exports.plan_lines import plan_constants
from service.exports.table import Column, constants, fields


def charge_back_columns(
    plan: PlanSummary, charged: ChargeBack
) -> tuple[Column[ChargeBackRow], ...]:
    """Columns of a charge-back; there is no row of totals."""
    return (
        *constants(by=charged.by),
        *fields("pool", "gpu", "workload_kind", "workload"),
        *fields("used_amount", "idle_amount", "amount"),
        *constants(currency=charged.currency),
        *plan_constants(plan),
    )
