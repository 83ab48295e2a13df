"""What a plan holds, as its answer says it: pools, spare replicas, GPUs that are there already."""

from typing import Literal

from service.core.scenarios.procurement import PoolKind
from service.core.value import Amount, Text, Value

HeadroomCause = Literal[
    "burst", "forecast_error", "cold_start", "maintenance", "failures", "spare", "zone_loss"
]
"""Why replicas are held above the need, in the order in which they are added."""


class HeadroomPart(Value):
    """What one cause adds to what a service holds in its busiest hour."""

    cause: HeadroomCause
    """Why it is held."""
    replica_count: int
    """Replicas that it adds."""
    gpu_count: int
    """Their GPUs."""


class PoolSize(Value):
    """One pool of equal GPUs."""

    name: PoolKind
    """What the pool is for."""
    gpu: Text
    """Key of the GPU."""
    site: Text | None
    """Site of owned nodes."""
    gpu_count: int
    """GPUs at the peak."""
    existing_gpu_count: int = 0
    """Those of them that are there already, used first."""
    added_gpu_count: int = 0
    """Those that the plan adds, in whole instances or nodes."""
    node_count: int
    """Whole instances or nodes; of existing GPUs as many as hold them."""
    allocated_gpu_hours: float
    """GPU-hours that are paid for; of owned GPUs all hours of the horizon."""
    used_gpu_hours: float
    """GPU-hours that workloads need."""
    idle_gpu_hours: float
    """GPU-hours that are held without need; with used and redo they are all that is paid for."""
    redo_gpu_hours: float = 0.0
    """GPU-hours spent again after preemptions."""
    mean_over_peak_fraction: float
    """Mean need over peak need."""
    preempted_gpu_count_per_day: float
    """GPUs that serving takes back from training on a mean day."""


class ExistingUse(Value):
    """What GPUs that are owned already do for a plan, and what of its cost they decided before."""

    used_gpu_count: int
    """GPUs that pools use, at their largest."""
    unused_gpu_count: int
    """GPUs that no pool needs: neither held nor charged."""
    sunk_amount: Amount
    """Part of `totals.amount` that writes them off: paid before, and no decision avoids it."""
    avoidable_amount: Amount
    """The rest of `totals.amount`."""


class ServingCounts(Value):
    """GPUs that all services on one kind of GPU take, from the ideal to what is bought."""

    gpu: Text
    """Key of the GPU."""
    ideal_gpu_count: float
    """Mean, if parts of a replica could follow the demand at full capacity."""
    autoscaled_gpu_count: float
    """Mean, if whole replicas follow the demand hour by hour at the target utilisation."""
    peak_gpu_count: int
    """Needed in the busiest hour."""
    static_gpu_count: int
    """Held in the busiest hour, spare included."""
    whole_instance_gpu_count: int
    """The same in whole instances or nodes."""
