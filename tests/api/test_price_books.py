"""Price books over HTTP: written under If-Match alone, used by plans, and walled off by team."""

import json
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest

from service.access.scopes import Scope
from service.api.openapi import build_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
PLAN = json.loads((EXAMPLES / "create_plan.request.json").read_text(encoding="utf-8"))
ROW = {
    "gpu": "h100-sxm5-80gb",
    "provider": "aws",
    "price_per_gpu_hour": "5.10",
    "valid_from": "2026-01-01",
}
TRIED = {
    "list_price_books",
    "create_price_book",
    "get_price_book",
    "replace_price_book",
    "delete_price_book",
}


def new_key():
    return f"book-{uuid4().hex[:12]}"


def create(client, key=None, *, rows=(ROW,), **facts):
    body = {"key": key or new_key(), "rows": list(rows), **facts}
    response = client.post("/v1/price-books", json=body)
    assert response.status_code == 201, response.text
    return response


def replace(client, key, *, rows=(ROW,), **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.put(f"/v1/price-books/{key}", json={"rows": list(rows)}, headers=named)


def problem(response, status, slug):
    assert response.status_code == status, response.text
    assert response.json()["type"] == f"/problems/{slug}"
    return response.json()


def plan_with(client, book, *, name="a plan", method=None):
    rented = method or {"kind": "rent", "provider": "aws", "region": "us-east-1"}
    scenario = PLAN["scenario"] | {"price_book": book, "procurement": [{"method": rented}]}
    return client.post("/v1/plans", json=PLAN | {"name": name, "scenario": scenario})


def lines(client, plan):
    return client.get(f"/v1/plans/{plan}/lines", params={"limit": 200}).json()["items"]


def test_a_book_comes_back_as_it_was_written(client):
    made = create(client, note="of 2026")
    book = made.json()
    assert made.headers["location"] == f"/v1/price-books/{book['key']}"
    assert (book["note"], book["revision"]) == ("of 2026", 1)
    [row] = book["rows"]
    assert row == ROW | {
        "region": None,
        "commitment": "on_demand",
        "currency": "USD",
        "valid_to": None,
        "note": None,
    }
    read = client.get(made.headers["location"])
    assert read.json() == book
    assert read.headers["etag"] == made.headers["etag"]
    unchanged = client.get(
        made.headers["location"], headers={"If-None-Match": read.headers["etag"]}
    )
    assert unchanged.status_code == 304


def test_books_are_listed_by_key_and_page(client):
    keys = sorted(create(client).json()["key"] for _ in range(3))
    page, found = client.get("/v1/price-books", params={"limit": 2}), []
    while True:
        found += [book["key"] for book in page.json()["items"]]
        if "next" not in page.links:
            break
        page = client.get(page.links["next"]["url"])
    assert found == sorted(found)
    assert set(keys) <= set(found)
    problem(client.get("/v1/price-books", params={"cursor": "x"}), 422, "validation")


def test_a_book_of_that_key_is_not_made_twice(client):
    key = create(client).json()["key"]
    body = {"key": key, "rows": [ROW | {"price_per_gpu_hour": "1.00"}]}
    problem(client.post("/v1/price-books", json=body), 409, "conflict")
    assert client.get(f"/v1/price-books/{key}").json()["rows"][0]["price_per_gpu_hour"] == "5.10"


def test_a_change_says_which_state_it_changes(client):
    made = create(client)
    key, seen = made.json()["key"], made.headers["etag"]
    address = f"/v1/price-books/{key}"
    other = [ROW | {"price_per_gpu_hour": "4.00"}]
    problem(replace(client, key, rows=other), 428, "precondition-required")
    problem(client.delete(address), 428, "precondition-required")
    changed = replace(client, key, rows=other, If_Match=seen)
    assert changed.status_code == 200
    assert (changed.json()["revision"], changed.headers["etag"] != seen) == (2, True)
    problem(replace(client, key, If_Match=seen), 412, "stale-state")
    problem(client.delete(address, headers={"If-Match": seen}), 412, "stale-state")
    assert client.get(address).json() == changed.json()
    weak = f"W/{changed.headers['etag']}"  # RFC 9110, 13.1.1: by strong comparison alone
    problem(client.delete(address, headers={"If-Match": weak}), 412, "stale-state")
    # Nor does `*` stand in a list, where it would undo the tags beside it.
    problem(client.delete(address, headers={"If-Match": '"unknown", *'}), 412, "stale-state")
    several = f'"unknown", {changed.headers["etag"]}'
    changed = replace(client, key, rows=other, If_Match=several)
    assert changed.status_code == 200
    lines = [("If-Match", '"unknown"'), ("If-Match", changed.headers["etag"])]  # RFC 9110, 5.3
    assert client.delete(address, headers=lines).status_code == 204
    problem(client.get(address), 404, "not-found")
    problem(client.delete(address, headers={"If-Match": "*"}), 404, "not-found")


def test_a_book_made_again_is_not_the_one_that_was_seen(client):
    made = create(client)
    key = made.json()["key"]
    assert client.delete(f"/v1/price-books/{key}", headers={"If-Match": "*"}).status_code == 204
    create(client, key)
    problem(replace(client, key, If_Match=made.headers["etag"]), 412, "stale-state")


@pytest.mark.parametrize(
    ("row", "pointer"),
    [
        ({"price_per_gpu_hour": "0"}, "/rows/0/price_per_gpu_hour"),  # unknown is not zero
        ({"price_per_gpu_hour": "-1"}, "/rows/0/price_per_gpu_hour"),
        ({"price_per_gpu_hour": 5.1}, "/rows/0/price_per_gpu_hour"),
        ({"price_per_gpu_hour": None}, "/rows/0/price_per_gpu_hour"),
        ({"gpu": "h100-sxm9"}, "/rows/0/gpu"),
        ({"commitment": "forever"}, "/rows/0/commitment"),
        ({"currency": "dollars"}, "/rows/0/currency"),
        ({"valid_to": "2025-12-31"}, "/rows/0"),
        ({"discount": "0.3"}, "/rows/0/discount"),
    ],
)
def test_a_row_that_cannot_be_is_refused_and_nothing_is_kept(client, row, pointer):
    key = new_key()
    response = client.post("/v1/price-books", json={"key": key, "rows": [ROW | row]})
    assert response.status_code == 422, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
    problem(client.get(f"/v1/price-books/{key}"), 404, "not-found")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [ROW, ROW],
        [ROW, ROW | {"price_per_gpu_hour": "4", "valid_from": "2027-01-01"}],
        [ROW] * 1001,
    ],
)
def test_rows_that_contradict_one_another_are_refused(client, rows):
    body = {"key": new_key(), "rows": rows}
    problem(client.post("/v1/price-books", json=body), 422, "validation")


def test_one_price_may_follow_another(client):
    first = ROW | {"valid_to": "2026-12-31"}
    create(client, rows=[first, ROW | {"valid_from": "2027-01-01"}, ROW | {"region": "eu-west-1"}])


def test_a_plan_takes_the_negotiated_price_and_says_so(client):
    book = create(client, rows=[ROW | {"note": "Contract 4711"}]).json()
    plan = plan_with(client, book["key"]).json()
    assert plan["price_book"] == {
        "key": book["key"],
        "revision": 1,
        "digest": book["digest"],
        "rows": book["rows"],
    }
    rented = lines(client, plan["id"])
    assert {line["unit_price"] for line in rented} == {"5.1"}
    source = f"price book {book['key']}, revision 1: Contract 4711"
    assert {line["price_source"] for line in rented} == {source}
    hours = sum(Decimal(line["quantity"]) for line in rented)
    assert abs(Decimal(plan["totals"]["amount"]) - hours * Decimal("5.10")) < 1


def test_a_plan_never_changes_with_its_book_and_a_new_run_takes_the_book_of_today(client):
    made = create(client)
    key = made.json()["key"]
    plan = plan_with(client, key).json()
    before = client.get(f"/v1/plans/{plan['id']}")
    replace(client, key, rows=[ROW | {"price_per_gpu_hour": "2.55"}], If_Match="*")
    after = client.get(f"/v1/plans/{plan['id']}")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    again = client.post(f"/v1/plans/{plan['id']}/replans", json={}).json()
    assert (
        again["price_book"]["revision"],
        again["price_book"]["rows"][0]["price_per_gpu_hour"],
    ) == (
        2,
        "2.55",
    )
    # Half the price: half the money, to the cents that are rounded line by line.
    half = Decimal(plan["totals"]["amount"]) / 2
    assert abs(Decimal(again["totals"]["amount"]) - half) < 1
    client.delete(f"/v1/price-books/{key}", headers={"If-Match": "*"})
    assert client.get(f"/v1/plans/{plan['id']}").content == before.content
    gone = client.post(f"/v1/plans/{plan['id']}/replans", json={})
    assert key in problem(gone, 422, "validation")["detail"]


def test_a_plan_with_a_book_that_is_not_there_is_refused_and_not_kept(client):
    name = f"missing {uuid4().hex}"
    refused = plan_with(client, "never-written", name=name)
    [error] = problem(refused, 422, "validation")["errors"]
    assert error["pointer"] == "/scenario/price_book"
    assert client.get("/v1/plans", params={"name_contains": name}).json()["items"] == []


def test_a_team_that_pays_in_another_currency_plans_in_it_and_nothing_is_converted(client):
    book = create(client, rows=[ROW | {"currency": "EUR", "price_per_gpu_hour": "4.70"}])
    scenario = PLAN["scenario"] | {
        "currency": "EUR",
        "price_book": book.json()["key"],
        "procurement": [{"method": {"kind": "rent", "provider": "aws"}}],
    }
    plan = client.post("/v1/plans", json=PLAN | {"scenario": scenario}).json()
    assert plan["totals"]["currency"] == "EUR"
    found = {(line["unit_price"], line["currency"]) for line in lines(client, plan["id"])}
    assert found == {("4.7", "EUR")}
    # Beside a plan in dollars it is not compared, and a dollar price is refused by its name.
    in_dollars = client.post("/v1/plans", json=PLAN).json()
    both = f"{plan['id']},{in_dollars['id']}"
    problem(client.get("/v1/comparisons", params={"plans": both}), 422, "validation")
    listed = client.post(
        "/v1/plans", json=PLAN | {"scenario": scenario | {"price_book": None}}
    ).json()
    assert not listed["feasible"]
    assert "priced in USD, the plan in EUR" in listed["infeasibilities"][0]["nearest_fix"]


def test_a_plan_without_a_book_has_none(client):
    plan = plan_with(client, None).json()
    assert plan["price_book"] is None


RUN = {
    "name": "tune",
    "architecture": "llama-3.1-8b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**9,
    "sizing": {"kind": "gpu_count", "gpu_count": 8},
    "speed": {"kind": "measured", "tokens_per_s_per_gpu": 5000},
}
QUESTIONS = {
    "ownership": {
        "gpu": "h100-sxm5-80gb",
        "gpu_count": 8,
        "method": {"kind": "own"},
        "utilization_fraction": 0.5,
    },
    "crossover": {
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 10**12,
        "traffic": {"kind": "preset", "preset": "product"},
    },
    "training-run": {"run": RUN},
    "serving-size": {
        "architecture": "llama-3.1-8b",
        "load": {"kind": "peak_requests", "peak_requests_per_s": 2},
        "input_tokens_mean": 100,
        "output_tokens_mean": 100,
        "gpus": ["h100-sxm5-80gb"],
        "weight_format": "bf16",
        "kv_cache_format": "bf16",
    },
}
NEGOTIATED = ROW | {"provider": "lambda", "price_per_gpu_hour": "0.5", "note": "n" * 2000}


def priced(kind, answer):
    """Where the price of a GPU-hour comes from, and what it is."""
    if kind == "ownership":
        return answer["rent"]["price_source"], answer["rent"]["price_per_gpu_hour"]
    if kind == "crossover":
        return answer["price_source"], answer["training_price_per_gpu_hour"]
    [option] = answer["options"]
    return option["price_source"], option["price_per_gpu_hour"]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_estimates_take_negotiated_prices_too(client, kind):
    book = create(client, rows=[NEGOTIATED]).json()["key"]
    response = client.post(f"/v1/estimates/{kind}", json=QUESTIONS[kind] | {"price_book": book})
    assert response.status_code == 200, response.text
    answer = response.json()
    if kind == "training-run":
        # It shows no source: 10^9 tokens at 5,000 a second and GPU, and what failures add.
        assert float(answer["amount"]) == pytest.approx(answer["gpu_hours"] * 0.5, abs=0.006)
        return
    source, price = priced(kind, answer)
    assert source.startswith(f"price book {book}, revision 1: nnn")
    assert Decimal(price) == Decimal("0.5")


@pytest.mark.parametrize("kind", QUESTIONS)
def test_an_estimate_with_a_book_that_is_not_there_is_refused(client, kind):
    body = QUESTIONS[kind] | {"price_book": "no-such-book"}
    found = problem(client.post(f"/v1/estimates/{kind}", json=body), 422, "validation")
    assert [each["pointer"] for each in found["errors"]] == ["/price_book"]


def test_every_operation_on_price_books_is_tried_with_two_teams():
    described = {
        operation["operationId"]
        for item in build_spec()["paths"].values()
        for operation in item.values()
        if operation["tags"] == ["price books"]
    }
    assert described == TRIED


@pytest.fixture
def teams(keyed):
    """Two teams that may read and write, each with a book of one key."""
    names = [f"{name}-{uuid4().hex[:8]}" for name in ("red", "blue")]
    secrets = [keyed.make_key(each, Scope.PLAN_READ, Scope.PLAN_WRITE).secret for each in names]
    clients = [keyed.client(secret) for secret in secrets]
    yield clients
    for client in clients:
        client.close()


def test_a_book_belongs_to_its_team_alone(teams):
    ours, theirs = teams
    key = new_key()
    made = create(theirs, key, note="theirs")
    address, tag = f"/v1/price-books/{key}", made.headers["etag"]
    problem(ours.get(address), 404, "not-found")
    assert ours.get(address, headers={"If-None-Match": tag}).status_code == 404
    for known in (tag, "*"):
        problem(replace(ours, key, If_Match=known), 404, "not-found")
        refused = ours.delete(address, headers={"If-Match": known})
        problem(refused, 404, "not-found")
    assert ours.get("/v1/price-books").json()["items"] == []
    problem(plan_with(ours, key), 422, "validation")
    asked = QUESTIONS["ownership"] | {"price_book": key}
    problem(ours.post("/v1/estimates/ownership", json=asked), 422, "validation")
    own = create(ours, key, note="ours")  # the same name, in a team of its own
    assert ours.get(address).json() == own.json()
    assert [book["note"] for book in ours.get("/v1/price-books").json()["items"]] == ["ours"]
    assert ours.delete(address, headers={"If-Match": "*"}).status_code == 204
    assert theirs.get(address).json() == made.json()
    assert theirs.get(address).headers["etag"] == tag


def test_each_team_s_plan_takes_its_own_prices(teams):
    key = new_key()
    for client, price in zip(teams, ("1.11", "2.22"), strict=True):
        create(client, key, rows=[ROW | {"price_per_gpu_hour": price}])
    for client, price in zip(teams, ("1.11", "2.22"), strict=True):
        plan = plan_with(client, key).json()
        assert {line["unit_price"] for line in lines(client, plan["id"])} == {price}
