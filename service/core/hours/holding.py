"""What a pool can hold: the GPUs that are there already, and whole instances beside them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.formulas.demand import whole_instances_gpu_count


@dataclass(frozen=True)
class Holding:
    """How the GPUs of a pool come: existing ones one by one and first, added ones by instances."""

    gpu_multiple: int
    """GPUs that are rented or bought at once."""
    owned: bool = False
    """True when what is added is bought, and so held over the whole horizon."""
    existing_gpu_count: int = 0
    """GPUs that are there already, and so held whether or not anything runs on them."""

    def steps(self, gpu_count: Any) -> Any:
        """Existing GPUs and instances that hold so many GPUs, counted together. [count]

        Examples:
            Of 20 GPUs 3 are there; 17 more come in three instances of 8.

            >>> int(Holding(gpu_multiple=8, existing_gpu_count=3).steps(20))
            6
        """
        added = np.maximum(gpu_count - self.existing_gpu_count, 0)
        return np.minimum(gpu_count, self.existing_gpu_count) - -added // self.gpu_multiple

    def gpu_count(self, steps: Any) -> Any:
        """GPUs of so many existing GPUs and instances. [count]

        Examples:
            >>> int(Holding(gpu_multiple=8, existing_gpu_count=3).gpu_count(6))
            27
        """
        added = np.maximum(steps - self.existing_gpu_count, 0)
        return np.minimum(steps, self.existing_gpu_count) + added * self.gpu_multiple

    def whole(self, gpu_count: Any) -> Any:
        """GPUs of the fewest that hold so many, what is added in whole instances. [count]"""
        return np.minimum(gpu_count, self.existing_gpu_count) + whole_instances_gpu_count(
            gpu_count=np.maximum(gpu_count - self.existing_gpu_count, 0),
            gpu_count_per_instance=self.gpu_multiple,
        )

    def always(self, size: int) -> int:
        """GPUs of a pool of that size that are held all the time. [count]"""
        return size if self.owned else min(size, self.existing_gpu_count)
