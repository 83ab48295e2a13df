"""How wide the range of a speed is where results are few or memory is tight."""

from typing import Any

import numpy as np

from service.core.estimates import Range
from service.core.hardware import Gpu
from service.core.replica.lookup import Lookup, spread, widened
from service.core.replica.search import Choice


def is_tight(look: Lookup, choice: Choice) -> bool:
    """True where memory alone bounds the requests, and to few: a GiB then moves the batch much."""
    return choice.is_memory_bound and choice.running < look.exact("few_sequences_count")


def band_factor(look: Lookup, gpu: Gpu, *, is_tight: bool) -> float:
    """How much wider a band is, in logarithms, where results are few or memory is tight. [1]"""
    wider = look.exact("gpu_class_band_factor", gpu.gpu_class)
    return wider * look.exact("unstated_band_factor") if is_tight else wider


def residual_band(look: Lookup, value: Any, wider: float, *residual: str) -> Range:
    """A speed with what measured results scatter about its estimate."""
    factor = look.assumption(*residual)
    return widened(spread(value * np.array([factor.value, factor.low, factor.high])), wider)
