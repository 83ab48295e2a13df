"""Factors with their range: how uncertain inputs of a run combine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.assumptions import AssumptionUsed
from service.core.errors import InvalidScenario
from service.core.formulas import training_time
from service.core.recorder import Recorder

VENDOR_TUNED, PYTORCH_FSDP = "vendor_tuned", "pytorch_fsdp"


@dataclass(frozen=True)
class Factor:
    """One factor of the speed: typical value between its 10th and 90th percentile."""

    value: Any
    low: Any
    high: Any


def positive(recorder: Recorder, name: str, *qualifiers: str) -> AssumptionUsed:
    """An assumption that something is divided by or multiplied with: above zero.

    Raises:
        InvalidScenario: If it was overridden by zero or less.
    """
    used = recorder.assume(name, *qualifiers)
    if used.low <= 0:
        raise InvalidScenario(f"{used.name} must be above zero", pointer=used.override_at)
    return used


def when(condition: Any, recorder: Recorder, name: str, *qualifiers: str) -> list[Factor]:
    """A factor where a condition holds; not looked up where it holds nowhere."""
    if not np.any(condition):
        return []
    used = positive(recorder, name, *qualifiers)
    return [Factor(*(np.where(condition, x, 1.0)[()] for x in (used.value, used.low, used.high)))]


def by_stack(condition: Any, vendor: Any, recorder: Recorder, name: str) -> list[Factor]:
    """A factor that differs by software stack, where a condition holds."""
    return [
        *when(np.logical_and(condition, vendor), recorder, name, VENDOR_TUNED),
        *when(np.logical_and(condition, np.logical_not(vendor)), recorder, name, PYTORCH_FSDP),
    ]


def spread(factors: Sequence[Factor]) -> tuple[float, float]:
    """By how much independent factors together may be lower, and higher, than their product."""
    slow = training_time.root_sum_square_factor(factors=[f.value / f.low for f in factors])
    fast = training_time.root_sum_square_factor(factors=[f.high / f.value for f in factors])
    return float(slow), float(fast)


def ranged(
    recorder: Recorder, formula: Callable[..., Any], *, less: float, more: float, **inputs: Any
) -> float:
    """Evaluate a formula whose result may be lower, or higher, by these factors."""
    value = float(formula(**inputs))
    recorder.evaluate(formula, low=value / less, high=value * more, **inputs)
    return value
