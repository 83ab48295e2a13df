"""Rows of serving results, resolved to a replica: what is given, and rules for what is not."""

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from service.accuracy.scoring import UNUSABLE, is_usable
from service.accuracy.serving.architecture import architecture_of
from service.accuracy.serving.cells import (
    Row,
    Unpredictable,
    as_number,
    count,
    number,
    positive,
    text,
)
from service.accuracy.serving.engines import engine_of
from service.core.architecture.model import ModelArchitecture
from service.core.hardware import Gpu
from service.core.recorder import Recorder
from service.core.replica.search import legal_tensor_parallel
from service.core.replica.shape import WIDE_BITS, Layout, ReplicaShape, matrix_mode
from service.core.run.memory import available_bytes
from service.core.snapshot import CatalogSnapshot

Batch = Literal["given", "engine", "latency limit", "arrivals"]

OLD_VLLM = "vllm-before-0.8"
RECORDS_MEAN = {"fp16": "bf16", "int4": "int4-group-128"}
"""Formats that a record's word stands for, where the catalog's own key is another's."""
CACHE_IN_8_BIT = {"tensorrt-llm", "mlperf-submission"}
"""Engines that keep the cache of 8-bit and narrower weights in 8 bit."""
SWEPT_IN_8_BIT = {"vllm", "sglang"}
"""Engines whose current benchmarks of such weights do the same; their memory logs do not."""
ENDLESS = {"inf", "infinite", "infinity"}
"""A rate at which all requests arrive at the start."""
SPEEDS = {"offline_throughput", "online_throughput", "tpot", "ttft"}
UNSTATED_INPUT_TOKENS = 512
UNSTATED_OUTPUT_TOKENS = 1000
SWEEP_LENGTH_FRACTION = 0.9
"""Mean length over nominal in sweeps that draw lengths evenly from 80 to 100 % of it."""
FITTING_FRACTION = 0.5
"""Share of a GPU's memory that weights may take where tensor parallelism is not stated."""
FAST_PACE_S = 0.02
"""Pace below which latent attention is split over GPUs instead of their sequences."""
FAST_LIMITS_S = (1.5, 0.015)
"""Limits of interactive benchmarks, where a row does not say which."""
USUAL_LIMITS_S = (2.0, 0.2)
"""Limits of the most common server benchmark, where a row that kept limits does not say which."""


@dataclass(frozen=True)
class ServingRow:
    """A row with everything resolved that its prediction depends on."""

    row: Row
    measured: float
    shape: ReplicaShape
    engine: str
    layout: Layout
    replica_count: float
    input_tokens: float
    output_tokens: float
    batch: Batch
    requests: float
    """Requests in flight on one replica, or arrivals per second on one replica."""
    assumed: tuple[str, ...]
    """What the row does not state."""

    @property
    def family(self) -> str:
        """Engine without its version, old and new generations apart."""
        return family_of(self.engine)

    @property
    def is_alone(self) -> bool:
        """True for one request at a time."""
        return self.batch == "given" and self.requests <= 1

    @property
    def is_current_sweep(self) -> bool:
        """True for engines of today at a stated number of clients, more than one."""
        is_current = self.family in {"vllm", "sglang", "tensorrt-llm"}
        return is_current and self.batch == "given" and not self.is_alone

    @property
    def is_mixture(self) -> bool:
        """True for architectures with routed experts."""
        return self.shape.architecture.is_mixture


def family_of(engine: str) -> str:
    """Engine without its version, old and new generations apart."""
    name, _, version = engine.rpartition("-")
    if name == "vllm" and tuple(map(int, re.findall(r"\d+", version)[:2])) < (0, 8):
        return OLD_VLLM
    return name


def resolved(row: Row, snapshot: CatalogSnapshot, recorder: Recorder) -> ServingRow:
    """Resolve a row by the catalog's names.

    Raises:
        Unpredictable: If the row names what the catalog does not hold or lacks what it needs.
    """
    gpu, architecture = (
        _gpu(row, snapshot),
        architecture_of(text(row, "model"), text(row, "arch"), snapshot),
    )
    if architecture is None:
        raise Unpredictable("architecture not known")
    engine = engine_of(text(row, "engine"), text(row, "engine_version"), snapshot)
    if engine is None:
        raise Unpredictable("engine not known")
    assumed: list[str] = []
    shape = _shape(row, architecture, gpu, recorder, assumed)
    cached = snapshot.formats[_cache_format(row, shape, family_of(engine), snapshot, assumed)]
    shape = replace(shape, kv_format=cached)
    layout = _layout(row, shape, recorder, assumed)
    gpu_count = number(row, "gpu_count") or float(layout.gpu_count)
    lengths = _lengths(row, assumed)
    batch, requests = _batch(row, gpu_count / layout.gpu_count)
    measured = positive(row, "measured_value")
    if measured is None:
        raise Unpredictable("measured value not stated")
    if not is_usable(measured):
        raise Unpredictable(UNUSABLE)
    return ServingRow(
        row=row,
        measured=measured,
        shape=shape,
        engine=engine,
        layout=layout,
        replica_count=max(gpu_count / layout.gpu_count, 1.0),
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        batch=batch,
        requests=requests,
        assumed=tuple(assumed),
    )


def _gpu(row: Row, snapshot: CatalogSnapshot) -> Gpu:
    key = snapshot.key_of("gpu", text(row, "gpu"))
    if key is None:
        raise Unpredictable("GPU not known")
    gpu = snapshot.gpus[key]
    if "pcie" in key and "nvlink" not in row["note"].lower():
        return gpu.model_copy(update={"scale_up_domain_gpu_count": 1})
    return gpu


def _shape(
    row: Row, architecture: ModelArchitecture, gpu: Gpu, recorder: Recorder, assumed: list[str]
) -> ReplicaShape:
    """The replica's shape, its cache in 16 bit."""
    formats = recorder.snapshot.formats
    available = available_bytes(gpu, recorder)
    written = text(row, "weight_precision").strip("? ")
    name = _format_name(written, architecture, gpu, recorder.snapshot)
    if name is None:
        assumed.append("weight format")
        room = 0.8 * available * (number(row, "gpu_count") or 1)
        count = architecture.parameter_count
        fitting = (k for k in ("bf16", "fp8") if count * formats[k].bytes_per_element <= room)
        name = next(fitting, "int4-group-128")
    weights = formats[name]
    mode = matrix_mode(gpu, weights)
    if mode is None or gpu.peak_flop_per_s("bf16") is None:
        raise Unpredictable("no matrix rate for the format")
    padding = recorder.assume("expert_width_multiple", weights.key.replace(".", "_")).value
    return ReplicaShape(
        architecture=architecture,
        gpu=gpu,
        weight_format=weights,
        kv_format=formats["bf16"],
        available_bytes=available,
        expert_width_multiple=padding if architecture.is_mixture else 1.0,
        index_bytes_per_element=recorder.assume("sparse_index_bytes_per_element").value,
        weight_precision=mode,
    )


def _format_name(
    written: str, architecture: ModelArchitecture, gpu: Gpu, snapshot: CatalogSnapshot
) -> str | None:
    """The format that a record names; None where it names none."""
    if written.lower() == "fp4":
        is_native = architecture.native_format == "mxfp4" or gpu.gpu_class == "cdna"
        return "mxfp4" if is_native else "nvfp4"
    key = snapshot.key_of("format", written) if written else None
    if written and key is None:
        raise Unpredictable("weight format not known")
    return RECORDS_MEAN.get(key, key) if key else None


def _cache_format(
    row: Row, shape: ReplicaShape, family: str, snapshot: CatalogSnapshot, assumed: list[str]
) -> str:
    written, formats = text(row, "kv_precision"), snapshot.formats
    if written:
        key = snapshot.key_of("format", written.strip("? "))
        if key is None or formats[key].bits > WIDE_BITS:
            raise Unpredictable("cache format not known")
        return {8: "fp8", 16: "bf16"}.get(int(formats[key].bits), key)
    assumed.append("cache format")
    is_narrow = shape.weight_format.bits <= 8 and shape.gpu.peak_flop_per_s("fp8") is not None
    is_tuned = family in CACHE_IN_8_BIT
    is_swept = family in SWEPT_IN_8_BIT and row["kind"] in SPEEDS
    return "fp8" if is_narrow and (is_tuned or is_swept) else "bf16"


def _layout(row: Row, shape: ReplicaShape, recorder: Recorder, assumed: list[str]) -> Layout:
    """As stated, else the fewest GPUs whose half holds the weights; the others are replicas."""
    tensor, stages, data, experts = (count(row, name) for name in ("tp", "pp", "dp", "ep"))
    if tensor == 1 and stages <= 1 and not data and experts > 1:
        data = experts
    if tensor:
        return Layout(tensor, max(stages, 1), max(data, 1))
    assumed.append("layout")
    gpus = int(number(row, "gpu_count") or 8)
    degrees = [t for t in legal_tensor_parallel(shape) if t <= gpus and gpus % t == 0] or [1]
    limit = FITTING_FRACTION * shape.available_bytes
    whole = float(shape.weight_bytes_per_gpu(recorder, Layout(1, 1)))
    fewest = next((t for t in degrees if whole / t <= limit), degrees[-1])
    is_latent = any(group.attention.kind == "latent" for group in shape.architecture.layer_groups)
    if is_latent and shape.architecture.is_mixture and limits_s(row)[1] > FAST_PACE_S:
        return Layout(1, 1, min(gpus, 8))
    return Layout(fewest, 1, 1)


LIMIT = re.compile(r"TPOT ?<=? ?([\d.]+) ?(ms|s)")
FIRST_LIMIT = re.compile(r"TTFT ?<=? ?([\d.]+) ?(ms|s)")


def _limit(pattern: re.Pattern[str], row: Row) -> float | None:
    found = pattern.search(row["note"])
    if found is None:
        return None
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


def limits_s(row: Row) -> tuple[float, float]:
    """Time to first token and pace that a latency-limited row kept. [s, s]"""
    usual = FAST_LIMITS_S if "Interactive" in row["note"] else USUAL_LIMITS_S
    return _limit(FIRST_LIMIT, row) or usual[0], _limit(LIMIT, row) or usual[1]


def _lengths(row: Row, assumed: list[str]) -> tuple[float, float]:
    found = []
    for name, usual in (("isl", UNSTATED_INPUT_TOKENS), ("osl", UNSTATED_OUTPUT_TOKENS)):
        stated = number(row, name)
        if stated is None:
            assumed.append("lengths")
        found.append(float(usual) if stated is None else stated)
    scale = SWEEP_LENGTH_FRACTION if "InferenceMAX" in row["note"] else 1.0
    return found[0] * scale, max(found[1] * scale, 1.0)


def _batch(row: Row, replicas: float) -> tuple[Batch, float]:
    written, replicas = text(row, "concurrency_or_batch").lower(), max(replicas, 1.0)
    running = as_number(written)
    if running is not None and running > 0:
        return "given", max(running / replicas, 1.0)
    if text(row, "request_rate_qps").lower() in ENDLESS:
        return "engine", np.inf
    rate = positive(row, "request_rate_qps")
    if rate is not None:
        return "arrivals", rate / replicas
    if written.startswith("sla"):
        return "latency limit", np.inf
    if written.startswith("max") or row["kind"] in {"kv_capacity", "memory"}:
        return "engine", np.inf
    raise Unpredictable("load not stated")
