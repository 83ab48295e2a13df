"""One replica of an assistant, planned as a plan does, for tests."""

from service.core.planners.serving import plan_replica
from service.core.recorder import Recorder
from service.core.scenarios.serving_service import ServingService

POINTER = "/scenario/serving_services/0"
ASSISTANT = {
    "name": "assistant",
    "architecture": "llama-3.3-70b",
    "gpu": "h100-sxm5-80gb",
    "weight_format": "fp8",
    "kv_cache_format": "fp8",
    "engine": "vllm-0.18",
    "load": {"kind": "peak_requests", "peak_requests_per_s": 40},
    "input_tokens_mean": 1500,
    "output_tokens_mean": 400,
    "sequence_tokens_p95": 4096,
}


def plan(snapshot, *, multiple=8, recorder=None, overrides=None, **changes):
    asked = {**ASSISTANT, **changes}
    service = ServingService(**{key: value for key, value in asked.items() if value is not None})
    return plan_replica(
        service,
        snapshot=snapshot,
        recorder=recorder or Recorder(snapshot, overrides=overrides or {}),
        gpu_multiple=multiple,
        pointer=POINTER,
    )


def refusal(snapshot, **changes):
    found = plan(snapshot, **changes)
    assert isinstance(found, tuple)
    (reason,) = found
    assert reason.workload == "assistant"
    return reason


def recorded(snapshot, **changes):
    recorder = Recorder(snapshot)
    answer = plan(snapshot, recorder=recorder, **changes)
    quantities = {q.name: q for q in recorder.quantities() if q.scope == "service:assistant"}
    return answer, quantities, {used.name for used in recorder.assumptions()}
