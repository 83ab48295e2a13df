"""Which of many layouts is nearest to one, and a layout in words."""

from typing import Any

import numpy as np

from service.core.parallelism import ParallelLayout
from service.core.parallelism.axes import LayoutAxes


def distance(candidates: LayoutAxes, wanted: LayoutAxes) -> Any:
    """How far layouts are from one: the sum of the logarithmic distances of their degrees."""
    names = ("tensor", "pipeline", "virtual", "context", "expert", "micro_batch_sequences")
    degrees = sum(
        abs(np.log(getattr(candidates, name)) - np.log(getattr(wanted, name))) for name in names
    )
    other = np.not_equal(candidates.sharding, wanted.sharding) * 0.01
    return degrees + other + np.not_equal(candidates.recompute, wanted.recompute) * 0.01


def nearest(candidates: LayoutAxes, wanted: LayoutAxes) -> LayoutAxes | None:
    """The candidate whose degrees differ least."""
    if len(candidates.tensor) == 0:
        return None
    return candidates.take(int(np.argmin(distance(candidates, wanted))))


def described(layout: ParallelLayout) -> str:
    """A layout in words: degrees above one, and what is not as usual."""
    degrees = (
        "tensor_parallel",
        "pipeline_parallel",
        "virtual_pipeline_stages",
        "context_parallel",
        "expert_parallel",
    )
    parts = [f"{name} {size}" for name in degrees if (size := getattr(layout, name)) > 1]
    if layout.expert_tensor_parallel is not None:
        parts.append(f"expert_tensor_parallel {layout.expert_tensor_parallel}")
    if layout.tensor_parallel > 1 and not layout.sequence_parallel:
        parts.append("sequence_parallel false")
    parts.append(f"data_parallel {layout.data_parallel}")
    parts.append(f"micro_batch_sequences {layout.micro_batch_sequences}")
    return f"{', '.join(parts)}, sharding {layout.sharding}, recompute {layout.recompute}"
