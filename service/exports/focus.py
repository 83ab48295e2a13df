"""A plan's cost in the shape of FOCUS 1.0, the open specification of bills of the cloud.

A plan is no bill: no invoice stands behind a row. Costs that are paid at another time than they are
used become two rows, as the specification has it for what is paid upfront: a purchase that is
billed and has no effective cost, and usage that has an effective cost and is not billed. So the
sum of EffectiveCost is the plan's `amount`, the sum of BilledCost its `cash_amount`.

Absent values are the text NULL. Columns that the specification does not know begin with x_.

References:
    FinOps Open Cost and Usage Specification 1.0, FinOps Foundation, 2024: columns, and attributes
    Null Handling, Column Naming, Date/Time Format, Numeric Format and Unit Format.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from service.core.estimates import CostCategory, CostLine, PurchaseKind
from service.core.formulas.calendar import first_day, midnight, month_index, month_of
from service.core.plans import PlanSummary
from service.exports.table import Column, CsvForm, constants

FOCUS_FORM = CsvForm(null="NULL")
"""How the specification's own sample spells an absent value."""
ZERO = Decimal("0.00")

PRICING_CATEGORIES: Mapping[PurchaseKind, str] = {
    "on_demand": "Standard",
    "negotiated": "Standard",
    "spot": "Dynamic",
    "committed_1yr": "Committed",
    "committed_3yr": "Committed",
    "capacity_block": "Committed",
    "owned": "Other",
    "hosted": "Standard",
}
SERVICE_CATEGORIES: Mapping[CostCategory, str] = {
    "gpu_rental": "Compute",
    "host_rental": "Compute",
    "commitment": "Compute",
    "hardware": "Compute",
    "network": "Networking",
    "storage": "Storage",
    "hosted_tokens": "AI and Machine Learning",
}
"""Everything else is Other."""
UNITS: Mapping[str, str] = {
    "gpu_hour": "GPU-Hours",
    "gpu_month": "GPU-Months",
    "kW_month": "kW-Months",
    "kWh": "kWh",
    "million_input_tokens": "Million Input-Tokens",
    "million_cached_input_tokens": "Million Cached-Input-Tokens",
    "million_output_tokens": "Million Output-Tokens",
}
USED_UNITS = frozenset(
    {
        "gpu_hour",
        "kWh",
        "million_input_tokens",
        "million_cached_input_tokens",
        "million_output_tokens",
    }
)
"""Units of what is paid by use; everything else is paid month by month."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One row: a line, or its purchase or its use where they fall apart."""

    line: CostLine
    billed: Decimal
    effective: Decimal

    @property
    def is_purchase(self) -> bool:
        """True for what is paid at another time than it is used."""
        return self.effective == 0 and self.line.amount != self.line.cash_amount

    @property
    def is_committed(self) -> bool:
        """True for usage that a commitment covers."""
        return PRICING_CATEGORIES[self.line.purchase_kind] == "Committed"

    @property
    def price(self) -> Decimal | None:
        """Unit price; a purchase has none of its own."""
        return None if self.is_purchase else self.line.unit_price

    @property
    def quantity(self) -> Decimal | None:
        """Quantity that the price is for."""
        return None if self.is_purchase else self.line.quantity

    @property
    def unit(self) -> str | None:
        """Unit of the quantity."""
        return None if self.is_purchase else UNITS.get(self.line.unit, self.line.unit)

    @property
    def cost(self) -> Decimal:
        """Quantity times price; of a purchase what is paid."""
        return self.billed if self.is_purchase else self.line.amount

    @property
    def provider(self) -> str:
        """Who is paid; of what is owned, the site, else the fact that it is owned."""
        return self.line.provider or self.line.site or self.line.purchase_kind

    @property
    def resource(self) -> str:
        """The pool that is charged; of hosted tokens, who sells them."""
        return f"{self.line.pool}/{self.line.gpu or self.line.provider}"

    @property
    def sku(self) -> str:
        """What is bought."""
        return f"{self.line.gpu or self.line.unit}/{self.line.category}"

    @property
    def billing_period(self) -> tuple[datetime, datetime]:
        """The calendar month."""
        following = month_of(month_index(self.line.month) + 1)
        return midnight(first_day(self.line.month)), midnight(first_day(following))

    @property
    def description(self) -> str:
        """What was charged, in words."""
        workload = self.line.workload or "all workloads"
        return f"{self.line.category} ({self.line.use}) of {self.resource} for {workload}"

    @property
    def frequency(self) -> str:
        """How often it is charged."""
        if self.is_purchase:
            return "One-Time"
        return "Usage-Based" if self.line.unit in USED_UNITS else "Recurring"

    @property
    def tags(self) -> str:
        """Whose cost it is, as a JSON object."""
        line = self.line
        named = {"pool": line.pool, "workload_kind": line.workload_kind, "use": line.use}
        return json.dumps(named | ({"workload": line.workload} if line.workload else {}))


def focus_charges(lines: Sequence[CostLine]) -> Iterator[Charge]:
    """Rows of lines; where accrual and cash differ, the use and the purchase apart."""
    for line in lines:
        if line.amount == line.cash_amount:
            yield Charge(line, line.cash_amount, line.amount)
            continue
        yield Charge(line, ZERO, line.amount)
        if line.cash_amount:
            yield Charge(line, line.cash_amount, ZERO)


def _committed(cell: Any) -> Any:
    return lambda row: cell(row) if row.is_committed and not row.is_purchase else None


_PRICES_AND_PLACES: tuple[Column[Charge], ...] = (
    Column("ContractedCost", lambda row: row.cost),
    Column("ContractedUnitPrice", lambda row: row.price),
    Column("EffectiveCost", lambda row: row.effective),
    Column("InvoiceIssuerName", lambda row: row.provider),
    Column("ListCost", lambda row: row.cost),
    Column("ListUnitPrice", lambda row: row.price),
    Column("PricingCategory", lambda row: PRICING_CATEGORIES[row.line.purchase_kind]),
    Column("PricingQuantity", lambda row: row.quantity),
    Column("PricingUnit", lambda row: row.unit),
    Column("ProviderName", lambda row: row.provider),
    Column("PublisherName", lambda row: row.provider),
    Column("RegionId", lambda row: row.line.region or row.line.site),
    Column("RegionName", lambda row: row.line.region or row.line.site),
    Column("ResourceId", lambda row: row.resource),
    Column("ResourceName", lambda row: row.resource),
    Column("ResourceType", lambda row: "GPU pool" if row.line.gpu else "Hosted tokens"),
    Column("ServiceCategory", lambda row: SERVICE_CATEGORIES.get(row.line.category, "Other")),
    Column("ServiceName", lambda row: row.line.category),
    Column("SkuId", lambda row: row.sku),
    Column("SkuPriceId", lambda row: f"{row.sku}/{row.line.purchase_kind}"),
    Column("SubAccountId", lambda row: row.line.workload or row.line.pool),
    Column("SubAccountName", lambda row: row.line.workload or row.line.pool),
    Column("Tags", lambda row: row.tags),
)


def focus_columns(plan: PlanSummary) -> tuple[Column[Charge], ...]:
    """Columns of the specification in its order, then the plan's own."""
    return (
        Column("BilledCost", lambda row: row.billed),
        *constants(BillingAccountId=str(plan.id), BillingAccountName=plan.name),
        Column("BillingCurrency", lambda row: row.line.currency),
        Column("BillingPeriodEnd", lambda row: row.billing_period[1]),
        Column("BillingPeriodStart", lambda row: row.billing_period[0]),
        Column("ChargeCategory", lambda row: "Purchase" if row.is_purchase else "Usage"),
        *constants(ChargeClass=None),
        Column("ChargeDescription", lambda row: row.description),
        Column("ChargeFrequency", lambda row: row.frequency),
        Column("ChargePeriodEnd", lambda row: row.line.charge_period_end.replace(microsecond=0)),
        Column(
            "ChargePeriodStart", lambda row: row.line.charge_period_start.replace(microsecond=0)
        ),
        Column("CommitmentDiscountCategory", _committed(lambda _: "Usage")),
        Column("CommitmentDiscountId", _committed(lambda row: f"{plan.id}/{row.resource}")),
        Column("CommitmentDiscountName", _committed(lambda row: row.resource)),
        Column(
            "CommitmentDiscountStatus",
            _committed(lambda row: "Unused" if row.line.use == "unused_commitment" else "Used"),
        ),
        Column("CommitmentDiscountType", _committed(lambda row: row.line.purchase_kind)),
        Column("ConsumedQuantity", lambda row: row.quantity),
        Column("ConsumedUnit", lambda row: row.unit),
        *_PRICES_AND_PLACES,
        Column("x_LineNumber", lambda row: row.line.line_number),
        Column("x_PriceSource", lambda row: row.line.price_source or None),
        Column("x_PriceVerified", lambda row: row.line.price_verified),
        *constants(x_CatalogRelease=plan.catalog_release, x_EngineVersion=plan.engine_version),
    )
