"""GPUs that are owned before the plan begins: how many, where, and what they are still worth."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from service.core.scenarios.procurement import OwnMethod
from service.core.value import Count, EntryName, IsoDate, PriceOrZero, Value


class ExistingGpus(Value):
    """A lot of equal GPUs that is owned already; a plan uses it before it adds any."""

    gpu: EntryName
    """Key of the GPU; an inline GPU is named by its own key."""
    gpu_count: Annotated[Count, Field(le=10_000_000)]
    """GPUs of the lot."""
    site: EntryName | None = None
    """Site whose tariff, PUE and carbon apply; null takes the assumptions. A pool that is owned at
    a site takes lots of that site, and those that name none."""
    purchase_date: IsoDate | None = None
    """Day of the purchase, at the latest the first day of the horizon."""
    book_value_per_gpu: PriceOrZero
    """What a GPU with its share of server and network is worth in the books when the plan begins:
    paid before and so sunk. It is written off over the life that is left, and no cash of a plan."""
    remaining_life_months: Annotated[Count, Field(le=180)] | None = None
    """Months over which it is written off; null counts the useful life from the purchase."""
    method: OwnMethod | None = None
    """What running them takes, and the price and life that support and write-off are counted from;
    null takes the method of the pool's procurement rule where that owns, else the catalog."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.remaining_life_months is None and self.purchase_date is None:
            raise ValueError("give remaining_life_months, or the purchase_date it is counted from")
        if self.method is not None and self.method.lease_price_per_gpu_month is not None:
            raise ValueError("what is leased is not owned: leave lease_price_per_gpu_month out")
        return self

    def serves(self, gpu_key: str, site: str | None) -> bool:
        """True when a pool of such GPUs, owned at a site or at none, may use the lot."""
        return self.gpu == gpu_key and (site is None or self.site in {None, site})
