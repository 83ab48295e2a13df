"""What training and serving each cost, month by month: where the one overtakes the other shows."""

from collections.abc import Iterable
from decimal import Decimal

from service.core.estimates import CostLine, WorkloadKind
from service.core.planners.workloads import HourUse
from service.core.pricing import amounts_by, printed, split_by_largest_remainder, total


def training_and_serving_amounts(
    lines: Iterable[CostLine], hour_uses: Iterable[HourUse]
) -> dict[str, tuple[Decimal, Decimal]]:
    """Amounts of each month that training and serving cause; together they are the month's.

    A line of a workload belongs to its kind. What a pool's workloads share is split, month by
    month, in proportion to the GPU-hours that each kind used in that pool in that month (redo
    included), to the cent by largest remainder. In a month without any use the pool's use over
    all months decides; a pool that nothing ever used is serving's, which alone holds GPUs in case.
    """
    lines = tuple(lines)
    used: dict[tuple[str, ...], dict[WorkloadKind, Decimal]] = {}
    for hours in hour_uses:
        if hours.use == "idle" or hours.workload_kind == "shared":
            continue
        for key in ((hours.month, hours.pool, hours.gpu.key), (hours.pool, hours.gpu.key)):
            kinds = used.setdefault(key, {"training": Decimal(0), "serving": Decimal(0)})
            kinds[hours.workload_kind] += printed(hours.gpu_hours)
    sums = amounts_by(lines, lambda line: (line.month, line.pool, line.gpu, line.workload_kind))
    split: dict[str, tuple[Decimal, Decimal]] = {}
    for (month, pool, gpu, kind), amount in sums.items():
        kinds = used.get((month, pool, gpu), used.get((pool, gpu), {}))
        weights = [kinds.get("training", Decimal(0)), kinds.get("serving", Decimal(0))]
        if kind != "shared" or not any(weights):
            weights = [Decimal(kind == "training"), Decimal(kind != "training")]
        training, serving = split_by_largest_remainder(amount, weights)
        before = split.get(month, (Decimal(0), Decimal(0)))
        split[month] = (total((before[0], training)), total((before[1], serving)))
    return split
