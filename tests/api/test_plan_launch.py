"""How a plan's workloads are watched, and what holds for every line of a launch sheet."""

import json
import re

import httpx
import pytest

from tests.api import published_options as published
from tests.api.launch_sheets import (
    ESTIMATED,
    HOSTILE,
    RUN,
    SERVICE,
    launched,
    plan_of,
    replica_of,
    sheet_of,
    words_in_a_shell,
)


@pytest.mark.parametrize(
    ("engine", "metrics"),
    [
        ("vllm-0.18", published.VLLM_METRICS),
        ("vllm-0.8", published.OLD_VLLM_METRICS),
        ("sglang-0.4", published.SGLANG_METRICS),
        (None, published.VLLM_METRICS),
    ],
)
def test_alerts_watch_published_metrics(client, engine, metrics):
    _, entry = launched(client, service={**ESTIMATED, "engine": engine})
    assert {alert["metric"] for alert in entry["alerts"]} == metrics
    for alert in entry["alerts"]:
        name = re.escape(alert["metric"])
        suffix = "_bucket" if alert["name"] == "time_to_first_token" else ""
        assert re.search(rf'{name}{suffix}{{model_name="assistant"}}', alert["expression"])
        assert float(alert["expression"].rpartition(" > ")[2]) == pytest.approx(
            alert["threshold"], rel=1e-5
        )


def test_thresholds_are_the_numbers_of_the_plan(client):
    plan, entry = launched(client, service={**ESTIMATED, "engine": "vllm-0.18"})
    replica = replica_of(plan)
    alerts = {alert["name"]: alert["threshold"] for alert in entry["alerts"]}
    assert alerts["time_to_first_token"] == 2.0  # the objective
    # A queue of so many is served in 2 s, one more is not.
    rate = replica["units_per_s_per_replica"]
    assert alerts["waiting_requests"] / rate <= 2.0 < (alerts["waiting_requests"] + 1) / rate
    found = client.get(f"/v1/plans/{plan['id']}/quantities", params={"limit": 200}).json()["items"]
    held = {each["name"]: each["value"] for each in found}
    mean, tail = held["concurrency_at_mean_length"], held["concurrency_at_p95_length"]
    room, use = 1 - 1 / mean, replica["concurrency_per_replica"] / tail
    assert alerts["kv_cache_use"] == pytest.approx(min(room, use))
    assert 0 < alerts["kv_cache_use"] < 1


def test_without_an_objective_the_plans_own_latency_is_the_threshold(client):
    plan, entry = launched(client, service={**ESTIMATED, "objectives": None})
    alerts = {alert["name"]: alert for alert in entry["alerts"]}
    assert alerts["time_to_first_token"]["threshold"] == replica_of(plan)["ttft_p95_s"]["high"]
    assert "no objective" in alerts["time_to_first_token"]["reason"]


def test_a_measured_service_is_watched_by_its_objective(client):
    """4.0 requests/s for 2 s are 8 in a queue; of the cache nothing is known."""
    _, entry = launched(client, service=SERVICE)
    alerts = {alert["name"]: alert["threshold"] for alert in entry["alerts"]}
    assert alerts == {"time_to_first_token": 2.0, "waiting_requests": 8.0}


def test_an_engine_without_documented_metrics_has_thresholds_alone(client):
    _, entry = launched(client, service={**ESTIMATED, "engine": "tensorrt-llm-0.20"})
    assert len(entry["alerts"]) == 3
    assert {alert["expression"] for alert in entry["alerts"]} == {None}


def test_hostile_names_stay_one_word_of_the_line(client, tmp_path):
    runs = [{**RUN, "name": HOSTILE}]
    services = [{**ESTIMATED, "name": f"{HOSTILE}!", "engine": "vllm-0.18"}]
    sheet = sheet_of(client, plan_of(client, runs=runs, services=services))
    for name, option in ((HOSTILE, "--rdzv-id"), (f"{HOSTILE}!", "--served-model-name")):
        words = words_in_a_shell(sheet[name]["command"], tmp_path)
        assert words[words.index(option) + 1] == name
        names = {each["name"] for each in sheet[name]["variables"]}
        assert {word for word in words if word.startswith("set-")} == {f"set-{n}" for n in names}
    assert list(tmp_path.iterdir()) == []
    [alert, *_] = sheet[f"{HOSTILE}!"]["alerts"]
    label = re.search(r'model_name=("(?:[^"\\]|\\.)*")}', alert["expression"], re.DOTALL)[1]
    assert json.loads(label) == f"{HOSTILE}!"


def test_an_infeasible_plan_has_nothing_to_start(client):
    one = {"kind": "gpu_count", "gpu_count": 1}
    plan = plan_of(client, runs=[{**RUN, "sizing": one}])
    assert plan["feasible"] is False
    answer = client.get(f"/v1/plans/{plan['id']}/launch")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/conflict"


def test_the_sheet_is_tagged(client: httpx.Client):
    plan = plan_of(client, runs=[RUN])
    address = f"/v1/plans/{plan['id']}/launch"
    tag = client.get(address).headers["etag"]
    assert client.get(address, headers={"If-None-Match": tag}).status_code == 304
