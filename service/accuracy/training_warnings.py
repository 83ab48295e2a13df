"""What should make a reader doubt a published row, whether it is predicted well or not."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from service.accuracy.scoring import UNFORESEEN, ScoredRow, UnpredictedRow, unforeseen
from service.accuracy.training_cases import PreparedRow, Unpredictable, prepare
from service.accuracy.training_memory import memory_terms
from service.accuracy.training_names import gpu_key
from service.accuracy.training_rows import SPEED_KINDS, TrainingRow
from service.core.errors import CoreError
from service.core.hardware import Gpu
from service.core.parallelism.axes import FULL
from service.core.recorder import Recorder
from service.core.run.memory import available_bytes
from service.core.units import FLOP_PER_S_PER_TFLOPS

AGREEMENT = 0.05
"""Two measures of one speed that differ by more do not describe the same run."""
_TFLOPS = re.compile(r"(?<!peak )\b([\d.]+(?:e[+-]?\d+)?) ?(?:model )?TFLOP/?s", re.IGNORECASE)
_MFU = re.compile(r"([\d.]+) ?% ?MFU|MFU(?: of|:)? ?([\d.]+) ?%", re.IGNORECASE)

_SAME = (
    *("origin", "kind", "model", "gpu", "gpu_count", "metric", "value", "tokens"),
    *("sequence_tokens", "micro_batch", "global_batch", "precision", "recompute"),
)
"""What two rows of one measurement share, beside layout and shape."""


def warnings_of(
    rows: Sequence[TrainingRow],
    scored: Iterable[ScoredRow],
    unpredicted: Iterable[UnpredictedRow],
    recorder: Recorder,
) -> dict[str, str]:
    """Why each doubtful row is doubted, by its id.

    A row is doubted when it is refused, when its own numbers contradict one another, when its sizes
    do not fit the GPU, when it repeats another row, or when it lies outside of the band.
    """
    found = {row.id: f"refused: {row.reason}" for row in unpredicted}
    outside = {row.id for row in scored if not row.is_in_band}
    repeated = repeats(rows)
    for row in rows:
        if row.id in found:
            continue
        doubt = _own_doubt(row, recorder)
        if doubt:
            found[row.id] = doubt
        elif row.id in repeated:
            found[row.id] = f"repeats {repeated[row.id]}"
        elif row.id in outside:
            found[row.id] = "outside of the band"
    return found


def _own_doubt(row: TrainingRow, recorder: Recorder) -> str | None:
    """Why a row is doubted by what it says itself."""
    try:
        if contradicts_itself(row, recorder):
            return "its TFLOP/s and MFU belong to no peak of the GPU"
        if is_too_large(row, recorder):
            return "its sizes do not fit the GPU"
    except UNFORESEEN as fault:
        return unforeseen(fault)
    return None


def repeats(rows: Iterable[TrainingRow]) -> Mapping[str, str]:
    """Rows with the very number of an earlier one of the same origin, model, GPU and settings."""
    first: dict[object, TrainingRow] = {}
    found: dict[str, str] = {}
    for row in rows:
        key = tuple(getattr(row, name) for name in _SAME), str(row.layout), str(row.shape)
        if key in first:
            found[row.id] = first[key].id
        first.setdefault(key, row)
    return found


def contradicts_itself(row: TrainingRow, recorder: Recorder) -> bool:
    """True where TFLOP/s and MFU of one speed belong to no peak of the GPU.

    One of the two is the row's value and the other stands in its note, or both stand in one part
    of the note.
    """
    key = gpu_key(row.gpu, recorder.snapshot)
    if key is None or row.kind not in SPEED_KINDS:
        return False
    parts = [row.note] if row.metric in {"tflops_per_gpu", "mfu_pct"} else row.note.split(";")
    for part in parts:
        tflops = row.value if row.metric == "tflops_per_gpu" else _number(_TFLOPS, part)
        percent = row.value if row.metric == "mfu_pct" else _number(_MFU, part)
        if tflops and percent:
            implied = tflops / (percent / 100.0)
            peaks = _peaks(recorder.snapshot.gpus[key])
            return all(abs(implied / peak - 1.0) > AGREEMENT for peak in peaks)
    return False


def _peaks(gpu: Gpu) -> list[float]:
    """Dense peaks of the matrices that training computes in. [TFLOP/s]"""
    found = [gpu.peak_flop_per_s(precision) for precision in ("bf16", "fp8", "int8", "fp4")]
    return [peak / FLOP_PER_S_PER_TFLOPS for peak in found if peak]


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return None if match is None else float(next(filter(None, match.groups())))


def is_too_large(row: TrainingRow, recorder: Recorder) -> bool:
    """True where the tensors of a published layout alone, without any overhead, exceed the GPU.

    What the row leaves out is taken as what needs least: one sequence, everything recomputed.
    """
    if row.kind not in SPEED_KINDS:
        return False
    try:
        prepared = _leanest(prepare(row, recorder))
    except (Unpredictable, CoreError):
        return False
    if "layout" in prepared.settings.assumed or "gpu_count" in prepared.settings.assumed:
        return False
    terms = memory_terms(prepared)
    return bool(terms.total - terms.overhead > available_bytes(prepared.gpu, recorder))


def _leanest(prepared: PreparedRow) -> PreparedRow:
    settings = prepared.settings
    changed: dict[str, int] = {}
    if "micro_batch" in settings.assumed:
        changed["micro_batch_sequences"] = 1
    if "recompute" in settings.assumed:
        changed["recompute"] = FULL
    return replace(prepared, settings=replace(settings, axes=replace(settings.axes, **changed)))
