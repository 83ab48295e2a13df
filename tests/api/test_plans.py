"""Plans through the service: made once, read in every form, never changed."""

import threading
from decimal import Decimal
from uuid import uuid4

import pytest

from tests.api.pages import all_items, rows_of
from tests.api.plans_made import EXAMPLE, create, created, httpx_client, request


@pytest.fixture(scope="module")
def plan(server_url):
    return created(server_url, EXAMPLE)


def test_the_example_gives_the_totals_of_the_contract(plan):
    """512 + 64 GPUs; the arithmetic stands in the contract of the example."""
    assert plan["feasible"] is True
    assert plan["totals"] == {
        "peak_gpu_count": 576,
        "gpu_hours": pytest.approx(1158607.252881, abs=1e-6),
        "amount": "7971217.90",
        "cash_amount": "7971217.90",
        "currency": "USD",
        "training_amount": "4114014.70",
        "serving_amount": "3857203.20",
    }
    assert plan["line_count"] == 26


def test_a_new_plan_is_answered_with_its_address_and_tag(client):
    response = create(client, request())
    location = response.headers["location"]
    assert location == f"/v1/plans/{response.json()['id']}"
    read = client.get(location)
    assert read.status_code == 200
    assert read.content == response.content
    assert read.headers["etag"] == response.headers["etag"]
    assert read.headers["content-type"] == "application/json"


def test_an_unchanged_plan_is_not_sent_again(client, plan):
    path = f"/v1/plans/{plan['id']}"
    tag = client.get(path).headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_the_scenario_comes_back_as_it_was_sent(plan):
    assert plan["scenario"] == EXAMPLE["scenario"]
    assert plan["catalog_release"]["version"] != "latest"
    assert plan["as_of_date"] == EXAMPLE["as_of_date"]


def test_the_table_of_lines_adds_up_to_the_totals(client, plan):
    rows = rows_of(client.get(f"/v1/plans/{plan['id']}/lines.csv"))
    assert len(rows) == plan["line_count"]
    for column in ("amount", "cash_amount"):
        assert sum(Decimal(row[column]) for row in rows) == Decimal(plan["totals"][column])
    for row in rows:
        cents = (Decimal(row["quantity"]) * Decimal(row["unit_price"])).quantize(Decimal("0.01"))
        assert Decimal(row["amount"]) == cents
        assert (row["plan_id"], row["plan_name"]) == (plan["id"], plan["name"])


def test_lines_by_page_are_those_of_the_table(client, plan):
    path = f"/v1/plans/{plan['id']}/lines"
    items = all_items(client, path, limit=7)
    rows = rows_of(client.get(f"{path}.csv"))
    assert [item["line_number"] for item in items] == list(range(1, plan["line_count"] + 1))
    assert [item["amount"] for item in items] == [row["amount"] for row in rows]
    assert [item["workload"] or "" for item in items] == [row["workload"] for row in rows]


def test_quantities_by_page_are_those_of_the_table(client, plan):
    path = f"/v1/plans/{plan['id']}/quantities"
    items = all_items(client, path, limit=10)
    rows = rows_of(client.get(f"{path}.csv"))
    assert items
    assert [(i["scope"], i["name"]) for i in items] == [(r["scope"], r["name"]) for r in rows]


def test_quantities_can_be_asked_for_by_scope_and_name(client, plan):
    path = f"/v1/plans/{plan['id']}/quantities"
    every = all_items(client, path)
    wanted = every[len(every) // 2]
    query = {"scope": wanted["scope"], "name": wanted["name"]}
    expected = [each for each in every if query.items() <= each.items()]
    assert all_items(client, path, **query) == expected
    assert len(rows_of(client.get(f"{path}.csv", params=query))) == len(expected)


@pytest.mark.parametrize("part", ["", "/lines", "/lines.csv", "/quantities", "/quantities.csv"])
@pytest.mark.parametrize("plan_id", ["00000000-0000-7000-8000-000000000000", "x", "%00", "1"])
def test_a_plan_that_is_not_there_is_404(client, plan_id, part):
    response = client.get(f"/v1/plans/{plan_id}{part}")
    assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize(
    "part", ["", "/lines", "/lines.csv", "/quantities", "/focus.csv", "/workbook.xlsx"]
)
def test_a_plan_has_one_address(client, plan, part):
    plan_id = plan["id"]
    assert client.get(f"/v1/plans/{plan_id}{part}").status_code == 200
    for other in (
        plan_id.upper(),
        plan_id.replace("-", ""),
        f"%7B{plan_id}%7D",
        f"urn:uuid:{plan_id}",
    ):
        response = client.get(f"/v1/plans/{other}{part}")
        assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_stored_plan_cannot_be_changed(client, plan, method):
    response = client.request(method, f"/v1/plans/{plan['id']}", json={"name": "other"})
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"


def test_plans_are_listed_newest_first_by_page(client):
    name = f"listed {uuid4()}"
    created = [create(client, request(name)).json()["id"] for _ in range(5)]
    items = all_items(client, "/v1/plans", name_contains=name, limit=2)
    assert [item["id"] for item in items] == created[::-1]
    assert {item["name"] for item in items} == {name}
    rows = rows_of(client.get("/v1/plans.csv", params={"name_contains": name}))
    assert [row["id"] for row in rows] == created[::-1]


def test_a_list_is_filtered(client):
    name = f"filtered {uuid4()}"
    first, second = (create(client, request(name)).json() for _ in range(2))

    def ids(**query):
        return [p["id"] for p in all_items(client, "/v1/plans", name_contains=name, **query)]

    both = [second["id"], first["id"]]
    assert ids() == ids(feasible=True) == both
    assert ids(feasible=False) == []
    assert ids(catalog_release=first["catalog_release"]["version"]) == both
    assert ids(catalog_release="2020.1.1") == []
    assert ids(created_after=first["created_at"]) == [second["id"]]
    assert ids(created_before=second["created_at"]) == [first["id"]]
    assert ids(derived_from=first["id"]) == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 422),
        ("limit=201", 422),
        ("cursor=AAAA", 422),
        ("feasible=maybe", 422),
        ("feasible=null", 422),
        ("derived_from=null", 422),
        ("derived_from=1", 422),
        ("created_after=0.5", 422),
        ("created_after=2027-01-01", 422),
        ("created_after=2027-01-01T00:00:00", 422),
        ("created_after=2027-02-30T00:00:00Z", 422),
        ("created_after=0000-01-01T00:00:00Z", 422),
        ("created_after=0001-01-01T00:00:00%2B23:59", 422),  # in UTC: the year before the first
        ("created_before=9999-12-31T23:59:59-23:59", 422),  # in UTC: the year after the last
        ("derived_from=00000000000070008000000000000000", 422),
        ("derived_from=urn:uuid:00000000-0000-7000-8000-000000000000", 422),
        ("derived_from=%7B00000000-0000-7000-8000-000000000000%7D", 422),
        ("derived_from=0000000A-0000-7000-8000-000000000000", 422),
        ("name_contains=%00", 422),
        ("name_contains=", 422),
        ("catalog_release=latest", 422),
        ("limit=1&limit=2", 400),
        ("page=2", 400),
    ],
)
def test_a_list_refuses_parameters_that_it_cannot_take(client, query, status):
    for path in ("/v1/plans", "/v1/plans.csv"):
        if path == "/v1/plans.csv" and query.startswith(("limit", "cursor")):
            continue
        response = client.get(f"{path}?{query}")
        assert response.status_code == status, response.text
        assert response.json()["errors"][0]["parameter"] == query.partition("=")[0]


@pytest.mark.parametrize("suffix", ["", ".csv"])
@pytest.mark.parametrize(
    "query",
    ["created_after=0001-01-01T00:00:00Z", "created_before=9999-12-31T23:59:59.999999Z"],
)
def test_the_first_and_the_last_instants_are_taken(client, plan, query, suffix):
    response = client.get(f"/v1/plans{suffix}?{query}")
    assert (response.status_code, plan["id"] in response.text) == (200, True)


def test_names_are_kept_as_given_and_guarded_in_tables_alone(client):
    names = [
        "=cmd|' /C calc'!A0",
        "@SUM(1)",
        "\tTab",
        'quote " newline \n comma ,',
        "+1.5 and -0.02",
        "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
        "zero\N{ZERO WIDTH JOINER}width \N{GRINNING FACE}",
        "\N{FULLWIDTH EQUALS SIGN}1+1",
        "nul is refused, \x01 is not",
    ]
    for name in names:
        created = create(client, request(name)).json()
        assert created["name"] == name
        path = f"/v1/plans/{created['id']}"
        assert client.get(path).json()["name"] == name
        response = client.get(f"{path}/lines.csv")
        disposition = response.headers["content-disposition"]
        assert disposition.isascii()
        assert disposition.isprintable()
        [shown] = {row["plan_name"] for row in rows_of(response)}
        assert shown in {name, f"'{name}"}
        assert not shown.startswith(("=", "+", "-", "@", "\t", "\N{FULLWIDTH EQUALS SIGN}"))


def test_workload_names_are_compared_by_code_points(client):
    """Two spellings of one letter are two names, and both come back as they were sent."""
    body = request("two spellings")
    [run] = body["scenario"]["training_runs"]
    names = ["caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"]
    body["scenario"]["training_runs"] = [{**run, "name": name} for name in names]
    created = create(client, body).json()
    assert [run["name"] for run in created["training_runs"]] == names


def test_a_repeated_workload_name_is_422(client):
    body = request("twice")
    body["scenario"]["training_runs"] *= 2
    response = client.post("/v1/plans", json=body)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/scenario"
    assert "not unique" in error["detail"]


def test_a_request_sent_again_under_its_key_makes_no_second_plan(client):
    body = request(f"once {uuid4()}")
    key = {"Idempotency-Key": str(uuid4())}
    first, second = create(client, body, **key), create(client, body, **key)
    assert second.content == first.content
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["etag"] == first.headers["etag"]
    assert len(all_items(client, "/v1/plans", name_contains=body["name"])) == 1


def test_a_key_that_comes_with_another_body_is_422(client):
    name = f"other {uuid4()}"
    key = {"Idempotency-Key": str(uuid4())}
    create(client, request(name), **key)
    response = client.post("/v1/plans", json=request(f"{name} changed"), headers=key)
    assert response.status_code == 422
    assert response.json()["type"] == "/problems/idempotency-key-reused"
    assert len(all_items(client, "/v1/plans", name_contains=name)) == 1


def test_one_key_sent_many_times_at_once_makes_one_plan(server_url):
    body = request(f"race {uuid4()}")
    key = {"Idempotency-Key": str(uuid4())}
    answers = []

    def send():
        with httpx_client(server_url) as client:
            answers.append(client.post("/v1/plans", json=body, headers=key))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [answer for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code == 409]
    assert made
    assert len(made) + len(refused) == 6
    assert len({answer.json()["id"] for answer in made}) == 1
    assert {answer.json()["type"] for answer in refused} <= {"/problems/request-in-flight"}
    with httpx_client(server_url) as client:
        assert len(all_items(client, "/v1/plans", name_contains=body["name"])) == 1


def test_a_scenario_that_cannot_be_built_is_a_plan_with_reasons(client):
    body = request(f"too small {uuid4()}")
    body["scenario"]["training_runs"][0]["sizing"]["gpu_count"] = 1
    body["scenario"]["training_runs"][0]["speed"] = {"kind": "mfu", "mfu_fraction": 0.4}
    created = create(client, body).json()
    assert created["feasible"] is False
    assert created["totals"] is None
    reason = created["infeasibilities"][0]
    assert (reason["workload"], reason["code"]) == ("pretrain-70b", "memory")
    assert reason["needed"] > reason["available"] > 0
    assert reason["nearest_fix"]
    assert client.get(f"/v1/plans/{created['id']}").json() == created


def test_a_plan_is_run_again_as_a_new_plan(client, plan):
    response = client.post(f"/v1/plans/{plan['id']}/replans", json={"as_of_date": "2026-11-30"})
    assert response.status_code == 201, response.text
    again = response.json()
    assert again["id"] != plan["id"]
    assert again["derived_from"] == plan["id"]
    assert (again["name"], again["as_of_date"]) == (plan["name"], "2026-11-30")
    assert again["totals"] == plan["totals"]
    assert client.get(response.headers["location"]).json() == again
    listed = all_items(client, "/v1/plans", derived_from=plan["id"])
    assert again["id"] in {each["id"] for each in listed}


def test_a_plan_that_is_not_there_cannot_be_run_again(client):
    response = client.post(f"/v1/plans/{uuid4()}/replans", json={})
    assert response.status_code == 404
