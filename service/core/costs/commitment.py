"""How much of a pool's load a commitment covers, hour by hour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from service.core.costs.terms import CommitmentMix
from service.core.formulas.calendar import hours_in_month, month_index, month_of
from service.core.formulas.finance import committed_load_quantile
from service.core.prices import Commitment

TERM_MONTHS: Mapping[Commitment, int] = {"committed_1yr": 12, "committed_3yr": 36}
"""Months for which a committed price holds once it is agreed; others hold for one."""


@dataclass(frozen=True)
class Commitments:
    """What is committed of one pool, and what that covers in each month."""

    gpu_count: int
    term_months: int
    first_month: str
    loads: Mapping[str, NDArray[np.int64]]
    """GPUs held in each hour of each month."""

    @classmethod
    def of(cls, mix: CommitmentMix, load: NDArray[np.int64], months: Sequence[str]) -> Self:
        """Commit the given number of GPUs, else what pays: whole instances of the base load."""
        count = mix.committed_gpu_count
        if count is None:
            level = committed_load_quantile(
                committed_price=float(mix.committed.all_in), on_demand_price=float(mix.rest.all_in)
            )
            least = int(np.quantile(load, float(level), method="inverted_cdf")) if level else 0
            count = least - least % mix.committed_gpu_multiple
        ends = np.cumsum([hours_in_month(month) for month in months])[:-1]
        return cls(
            gpu_count=count,
            term_months=TERM_MONTHS.get(mix.committed.commitment, 1),
            first_month=months[0],
            loads=dict(zip(months, np.split(load, ends), strict=True)),
        )

    def gpu_hours(self, month: str) -> float:
        """GPU-hours that are committed in a month."""
        return float(self.gpu_count * hours_in_month(month))

    def covered_fraction(self, month: str) -> float:
        """Share of the GPU-hours of a month that the commitment covers."""
        load = self.loads[month]
        held = int(load.sum())
        return float(np.minimum(load, self.gpu_count).sum() / held) if held else 0.0

    def prepaid_gpu_hours(self, month: str) -> float:
        """GPU-hours that are paid in a month when a term is paid as it begins."""
        months_before = month_index(month) - month_index(self.first_month)
        if months_before % self.term_months:
            return 0.0
        term = (month_of(month_index(month) + after) for after in range(self.term_months))
        return float(self.gpu_count * sum(hours_in_month(each) for each in term))
