"""A group of GPUs that talks in every layer is never cut by the edge of an instance."""

from datetime import date
from decimal import Decimal

import pytest

from service.core.costs.offers import offers_by_size
from service.core.planners.plan import estimate_fleet
from service.core.planners.serving import plan_replica
from service.core.pooling.workloads import ReplicaCapacity
from service.core.prices import RentalPrice
from service.core.recorder import Recorder
from service.core.replica.shape import instance_reach
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.serving_service import ServingService
from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

H100 = "h100-sxm5-80gb"
BASE = {
    "name": "assistant",
    "architecture": "llama-3.1-405b",
    "gpu": H100,
    "weight_format": "fp8",
    "load": {"kind": "peak_requests", "peak_requests_per_s": 2},
    "input_tokens_mean": 1000,
    "output_tokens_mean": 200,
}


def plan(snapshot, gpu_count_per_instance, **changes):
    return plan_replica(
        ServingService(**BASE | changes),
        snapshot=snapshot,
        recorder=Recorder(snapshot),
        gpu_multiple=gpu_count_per_instance,
        pointer="/scenario/serving_services/0",
    )


@pytest.mark.parametrize("instance", [1, 2, 4, 8])
@pytest.mark.parametrize("architecture", ["llama-3.1-405b", "llama-3.3-70b", "deepseek-v3"])
def test_tensor_groups_fit_into_an_instance(snapshot, instance, architecture):
    found = plan(snapshot, instance, architecture=architecture)
    if isinstance(found, ReplicaCapacity):
        layout = found.layout
        assert layout.tensor_parallel * layout.data_parallel <= instance
    else:
        assert {reason.code for reason in found} == {"memory"}


def test_a_group_larger_than_the_instance_is_refused_with_a_fix_that_works(snapshot):
    layout = {"tensor_parallel": 8, "pipeline_parallel": 2}
    (reason,) = plan(snapshot, 4, replica={"layout": layout})
    assert (reason.code, reason.needed, reason.available) == ("layout", 8, 4)
    assert "instances of 4 GPUs" in reason.limit
    assert reason.nearest_fix.startswith("tensor_parallel 4;")
    fixed = plan(snapshot, 4, replica={"layout": {"tensor_parallel": 4, "pipeline_parallel": 4}})
    assert isinstance(fixed, ReplicaCapacity)
    assert isinstance(plan(snapshot, 8, replica={"layout": layout}), ReplicaCapacity)


def test_only_a_racks_link_spans_instances(snapshot):
    rack, server = snapshot.gpu("gb200-nvl72"), snapshot.gpu(H100)
    assert instance_reach(rack, 4) == 72  # trays of four share the link of the rack
    assert instance_reach(server, 4) == 4
    assert instance_reach(server, 8) == 8
    assert instance_reach(server, 32) == 8  # further nodes are reached over the network
    # A rack of 32 of these exists; one that is rented alone stands alone.
    assert instance_reach(snapshot.gpu("gh200-96gb"), 1) == 1
    found = plan(snapshot, 4, gpu="gb200-nvl72", replica={"layout": {"tensor_parallel": 8}})
    assert isinstance(found, ReplicaCapacity)


def rented(snapshot, method, **changes):
    scenario = Scenario(
        horizon={"start_month": "2027-01", "month_count": 1},
        serving_services=[BASE | changes],
        pooling={"kind": "separate"},
        procurement=[{"method": {"kind": "rent"} | method}],
    )
    return estimate_fleet(scenario, snapshot=snapshot)[0]


def test_a_rental_of_a_named_small_instance_prices_no_larger_group(snapshot):
    single = next(
        row
        for row in snapshot.rental_prices
        if (row.gpu, row.gpu_count, row.commitment, row.quality) == (H100, 1, "on_demand", "listed")
    )
    method = {"provider": single.provider, "instance_type": single.instance_type}
    small = {"architecture": "llama-3.1-8b"}
    assert rented(snapshot, method, **small).serving_services[0].layout.tensor_parallel == 1
    # 70B in bf16 (141 GB) is cut into stages, which the network joins, and never within a layer.
    [service] = rented(
        snapshot, method, architecture="llama-3.3-70b", weight_format="bf16"
    ).serving_services
    assert service.layout.tensor_parallel == 1
    assert service.layout.pipeline_parallel > 1


def price(count, amount, **changes):
    given = {
        "key": f"p.{count}.{amount}",
        "provider": "p",
        "region": "any",
        "instance_type": f"{count}x",
        "gpu": H100,
        "gpu_count": count,
        "commitment": "on_demand",
        "price_per_gpu_hour": amount,
        "valid_from": date(2026, 1, 1),
    }
    return RentalPrice(**given | changes)


def test_each_size_of_instance_offers_its_cheapest_usable_price(snapshot):
    rows = (
        price(8, "2.00"),
        price(8, "1.90", provider="q", key="q.8"),
        price(1, "1.50"),
        price(4, "0.10", quality="suspect"),
        price(2, "0.20", commitment="spot"),
    )
    method = RentMethod(kind="rent", commitment="on_demand")
    found = offers_by_size(
        method, gpu=snapshot.gpus[H100], listed=rows, currency="USD", snapshot=snapshot
    )
    assert {row.gpu_count: row.price_per_gpu_hour for row in found} == {
        8: Decimal("1.90"),
        1: Decimal("1.50"),
    }


def test_a_size_weighs_small_instances_against_large_groups(snapshot):
    # 70B in fp8 (70.6 GB) leaves too little of one 80 GB card: single instances cannot serve it.
    asked = {
        "architecture": "llama-3.3-70b",
        "weight_format": "fp8",
        "load": {"kind": "peak_requests", "peak_requests_per_s": 4},
        "input_tokens_mean": 1000,
        "output_tokens_mean": 200,
        "objectives": {"tpot_mean_s": 0.05},
    }
    for option in estimate_serving_size(ServingSizeQuestion(**asked), snapshot).options:
        layout = option.layout
        group = layout.tensor_parallel * layout.attention_data_parallel
        assert group <= instance_reach(snapshot.gpu(option.gpu), option.gpu_count_per_instance)


def test_instances_that_are_too_small_are_named_and_a_price_of_nodes_works(snapshot):
    asked = {
        "architecture": "llama-3.3-70b",
        "weight_format": "fp8",
        "load": {"kind": "peak_requests", "peak_requests_per_s": 4},
        "input_tokens_mean": 1000,
        "output_tokens_mean": 200,
        "objectives": {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05},
    }
    found = estimate_serving_size(ServingSizeQuestion(**asked), snapshot)
    small = [item for item in found.rejected if "largest instance" in item.reason.limit]
    assert small
    for item in small[:3]:
        assert item.reason.needed > item.reason.available
        again = ServingSizeQuestion(
            **asked, gpus=[item.gpu], prices_per_gpu_hour={item.gpu: "1.00"}
        )
        assert estimate_serving_size(again, snapshot).options
