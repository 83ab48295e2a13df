"""The quantities of a plan as a table; its columns are only ever appended."""

from typing import Any

from service.core.estimates import Quantity
from service.core.plans import PlanSummary
from service.exports.table import Column, cell_text, constants, fields, joined


def plan_quantity_columns(plan: PlanSummary) -> tuple[Column[Quantity], ...]:
    """Columns of a plan's quantities, each row with the formula and the numbers that went in."""
    return (
        *fields("scope", "name", "value", "low", "high", "unit", "per", "formula"),
        Column("sources", lambda quantity: joined(quantity.sources)),
        Column("inputs", lambda quantity: _inputs_text(quantity.inputs)),
        *constants(
            currency=plan.currency,
            plan_id=plan.id,
            plan_name=plan.name,
            catalog_release=plan.catalog_release,
            engine_version=plan.engine_version,
        ),
    )


def _inputs_text(inputs: dict[str, Any]) -> str:
    return joined(f"{name} = {_input_text(value)}" for name, value in inputs.items())


def _input_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_input_text(item) for item in value)}]"
    return "none" if value is None else cell_text(value)
