"""Every address that asks for a key refuses whoever has none, before it looks at anything else."""

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from service.access.keys import revoke_key
from service.access.scopes import Scope
from service.api.openapi import build_spec
from service.app import create_app
from service.db.reads import ReadPool
from service.settings import Settings

SPEC = build_spec()
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in SPEC["paths"].items()
    for method, operation in item.items()
}
ASKING = {name: each for name, each in OPERATIONS.items() if "security" in each[2]}
UNKNOWN = "gpuplan_" + 40 * "0"
PARTS_OF_PATHS = {
    "release": "latest",
    "plan_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "key": "h100-sxm5-80gb",
}


@pytest.fixture(params=sorted(ASKING))
def operation(request):
    method, path, described = ASKING[request.param]
    return method, re.sub(r"\{(\w+)\}", lambda found: PARTS_OF_PATHS[found[1]], path), described


@pytest.fixture(scope="module")
def stranger(keyed):
    """A client without a key."""
    with keyed.client() as client:
        yield client


def scopes_of(described):
    [requirement] = described["security"]
    return requirement["bearer"]


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def assert_is_problem(response, status, slug):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"/problems/{slug}"


def test_what_needs_no_key_is_known_by_name(stranger):
    assert OPERATIONS.keys() - ASKING.keys() == {"get_liveness", "get_readiness", "get_openapi"}
    for path in ("/health/live", "/health/ready", "/v1/openapi.yaml", "/docs", "/docs/docs.js"):
        assert stranger.get(path).status_code == 200


def test_reading_and_writing_need_their_scopes(operation):
    _, path, described = operation
    stores = described["operationId"].startswith(("create_", "replace_", "delete_"))
    curates = described["operationId"].startswith("retire_")
    reads = not (stores or curates) or PARTS_OF_PATHS["plan_id"] in path
    scopes = stores * ["plan:write"] + curates * ["catalog:write"] + reads * ["plan:read"]
    assert sorted(scopes_of(described)) == sorted(scopes)
    assert {"401", "403"} <= set(described["responses"])


def test_the_description_explains_every_scope():
    scheme = SPEC["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert all(f"`{scope}`" in scheme["description"] for scope in Scope)


def test_without_a_key_every_operation_asks_for_one(stranger, operation):
    method, path, _ = operation
    response = stranger.request(method, path)
    assert_is_problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="gpuplan"'


def test_the_key_is_asked_for_before_anything_else_is_looked_at(stranger, operation):
    method, path, _ = operation
    response = stranger.request(
        method,
        f"{path}?nonsense=1&limit=x",
        content=b"{" if method in {"POST", "PUT"} else None,
        headers={"Content-Type": "text/plain", "If-None-Match": "*", **bearer(UNKNOWN)},
    )
    assert_is_problem(response, 401, "unauthenticated")


def test_a_key_without_the_scope_is_refused(keyed, stranger, operation):
    method, path, described = operation
    asked = scopes_of(described)
    for missing in asked:
        others = [scope for scope in Scope if scope != missing]
        headers = bearer(keyed.make_key("red", *others).secret)
        response = stranger.request(method, f"{path}?nonsense=1", headers=headers)
        assert_is_problem(response, 403, "missing-scope")
        assert response.headers["www-authenticate"] == (
            f'Bearer realm="gpuplan", error="insufficient_scope", scope="{" ".join(asked)}"'
        )
        assert missing in response.json()["detail"]


def test_a_key_with_the_scope_is_let_in(keyed, stranger, operation):
    method, path, described = operation
    secret = keyed.make_key("red", *map(Scope, scopes_of(described))).secret
    response = stranger.request(method, path, headers=bearer(secret))
    assert response.status_code not in {401, 403}
    assert response.status_code < 500


def test_all_keys_that_do_not_work_read_the_same(keyed, stranger):
    long_ago = datetime.now(UTC) - timedelta(days=9)
    expired = keyed.make_key(
        "red", Scope.PLAN_READ, now=long_ago, expires_at=long_ago + timedelta(days=1)
    )
    revoked = keyed.make_key("red", Scope.PLAN_READ)
    now = datetime.now(UTC)
    keyed.in_transaction(lambda connection: revoke_key(connection, revoked.key.id, now=now))
    good = keyed.make_key("red", Scope.PLAN_READ).secret
    refused = [
        [("Authorization", f"Bearer {each}")]
        for each in (
            UNKNOWN,
            expired.secret,
            revoked.secret,
            "a",
            "x" * 5000,
            good[:-1],
            f"{good}0",
        )
    ]
    refused += [
        [("Authorization", f"Basic {good}")],
        [("Authorization", good)],
        [("Authorization", "Bearer")],
        [("Authorization", b"Bearer \xff")],
        2 * [("Authorization", f"Bearer {good}")],
    ]
    answers = []
    for headers in refused:
        response = stranger.get("/v1/plans", headers=headers)
        assert_is_problem(response, 401, "unauthenticated")
        assert (
            response.headers["www-authenticate"] == 'Bearer realm="gpuplan", error="invalid_token"'
        )
        answers.append({**response.json(), "request_id": None})
    assert answers == len(answers) * [answers[0]]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_name_of_the_scheme_may_have_any_case(keyed, stranger, scheme):
    secret = keyed.make_key("red", Scope.PLAN_READ).secret
    headers = {"Authorization": f"{scheme} {secret}"}
    assert stranger.get("/v1/plans", headers=headers).status_code == 200


def test_a_revoked_key_is_refused_from_the_next_request_on(keyed):
    made = keyed.make_key("red", Scope.PLAN_READ)
    with keyed.client(made.secret) as client:
        assert client.get("/v1/plans").status_code == 200
        now = datetime.now(UTC)
        keyed.in_transaction(lambda connection: revoke_key(connection, made.key.id, now=now))
        assert client.get("/v1/plans").status_code == 401


def test_head_asks_for_a_key_and_options_does_not(stranger):
    refused = stranger.head("/v1/plans")
    assert (refused.status_code, refused.content) == (401, b"")
    assert stranger.options("/v1/plans").status_code == 204


def test_a_refusal_is_never_a_304(keyed, stranger):
    secret = keyed.make_key("red", Scope.PLAN_READ).secret
    tag = stranger.get("/v1/plans", headers=bearer(secret)).headers["etag"]
    known = {"If-None-Match": tag}
    assert stranger.get("/v1/plans", headers={**known, **bearer(secret)}).status_code == 304
    assert stranger.get("/v1/plans", headers=known).status_code == 401


def test_the_host_is_checked_before_the_key(keyed):
    secret = keyed.make_key("red", Scope.PLAN_READ).secret
    with keyed.client(secret) as client:
        response = client.get("/v1/plans", headers={"Host": "evil.example.com"})
    assert_is_problem(response, 421, "wrong-host")


def test_an_open_service_looks_at_no_key(client):
    for headers in ({}, bearer(UNKNOWN), {"Authorization": "nonsense"}):
        assert client.get("/v1/plans", headers=headers).status_code == 200


def client_from(app, host):
    transport = httpx.ASGITransport(app, client=(host, 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.8.8.8", 200),
        ("::1", 200),
        ("192.0.2.7", 401),
        ("2001:db8::7", 401),
    ],
)
async def test_metrics_need_a_key_from_other_machines(host, status):
    async with client_from(create_app(Settings()), host) as client:
        assert (await client.get("/metrics")).status_code == status


@pytest.fixture
def reader(keyed):
    return keyed.make_key("red", Scope.PLAN_READ).secret


@pytest.fixture
def writer(keyed):
    return keyed.make_key("red", Scope.PLAN_WRITE).secret


async def test_metrics_are_sent_anywhere_to_a_key_that_reads(keyed, reader, writer):
    app = create_app(Settings())
    async with (
        ReadPool(keyed.database.service_url) as pool,
        client_from(app, "192.0.2.7") as client,
    ):
        app.state.read_pool = pool
        for secret, status in ((reader, 200), (writer, 403), (UNKNOWN, 401)):
            assert (await client.get("/metrics", headers=bearer(secret))).status_code == status


async def test_metrics_of_an_open_service_are_open(bare_app):
    async with client_from(bare_app, "192.0.2.7") as client:
        assert (await client.get("/metrics")).status_code == 200


async def test_a_key_that_cannot_be_looked_up_is_not_called_wrong(database):
    app = create_app(Settings())
    async with ReadPool(database.service_url) as pool:
        app.state.read_pool = pool
    async with client_from(app, "127.0.0.1") as client:
        response = await client.get("/v1/plans", headers=bearer(UNKNOWN))
    assert_is_problem(response, 503, "unavailable")
    assert response.headers["retry-after"] == "1"


def test_an_application_that_is_told_nothing_asks_for_keys():
    assert create_app(Settings()).state.open_caller is None
