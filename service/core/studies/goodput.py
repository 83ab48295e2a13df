"""What failures and checkpoints cost a training run, and which interval and spares cost least."""

from decimal import Decimal
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from service.core.answers import EstimateAnswer, EstimateQuestion, recorder_for, shared_fields
from service.core.architecture.model import ModelArchitecture
from service.core.estimates import Infeasibility, Range
from service.core.factors import Factor, spread
from service.core.failures.model import FailureModel, failure_model
from service.core.formulas import reliability
from service.core.hardware import Gpu
from service.core.pricing import amounts_of, cost_of_units
from service.core.recorder import Recorder
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.training_run import Reliability, TrainingRun
from service.core.scenarios.training_state import STATE_RECIPES, StateRecipeName
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GB, HOURS_PER_DAY, SECONDS_PER_HOUR
from service.core.value import (
    Amount,
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    PositiveFraction,
    Price,
    Value,
)

CURVE_POINTS = 25
MOST_SPARED_NODES = 20_000


class GoodputQuestion(EstimateQuestion):
    """How a run of so many GPUs fails and saves."""

    gpu: GpuRef
    """What it runs on."""
    gpu_count: Count
    """GPUs of the run."""
    architecture: ArchitectureRef | None = None
    """What is trained, for the size of a checkpoint."""
    state_recipe: StateRecipeName = "mixed_bf16_adam_bf16_gradients"
    """What a checkpoint keeps of each weight."""
    reliability: Reliability = Reliability()
    """Failures and checkpoints; null fields take the catalog's assumptions."""
    spot_interruptions_per_1000_node_days: NonNegative = 0.0
    """Interruptions by the provider, beside failures."""
    preemptions_per_day: NonNegative = 0.0
    """Stops of the whole run because others take its GPUs, beside failures; no node is lost."""
    saves: Literal["blocking", "asynchronous"] = "blocking"
    """Blocking: the run stands for `reliability.checkpoint_save_s` at each save. Asynchronous: it
    goes on, and a failure loses `write_within_s` more, because a checkpoint counts once it is
    written."""
    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour, to cost what is lost."""
    retained_checkpoint_count: CountOrZero = 3
    """Checkpoints that are kept."""
    write_within_s: Positive = 60.0
    """Seconds in which a checkpoint must be written."""
    repair_hours: Positive = 24.0
    """Hours until a failed node is back."""
    spare_target_fraction: Annotated[PositiveFraction, Field(lt=1)] = 0.999
    """Probability with which enough nodes must work."""


class WastePoint(Value):
    """What one checkpoint interval costs."""

    checkpoint_interval_s: float
    """Seconds between checkpoints."""
    waste_fraction: float
    """Share of the time that is lost to saving, redoing and restarting; at most 1."""


class GoodputAnswer(EstimateAnswer):
    """What is lost, and what would lose least."""

    failures_per_day: float
    """Stops of the whole run."""
    mean_time_to_failure_hours: float | None
    """Hours between stops; null when there are none."""
    goodput_fraction: Range
    """Share of the time that makes progress."""
    lost_gpu_hours_per_day: float
    """GPU-hours that buy no progress."""
    lost_amount_per_day: Amount | None
    """What they cost; null without a price."""
    young_interval_s: float | None
    """Interval of least waste by the first-order rule; null when saving costs nothing."""
    daly_interval_s: float | None
    """Interval of least waste by the higher-order rule; null when saving costs nothing."""
    waste_by_interval: tuple[WastePoint, ...]
    """The curve of waste against the interval."""
    checkpoint_bytes: float | None
    """Size of one checkpoint; null without an architecture."""
    write_gb_per_s: float | None
    """Storage bandwidth that writes it in the wanted time."""
    retained_bytes: float | None
    """Storage of all checkpoints that are kept."""
    needed_node_count: int
    """Nodes of the run."""
    node_count_with_spares: int | None
    """Nodes of which enough work with the wanted probability; null beyond 20,000 nodes."""


def estimate_goodput(question: GoodputQuestion, snapshot: CatalogSnapshot) -> GoodputAnswer:
    """Count failures, saves and spares of a run.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(question.gpu, pointer="/gpu")
    model = _failures(question, gpu, recorder)
    per_day, interval, save, restart = _inputs(model, question.gpu_count)
    goodput = model.goodput(question.gpu_count)
    model.publish(question.gpu_count, recorder)
    mean_hours = HOURS_PER_DAY / per_day if per_day > 0 else None
    lost = (1.0 - max(0.0, goodput)) * question.gpu_count * HOURS_PER_DAY
    return GoodputAnswer(
        **shared_fields(recorder, infeasibilities=_never_ends(goodput)),
        failures_per_day=per_day,
        mean_time_to_failure_hours=mean_hours,
        goodput_fraction=_range(model, question.gpu_count, goodput),
        lost_gpu_hours_per_day=lost,
        lost_amount_per_day=_amount(lost, question.price_per_gpu_hour),
        **_intervals(mean_hours, save),
        waste_by_interval=_curve(per_day, interval, save, restart),
        **_checkpoint(question, snapshot, recorder),
        **_nodes(question, model, per_day - question.preemptions_per_day),
    )


def _amount(gpu_hours: float, price: Decimal | None) -> Decimal | None:
    if price is None:
        return None
    with amounts_of("what is lost in a day", pointer="/price_per_gpu_hour"):
        return cost_of_units(gpu_hours, price)


def _failures(question: GoodputQuestion, gpu: Gpu, recorder: Recorder) -> FailureModel:
    """The failure model of a plan, with what else stops the run and how it saves."""
    given = question.reliability
    server = recorder.assume("failure_server_gpu_count").value
    nodes = reliability.server_count(
        gpu_count=question.gpu_count,
        gpus_per_server=max(1, min(gpu.node_gpu_count, int(server))),
    )
    extra = question.spot_interruptions_per_1000_node_days
    extra += question.preemptions_per_day / float(nodes) * 1000.0
    changed: dict[str, float] = {}
    if extra > 0:
        own = given.failures_per_1000_node_days
        rate = recorder.assume("failures_per_1000_node_days").value if own is None else own
        changed["failures_per_1000_node_days"] = rate + extra
    if question.saves == "asynchronous":
        restart = given.restart_s
        restart = recorder.assume("restart_s").value if restart is None else restart
        changed |= {"checkpoint_save_s": 0.0, "restart_s": restart + question.write_within_s}
    given = given.model_copy(update=changed)
    run = TrainingRun.model_validate(
        {
            "name": "run",
            "gpu": gpu,
            "training_tokens": 1,
            "sequence_length_tokens": 1,
            "global_batch_tokens": 1,
            "sizing": {"kind": "gpu_count", "gpu_count": question.gpu_count},
            "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1.0},
            "reliability": given,
        }
    )
    return failure_model(run, gpu, recorder)


def _inputs(model: FailureModel, gpu_count: int) -> tuple[float, float, float, float]:
    servers = reliability.server_count(gpu_count=gpu_count, gpus_per_server=model.gpus_per_server)
    per_day = reliability.failures_per_day(
        failures_per_1000_node_days=model.failures_per_1000_node_days.value, node_count=servers
    )
    timings = (model.checkpoint_interval_s, model.checkpoint_save_s, model.restart_s)
    interval, save, restart = (float(factor.value) for factor in timings)
    return float(per_day), interval, save, restart


def _never_ends(goodput: float) -> tuple[Infeasibility, ...]:
    if goodput > 0:
        return ()
    return (
        Infeasibility(
            workload=None,
            code="deadline",
            limit="time left between failures",
            needed=1.0 - goodput,
            available=1.0,
            unit="share of the time",
            nearest_fix="fewer GPUs, a shorter restart_s or checkpoint_save_s, or the interval of "
            "least waste",
        ),
    )


def _range(model: FailureModel, gpu_count: int, goodput: float) -> Range:
    if goodput <= 0:
        return Range.exactly(0.0)
    factors: list[Factor] = model.goodput_factors(gpu_count)
    slow, fast = spread(factors)
    return Range(value=goodput, low=goodput / slow, high=min(1.0, goodput * fast))


def _intervals(mean_hours: float | None, save_s: float) -> dict[str, Any]:
    if mean_hours is None or save_s == 0:
        return {"young_interval_s": None, "daly_interval_s": None}
    inputs = {
        "checkpoint_save_s": save_s,
        "mean_time_to_failure_s": mean_hours * SECONDS_PER_HOUR,
    }
    return {
        "young_interval_s": float(reliability.young_checkpoint_interval_s(**inputs)),
        "daly_interval_s": float(reliability.daly_checkpoint_interval_s(**inputs)),
    }


def _curve(
    per_day: float, interval_s: float, save_s: float, restart_s: float
) -> tuple[WastePoint, ...]:
    """Waste at intervals from an eighth to eight times the given one."""
    intervals = interval_s * np.geomspace(0.125, 8.0, CURVE_POINTS)
    goodput = reliability.goodput_fraction(
        failures_per_day=per_day,
        checkpoint_interval_s=intervals,
        restart_s=restart_s,
        checkpoint_save_s=save_s,
    )
    waste = np.clip(1.0 - np.asarray(goodput), 0.0, 1.0)
    return tuple(
        WastePoint(checkpoint_interval_s=float(i), waste_fraction=float(w))
        for i, w in zip(intervals, waste, strict=True)
    )


def _checkpoint(
    question: GoodputQuestion, snapshot: CatalogSnapshot, recorder: Recorder
) -> dict[str, Any]:
    if question.architecture is None:
        return {"checkpoint_bytes": None, "write_gb_per_s": None, "retained_bytes": None}
    model: ModelArchitecture = snapshot.architecture(question.architecture, pointer="/architecture")
    size = float(
        recorder.evaluate(
            reliability.checkpoint_bytes,
            parameter_count=model.parameter_count,
            bytes_per_parameter=STATE_RECIPES[question.state_recipe].total_bytes,
        )
    )
    return {
        "checkpoint_bytes": size,
        "write_gb_per_s": size / question.write_within_s / BYTES_PER_GB,
        "retained_bytes": size * question.retained_checkpoint_count,
    }


def _nodes(question: GoodputQuestion, model: FailureModel, per_day: float) -> dict[str, Any]:
    needed = int(
        reliability.server_count(
            gpu_count=question.gpu_count, gpus_per_server=model.gpus_per_server
        )
    )
    if needed > MOST_SPARED_NODES:
        return {"needed_node_count": needed, "node_count_with_spares": None}
    working = reliability.availability_fraction(
        failures_per_day=per_day / needed, repair_hours=question.repair_hours
    )
    held = None
    if working > 0.5:
        held = int(
            reliability.node_count_with_spares(
                needed_count=needed,
                availability_fraction=float(working),
                target_fraction=question.spare_target_fraction,
            )
        )
    return {"needed_node_count": needed, "node_count_with_spares": held}
