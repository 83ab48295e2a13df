"""How GPUs are paid for: rules that match a pool and a GPU to a method."""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.prices import Commitment
from service.core.value import (
    Count,
    CountOrZero,
    EntryName,
    Flag,
    Fraction,
    Key,
    Month,
    NonNegative,
    Number,
    Price,
    PriceOrZero,
    Text,
    Value,
)

PoolKind = Literal["training", "serving", "shared"]
"""The pools of a plan."""


class RentMethod(Value):
    """Rent by the GPU-hour."""

    kind: Literal["rent"]
    """Kind of method."""
    provider: Key | None = None
    """Who rents out; null takes the cheapest listed offer that matches."""
    region: Text | None = None
    """Region as the provider names it; null takes any."""
    instance_type: Text | None = None
    """Instance as the provider names it; null takes any."""
    commitment: Commitment = "on_demand"
    """Terms."""
    price_per_gpu_hour: Price | None = None
    """Price in the scenario's currency; from the catalog when null."""
    redo_fraction: Fraction | None = None
    """Work of training that spot interruptions make it do again, over the work; of spot alone."""
    gpu_count_per_instance: Annotated[Count, Field(le=100_000)] | None = None
    """GPUs rented at once; from the price, or the GPU's usual node, when null."""


class MixMethod(Value):
    """Commit what is held all the time, and rent the rest on other terms."""

    kind: Literal["mix"]
    """Kind of method."""
    committed: RentMethod
    """Terms of the commitment; its price is due for every hour, used or not."""
    rest: RentMethod
    """Terms of what goes beyond the commitment."""
    committed_gpu_count: Annotated[CountOrZero, Field(le=10_000_000)] | None = None
    """GPUs that are committed; null commits what is held often enough to pay: the load at the
    quantile 1 - committed price / other price, in whole instances."""
    paid_upfront: Flag = False
    """Whether a term is paid when it begins; the cost is spread over it all the same."""


class OwnMethod(Value):
    """Buy and run; null takes the catalog's figure, which the answer names."""

    kind: Literal["own"]
    """Kind of method."""
    purchase_price_per_gpu: Price | None = None
    """GPU with its share of the server."""
    network_price_per_gpu: PriceOrZero | None = None
    """Share of switches, optics and cables."""
    useful_life_years: Annotated[Number, Field(ge=1, le=15)] | None = None
    """Years over which the purchase is written off."""
    residual_fraction: Fraction | None = None
    """Share of the purchase price that is left at the end of the useful life."""
    power_price_per_kwh: Price | None = None
    """Electricity tariff."""
    power_usage_effectiveness: Annotated[Number, Field(ge=1, le=5)] | None = None
    """Facility energy over IT energy."""
    node_power_kw: Annotated[Number, Field(gt=0, le=100_000)] | None = None
    """Highest power draw of one node in kW."""
    power_load_fraction: Fraction | None = None
    """Mean draw over highest draw while GPUs are used."""
    idle_power_fraction: Fraction | None = None
    """Mean draw over highest draw while GPUs are idle: off the peak, spare, after a run."""
    colocation_price_per_kw_month: PriceOrZero | None = None
    """Rent of space and cooling per kW of contracted IT power; energy is paid apart."""
    staff_price_per_gpu_month: PriceOrZero | None = None
    """People who run the fleet."""
    support_fraction_per_year: Annotated[NonNegative, Field(le=1)] | None = None
    """Vendor support a year as a share of the purchase price."""
    lease_price_per_gpu_month: Price | None = None
    """Lease of a GPU with its server, in place of the purchase; the rest is paid as when owned."""
    is_owned_already: Flag = False
    """Bought before the plan begins: its depreciation is sunk and no cash of the plan."""
    purchase_month: Month | None = None
    """Month in which what is owned already was bought, so that its useful life ends when it does;
    null counts the life from the first month of the plan."""
    purchases: Literal["at_start", "as_needed"] = "at_start"
    """Whether all GPUs are bought in the first month, or more of them whenever a pool grows; each
    purchase is cash of its month, and its depreciation begins then."""
    purchase_lead_month_count: Annotated[CountOrZero, Field(le=24)] = 0
    """Months by which what is bought as needed is bought ahead of its first use."""
    storage_price_per_gpu: PriceOrZero = Decimal(0)
    """Storage that is bought, per GPU."""
    installation_price_per_gpu: PriceOrZero = Decimal(0)
    """Racks, cabling and work, per GPU; nothing of it is left at the end."""
    spare_fraction_per_year: Fraction = 0.0
    """Parts replaced in a year as a share of all that is bought."""
    insurance_fraction_per_year: Fraction = 0.0
    """Insurance of a year as a share of all that is bought."""
    property_tax_fraction_per_year: Fraction = 0.0
    """Tax of a year on what is owned as a share of all that is bought."""
    with_interest: Flag = False
    """Whether the accrual view is the annuity of what is bought: straight-line depreciation, and
    interest on the rest as lines of its own that are no cash."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.purchase_month is not None and not self.is_owned_already:
            raise ValueError("purchase_month is of what is_owned_already")
        if self.is_owned_already and self.purchases == "as_needed":
            raise ValueError("what is_owned_already is not bought as_needed")
        if self.purchase_lead_month_count and self.purchases != "as_needed":
            raise ValueError("purchase_lead_month_count is for purchases as_needed")
        return self


class HostedMethod(Value):
    """Buy tokens from a provider that runs the model; no GPUs are held."""

    kind: Literal["hosted"]
    """Kind of method."""
    provider: Key | None = None
    """Who sells the tokens; null takes the cheapest listed price of the service's architecture."""
    listed_as: Text | None = None
    """Name under which the provider lists what it sells; null takes the service's architecture."""
    input_price_per_million_tokens: Price | None = None
    """Price of tokens that are read, in the scenario's currency; from the catalog when null."""
    output_price_per_million_tokens: Price | None = None
    """Price of tokens that are written; given together with that of input."""
    cached_input_price_per_million_tokens: Price | None = None
    """Price of tokens that are read from the provider's cache, of which a service's `replica`
    says the share; given with the other two. Where there is none, all input has one price."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = self.input_price_per_million_tokens, self.output_price_per_million_tokens
        if given.count(None) == 1:
            raise ValueError("give the prices of input and of output, or neither")
        if None in given and self.cached_input_price_per_million_tokens is not None:
            raise ValueError("give the prices of input and of output with that of cached input")
        return self


ProcurementMethod = TypeAliasType(
    "ProcurementMethod",
    Annotated[RentMethod | MixMethod | OwnMethod | HostedMethod, Field(discriminator="kind")],
)
"""How GPUs are paid for."""


class ProcurementRule(Value):
    """Applies its method to the pools and GPUs that it matches; the first match holds."""

    pool: Literal["training", "serving", "shared", "any"] = "any"
    """Pool that it applies to."""
    gpu: EntryName = "any"
    """Key of the GPU that it applies to, or "any"; an inline GPU is matched by its own key."""
    site: EntryName | None = None
    """Site whose tariff, PUE and carbon apply to owned nodes; null takes the assumptions."""
    service: Text | None = None
    """Name of the only service that a hosted method applies to; null applies it to all."""
    method: ProcurementMethod
    """How the GPUs are paid for, or the tokens in their place."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.method.kind == "hosted" and self.pool != "serving":
            raise ValueError('a hosted method is for serving alone: give pool "serving"')
        if self.method.kind != "hosted" and self.service is not None:
            raise ValueError("service is for hosted methods: services share the GPUs of a pool")
        return self

    def matches(self, pool: PoolKind, gpu_key: str) -> bool:
        """True when the rule is for a pool and a GPU."""
        return self.pool in {"any", pool} and self.gpu in {"any", gpu_key}
