"""An estimated speed is the table's share and each factor that applies, and the network's time."""

import pytest

from service.core.parallelism.axes import RECOMPUTES, SHARDINGS
from service.core.recorder import Recorder
from service.core.run.network import scale_out_bytes_per_s
from service.core.run.speed import speed_residual
from tests.core.training_runs import (
    assumed,
    case_of,
    on,
    quantities,
    refusal,
    snapshot,
    table_only,
)
from tests.core.training_runs import axes as layout_axes

ZERO_2, ZERO_3 = SHARDINGS.index("zero_2"), SHARDINGS.index("zero_3")
NONE, FULL = 0, RECOMPUTES.index("full")


def axes(**degrees):
    """One copy over eight GPUs, or another layout."""
    return layout_axes(**{"tensor": 8, "data": 1} | degrees)


def share(layout, **fields):
    """Product of all factors: the share of the bf16 peak before the bubble."""
    case = case_of(**fields)
    product = 1.0
    for factor in case.speed.factors(layout, case.recorder):
        product *= factor.value
    return product


TABLE = "bf16_peak_fraction.h100-sxm5-80gb.bf16"


def test_layouts_that_split_layers_take_the_vendors_share_and_others_pytorchs():
    assert share(axes()) == assumed(f"{TABLE}.vendor_tuned").value
    alone = axes(tensor=1, data=8, sharding=ZERO_2)
    assert share(alone) == assumed(f"{TABLE}.pytorch_fsdp").value
    assert share(axes(tensor=1, pipeline=4)) == assumed(f"{TABLE}.vendor_tuned").value


def test_whole_copies_that_shard_neither_weights_nor_gradients_need_no_sharded_stack():
    # Splitting a model that fits must not be what buys the vendor's kernels.
    for sharding in ("none", "zero_1"):
        alone = axes(tensor=1, data=8, sharding=SHARDINGS.index(sharding))
        assert share(alone) == share(axes())


def test_a_named_stack_decides_whatever_the_layout():
    speed = {"kind": "estimated", "software_stack": "pytorch_fsdp"}
    assert share(axes(), speed=speed) == assumed(f"{TABLE}.pytorch_fsdp").value


def test_experts_have_a_table_of_their_own():
    fields = {"architecture": "mixtral-8x7b"}
    wanted = assumed("moe_bf16_peak_fraction.h100-sxm5-80gb.bf16").value
    assert share(axes(), **fields) == wanted
    # 3.3B active parameters are below the 4B under which mixtures are slower.
    small = {"architecture": "qwen3-30b-a3b"}
    assert case_of(**small).architecture.active_parameter_count < 4e9
    factor = assumed("moe_small_speed_fraction").value
    assert share(axes(), **small) == pytest.approx(wanted * factor)


def test_half_precisions_share_their_constants():
    assert share(axes(), compute_precision="fp16") == share(axes())


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (512, []),
        (1024, ["large_run_speed_fraction"]),
        (8192, ["large_run_speed_fraction", "very_large_run_speed_fraction"]),
    ],
)
def test_large_runs_are_slower(count, names):
    factor = 1.0
    for name in names:
        factor *= assumed(name).value
    assert share(axes(data=count // 8)) == pytest.approx(share(axes()) * factor)


def test_narrow_models_do_not_fill_the_gpu():
    assert snapshot().architecture("gpt-2-124m").hidden_size == 768
    narrow = share(axes(tensor=1, data=8), architecture="gpt-2-124m")
    wide = share(axes(tensor=1, data=8))
    assert narrow == pytest.approx(wide * assumed("narrow_speed_fraction").value)


@pytest.mark.parametrize(
    ("tokens", "name"),
    [
        (32768, "context_parallel_speed_fraction"),
        (131072, "context_parallel_long_speed_fraction"),
    ],
)
def test_context_parallelism_costs_more_on_long_sequences_and_plain_stacks(tokens, name):
    fields = {"sequence_length_tokens": tokens, "global_batch_tokens": tokens * 8}
    for layout, stack in (
        (axes(context=2), "vendor_tuned"),
        (axes(tensor=1, context=2, sharding=ZERO_2), "pytorch_fsdp"),
    ):
        factor = share(layout, **fields) / assumed(f"{TABLE}.{stack}").value
        assert factor == pytest.approx(assumed(f"{name}.{stack}").value)


def test_full_recompute_costs_what_its_stack_loses():
    for layout, stack in (
        (axes(recompute=FULL), "vendor_tuned"),
        (axes(tensor=1, data=8, sharding=ZERO_2, recompute=FULL), "pytorch_fsdp"),
    ):
        factor = share(layout) / assumed(f"{TABLE}.{stack}").value
        assert factor == pytest.approx(assumed(f"full_recompute_speed_fraction.{stack}").value)


def test_fully_sharded_weights_starve_small_micro_batches_between_nodes():
    short = {"sequence_length_tokens": 2048}
    wide = axes(tensor=1, data=64, sharding=ZERO_3)
    plain = assumed(f"{TABLE}.pytorch_fsdp").value
    # 2,048 of the 8,192 tokens that hide the gathering.
    assert share(wide, **short) == pytest.approx(plain * 2048 / 8192)
    assert share(axes(tensor=1, data=64, sharding=ZERO_3)) == plain
    # Inside one node the link is fast enough.
    assert share(axes(tensor=1, data=8, sharding=ZERO_3), **short) == plain
    inside = axes(tensor=1, data=64, sharding=SHARDINGS.index("hybrid"))
    assert share(inside, **short) == plain


def test_the_tables_rate_loses_the_bubble_and_adapters_gain_a_third():
    case = case_of()
    plain = case.speed.table_rate(axes(), case.recorder.off())[0]
    piped = axes(tensor=8, pipeline=4, micro_batch_count=16)
    bubble = case.speed.table_rate(piped, case.recorder.off())[0]
    assert plain / bubble == pytest.approx(1 + 3 / 16)
    lora = case_of(adapter={"kind": "lora"})
    faster = lora.speed.table_rate(axes(), lora.recorder.off())[0]
    # 4P + 3A instead of 6P + 3A.
    weights, attention = 70_553_706_496, 80 * 4 * 64 * 128 * 4096
    ratio = (6 * weights + 3 * attention) / (4 * weights + 3 * attention)
    assert faster / plain == pytest.approx(ratio)


def test_windows_and_linear_layers_cost_less_attention():
    # gpt-oss-20b: 12 layers see all, 12 a window of 128; 64 heads of 64.
    case = case_of(architecture="gpt-oss-20b")
    pair = 4 * 64 * 64
    window = 128 - 128 * 128 / (2 * 8192)
    assert case.speed.work.attention_forward_flops_per_token == pytest.approx(
        12 * pair * 4096 + 12 * pair * window
    )
    # Qwen3-Next: full attention in every fourth of 48 layers, the others linear.
    hybrid = case_of(architecture="qwen3-next-80b-a3b")
    full = [g for g in hybrid.architecture.layer_groups if g.attention.kind == "full"]
    assert sum(g.count for g in full) == 12
    assert hybrid.speed.work.attention_forward_flops_per_token == pytest.approx(
        12 * full[0].attention.score_flops_per_pair * 4096
    )


def network_of(**fields):
    case = case_of(**fields)
    return case.layouts.network, case.recorder.off()


def test_the_network_takes_the_nodes_adapter():
    gpu = snapshot().gpu("h100-sxm5-80gb")
    # Eight adapters of 400 Gbit/s for eight GPUs.
    assert scale_out_bytes_per_s(gpu, snapshot(), Recorder(snapshot())) == 50e9


def test_tensor_parallelism_stays_on_the_scale_up_link():
    network, quiet = network_of()
    found = network.traffic(axes(), 900.0, quiet)
    # 8 micro-batches of 8,192 tokens; 4 all-reduces a layer of 2·7/8 of tokens · 8192 · 2 B, and
    # one gather of an input, half of an all-reduce, under sequence parallelism.
    sent = 4.5 * 80 * 2 * 7 / 8 * 8 * 8192 * 8192 * 2
    link = 450e9 * assumed("training_link_fraction.scale_up").value
    latency = 4 * 80 * 8 * assumed("training_collective_latency_s").value
    assert found.link_s["scale_up"] == pytest.approx(sent / link, rel=1e-9)
    assert found.latency_s == pytest.approx(latency, rel=1e-9)
    assert found.link_s["scale_out"] == 0
    assert found.exposed_s == pytest.approx(sent / link + latency)


def test_gradients_travel_over_all_adapters_of_a_node():
    network, quiet = network_of()
    found = network.traffic(axes(tensor=1, data=64, micro_batch_count=1), 900.0, quiet)
    parts = network.parts
    held = (
        parts.divided_parameter_count
        + parts.replicated_parameter_count
        + parts.input_parameter_count
        + parts.output_parameter_count
    )
    sent = 63 / 64 * 4 * held
    # Of the 8 links of a ring that pass through a node one leaves it, so that each of the 8
    # adapters carries an eighth; the other 7 are links inside.
    adapter = 50e9 * assumed("training_link_fraction.scale_out").value
    link = 450e9 * assumed("training_link_fraction.scale_up").value
    assert found.link_s["scale_out"] == pytest.approx(sent / 8 / adapter, rel=1e-9)
    assert found.link_s["scale_up"] == pytest.approx(sent * 7 / 8 / link, rel=1e-9)


def test_gradients_hide_behind_part_of_the_backward_pass():
    network, quiet = network_of()
    layout = axes(tensor=1, data=64, micro_batch_count=1)
    slow, fast = (network.traffic(layout, rate, quiet) for rate in (1.0, 1e9))
    assert slow.exposed_s == 0
    assert fast.exposed_s == pytest.approx(fast.link_s["scale_out"], rel=1e-3)


def test_experts_cross_nodes_only_when_their_group_does():
    network, quiet = network_of(architecture="mixtral-8x7b")
    near = network.traffic(axes(tensor=1, expert=8, data=8), 900.0, quiet)
    far = network.traffic(axes(tensor=2, expert=8, data=8), 900.0, quiet)
    assert near.link_s["scale_out"] == 0
    assert far.link_s["scale_out"] > 0


def test_the_step_and_its_network_are_published():
    found = quantities(sizing=on(512))
    step = found["training_step_s"].value
    rate = found["training_tokens_per_s_per_gpu"].value
    assert step == pytest.approx(4_194_304 / (rate * 512))
    exposed = found["training_exposed_communication_s_per_step"].value
    up, out = (
        found[f"training_scale_{way}_communication_s_per_step"].value for way in ("up", "out")
    )
    assert 0 < exposed <= up + out
    # One number, whichever part of the answer it is read from.
    assert exposed == found["training_exposed_network_s_per_step"].value


def test_the_table_answers_for_no_state_on_the_host():
    reason = refusal(catalog=table_only(), offload="optimizer")
    assert reason.code == "no_constants"
    assert "measured speed" in reason.nearest_fix
    assert quantities()["training_table_tokens_per_s_per_gpu"].value > 0
    assert "training_table_tokens_per_s_per_gpu" not in quantities(offload="optimizer")


def test_a_class_that_was_never_measured_has_a_wider_band():
    """Independent factors: exp(sqrt(ln(1/0.82)^2 + ln(1.25)^2)) = 1.348 below, and above

    exp(sqrt(ln(1.14)^2 + ln(1.25)^2)) = 1.295.
    """
    recorder = Recorder(snapshot())
    measured, judged = (
        speed_residual(snapshot().gpu(key), recorder, kind="dense")
        for key in ("h100-sxm5-80gb", "mi300x-192gb")
    )
    assert (measured.low, measured.high) == (0.82, 1.14)
    assert judged.low == pytest.approx(1 / 1.348, rel=1e-3)
    assert judged.high == pytest.approx(1.295, rel=1e-3)
