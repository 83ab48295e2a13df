"""A plan of hosted tokens through every file that a plan has."""

from decimal import Decimal

import pytest

from tests.api.pages import rows_of
from tests.core.planners.test_hosted import CHAT, PRICED, RENT


@pytest.fixture(scope="module")
def plan(server_url):
    import httpx

    body = {
        "name": "tokens",
        "scenario": {
            "horizon": {"start_month": "2027-01", "month_count": 2},
            "serving_services": [CHAT],
            "pooling": {"kind": "separate"},
            "procurement": [{"pool": "serving", "method": PRICED}],
        },
    }
    response = httpx.post(f"{server_url}/v1/plans", json=body, timeout=30)
    assert response.status_code == 201, response.text
    return response.json()


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("lines", "amount"),
        ("summary", "hosted_tokens_amount"),
        ("months", "amount"),
        ("focus", "EffectiveCost"),
    ],
)
def test_its_files_sum_to_its_total(client, plan, name, column):
    response = client.get(f"/v1/plans/{plan['id']}/{name}.csv")
    assert response.status_code == 200, response.text
    rows = rows_of(response)
    assert sum(Decimal(row[column]) for row in rows) == Decimal(plan["totals"]["amount"])


def test_it_has_a_workbook_and_no_gpus_to_run(client, plan):
    assert client.get(f"/v1/plans/{plan['id']}/workbook.xlsx").status_code == 200
    objects = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml")
    assert objects.status_code == 409, objects.text
    assert "tokens of all its services are bought" in objects.json()["detail"]
    assert plan["pools"][0]["gpu_count"] == 0


def test_beside_services_on_gpus_only_those_are_run(client):
    """Two services of one kind of GPU, of which one is bought by tokens."""
    body = {
        "name": "both",
        "scenario": {
            "horizon": {"start_month": "2027-01", "month_count": 1},
            "serving_services": [CHAT, CHAT | {"name": "search"}],
            "pooling": {"kind": "separate"},
            "procurement": [{"pool": "serving", "service": "chat", "method": PRICED}, RENT],
        },
    }
    plan = client.post("/v1/plans", json=body).json()
    objects = client.get(f"/v1/plans/{plan['id']}/kubernetes.yaml")
    assert objects.status_code == 200, objects.text
    assert "search" in objects.text
    assert "chat" not in objects.text
    assert client.get(f"/v1/plans/{plan['id']}/launch").status_code == 200
