"""The published example, number by number; its arithmetic stands beside each expectation."""

import json
import re
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.core.errors import InvalidScenario, UnknownKey
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario

ROOT = Path(__file__).parents[3]
EXAMPLE = json.loads((ROOT / "openapi/examples/create_plan.request.json").read_bytes())["scenario"]


@cache
def snapshot():
    return snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))


def estimate(document):
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())[0]


@pytest.fixture(scope="module")
def example():
    return estimate(EXAMPLE)


def test_the_run_takes_its_hours_from_parameters_tokens_peak_and_failures(example):
    run = example.training_runs[0]
    flops = 6 * 70_553_706_496 * 2e12
    steady = flops / (512 * 989.4e12 * 0.40) / 3600
    # 64 nodes at 4 failures per 1,000 node-days: one in 93.75 h; each loses 0.25 + 0.3333 h.
    goodput = 1 - (0.25 + 1 / 3) / 93.75
    assert run.model_flops == pytest.approx(flops, rel=1e-12)
    assert run.steady_hours == pytest.approx(steady, rel=1e-12)
    assert run.goodput_fraction == pytest.approx(goodput, rel=1e-12)
    assert run.wall_clock_hours.value == pytest.approx(steady / goodput, rel=1e-9)
    assert run.finish_date == date(2027, 2, 18)  # 48.66 days from January 1st
    assert run.checkpoint_bytes == 16 * 70_553_706_496
    assert run.amount == Decimal("4114014.70")  # 380,928 h and 217,039.252881 h at 6.88


def test_the_service_holds_its_peak_with_its_spare_in_whole_instances(example):
    service = example.serving_services[0]
    assert service.needed_replica_count_peak == 13  # ceil(40 / (4.0 · 0.8)) = ceil(12.5)
    assert service.held_replica_count == 15  # ceil(13 · 1.10)
    assert service.gpu_count == 64  # 15 · 4 = 60, in instances of 8
    assert service.amount == Decimal("3857203.20")  # 64 · 8,760 h · 6.88
    # 40/s · 0.56 · 31,536,000 s = 706,406,400 requests of 1,900 tokens, 400 of them output.
    assert service.cost_per_million_tokens == Decimal("2.87")
    assert service.cost_per_million_output_tokens == Decimal("13.65")


def test_totals_are_those_of_the_published_example(example):
    assert example.totals.peak_gpu_count == 512 + 64
    assert example.totals.gpu_hours == 1_158_607.252881
    assert example.totals.amount == Decimal("7971217.90")
    assert example.totals.cash_amount == Decimal("7971217.90")
    assert example.totals.training_amount == Decimal("4114014.70")
    assert example.totals.serving_amount == Decimal("3857203.20")
    assert len(example.lines) == 26  # training in 2 months; used and idle serving in 12


def test_pools_and_months_are_those_of_the_published_example(example):
    training, serving = example.pools
    assert (training.gpu_count, training.node_count) == (512, 64)
    assert training.allocated_gpu_hours == 597_967.252881
    assert (serving.gpu_count, serving.node_count) == (64, 8)
    # Needed replicas over the day sum to 179: 179 · 4 GPUs · 365 days.
    assert serving.used_gpu_hours == 261_340
    assert serving.idle_gpu_hours == 64 * 8760 - 261_340
    assert serving.mean_over_peak_fraction == pytest.approx(179 / 24 / 13, rel=1e-12)
    january = example.months[0]
    assert (january.month, january.hours) == ("2027-01", 744)
    assert (january.training_gpu_count, january.serving_gpu_count) == (512, 64)
    assert january.gpu_hours == 512 * 744 + 64 * 744
    assert january.amount == Decimal("2948382.72")


def test_first_lines_are_those_of_the_published_example(example):
    printed = [
        (line.month, line.pool, line.workload, line.use, line.quantity, line.amount)
        for line in example.lines[:3]
    ]
    assert printed == [
        ("2027-01", "training", "pretrain-70b", "used", 380928, Decimal("2620784.64")),
        ("2027-01", "serving", "assistant", "used", 22196, Decimal("152708.48")),
        ("2027-01", "serving", "assistant", "idle", 25420, Decimal("174889.60")),
    ]


def test_an_inline_gpu_may_not_take_a_key_that_names_another_one():
    inline = {
        "key": "h100-sxm5-80gb",
        "name": "not that one",
        "memory_gb": 80,
        "memory_bandwidth_gb_per_s": 1000,
        "peak_tflops": {"bf16": 100},
    }
    run = EXAMPLE["training_runs"][0] | {"gpu": inline}
    with pytest.raises(InvalidScenario, match="names another GPU") as refused:
        estimate(EXAMPLE | {"training_runs": [run]})
    assert refused.value.pointer == "/scenario/training_runs/0/gpu/key"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"gpu": "h999"}, "/scenario/training_runs/0/gpu"),
        ({"architecture": "llama-99"}, "/scenario/training_runs/0/architecture"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_its_field(change, pointer):
    run = EXAMPLE["training_runs"][0] | change
    with pytest.raises(UnknownKey) as refused:
        estimate(EXAMPLE | {"training_runs": [run]})
    assert refused.value.pointer == pointer


def test_an_unknown_assumption_is_an_error_that_names_it():
    with pytest.raises(InvalidScenario) as refused:
        estimate(EXAMPLE | {"assumption_overrides": {"no_such_thing": 1}})
    assert refused.value.pointer == "/scenario/assumption_overrides/no_such_thing"


def test_a_run_that_outlives_the_horizon_is_shown_whole_with_gpus_that_end_it():
    # 54 times the example's tokens take 54 times its 1,167.905 hours: 63,067 h, 2,628 days from
    # 1 January 2027: 12 March 2034.
    run = EXAMPLE["training_runs"][0] | {"training_tokens": 54 * 2 * 10**12}
    answer = estimate(EXAMPLE | {"training_runs": [run]})
    (reason,) = answer.infeasibilities
    shown = answer.training_runs[0]
    assert reason.needed == pytest.approx(54 * 1167.905, rel=1e-6)
    assert shown.wall_clock_hours.value == pytest.approx(reason.needed)
    assert shown.finish_date == date(2034, 3, 12)
    assert shown.gpu_hours == pytest.approx(54 * 597967.252881)
    count = int(re.search(r"gpu_count (\d+)", reason.nearest_fix)[1])
    sized = run | {"sizing": {"kind": "gpu_count", "gpu_count": count}}
    assert estimate(EXAMPLE | {"training_runs": [sized]}).feasible


def test_the_range_of_a_run_reaches_the_hours_and_the_amount_of_the_plan():
    # The service was measured, so only the run is uncertain, and the plan by as much as the run.
    run = EXAMPLE["training_runs"][0] | {"speed": {"kind": "estimated"}}
    answer = estimate(EXAMPLE | {"training_runs": [run]})
    kept = {(q.scope, q.name): q for q in answer.quantities}
    hours, trained = answer.training_runs[0].wall_clock_hours, answer.training_runs[0]
    assert hours.low < hours.value < hours.high
    for name, whole, part in (
        ("plan_amount", float(answer.totals.amount), float(trained.amount)),
        ("plan_gpu_hours", answer.totals.gpu_hours, trained.gpu_hours),
    ):
        found = kept["plan", name]
        assert found.value == whole
        assert found.low == pytest.approx(whole - part * (1 - hours.low / hours.value))
        assert found.high == pytest.approx(whole + part * (hours.high / hours.value - 1))


def test_an_infeasible_plan_has_reasons_and_no_money():
    run = EXAMPLE["training_runs"][0] | {"sizing": {"kind": "gpu_count", "gpu_count": 8}}
    answer = estimate(EXAMPLE | {"training_runs": [run]})
    assert not answer.feasible
    assert answer.totals is None
    assert answer.lines == ()
    reason = answer.infeasibilities[0]
    assert (reason.workload, reason.code, reason.unit) == ("pretrain-70b", "memory", "GiB")
    # 16 B · 70.55e9 over 8 GPUs are 131 GiB each, before any activation.
    assert reason.needed > 16 * 70_553_706_496 / 8 / 2**30 > reason.available
    assert reason.nearest_fix
