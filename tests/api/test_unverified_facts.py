"""What is known from memory or from one weak source says so in every answer that uses it.

MI325X has a link between GPUs of one weak source and an on-demand price of one page; the layers of
Granite 34B Code are recalled.
"""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
GPU, LINK = "mi325x-256gb", "mi325x-256gb.scale_up_domain_gpu_count"
ARCHITECTURE = "granite-34b-code"
TPU = "tpu-v5p"
PRICED = {"serving_size", "training_run", "ownership", "crossover"}
ASSUMED = {
    "training_memory": "restart_s",
    "training_run": "restart_s",
    "communication": "restart_s",
    "goodput": "restart_s",
    "ownership": "discount_rate_per_year_fraction",
    "crossover": "traffic_tokens_per_day.popular_product",
    "serving_performance": "gemm_compute_fraction.tpu",
    "serving_size": "gemm_compute_fraction.tpu",
}
"""An assumption from memory for each question; what the others take was measured."""
QUESTIONS = sorted({*ASSUMED, "serving_memory", "roofline"})


def body_of(operation):
    return json.loads((EXAMPLES / f"{operation}.request.json").read_text(encoding="utf-8"))


def ask(client, question, gpu=GPU):
    """The example of a question on that GPU and architecture, prices left to the catalog."""
    body = body_of(f"estimate_{question}")
    run = body.get("run", body)
    if "architecture" in run:
        run["architecture"] = ARCHITECTURE
    run |= {"gpus": [gpu]} if question in {"roofline", "serving_size"} else {"gpu": gpu}
    for name in ("price_per_gpu_hour", "ranked_gpus", "prices_per_gpu_hour"):
        body.pop(name, None)
    for name in ("rent", "training_rent", "serving_rent"):
        if name in body:
            body[name] = {"kind": "rent", "provider": "tensorwave"}
    if "traffic" in body:
        body["traffic"] = {"kind": "preset", "preset": "popular_product"}
    if "weight_format" in body:
        body |= {"weight_format": "bf16", "kv_cache_format": "bf16"}
    response = client.post(f"/v1/estimates/{question.replace('_', '-')}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def named(answer):
    """Everything that the advisory names."""
    found = [each for each in answer["advisories"] if each["code"] == "unverified_facts"]
    return {name for each in found for name in each["message"].partition(": ")[2].split("; ")}


def is_priced(names):
    return any(name.startswith("price: tensorwave") for name in names)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_estimate_names_its_gpu_architecture_and_price(client, question):
    names = named(ask(client, question))
    assert LINK in names
    assert (ARCHITECTURE in names) == (question != "ownership")  # which asks for none
    assert is_priced(names) == (question in PRICED)


def test_a_ranking_names_the_prices_of_the_gpus_that_it_ranks(client):
    body = body_of("estimate_training_run") | {"ranked_gpus": [GPU]}
    response = client.post("/v1/estimates/training-run", json=body)
    assert response.status_code == 200, response.text
    assert is_priced(named(response.json()))


@pytest.mark.parametrize("question", ASSUMED)
def test_an_estimate_names_its_assumptions(client, question):
    gpu = TPU if ASSUMED[question].endswith(".tpu") else GPU
    answer = ask(client, question, gpu)
    assert ASSUMED[question] in named(answer)
    [assumed] = [each for each in answer["assumptions"] if each["name"] == ASSUMED[question]]
    assert assumed["verified"] is False


def test_what_is_given_in_the_request_is_not_unverified(client):
    """A rate that the reader gives replaces the recalled one, and its warning."""
    body = body_of("estimate_ownership")
    body["assumption_overrides"] = {"discount_rate_per_year_fraction": 0.08}
    answer = client.post("/v1/estimates/ownership", json=body).json()
    assert "discount_rate_per_year_fraction" not in named(answer)


def plan_of(client, gpu, method):
    body = body_of("create_plan")
    scenario = body["scenario"]
    scenario["training_runs"][0] |= {"architecture": ARCHITECTURE, "gpu": gpu}
    scenario["serving_services"] = []
    scenario["procurement"] = [{"pool": "any", "gpu": "any", "site": None, "method": method}]
    response = client.post("/v1/plans", json=body)
    assert response.status_code == 201, response.text
    return response.json()


def test_a_plan_names_its_gpu_architecture_price_and_assumptions(client):
    names = named(plan_of(client, GPU, {"kind": "rent", "provider": "tensorwave"}))
    assert {LINK, ARCHITECTURE} <= names
    assert is_priced(names)
    # The example gives its speed; the choice of its layout takes how much of the exchange hides.
    assert "training_overlap_fraction" in names


def test_a_plan_names_what_of_a_node_and_an_assumption_owning_rests_on(client):
    names = named(plan_of(client, GPU, {"kind": "own", "purchase_price_per_gpu": "20000"}))
    assert {"mi325x-256gb-x8.maximum_power_kw", "residual_fraction"} <= names
