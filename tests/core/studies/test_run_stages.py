"""Runs that follow one another in one estimate."""

import pytest

from service.core.errors import CoreError, InvalidScenario
from tests.core.training_questions import a_run
from tests.core.training_runs import on

LOAD = {"kind": "measured", "tokens_per_s_per_gpu": 500}


def stage(name, after, **fields):
    base = {
        "name": name,
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 1_440_000_000,
        "sizing": on(16),
        "speed": LOAD,
        "reliability": {"failures_per_1000_node_days": 0, "checkpoint_save_s": 0},
        "after": after,
    }
    return base | fields


def test_stages_follow_one_another():
    # 1.44e9 tokens at 500 token/s on 16 GPUs take 50 h, 800 GPU-hours.
    question = {
        "price_per_gpu_hour": "2",
        "stages": [stage("feedback", "tuned"), stage("tuned", "run")],
    }
    found = a_run(question=question, start_date="2027-01-01", **MEASURED_100_H)
    assert [(one.name, f"{one.start_date}") for one in found.stages] == [
        ("tuned", "2027-01-05"),
        ("feedback", "2027-01-07"),
    ]
    assert [f"{one.finish_date}" for one in found.stages] == ["2027-01-07", "2027-01-09"]
    assert [f"{one.amount}" for one in found.stages] == ["1600.00", "1600.00"]


def test_all_stages_add_up():
    question = {"price_per_gpu_hour": "2", "stages": [stage("tuned", "run"), stage("again", "run")]}
    found = a_run(question=question, start_date="2027-01-01", **MEASURED_100_H)
    first, total = found.wall_clock_hours.value, found.all_runs
    # Both start where the first ends, and take 800 GPU-hours in 50 h at 1,600 USD.
    assert first == pytest.approx(100)
    assert total.wall_clock_hours == pytest.approx(150)
    assert total.gpu_hours == pytest.approx(found.gpu_hours + 1600)
    assert total.amount == found.amount + 3200
    assert total.amount_in_whole_nodes == found.amount_in_whole_nodes + 3200
    assert f"{total.finish_date}" == "2027-01-07"


def test_a_stage_that_cannot_be_had_leaves_no_total():
    failing = stage("large", "run", gpu="l4-24gb", sizing=on(1), architecture="llama-3.1-70b")
    found = a_run(question={"stages": [failing | {"speed": {"kind": "estimated"}}]})
    assert not found.feasible
    assert found.all_runs is None


MEASURED_100_H = {
    # 64 · 1,000 token/s · 100 h.
    "training_tokens": 64 * 1000 * 360_000,
    "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
    "reliability": {"failures_per_1000_node_days": 0, "checkpoint_save_s": 0},
}


@pytest.mark.parametrize(
    ("stages", "pointer"),
    [
        ([stage("tuned", None)], "/stages/0/after"),
        ([stage("tuned", "nobody")], "/stages/0/after"),
        ([stage("run", "run")], "/stages/0/name"),
        ([stage("tuned", "run"), stage("tuned", "run")], "/stages/1/name"),
        ([stage("a", "b"), stage("b", "a")], "/stages/0/after"),
        ([stage("a", "run", gpu="no-such-gpu")], "/stages/0/gpu"),
    ],
)
def test_stages_that_cannot_be_are_refused_where_they_stand(stages, pointer):
    with pytest.raises(CoreError) as refused:
        a_run(question={"stages": stages})
    assert refused.value.pointer == pointer


def test_a_run_by_itself_follows_nothing():
    with pytest.raises(InvalidScenario) as refused:
        a_run(after="another")
    assert refused.value.pointer == "/run/after"


def test_stages_are_warned_of_as_a_plan_warns_of_them():
    """90 % of the peak is beyond what any published run reached."""
    speed = {"kind": "mfu", "mfu_fraction": 0.9}
    follows = stage("tuned", "run", speed=speed, architecture="llama-3.1-8b")
    found = a_run(question={"stages": [follows]})
    told = {(each.workload, each.code) for each in found.advisories}
    assert ("tuned", "implausible_measurement") in told
