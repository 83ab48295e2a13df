"""Counts that a pool is judged by: five sizes of serving, and what sharing gives to training."""

import numpy as np

from service.core.estimates import ServingCounts
from service.core.formulas.demand import whole_instances_gpu_count
from service.core.pooling.workloads import PoolUse
from service.core.recorder import Recorder
from service.core.registry import define_quantity

for _name, _formula in (
    ("ideal", "mean over the hours of service of demand / capacity · GPUs per replica, unrounded"),
    ("autoscaled", "mean over the hours of service of needed replicas · GPUs per replica"),
    ("peak", "most GPUs of needed replicas in one hour"),
    ("static", "most GPUs of held replicas in one hour, their spare included"),
    ("whole_instance", "static GPUs in whole instances or nodes"),
):
    define_quantity(
        f"serving_{_name}_gpu_count", unit="count", per="pool", formula=f"{_formula}; all services"
    )
define_quantity(
    "harvested_gpu_hours",
    unit="gpu_hour",
    per="pool",
    formula="sum over hours of what runs hold beyond pool size - serving peak in whole instances",
)


def serving_counts(pool: PoolUse, gpu_multiple: int) -> ServingCounts | None:
    """How many GPUs serving takes, from the ideal to what is bought; None without services."""
    serves = pool.hourly.serving_needed > 0
    if not serves.any():
        return None
    static = int(pool.hourly.serving_held.max())
    ideal = sum(service.ideal_gpu_hours for service in pool.services)
    return ServingCounts(
        gpu=pool.gpu.key,
        ideal_gpu_count=ideal / int(np.count_nonzero(serves)),
        autoscaled_gpu_count=float(pool.hourly.serving_needed[serves].mean()),
        peak_gpu_count=int(pool.hourly.serving_needed.max()),
        static_gpu_count=static,
        whole_instance_gpu_count=int(
            whole_instances_gpu_count(gpu_count=static, gpu_count_per_instance=gpu_multiple)
        ),
    )


def note_counts(pool: PoolUse, gpu_multiple: int, recorder: Recorder) -> None:
    """Remember what a pool is judged by."""
    counts = serving_counts(pool, gpu_multiple)
    if counts is not None:
        recorder.note("serving_ideal_gpu_count", counts.ideal_gpu_count)
        recorder.note("serving_autoscaled_gpu_count", counts.autoscaled_gpu_count)
        recorder.note("serving_peak_gpu_count", counts.peak_gpu_count)
        recorder.note("serving_static_gpu_count", counts.static_gpu_count)
        recorder.note("serving_whole_instance_gpu_count", counts.whole_instance_gpu_count)
    if pool.kind == "shared":
        recorder.note("harvested_gpu_hours", pool.harvested_gpu_hours)
