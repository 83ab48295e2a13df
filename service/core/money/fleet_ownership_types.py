"""What is asked and answered about a fleet that is bought and run."""

from typing import Annotated

from pydantic import Field

from service.core.answers import EstimateAnswer, PricedQuestion
from service.core.scenarios.procurement import OwnMethod, RentMethod
from service.core.scenarios.refs import GpuRef
from service.core.value import (
    Amount,
    Count,
    Currency,
    EntryName,
    LongText,
    NonNegative,
    PositiveFraction,
    Text,
    Value,
)


class OwnershipQuestion(PricedQuestion):
    """Which fleet is bought, on what terms, and what it is compared with."""

    gpu: GpuRef
    """What is bought."""
    gpu_count: Count
    """How many; whole nodes are the buyer's to see to."""
    currency: Currency = "USD"
    """Currency of all amounts."""
    site: EntryName | None = None
    """Site whose tariff, PUE and carbon apply; null takes the assumptions."""
    method: OwnMethod
    """Prices and terms of owning; null takes the catalog's figure, which the answer names. All is
    bought at the start, and depreciation and annuity are both answered: `purchases`,
    `purchase_lead_month_count`, `purchase_month` and `with_interest` are for plans and change
    nothing here."""
    utilization_fraction: PositiveFraction
    """Share of all hours in which the GPUs are used; in the others they draw idle power."""
    carbon_g_per_kwh: NonNegative | None = None
    """Carbon of electricity in g CO2e; the site's when null."""
    rent: Annotated[RentMethod, Field(default_factory=lambda: RentMethod(kind="rent"))]
    """What owning is compared with; the cheapest listed on-demand price by default."""


class CostPart(Value):
    """One part of what is bought, or of what a year takes."""

    name: Text
    """What it is."""
    unit_price: Amount
    """Price of one unit."""
    unit: Text
    """Unit of the price."""
    quantity: Amount
    """Units."""
    amount: Amount
    """Quantity times unit price."""
    price_source: LongText
    """Where the unit price comes from."""
    price_verified: bool
    """False when the price rests on memory or on one weak source."""


class OwnershipCost(Value):
    """What owning costs."""

    capex: tuple[CostPart, ...]
    """What is bought at the start."""
    capex_amount: Amount
    """Sum of the parts."""
    residual_amount: Amount
    """What is left at the end of the useful life."""
    opex_per_year: tuple[CostPart, ...]
    """What one year takes."""
    opex_amount_per_year: Amount
    """Sum of the parts."""
    depreciation_per_year: Amount
    """Straight line: purchase less residual over the useful life."""
    annuity_per_year: Amount
    """Equal yearly payment that repays the purchase with interest, less the residual."""
    equivalent_annual_cost: Amount
    """Annuity and opex of a year."""
    net_present_cost: Amount
    """All payments of the useful life, those at the end of each year counted less."""
    total_cost: Amount
    """All payments of the useful life, undiscounted, less the residual."""
    cost_per_gpu_hour: Amount
    """Equivalent annual cost over all hours."""
    cost_per_used_gpu_hour: Amount
    """Equivalent annual cost over the used hours."""
    sunk_amount: Amount
    """Purchase of what is owned already: no decision avoids it, and no comparison counts it."""
    avoidable_cost_per_gpu_hour: Amount
    """What can still be avoided over all hours: opex alone of what is owned already."""
    accrual_cost_per_gpu_hour: Amount
    """Depreciation and opex over all hours, without interest."""
    energy_kwh_per_year: float
    """Energy with what cools it."""
    carbon_kg_per_year: float | None
    """Carbon of that energy; null where the intensity is not known."""


class RentComparison(Value):
    """What the same hours cost rented."""

    price_per_gpu_hour: Amount
    """Price of one GPU with its host."""
    price_source: LongText
    """Where the price comes from."""
    price_verified: bool
    """False when the price rests on memory or on one weak source."""
    amount_per_year: Amount
    """The used hours of a year."""
    break_even_utilization_fraction: float | None
    """Share of hours from which owning is cheaper, by what can still be avoided and with the power
    that use adds; above 1 never, null where that power alone costs as much as the rent."""
    break_even_months: float | None
    """Months until purchase and running cost are below rent; null when never in the useful life."""


class OwnershipAnswer(EstimateAnswer):
    """What a fleet costs to own, beside rent."""

    gpu_count: Count
    """GPUs of the fleet."""
    currency: Currency
    """Currency of all amounts."""
    useful_life_years: float | None
    """Years over which the purchase is written off; null when infeasible."""
    ownership: OwnershipCost | None
    """What owning costs; null when a price is missing."""
    rent: RentComparison | None
    """What renting costs; null when a price is missing."""
