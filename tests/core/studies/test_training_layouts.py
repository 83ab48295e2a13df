"""The search over layouts: what is chosen, memory against speed, and why the obvious ones fail."""

from itertools import pairwise

import pytest

from service.core.errors import InvalidScenario
from service.core.studies.runs import TrainingQuestion
from service.core.studies.training_layouts import estimate_training_layouts
from service.core.studies.training_memory import estimate_training_memory
from tests.core.training_runs import MFU_40, by, given, need, on, snapshot

GIB = 2**30
RUN = {
    "name": "pretrain",
    "architecture": "llama-3.1-70b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**12,
    "sizing": on(512),
}


def question(**fields):
    return TrainingQuestion.model_validate({"run": RUN | fields})


def layouts(**fields):
    return estimate_training_layouts(question(**fields), snapshot())


def obvious(found):
    return {each.kind: each for each in found.obvious}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"architecture": "llama-3.1-8b", "sizing": on(8)},
        {"architecture": "mixtral-8x7b", "sizing": on(64)},
    ],
)
def test_the_chosen_layout_is_that_of_plans_and_of_the_memory_estimate(fields):
    found = layouts(**fields)
    assert found.chosen.layout == need(**fields).layout
    memory = estimate_training_memory(question(**fields), snapshot())
    assert memory.layout == found.chosen.layout
    assert found.chosen.total_gib == pytest.approx(memory.memory_gib_per_gpu.total, rel=1e-12)
    assert found.chosen.margin_gib == pytest.approx(memory.margin_gib, rel=1e-9)
    assert found.chosen in found.frontier


def test_a_layout_of_the_frontier_is_faster_than_all_leaner_ones():
    found = layouts()
    assert len(found.frontier) > 3
    for leaner, larger in pairwise(found.frontier):
        assert leaner.total_gib < larger.total_gib
        assert leaner.tokens_per_s_per_gpu < larger.tokens_per_s_per_gpu
    # The fastest of those that fit is the chosen one; what comes after it needs more memory.
    fitting = [point for point in found.frontier if point.fits]
    assert fitting[-1] == found.chosen
    assert {point.speed_over_chosen_fraction > 1 for point in found.frontier[len(fitting) :]} <= {
        True
    }


def test_a_point_of_the_frontier_holds_what_its_layout_holds():
    for point in layouts().frontier[::5]:
        named = given(**point.layout.model_dump(exclude={"data_parallel", "micro_batch_count"}))
        memory = estimate_training_memory(question(layout=named), snapshot())
        assert memory.memory_gib_per_gpu.total == pytest.approx(point.total_gib, rel=1e-12)
        assert memory.memory_gib_per_gpu.verdict == point.verdict
        assert memory.feasible == point.fits


def test_obvious_layouts_of_70b_say_by_how_much_memory_falls_short():
    found = obvious(layouts())
    plain = found["plain_data_parallel"]
    # 16 bytes for each of 70.55e9 weights are 1,051 GiB on every GPU, whatever their number.
    assert plain.outcome == "memory"
    assert plain.needed > 16 * 70_553_706_496 / GIB
    # 95 % of 79.18 GiB.
    assert plain.available == pytest.approx(0.95 * 81079 / 1024, rel=1e-3)
    assert plain.short_gib == pytest.approx(plain.needed - plain.available)
    assert f"{plain.short_gib:.1f} GiB more" in plain.why
    assert found["sharded_optimizer"].outcome == "memory"
    # 4 + 12/512 bytes.
    assert found["sharded_optimizer"].needed > (4 + 12 / 512) * 70_553_706_496 / GIB


def test_obvious_layouts_that_are_illegal_name_the_rule():
    # 2^24 tokens are 2,048 sequences of 8,192: not one for each of 16,384 copies.
    found = obvious(
        layouts(architecture="llama-3.1-405b", sizing=on(16384), global_batch_tokens=2**24)
    )
    for kind in ("plain_data_parallel", "sharded_weights"):
        assert (found[kind].outcome, found[kind].needed, found[kind].available) == (
            "layout",
            16384,
            2048,
        )
        assert "divides the global batch" in found[kind].limit
    assert found["tensor_parallel_node"].outcome in {"slower", "memory"}
    # Two stages of eight GPUs do not stand on eight GPUs.
    small = obvious(layouts(architecture="llama-3.1-8b", sizing=on(8)))
    assert small["tensor_and_pipeline"].outcome == "layout"


def test_an_obvious_layout_that_fits_says_how_much_slower_it_is():
    found = layouts(architecture="llama-3.1-8b", sizing=on(64), sequence_length_tokens=4096)
    slower = [each for each in found.obvious if each.outcome == "slower"]
    assert slower
    for each in slower:
        share = each.best.tokens_per_s_per_gpu / found.chosen.tokens_per_s_per_gpu
        assert each.best.speed_over_chosen_fraction == pytest.approx(share)
        assert each.best.fits
        assert f"{1 - share:.1%} slower" in each.why
    assert [each.kind for each in found.obvious if each.outcome == "chosen"]


def test_expert_parallelism_is_obvious_for_mixtures_only():
    assert "expert_parallel_alone" in obvious(layouts(architecture="mixtral-8x7b", sizing=on(64)))
    assert "expert_parallel_alone" not in obvious(layouts())


def test_a_run_that_fits_nowhere_shows_its_frontier_and_what_would_do():
    found = layouts(sizing=on(8))
    assert not found.feasible
    assert (found.chosen, found.fitting_layout_count) == (None, 0)
    assert found.legal_layout_count > 0
    assert all(not point.fits for point in found.frontier)
    assert {each.outcome for each in found.obvious} <= {"memory", "layout"}
    (reason,) = found.infeasibilities
    count = int(reason.nearest_fix.split(" ")[0])
    assert layouts(sizing=on(count)).feasible


def test_gpus_without_a_legal_layout_are_said():
    # 500 = 4 · 125 copies do not divide 512 sequences.
    found = layouts(sizing=on(500))
    assert (found.legal_layout_count, found.frontier, found.chosen) == (0, (), None)
    assert {each.outcome for each in found.obvious} == {"layout"}
    assert found.infeasibilities[0].code == "layout"


def test_a_batch_that_is_not_whole_sequences_is_refused_before_layouts_are_judged():
    found = layouts(global_batch_tokens=4_000_000)
    assert (found.legal_layout_count, found.frontier, found.obvious) == (0, (), ())
    assert "global_batch_tokens" in found.infeasibilities[0].nearest_fix


def test_a_named_layout_is_not_looked_at():
    named = given(tensor_parallel=4, pipeline_parallel=2)
    assert layouts(layout=named).chosen == layouts().chosen


def test_a_given_speed_leaves_one_point_that_needs_least():
    found = layouts(speed=MFU_40)
    assert {point.tokens_per_s_per_gpu for point in found.frontier} == {
        found.chosen.tokens_per_s_per_gpu
    }


def test_a_number_of_gpus_is_needed():
    with pytest.raises(InvalidScenario) as refused:
        layouts(sizing=by("2028-06-30"))
    assert refused.value.pointer == "/run/sizing"
