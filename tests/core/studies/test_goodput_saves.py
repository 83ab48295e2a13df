"""Counted incidents, rules for the interval, what is saved and where to; in plans as well."""

import math

import pytest
from pydantic import ValidationError

from service.core.errors import InvalidScenario
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.reliability import Reliability, checkpoint_bytes_per_parameter
from service.core.scenarios.scenario import Scenario
from service.core.scenarios.training_state import STATE_RECIPES
from service.core.studies.runs import TrainingQuestion
from service.core.studies.training_memory import estimate_training_memory
from service.core.studies.training_run import TrainingRunQuestion, estimate_training_run
from tests.core.studies.test_goodput import goodput
from tests.core.training_runs import MFU_40, on, run, snapshot

LLAMA = {"incident_count": 419, "gpu_count": 16384, "days": 54}
DAY_S = 86400


def at_most(count, mean):
    """Probability of at most so many events."""
    return sum(math.exp(-mean + i * math.log(mean) - math.lgamma(i + 1)) for i in range(count + 1))


def test_a_rack_is_replaced_as_a_whole():
    # 576 GPUs in racks of 72 are 8. They are 72 servers of 8, with 4 failures in 1,000 node-days
    # each: 0.288 a day, 0.036 for a rack, which is away for a day each time.
    found = goodput(gpu="gb200-nvl72", gpu_count=576)
    assert (found.node_gpu_count, found.needed_node_count) == (72, 8)
    assert found.failures_per_day == pytest.approx(0.288)
    up = 1 / 1.036

    def enough(racks):
        return sum(
            math.comb(racks, k) * up**k * (1 - up) ** (racks - k) for k in range(8, racks + 1)
        )

    held = found.node_count_with_spares
    assert enough(held) >= 0.999 > enough(held - 1)


def test_counted_incidents_give_the_rate_with_its_poisson_range():
    # Llama 3, arXiv 2407.21783, section 3.3.4: 419 / (2,048 servers · 54 days) = 3.789 in 1,000.
    found = goodput(reliability={"observed_incidents": LLAMA})
    rate, node_days = found.failures_per_1000_node_days, 2048 * 54
    assert rate.value == pytest.approx(1000 * 419 / node_days)
    assert round(rate.value, 3) == 3.789
    assert found.failures_per_day == pytest.approx(419 / 54)
    # Means of which 419 is the 90th and the 10th percentile.
    low, high = (each * node_days / 1000 for each in (rate.low, rate.high))
    assert 1 - at_most(418, low) == pytest.approx(0.1, rel=1e-3)
    assert at_most(419, high) == pytest.approx(0.1, rel=1e-3)
    [shown] = [q for q in found.quantities if q.name == "observed_failures_per_node_day"]
    assert shown.inputs == {"incident_count": 419, "node_count": 2048.0, "days": 54.0}
    assert shown.value == pytest.approx(419 / node_days)


def test_few_incidents_say_little():
    # Three: 1.102 to 6.681 by the chi-square of 6 and 8 degrees.
    seen = {"incident_count": 3, "gpu_count": 8, "days": 1000}
    rate = goodput(reliability={"observed_incidents": seen}).failures_per_1000_node_days
    assert (rate.low, rate.value, rate.high) == pytest.approx((1.102, 3, 6.681), rel=0.005)
    none = {"incident_count": 0, "gpu_count": 8, "days": 1000}
    rate = goodput(reliability={"observed_incidents": none}).failures_per_1000_node_days
    # -ln 0.1 = 2.303.
    assert (rate.low, rate.value) == (0, 0)
    assert rate.high == pytest.approx(2.303, rel=0.02)


@pytest.mark.parametrize(("rule", "seconds"), [("young", 1156), ("daly", 1116)])
def test_the_interval_may_follow_a_rule(rule, seconds):
    # √(2 · 60 s · 3.093 h), and Daly's higher-order form.
    found = goodput(
        reliability={
            "observed_incidents": LLAMA,
            "checkpoint_interval": rule,
            "checkpoint_save_s": 60,
            "restart_s": 300,
        }
    )
    assert round(found.checkpoint_interval_s) == seconds
    lost = (seconds / 2 + 300) * 419 / 54 / DAY_S + 60 / seconds
    assert found.goodput_fraction.value == pytest.approx(1 - lost, abs=1e-5)


def test_an_interval_by_a_rule_is_no_shorter_than_a_save():
    # √(2 · 1 s · 11,134.6 s) = 149 s, but a save takes 1 + 600 s.
    fields = {"observed_incidents": LLAMA, "checkpoint_save_s": 1, "checkpoint_interval": "young"}
    found = goodput(saves="asynchronous", write_within_s=600, reliability=fields)
    assert round(found.young_interval_s) == 149
    assert found.checkpoint_interval_s == 601


def test_the_curve_of_asynchronous_saves_has_its_least_at_the_shortest_interval():
    # Without a stop at each save, waste grows with τ: (τ/2 + 300 + 120) · 8.192 / 86,400.
    found = goodput(
        saves="asynchronous",
        write_within_s=120,
        reliability={"failures_per_1000_node_days": 4, "restart_s": 300, "checkpoint_save_s": 0},
    )
    least = found.least_waste
    assert least.checkpoint_interval_s == 120
    assert least.waste_fraction == pytest.approx((60 + 300 + 120) * 8.192 / DAY_S)
    curve = found.waste_by_interval
    assert curve[0].checkpoint_interval_s == pytest.approx(120)
    assert [p.waste_fraction for p in curve] == sorted(p.waste_fraction for p in curve)


def test_the_least_waste_is_youngs():
    # √(2δM) with δ 60 s and M 86,400 / 8.192 s: 60/1,125 + (1,125/2 + 300)/10,546.9.
    found = goodput(
        reliability={
            "failures_per_1000_node_days": 4,
            "checkpoint_save_s": 60,
            "restart_s": 300,
        }
    )
    assert found.least_waste.checkpoint_interval_s == pytest.approx(1125)
    assert found.least_waste.waste_fraction == pytest.approx(60 / 1125 + 862.5 / 10546.875)


@pytest.mark.parametrize(
    ("content", "terabytes"),
    [
        # BLOOM, 176.247e9 weights: 16, 14, 12 and 2 bytes each; 2.47 TB and 352.5 GB as published.
        ("all_state", 2.820),
        ("without_gradients", 2.467),
        ("master_and_moments", 2.115),
        ("weights", 0.3525),
    ],
)
def test_a_checkpoint_keeps_what_is_asked(content, terabytes):
    reliability = {"checkpoint_content": content}
    found = goodput(architecture="bloom-176b", reliability=reliability)
    assert found.checkpoint_bytes / 1e12 == pytest.approx(terabytes, rel=5e-4)


def test_without_a_master_copy_the_weights_themselves_are_kept():
    # 2 bytes of weights and 8 of moments.
    recipe = STATE_RECIPES["bf16_adam_fp32_moments"]
    assert checkpoint_bytes_per_parameter(recipe, "master_and_moments") == 10


def test_a_save_takes_its_bytes_over_the_bandwidth():
    # BLOOM on 384 A100, 48 nodes: 2.467 TB into 58 GB/s are 42.5 s; by 1 GB/s a node 51.4 s.
    fields = {"checkpoint_content": "without_gradients", "checkpoint_interval_s": 10800}
    base = {"gpu": "a100-sxm4-80gb", "gpu_count": 384, "architecture": "bloom-176b"}
    store = fields | {"checkpoint_storage": {"store_gb_per_s": 58}}
    found = goodput(**base, reliability=store)
    assert found.checkpoint_save_s == pytest.approx(42.5, abs=0.05)
    assert found.write_gb_per_s == pytest.approx(58)
    nodes = fields | {"checkpoint_storage": {"store_gb_per_s": 58, "node_gb_per_s": 1}}
    found = goodput(**base, reliability=nodes, saves="asynchronous")
    assert found.checkpoint_save_s == 0
    assert found.checkpoint_write_s == pytest.approx(51.4, abs=0.05)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"checkpoint_interval": "young"}, "checkpoint_interval"),
        (
            {"checkpoint_interval": "daly", "failures_per_1000_node_days": 0},
            "checkpoint_interval",
        ),
        ({"checkpoint_storage": {"node_gb_per_s": 1}}, "checkpoint_storage"),
        ({"write_within_s": 60}, "write_within_s"),
        (
            {"checkpoint_storage": {"node_gb_per_s": 1}, "checkpoint_save_s": 5},
            "checkpoint_storage",
        ),
    ],
)
def test_what_lacks_or_contradicts_something_is_refused(fields, pointer):
    with pytest.raises(InvalidScenario) as refused:
        goodput(reliability=fields)
    assert refused.value.pointer == f"/reliability/{pointer}"


@pytest.mark.parametrize(
    "fields",
    [
        {"failures_per_1000_node_days": 4, "observed_incidents": LLAMA},
        {"checkpoint_interval": "young", "checkpoint_interval_s": 1800},
        {"checkpoint_storage": {}},
    ],
)
def test_what_is_given_twice_or_not_at_all_is_refused(fields):
    with pytest.raises(ValidationError):
        Reliability.model_validate(fields)


def test_a_field_that_stands_in_two_places_may_not_differ():
    same = {"preemptions_per_day": 2}
    assert goodput(reliability=same, **same) == goodput(reliability=same)
    with pytest.raises(InvalidScenario) as refused:
        goodput(reliability=same, preemptions_per_day=3)
    assert refused.value.pointer == "/preemptions_per_day"


SAVING = [
    {},
    {"spot_interruptions_per_1000_node_days": 10, "preemptions_per_day": 2},
    {"saves": "asynchronous", "write_within_s": 120, "checkpoint_save_s": 1},
    {"saves": "asynchronous", "checkpoint_storage": {"node_gb_per_s": 1}},
    {
        "observed_incidents": LLAMA,
        "checkpoint_interval": "daly",
        "checkpoint_storage": {"store_gb_per_s": 50},
        "checkpoint_content": "without_gradients",
    },
]


@pytest.mark.parametrize("reliability", SAVING)
def test_an_estimate_a_run_and_a_plan_say_the_same_of_a_run(reliability):
    asked = run(speed=MFU_40, sizing=on(512), reliability=reliability)
    alone = goodput(gpu_count=512, architecture="llama-3.1-70b", reliability=reliability)
    question = TrainingRunQuestion.model_validate({"run": asked.model_dump()})
    single = estimate_training_run(question, snapshot())
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 6},
        "training_runs": [asked.model_dump()],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2"}}],
    }
    plan, _ = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())
    [planned] = plan.training_runs
    assert single.goodput_fraction == alone.goodput_fraction.value == planned.goodput_fraction
    assert planned.checkpoint_bytes == alone.checkpoint_bytes
    bands = [
        [(q.low, q.value, q.high) for q in found.quantities if q.name == "goodput_fraction"]
        for found in (alone, single, plan)
    ]
    assert bands[0] == bands[1] == bands[2]
    memory = TrainingQuestion.model_validate({"run": asked.model_dump()})
    assert estimate_training_memory(memory, snapshot()).feasible


def test_asynchronous_saves_add_their_write_to_what_a_stop_costs():
    # 900 s of an interval, a write of 120 s and a restart of 1,200 s.
    reliability = {
        "saves": "asynchronous",
        "write_within_s": 120,
        "checkpoint_interval_s": 1800,
        "restart_s": 1200,
    }
    question = {"run": run(speed=MFU_40, sizing=on(512), reliability=reliability).model_dump()}
    found = estimate_training_run(TrainingRunQuestion.model_validate(question), snapshot())
    [lost] = [q for q in found.quantities if q.name == "lost_s_per_failure"]
    assert lost.value == 900 + 120 + 1200


def test_an_adapter_saves_its_own_weights_as_a_run_does():
    # Llama 3.1 70B, rank 16 in all seven matrices of each of 80 layers: q and o 8192 x 8192, k and
    # v 8192 x 1024, gate, up and down 8192 x 28672: 16 x (2 x 16384 + 2 x 9216 + 3 x 36864) x 80
    # = 207,093,760 weights of 16 bytes: 3.31 GB, against 70.55e9 x 16 = 1,128.9 GB.
    fields = {"architecture": "llama-3.1-70b", "gpu_count": 16}
    fields |= {"reliability": {"checkpoint_storage": {"store_gb_per_s": 2}}}
    adapter = {"kind": "lora", "rank": 16}
    found = goodput(**fields, adapter=adapter)
    assert found.checkpoint_bytes == 16 * (2 * 16384 + 2 * 9216 + 3 * 36864) * 80 * 16
    assert found.checkpoint_save_s == pytest.approx(found.checkpoint_bytes / 2e9)
    assert goodput(**fields).checkpoint_bytes == pytest.approx(1128.9e9, rel=1e-4)
    asked = {
        "name": "run",
        "gpu": "h100-sxm5-80gb",
        "architecture": "llama-3.1-70b",
        "adapter": adapter,
        "training_tokens": 10**9,
        "sizing": on(16),
        "reliability": fields["reliability"],
    }
    alone = estimate_training_run(TrainingRunQuestion.model_validate({"run": asked}), snapshot())
    assert found.goodput_fraction.value == pytest.approx(alone.goodput_fraction)


def test_an_adapter_without_layers_is_refused():
    with pytest.raises(InvalidScenario, match="layers") as refused:
        goodput(architecture=None, adapter={"kind": "lora"})
    assert refused.value.pointer == "/adapter"


@pytest.mark.parametrize(
    ("beside", "inside"),
    [
        ({"saves": "asynchronous"}, {"saves": "blocking"}),
        ({"saves": "blocking"}, {"saves": "asynchronous"}),
        ({"preemptions_per_day": 0}, {"preemptions_per_day": 2}),
        ({"preemptions_per_day": 2}, {"preemptions_per_day": 0}),
        ({"write_within_s": 60}, {"write_within_s": 61}),
    ],
)
def test_fields_that_stand_in_both_places_must_agree_also_where_one_is_the_default(beside, inside):
    [name] = beside
    with pytest.raises(InvalidScenario, match="differs from that of reliability") as refused:
        goodput(**beside, reliability=inside)
    assert refused.value.pointer == f"/{name}"


def test_fields_that_say_the_same_or_nothing_in_one_place_are_taken():
    asked = {"checkpoint_save_s": 2, "write_within_s": 60}
    both = goodput(saves="asynchronous", reliability=asked | {"saves": "asynchronous"})
    assert both == goodput(saves="asynchronous", reliability=asked)
    inside = asked | {"saves": "asynchronous"}
    assert both.checkpoint_write_s == 60
    assert goodput(write_within_s=None, reliability=inside).checkpoint_write_s == 60
