"""Single questions about training answer with the plan's own models, and say what does not fit."""

import math

import pytest

from service.core.errors import InvalidScenario
from service.core.formulas.reliability import node_count_with_spares
from service.core.studies.communication import CommunicationQuestion, estimate_communication
from service.core.studies.goodput import GoodputQuestion, estimate_goodput
from service.core.studies.runs import TrainingQuestion
from service.core.studies.training_memory import estimate_training_memory
from service.core.studies.training_run import TrainingRunQuestion, estimate_training_run
from tests.core.training_runs import MFU_40, by, given, need, on, snapshot

RUN = {
    "name": "run",
    "architecture": "llama-3.1-8b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**12,
    "sizing": on(64),
}


def memory(**fields):
    question = TrainingQuestion.model_validate({"run": RUN | fields})
    return estimate_training_memory(question, snapshot())


def a_run(*, question=None, **fields):
    asked = TrainingRunQuestion.model_validate({"run": RUN | fields} | (question or {}))
    return estimate_training_run(asked, snapshot())


def test_memory_is_the_plans_own_with_its_margin():
    layout = given(sharding="zero_3", recompute="full")
    found = memory(layout=layout)
    planned = need(architecture="llama-3.1-8b", sizing=on(64), layout=layout).memory
    assert found.memory_gib_per_gpu == planned
    assert found.margin_gib == pytest.approx(planned.available - planned.total, rel=1e-12)
    assert found.feasible
    assert found.nearest_fix is None


def test_memory_that_does_not_fit_is_shown_with_the_smallest_change_that_fits():
    found = memory(layout=given(sharding="none", recompute="none"), sizing=on(8))
    # 16 bytes for each of 8.03e9 weights are 120 GiB.
    assert found.memory_gib_per_gpu.total > 16 * 8.03e9 / 2**30
    assert found.margin_gib < 0
    assert not found.feasible
    assert "zero" in found.nearest_fix


def test_serving_the_same_model_is_shown_beside():
    # 8,030,261,248 weights of 2 bytes; 2 · 32 layers · 8 heads · 128 · 2 bytes · 8,192 tokens.
    found = memory().serving
    assert found.weights == pytest.approx(2 * 8_030_261_248 / 2**30)
    assert found.cache_per_sequence == pytest.approx(2 * 32 * 8 * 128 * 2 * 8192 / 2**30)


def test_memory_needs_a_number_of_gpus():
    with pytest.raises(InvalidScenario) as refused:
        memory(sizing=by("2027-06-30"))
    assert refused.value.pointer == "/run/sizing"


def test_a_run_costs_its_hours_and_a_budget_buys_tokens():
    found = a_run(question={"price_per_gpu_hour": "2.50", "budget": "10000"}, speed=MFU_40)
    assert float(found.amount) == pytest.approx(2.5 * found.gpu_hours, abs=0.01)
    assert found.tokens_within_budget == pytest.approx(1e12 * 10000 / float(found.amount), rel=1e-9)
    # 700 W for each GPU.
    assert found.energy_kwh == pytest.approx(0.7 * found.gpu_hours)
    assert found.speed_basis == "mfu"
    assert found.step_s is None


def test_the_parts_of_a_step_add_up_to_it():
    found = a_run()
    step = sum(found.step_s.model_dump().values())
    # 4,194,304 tokens a step on 64 GPUs.
    assert found.tokens_per_s_per_gpu.value == pytest.approx(4_194_304 / (64 * step), rel=1e-9)
    assert found.speed_basis == "mechanism"
    assert found.mfu_fraction <= found.hfu_fraction < 1


def test_gpus_are_ranked_and_those_that_fail_name_their_limit():
    asked = {"ranked_gpus": ["l4-24gb", "b200-sxm-180gb", "h100-sxm5-80gb"]}
    found = a_run(question=asked, layout=given(sharding="zero_1", recompute="full"))
    order = [one.gpu for one in found.ranking]
    assert order[-1] == "l4-24gb"
    assert found.ranking[-1].failing_limit
    assert found.ranking[-1].days is None
    amounts = [float(one.amount) for one in found.ranking if one.amount is not None]
    assert amounts == sorted(amounts)


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


def goodput(**fields):
    base = {"gpu": "h100-sxm5-80gb", "gpu_count": 16384}
    return estimate_goodput(GoodputQuestion.model_validate(base | fields), snapshot())


def test_goodput_of_a_published_run():
    # Llama 3, arXiv 2407.21783 section 3.3.4: 419 stops in 54 days on 2,048 servers.
    rate = 419 / 54 / 2048 * 1000
    given_failures = {
        "failures_per_1000_node_days": rate,
        "checkpoint_interval_s": 1800,
        "checkpoint_save_s": 60,
        "restart_s": 300,
    }
    found = goodput(reliability=given_failures, price_per_gpu_hour="2")
    assert found.mean_time_to_failure_hours == pytest.approx(54 * 24 / 419)
    # √(2 · 60 · 3.093 h), and Daly's higher-order form.
    assert round(found.young_interval_s) == 1156
    assert round(found.daly_interval_s) == 1116
    lost = (1 - found.goodput_fraction.value) * 16384 * 24
    assert found.lost_gpu_hours_per_day == pytest.approx(lost)
    assert float(found.lost_amount_per_day) == pytest.approx(2 * lost, abs=0.01)


def test_the_curve_of_waste_has_its_lowest_point_near_the_optimum():
    found = goodput(
        reliability={
            "failures_per_1000_node_days": 4,
            "checkpoint_interval_s": 1200,
            "checkpoint_save_s": 60,
            "restart_s": 300,
        }
    )
    best = min(found.waste_by_interval, key=lambda point: point.waste_fraction)
    # 25 points over a factor of 64 are 19 % apart.
    assert abs(math.log(best.checkpoint_interval_s / found.daly_interval_s)) < 0.2


def test_checkpoints_and_spares():
    found = goodput(architecture="llama-3.1-8b", write_within_s=10, retained_checkpoint_count=5)
    assert found.checkpoint_bytes == 16 * 8_030_261_248
    assert found.write_gb_per_s == pytest.approx(found.checkpoint_bytes / 10 / 1e9)
    assert found.retained_bytes == 5 * found.checkpoint_bytes
    assert found.needed_node_count == 2048
    assert 2048 < found.node_count_with_spares < 2150


@pytest.mark.parametrize(
    ("needed", "working", "held"), [(10, 0.9871, 12), (100, 0.9871, 106), (100, 0.95, 114)]
)
def test_spares_follow_the_binomial_rule(needed, working, held):
    # Smallest n with P(Binomial(n, A) >= k) >= 99.9 %; 100 / 0.95 would be 106.
    count = node_count_with_spares(
        needed_count=needed, availability_fraction=working, target_fraction=0.999
    )
    assert count == held


def test_spot_interruptions_add_to_failures():
    plain = goodput().failures_per_day
    spot = goodput(spot_interruptions_per_1000_node_days=10).failures_per_day
    # 2,048 servers.
    assert spot - plain == pytest.approx(10 * 2.048)
