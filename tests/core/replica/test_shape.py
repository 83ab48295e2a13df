"""Weights against engine logs, and which degrees of parallelism an architecture allows."""

from dataclasses import replace

import pytest

from service.core.architecture.model import ModelArchitecture
from service.core.formulas.communication import LARGEST_SERVER_GPU_COUNT
from service.core.recorder import Recorder
from service.core.replica.search import legal_tensor_parallel
from service.core.replica.shape import Layout, ReplicaShape
from service.core.units import BYTES_PER_GIB


def shape_of(snapshot, architecture, weights, *, gpu="h100-sxm5-80gb", cache="bf16"):
    held = snapshot.gpu(gpu)
    padding = snapshot.assumption("expert_width_multiple", weights).value
    return ReplicaShape(
        architecture=snapshot.architecture(architecture),
        gpu=held,
        weight_format=snapshot.number_format(weights),
        kv_format=snapshot.number_format(cache),
        available_bytes=held.available_memory_bytes(hbm_fraction=1, gddr_fraction=1),
        expert_width_multiple=padding,
        index_bytes_per_element=1.03125,
        weight_precision="bf16",
    )


def test_a_node_of_more_gpus_than_a_server_is_a_rack_that_one_link_joins(snapshot):
    racks = [n for n in snapshot.nodes.values() if n.gpu_count > LARGEST_SERVER_GPU_COUNT]
    assert racks
    for node in racks:
        assert snapshot.gpu(node.gpu).scale_up_domain_gpu_count >= node.gpu_count


@pytest.mark.parametrize(
    ("architecture", "weights", "ranks", "logged_gib"),
    [
        # llm-d-incubation/llm-d-planner, empirical vLLM memory results.
        ("llama-3.1-8b", "bf16", 1, 14.99),
        ("qwen3-32b", "bf16", 1, 61.03),
        ("qwen3-32b", "bf16", 2, 30.59),
        ("mistral-small-24b-2501", "bf16", 1, 44.76),
        ("gpt-oss-20b", "mxfp4", 1, 13.47),
        ("gpt-oss-120b", "mxfp4", 1, 64.38),
        # ashishkamra/vllm-memory-estimator, validation_db.json: start-up logs of vLLM.
        ("llama-3.3-70b", "bf16", 4, 32.89),
        ("llama-3.3-70b", "fp8", 4, 16.95),
        ("qwen3-235b-a22b", "fp8", 4, 55.20),
        ("minimax-m2.5", "fp8", 8, 27.01),
        ("deepseek-r1", "fp8", 8, 79.88),
    ],
)
def test_weights_are_what_engines_log(snapshot, architecture, weights, ranks, logged_gib):
    shape = shape_of(snapshot, architecture, weights)
    found = shape.weight_bytes_per_gpu(Recorder(snapshot).off(), Layout(ranks, 1))
    assert float(found) / BYTES_PER_GIB == pytest.approx(logged_gib, rel=0.02)


def test_weights_in_four_bits_carry_their_scales(snapshot):
    # 671e9 parameters: 9/16 of a byte each with a scale per 16, 17/32 with one per 32.
    gigabytes = {
        key: 671e9 * snapshot.number_format(key).bytes_per_element / 1e9
        for key in ("nvfp4", "mxfp4")
    }
    assert gigabytes == pytest.approx({"nvfp4": 377.4, "mxfp4": 356.5}, rel=1e-3)


def degrees(snapshot, *, heads, kv_heads, gpu="h100-sxm5-80gb", **changes):
    shape = shape_of(snapshot, "llama-3.1-8b", "bf16", gpu=gpu)
    described = shape.architecture.model_dump()
    heads_of = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    described["layer_groups"][0]["attention"] |= heads_of
    shape = replace(
        shape,
        architecture=ModelArchitecture.model_validate(described),
        gpu=shape.gpu.model_copy(update=changes),
    )
    return legal_tensor_parallel(shape)


@pytest.mark.parametrize(
    ("heads", "legal"),
    # vllm-project/vllm#414, #596, #4232, #1705: refused on 3, 6 and 8 GPUs; 25 heads on 2.
    [(52, (1, 2, 4)), (40, (1, 2, 4, 5, 8)), (25, (1, 5)), (64, (1, 2, 4, 8))],
)
def test_tensor_parallelism_divides_the_heads(snapshot, heads, legal):
    assert degrees(snapshot, heads=heads, kv_heads=heads) == legal


def test_key_and_value_heads_are_divided_or_copied_a_whole_number_of_times(snapshot):
    # 24 query heads on 4 KV heads: 3 and 6 ranks can neither divide nor copy 4.
    assert degrees(snapshot, heads=24, kv_heads=4) == (1, 2, 4, 8)


def test_ranks_stay_within_the_link_that_joins_them(snapshot):
    # An L40S has no scale-up link: PCIe joins the 8 of a node. Without either, one GPU alone.
    assert degrees(snapshot, heads=64, kv_heads=8, gpu="l40s-48gb")[-1] == 8
    alone = {"pcie_gb_per_s_per_direction": None, "scale_up_domain_gpu_count": 1}
    assert degrees(snapshot, heads=64, kv_heads=8, gpu="l40s-48gb", **alone) == (1,)
    rack = {"scale_up_domain_gpu_count": 72}
    assert degrees(snapshot, heads=64, kv_heads=8, **rack)[-1] == 64
