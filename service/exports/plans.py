"""Plans as a table, one row each; its columns are only ever appended."""

from service.core.plans import PlanSummary
from service.exports.table import Cell, Column, fields


def _total(name: str) -> Column[PlanSummary]:
    def cell(plan: PlanSummary) -> Cell:
        return None if plan.totals is None else getattr(plan.totals, name)

    return Column(name, cell)


PLAN_COLUMNS: tuple[Column[PlanSummary], ...] = (
    *fields(
        "id",
        "name",
        "created_at",
        "catalog_release",
        "as_of_date",
        "engine_version",
        "derived_from",
        "feasible",
    ),
    _total("peak_gpu_count"),
    _total("gpu_hours"),
    _total("amount"),
    _total("cash_amount"),
    _total("training_amount"),
    _total("serving_amount"),
    *fields("currency", "catalog_release_retired_at"),
)
