"""Published numbers of a replica that no single formula computes."""

from service.core.formulas import roofline
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.replica.search import Choice
from service.core.replica.shape import ReplicaShape
from service.core.replica.speed import SteadyState

define_quantity(
    "gpu_count_per_replica",
    unit="count",
    per="replica",
    formula="TP · PP of the layout with the fewest GPUs for a unit of load, or as measured",
)
define_quantity(
    "concurrency_per_replica",
    unit="count",
    per="replica",
    formula="most requests that the cache and the engine hold and that meet the objectives",
)
define_quantity(
    "concurrency_at_p95_length",
    unit="count",
    per="replica",
    formula="⌊pool / bytes of a sequence at the 95th percentile of lengths⌋",
)
define_quantity(
    "output_tokens_per_s_per_replica",
    unit="token/s",
    per="replica",
    formula="answer tokens of a request · requests per second",
)
for _phase in ("decode", "prefill"):
    define_quantity(
        f"{_phase}_intensity_flop_per_byte",
        unit="FLOP/B",
        per="gpu",
        formula=f"operations of the {_phase} pass / bytes that it moves; below the ridge: memory",
        sources=(roofline.ROOFLINE,),
    )
    define_quantity(
        f"{_phase}_attainable_flop_per_s",
        unit="FLOP/s",
        per="gpu",
        formula="min(peak, intensity · bandwidth)",
        sources=(roofline.ROOFLINE,),
    )


def record_choice(
    recorder: Recorder, choice: Choice, *, sequences_at_p95: float, output_tokens_per_s: float
) -> None:
    """Size of the replica, and what it holds and yields at once."""
    recorder.note("gpu_count_per_replica", choice.gpu_count)
    recorder.note("concurrency_per_replica", choice.concurrency)
    is_bounded = sequences_at_p95 < float("inf")
    recorder.note("concurrency_at_p95_length", sequences_at_p95 if is_bounded else None)
    recorder.note("output_tokens_per_s_per_replica", output_tokens_per_s)


def record_rates(
    recorder: Recorder, shape: ReplicaShape, choice: Choice, state: SteadyState
) -> None:
    """Cache of a token, and where decode and prefill stand on the roofline."""
    gpu = shape.gpu
    shape.token_bytes_per_gpu(recorder, choice.layout)
    peak = gpu.peak_flop_per_s(shape.weight_precision)
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    recorder.evaluate(
        roofline.ridge_flop_per_byte, peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth
    )
    for phase, work in (("decode", state.decode), ("prefill", state.prefill)):
        intensity = float(work.flops / work.moved_bytes)
        recorder.note(f"{phase}_intensity_flop_per_byte", intensity)
        rate = roofline.attainable_flop_per_s(
            intensity_flop_per_byte=intensity,
            peak_flop_per_s=peak,
            bandwidth_bytes_per_s=bandwidth,
        )
        recorder.note(f"{phase}_attainable_flop_per_s", rate)
