"""The cost lines of a plan as a table; its columns are only ever appended."""

from typing import Any

from service.core.estimates import CostLine
from service.core.plans import PlanSummary
from service.exports.table import Column, constants, fields

LINE_FIELDS = (
    "line_number",
    "month",
    "charge_period_start",
    "charge_period_end",
    "pool",
    "workload_kind",
    "workload",
    "use",
    "category",
    "gpu",
    "provider",
    "region",
    "site",
    "purchase_kind",
    "quantity",
    "unit",
    "unit_price",
    "amount",
    "cash_amount",
    "currency",
    "gpu_count",
    "formula",
    "price_source",
    "price_as_of_date",
    "price_verified",
)


def plan_constants(plan: PlanSummary) -> tuple[Column[Any], ...]:
    """Columns that name the plan in each row, so that files can be stacked."""
    return constants(
        plan_id=plan.id,
        plan_name=plan.name,
        catalog_release=plan.catalog_release,
        engine_version=plan.engine_version,
    )


def plan_line_columns(plan: PlanSummary) -> tuple[Column[CostLine], ...]:
    """Columns of a plan's lines."""
    return (*fields(*LINE_FIELDS), *plan_constants(plan))
