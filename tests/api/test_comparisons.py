"""Plans beside one another."""

import pytest

from tests.api.pages import rows_of
from tests.api.plans_made import EXAMPLE, created, request


@pytest.fixture(scope="module")
def plan(server_url):
    return created(server_url, EXAMPLE)


@pytest.fixture(scope="module")
def larger(server_url):
    """The example with twice the serving load."""
    body = request("twice the load")
    body["scenario"]["serving_services"][0]["load"]["peak_requests_per_s"] = 80
    return created(server_url, body)


def test_plans_are_compared_quantity_by_quantity(client, plan, larger):
    query = {"plans": f"{plan['id']},{larger['id']}"}
    response = client.get("/v1/comparisons", params=query)
    assert response.status_code == 200, response.text
    comparison = response.json()
    assert comparison["baseline_id"] == plan["id"]
    assert [each["id"] for each in comparison["plans"]] == [plan["id"], larger["id"]]
    for quantity in comparison["quantities"]:
        [other] = quantity["values"]
        if None not in (quantity["baseline_value"], other["value"]):
            difference = other["value"] - quantity["baseline_value"]
            assert other["difference"] == pytest.approx(difference)
    rows = rows_of(client.get("/v1/comparisons.csv", params=query))
    assert len(rows) == len(comparison["quantities"])


def test_another_baseline_turns_the_differences_around(client, plan, larger):
    plans = f"{plan['id']},{larger['id']}"
    answers = [
        client.get("/v1/comparisons", params={"plans": plans, "baseline": each["id"]}).json()
        for each in (plan, larger)
    ]
    forth, back = (
        {
            (q["scope"], q["name"]): q["values"][0]["difference"]
            for q in answer["quantities"]
            if q["values"][0]["difference"] is not None
        }
        for answer in answers
    )
    assert forth.keys() == back.keys()
    assert any(forth.values())
    for key, difference in forth.items():
        assert back[key] == pytest.approx(-difference)


@pytest.mark.parametrize(
    ("plans", "status"),
    [
        ("", 422),
        ("{plan}", 422),
        ("{plan},{plan}", 422),
        ("{plan},x", 422),
        ("{plan},{plan}," * 6 + "{plan}", 422),
        ("{plan},00000000-0000-7000-8000-000000000000", 404),
    ],
)
@pytest.mark.parametrize("path", ["/v1/comparisons", "/v1/comparisons.csv"])
def test_what_cannot_be_compared_is_refused(client, plan, path, plans, status):
    response = client.get(path, params={"plans": plans.replace("{plan}", plan["id"])})
    assert response.status_code == status, response.text


def test_a_comparison_needs_its_plans_named(client):
    response = client.get("/v1/comparisons")
    assert response.status_code == 422
