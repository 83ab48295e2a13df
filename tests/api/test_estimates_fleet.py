"""Demand and pools over HTTP: what a trace may be, and how what is wrong is refused."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"


def example(operation):
    return json.loads((EXAMPLES / f"{operation}.request.json").read_text(encoding="utf-8"))


def refused(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 422, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    return response.json()["errors"]


def test_a_traced_demand_goes_into_pools_as_it_is(client):
    traced = client.post("/v1/estimates/demand", json=example("estimate_demand")).json()
    body = example("estimate_pools")
    service = {key: body["serving_services"][0][key] for key in ("name", "gpu", "capacity")}
    body["serving_services"] = [service | traced["service"]]
    response = client.post("/v1/estimates/pools", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["feasible"]


def test_a_trace_that_cannot_be_read_names_its_line_and_its_place(client):
    body = example("estimate_demand") | {"trace_csv": "2027-01-01T00:00:00,1,1\nnever,1,1\n"}
    (error,) = refused(client, "/v1/estimates/demand", body)
    assert error["pointer"] == "/trace_csv"
    assert error["detail"].startswith("Line 2")


def test_a_trace_of_more_than_a_million_characters_is_refused_by_its_length(client):
    body = {"trace_csv": "x" * 1_000_001}
    (error,) = refused(client, "/v1/estimates/demand", body)
    assert (error["pointer"], "1000000" in error["detail"]) == ("/trace_csv", True)


def test_a_body_over_the_limit_of_the_service_is_refused_whole(client):
    response = client.post("/v1/estimates/demand", json={"trace_csv": "x" * 2**20})
    assert response.status_code == 413
    assert response.json()["type"] == "/problems/body-too-large"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"fleet_gpu_count": 0}, "/fleet_gpu_count"),
        ({"horizon": {"start_month": "2027-01", "month_count": 121}}, "/horizon/month_count"),
        ({"existing_gpus": [{"gpu": "h100-sxm5-80gb"}]}, "/existing_gpus/0/gpu_count"),
        ({"pooling": {"kind": "shared"}}, "/pooling"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_at_its_place(client, change, pointer):
    errors = refused(client, "/v1/estimates/pools", example("estimate_pools") | change)
    assert pointer in {error["pointer"] for error in errors}


@pytest.mark.parametrize(
    ("headroom", "pointer"),
    [
        ({"burst": {"percentile_fraction": 1}}, "burst/percentile_fraction"),
        ({"zone_loss": {"zone_count": 1}}, "zone_loss/zone_count"),
        ({"maintenance": {"out_fraction": 1}}, "maintenance/out_fraction"),
        ({"failures": {"target_fraction": 1.5}}, "failures/target_fraction"),
        ({"cold_start": {"duration_s": -1}}, "cold_start/duration_s"),
        ({"cold_start": {}}, "cold_start"),
        ({"failures": {"repair_hours": 8760, "failures_per_1000_node_days": 50}}, "failures"),
    ],
)
def test_a_headroom_that_makes_no_sense_is_refused_at_its_place(client, headroom, pointer):
    body = example("estimate_pools")
    body["serving_services"][0]["headroom"] = headroom
    errors = refused(client, "/v1/estimates/pools", body)
    place = f"/serving_services/0/headroom/{pointer}"
    assert place in {error["pointer"] for error in errors}


def test_an_unknown_gpu_is_refused_at_its_place(client):
    body = example("estimate_pools")
    body["training_runs"][1]["gpu"] = "nothing-like-it"
    (error,) = refused(client, "/v1/estimates/pools", body)
    assert error["pointer"] == "/training_runs/1/gpu"


def test_a_plan_keeps_what_it_says_of_existing_gpus(client):
    body = example("create_plan")
    body["scenario"]["existing_gpus"] = [
        {
            "gpu": "h100-sxm5-80gb",
            "gpu_count": 100,
            "book_value_per_gpu": "9000",
            "remaining_life_months": 18,
        }
    ]
    made = client.post("/v1/plans", json=body)
    assert made.status_code == 201, made.text
    found = client.get(made.headers["location"]).json()
    # Serving holds 15 replicas of 4: all 60 are there, and the other 40 are the run's.
    assert found["existing"]["used_gpu_count"] == 100
    assert found["existing"]["sunk_amount"] == "600000.00"  # 100 x 9,000 / 18 x 12 months
    sizes = {pool["name"]: pool for pool in found["pools"]}
    assert sizes["serving"]["existing_gpu_count"] == 60
    assert sizes["training"]["existing_gpu_count"] == 40
