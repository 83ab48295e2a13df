"""Laws of sizes: more load is never cheaper, laxer objectives are never dearer."""

from itertools import pairwise

import pytest

from service.core.serving.size import estimate_serving_size
from service.core.serving.size_types import ServingSizeQuestion

GPUS = ("h100-sxm5-80gb", "l40s-48gb", "b200-sxm-180gb", "mi300x-192gb")
SERVED = [("llama-3.1-8b", "bf16"), ("llama-3.3-70b", "fp8"), ("deepseek-v3", "fp8")]


def bills(snapshot, served, *, rate=40.0, ttft=2.0, tpot=0.05):
    architecture, weight_format = served
    question = ServingSizeQuestion(
        architecture=architecture,
        weight_format=weight_format,
        engine="vllm-0.18",
        input_tokens_mean=1500,
        output_tokens_mean=400,
        load={"kind": "peak_requests", "peak_requests_per_s": rate},
        objectives={"ttft_p95_s": ttft, "tpot_mean_s": tpot},
        gpus=GPUS,
    )
    options = estimate_serving_size(question, snapshot).options
    return {option.gpu: option.amount_per_hour for option in options}


@pytest.mark.parametrize("served", SERVED)
def test_more_load_is_never_cheaper(snapshot, served):
    found = [bills(snapshot, served, rate=rate) for rate in (0.01, 1, 5, 6, 7, 20, 80, 1e4, 1e6)]
    assert found[0]
    for less, more in pairwise(found):
        assert more.keys() <= less.keys()
        assert all(more[gpu] >= less[gpu] for gpu in more)


@pytest.mark.parametrize("served", SERVED)
@pytest.mark.parametrize(
    ("name", "limits"),
    [("ttft", (0.05, 0.2, 0.5, 1, 2, 5, 20)), ("tpot", (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5))],
)
def test_laxer_objectives_are_never_dearer(snapshot, served, name, limits):
    found = [bills(snapshot, served, **{name: limit}) for limit in limits]
    assert found[-1]
    for strict, lax in pairwise(found):
        assert strict.keys() <= lax.keys()
        assert all(lax[gpu] <= strict[gpu] for gpu in strict)
