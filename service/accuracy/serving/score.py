"""Rows of serving results against the estimate: scored, cross-validated, and the plain roofline."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from service.accuracy.files import EXTRA
from service.accuracy.scoring import (
    UNFORESEEN,
    FileScore,
    ScoredRow,
    Split,
    UnpredictedRow,
    is_usable,
    unforeseen,
)
from service.accuracy.serving.cells import Row, Unpredictable, text
from service.accuracy.serving.fit import FactorLookup, HeldOut, folds_of
from service.accuracy.serving.predict import predicted
from service.accuracy.serving.roofline import plain_roofline
from service.accuracy.serving.rows import ServingRow, resolved
from service.core.errors import NoConstants
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.snapshot import CatalogSnapshot

LOWER_IS_BETTER = {"ttft", "tpot", "memory", "cost"}
FITTED_KINDS = {"offline_throughput", "online_throughput", "tpot", "ttft"}
LARGE_CARD_GB = 70
Factors = Mapping[str, float]


def score_serving(rows: Sequence[Row], snapshot: CatalogSnapshot) -> FileScore:
    """Predict every row of quality A or B by the catalog's constants."""
    return score_with(rows, snapshot, lambda _case: {})


def cross_validate_serving(
    rows: Sequence[Row],
    folds: Sequence[Row],
    snapshot: CatalogSnapshot,
    held_out: HeldOut = "group",
) -> FileScore:
    """Predict every row by constants that were fitted without its group, or its source.

    Args:
        rows: The validation set.
        folds: Factors on the catalog's constants by name, what is held out, and fold.
        snapshot: The catalog.
        held_out: What the constants of a row have not seen.
    """
    recorder = Recorder(snapshot).off()
    found = (_resolved(row, snapshot, recorder) for row in rows)
    cases = [case for case in found if isinstance(case, ServingRow)]
    numbers = folds_of(cases, held_out)
    fold_of = {case.row["id"]: int(n) for case, n in zip(cases, numbers, strict=True)}
    factors: dict[int, dict[str, float]] = defaultdict(dict)
    for entry in folds:
        if entry["held_out"] == held_out:
            factors[int(entry["fold"])][entry["name"]] = float(entry["factor"])
    return score_with(
        rows, snapshot, lambda case: factors[fold_of[case.row["id"]]], cross_validated=True
    )


def fitted_cases(rows: Sequence[Row], snapshot: CatalogSnapshot) -> list[ServingRow]:
    """Rows of speed that can be predicted: what constants are fitted to."""
    recorder = Recorder(snapshot).off()
    found = (_resolved(row, snapshot, recorder) for row in rows if row["kind"] in FITTED_KINDS)
    return [
        case
        for case in found
        if isinstance(case, ServingRow) and isinstance(_estimate(case, {}, recorder), ScoredRow)
    ]


def score_roofline(rows: Sequence[Row], snapshot: CatalogSnapshot) -> FileScore:
    """The same rows by a plain roofline of whole-model fractions: the floor to beat."""
    recorder = Recorder(snapshot).off()
    scored = []
    for row in rows:
        case = _resolved(row, snapshot, recorder)
        if not isinstance(case, ServingRow):
            continue
        try:
            value = plain_roofline(case, recorder)
        except (Unpredictable, *UNFORESEEN):
            continue
        if value is not None and is_usable(value):
            scored.append(_scored(case, value, np.zeros(2), suffix="_plain_roofline"))
    return FileScore(file="serving", scored=tuple(scored), by_group=True, is_floor=True)


def _resolved(
    row: Row, snapshot: CatalogSnapshot, recorder: Recorder
) -> ServingRow | UnpredictedRow | None:
    """The row resolved, why it cannot be, or None for a row that is not to be scored."""
    quality = (text(row, "quality") or "A").upper()
    if quality == "C":
        return None
    if row.get(EXTRA):
        return UnpredictedRow(row["id"], row["kind"], "more cells than columns")
    if quality not in {"A", "B"}:
        return UnpredictedRow(row["id"], row["kind"], "quality is none of A, B and C")
    try:
        return resolved(row, snapshot, recorder)
    except Unpredictable as missing:
        return UnpredictedRow(row["id"], row["kind"], missing.reason)
    except UNFORESEEN as fault:
        return UnpredictedRow(row["id"], row["kind"], unforeseen(fault))


def score_with(
    rows: Sequence[Row],
    snapshot: CatalogSnapshot,
    factors_of: Callable[[ServingRow], Factors],
    *,
    cross_validated: bool = False,
) -> FileScore:
    """Predict every row of quality A or B by the catalog's constants times factors."""
    recorder = Recorder(snapshot).off()
    scored: list[ScoredRow] = []
    unpredicted: list[UnpredictedRow] = []
    with np.errstate(all="ignore"):  # sizes that do not fit are scored as such, not warned of
        for row in rows:
            case = _resolved(row, snapshot, recorder)
            if isinstance(case, ServingRow):
                found = _estimate(case, factors_of(case), recorder)
                (scored if isinstance(found, ScoredRow) else unpredicted).append(found)  # type: ignore[arg-type]
            elif case is not None:
                unpredicted.append(case)
    return FileScore(
        file="serving",
        scored=tuple(scored),
        unpredicted=tuple(unpredicted),
        by_group=True,
        cross_validated=cross_validated,
    )


def _estimate(case: ServingRow, factors: Factors, recorder: Recorder) -> ScoredRow | UnpredictedRow:
    engine = engine_qualifiers(recorder.snapshot, case.engine, pointer="")
    look = FactorLookup(recorder, engine, factors=factors)
    try:
        value = float(predicted(case, look, recorder))
        band = _band(case, Lookup(recorder, engine))
    except Unpredictable as missing:
        return UnpredictedRow(case.row["id"], case.row["kind"], missing.reason)
    except UNFORESEEN as fault:
        return UnpredictedRow(case.row["id"], case.row["kind"], unforeseen(fault))
    except NoConstants:
        reason = f"no constants of GPU class {case.shape.gpu.gpu_class}"
        return UnpredictedRow(case.row["id"], case.row["kind"], reason)
    if not is_usable(value):
        return UnpredictedRow(case.row["id"], case.row["kind"], "no finite estimate")
    return _scored(case, value, band)


def _scored(case: ServingRow, value: float, band: Any, suffix: str = "") -> ScoredRow:
    row = case.row
    return ScoredRow(
        id=row["id"],
        kind=row["kind"] + suffix,
        part=_part(case) + suffix,
        group=row["group"],
        split=Split(
            dense_or_moe="moe" if case.is_mixture else "dense",
            generation=case.shape.gpu.gpu_class,
            stack=case.family,
        ),
        predicted=value,
        low=value * float(np.exp(band[0])),
        high=value * float(np.exp(band[1])),
        actual=case.measured,
        higher_is_better=row["kind"] not in LOWER_IS_BETTER,
    )


def _part(case: ServingRow) -> str:
    """The row's kind, with one request alone and requests among others apart."""
    kind = case.row["kind"]
    if kind not in {"tpot", "ttft"}:
        return kind
    return f"{kind}_alone" if case.is_alone else f"{kind}_loaded"


def _band(case: ServingRow, look: Lookup) -> Any:
    """Logarithms of the band's ends over the estimate."""
    kind = "mixture" if case.is_mixture else "dense"
    name = _residual(case)
    qualifiers: tuple[str, ...] = (kind,)
    if name == "kv_pool":
        is_large = case.shape.gpu.memory_gb >= LARGE_CARD_GB
        qualifiers = ("large_card" if is_large else "small_card", kind)
    found = look.assumption(f"{name}_residual_factor", *qualifiers)
    ends = np.log([found.low, found.high])
    is_cost = case.row["kind"] == "cost"  # none names the length of its test
    if is_cost:
        ends = -ends[::-1]
    wider = look.exact("gpu_class_band_factor", case.shape.gpu.gpu_class)
    is_open = case.row["kind"] != "kv_capacity" and {"lengths", "weight format"} & set(case.assumed)
    if is_cost or is_open:
        wider *= look.exact("unstated_band_factor")
    return ends * wider


def _residual(case: ServingRow) -> str:
    kind = case.row["kind"]
    if kind == "tpot":
        return "one_stream" if case.is_alone else "tpot"
    if kind == "ttft":
        return "ttft" if case.is_alone else "loaded_ttft"
    if case.row["measured_metric"] == "peak_device_memory_gb":
        return "device_memory"
    names = {"kv_capacity": "kv_pool", "memory": "weights", "offline_throughput": "offline_units"}
    return names.get(kind, "units")


def residual_names(case: ServingRow, snapshot: CatalogSnapshot) -> tuple[str, ...]:
    """Residual factors that a row belongs to, from the widest class to its own."""
    base, kind = f"{_residual(case)}_residual_factor", "mixture" if case.is_mixture else "dense"
    if case.row["kind"] == "kv_capacity":
        card = "large_card" if case.shape.gpu.memory_gb >= LARGE_CARD_GB else "small_card"
        return base, f"{base}.{card}", f"{base}.{card}.{kind}"
    engine = engine_qualifiers(snapshot, case.engine, pointer="").get(base)
    own = () if engine is None else (f"{base}.{engine}.{kind}",)
    return base, f"{base}.{kind}", *own
