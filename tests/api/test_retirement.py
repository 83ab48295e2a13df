"""Retiring a release: by whoever may and has seen it; what rests on it stays and says so."""

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.access.scopes import Scope
from service.catalog.publish import publish_folder
from service.cli import main
from tests.api.conftest import KeyedService, serving
from tests.api.pages import rows_of

ROOT = Path(__file__).resolve().parents[2]
RELEASES = "/v1/catalog/releases"
REQUEST = json.loads(
    (ROOT / "openapi" / "examples" / "create_plan.request.json").read_text(encoding="utf-8")
)
RETIRED_AT = "Catalog-Release-Retired-At"
TEAM = (Scope.PLAN_READ, Scope.PLAN_WRITE)


@pytest.fixture(scope="module")
def service(server, published, tmp_path_factory):
    """A service with two releases, each the project's catalog, the second with another remark."""
    folder = tmp_path_factory.mktemp("retirement")
    shutil.copytree(ROOT / "catalog", folder / "catalog")
    formats = folder / "catalog" / "formats.yaml"
    text = formats.read_text(encoding="utf-8")
    formats.write_text(text.replace("checked: 2026-11-29", "checked: 2026-11-30"), encoding="utf-8")
    with server.clone(template=published) as database:
        publish_folder(database.service_url, folder / "catalog", now=datetime.now(UTC))
        with serving(database, folder, ACCESS_MODE="keys") as url:
            yield KeyedService(url, database)


@pytest.fixture
def curator(service):
    """A client that may write the catalog."""
    with service.client(service.make_key("curators", *TEAM, Scope.CATALOG_WRITE).secret) as client:
        yield client


@pytest.fixture
def planner(service):
    """A client of another team, that may not."""
    with service.client(service.make_key("planners", *TEAM).secret) as client:
        yield client


def releases(client):
    return [each["version"] for each in client.get(RELEASES).json()["items"]]


def make_plan(client, release):
    return client.post("/v1/plans", json={**REQUEST, "catalog_release": release})


def retire(client, version, **headers):
    return client.put(f"{RELEASES}/{version}/retirement", headers=headers)


def read_when_told(client, path, **headers):
    """Read a plan until its release's retirement is told: each worker looks once a second."""
    for _ in range(100):
        response = client.get(path, headers=headers)
        if RETIRED_AT in response.headers:
            break
        time.sleep(0.1)
    return response


def told_to_who_has_it(client, path):
    """What a read says of the release where the plan's bytes, which never change, are not sent."""
    known = read_when_told(client, path, **{"If-None-Match": client.get(path).headers["etag"]})
    assert known.status_code == 304
    return known.headers[RETIRED_AT]


def test_retirement_asks_for_scope_state_and_a_release_that_is_there(curator, planner):
    newest, _ = releases(curator)
    refused = retire(planner, newest, **{"If-Match": "*"})
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/missing-scope")
    missing = retire(curator, newest)
    assert (missing.status_code, missing.json()["type"]) == (428, "/problems/precondition-required")
    assert missing.json()["errors"][0]["parameter"] == "If-Match"
    stale = retire(curator, newest, **{"If-Match": '"0"'})
    assert (stale.status_code, stale.json()["type"]) == (412, "/problems/stale-state")
    unknown = retire(curator, "2020.1.1", **{"If-Match": "*"})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/not-found")
    # "latest" may be another one by the time the request arrives.
    assert retire(curator, "latest", **{"If-Match": "*"}).status_code == 404
    assert curator.get(f"{RELEASES}/{newest}").json()["retired_at"] is None


def test_plans_on_a_retired_release_stay_and_new_ones_are_refused(curator, planner):
    newest, older = releases(curator)
    on_newest, on_older = (make_plan(planner, version).json() for version in (newest, older))
    before = curator.get(f"{RELEASES}/{newest}")
    tag = before.headers["etag"]
    assert RETIRED_AT not in planner.get(f"/v1/plans/{on_newest['id']}").headers
    assert curator.get(f"{RELEASES}/{newest}", headers={"If-None-Match": tag}).status_code == 304

    retired = retire(curator, newest, **{"If-Match": tag})
    assert retired.status_code == 200, retired.text
    day = retired.json()["retired_at"]
    assert day is not None
    again = curator.get(f"{RELEASES}/{newest}", headers={"If-None-Match": tag})
    assert (again.status_code, again.json()) == (200, retired.json())
    assert again.headers["etag"] == retired.headers["etag"] != tag
    # Who has seen the state before cannot retire it once more.
    assert retire(curator, newest, **{"If-Match": tag}).status_code == 412

    # Another team's plan on it reads, compares and exports as before, and is said to rest on it.
    path = f"/v1/plans/{on_newest['id']}"
    assert read_when_told(planner, path).json() == on_newest
    assert RETIRED_AT not in planner.get(f"/v1/plans/{on_older['id']}").headers
    for suffix in ("/lines.csv", "/summary.csv", "/months.csv", "/focus.csv", "/workbook.xlsx"):
        assert planner.get(f"{path}{suffix}").status_code == 200
    compared = planner.get(
        "/v1/comparisons", params={"plans": f"{on_newest['id']},{on_older['id']}"}
    )
    days = [plan["catalog_release_retired_at"] for plan in compared.json()["plans"]]
    assert days == [day, None]
    assert told_to_who_has_it(planner, path) == day
    listed = {each["id"]: each for each in planner.get("/v1/plans").json()["items"]}
    assert listed[on_newest["id"]]["catalog_release_retired_at"] == day
    rows = {row["id"]: row for row in rows_of(planner.get("/v1/plans.csv"))}
    assert rows[on_newest["id"]]["catalog_release_retired_at"]
    assert not rows[on_older["id"]]["catalog_release_retired_at"]

    # The release stays readable; "latest" is the one before.
    assert planner.get(f"{RELEASES}/{newest}/gpus/h100-sxm5-80gb").status_code == 200
    assert planner.get(f"{RELEASES}/latest").json()["version"] == older

    refused = make_plan(planner, newest)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (422, "/problems/validation")
    assert problem["errors"][0]["pointer"] == "/catalog_release"
    assert newest in problem["detail"]
    assert "retired" in problem["detail"]

    moved = planner.post(f"{path}/replans", json={"catalog_release": "latest"}).json()
    assert moved["derived_from"] == on_newest["id"]
    assert moved["catalog_release"]["version"] == older
    back = planner.post(f"{path}/replans", json={"catalog_release": newest})
    assert (back.status_code, back.json()["errors"][0]["pointer"]) == (422, "/catalog_release")


def test_the_command_and_the_address_do_the_same(service, curator, monkeypatch, capsys):
    *_, oldest = releases(curator)
    monkeypatch.setenv("DATABASE_URL", service.database.service_url)
    assert main(["catalog", "retire", oldest]) == 0
    assert f"catalog release {oldest} is retired" in capsys.readouterr().out
    found = curator.get(f"{RELEASES}/{oldest}")
    again = retire(curator, oldest, **{"If-Match": found.headers["etag"]})
    assert (again.status_code, again.json()) == (200, found.json())
