"""A key that the catalog does not hold is refused alike everywhere, with the nearest one named."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
QUESTIONS = {
    "estimate_serving_memory": ("/architecture", "/gpu", "/engine", "/weight_format"),
    "estimate_serving_performance": ("/architecture", "/gpu", "/engine", "/kv_cache_format"),
    "estimate_roofline": ("/architecture", "/gpus/1", "/engine", "/weight_format"),
    "estimate_serving_size": ("/architecture", "/engine"),
    "estimate_training_memory": ("/run/architecture", "/run/gpu"),
    "estimate_training_run": ("/run/architecture", "/run/gpu", "/ranked_gpus/2"),
    "estimate_communication": ("/run/architecture", "/run/gpu"),
    "estimate_goodput": ("/architecture", "/gpu"),
    "estimate_ownership": ("/gpu",),
    "estimate_crossover": ("/architecture", "/gpu"),
    "create_plan": (
        "/scenario/training_runs/0/architecture",
        "/scenario/training_runs/0/gpu",
        "/scenario/serving_services/0/engine",
        "/scenario/serving_services/0/weight_format",
    ),
}
NEAREST = {
    "architecture": ("llama3.1-70b", "llama-3.1-70b"),
    "gpu": ("h100-sxm", "h100-sxm5-80gb"),
    "engine": ("trtllm-1.0", "tensorrt-llm-1.0"),
    "weight_format": ("nvfp-4", "nvfp4"),
    "kv_cache_format": ("fp-8", "fp8"),
}
KINDS = {"gpus": "gpu", "ranked_gpus": "gpu"}
CASES = [(operation, pointer) for operation, pointers in QUESTIONS.items() for pointer in pointers]


def body_with(operation, pointer, value):
    body = json.loads((EXAMPLES / f"{operation}.request.json").read_text(encoding="utf-8"))
    *steps, last = [int(step) if step.isdigit() else step for step in pointer[1:].split("/")]
    place = body
    for step in steps:
        place = place[step]
    place[last] = value
    return body


def path_of(operation):
    if operation == "create_plan":
        return "/v1/plans"
    return f"/v1/estimates/{operation.removeprefix('estimate_').replace('_', '-')}"


@pytest.mark.parametrize(("operation", "pointer"), CASES)
def test_an_unknown_key_is_refused_and_the_nearest_named(client, operation, pointer):
    field = next(step for step in reversed(pointer.split("/")) if not step.isdigit())
    sent, nearest = NEAREST[KINDS.get(field, field)]
    response = client.post(path_of(operation), json=body_with(operation, pointer, sent))
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "/problems/unknown-key")
    [error] = problem["errors"]
    assert error["pointer"] == pointer
    assert repr(sent) in error["detail"]
    assert f"nearest is {nearest!r}" in error["detail"]


@pytest.mark.parametrize(
    ("operation", "pointer", "sent", "nearest"),
    [
        ("estimate_training_memory", "/run/gpu", "H100", "h100-sxm5-80gb"),
        ("estimate_goodput", "/gpu", "NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        (
            "estimate_training_run",
            "/run/architecture",
            "meta-llama/Llama-3.1-8B",
            "llama-3.1-8b",
        ),
        ("estimate_training_run", "/ranked_gpus/2", "H100 SXM", "h100-sxm5-80gb"),
        ("estimate_serving_memory", "/engine", "vLLM 0.18", "vllm-0.18"),
        ("estimate_serving_memory", "/weight_format", "FP8", "fp8"),
        ("create_plan", "/scenario/procurement/0/gpu", "H100", "h100-sxm5-80gb"),
    ],
)
def test_another_spelling_of_a_key_is_refused_with_the_key_that_it_stands_for(
    client, operation, pointer, sent, nearest
):
    response = client.post(path_of(operation), json=body_with(operation, pointer, sent))
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "/problems/unknown-key")
    [error] = problem["errors"]
    assert error["pointer"] == pointer
    assert f"nearest is {nearest!r}" in error["detail"]


def test_a_key_that_is_no_entry_of_the_catalog_is_named_as_it_would_be_written(client):
    pointer = "/scenario/procurement/0/method/provider"
    response = client.post("/v1/plans", json=body_with("create_plan", pointer, "Big Cloud"))
    [error] = response.json()["errors"]
    assert (response.status_code, error["pointer"]) == (422, pointer)
    assert "lower case letters" in error["detail"]
    assert error["detail"].endswith("such as 'big-cloud'")


@pytest.mark.parametrize(
    ("field", "sent"),
    [("engine", "Best Engine"), ("draft_architecture", "no/model")],
)
def test_an_unknown_key_is_refused_also_where_the_answer_would_not_come_to_use_it(
    client, field, sent
):
    # Sequences beyond the architecture's context end the question before engine or draft matter.
    body = body_with("estimate_serving_memory", f"/{field}", sent)
    body |= {"input_tokens_mean": 9e8, "sequence_tokens_p95": None}
    response = client.post(path_of("estimate_serving_memory"), json=body)
    [error] = response.json()["errors"]
    assert (response.status_code, error["pointer"]) == (422, f"/{field}")


def test_an_unknown_key_of_a_service_whose_tokens_are_bought_is_refused(client):
    body = json.loads((EXAMPLES / "create_plan.request.json").read_text(encoding="utf-8"))
    service = body["scenario"]["serving_services"][0]
    hosted = {"method": {"kind": "hosted"}, "pool": "serving", "gpu": "any"}
    body["scenario"]["procurement"].insert(0, hosted)
    service["engine"] = "Best Engine"
    response = client.post("/v1/plans", json=body)
    [error] = response.json()["errors"]
    expected = "/scenario/serving_services/0/engine"
    assert (response.status_code, error["pointer"]) == (422, expected)
