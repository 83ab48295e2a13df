"""Legal layouts only: an illegal one is refused with the nearest that works."""

import re

import numpy as np
import pytest

from service.core.parallelism.axes import SHARDINGS
from service.core.parallelism.near import described
from service.core.run.choice import choose
from tests.core.training_runs import (
    MFU_40,
    by,
    case_of,
    given,
    need,
    on,
    refusal,
    snapshot,
)

MIXTRAL = {"architecture": "mixtral-8x7b", "gpu": "h100-sxm5-80gb"}


@pytest.mark.parametrize(
    ("layout", "limit"),
    [
        (given(tensor_parallel=16), "scale-up domain"),
        (given(tensor_parallel=3), "attention heads"),
        (given(pipeline_parallel=64, virtual_pipeline_stages=2), "pipeline chunk"),
        (given(context_parallel=3), "divides the sequence"),
        (given(expert_parallel=2), "routed experts"),
        (given(tensor_parallel=8, pipeline_parallel=5), "whole model copies"),
        (given(tensor_parallel=8, micro_batch_sequences=16), "global batch"),
        # 512 sequences over 8 copies of 16 are 4 micro-batches for 8 stages.
        (
            given(
                tensor_parallel=8,
                pipeline_parallel=8,
                virtual_pipeline_stages=2,
                micro_batch_sequences=16,
            ),
            "interleaved",
        ),
    ],
)
def test_an_illegal_layout_is_refused_by_the_rule_it_breaks(layout, limit):
    reason = refusal(layout=layout, speed=MFU_40, sizing=on(512))
    assert reason.code == "layout"
    assert limit in reason.limit
    assert reason.nearest_fix


@pytest.mark.parametrize(
    "layout",
    [
        given(tensor_parallel=16, pipeline_parallel=4),
        given(tensor_parallel=3, pipeline_parallel=4),
        given(tensor_parallel=8, pipeline_parallel=5),
        given(tensor_parallel=4, pipeline_parallel=4, micro_batch_sequences=5),
    ],
)
def test_the_layout_that_is_named_instead_is_legal(layout):
    reason = refusal(layout=layout, speed=MFU_40)
    named = dict(re.findall(r"(\w+_parallel|micro_batch_sequences) (\d+)", reason.nearest_fix))
    named.pop("data_parallel")
    words = dict(re.findall(r"(sharding|recompute) (\w+)", reason.nearest_fix))
    instead = given(**{name: int(size) for name, size in named.items()}, **words)
    assert need(layout=instead, speed=MFU_40).layout.gpu_count == 512


def test_the_nearest_layout_changes_only_what_is_illegal():
    # 64 heads: 3 does not divide them, 4 is nearer than 2 on a logarithmic scale.
    reason = refusal(layout=given(tensor_parallel=3, pipeline_parallel=4), speed=MFU_40)
    assert "tensor_parallel 4, pipeline_parallel 4" in reason.nearest_fix


def test_heads_that_no_group_divides_name_those_that_do():
    # 40 heads on 3 or 6 GPUs are illegal, 8 is legal (vllm-project/vllm#596).
    fields = {"architecture": "qwen2.5-14b", "speed": MFU_40, "sizing": on(48)}
    assert snapshot().architecture("qwen2.5-14b").head_counts == (40,)
    fields["global_batch_tokens"] = 8192 * 48
    assert refusal(layout=given(tensor_parallel=6), **fields).code == "layout"
    assert need(layout=given(tensor_parallel=8), **fields).gpu_count == 48


def test_key_and_value_heads_are_divided_or_copied_whole():
    # 96 query heads, 8 key and value heads: 3 divides the first, and neither divides the other.
    fields = {"architecture": "glm-4.5", "speed": MFU_40, "sizing": on(96)}
    fields |= {"global_batch_tokens": 8192 * 96, "layout": given(tensor_parallel=3)}
    assert "key and value heads" in refusal(**fields).limit


def batch_in(fix):
    return int(re.search(r"global_batch_tokens ([\d,]+)", fix)[1].replace(",", ""))


@pytest.mark.parametrize(
    ("batch", "fields"),
    [
        # 4,000,000 / 8,192 = 488.28 sequences; 488 = 8 · 61 copies work, 489 = 3 · 163 do not.
        (4_000_000, {}),
        # 9.9 sequences for copies of 64 GPUs in eight micro-batches of one.
        (81_000, {"layout": given(tensor_parallel=8, pipeline_parallel=8), "sizing": on(512)}),
        # 100 sequences on 64 copies: 64 are nearer than 128.
        (100 * 8192, {"layout": given(sharding="zero_3", recompute="full"), "sizing": on(64)}),
    ],
)
def test_the_nearest_legal_batch_is_named(batch, fields):
    reason = refusal(global_batch_tokens=batch, speed=MFU_40, **fields)
    assert reason.code == "layout"
    fixed = batch_in(reason.nearest_fix)
    assert need(global_batch_tokens=fixed, speed=MFU_40, **fields).layout
    distance = abs(fixed - batch)
    for sequences in range(max(1, (batch - distance) // 8192 + 1), (batch + distance) // 8192):
        if sequences * 8192 != fixed and abs(sequences * 8192 - batch) < distance:
            refusal(global_batch_tokens=sequences * 8192, speed=MFU_40, **fields)


def test_a_date_leaves_every_whole_number_of_sequences_open():
    reason = refusal(global_batch_tokens=4_000_000, speed=MFU_40, sizing=by("2028-06-30"))
    assert (reason.available, reason.needed) == (488, 4_000_000 / 8192)
    assert "3,997,696" in reason.nearest_fix
    assert "4,005,888" in reason.nearest_fix


def test_a_batch_that_the_copies_do_not_divide_is_refused_instead_of_cut():
    # Two GPUs with a global batch of three sequences (mosaicml/examples PR#41).
    reason = refusal(
        architecture="llama-3.2-1b",
        layout=given(sharding="zero_3"),
        sizing=on(2),
        global_batch_tokens=3 * 8192,
        speed=MFU_40,
    )
    assert (reason.code, reason.needed, reason.available) == ("layout", 2, 3)


def test_degrees_that_do_not_make_the_gpu_count_are_refused():
    # 4 · 2 degrees on 2 GPUs (mosaicml/examples PR#41).
    layout = given(tensor_parallel=4, pipeline_parallel=2)
    reason = refusal(layout=layout, sizing=on(2), speed=MFU_40)
    assert (reason.needed, reason.available) == (8, 2)


def test_a_gpu_count_without_any_legal_layout_names_its_neighbours():
    # 1000 = 8 · 125: 512 sequences and 80 layers have no factor 25 and 5 to share.
    reason = refusal(speed=MFU_40, sizing=on(1000))
    assert reason.code == "layout"
    _, counts = reason.nearest_fix.split("; or gpu_count ")
    below, above = (int(n) for n in counts.split(" or "))
    assert below < 1000 < above
    for count in (below, above):
        assert need(speed=MFU_40, sizing=on(count)).gpu_count == count


def test_a_gpu_count_that_the_batch_does_not_divide_names_a_batch_first():
    # 440 = 8 · 55. Of 2,048 sequences 55 copies of 8 GPUs can share 37 each, 2,035: 13 fewer, where
    # 38 each were 42 more, and 110, 220 and 440 copies are further off: 1,980 or 2,090 and beyond.
    fields = {
        "architecture": "mpt-7b",
        "gpu": "a100-sxm4-40gb",
        "sequence_length_tokens": 2048,
        "sizing": on(440),
    }
    reason = refusal(global_batch_tokens=2048 * 2048, **fields)
    batch, counts = reason.nearest_fix.split("; or ")
    assert batch_in(batch) == 2035 * 2048
    assert counts.startswith("gpu_count ")
    assert need(global_batch_tokens=2035 * 2048, **fields).layout.gpu_count == 440


GPT_3 = {
    "architecture": "gpt-3-175b",
    "gpu": "a100-sxm4-80gb",
    "sequence_length_tokens": 2048,
    "global_batch_tokens": 1536 * 2048,
}


def test_tensor_groups_that_are_chosen_fill_nodes_or_racks_without_a_rest():
    # 96 heads: of 3 in nodes of 8 ranks 6, 7 and 8 lie over an edge; 72 is 3 · 24.
    fields = GPT_3 | {"sizing": on(288)}
    eight = case_of(**fields).layouts
    assert set(eight.rules.degrees().tensor) == {1, 2, 4, 8}
    rack = case_of(**fields | {"gpu": "gb200-nvl72"}).layouts
    assert set(rack.rules.degrees().tensor) == {1, 2, 3, 4, 6, 8, 12, 24}
    # Six GPUs that are rented at once hold two groups of three.
    six = case_of(**fields, instance_gpu_count=6).layouts
    assert set(six.rules.degrees().tensor) == {1, 2, 3, 6}


@pytest.mark.parametrize("count", [384, 960])
def test_no_chosen_layout_has_tensor_groups_over_the_edge_of_a_node(count):
    # 1,920 sequences are 384 · 5 and 960 · 2.
    fields = GPT_3 | {"global_batch_tokens": 1920 * 2048, "sizing": on(count)}
    assert 8 % need(**fields).layout.tensor_parallel == 0


def test_a_mend_names_tensor_groups_that_divide_a_node():
    # Twelve do not reach over a node of 8; 8 is nearer than 4 and 16 on a logarithmic scale.
    fields = GPT_3 | {"gpu": "h100-sxm5-80gb", "sizing": on(48)}
    reason = refusal(layout=given(tensor_parallel=12), **fields)
    assert "tensor_parallel 8," in reason.nearest_fix


def test_experts_are_spread_over_at_most_128_gpus_unless_the_request_says_so():
    # DeepSeek-V3 was trained with 64 (arXiv 2412.19437, section 3.2): the search goes twice as far.
    fields = {
        "architecture": "deepseek-v3",
        "sequence_length_tokens": 2048,
        "global_batch_tokens": 1536 * 2048,
        "sizing": on(3072),
    }
    assert max(case_of(**fields).layouts.rules.degrees().expert) == 128
    assert need(**fields).layout.expert_parallel <= 128
    # Of 256 experts each of 256 GPUs holds one of every layer.
    wide = given(tensor_parallel=4, expert_parallel=256, micro_batch_sequences=2)
    assert need(layout=wide, **fields).layout.expert_parallel == 256


@pytest.mark.parametrize(
    ("sequence", "widest"),
    # 4,096 tokens a rank, as in published layouts of 70B and 405B at 8,192 tokens on 2 ranks.
    [(4096, 1), (8192, 2), (32768, 8)],
)
def test_context_ranks_that_are_chosen_keep_as_many_tokens_as_tuned_ones(sequence, widest):
    case = case_of(sequence_length_tokens=sequence, global_batch_tokens=512 * sequence)
    assert max(case.layouts.rules.degrees().context) == widest


def test_experts_must_be_divided_and_their_groups_be_whole():
    fields = MIXTRAL | {"speed": MFU_40, "sizing": on(64)}
    assert "routed experts" in refusal(layout=given(expert_parallel=3), **fields).limit
    layout = given(tensor_parallel=8, pipeline_parallel=4, expert_parallel=8)
    assert "data_parallel" in refusal(layout=layout, **fields).limit
    found = need(layout=given(tensor_parallel=2, pipeline_parallel=4, expert_parallel=8), **fields)
    assert found.layout.expert_parallel == 8


def test_aliases_of_sharding_mean_the_same():
    named = [
        need(
            architecture="llama-3.1-8b", layout=given(sharding=name), speed=MFU_40, sizing=on(64)
        ).layout.sharding
        for name in ("full_shard", "shard_grad_op", "hybrid_shard")
    ]
    assert named == ["zero_3", "zero_2", "hybrid"]


@pytest.mark.parametrize(
    "fields",
    [
        {"sizing": on(512)},
        {"sizing": on(288)},
        {"architecture": "deepseek-v3", "sizing": on(512), "sequence_length_tokens": 4096},
        MIXTRAL | {"sizing": on(64)},
        {"architecture": "llama-3.1-405b", "sizing": on(1024), "gpu": "gb200-nvl72"},
        {"sequence_length_tokens": 131072, "sizing": on(512)},
    ],
)
def test_a_chosen_layout_is_legal_and_makes_the_gpu_count(fields):
    found = need(**fields)
    layout, rules = found.layout, case_of(**fields).layouts.rules
    assert layout.gpu_count == found.gpu_count == fields["sizing"]["gpu_count"]
    sequences = layout.data_parallel * layout.micro_batch_sequences * layout.micro_batch_count
    assert sequences == rules.batch_sequences
    again = given(
        **{
            name: getattr(layout, name)
            for name in (
                "tensor_parallel",
                "pipeline_parallel",
                "virtual_pipeline_stages",
                "context_parallel",
                "expert_parallel",
                "sharding",
                "micro_batch_sequences",
                "recompute",
            )
        }
    )
    named = need(**fields | {"layout": again})
    assert named.layout == layout
    assert named.wall_clock_hours == found.wall_clock_hours
    assert named.memory == found.memory


@pytest.mark.parametrize("fields", [{}, MIXTRAL | {"sizing": on(64)}])
def test_no_layout_that_fits_is_faster_than_the_chosen_one(fields):
    case = case_of(**fields)
    count = case.run.sizing.gpu_count
    best = choose(case, count)
    rules, memory = case.layouts.rules, case.layouts.memory
    axes = rules.candidates(case.layouts.degrees, count)
    rates = case.speed.estimated_rate(axes, case.recorder.off())[0]
    available = case.gpu.memory_cuda_mib * 2**20
    fits = memory.terms(axes, case.recorder.off()).total < 0.95 * available
    assert best.rate == pytest.approx(rates[fits].max(), rel=1e-9)
    assert (rates[~fits] > 0).any()


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        # As many chunks as layers, one apart: 80 layers on 8 stages of 10.
        (
            {"sizing": on(2048), "sequence_length_tokens": 4096, "global_batch_tokens": 512 * 4096},
            {"tensor_parallel": 4, "pipeline_parallel": 8, "virtual_pipeline_stages": 10},
        ),
        # A sequence on two GPUs each, as in published layouts of 70B and 405B at 8,192 tokens.
        (
            {"architecture": "llama-3.1-405b", "sizing": on(1024)},
            {
                "tensor_parallel": 8,
                "pipeline_parallel": 16,
                "virtual_pipeline_stages": 8,
                "context_parallel": 2,
                "recompute": "none",
            },
        ),
        # Gradients wait for the last micro-batch under a pipeline, sharded or not.
        (
            {
                "architecture": "gpt-3-175b",
                "gpu": "b200-sxm-180gb",
                "sizing": on(256),
                "sequence_length_tokens": 4096,
                "global_batch_tokens": 64 * 4096,
            },
            {
                "tensor_parallel": 8,
                "pipeline_parallel": 8,
                "virtual_pipeline_stages": 4,
                "sharding": "zero_2",
                "recompute": "none",
            },
        ),
    ],
)
def test_a_layout_that_others_would_name_is_not_faster_than_the_chosen_one(fields, layout):
    named = choose(case_of(layout=given(**layout), **fields), fields["sizing"]["gpu_count"])
    chosen = choose(case_of(**fields), fields["sizing"]["gpu_count"])
    assert chosen.rate >= named.rate * (1 - 1e-9)


def test_a_gpu_count_that_only_uneven_stages_divide_has_a_layout():
    # 72 = 8 · 9: 32 layers on 9 stages of at most 4, 1,024 sequences on 8 copies.
    found = need(
        architecture="llama-3.1-8b",
        gpu="gb200-nvl72",
        sizing=on(72),
        global_batch_tokens=1024 * 8192,
    )
    assert found.layout.pipeline_parallel % 9 == 0


def test_candidates_are_told_apart_and_described():
    case = case_of(sizing=on(64))
    axes = case.layouts.rules.candidates(case.layouts.degrees, 64)
    names = {described(axes.take(index).layout()) for index in range(len(axes.tensor))}
    assert len(names) == len(axes.tensor) > 100
    assert set(np.unique(axes.sharding)) <= set(range(len(SHARDINGS)))


@pytest.mark.parametrize("architecture", ["gpt-2-124m", "qwen3-0.6b", "llama-3.2-1b"])
@pytest.mark.parametrize("count", [8, 64])
def test_a_tiny_model_is_copied_and_not_split(architecture, count):
    # 16 bytes for 1.24e9 weights are 18 GiB: a copy fits with room, and no split computes less.
    found = need(architecture=architecture, sizing=on(count), sequence_length_tokens=4096).layout
    assert (found.gpus_per_copy, found.data_parallel) == (1, count)
    assert found.sharding in {"none", "zero_1"}


def test_degrees_beyond_all_reason_are_refused():
    # Their product does not fit 64 bits.
    huge = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "context_parallel"), 10**7)
    assert refusal(layout=given(**huge), sizing=on(8), speed=MFU_40).code == "layout"
