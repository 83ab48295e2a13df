"""Training runs for tests: the catalog's own facts, and runs written as a request writes them."""

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

from service.catalog.resolve import snapshot_from_folder
from service.core.parallelism.axes import LayoutAxes
from service.core.planners.training import plan_training_run
from service.core.pooling.workloads import RunNeed
from service.core.recorder import Recorder
from service.core.run.case import resolve
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import TrainingRun

CATALOG = Path(__file__).resolve().parents[2] / "catalog"
HORIZON = Horizon(start_month="2027-01", month_count=12)
POINTER = "/scenario/training_runs/0"
MFU_40 = {"kind": "mfu", "mfu_fraction": 0.40}


@cache
def snapshot():
    return snapshot_from_folder(CATALOG, date(2026, 11, 29))


def with_gpu(key, **facts):
    """The snapshot with other facts for one GPU."""
    gpus = dict(snapshot().gpus)
    gpus[key] = gpus[key].model_copy(update=facts)
    return replace(snapshot(), gpus=gpus)


@cache
def table_only():
    """The snapshot without the constants of a step: the table of shares answers."""
    kept = {
        name: assumption
        for name, assumption in snapshot().assumptions.items()
        if not name.startswith("training_gemm_fraction")
    }
    return replace(snapshot(), assumptions=kept)


def run(**fields):
    """A run of the contract's example, with other fields."""
    base = {
        "name": "pretrain-70b",
        "architecture": "llama-3.1-70b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 2_000_000_000_000,
        "sizing": {"kind": "gpu_count", "gpu_count": 512},
    }
    return TrainingRun.model_validate(base | fields)


def case_of(*, catalog=None, gpu_multiple=8, instance_gpu_count=None, **fields):
    """A run resolved against the catalog."""
    facts = catalog or snapshot()
    return resolve(
        run(**fields),
        snapshot=facts,
        recorder=Recorder(facts),
        gpu_multiple=gpu_multiple,
        pointer=POINTER,
        instance_gpu_count=instance_gpu_count,
    )


def axes(**degrees):
    """Eight whole copies of one micro-batch at a time, or another layout."""
    base = {
        "tensor": 1,
        "pipeline": 1,
        "virtual": 1,
        "context": 1,
        "expert": 1,
        "data": 8,
        "sharding": 0,
        "micro_batch_sequences": 1,
        "micro_batch_count": 8,
        "recompute": 0,
    }
    return LayoutAxes(**base | degrees)


def on(gpu_count):
    return {"kind": "gpu_count", "gpu_count": gpu_count}


def by(day):
    return {"kind": "finish_by", "finish_date": day}


def given(**fields):
    return {"kind": "given", **fields}


def answer(*, gpu_multiple=8, overrides=None, catalog=None, **fields):
    """What the planner says, and the recorder that it wrote to."""
    facts = catalog or snapshot()
    recorder = Recorder(facts, overrides=overrides or {})
    found = plan_training_run(
        run(**fields),
        snapshot=facts,
        recorder=recorder,
        horizon=HORIZON,
        gpu_multiple=gpu_multiple,
        pointer=POINTER,
    )
    return found, recorder


def need(**fields):
    """The answer of a run that can be had."""
    found, _ = answer(**fields)
    assert isinstance(found, RunNeed), found
    return found


def refusal(**fields):
    """The one reason of a run that cannot be had."""
    found, _ = answer(**fields)
    assert isinstance(found, tuple), found
    (reason,) = found
    assert reason.workload == "pretrain-70b"
    return reason


def quantities(**fields):
    """Published numbers of an answer by name."""
    _, recorder = answer(**fields)
    return {quantity.name: quantity for quantity in recorder.quantities()}


def assumed(name):
    return snapshot().assumptions[name]
