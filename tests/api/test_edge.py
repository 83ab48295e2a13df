import json

import pytest
import structlog

from service.api.edge import entity_tag

pytestmark = pytest.mark.anyio


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as entries:
        yield entries


def assert_problem(response, kind):
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["type"], problem["status"]) == (f"/problems/{kind}", response.status_code)
    assert problem["request_id"] == response.headers["x-request-id"]
    return problem


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:8000",
        "plans.example.org",
        "plans.example.org:443",
    ],
)
async def test_own_host_names_are_answered(bare_client, host):
    response = await bare_client.get("/health/live", headers={"Host": host})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "attacker.example",
        "attacker.example:8000",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "127.0.0.2",
        "localhost:80:80",
        "localhost:",
        "a@localhost",
        "localhost, attacker.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_foreign_host_names_are_refused_whatever_the_method(bare_client, method, host):
    response = await bare_client.request(method, "/v1/openapi.yaml", headers={"Host": host})
    assert response.status_code == 421
    assert_problem(response, "wrong-host")


async def test_two_host_headers_are_refused(bare_client):
    headers = [("Host", "localhost"), ("Host", "attacker.example")]
    response = await bare_client.get("/health/live", headers=headers)
    assert response.status_code == 421


@pytest.mark.parametrize("path", ["/health/live", "/v1/openapi.yaml", "/docs", "/docs/docs.js"])
async def test_head_is_get_without_its_body(bare_client, path):
    got, headed = await bare_client.get(path), await bare_client.head(path)
    assert headed.content == b""
    assert headed.status_code == got.status_code == 200
    own = {"x-request-id"}
    assert {k: v for k, v in headed.headers.items() if k not in own} == {
        k: v for k, v in got.headers.items() if k not in own
    }


async def test_head_of_nothing_is_404_without_a_body(bare_client):
    response = await bare_client.head("/v1/nothing")
    assert (response.status_code, response.content) == (404, b"")


async def test_options_names_the_methods_of_an_address(bare_client):
    response = await bare_client.options("/health/live")
    assert response.status_code == 204
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"
    assert response.content == b""


async def test_options_of_nothing_is_404(bare_client):
    response = await bare_client.options("/v1/nothing")
    assert response.status_code == 404
    assert_problem(response, "not-found")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"])
async def test_a_method_that_does_not_apply_is_405_with_those_that_do(bare_client, method):
    response = await bare_client.request(method, "/health/live")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"
    assert "GET, HEAD, OPTIONS" in assert_problem(response, "method-not-allowed")["detail"]


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/docs/nothing", "/docs/..%2Fedge.py", "/schema", "/%00"]
)
async def test_an_address_with_nothing_is_a_problem(bare_client, path):
    response = await bare_client.get(path)
    assert response.status_code == 404
    assert_problem(response, "not-found")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("colour=red", "no such parameter"),
        ("colour", "no such parameter"),
        ("=", "no such parameter"),
        ("%00=1", "no such parameter"),
        ("%ff=1", "no such parameter"),
    ],
)
async def test_an_unknown_query_parameter_is_refused(bare_client, query, words):
    response = await bare_client.get(f"/health/live?{query}")
    assert response.status_code == 400
    [error] = assert_problem(response, "malformed-query")["errors"]
    assert words in error["detail"]


async def test_a_read_is_tagged_and_not_sent_again_to_who_has_it(bare_client):
    first = await bare_client.get("/health/live")
    tag = first.headers["etag"]
    assert tag == entity_tag(first.content)
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await bare_client.get("/health/live", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert "content-length" not in again.headers
    headed = await bare_client.head("/health/live", headers={"If-None-Match": tag})
    assert headed.status_code == 304


async def test_a_read_is_sent_to_who_has_another_state_of_it(bare_client):
    response = await bare_client.get("/health/live", headers={"If-None-Match": '"other"'})
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_problems_carry_no_entity_tag(bare_client):
    assert "etag" not in (await bare_client.get("/v1/nothing")).headers


async def test_a_given_request_id_is_kept_and_a_strange_one_replaced(bare_client):
    kept = await bare_client.get("/health/live", headers={"X-Request-Id": "a-1.B_2"})
    assert kept.headers["x-request-id"] == "a-1.B_2"
    for strange in ("a b", "x" * 65, "<b>", ""):
        replaced = await bare_client.get("/health/live", headers={"X-Request-Id": strange})
        assert replaced.headers["x-request-id"] != strange
        assert len(replaced.headers["x-request-id"]) == 32


async def test_a_request_leaves_one_line_in_the_log_without_its_query(bare_client, logged):
    await bare_client.get("/docs/secret-name?token=secret", headers={"X-Request-Id": "id-1"})
    [entry] = [each for each in logged if each["event"] == "request"]
    assert (entry["method"], entry["route"], entry["status"], entry["request_id"]) == (
        "GET",
        "/docs/{name}",
        400,
        "id-1",
    )
    assert "secret" not in json.dumps(entry)
