"""The floor that the model must beat: one roofline of the whole, three fractions a class."""

import numpy as np

from service.accuracy.serving.predict import Prediction
from service.accuracy.serving.rows import ServingRow
from service.core.formulas.roofline import experts_touched
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers

FRACTIONS = {
    "hopper": (0.70, 0.43, 0.60),
    "ampere": (0.70, 0.45, 0.68),
    "ada": (0.75, 0.33, 0.65),
    "blackwell": (0.60, 0.25, 0.45),
    "cdna": (0.55, 0.35, 0.40),
}
"""Bandwidth of decode, compute of decode and compute of prefill, as shares of the data sheet's."""
KINDS = {"offline_throughput", "online_throughput", "tpot", "ttft"}
USUAL = (0.70, 0.40, 0.60)


def plain_roofline(case: ServingRow, recorder: Recorder) -> float | None:
    """What a roofline without engine, kernels or links says; None where it says nothing."""
    shape, layout, row = case.shape, case.layout, case.row
    whole, gpus = shape.architecture, float(layout.gpu_count)
    peak = shape.gpu.peak_flop_per_s(shape.weight_precision)
    if peak is None or row["kind"] not in KINDS:
        return None
    memory_use, decode_use, prefill_use = FRACTIONS.get(shape.gpu.gpu_class, USUAL)
    running = _running(case, recorder)
    touched = 1.0
    if shape.experts is not None:
        rows = shape.experts
        share = experts_touched(
            num_experts=rows.expert_count,
            num_experts_per_token=rows.experts_per_token,
            tokens=running,
        )
        touched = float(np.mean(share / rows.expert_count))
    fixed = whole.parameter_count - whole.routed_parameter_count
    read = (fixed + touched * whole.routed_parameter_count) * shape.weight_format.bytes_per_element
    footprint = Prediction(case, _lookup(case, recorder), recorder).footprint
    length = case.input_tokens + case.output_tokens / 2
    cache = shape.sequence_bytes_per_gpu(recorder, footprint.memory, layout, length)
    cached = float(cache) * running / layout.data_parallel
    seconds = (read / gpus + cached) / (memory_use * shape.gpu.memory_bandwidth_bytes_per_s)
    work = 2 * whole.active_parameter_count / gpus / peak
    step = max(seconds, work * running / decode_use)
    prompt = work * case.input_tokens / prefill_use
    return _answer(case, running, step, prompt)


def _lookup(case: ServingRow, recorder: Recorder) -> Lookup:
    return Lookup(recorder, engine_qualifiers(recorder.snapshot, case.engine, pointer=""))


def _running(case: ServingRow, recorder: Recorder) -> float:
    most = float(Prediction(case, _lookup(case, recorder), recorder).most_running)
    return min(case.requests, most) if case.batch == "given" else min(most, 256.0)


def _answer(case: ServingRow, running: float, step: float, prompt: float) -> float | None:
    metric, output = case.row["measured_metric"], case.output_tokens
    if metric == "output_tokens_per_s":
        rate = running * output / (output * step + running * prompt)
        scale = {"gpu": 1 / float(case.layout.gpu_count), "replica": 1.0}
        return rate * scale.get(case.row["per"], case.replica_count)
    if metric.startswith(("tpot_ms", "itl_ms")):
        return 1e3 * (step + (running - 1) / output * prompt)
    if metric == "decode_tokens_per_s_bs1":
        return 1 / step
    if metric.startswith("ttft_ms") and running <= 1:
        return 1e3 * prompt
    return None
