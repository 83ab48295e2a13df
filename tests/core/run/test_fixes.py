"""What a refusal names as its mend is applied to the request, and must then be answered."""

import random
import re

import pytest

from service.core.run.changes import on_more_gpus
from tests.core.training_runs import RunNeed, answer, case_of, given, on

DEGREES = (
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline_stages",
    "context_parallel",
    "expert_parallel",
    "expert_tensor_parallel",
    "micro_batch_sequences",
)
ARCHITECTURES = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "mixtral-8x7b",
    "deepseek-v3",
    "qwen3-30b-a3b",
    "gemma-3-27b",
    "jamba-v0.1",
    "minimax-text-01",
)
GPUS = ("h100-sxm5-80gb", "a100-sxm4-40gb", "b200-sxm-180gb", "tpu-v5p", "l40s-48gb")


def question(seed):
    """Runs of which most have layouts that are illegal, too large, or a batch that is not whole."""
    draw = random.Random(seed)
    sequence = draw.choice((2048, 8192, 32768))
    layout = given(
        tensor_parallel=draw.choice((1, 2, 4, 8)),
        pipeline_parallel=draw.choice((1, 1, 2, 3, 4)),
        context_parallel=draw.choice((1, 1, 2)),
        expert_parallel=draw.choice((1, 1, 2, 8)),
        sharding=draw.choice(("none", "zero_1", "zero_2", "zero_3", "hybrid")),
        micro_batch_sequences=draw.choice((1, 2, 4)),
        recompute=draw.choice(("none", "half", "full")),
        sequence_parallel=draw.random() < 0.7,
    )
    fields = {
        "architecture": draw.choice(ARCHITECTURES),
        "gpu": draw.choice(GPUS),
        "training_tokens": 10**9,
        "sequence_length_tokens": sequence,
        "global_batch_tokens": sequence * draw.choice((3, 8, 64, 100, 512)) + draw.choice((0, 5)),
        "sizing": on(draw.choice((1, 4, 8, 12, 64, 128, 1000))),
        "state_recipe": draw.choice(("mixed_bf16_adam_bf16_gradients", "pure_bf16_adam")),
        "offload": draw.choice(("none", "none", "optimizer", "optimizer_and_parameters")),
    }
    fields["loss"] = draw.choice((None, "plain", "typical", "fused", "chunked"))
    return fields | ({"layout": layout} if draw.random() < 0.8 else {})


def layout_in(text):
    """Degrees, sharding and recompute as a mend spells them."""
    found = {}
    for name in DEGREES:
        if number := re.search(rf"(?<![a-z_]){name} (\d+)", text):
            found[name] = int(number[1])
    for name in ("sharding", "recompute"):
        if word := re.search(rf"{name} (\w+)", text):
            found[name] = word[1]
    if word := re.search(r"sequence_parallel (true|false)", text):
        found["sequence_parallel"] = word[1] == "true"
    return found


def mended(fields, text):
    """The question with one named mend applied; one for each of several numbers."""
    if named := re.match(r"offload (\w+), with (.*)", text):
        yield fields | {"offload": named[1], "layout": given(**layout_in(named[2]))}
    elif named := re.match(r"(?:global_batch_tokens ([\d,]+) .* )?on (\d+) GPUs[:,] (.*)", text):
        batch = named[1] and {"global_batch_tokens": int(named[1].replace(",", ""))}
        layout = given(**layout_in(named[3]))
        yield fields | (batch or {}) | {"sizing": on(int(named[2])), "layout": layout}
    elif named := re.match(r"(\d+) GPUs, such as (.*)", text):
        yield fields | {"sizing": on(int(named[1])), "layout": given(**layout_in(named[2]))}
    elif named := re.match(r"this layout on (.*) GPUs", text):
        yield from (fields | {"sizing": on(int(count))} for count in named[1].split(" or "))
    elif named := re.match(r"gpu_count (.*)", text):
        for count in named[1].split(" or "):
            yield {k: v for k, v in fields.items() if k != "layout"} | {"sizing": on(int(count))}
    elif batches := re.findall(r"global_batch_tokens ([\d,]+)", text):
        yield from (fields | {"global_batch_tokens": int(n.replace(",", ""))} for n in batches)
    else:
        loss = re.search(r"loss (\w+)", text)
        changed = fields | ({"loss": loss[1]} if loss else {})
        if "layout" in fields:
            changed |= {"layout": fields["layout"] | layout_in(text)}
        yield changed


@pytest.mark.parametrize("start", range(0, 160, 20))
def test_every_named_mend_is_answered_when_it_is_made(start):
    applied = 0
    for seed in range(start, start + 20):
        fields = question(seed)
        found, _ = answer(gpu_multiple=1, **fields)
        if isinstance(found, RunNeed) or "no GPU count helps" in found[0].nearest_fix:
            continue
        for text in found[0].nearest_fix.split("; or "):
            for changed in mended(fields, text):
                again, _ = answer(gpu_multiple=1, **changed)
                assert isinstance(again, RunNeed), (fields, text, again)
                applied += 1
    assert applied >= 12


@pytest.mark.parametrize(("count", "whole"), [(8, 16), (12, 16), (1, 2)])
def test_more_gpus_fill_their_nodes(count, whole):
    # State of 16 bytes for each of 8.03e9 weights, 128 GB whole on a card of 80 GB: nodes of 8 have
    # nine for the price of 16, but one or two of a node are had alone.
    case = case_of(
        architecture="llama-3.1-8b",
        gpu_multiple=1,
        sizing=on(count),
        global_batch_tokens=144 * 8192,
        layout=given(sharding="ddp"),
    )
    change = on_more_gpus(case, case.layouts, count)
    assert int(change.axes.gpu_count) == whole


def precisions(text):
    return re.match(r"compute_precision ([a-z0-9 ]+),", text)[1].split(" or ")


def test_only_precisions_in_which_a_speed_is_known_are_named():
    # H100 has no fp4; of its rates those of bf16, fp16 and fp8 have constants of training.
    fields = {"compute_precision": "fp4", "sizing": on(64)}
    text = answer(**fields)[0][0].nearest_fix
    assert precisions(text) == ["bf16", "fp16", "fp8"]
    for precision in precisions(text):
        assert isinstance(answer(**fields | {"compute_precision": precision})[0], RunNeed)
    # A given MFU is a share of any peak that the card has.
    given_speed = fields | {"speed": {"kind": "mfu", "mfu_fraction": 0.2}}
    named = precisions(answer(**given_speed)[0][0].nearest_fix)
    assert set(named) == {"fp32", "tf32", "bf16", "fp16", "fp8", "int8"}


@pytest.mark.parametrize("layout", [{"tensor_parallel": 7}, {"sharding": "none"}])
@pytest.mark.parametrize(
    ("gpu", "precision"),
    [("gb200-nvl72", "fp32"), ("a100-sxm4-80gb", "int8"), ("mi300x-192gb", "int8")],
)
def test_no_layout_is_named_where_no_speed_is_known(gpu, precision, layout):
    fields = {"architecture": "llama-3.1-8b", "gpu": gpu, "compute_precision": precision}
    (reason,) = answer(**fields, sizing=on(8), layout=given(**layout))[0]
    assert reason.code == "no_constants"


def test_no_batch_above_the_largest_is_named():
    # 2^53 - 1 is no multiple of 8,192 = 2^13: the one below is 2^53 - 2^13, the one above 2^53.
    (reason,) = answer(architecture="llama-3.1-8b", global_batch_tokens=2**53 - 1, sizing=on(8))[0]
    batches = re.findall(r"global_batch_tokens ([\d,]+)", reason.nearest_fix)
    assert [int(each.replace(",", "")) for each in batches] == [2**53 - 2**13]


def test_fewer_chunks_are_named_where_the_layers_do_not_reach():
    # 4 chunks on each of 16 stages are 64: more than 61 layers, embedding and head. 3 are 48, and
    # 64 copies leave 1,024 / 64 micro-batches, which 16 stages divide.
    layout = given(pipeline_parallel=16, virtual_pipeline_stages=4, expert_parallel=8)
    fields = {
        "architecture": "deepseek-v3",
        "global_batch_tokens": 1024 * 4096,
        "sequence_length_tokens": 4096,
        "sizing": on(1024),
    }
    (reason,) = answer(**fields, layout=layout | {"recompute": "full"})[0]
    assert (reason.needed, reason.available) == (64, 63)
    assert "virtual_pipeline_stages 3," in reason.nearest_fix
    again, _ = answer(**fields, layout=layout | {"recompute": "full", "virtual_pipeline_stages": 3})
    assert isinstance(again, RunNeed)


def test_as_many_chunks_are_legal_as_are_said_to_be_available():
    # 32 layers, embedding and head: 34 chunks, 17 on each of two stages.
    layout = given(pipeline_parallel=2, virtual_pipeline_stages=18, recompute="full")
    fields = {"architecture": "llama-3.1-8b", "sizing": on(64)}
    (reason,) = answer(**fields, layout=layout)[0]
    assert reason.available == 34
    assert isinstance(answer(**fields, layout=layout | {"virtual_pipeline_stages": 17})[0], RunNeed)
