"""Runs whose layers are not known: what their parameters alone take, and what is not checked."""

import pytest

from service.core.studies.runs import TrainingQuestion
from service.core.studies.training_memory import estimate_training_memory
from service.core.studies.training_run import TrainingRunQuestion, estimate_training_run
from tests.core.training_runs import by, need, on, refusal, run, snapshot

GIB = 2**30
MFU = {"kind": "mfu", "mfu_fraction": 0.3}
MEASURED = {"kind": "measured", "tokens_per_s_per_gpu": 100.0}
P = 1_600_000_000_000
PRO = {"architecture": "deepseek-v4-pro", "speed": MFU}
LEAST = 317
"""16 B · 1.6e12 = 25.6e12 B over 95 % of the 85.029e9 B that programs can address: 316.9."""


def memory(**fields):
    asked = {"run": run(**PRO | fields)}
    return estimate_training_memory(TrainingQuestion.model_validate(asked), snapshot())


def test_parameters_that_outgrow_one_gpu_are_refused_with_the_count_that_holds_them():
    found = memory(sizing=on(1))
    assert not found.feasible
    (reason,) = found.infeasibilities
    assert reason.code == "memory"
    assert reason.needed == pytest.approx(16 * P / GIB)
    assert reason.available == pytest.approx(0.95 * 85.029 * 1e9 / GIB, rel=1e-4)
    assert reason.nearest_fix.startswith(f"gpu_count {LEAST},")
    assert found.nearest_fix == reason.nearest_fix
    assert not memory(sizing=on(LEAST - 1)).feasible


def test_parameters_that_find_room_are_answered_and_said_to_be_all_that_is_checked():
    found = memory(sizing=on(LEAST))
    assert found.feasible
    assert found.memory_gib_per_gpu is None
    (told,) = [each for each in found.advisories if each.code == "memory_not_checked"]
    assert "only the state of its parameters" in told.message


def test_a_plan_refuses_the_same_and_names_whole_instances():
    reason = refusal(**PRO, sizing=on(8))
    assert reason.code == "memory"
    assert reason.needed == pytest.approx(16 * P / 8 / GIB)
    # 317 in instances of 8.
    assert reason.nearest_fix.startswith("gpu_count 320,")
    assert need(**PRO, sizing=on(320)).gpu_count == 320


def test_a_date_is_met_with_no_fewer_gpus_than_hold_the_state():
    # A million tokens need no time at all, and 320 GPUs all the same.
    found = need(**PRO, training_tokens=10**6, global_batch_tokens=2**16, sizing=by("2027-03-31"))
    assert found.gpu_count == 320


def test_offloaded_state_is_held_by_gpus_and_hosts_together():
    # Weights alone, 2 B · 1.6e12 over 80.78e9 B a GPU, would need 40 GPUs; the other 14 B with
    # their buffers go to hosts of 8 GPUs, which need more.
    reason = refusal(**PRO, offload="optimizer", sizing=on(48))
    assert (reason.code, reason.limit) == ("memory", "memory of the host of a node")
    count = int(reason.nearest_fix.split(",")[0].removeprefix("gpu_count "))
    assert need(**PRO, offload="optimizer", sizing=on(count)).gpu_count == count
    assert refusal(**PRO, offload="optimizer", sizing=on(count - 8)).code == "memory"


def test_a_run_without_an_architecture_is_said_not_to_be_checked():
    asked = {"run": run(architecture=None, speed=MEASURED, training_tokens=10**9, sizing=on(8))}
    for estimate, question in (
        (estimate_training_memory, TrainingQuestion),
        (estimate_training_run, TrainingRunQuestion),
    ):
        found = estimate(question.model_validate(asked), snapshot())
        assert found.feasible
        told = [each for each in found.advisories if each.code == "memory_not_checked"]
        assert len(told) == 1
        assert "nothing of its memory is checked" in told[0].message


def test_a_run_whose_layers_are_known_is_not_said_so():
    found = memory(architecture="llama-3.1-8b", sizing=on(8))
    assert "memory_not_checked" not in {each.code for each in found.advisories}
