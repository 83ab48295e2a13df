"""What failures and checkpoints cost a training run, and which interval and spares cost least."""

from decimal import Decimal
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from service.core.answers import EstimateAnswer, EstimateQuestion, recorder_for, shared_fields
from service.core.architecture.model import ModelArchitecture
from service.core.errors import InvalidScenario
from service.core.estimates import Range
from service.core.factors import Factor
from service.core.failures.fixes import never_ends, smaller_counts
from service.core.failures.model import FailureModel
from service.core.failures.published import publish
from service.core.formulas import reliability
from service.core.hardware import Gpu
from service.core.pricing import amounts_of, cost_of_units
from service.core.recorder import Recorder
from service.core.run.case import checkpoint_parameters, failures_of
from service.core.scenarios.refs import ArchitectureRef, GpuRef
from service.core.scenarios.reliability import Reliability, Saves
from service.core.scenarios.training_run import Adapter, TrainingRun
from service.core.scenarios.training_state import StateRecipeName
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GB, HOURS_PER_DAY
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
BESIDE = (
    "spot_interruptions_per_1000_node_days",
    "preemptions_per_day",
    "saves",
    "write_within_s",
)
"""Fields of the question that stand in `reliability` as well."""


class GoodputQuestion(EstimateQuestion):
    """How a run of so many GPUs fails and saves."""

    gpu: GpuRef
    """What it runs on."""
    gpu_count: Count
    """GPUs of the run."""
    architecture: ArchitectureRef | None = None
    """What is trained, for the size of a checkpoint."""
    state_recipe: StateRecipeName = "mixed_bf16_adam_bf16_gradients"
    """Bytes of a checkpoint for each weight that is trained, as of a run."""
    adapter: Adapter | None = None
    """Low-rank adapter, whose weights alone are saved; null trains all weights. Needs an
    architecture with layers."""
    reliability: Reliability = Reliability()
    """Failures and checkpoints, as of a run; null fields take the catalog's assumptions. Four of
    its fields may stand beside it, too; given in both places they must be equal:
    `spot_interruptions_per_1000_node_days`, `preemptions_per_day`, `saves`, `write_within_s`."""
    spot_interruptions_per_1000_node_days: NonNegative = 0.0
    """Interruptions by the provider, beside failures. Must agree with that of `reliability`, where
    both are given."""
    preemptions_per_day: NonNegative = 0.0
    """Stops of the whole run because others take its GPUs, beside failures; no node is lost. Must
    agree with that of `reliability`, where both are given."""
    saves: Saves = "blocking"
    """Blocking: the run stands for `reliability.checkpoint_save_s` at each save. Asynchronous: it
    goes on, but for the `checkpoint_save_s` of a copy where that is given, and a failure loses
    `write_within_s` more, because a checkpoint counts once it is written. Must agree with that of
    `reliability`, where both are given."""
    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour, to cost what is lost."""
    retained_checkpoint_count: CountOrZero = 3
    """Checkpoints that are kept."""
    write_within_s: Positive | None = None
    """Seconds in which a checkpoint must be written, before the next one begins; null takes the
    catalog's assumption, or what `reliability.checkpoint_storage` needs. Must agree with that of
    `reliability`, where both are given."""
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
    failures_per_1000_node_days: Range
    """Failures alone, per 1,000 days of 8-GPU nodes: given, assumed, or from incidents that were
    counted, with their Poisson range."""
    lost_s_per_failure: Range
    """What one stop costs: half an interval, the restart, and the write of an asynchronous save."""
    checkpoint_interval_s: float
    """Interval that was used."""
    checkpoint_save_s: float
    """Time for which a save stops the run."""
    checkpoint_write_s: float
    """Time in which a save is written while the run goes on; 0 with blocking saves."""
    least_waste: WastePoint | None
    """The interval that wastes least, of those that are no shorter than a save; null where a
    shorter one always wastes less, or where nothing fails."""
    node_gpu_count: int
    """GPUs of one node: what is replaced as a whole, and held as a spare."""
    needed_node_count: int
    """Nodes of the run, of `node_gpu_count` GPUs each."""
    node_count_with_spares: int | None
    """Nodes, as large as those, of which enough work with the wanted probability; null beyond
    20,000 nodes."""


def estimate_goodput(question: GoodputQuestion, snapshot: CatalogSnapshot) -> GoodputAnswer:
    """Count failures, saves and spares of a run.

    Raises:
        CoreError: If the question names what the catalog does not hold, or contradicts itself.
    """
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(question.gpu, pointer="/gpu")
    architecture = None
    if question.architecture is not None:
        architecture = snapshot.architecture(question.architecture, pointer="/architecture")
    if question.adapter is not None and (architecture is None or not architecture.has_layers):
        raise InvalidScenario(
            "an adapter is sized from the layers of an architecture: give one with layers",
            pointer="/adapter",
        )
    run = _run(question, gpu, architecture)
    model = failures_of(run, gpu, architecture, recorder, "")
    count = question.gpu_count
    _check_write(question, model)
    publish(model, count, recorder)
    goodput = model.goodput(count)
    hours = model.mean_hours(count)
    lost = (1.0 - max(0.0, goodput)) * count * HOURS_PER_DAY
    refused = () if goodput > 0 else (never_ends(model, count, smaller_counts(model, count)),)
    return GoodputAnswer(
        **shared_fields(recorder, infeasibilities=refused),
        failures_per_day=float(model.stops_per_day(count).value),
        mean_time_to_failure_hours=None if hours is None else float(hours.value),
        goodput_fraction=_range(model.goodput_range(count)),
        lost_gpu_hours_per_day=lost,
        lost_amount_per_day=_amount(lost, question.price_per_gpu_hour),
        failures_per_1000_node_days=_band(model.failures_per_1000_node_days),
        lost_s_per_failure=_band(model.lost_s(count)),
        **_intervals(model, count),
        **_checkpoint(question, run, architecture, model, recorder),
        **_nodes(question, gpu, model),
    )


def _amount(gpu_hours: float, price: Decimal | None) -> Decimal | None:
    if price is None:
        return None
    with amounts_of("what is lost in a day", pointer="/price_per_gpu_hour"):
        return cost_of_units(gpu_hours, price)


def _run(
    question: GoodputQuestion, gpu: Gpu, architecture: ModelArchitecture | None
) -> TrainingRun:
    """A run that fails and saves as the question says, and is else of no matter."""
    return TrainingRun.model_validate(
        {
            "name": "run",
            "gpu": gpu,
            "architecture": architecture,
            "training_tokens": 1,
            "sequence_length_tokens": 1,
            "global_batch_tokens": 1,
            "state_recipe": question.state_recipe,
            "adapter": question.adapter,
            "sizing": {"kind": "gpu_count", "gpu_count": question.gpu_count},
            "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1.0},
            "reliability": _reliability(question),
        }
    )


def _reliability(question: GoodputQuestion) -> Reliability:
    """Failures and saves, whether they stand in `reliability` or beside it.

    Raises:
        InvalidScenario: If a field stands in both and differs.
    """
    given = question.reliability
    beside: dict[str, Any] = {}
    for name in BESIDE:
        here, there = getattr(question, name), getattr(given, name)
        if not _is_given(question, name):
            continue
        if _is_given(given, name) and there != here:
            raise InvalidScenario(f"{name} differs from that of reliability", pointer=f"/{name}")
        beside[name] = here
    saves = beside.get("saves", given.saves)
    if saves == "blocking":
        beside.pop("write_within_s", None)  # there it asks for a bandwidth alone
    return given.model_copy(update=beside)


def _is_given(asked: Value, name: str) -> bool:
    """Whether a request says something of a field, be it the default; null says nothing."""
    return name in asked.model_fields_set and getattr(asked, name) is not None


def _check_write(question: GoodputQuestion, model: FailureModel) -> None:
    """A blocking save, too, must be written before the next one begins."""
    write, interval = question.write_within_s, model.interval_s(question.gpu_count).value
    if write is None or write <= interval or model.saves == "asynchronous":
        return
    raise InvalidScenario(
        f"a checkpoint must be written before the next one begins, {interval:.10g} s later: "
        f"reliability.checkpoint_interval_s must be at least {write:.10g}",
        pointer="/write_within_s",
    )


def _band(factor: Factor) -> Range:
    return Range(value=float(factor.value), low=float(factor.low), high=float(factor.high))


def _range(goodput: Factor) -> Range:
    """Share of the time, which is none where failures take more than there is."""
    low, value, high = (max(0.0, each) for each in (goodput.low, goodput.value, goodput.high))
    return Range(value=value, low=low, high=high)


def _intervals(model: FailureModel, gpu_count: int) -> dict[str, Any]:
    """What is used, what would waste least, and the curve of waste."""
    young = model.rule_s(gpu_count, "young")
    return {
        "young_interval_s": young,
        "daly_interval_s": model.rule_s(gpu_count, "daly"),
        "checkpoint_interval_s": float(model.interval_s(gpu_count).value),
        "checkpoint_save_s": float(model.save_s(gpu_count).value),
        "checkpoint_write_s": float(model.write_s(gpu_count).value),
        "waste_by_interval": _curve(model, gpu_count),
        "least_waste": _least_waste(model, gpu_count, young),
    }


def _waste(model: FailureModel, gpu_count: int, intervals: Any) -> tuple[WastePoint, ...]:
    inputs: dict[str, Any] = model.inputs(gpu_count) | {"checkpoint_interval_s": intervals}
    waste = np.clip(1.0 - np.asarray(reliability.goodput_fraction(**inputs)), 0.0, 1.0)
    return tuple(
        WastePoint(checkpoint_interval_s=float(i), waste_fraction=float(w))
        for i, w in zip(intervals, waste, strict=True)
    )


def _curve(model: FailureModel, gpu_count: int) -> tuple[WastePoint, ...]:
    """Waste up to eight times the interval that is used, from an eighth of it.

    Saves that are written beside the run set the least interval, with which the curve begins.
    """
    interval, least = model.interval_s(gpu_count).value, model.least_interval_s(gpu_count)
    first = least if model.saves == "asynchronous" and least > 0 else interval / 8
    last = 8 * max(interval, least)
    steps = np.geomspace(first / interval, last / interval, CURVE_POINTS)
    return _waste(model, gpu_count, interval * steps)


def _least_waste(model: FailureModel, gpu_count: int, young_s: float | None) -> WastePoint | None:
    """The lowest point of the curve: δ/τ + τ/2M is least at √(2δM), Young's interval."""
    best = max(young_s or 0.0, model.least_interval_s(gpu_count))
    if best <= 0 or model.stops_per_day(gpu_count).value <= 0:
        return None
    return _waste(model, gpu_count, np.array([best]))[0]


def _checkpoint(
    question: GoodputQuestion,
    run: TrainingRun,
    architecture: ModelArchitecture | None,
    model: FailureModel,
    recorder: Recorder,
) -> dict[str, Any]:
    kept = checkpoint_parameters(run, architecture)
    if kept is None:
        return {"checkpoint_bytes": None, "write_gb_per_s": None, "retained_bytes": None}
    size = float(
        recorder.evaluate(
            reliability.checkpoint_bytes, parameter_count=kept[0], bytes_per_parameter=kept[1]
        )
    )
    seconds = question.write_within_s
    if seconds is None and model.writing is not None:
        seconds = model.writing.seconds(question.gpu_count)
    if seconds is None:
        seconds = run.reliability.write_within_s or recorder.assume("checkpoint_write_s").value
    return {
        "checkpoint_bytes": size,
        "write_gb_per_s": size / seconds / BYTES_PER_GB,
        "retained_bytes": size * question.retained_checkpoint_count,
    }


def _nodes(question: GoodputQuestion, gpu: Gpu, model: FailureModel) -> dict[str, Any]:
    """Nodes as they are replaced: whole racks where the catalog's node is one."""
    size = gpu.node_gpu_count
    needed = int(reliability.server_count(gpu_count=question.gpu_count, gpus_per_server=size))
    found = {"node_gpu_count": size, "needed_node_count": needed, "node_count_with_spares": None}
    if needed > MOST_SPARED_NODES:
        return found
    lost_per_day = model.stops_per_day(question.gpu_count).value - model.preemptions_per_day
    working = reliability.availability_fraction(
        failures_per_day=lost_per_day / needed, repair_hours=question.repair_hours
    )
    if working > 0.5:
        found["node_count_with_spares"] = int(
            reliability.node_count_with_spares(
                needed_count=needed,
                availability_fraction=float(working),
                target_fraction=question.spare_target_fraction,
            )
        )
    return found
