"""On what terms GPUs are paid for, once every price is known."""

from dataclasses import dataclass
from decimal import Decimal

from service.core.hardware import Gpu
from service.core.prices import Commitment, NegotiatedPrice
from service.core.pricing import UnitPrice
from service.core.scenarios.procurement import PoolKind

NOTHING = UnitPrice(Decimal(0), "not asked for")
"""Price of what is not bought."""


@dataclass(frozen=True)
class Rental:
    """Rented by the GPU-hour."""

    provider: str | None
    region: str | None
    commitment: Commitment
    gpu_hour: UnitPrice
    host_hour: UnitPrice | None = None
    """Host of one GPU for one hour, where it is billed apart."""
    redo_fraction: float = 0.0
    """Work of training that is done again after interruptions, over the work."""
    negotiated: NegotiatedPrice | None = None
    """Row of the team's price book that the price is from."""

    @property
    def all_in(self) -> Decimal:
        """Price of one GPU with its host for one hour."""
        return self.gpu_hour.value + (0 if self.host_hour is None else self.host_hour.value)

    @property
    def is_verified(self) -> bool:
        """True when GPU and host were both found in a second place."""
        return self.gpu_hour.verified and (self.host_hour is None or self.host_hour.verified)


@dataclass(frozen=True)
class CommitmentMix:
    """Rented under a commitment up to a number of GPUs, on other terms beyond it."""

    committed: Rental
    rest: Rental
    committed_gpu_count: int | None
    """GPUs that are committed; None commits what pays."""
    committed_gpu_multiple: int
    """GPUs that are committed at once."""
    paid_upfront: bool


@dataclass(frozen=True)
class Ownership:
    """Bought and run."""

    purchase: UnitPrice
    """One GPU with its share of the server."""
    network: UnitPrice
    """One GPU's share of switches, optics and cables."""
    useful_life_months: int
    residual_fraction: float
    node_power_kw: float
    """Highest draw of a whole node."""
    node_gpu_count: int
    power_load_fraction: float
    idle_power_fraction: float
    power_usage_effectiveness: float
    kwh: UnitPrice
    colocation_kw_month: UnitPrice
    staff_gpu_month: UnitPrice
    support_gpu_month: UnitPrice
    lease_gpu_month: UnitPrice | None = None
    """Lease of one GPU for a month, in place of its purchase."""
    is_owned_already: bool = False
    """Paid before the plan begins: its depreciation is sunk, and no cash of the plan."""
    purchase_month: str | None = None
    """When what is owned already was bought; None for the first month of the plan."""
    is_bought_as_needed: bool = False
    """Whether a pool that grows buys more of them, rather than all in the first month."""
    purchase_lead_months: int = 0
    """Months by which they are then bought ahead."""
    storage: UnitPrice = NOTHING
    """One GPU's share of storage that is bought."""
    installation: UnitPrice = NOTHING
    """Racks, cabling and work for one GPU."""
    spares_gpu_month: UnitPrice = NOTHING
    insurance_gpu_month: UnitPrice = NOTHING
    tax_gpu_month: UnitPrice = NOTHING
    interest_gpu_month: UnitPrice = NOTHING
    """What the annuity of one GPU with all that is bought for it is above its depreciation."""


@dataclass(frozen=True)
class HostedTokens:
    """Tokens that are bought from whoever runs the model."""

    provider: str
    input_million: UnitPrice
    """A million tokens that are read."""
    output_million: UnitPrice
    """A million tokens that are written."""
    cached_million: UnitPrice | None = None
    """A million tokens that are read from the provider's cache; None where all input costs one
    price."""

    def charges(
        self, input_tokens: float, output_tokens: float, cached_fraction: float
    ) -> tuple[tuple[str, float, UnitPrice], ...]:
        """What a unit is charged for: kind of tokens, how many, and the price of a million."""
        cached = input_tokens * cached_fraction
        read: tuple[tuple[str, float, UnitPrice], ...] = (
            ("input", input_tokens, self.input_million),
        )
        if self.cached_million is not None:
            read = (
                ("input", input_tokens - cached, self.input_million),
                ("cached_input", cached, self.cached_million),
            )
        return (*read, ("output", output_tokens, self.output_million))


@dataclass(frozen=True)
class ResolvedProcurement:
    """How the GPUs of one pool are paid for."""

    pool: PoolKind
    gpu: Gpu
    gpu_multiple: int
    """GPUs that are rented or bought at once."""
    terms: Rental | CommitmentMix | Ownership
    site: str | None
    """Site of owned nodes."""
