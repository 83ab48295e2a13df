"""What a refusal names as its mend is applied to the request, and must then be answered."""

import random
import re

import pytest

from tests.core.training_runs import RunNeed, answer, given, on

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
    if "sequence_parallel false" in text:
        found["sequence_parallel"] = False
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
        yield fields | {"layout": fields["layout"] | layout_in(text)}


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
