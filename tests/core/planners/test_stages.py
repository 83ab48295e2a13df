"""Runs in sequence: a run starts when the one that it follows ends."""

from pathlib import Path

import pytest
import yaml

from service.core.errors import InvalidScenario
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario

WORKED = yaml.safe_load(
    (Path(__file__).parents[2] / "cases" / "plans" / "stages.yaml").read_text(encoding="utf-8")
)
NO_FAILURES = {"failures_per_1000_node_days": 0, "checkpoint_save_s": 0}


def run(name, *, training_tokens=10**10, gpu_count=16, tokens_per_s_per_gpu=500, **fields):
    return {
        "name": name,
        "gpu": "h100-sxm5-80gb",
        "training_tokens": training_tokens,
        "sizing": {"kind": "gpu_count", "gpu_count": gpu_count},
        "speed": {"kind": "measured", "tokens_per_s_per_gpu": tokens_per_s_per_gpu},
        "reliability": NO_FAILURES,
    } | {key: f"{value}" if key == "start_date" else value for key, value in fields.items()}


def estimate(snapshot, runs, *, pooling="separate", price="2", month_count=2, **fields):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": month_count},
        "training_runs": runs,
        "pooling": {"kind": pooling} | fields,
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": price}}],
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot)[0]


@pytest.mark.parametrize("case", WORKED["cases"], ids=lambda case: case["name"])
def test_stages_worked_by_hand(snapshot, case):
    found = estimate(snapshot, [run(**each) for each in WORKED["runs"]], pooling=case["pooling"])
    assert found.feasible
    assert found.totals.peak_gpu_count == case["peak_gpu_count"]
    assert f"{found.totals.amount}" == case["amount"]
    for each in found.training_runs:
        expect = case["runs"][each.name]
        assert (each.start_date, each.finish_date) == (expect["start"], expect["finish"])
        assert each.wall_clock_hours.value == pytest.approx(expect["hours"], abs=1e-6)
        assert each.gpu_hours == pytest.approx(expect["gpu_hours"], abs=1e-4)
        if "amount" in expect:
            assert f"{each.amount}" == expect["amount"]
    for line, expect in zip(found.lines, case.get("lines", ()), strict=False):
        assert (line.month, line.workload) == (expect["month"], expect["workload"])
        assert float(line.quantity) == pytest.approx(expect["quantity"], abs=1e-4)
        assert f"{line.amount}" == expect["amount"]
    if "lines" in case:
        assert len(found.lines) == len(case["lines"])


def test_the_order_of_the_request_does_not_matter(snapshot):
    runs = [run(**each) for each in WORKED["runs"]]
    ahead, reverse = estimate(snapshot, runs), estimate(snapshot, runs[::-1])
    assert [each.name for each in reverse.training_runs] == ["feedback", "finetune", "pretrain"]
    finishes = {each.name: each.finish_date for each in ahead.training_runs}
    assert {each.name: each.finish_date for each in reverse.training_runs} == finishes
    assert reverse.totals.amount == ahead.totals.amount


def test_a_given_fleet_runs_stages_one_after_the_other(snapshot):
    # 32 GPUs do the first 64 · 100 = 6,400 GPU-hours only in whole copies of 64: never.
    runs = [run(**each) for each in WORKED["runs"]]
    small = estimate(snapshot, runs, pooling="shared", fleet_gpu_count=32)
    late = {each.workload for each in small.infeasibilities}
    assert late == {"pretrain", "finetune", "feedback"}
    # 64 do it as in one pool by hand: 3 February 22:00 is the end of all.
    found = estimate(snapshot, runs, pooling="shared", fleet_gpu_count=64)
    assert found.feasible
    assert found.training_runs[2].gpu_hours == pytest.approx(320, abs=1e-4)
    hours = sum(each.wall_clock_hours.value for each in found.training_runs)
    assert hours == pytest.approx(100 + 12.5 + 5.5, abs=1e-6)


@pytest.mark.parametrize("pooling", ["separate", "shared"])
def test_fifty_runs_follow_one_another(snapshot, pooling):
    # 16 GPUs x 500 token/s x 3,600 s x 20 h = 576,000,000 tokens; 50 of them take 1,000 h, which
    # is 41 days and 16 h, so that the last ends on 11 February; 16 x 1,000 h x 2 USD = 32,000 USD.
    each = {"training_tokens": 576_000_000}
    runs = [run("run-0", **each)]
    runs += [run(f"run-{i}", after=f"run-{i - 1}", **each) for i in range(1, 50)]
    found = estimate(snapshot, runs[::-1], pooling=pooling)
    assert found.feasible
    assert found.totals.peak_gpu_count == 16
    finishes = {each.name: f"{each.finish_date}" for each in found.training_runs}
    assert (finishes["run-0"], finishes["run-49"]) == ("2027-01-01", "2027-02-11")
    assert sum(each.gpu_hours for each in found.training_runs) == pytest.approx(16_000, rel=1e-9)
    if pooling == "separate":
        assert f"{found.totals.amount}" == "32000.00"


def test_a_cycle_of_fifty_is_refused(snapshot):
    runs = [run(f"run-{i}", after=f"run-{(i + 1) % 50}") for i in range(50)]
    with pytest.raises(InvalidScenario, match="wait for one another"):
        estimate(snapshot, runs)


def test_a_date_counts_from_the_end_of_what_is_followed(snapshot):
    # 100 h from 1 January end on 5 January 04:00. 1.44e9 tokens at 500 token/s and GPU are 800
    # GPU-hours; until midnight there are 20 h, so 40 GPUs do and 39 do not.
    first = run("first", training_tokens=23_040_000_000, gpu_count=64, tokens_per_s_per_gpu=1000)
    second = run("second", training_tokens=1_440_000_000, after="first")
    second["sizing"] = {"kind": "finish_by", "finish_date": "2027-01-05"}
    found = estimate(snapshot, [first, second])
    assert found.training_runs[1].gpu_count == 48  # the next whole instance above 40.00002
    assert f"{found.training_runs[1].finish_date}" == "2027-01-05"


def test_what_follows_a_run_that_outlives_the_horizon_is_too_late_as_well(snapshot):
    # 59 days of the horizon; the first takes 2,000 h.
    first = run("first", training_tokens=57_600_000_000, tokens_per_s_per_gpu=500)
    found = estimate(snapshot, [first, run("second", after="first")])
    reasons = {each.workload: each for each in found.infeasibilities}
    assert set(reasons) == {"first", "second"}
    assert {each.code for each in reasons.values()} == {"deadline"}
    assert reasons["second"].available == 0
    assert "horizon of" in reasons["second"].nearest_fix


def test_what_follows_an_impossible_run_is_left_out(snapshot):
    impossible = run("first") | {
        "architecture": "llama-3.1-70b",
        "speed": {"kind": "mfu", "mfu_fraction": 0.4},
        "sizing": {"kind": "gpu_count", "gpu_count": 1},
    }
    found = estimate(snapshot, [impossible, run("second", after="first")])
    assert [each.workload for each in found.infeasibilities] == ["first"]
    assert found.training_runs == ()


@pytest.mark.parametrize(
    ("runs", "number", "says"),
    [
        ([run("a", after="b")], 0, "no training run is called 'b'"),
        ([run("a"), run("b", after="c")], 1, "the others are: 'a'"),
        ([run("a", after="a")], 0, "wait for one another"),
        ([run("a", after="b"), run("b", after="a")], 0, "'a', 'b'"),
        ([run("a"), run("b", after="a", start_date="2027-01-05")], 1, "either start_date or after"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused_where_it_stands(snapshot, runs, number, says):
    with pytest.raises(InvalidScenario, match=says) as refused:
        estimate(snapshot, runs)
    assert refused.value.pointer == f"/scenario/training_runs/{number}/after"


def test_in_a_shared_pool_a_run_follows_only_one_of_the_same_pool(snapshot):
    runs = [run("a"), run("b", after="a") | {"gpu": "h200-sxm-141gb"}]
    assert estimate(snapshot, runs).feasible
    with pytest.raises(InvalidScenario, match="another GPU") as refused:
        estimate(snapshot, runs, pooling="shared")
    assert refused.value.pointer == "/scenario/training_runs/1/after"
