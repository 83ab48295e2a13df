"""A plan's replica is the estimate's, whatever the service says about its replicas."""

import pytest

from service.core.planners.serving import plan_replica
from service.core.pooling.workloads import ReplicaCapacity
from service.core.recorder import Recorder
from service.core.scenarios.serving_service import ServingService
from service.core.serving.performance import (
    ServingPerformanceQuestion,
    estimate_serving_performance,
)
from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

SERVED = {
    "architecture": "llama-3.3-70b",
    "weight_format": "fp8",
    "kv_cache_format": "fp8",
    "engine": "vllm-0.18",
    "input_tokens_mean": 1500,
    "output_tokens_mean": 400,
    "sequence_tokens_p95": 4096,
}
LOAD = {"kind": "peak_requests", "peak_requests_per_s": 40}
OBJECTIVES = {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05}
GPU = "h100-sxm5-80gb"
DRAFT = {"draft_tokens": 3, "acceptance_fraction": 0.7}

SAID = [
    {},
    {"speculation": DRAFT, "draft_architecture": "llama-3.2-1b"},
    {"prefix_cache_hit_fraction": 0.6},
    {"disaggregation": {"transfer_gb_per_s": 50}},
    {"layout": {"tensor_parallel": 4}},
    {"adapter_parameter_count": 400_000_000},
    {"prefill_chunk_tokens": 512, "prompts_join_steps": True},
    {"power_cap_fraction": 0.6},
]


def planned(snapshot, served, said, recorder=None):
    service = ServingService(
        name="assistant", gpu=GPU, load=LOAD, objectives=OBJECTIVES, replica=said, **served
    )
    found = plan_replica(
        service,
        snapshot=snapshot,
        recorder=recorder or Recorder(snapshot),
        gpu_multiple=8,
        pointer="/scenario/serving_services/0",
    )
    assert isinstance(found, ReplicaCapacity), found
    return found


def sized(snapshot, served, said):
    question = ServingSizeQuestion(
        **served,
        **said,
        load=LOAD,
        objectives=OBJECTIVES,
        gpus=[GPU],
        prices_per_gpu_hour={GPU: "2.00"},  # for nodes of eight, as the plan rents them
    )
    [option] = estimate_serving_size(question, snapshot).options
    return option


MIXTURE = SERVED | {"architecture": "gpt-oss-120b", "weight_format": "mxfp4"}


@pytest.mark.parametrize("said", SAID, ids=[next(iter(each), "nothing") for each in SAID])
@pytest.mark.parametrize("served", [SERVED, MIXTURE], ids=["dense", "mixture"])
def test_a_plans_replica_is_the_one_of_the_estimate(snapshot, served, said):
    plan, option = planned(snapshot, served, said), sized(snapshot, served, said)
    layout = option.layout
    assert plan.layout.tensor_parallel == layout.tensor_parallel
    assert plan.layout.pipeline_parallel == layout.pipeline_parallel
    assert plan.layout.data_parallel == layout.attention_data_parallel
    assert plan.gpu_count_per_replica == option.gpu_count_per_replica
    assert plan.concurrency_per_replica == option.running_requests
    # The same numbers and ranges; they are computed in arrays here and one by one there.
    for name in ("units_per_s_per_replica", "tpot_mean_s", "ttft_p95_s"):
        mine, theirs = getattr(plan, name), getattr(option, name)
        assert (mine.value, mine.low, mine.high) == pytest.approx(
            (theirs.value, theirs.low, theirs.high), rel=1e-9
        )


@pytest.mark.parametrize("said", SAID, ids=[next(iter(each), "nothing") for each in SAID])
def test_performance_at_the_plans_layout_is_the_plans(snapshot, said):
    recorder = Recorder(snapshot)
    plan = planned(snapshot, SERVED, said, recorder)
    copies = {each.name: each.value for each in recorder.quantities()}
    layout = {
        "tensor_parallel": plan.layout.tensor_parallel,
        "pipeline_parallel": plan.layout.pipeline_parallel,
        "attention_data_parallel": plan.layout.data_parallel,
    }
    asked = SERVED | said | {"gpu": GPU, "layout": layout}
    # No spare is stated, so replicas are planned at 1 / 1.1 of what they serve.
    found = estimate_serving_performance(
        ServingPerformanceQuestion(
            **asked,
            running_requests=plan.concurrency_per_replica
            // int(copies.get("decode_copies_per_replica", 1)),
            utilization_fraction=1 / 1.1,
        ),
        snapshot,
    )
    assert found.gpu_count_per_replica == plan.gpu_count_per_replica
    for name in ("units_per_s_per_replica", "tpot_mean_s", "ttft_p95_s"):
        mine = getattr(plan, name)
        theirs = getattr(found, name.removesuffix("_per_replica"))
        assert (mine.value, mine.low, mine.high) == pytest.approx(
            (theirs.value, theirs.low, theirs.high), rel=1e-9
        )


def test_what_is_said_moves_the_plan_as_it_should(snapshot):
    plain = planned(snapshot, SERVED, {})

    def gpus_per_unit(said):
        found = planned(snapshot, SERVED, said)
        return found.gpu_count_per_replica / found.units_per_s_per_replica.value

    alone = plain.gpu_count_per_replica / plain.units_per_s_per_replica.value
    assert gpus_per_unit({"prefix_cache_hit_fraction": 0.6}) < alone
    assert gpus_per_unit({"power_cap_fraction": 0.5}) > alone
    drafts = {"draft_tokens": 3, "acceptance_fraction": 0.7}
    assert gpus_per_unit({"speculation": drafts}) < alone
    rejected = {"draft_tokens": 8, "acceptance_fraction": 0.0}
    assert gpus_per_unit({"speculation": rejected}) > alone


def test_settings_of_a_replica_need_an_estimated_capacity():
    measured = {"kind": "measured", "units_per_s_per_replica": 4, "gpu_count_per_replica": 4}
    with pytest.raises(ValueError, match="leave it out"):
        ServingService(
            name="a", gpu=GPU, load=LOAD, capacity=measured, replica={"speculation": DRAFT}
        )
