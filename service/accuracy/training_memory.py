"""Peak memory of a published run by the estimate, in the unit in which it was published."""

import re
from collections.abc import Callable
from dataclasses import replace

from service.accuracy.training_cases import PreparedRow, Unpredictable, prepare
from service.accuracy.training_rows import TrainingRow
from service.core.estimates import Range
from service.core.formulas import training_memory, training_time
from service.core.parallelism.axes import FULL
from service.core.recorder import Recorder
from service.core.run.memory import MemoryModel, MemoryTerms, available_bytes
from service.core.run.parts import model_parts, state_bytes
from service.core.units import BYTES_PER_GB, BYTES_PER_GIB, BYTES_PER_MIB

ROUNDING = 0.02
"""Published equations are printed with two or three digits."""
_TARGET_MATRICES = {"q": "query", "v": "value", "k": "key"}


def predicted_memory(row: TrainingRow, recorder: Recorder) -> tuple[Range, PreparedRow | None]:
    """Bytes of a row in its own unit, with their band.

    Raises:
        Unpredictable: If nothing of the estimate answers the row.
    """
    if row.metric.startswith("peak_memory"):
        prepared = as_it_fits(prepare(row, recorder))
        value = _peak_bytes(prepared) / _unit_bytes(row.unit)
        if row.metric.endswith("_total"):
            value *= prepared.settings.gpu_count
        return _banded(value, prepared), prepared
    analytic = _ANALYTIC.get(row.metric)
    if analytic is None:
        raise Unpredictable(f"no estimate of {row.metric}")
    value = analytic(row, recorder)
    return Range(value=value, low=value * (1 - ROUNDING), high=value * (1 + ROUNDING)), None


def as_it_fits(prepared: PreparedRow) -> PreparedRow:
    """The row with full recompute, where it names none and would not fit without."""
    settings = prepared.settings
    if "recompute" not in settings.assumed or settings.axes.recompute == FULL:
        return prepared
    available = available_bytes(prepared.gpu, prepared.recorder)
    if memory_terms(prepared).total <= available:
        return prepared
    return replace(
        prepared, settings=replace(settings, axes=replace(settings.axes, recompute=FULL))
    )


def _unit_bytes(unit: str) -> float:
    """What a tool means by its unit: most print GiB and call it GB."""
    if unit.startswith("MiB"):
        return BYTES_PER_MIB
    return BYTES_PER_GB if "decimal" in unit else BYTES_PER_GIB


def _peak_bytes(prepared: PreparedRow) -> float:
    """Peak as the row's tool reads it: allocations alone, or with what the context holds, too."""
    terms = memory_terms(prepared)
    row, recorder = prepared.row, prepared.recorder
    text = f"{row.unit} {row.note}"
    if re.search(r"allocated", text):
        return float(terms.total - terms.overhead)
    if re.search(r"reserved|torchtitan", text + row.source, re.IGNORECASE):
        context = recorder.assume("training_unreserved_context_gib").value
        return float(terms.total) - context * BYTES_PER_GIB
    return float(terms.total)


def memory_terms(prepared: PreparedRow) -> MemoryTerms:
    """Memory of the fullest GPU under the row's own layout. [B]"""
    run, architecture = prepared.run, prepared.architecture
    given = prepared.row.layout.get("trainable") if prepared.trains_adapter else None
    model = MemoryModel(
        run=run,
        parts=model_parts(architecture, prepared.settings.sequence_tokens),
        state=state_bytes(
            run,
            architecture,
            prepared.recorder,
            adapter_parameters=given or _target_parameters(prepared),
        ),
        gpu=prepared.gpu,
        named_stack=prepared.traits.name,
        loss=prepared.loss,
    )
    return model.on_stack(prepared.settings.axes, prepared.recorder, prepared.traits)


def _target_parameters(prepared: PreparedRow) -> int | None:
    """Adapter weights where a row names single projections of attention."""
    targets = str(prepared.row.layout.get("targets") or "").split(",")
    if not prepared.trains_adapter or not set(targets) <= set(_TARGET_MATRICES):
        return None
    hidden, rank = prepared.architecture.hidden_size, int(prepared.row.layout.get("rank") or 16)
    total = 0
    for group in prepared.architecture.layer_groups:
        mixing = group.attention
        widths = {"q": mixing.query_width, "k": mixing.key_value_width // 2}
        widths["v"] = widths["k"]
        total += group.count * sum(rank * (hidden + widths[name]) for name in targets)
    return total


def memory_kind(prepared: PreparedRow) -> str:
    """Class of a row by how its weights are trained and divided."""
    axes = prepared.settings.axes
    if prepared.trains_adapter:
        return "adapter"
    if axes.pipeline > 1 or axes.tensor > 1:
        return "split"
    return "single" if axes.data == 1 else "sharded"


def _banded(value: float, prepared: PreparedRow) -> Range:
    band = prepared.recorder.assume("training_memory_residual_factor")
    return Range(value=value, low=value * band.low, high=value * band.high)


def _states(row: TrainingRow, _: Recorder) -> float:
    """Model states of mixed Adam under a sharding stage, decimal GB."""
    count = float(row.shape["params_total"])
    total = training_memory.training_state_bytes(
        parameter_count=count,
        weight_bytes_per_parameter=2,
        gradient_bytes_per_parameter=2,
        optimizer_bytes_per_parameter=12,
        zero_stage=int(row.layout["zero"]),
        shard_count=int(row.layout["dp"]),
    )
    return float(total) / BYTES_PER_GB


def _layer_states(row: TrainingRow, _: Recorder) -> float:
    """Weights, gradients and optimizer of the layers alone, over tensor and pipeline. [GiB]"""
    layers, hidden = float(row.shape["layers"]), float(row.shape["hidden"])
    held: float = 12 * layers * hidden**2 / (row.layout["tp"] * row.layout["pp"])
    return 18.0 * held / BYTES_PER_GIB


def _textbook_layer(row: TrainingRow, *, sequence_parallel: bool, recompute: str) -> float:
    """Bytes of one layer by the textbook count; full recompute keeps its input. [B]"""
    tokens, hidden, t = row.sequence_tokens or 0, row.shape["hidden"], int(row.layout["tp"])
    if recompute == "full":
        return 2.0 * float(hidden) * tokens * (row.micro_batch or 1)
    return float(
        training_memory.textbook_activation_bytes_per_layer(
            sequence_tokens=tokens,
            micro_batch_sequences=row.micro_batch or 1,
            hidden_size=hidden,
            tensor_parallel=t,
            sequence_parallel=sequence_parallel,
            num_attention_heads=row.shape["heads"] if recompute == "none" else 0,
        )
    )


def _activation_share(row: TrainingRow, _: Recorder) -> float:
    """Activations against tensor parallelism alone, nothing recomputed. [%]"""
    base = _textbook_layer(row, sequence_parallel=False, recompute="none")
    sequence = bool(row.layout.get("sp"))
    return 100.0 * _textbook_layer(row, sequence_parallel=sequence, recompute=row.recompute) / base


def _activations(row: TrainingRow, _: Recorder) -> float:
    """Activations of the first pipeline stage. [GiB]"""
    stages, chunks = int(row.layout["pp"]), int(row.layout.get("interleave") or 1)
    in_flight = training_time.chunks_in_flight(
        pipeline_parallel=stages, virtual_pipeline_stages=chunks, micro_batch_count=8 * stages
    )
    layers = row.shape["layers"] / (stages * chunks)
    layer = _textbook_layer(
        row, sequence_parallel=bool(row.layout.get("sp")), recompute=row.recompute
    )
    return float(layer * layers * in_flight) / BYTES_PER_GIB


_ANALYTIC: dict[str, Callable[[TrainingRow, Recorder], float]] = {
    "analytic_model_states_per_gpu": _states,
    "analytic_params_plus_optimizer_per_gpu": _layer_states,
    "activation_pct_of_tp_baseline": _activation_share,
    "analytic_activation_per_gpu": _activations,
}
"""Published equations, which the estimate must reproduce."""
