"""Runs and replicas made by hand, and the pools that they get."""

from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

from service.catalog.resolve import snapshot_from_folder
from service.core.estimates import Range
from service.core.hardware import Gpu, PeakRates
from service.core.parallelism import ParallelLayout
from service.core.planners.pools import plan_pools
from service.core.pooling.workloads import ReplicaCapacity, RunNeed
from service.core.recorder import Recorder
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun

CATALOG = Path(__file__).parents[1] / "catalog"
RULE = {"method": {"kind": "rent", "price_per_gpu_hour": "1"}}


def gpu(key="h100"):
    return Gpu(
        key=key, name=key, memory_gb=80, memory_bandwidth_gb_per_s=3350, peak_tflops=PeakRates()
    )


GPU = gpu()


@cache
def snapshot():
    return snapshot_from_folder(CATALOG, date(2026, 11, 29))


def recorder(**overrides):
    return Recorder(snapshot(), overrides=overrides)


def service(name="assistant", *, peak=40.0, capacity=4.0, gpus=4, **fields):
    """A service whose replicas were measured; fields as in a request."""
    document = {
        "name": name,
        "gpu": "h100",
        "load": {"kind": "peak_requests", "peak_requests_per_s": peak},
        "capacity": {
            "kind": "measured",
            "units_per_s_per_replica": capacity,
            "gpu_count_per_replica": gpus,
        },
    }
    return ServingService.model_validate(document | fields)


def run(name="pretrain", *, gpu_count=64, start="2027-01-01", finish=None, **fields):
    """A run at a measured speed: the hours are given with its need."""
    sizing = {"kind": "gpu_count", "gpu_count": gpu_count}
    document = {
        "name": name,
        "gpu": "h100",
        "training_tokens": 10**12,
        "sizing": sizing if finish is None else {"kind": "finish_by", "finish_date": finish},
        "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
        "start_date": start,
    }
    return TrainingRun.model_validate(document | fields)


def need(run, *, gpu_count, hours, copy=None, on=GPU, interval_s=1800.0, restart_s=1200.0):
    """What a run needs on GPUs of its own, in copies of so many GPUs."""
    layout = None
    if copy is not None:
        layout = ParallelLayout(
            tensor_parallel=copy,
            pipeline_parallel=1,
            data_parallel=gpu_count // copy,
        )
    day = run.start_date
    return RunNeed(
        run=run,
        gpu=on,
        gpu_count=gpu_count,
        layout=layout,
        memory=None,
        model_flops=None,
        mfu_fraction=None,
        speed_basis="measured",
        steady_hours=hours,
        goodput_fraction=1.0,
        wall_clock_hours=Range.exactly(hours),
        checkpoint_bytes=None,
        checkpoint_interval_s=interval_s,
        restart_s=restart_s,
        start=datetime(day.year, day.month, day.day, tzinfo=UTC),
    )


def replica(service, *, on=GPU, speed=None):
    """What a replica of a measured service serves."""
    return ReplicaCapacity(
        service=service,
        gpu=on,
        gpu_count_per_replica=service.capacity.gpu_count_per_replica,
        units_per_s_per_replica=speed or Range.exactly(service.capacity.units_per_s_per_replica),
    )


def pools(
    needs=(),
    services=(),
    *,
    start="2027-01",
    months=12,
    pooling=None,
    multiple=8,
    into=None,
    speed=None,
    owned=False,
    count_in_time=None,
    existing=(),
):
    """Pools of runs and services over a horizon; every instance has `multiple` GPUs."""
    scenario = Scenario.model_validate(
        {
            "horizon": {"start_month": start, "month_count": months},
            "training_runs": [item.run.model_dump() for item in needs],
            "serving_services": [item.model_dump() for item in services],
            "pooling": pooling or {"kind": "separate"},
            "procurement": [RULE],
            "existing_gpus": [
                {"gpu": "h100", "gpu_count": count}
                | {"book_value_per_gpu": "1", "remaining_life_months": 12}
                for count in existing
            ],
        }
    )
    return plan_pools(
        scenario,
        needs,
        [replica(item, speed=speed) for item in services],
        recorder=into or recorder(),
        gpu_multiple=lambda _pool, _gpu: multiple,
        site_of=lambda _pool, _gpu: None,
        is_owned=lambda _pool, _gpu: owned,
        count_in_time=lambda _run, _day: count_in_time,
    )


def shared(fleet_gpu_count=None):
    return {"kind": "shared", "fleet_gpu_count": fleet_gpu_count}
