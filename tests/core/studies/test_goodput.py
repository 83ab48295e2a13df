"""What failures and saves cost a run: published runs, and the optimum by its own rules."""

import math

import pytest

from service.core.formulas.reliability import node_count_with_spares
from service.core.studies.goodput import GoodputQuestion, estimate_goodput
from tests.core.training_runs import snapshot


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


def test_asynchronous_saves_stop_for_their_copy_and_lose_what_is_not_written():
    # 4 per 1,000 on 2,048 servers: 8.192 failures a day. Blocking: 900 + 300 s lost each, 60 s of
    # every 1,800. Asynchronous, written within 120 s: 900 + 300 + 120 s, and no stop but for a copy
    # of 2 s, where that is given.
    fields = {
        "failures_per_1000_node_days": 4,
        "checkpoint_interval_s": 1800,
        "restart_s": 300,
    }
    blocking = goodput(reliability=fields | {"checkpoint_save_s": 60}, write_within_s=120)
    assert blocking.goodput_fraction.value == pytest.approx(1 - 8.192 * 1200 / 86400 - 60 / 1800)
    beside = goodput(reliability=fields, write_within_s=120, saves="asynchronous")
    assert beside.goodput_fraction.value == pytest.approx(1 - 8.192 * 1320 / 86400)
    assert beside.young_interval_s is None
    copied = goodput(
        reliability=fields | {"checkpoint_save_s": 2}, write_within_s=120, saves="asynchronous"
    )
    lost = 8.192 * 1320 / 86400 + 2 / 1800
    assert copied.goodput_fraction.value == pytest.approx(1 - lost)
    # √(2 · 2 s · 86,400 / 8.192 s)
    assert copied.young_interval_s == pytest.approx(205.4, abs=0.1)


def test_preemptions_stop_the_run_and_take_no_node():
    plain, preempted = goodput(), goodput(preemptions_per_day=2)
    assert preempted.failures_per_day - plain.failures_per_day == pytest.approx(2)
    assert preempted.goodput_fraction.value < plain.goodput_fraction.value
    assert preempted.node_count_with_spares == plain.node_count_with_spares


def test_the_longest_stop_that_keeps_nine_tenths_of_the_time():
    # 419 stops in 54 days, one every 3.09 h: 10 % of it are 18.6 minutes a stop. Without an
    # interval to redo, a restart of 1,113.5 s leaves 90 %.
    found = goodput(
        reliability={
            "failures_per_1000_node_days": 419 / 54 / 2048 * 1000,
            "checkpoint_interval_s": 1e-6,
            "checkpoint_save_s": 0,
            "restart_s": 0.1 * 54 * 86400 / 419,
        }
    )
    assert found.mean_time_to_failure_hours == pytest.approx(3.093, abs=0.001)
    assert found.goodput_fraction.value == pytest.approx(0.90, abs=1e-6)


def test_spot_interruptions_add_to_failures():
    plain = goodput().failures_per_day
    spot = goodput(spot_interruptions_per_1000_node_days=10).failures_per_day
    # 2,048 servers.
    assert spot - plain == pytest.approx(10 * 2.048)


@pytest.mark.parametrize("failures", [1, 10, 30, 100, 3000])
def test_goodput_stands_in_its_range_also_where_failures_take_more_than_the_time(failures):
    """30 in 1,000 node-days are 61 a day on 2,048 servers; at 900 s lost and 1,200 s to restart
    they take 129,000 of a day's 86,400 s.
    """
    question = GoodputQuestion.model_validate(
        {
            "gpu": "h100-sxm5-80gb",
            "gpu_count": 16384,
            "reliability": {"failures_per_1000_node_days": failures, "checkpoint_save_s": 10},
        }
    )
    answer = estimate_goodput(question, snapshot())
    [found] = [each for each in answer.quantities if each.name == "goodput_fraction"]
    assert found.low <= found.value <= found.high <= 1
    assert (found.value > 0) == (failures <= 10)
    shown = answer.goodput_fraction
    assert shown.low <= shown.value <= shown.high <= 1
