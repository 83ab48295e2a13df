"""Priced lines: what is paid for whom, in which month, and on what terms."""

from datetime import datetime
from typing import Literal

from service.core.scenarios.procurement import PoolKind
from service.core.value import Amount, Currency, IsoDate, LongText, Month, Text, Value

WorkloadKind = Literal["training", "serving", "shared"]
"""Whose cost a line is."""
Use = Literal["used", "idle", "redo", "unused_commitment"]
"""What the priced hours did."""
CostCategory = Literal[
    "gpu_rental",
    "host_rental",
    "commitment",
    "hardware",
    "network",
    "storage",
    "facility",
    "power",
    "staff",
    "support",
    "financing",
    "credit",
    "hosted_tokens",
    "installation",
    "spares",
    "insurance",
    "tax",
]
"""What was paid for."""
PurchaseKind = Literal[
    "on_demand",
    "committed_1yr",
    "committed_3yr",
    "spot",
    "capacity_block",
    "negotiated",
    "owned",
    "hosted",
]
"""On what terms."""


class CostLine(Value):
    """One priced line: month, pool, workload, category and use."""

    line_number: int
    """Position, from 1."""
    month: Month
    """Month in which the charge falls."""
    charge_period_start: datetime
    """Start of the charge, UTC."""
    charge_period_end: datetime
    """End of the charge, UTC, not included."""
    pool: PoolKind
    """Pool that is charged."""
    workload_kind: WorkloadKind
    """Whose cost it is."""
    workload: Text | None
    """Name of the run or service; null for what all share."""
    use: Use
    """What the priced hours did."""
    category: CostCategory
    """What was paid for."""
    gpu: Text | None
    """Key of the GPU; null for hosted tokens, for which none is held."""
    provider: Text | None
    """Who is paid, where rented."""
    region: Text | None
    """Region, where rented."""
    site: Text | None
    """Site, where owned."""
    purchase_kind: PurchaseKind
    """On what terms."""
    quantity: Amount
    """Quantity as printed, six decimals."""
    unit: Text
    """Unit of the quantity."""
    unit_price: Amount
    """Price of one unit as printed."""
    amount: Amount
    """Accrual view: quantity times unit price, half-even to cents."""
    cash_amount: Amount
    """Cash view of the same line."""
    currency: Currency
    """Currency of price and amounts."""
    gpu_count: int | None
    """GPUs that the line covers at its peak."""
    formula: Text
    """How the quantity was made."""
    price_source: LongText
    """Where the unit price comes from."""
    price_as_of_date: IsoDate | None
    """Day from which that price holds."""
    price_verified: bool
    """False when the price rests on memory or on one weak source."""
