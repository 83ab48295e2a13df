"""What GPU time, hardware, tokens and all beside them cost, and when each figure holds."""

from datetime import date, datetime
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.value import (
    Count,
    Currency,
    IsoDate,
    Key,
    LongText,
    NonNegative,
    Price,
    Provenance,
    Text,
    Value,
)

Commitment = Literal[
    "on_demand", "committed_1yr", "committed_3yr", "spot", "capacity_block", "negotiated"
]
"""On what terms GPU time is rented."""
BillingBasis = Literal["instance", "per_gpu", "accelerator_only", "chip_with_host"]
"""What the price holds: the whole instance, one GPU with its host, or the accelerator alone."""
PriceQuality = Literal["listed", "third_party", "marketplace_minimum", "suspect", "memory"]
"""How far a price may be trusted; only "listed" and "third_party" are used without a flag.

The floor of a bid and the cheapest offer of a marketplace are a "marketplace_minimum", a queued or
calendar rate is "suspect": neither can be counted on, and neither is ever used.
"""


class RentalPrice(Value):
    """The price of one GPU for one hour at one provider, on one set of terms."""

    kind: Literal["rental"] = "rental"
    """Kind of price."""
    key: Key
    """Stable key."""
    provider: Key
    """Who rents it out."""
    region: Text
    """Region as the provider names it; "any" when one price holds everywhere."""
    instance_type: Text
    """Instance as the provider names it."""
    gpu: Key
    """Key of the GPU."""
    gpu_count: Count
    """GPUs of one instance: what is rented at once."""
    commitment: Commitment
    """Terms."""
    price_per_gpu_hour: Price
    """Price of one GPU for one hour, the instance price over its GPUs."""
    host_price_per_gpu_hour: Price | None = None
    """Host's share per GPU-hour where the accelerator is billed apart."""
    currency: Currency = "USD"
    """Currency of the prices."""
    billing_basis: BillingBasis = "instance"
    """What the price holds."""
    quality: PriceQuality = "listed"
    """How far the price may be trusted."""
    valid_from: IsoDate
    """First day on which the price holds."""
    valid_to: IsoDate | None = None
    """Last day on which it holds; null while no later one is known."""
    note: LongText | None = None
    """What a buyer should know."""
    provenance: Provenance = Provenance()
    """Where the price comes from."""

    @property
    def is_complete(self) -> bool:
        """True when nothing that must be paid is missing from the price."""
        return self.billing_basis != "accelerator_only" or self.host_price_per_gpu_hour is not None

    @property
    def is_of_an_instance(self) -> bool:
        """True when its GPUs are rented together: a price by the GPU says nothing of that."""
        return self.billing_basis in {"instance", "chip_with_host"}

    def holds_on(self, day: "IsoDate") -> bool:
        """True when the price is in force on a day."""
        return self.valid_from <= day and (self.valid_to is None or day <= self.valid_to)


class PurchasePrice(Value):
    """What one GPU costs to buy, as a range: street prices are not quotes."""

    kind: Literal["purchase"] = "purchase"
    """Kind of price."""
    key: Key
    """Stable key."""
    gpu: Key
    """Key of the GPU."""
    low: Price
    """Low end of the range, per GPU."""
    typical: Price
    """Middle of the range, per GPU; what a plan uses when it must choose one."""
    high: Price
    """High end of the range, per GPU."""
    currency: Currency = "USD"
    """Currency of the prices."""
    includes: Literal["gpu", "node_share"] = "gpu"
    """Whether the share of the server is in the price."""
    valid_from: IsoDate
    """First day on which the price holds."""
    valid_to: IsoDate | None = None
    """Last day on which it holds; null while no later one is known."""
    note: LongText | None = None
    """What a buyer should know."""
    provenance: Provenance = Provenance()
    """Where the price comes from."""

    def holds_on(self, day: "IsoDate") -> bool:
        """True when the price is in force on a day."""
        return self.valid_from <= day and (self.valid_to is None or day <= self.valid_to)


class TokenPrice(Value):
    """What a seller of hosted inference asks for a million tokens of one model."""

    key: Key
    """Stable key."""
    provider: Key
    """Who sells the tokens."""
    listed_as: Text
    """Name under which the provider lists what it sells."""
    model_name: Text
    """Model that is sold, by its usual name."""
    architecture: Key | None = None
    """Key of its architecture; null for closed ones and for those that the catalog leaves out."""
    variant: Text | None = None
    """Tier or number format that the provider tells apart, such as "turbo" or "fp8"."""
    input_price_per_million_tokens: Price
    """Price of tokens that are read."""
    output_price_per_million_tokens: Price
    """Price of tokens that are written."""
    cached_input_price_per_million_tokens: Price | None = None
    """Price of tokens that are read from the provider's cache; null where none is listed."""
    currency: Currency = "USD"
    """Currency of the prices."""
    context_tokens: Count | None = None
    """Longest sequence that the provider takes, where it is listed."""
    quality: PriceQuality = "listed"
    """How far the price may be trusted."""
    valid_from: IsoDate
    """First day on which the price is known to hold."""
    valid_to: IsoDate | None = None
    """Last day on which it holds; null while no later one is known."""
    note: LongText | None = None
    """What a buyer should know."""
    provenance: Provenance = Provenance()
    """Where the price comes from."""

    def holds_on(self, day: "IsoDate") -> bool:
        """True when the price is in force on a day."""
        return self.valid_from <= day and (self.valid_to is None or day <= self.valid_to)


CostTopic = Literal[
    "staff",
    "support",
    "reliability",
    "installation",
    "storage",
    "network",
    "system",
    "facility",
    "energy",
    "capital",
    "depreciation",
    "lead_time",
    "reference_case",
]
"""What a cost fact is about."""
CostUnit = Literal[
    "1",
    "1/year",
    "USD",
    "USD/year",
    "USD/gpu",
    "USD/gpu_year",
    "USD/gpu_hour",
    "USD/TB",
    "USD/GB",
    "USD/GB_month",
    "USD/GiB_month",
    "USD/kW",
    "USD/kW_month",
    "USD/kWh",
    "EUR/kWh",
    "person/server",
    "server/person",
    "port",
    "switch",
    "W",
    "kW",
    "g/kWh",
    "week",
    "year",
]
"""Units of cost facts; a share is a fraction, never percent."""


class CostFact(Value):
    """What one source says on a cost of running GPUs, or on what it depends on.

    Planners take assumptions; cost facts are what these rest on, and what a reader replaces them
    by. Zero is a real zero.
    """

    key: Key
    """Stable key."""
    topic: CostTopic
    """What it is about."""
    name: Text
    """What is meant."""
    place: Text | None = None
    """Where, or at which provider, it holds; "any" or null where that does not matter."""
    low: NonNegative | None = None
    """Low end of the range."""
    typical: NonNegative | None = None
    """Usual figure; null where the source gives a range alone."""
    high: NonNegative | None = None
    """High end of the range."""
    unit: CostUnit
    """Unit of the figures."""
    of: Text | None = None
    """What a share is taken of."""
    year: Annotated[int, Field(ge=2000, le=2100)]
    """Year for which it holds."""
    assumptions: tuple[Text, ...] = ()
    """Planning assumptions that rest on it."""
    note: LongText | None = None
    """What to know about it."""
    provenance: Provenance = Provenance()
    """Where it comes from."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        figures = [each for each in (self.low, self.typical, self.high) if each is not None]
        if not figures:
            raise ValueError("give at least one of low, typical and high")
        if figures != sorted(figures):
            raise ValueError("low <= typical <= high does not hold")
        if self.of is not None and figures[-1] > 1:
            raise ValueError(f"a share of {self.of} is a fraction of at most 1, never percent")
        return self

    def holds_on(self, day: date) -> bool:
        """True when a reader of that day could have known it."""
        return self.year <= day.year


CatalogPrice = TypeAliasType(
    "CatalogPrice", Annotated[RentalPrice | PurchasePrice, Field(discriminator="kind")]
)
"""What GPU time or a GPU costs."""


class NegotiatedPrice(Value):
    """What a team has agreed to pay for one GPU with its host for one hour."""

    gpu: Key
    """Key of the GPU."""
    provider: Key
    """Who rents it out."""
    region: Text | None = None
    """Region as the provider names it; null holds in every region."""
    commitment: Commitment = "on_demand"
    """Terms."""
    price_per_gpu_hour: Price
    """Price of one GPU with its host for one hour."""
    currency: Currency = "USD"
    """Currency of the price."""
    valid_from: IsoDate
    """First day on which the price holds."""
    valid_to: IsoDate | None = None
    """Last day on which it holds; null while no end is agreed."""
    note: LongText | None = None
    """What a reader of the plan should know, such as the contract's number."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.valid_to is not None and self.valid_to < self.valid_from:
            raise ValueError(f"valid_to {self.valid_to} is before valid_from {self.valid_from}")
        return self

    def holds_on(self, day: "IsoDate") -> bool:
        """True when the price is in force on a day."""
        return self.valid_from <= day and (self.valid_to is None or day <= self.valid_to)

    @property
    def offer(self) -> tuple[str, str, str, Commitment, str]:
        """What one price at a time may hold for."""
        return self.gpu, self.provider, self.region or "", self.commitment, self.currency


class PriceBookContent(Value):
    """Prices that a team has negotiated; no two of one offer hold on one day."""

    note: LongText | None = None
    """What the book is for."""
    rows: Annotated[tuple[NegotiatedPrice, ...], Field(min_length=1, max_length=1000)]
    """The prices."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        in_order = sorted(self.rows, key=lambda row: (row.offer, row.valid_from))
        for row, following in pairwise(in_order):
            if row.offer == following.offer and (row.valid_to or date.max) >= following.valid_from:
                raise ValueError(
                    f"two prices of {row.gpu} at {row.provider} ({row.commitment}, "
                    f"{row.region or 'any region'}) hold on {following.valid_from}: end the first "
                    "one before the second begins"
                )
        return self


class PriceBookRequest(PriceBookContent):
    """A new price book."""

    key: Key
    """Name of the book, unique in the team; scenarios name it in `price_book`."""


class PriceBook(PriceBookRequest):
    """A team's price book as it is kept."""

    revision: int
    """How often it was written, from 1."""
    digest: Text
    """SHA-256 over note and rows."""
    created_at: datetime
    """When it was first written, UTC."""
    changed_at: datetime
    """When it was last written, UTC."""


class PriceBookUsed(Value):
    """Which price book a plan was made with; later changes of the book leave it alone."""

    key: Key
    """Name of the book."""
    revision: int
    """Which state of the book."""
    digest: Text
    """SHA-256 over note and rows of that state."""
    rows: tuple[NegotiatedPrice, ...]
    """Rows whose price the plan uses; empty when none matched."""
