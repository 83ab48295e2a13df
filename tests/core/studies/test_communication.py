"""What a run sends, by kind and link, and what that costs its step."""

import pytest

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
    # 4 all-reduces a layer, each 2 · 7/8 of 2 bytes · 4,096 · tokens of one copy: 4,194,304 / 8.
    tensor = 4 * 32 * 2 * 7 / 8 * 2 * 4096 * 4_194_304 / 8
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
    (data,) = traffic(layout=layout).collectives
    # 64 copies reduce 2 and gather 2 bytes a weight: 63/64 of each, over 8 adapters of 50 GB/s,
    # which is more than the 450 GB/s of the link inside, each at its reached share.
    sent = 63 / 64 * (2 + 2) * 8_030_261_248
    assert data.bytes_per_step == pytest.approx(sent, rel=1e-3)
    shares = [
        snapshot().assumptions[f"training_link_fraction.{link}"].value
        for link in ("scale_up", "scale_out")
    ]
    rate = min(450e9 * shares[0], 8 * 50e9 * shares[1])
    assert data.seconds_per_step == pytest.approx(sent / rate, rel=1e-3)
    # A tensor group of 8 leaves each of its ranks one adapter for its own eighth.
    split = given(tensor_parallel=8, sharding="zero_1", recompute="none")
    found = {one.kind: one for one in traffic(layout=split).collectives}
    eighth = 7 / 8 * (2 + 2) * 8_030_261_248 / 8
    assert found["data"].seconds_per_step == pytest.approx(eighth / (50e9 * shares[1]), rel=0.01)


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
