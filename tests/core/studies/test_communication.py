"""What a run sends, by kind and link, and what that costs its step."""

import pytest

from service.core.studies import runs
from service.core.studies.communication import CommunicationQuestion, estimate_communication
from tests.core.training_questions import RUN, a_run
from tests.core.training_runs import given, on, snapshot


def test_traffic_is_counted_by_kind_and_link():
    layout = given(tensor_parallel=8, sharding="zero_1", recompute="none")
    question = CommunicationQuestion.model_validate(
        {"run": RUN | {"layout": layout}, "curve_gpu_counts": [32, 64]}
    )
    found = estimate_communication(question, snapshot())
    kinds = {one.kind: one for one in found.collectives}
    # 4 all-reduces a layer, each 2 · 7/8 of 2 bytes · 4,096 · tokens of one copy: 4,194,304 / 8;
    # under sequence parallelism half of one more, to gather an input again.
    tensor = 4.5 * 32 * 2 * 7 / 8 * 2 * 4096 * 4_194_304 / 8
    assert kinds["tensor"].bytes_per_step == pytest.approx(tensor)
    assert kinds["tensor"].link == "scale_up"
    assert kinds["data"].link == "scale_out"
    assert 0 < found.exposed_fraction < 1
    assert [one.gpu_count for one in found.scaling] == [32, 64]
    assert all(one.strong_tokens_per_s_per_gpu > 0 for one in found.scaling)


def traffic(**fields):
    curve = {"curve_gpu_counts": fields.pop("curve", [32])}
    return estimate_communication(
        CommunicationQuestion.model_validate({"run": RUN | fields} | curve), snapshot()
    )


def test_a_growing_batch_keeps_the_speed_that_a_fixed_one_loses():
    found = traffic(curve=[64, 1024], global_batch_tokens=512 * 8192)
    start, end = found.scaling
    # On the run's own count the two batches are one.
    assert start.weak_tokens_per_s_per_gpu == start.strong_tokens_per_s_per_gpu
    # 16 times the GPUs: half a sequence for each with the fixed batch, 8 with the growing one.
    again = a_run(sizing=on(1024), global_batch_tokens=16 * 512 * 8192)
    assert end.weak_tokens_per_s_per_gpu == pytest.approx(again.tokens_per_s_per_gpu.value)
    assert end.strong_tokens_per_s_per_gpu < 0.95 * end.weak_tokens_per_s_per_gpu
    assert end.weak_tokens_per_s_per_gpu > 0.9 * start.weak_tokens_per_s_per_gpu


def test_gradients_of_a_node_leave_it_over_all_its_adapters():
    layout = given(tensor_parallel=1, sharding="zero_1", recompute="full")
    inside, out = traffic(layout=layout).collectives
    # 64 copies reduce 2 and gather 2 bytes a weight: 63/64 of each. An eighth leaves over each of 8
    # adapters of 50 GB/s, the rest crosses the link of 450 GB/s, each at its reached share.
    sent = 63 / 64 * (2 + 2) * 8_030_261_248
    shares = {
        link: snapshot().assumptions[f"training_gather_{link}_fraction"].value
        for link in ("scale_up", "scale_out")
    }
    assert (inside.link, out.link) == ("scale_up", "scale_out")
    assert inside.bytes_per_step == pytest.approx(sent * 7 / 8, rel=1e-3)
    assert inside.seconds_per_step == pytest.approx(
        sent * 7 / 8 / (450e9 * shares["scale_up"]), rel=1e-3
    )
    assert out.bytes_per_step == pytest.approx(sent / 8, rel=1e-3)
    assert out.seconds_per_step == pytest.approx(sent / 8 / (50e9 * shares["scale_out"]), rel=1e-3)
    # A tensor group of 8 leaves each of its ranks one adapter for its own eighth.
    split = given(tensor_parallel=8, sharding="zero_1", recompute="none")
    found = {one.kind: one for one in traffic(layout=split).collectives}
    eighth = 7 / 8 * (2 + 2) * 8_030_261_248 / 8
    assert found["data"].seconds_per_step == pytest.approx(
        eighth / (50e9 * shares["scale_out"]), rel=0.01
    )


@pytest.mark.parametrize(
    ("layout", "count", "link"),
    [
        ({"tensor_parallel": 8, "recompute": "none"}, 64, "scale_up"),
        ({"sharding": "zero_3", "recompute": "full"}, 64, "scale_out"),
        ({"sharding": "zero_3", "recompute": "full"}, 8, "scale_up"),
        ({"recompute": "full"}, 1, None),
    ],
)
def test_the_link_that_limits_is_the_busiest(layout, count, link):
    gpu = "b200-sxm-180gb" if count == 1 else "h100-sxm5-80gb"
    found = traffic(layout=given(**layout), sizing=on(count), gpu=gpu)
    assert found.limiting_link == link
    busy = {}
    for one in found.collectives:
        busy[one.link] = busy.get(one.link, 0) + one.seconds_per_step
    assert (max(busy, key=busy.get) if busy else None) == link


def test_no_link_carries_more_than_it_has():
    for layout in (
        given(tensor_parallel=2, context_parallel=4, sharding="zero_1", recompute="full"),
        given(sharding="zero_3", recompute="full"),
        given(tensor_parallel=4, pipeline_parallel=2, sharding="zero_1", recompute="full"),
    ):
        for one in traffic(layout=layout).collectives:
            most = {"scale_up": 450e9, "scale_out": 50e9}[one.link]
            assert one.bytes_per_step / one.seconds_per_step < most


def test_stages_beyond_a_full_node_hand_over_between_nodes():
    """TP 2 · CP 4 fill the 8 GPUs, so 4 stages of 10 chunks hand over between nodes: 2 · 10 · 8,192
    hidden · 2 B · 65,536 tokens of a rank / 2 = 10.74e9 B at 0.65 · 50 GB/s: 0.330 s. Gradients of
    70.55e9 weights / 8, 63/64 of 4 B, half over each adapter: 0.267 s. 0.597 s are more than the
    0.42 s of the link inside.
    """
    layout = given(
        tensor_parallel=2,
        context_parallel=4,
        pipeline_parallel=4,
        virtual_pipeline_stages=10,
        sharding="zero_1",
        recompute="none",
    )
    found = traffic(architecture="llama-3.1-70b", sizing=on(512), layout=layout)
    times = {(one.kind, one.link): one for one in found.collectives}
    handed = times["pipeline", "scale_out"]
    tokens = 4_194_304 / 16 / 4
    assert handed.bytes_per_step == pytest.approx(2 * 10 * 8192 * 2 * tokens / 2)
    assert handed.seconds_per_step == pytest.approx(0.330, abs=0.001)
    data = 70.55e9 / 8 * 4 * 63 / 64 / 4
    assert times["data", "scale_out"].seconds_per_step == pytest.approx(data / 32.5e9, rel=2e-3)
    assert found.limiting_link == "scale_out"
    inside = sum(one.seconds_per_step for one in found.collectives if one.link == "scale_up")
    assert inside < 0.330 + 0.267


def test_the_exposed_time_is_one_number_and_its_share_of_the_step():
    """Eight micro-batches of 8,192 tokens; gathering takes 24 · 16.06e9 · 63/64/8 B / 32.5 GB/s =
    1.459 s beside 10.2 s of work, and the longer of two that run at once to the power 1.6 is longer
    by less than 0.05 of it."""
    found = traffic(layout=given(sharding="zero_3", recompute="full"))
    published = {one.name: one.value for one in found.quantities}
    assert published["training_exposed_communication_s_per_step"] == found.exposed_s_per_step
    assert published["training_step_s"] == found.step_s
    assert found.exposed_fraction == pytest.approx(found.exposed_s_per_step / found.step_s)
    work, alone = found.step_s - found.exposed_s_per_step, 24 * 16.06e9 * 63 / 64 / 8 / 32.5e9
    # The optimizer, 26 B for each of 8.03e9 / 64 weights, is hidden behind nothing, and small.
    joined = (work**1.6 + alone**1.6) ** (1 / 1.6)
    assert found.exposed_s_per_step == pytest.approx(joined - work, rel=0.02)


@pytest.mark.parametrize("architecture", ["deepseek-v3", "llama-3.1-70b"])
def test_no_step_waits_longer_for_the_network_than_it_takes(architecture):
    found = traffic(architecture=architecture, sizing=on(2048), sequence_length_tokens=4096)
    published = {one.name: one.value for one in found.quantities}
    exposed = published["training_exposed_communication_s_per_step"]
    assert exposed == found.exposed_s_per_step < found.step_s
    moved = {}
    for one in found.collectives:
        moved[one.kind] = moved.get(one.kind, 0) + one.bytes_per_step
    for kind, sent in moved.items():
        assert published[f"{kind}_parallel_bytes_per_step"] == pytest.approx(sent)


def test_gpus_of_one_node_without_a_link_talk_over_the_host():
    """8 L40S reduce and gather 2 B for each of 1.54e9 weights, 7/8 of each, at 2 GB/s: 2.70 s."""
    layout = given(sharding="none", recompute="full")
    found = traffic(architecture="qwen2.5-1.5b", gpu="l40s-48gb", sizing=on(8), layout=layout)
    (data,) = found.collectives
    assert data.link == found.limiting_link == "pcie"
    assert data.bytes_per_step == pytest.approx(7 / 8 * 4 * 1.5437e9, rel=1e-3)
    assert data.seconds_per_step == pytest.approx(data.bytes_per_step / 2e9)
    published = {one.name: one.value for one in found.quantities}
    assert published["training_pcie_communication_s_per_step"] == data.seconds_per_step
    assert published["training_scale_out_communication_s_per_step"] == 0


def test_the_curve_passes_through_the_run_and_keeps_its_layout():
    layout = given(sharding="zero_3", recompute="full")
    fields = {"architecture": "llama-3.1-70b", "layout": layout}
    found = traffic(curve=[16, 64, 128], **fields)
    few, own, more = found.scaling
    speed = a_run(**fields).tokens_per_s_per_gpu.value
    assert own.strong_tokens_per_s_per_gpu == own.weak_tokens_per_s_per_gpu == speed
    assert own.layout_rule == "own"
    assert own.strong_layout == found.layout
    # The same splits over twice the copies; 16 GPUs cannot hold 70.6e9 · 16 B.
    again = a_run(**fields | {"sizing": on(128)})
    assert more.strong_tokens_per_s_per_gpu == again.tokens_per_s_per_gpu.value
    assert more.layout_rule == "scaled"
    assert (more.strong_layout.data_parallel, more.strong_layout.sharding) == (128, "zero_3")
    assert (few.strong_tokens_per_s_per_gpu, few.strong_layout) == (None, None)
    assert not found.is_speed_given


def test_a_curve_without_a_layout_chooses_one_for_each_count():
    found = traffic(curve=[64, 128])
    own, more = found.scaling
    assert (own.layout_rule, more.layout_rule) == ("own", "chosen")
    assert more.strong_layout == a_run(sizing=on(128)).layout


def test_a_given_speed_is_marked_as_one_that_does_not_scale():
    found = traffic(curve=[64, 128], speed={"kind": "mfu", "mfu_fraction": 0.4})
    assert found.is_speed_given
    assert len({one.strong_tokens_per_s_per_gpu for one in found.scaling}) == 1


def test_a_run_that_does_not_fit_searches_no_way_out_for_its_curve(monkeypatch):
    """456e9 weights of 16 B are 7.3e12 B, more than 64 GPUs of 95 GiB hold."""
    asked = []

    def choose(case, gpu_count):
        asked.append(gpu_count)
        return real(case, gpu_count)

    real = runs.choose
    monkeypatch.setattr(runs, "choose", choose)
    found = traffic(
        architecture="minimax-text-01",
        gpu="tpu-v5p",
        sequence_length_tokens=131072,
        global_batch_tokens=64 * 131072,
        curve=[8, 16, 32, 64],
    )
    assert not found.feasible
    assert all(one.strong_tokens_per_s_per_gpu is None for one in found.scaling)
    # Ways out are searched once for the answer, never for a point of the curve.
    assert asked == [64]


def test_a_given_speed_that_the_network_does_not_allow_is_named():
    """Consumer parts talk over the host, at a few GB/s: a split 7B model waits longer for them

    than the 1,900 s of a step that 30 % of the peak means.
    """
    found = traffic(
        architecture="llama-2-7b",
        gpu="rtx-5090d-32gb",
        sequence_length_tokens=131072,
        global_batch_tokens=2**24,
        sizing=on(8),
        speed={"kind": "mfu", "mfu_fraction": 0.3},
    )
    told = [each for each in found.advisories if each.code == "implausible_measurement"]
    assert (found.exposed_s_per_step > found.step_s) == bool(told)
    assert told


def test_parts_that_only_serve_train_nothing_in_any_estimate():
    """Nothing is known of training on them: no layout, no step, no memory is answered."""
    refused = traffic(gpu="inferentia2-32gb", sizing=on(16))
    assert [each.code for each in refused.infeasibilities] == ["no_constants"]
    assert refused.collectives == ()


def test_a_curve_reaches_as_many_gpus_as_a_run_may_have():
    """A billion is the most that a request names; its grown batch leaves each GPU a copy or so."""
    billion = 10**9
    point = traffic(curve=[billion]).scaling[-1]
    assert point.gpu_count == billion
    layout = point.weak_layout
    assert layout.data_parallel * layout.gpus_per_copy == billion
