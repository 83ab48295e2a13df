"""Which links the groups of a layout cross: H100 nodes of 8, 450 GB/s inside, an adapter of 50."""

import numpy as np
import pytest

from service.core.parallelism.axes import SHARDINGS
from service.core.parallelism.links import (
    Links,
    context_group,
    expert_group,
    stage_group,
    tensor_group,
)
from tests.core.training_runs import assumed, axes, case_of

HYBRID, ZERO_3 = SHARDINGS.index("hybrid"), SHARDINGS.index("zero_3")
MIXTURE = {
    "architecture": "deepseek-v3",
    "sequence_length_tokens": 4096,
    "global_batch_tokens": 15360 * 4096,
}


def model_of(stack="vendor_tuned", **fields):
    """The time of a step on one stack."""
    case = case_of(**fields)
    return case.speed.mechanism.model(stack, case.recorder.off())


def near_and_far(sent):
    return float(np.sum([s.near_bytes for s in sent])), float(np.sum([s.far_bytes for s in sent]))


NODES = Links(8, 8, 360e9, 32.5e9)


@pytest.mark.parametrize(
    ("degrees", "group", "near", "far"),
    [
        # TP 2 · CP 4 are the 8 GPUs of a node, so every stage begins in another node.
        ({"tensor": 2, "context": 4, "pipeline": 4, "data": 1}, context_group, 4, 1),
        ({"tensor": 2, "context": 4, "pipeline": 4, "data": 1}, stage_group, 1, 4),
        ({"tensor": 8, "context": 2, "data": 1}, context_group, 1, 2),
        # Four stages of two GPUs are one node.
        ({"tensor": 2, "pipeline": 4, "data": 1}, stage_group, 4, 1),
        # An expert lies over its tensor group: 16 groups of 8 are 16 nodes, 16 GPUs are 2.
        ({"tensor": 8, "expert": 16, "data": 16}, expert_group, 1, 16),
        ({"tensor": 1, "expert": 16, "data": 16}, expert_group, 8, 2),
        ({"tensor": 8, "expert": 16, "expert_tensor": 1, "data": 2}, expert_group, 8, 2),
        ({"tensor": 2, "expert": 8, "data": 8}, expert_group, 4, 2),
    ],
)
def test_ranks_of_a_node_and_nodes_of_a_group(degrees, group, near, far):
    found = group(axes(**degrees))
    assert NODES.near_rank_count(found) == near
    assert NODES.far_count(found) == far


@pytest.mark.parametrize(
    ("degrees", "group", "near"),
    [
        # Ranks 6, 7 | 8: one of three is alone. Ranks 6, 7 | 8 to 11: two of six are.
        ({"tensor": 3, "data": 8}, tensor_group, 1),
        ({"tensor": 6, "data": 4}, tensor_group, 2),
        # Six GPUs, or eight, are one node, whatever they do.
        ({"tensor": 3, "data": 2}, tensor_group, 3),
        ({"tensor": 4, "data": 8}, tensor_group, 4),
        # Ranks of two GPUs, the second three on GPUs 6 to 11: one here, two in the next node.
        ({"tensor": 2, "context": 3, "data": 4}, context_group, 1),
    ],
)
def test_groups_over_the_edge_of_a_node_have_few_ranks_there(degrees, group, near):
    assert NODES.near_rank_count(group(axes(**degrees))) == near


def test_a_tensor_group_over_the_edge_of_a_node_waits_for_its_adapter():
    """Of GPUs 6, 7 and 8 the last sends all of the ring over its adapter of 0.65 · 50 GB/s."""
    model = model_of(architecture="gpt-3-175b", sequence_length_tokens=2048)
    many = model.exchanges.tensor(axes(tensor=np.array([3, 4]), data=np.array([16, 12])), 2048)
    assert many.near_bytes[0] == 0
    assert many.far_bytes[1] == 0
    assert many.seconds[0] == pytest.approx(many.far_bytes[0] / 32.5e9)
    # A ring of three sends 2 · 2/3 of its buffer, of four 2 · 3/4.
    assert many.far_bytes[0] / many.near_bytes[1] == pytest.approx((2 / 3) / (3 / 4))


def test_experts_over_whole_nodes_send_most_rows_out():
    """TP 8 · EP 16: 15 other nodes, each touched with 1 - (15/16)^8 = 0.403 by the 8 experts of a
    token: 15 · 0.403 / 8 = 0.756 of all rows. With TP 1 two nodes: (1 - (1/2)^8) / 8 = 0.125.
    """
    model = model_of(**MIXTURE, sizing={"kind": "gpu_count", "gpu_count": 2048})
    rows = 4 * 58 * 8 * 7168 * 2 * 4096
    wide = model.exchanges.experts(axes(tensor=8, expert=16, data=128), 4096)
    assert wide.near_bytes == 0
    assert wide.far_bytes == pytest.approx(rows / 8 * 15 * (1 - (15 / 16) ** 8) / 8)
    # 178e6 B a layer and micro-batch of 4,096 tokens; an adapter reaches 0.65 · 50 GB/s: 5.5 ms.
    assert wide.seconds == pytest.approx(float(wide.far_bytes) / 32.5e9)
    folded = model.exchanges.experts(axes(tensor=1, expert=16, data=128), 4096)
    assert folded.near_bytes == pytest.approx(rows * 7 / 8)
    assert folded.far_bytes == pytest.approx(rows * (1 - 0.5**8) / 8)


def test_the_step_and_the_shown_exchange_are_one_count():
    model = model_of(**MIXTURE, sizing={"kind": "gpu_count", "gpu_count": 2048})
    layout = axes(tensor=8, pipeline=2, expert=16, data=128, micro_batch_count=120)
    (shown,) = model.exchanges.step(layout)["expert"]
    # 120 micro-batches, half of the layers on a stage.
    exposed = assumed("training_all_to_all_exposed_fraction").value
    part = model.times(layout).all_to_all_s * 120 / exposed
    assert part == pytest.approx(float(shown.seconds))


def test_gradients_of_experts_have_an_adapter_each():
    """EP 8 fills a node: the copies of an expert stand in 8 nodes, one rank in each. The common
    weights of a node's 8 ranks share a ring, and its adapters."""
    model = model_of(**MIXTURE, sizing={"kind": "gpu_count", "gpu_count": 64})
    layout = axes(expert=8, data=64)
    common, routed = model.exchanges.shared(layout)
    held = model.work.routed.held_parameter_count / 8
    assert routed.near_bytes == 0
    assert routed.far_bytes == pytest.approx(held * (2 + 2) * 7 / 8)
    whole = model.work.gemm_parameter_count + model.work.outer_parameter_count
    assert common.far_bytes == pytest.approx(whole * (2 + 2) * 63 / 64 / 8)
    assert common.near_bytes == pytest.approx(whole * (2 + 2) * 63 / 64 * 7 / 8)


def test_hybrid_sharding_gathers_inside_the_node():
    """16.06e9 B of weights, 8 micro-batches: (2·8 + 8) · 16.06e9 · 7/8 = 337e9 B inside, and an
    all-reduce of an eighth over 8 nodes, 2 · 7/8 · 16.06e9/8 = 3.5e9 B. ZeRO-3 sends 63/64 · 385e9,
    an eighth of it over each adapter."""
    exchanges = model_of(architecture="llama-3.1-8b", sequence_length_tokens=8192).exchanges
    hybrid = exchanges.step(axes(data=64, sharding=HYBRID))["data"]
    near, far = near_and_far(hybrid)
    assert near == pytest.approx(337.3e9, rel=1e-3)
    assert far == pytest.approx(3.513e9, rel=1e-3)
    near, far = near_and_far(exchanges.step(axes(data=64, sharding=ZERO_3))["data"])
    assert near + far == pytest.approx(24 * 16.06e9 * 63 / 64, rel=1e-3)
    assert far == pytest.approx(24 * 16.06e9 * 63 / 64 / 8, rel=1e-3)


def test_adapters_send_no_gradients_of_the_frozen_base():
    exchanges = model_of(architecture="llama-3.1-8b", adapter={"kind": "lora"}).exchanges
    assert near_and_far(exchanges.step(axes(data=64))["data"]) == (0, 0)
    # ZeRO-3 still gathers the base twice for each of 8 micro-batches.
    near, far = near_and_far(exchanges.step(axes(data=64, sharding=ZERO_3))["data"])
    assert near + far == pytest.approx(16 * 16.06e9 * 63 / 64, rel=1e-3)


@pytest.mark.parametrize(("count", "rate"), [(2, 20e9), (4, 5e9), (8, 2e9)])
def test_gpus_without_a_link_share_the_host(count, rate):
    """All-reduces of L40S over PCI Express 4.0 x16: 20, 5 and 2 GB/s on 2, 4 and 8 GPUs."""
    exchanges = model_of(architecture="qwen2.5-1.5b", gpu="l40s-48gb").exchanges
    (sent, _) = exchanges.shared(axes(data=count))
    assert sent.is_hosted
    assert sent.far_bytes == 0
    assert sent.near_bytes / sent.seconds == pytest.approx(rate, rel=0.01)


def test_pairs_with_a_bridge_leave_it_for_the_host():
    # H100 PCIe: pairs with 300 GB/s; eight of a node meet on the host, 1/16 of 64 GB/s.
    exchanges = model_of(architecture="llama-3.1-8b", gpu="h100-pcie-80gb").exchanges
    pair, _ = exchanges.shared(axes(data=2))
    node, _ = exchanges.shared(axes(data=8))
    assert not pair.is_hosted
    assert pair.near_bytes_per_s == pytest.approx(
        300e9 * assumed("training_gather_scale_up_fraction").value
    )
    assert node.is_hosted
    assert node.near_bytes_per_s == pytest.approx(64e9 / 16)


@pytest.mark.parametrize("sharding", range(len(SHARDINGS)))
def test_many_layouts_send_what_each_sends_alone(sharding):
    exchanges = model_of(**MIXTURE).exchanges
    columns = {
        "tensor": np.array([1, 2, 8, 4]),
        "pipeline": np.array([1, 4, 2, 1]),
        "context": np.array([2, 4, 1, 1]),
        "expert": np.array([8, 4, 16, 1]),
        "data": np.array([32, 2, 16, 8]),
        "sharding": np.full(4, sharding),
    }
    many = exchanges.step(axes(**columns))
    for index in range(4):
        one = exchanges.step(axes(**{name: column[index] for name, column in columns.items()}))
        for kind, parts in one.items():
            for part, whole in zip(parts, many[kind], strict=True):
                assert float(part.seconds) == pytest.approx(
                    float(np.broadcast_to(whole.seconds, 4)[index]), rel=1e-12
                )
