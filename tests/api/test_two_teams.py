"""Two teams on one service: through no address does one see, change or disturb what is the other's.

Both make the same plans under the same names and the same idempotency keys.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from service.access.scopes import Scope
from service.api.openapi import build_spec
from tests.api.pages import rows_of

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
EXAMPLE = json.loads((EXAMPLES / "create_plan.request.json").read_text(encoding="utf-8"))
TEAMS = ("red", "blue")
KEY = "first"
UNKNOWN = uuid4()
# Every operation on plans; a new one needs its test here.
OF_ONE_PLAN = {
    "get_plan": "/v1/plans/{id}",
    "list_plan_lines": "/v1/plans/{id}/lines",
    "export_plan_lines_csv": "/v1/plans/{id}/lines.csv",
    "list_plan_quantities": "/v1/plans/{id}/quantities",
    "export_plan_quantities_csv": "/v1/plans/{id}/quantities.csv",
    "export_plan_summary_csv": "/v1/plans/{id}/summary.csv",
    "export_plan_months_csv": "/v1/plans/{id}/months.csv",
    "export_plan_focus_csv": "/v1/plans/{id}/focus.csv",
    "export_plan_workbook": "/v1/plans/{id}/workbook.xlsx",
    "get_plan_charge_back": "/v1/plans/{id}/charge-back",
    "export_plan_charge_back_csv": "/v1/plans/{id}/charge-back.csv",
    "export_plan_kubernetes": "/v1/plans/{id}/kubernetes.yaml",
    "get_plan_launch": "/v1/plans/{id}/launch",
}
OF_SEVERAL_PLANS = {
    "compare_plans": "/v1/comparisons",
    "export_comparison_csv": "/v1/comparisons.csv",
}
OTHERS = {"create_plan", "create_replan", "list_plans", "export_plans_csv"}


@dataclass(frozen=True)
class Team:
    """A team's client, and the ids of its two plans: of the example, and that run again."""

    name: str
    client: httpx.Client
    first: str
    again: str

    @property
    def plans(self):
        return {self.first, self.again}


def make_team(service, name):
    secret = service.make_key(name, Scope.PLAN_READ, Scope.PLAN_WRITE).secret
    client = service.client(secret)
    first = create(client, "/v1/plans", EXAMPLE)
    again = create(client, f"/v1/plans/{first}/replans", {})
    return Team(name, client, first, again)


def create(client, path, body, key=KEY):
    headers = {"Idempotency-Key": f"{key} {path.rpartition('/')[2]}"}
    response = client.post(path, json=body, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()["id"]


@pytest.fixture(scope="module")
def teams(keyed):
    made = [make_team(keyed, f"{name}-{uuid4().hex[:8]}") for name in TEAMS]
    yield made
    for team in made:
        team.client.close()


@pytest.fixture(params=TEAMS)
def pair(request, teams):
    """The team that asks, and the other one."""
    return teams if request.param == "red" else teams[::-1]


def refusal_of(response, plan):
    """What a refusal says, less its id and the plan's: alike for all plans that are not there."""
    assert response.status_code == 404, response.text
    body = response.json()
    assert body["type"] == "/problems/not-found"
    assert str(plan) in body["detail"]
    return {**body, "request_id": None, "detail": body["detail"].replace(str(plan), "ID")}


def test_every_operation_on_plans_is_tried_with_two_teams():
    described = {
        operation["operationId"]
        for item in build_spec()["paths"].values()
        for operation in item.values()
        if operation["tags"] in (["plans"], ["comparisons"])
    }
    assert described == OF_ONE_PLAN.keys() | OF_SEVERAL_PLANS.keys() | OTHERS


def test_a_plan_belongs_to_the_team_of_the_key(pair):
    ours, _ = pair
    assert ours.client.get(f"/v1/plans/{ours.first}").json()["team"] == ours.name


def test_the_same_idempotency_key_makes_a_plan_for_each_team(pair):
    ours, theirs = pair
    assert ours.plans.isdisjoint(theirs.plans)
    assert create(ours.client, "/v1/plans", EXAMPLE) == ours.first
    assert create(ours.client, f"/v1/plans/{ours.first}/replans", {}) == ours.again
    changed = {**EXAMPLE, "name": "changed"}
    for team in pair:  # the one key still stands for the one body, in each team
        response = team.client.post(
            "/v1/plans", json=changed, headers={"Idempotency-Key": f"{KEY} plans"}
        )
        assert response.status_code == 422


def test_a_list_holds_the_plans_of_the_team_alone(pair):
    ours, theirs = pair
    for query in ({}, {"name_contains": EXAMPLE["name"]}, {"limit": 1}):
        page = ours.client.get("/v1/plans", params=query).json()
        found = {plan["id"] for plan in page["items"]}
        assert found <= ours.plans
        assert found
    everything = ours.client.get("/v1/plans").json()
    assert {plan["id"] for plan in everything["items"]} == ours.plans
    derived = ours.client.get("/v1/plans", params={"derived_from": theirs.first}).json()
    assert derived["items"] == []


def test_a_cursor_of_another_team_leads_to_no_plan_of_theirs(pair):
    ours, theirs = pair
    cursor = theirs.client.get("/v1/plans", params={"limit": 1}).json()["next_cursor"]
    page = ours.client.get("/v1/plans", params={"limit": 10, "cursor": cursor}).json()
    assert {plan["id"] for plan in page["items"]} <= ours.plans


def test_a_list_as_a_file_holds_the_plans_of_the_team_alone(pair):
    ours, theirs = pair
    assert {row["id"] for row in rows_of(ours.client.get("/v1/plans.csv"))} == ours.plans
    derived = ours.client.get("/v1/plans.csv", params={"derived_from": theirs.first})
    assert rows_of(derived) == []


@pytest.mark.parametrize("path", OF_ONE_PLAN.values(), ids=OF_ONE_PLAN)
def test_a_plan_of_another_team_reads_as_one_that_was_never_made(pair, path):
    ours, theirs = pair
    own = ours.client.get(path.format(id=ours.first))
    assert own.status_code == 200
    hidden = ours.client.get(path.format(id=theirs.first))
    missing = ours.client.get(path.format(id=UNKNOWN))
    assert refusal_of(hidden, theirs.first) == refusal_of(missing, UNKNOWN)


@pytest.mark.parametrize("path", OF_ONE_PLAN.values(), ids=OF_ONE_PLAN)
def test_the_tag_of_another_team_s_answer_confirms_nothing(pair, path):
    ours, theirs = pair
    address = path.format(id=theirs.first)
    tag = theirs.client.get(address).headers.get("etag", "*")
    assert ours.client.get(address, headers={"If-None-Match": tag}).status_code == 404
    assert ours.client.head(address).status_code == 404


@pytest.mark.parametrize("path", OF_SEVERAL_PLANS.values(), ids=OF_SEVERAL_PLANS)
def test_a_plan_of_another_team_cannot_be_compared(pair, path):
    ours, theirs = pair
    own = ours.client.get(path, params={"plans": f"{ours.first},{ours.again}"})
    assert own.status_code == 200

    def compare(plan):
        return [
            ours.client.get(path, params={"plans": f"{ours.first},{plan}"}),
            ours.client.get(path, params={"plans": f"{plan},{ours.first}"}),
            ours.client.get(
                path, params={"plans": f"{ours.first},{ours.again},{plan}", "baseline": plan}
            ),
        ]

    hidden = [refusal_of(each, theirs.first) for each in compare(theirs.first)]
    assert hidden == [refusal_of(each, UNKNOWN) for each in compare(UNKNOWN)]


def test_a_plan_of_another_team_cannot_be_run_again(pair):
    ours, theirs = pair
    hidden = ours.client.post(f"/v1/plans/{theirs.first}/replans", json={})
    missing = ours.client.post(f"/v1/plans/{UNKNOWN}/replans", json={})
    assert refusal_of(hidden, theirs.first) == refusal_of(missing, UNKNOWN)
    assert len(ours.client.get("/v1/plans").json()["items"]) == len(ours.plans)


def test_the_lines_of_each_team_are_those_of_its_own_plan(pair):
    ours, _ = pair
    lines = rows_of(ours.client.get(f"/v1/plans/{ours.first}/lines.csv"))
    assert {row["plan_id"] for row in lines} == {ours.first}
    assert len(lines) == ours.client.get(f"/v1/plans/{ours.first}").json()["line_count"]


def test_both_teams_read_the_one_catalog(teams):
    answers = [team.client.get("/v1/catalog/releases").json() for team in teams]
    assert answers[0] == answers[1]
    assert answers[0]["items"]
