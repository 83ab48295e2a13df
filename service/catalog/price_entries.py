"""Strict schema of the catalog's price files.

A price list is what one source says on one day: its rows share unit, date and quality. Whether
prices are per instance or per GPU, and for how many tokens, stands in the list's unit, so that it
cannot be mixed up by row.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from service.catalog.entries import Sourced, SourcedEntry, Strict
from service.core.assumptions import AssumptionName
from service.core.prices import BillingBasis, CostTopic, CostUnit, PriceQuality
from service.core.value import Count, IsoDate, Key, LongText, NonNegative, Text


def _list_price(value: Any) -> Any:
    """Take the digits as they are written: repr of a float read from text gives them back."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, Decimal)):
        raise ValueError("must be a number")
    price = Decimal(str(value))
    if price <= 0:
        raise ValueError("must be above zero: leave a price that is not known out")
    return price


ListPrice = Annotated[Decimal, BeforeValidator(_list_price), Field(gt=0, le=100_000_000)]
RentalUnit = Annotated[str, Field(pattern=r"^[A-Z]{3}/(instance_hour|gpu_hour)$")]
TokenUnit = Annotated[str, Field(pattern=r"^[A-Z]{3}/million_tokens$")]
PurchaseUnit = Annotated[str, Field(pattern=r"^[A-Z]{3}/gpu$")]


class InstanceType(Strict):
    """What one rented instance holds."""

    gpu: Key
    """Key of the GPU."""
    gpu_count: Count
    """GPUs of the instance: what is rented at once."""


class RentalRow(SourcedEntry):
    """The prices of one instance type in one region; absent: no such price is known."""

    region: Text
    """Region as the provider names it; "any" when one price holds everywhere."""
    instance: Text
    """Instance type, one of the file's `instances`."""
    on_demand: ListPrice | None = None
    """Without commitment."""
    spot: ListPrice | None = None
    """Interruptible."""
    committed_1yr: ListPrice | None = None
    """With a commitment of one year."""
    committed_3yr: ListPrice | None = None
    """With a commitment of three years."""
    capacity_block: ListPrice | None = None
    """Prepaid for days to months."""
    negotiated: ListPrice | None = None
    """Neither list price nor commitment: what a buyer was offered."""
    host: ListPrice | None = None
    """Host's share, where the accelerator is billed apart."""
    quality: PriceQuality | None = None
    """How far the row may be trusted, when not as the list."""
    valid_to: IsoDate | None = None
    """Last day on which the row holds, when not as the list."""
    note: LongText | None = None
    """What a buyer should know."""


class RentalList(Sourced):
    """Prices from one source, valid from one day."""

    unit: RentalUnit
    """Currency, and whether the rows are per instance-hour or per GPU-hour."""
    billing_basis: BillingBasis = "instance"
    """What the prices hold."""
    quality: PriceQuality = "listed"
    """How far the prices may be trusted."""
    valid_from: IsoDate
    """First day on which the prices are known to hold."""
    valid_to: IsoDate | None = None
    """Last day on which they hold."""
    date_basis: LongText | None = None
    """How the first day is known, where the source states none."""
    note: LongText | None = None
    """What a buyer should know about every row."""
    prices: Annotated[list[RentalRow], Field(min_length=1)]
    """Rows."""


class RentalFile(Sourced):
    """A file under `prices/rental/`, one provider each."""

    provider: Key
    """Who rents it out."""
    instances: dict[Text, InstanceType]
    """Instance types by the provider's own names."""
    price_lists: list[RentalList]
    """Lists, the newest first."""


class TokenRow(SourcedEntry):
    """What a seller asks for the tokens of one model that it hosts."""

    model_name: Text
    """Model that is sold: an architecture's key or alias, or a name that stands for none."""
    listed_as: Text
    """Name under which the provider lists it."""
    input: ListPrice
    """Tokens that are read."""
    output: ListPrice
    """Tokens that are written."""
    cached_input: ListPrice | None = None
    """Tokens that are read from the provider's cache."""
    variant: Text | None = None
    """Tier or number format that the provider tells apart."""
    context_tokens: Count | None = None
    """Longest sequence that it takes."""
    quality: PriceQuality | None = None
    """How far the row may be trusted, when not as the list."""
    note: LongText | None = None
    """What a buyer should know."""


class TokenList(Sourced):
    """Prices of hosted tokens from one source, valid from one day."""

    unit: TokenUnit
    """Currency, and the number of tokens that the prices are for."""
    quality: PriceQuality = "listed"
    """How far the prices may be trusted."""
    valid_from: IsoDate
    """First day on which the prices are known to hold."""
    valid_to: IsoDate | None = None
    """Last day on which they hold."""
    date_basis: LongText | None = None
    """How the days are known, where the source states none."""
    note: LongText | None = None
    """What a buyer should know about every row."""
    prices: Annotated[list[TokenRow], Field(min_length=1)]
    """Rows."""


class TokenFile(Sourced):
    """A file under `prices/tokens/`, one provider each."""

    provider: Key
    """Who sells the tokens."""
    price_lists: list[TokenList]
    """Lists, the newest first."""


class PurchaseRange(Strict):
    """Range of a price."""

    low: ListPrice
    """Low end."""
    typical: ListPrice
    """What a plan uses when it must choose one."""
    high: ListPrice
    """High end."""
    unit: PurchaseUnit
    """Currency per GPU."""


class PurchaseEntry(SourcedEntry):
    """What one GPU costs to buy."""

    gpu: Key
    """Key of the GPU."""
    price: PurchaseRange
    """Range of the price."""
    includes: Literal["gpu", "node_share"] = "gpu"
    """Whether the share of the server is in the price."""
    valid_from: IsoDate
    """First day on which the price is known to hold."""
    valid_to: IsoDate | None = None
    """Last day on which it holds."""
    note: LongText | None = None
    """What a buyer should know."""


class PurchaseFile(Sourced):
    """The file `prices/purchase.yaml`."""

    purchases: list[PurchaseEntry]
    """Purchase prices."""


class CostEntry(SourcedEntry):
    """What one source says on a cost of running GPUs."""

    key: Key
    """Stable key."""
    name: Text
    """What is meant."""
    place: Text | None = None
    """Where, or at which provider, it holds; "any" where that does not matter."""
    low: NonNegative | None = None
    """Low end of the range."""
    typical: NonNegative | None = None
    """Usual figure; absent where the source gives a range alone."""
    high: NonNegative | None = None
    """High end of the range."""
    unit: CostUnit
    """Unit of the figures; a share is a fraction, never percent."""
    of: Text | None = None
    """What a share is taken of."""
    year: Annotated[int, Field(ge=2000, le=2100)]
    """Year for which it holds."""
    assumptions: list[AssumptionName] = Field(default_factory=list)
    """Planning assumptions that rest on it."""
    note: LongText | None = None
    """What to know about it."""


class CostFile(Sourced):
    """A file under `costs/`, one topic each."""

    topic: CostTopic
    """What the facts are about."""
    costs: list[CostEntry]
    """Facts."""
