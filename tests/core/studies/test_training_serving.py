"""What serving takes beside training: the same replica that a question about serving gets."""

import pytest

from service.core.hardware import PeakRates
from service.core.serving.memory import ServingMemoryQuestion, estimate_serving_memory
from service.core.studies.runs import TrainingQuestion
from service.core.studies.training_memory import estimate_training_memory
from tests.core.training_runs import on, run, snapshot, with_gpu

SEQUENCE = 2048


def bars(architecture, gpu_count=1024, catalog=None, **fields):
    asked = run(
        architecture=architecture,
        sizing=on(gpu_count),
        **{"sequence_length_tokens": SEQUENCE} | fields,
    )
    question = TrainingQuestion.model_validate({"run": asked})
    return estimate_training_memory(question, catalog or snapshot()).serving


@pytest.mark.parametrize(
    ("architecture", "least", "degrees"),
    [
        # 15.0 GiB of weights in the 71.27 GiB (90 % of 79.19) that an engine takes.
        ("llama-3.1-8b", 1, (1, 1)),
        # 76.9 GiB.
        ("falcon-40b", 2, (2, 1)),
        # 756 GiB need 10.6 GPUs; of the legal degrees 8 hold too little, and 4 over 3 stages
        # are fewer than 8 over 2.
        ("llama-3.1-405b", 12, (4, 3)),
    ],
)
def test_the_least_gpus_are_those_of_the_replica_that_serving_would_get(
    architecture, least, degrees
):
    found = bars(architecture)
    assert found.least_gpu_count == least
    layout = found.least_layout
    assert (layout.tensor_parallel, layout.pipeline_parallel) == degrees
    question = ServingMemoryQuestion(
        architecture=architecture,
        gpu="h100-sxm5-80gb",
        weight_format="bf16",
        input_tokens_mean=SEQUENCE - 1,
        output_tokens_mean=1,
        sequence_tokens_p95=SEQUENCE,
    )
    served = estimate_serving_memory(question, snapshot())
    assert (served.gpu_count_per_replica, served.layout) == (least, layout)


def test_a_model_trained_beyond_its_context_is_served_at_the_length_it_was_trained_on():
    # Falcon takes 2,048 tokens; a run of 8,192 caches 4 · 0.234 GiB of each sequence.
    longer = bars("falcon-40b", sequence_length_tokens=8192)
    assert longer.cache_per_sequence == pytest.approx(4 * bars("falcon-40b").cache_per_sequence)
    assert longer.least_gpu_count == 2


def test_a_card_without_a_rate_in_16_bit_has_no_least_count():
    catalog = with_gpu("h100-sxm5-80gb", peak_tflops=PeakRates(fp32=67))
    found = bars(
        "llama-3.1-8b",
        catalog=catalog,
        compute_precision="fp32",
        speed={"kind": "mfu", "mfu_fraction": 0.3},
    )
    assert found.weights > 0
    assert (found.least_gpu_count, found.least_layout) == (None, None)
