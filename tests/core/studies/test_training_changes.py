"""The changes that make a run fit: each fits when it is made, the smallest and fastest first."""

import pytest

from tests.core.training_questions import memory
from tests.core.training_runs import given, on

GIB = 2**30


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": given(sharding="none", recompute="none")},
        {"layout": given(sharding="zero_1", recompute="none", micro_batch_sequences=8)},
        {
            "architecture": "llama-3.1-70b",
            "sizing": on(64),
            "layout": given(tensor_parallel=8, pipeline_parallel=1, sharding="none"),
        },
        {"architecture": "llama-3.1-70b", "sizing": on(8), "gpu": "a100-sxm4-80gb"},
        {
            "architecture": "mixtral-8x7b",
            "sizing": on(8),
            "layout": given(sharding="zero_3", recompute="none"),
        },
    ],
)
def test_every_change_that_is_named_fits_when_it_is_made(fields):
    found = memory(**fields)
    assert not found.feasible
    assert found.margin_gib < 0.05 * found.memory_gib_per_gpu.available
    assert found.fitting_changes
    for change in found.fitting_changes:
        degrees = change.layout.model_dump(exclude={"data_parallel", "micro_batch_count"})
        again = memory(
            **fields
            | {
                "layout": given(**degrees),
                "sizing": on(change.gpu_count),
                "offload": change.offload,
                "loss": change.loss,
            }
        )
        assert again.feasible, change.change
        assert again.memory_gib_per_gpu.total == pytest.approx(change.total_gib, rel=1e-12)
        assert again.margin_gib == pytest.approx(change.margin_gib, rel=1e-9)
        assert again.memory_gib_per_gpu.verdict == change.verdict != "red"


def test_a_named_change_that_holds_a_smaller_one_is_faster():
    # 16 bytes of 8.03e9 weights are 120 GiB; sharding alone cannot make room for eight sequences of
    # activations without recompute, so it is named together with another.
    found = memory(layout=given(sharding="none", recompute="none", micro_batch_sequences=8))
    changed = [
        (frozenset(part.split()[0] for part in change.change.split(" and ")), change)
        for change in found.fitting_changes
        if change.kind not in {"more_gpus", "offload"}
    ]
    assert len(changed) > 1
    for names, change in changed:
        for fewer, smaller in changed:
            if fewer < names:
                assert change.tokens_per_s_per_gpu >= 1.05 * smaller.tokens_per_s_per_gpu


def on_the_same_gpus(found):
    return [each for each in found.fitting_changes if each.kind not in {"more_gpus", "offload"}]


def test_offers_on_the_same_gpus_are_in_the_order_of_the_speed_that_they_keep():
    # 70B, tensor parallel 8 without sequence parallelism: norms and residuals are whole on every
    # rank. Splitting them along the sequence makes room, and only adds speed; recomputing all
    # layers repeats the forward pass, 8 units of work in place of 6, so keeps about 6/8.
    found = memory(
        architecture="llama-3.1-70b",
        layout=given(tensor_parallel=8, sharding="zero_1", sequence_parallel=False),
    )
    split, again = on_the_same_gpus(found)
    assert (split.kind, split.change) == ("sequence_parallel", "sequence_parallel true")
    assert split.layout.sequence_parallel
    assert split.speed_kept_fraction >= 1
    assert (again.kind, again.change) == ("recompute", "recompute full")
    assert again.speed_kept_fraction == pytest.approx(6 / 8, abs=0.05)
    kept = split.speed_kept_fraction / again.speed_kept_fraction
    assert split.tokens_per_s_per_gpu / again.tokens_per_s_per_gpu == pytest.approx(kept)
    assert found.nearest_fix == split.change


def test_a_leaner_loss_is_offered_and_costs_no_speed():
    # 8B, 32,768 tokens: 24 bytes of each of 128,256 logits are 94 GiB, 4 bytes 15.7 GiB.
    fields = {
        "sizing": on(8),
        "sequence_length_tokens": 32768,
        "loss": "plain",
        "layout": given(sharding="zero_1", recompute="full"),
    }
    found = memory(**fields)
    (fused,) = on_the_same_gpus(found)
    assert (fused.kind, fused.change, fused.loss) == ("loss", "loss fused", "fused")
    assert fused.speed_kept_fraction == pytest.approx(1)
    needed = found.memory_gib_per_gpu.total - fused.total_gib
    # Fragmentation is a share of everything else; the layer that is rebuilt hides in plain logits.
    assert 0.8 < needed / (20 * 32768 * 128256 / GIB) < 1.1
    assert memory(**fields | {"loss": "fused"}).feasible


def test_a_run_without_a_layout_of_its_own_is_offered_a_leaner_loss_too():
    # 131,072 tokens on two GPUs: plain logits of each half are 24 · 65,536 · 128,256 B, 188 GiB.
    fields = {"sizing": on(2), "sequence_length_tokens": 131072, "loss": "plain"}
    found = memory(**fields | {"offload": "optimizer"})
    assert not found.feasible
    (leaner,) = on_the_same_gpus(found)
    assert found.nearest_fix == leaner.change == f"loss {leaner.loss}"
    assert memory(**fields | {"offload": "optimizer", "loss": leaner.loss}).feasible


def test_a_given_speed_tells_no_offer_apart():
    mfu = {"kind": "mfu", "mfu_fraction": 0.4}
    found = memory(layout=given(sharding="none", micro_batch_sequences=8), speed=mfu)
    for change in found.fitting_changes:
        assert (change.tokens_per_s_per_gpu, change.speed_kept_fraction) == (None, None)


def test_a_run_that_fits_needs_no_change():
    found = memory(layout=given(sharding="zero_3", recompute="full"))
    assert found.feasible
    assert found.fitting_changes == ()


def test_the_smallest_change_comes_first():
    # 8B on one node in 128.5 GB of state: with the optimizer shared, 4 · 8.03 + 12 · 8.03 / 8 =
    # 44.2 GB of it fit beside the activations, so no further stage is named.
    found = memory(
        sizing=on(8),
        sequence_length_tokens=2048,
        layout=given(sharding="none", recompute="full"),
    )
    first = found.fitting_changes[0]
    assert (first.kind, first.change) == ("sharding", "sharding zero_1")
    assert found.nearest_fix == first.change
