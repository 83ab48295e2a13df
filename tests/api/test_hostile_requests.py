"""Bad input to the one address that takes the most of it: a clear problem, nothing stored.

Each table row: what is changed in a good request, the pointer that the answer must name, and words
of its explanation (the bound, where there is one).
"""

import copy
import json
from pathlib import Path

import pytest

GOOD = json.loads(
    (Path(__file__).resolve().parents[2] / "openapi/examples/create_plan.request.json").read_text()
)
RUN = "/scenario/training_runs/0"
SERVICE = "/scenario/serving_services/0"
RULE = "/scenario/procurement/0"
ARCHITECTURE = {
    "name": "tiny",
    "hidden_size": 64,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "layer_groups": [
        {
            "count": 2,
            "attention": {
                "kind": "full",
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
            },
            "feed_forward": {"kind": "dense", "intermediate_size": 256},
        }
    ],
}
TOKENS_BOUND = "9007199254740991"
SMALLEST = "greater than or equal to 0.000000000001"


def changed(pointer, value):
    """The good request with one value set; the pointer may name a new member."""
    body = copy.deepcopy(GOOD)
    *path, last = pointer.strip("/").split("/")
    place = body
    for token in path:
        place = place[int(token)] if isinstance(place, list) else place[token]
    place[last] = value
    return body


def with_architecture(path, value):
    """The good request with an inline architecture in which one value is set."""
    body = changed(f"{RUN}/architecture", copy.deepcopy(ARCHITECTURE))
    place = body["scenario"]["training_runs"][0]["architecture"]
    *names, last = path
    for name in names:
        place = place[name]
    place[last] = value
    return body


def raw(pointer, literal):
    """The good request as text, with a literal that JSON libraries would not write."""
    return json.dumps(changed(pointer, "@@")).replace('"@@"', literal).encode()


@pytest.fixture
def refused(client):
    """Sends a body and checks that it is refused with a problem, nothing stored."""

    def plans():
        return client.get("/v1/plans", params={"limit": 1}).json()

    def send(body, status, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        before = plans()
        response = client.post(
            "/v1/plans", content=content, headers={"Content-Type": "application/json", **headers}
        )
        assert response.status_code == status, response.text[:500]
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["status"] == status
        assert plans() == before
        return response.json()

    return send


def assert_error(problem, pointer, words):
    found = {error.get("pointer"): error["detail"] for error in problem["errors"]}
    assert pointer in found, found
    assert words in found[pointer]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    "pointer", [f"{RUN}/training_tokens", f"{RULE}/method/price_per_gpu_hour", "/new"]
)
def test_numbers_that_are_not_finite_are_400(refused, pointer, literal):
    problem = refused(raw(pointer, literal), 400)
    assert problem["type"] == "/problems/malformed-body"
    assert_error(problem, pointer, "largest double" if "e" in literal else literal)


@pytest.mark.parametrize(
    "literal", ["9007199254740992", "9007199254740993", str(2**63), str(10**400), "1e308"]
)
def test_counts_beyond_exact_doubles_are_refused_and_never_rounded(refused, literal):
    problem = refused(raw(f"{RUN}/training_tokens", literal), 422)
    assert_error(problem, f"{RUN}/training_tokens", TOKENS_BOUND)


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        (f"{RUN}/training_tokens", 0, "greater than or equal to 1"),
        (f"{RUN}/training_tokens", -1, "greater than or equal to 1"),
        (f"{RUN}/training_tokens", "2000", "whole number"),
        (f"{RUN}/training_tokens", True, "whole number"),
        (f"{RUN}/training_tokens", 1.5, "whole number"),
        (f"{RUN}/training_tokens", None, "needed, unless"),
        (f"{RUN}/training_tokens", [1], "valid integer"),
        (f"{RUN}/sizing/gpu_count", 0, "greater than or equal to 1"),
        (f"{RUN}/speed/mfu_fraction", 0, SMALLEST),
        (f"{RUN}/speed/mfu_fraction", 1.0001, "less than or equal to 1"),
        (f"{RUN}/reliability/restart_s", -1, "greater than or equal to 0"),
        (f"{RUN}/run_multiplier", 0, SMALLEST),
        (f"{RUN}/start_date", 0, "ISO date"),
        (f"{RUN}/start_date", "2027-02-30", "date"),
        (f"{RUN}/start_date", "1798761600", "ISO date"),  # 2027-01-01 in seconds since 1970
        (f"{RUN}/start_date", "1798761600000", "ISO date"),
        (f"{RUN}/start_date", "2027-01-01T00:00:00Z", "ISO date"),
        (f"{RUN}/start_date", "2027-01-01T00:00:00", "ISO date"),
        (f"{RUN}/start_date", "2027-01-01 ", "ISO date"),
        (f"{RUN}/start_date", "2027-01-01\n", "ISO date"),
        (f"{RUN}/start_date", "20270101", "ISO date"),
        (f"{RUN}/start_date", "٢٠٢٧-01-01", "ISO date"),
        ("/as_of_date", "1798761600", "ISO date"),
        ("/as_of_date", "2027-01-01T00:00:00Z", "ISO date"),
        ("/scenario/horizon", {"start_month": "2099-12", "month_count": 2}, "beyond 2099-12"),
        ("/scenario/horizon", {"start_month": "2090-02", "month_count": 120}, "beyond 2099-12"),
        (f"{RUN}/start_date", "0001-01-01", "2000-01-01"),
        (f"{RUN}/state_recipe", "adam", "mixed_bf16_adam_bf16_gradients"),
        (f"{RUN}/layout", {"kind": "magic"}, "auto"),
        (f"{RUN}/gpus", 8, "not permitted"),
        ("/scenario/horizon/month_count", 0, "greater than or equal to 1"),
        ("/scenario/horizon/month_count", 121, "less than or equal to 120"),
        ("/scenario/horizon/start_month", "2027-13", "pattern"),
        (f"{SERVICE}/headroom/target_utilization_fraction", 0, SMALLEST),
        (f"{SERVICE}/headroom/target_utilization_fraction", 1.0001, "less than or equal to 1"),
        (f"{SERVICE}/headroom/minimum_replica_count", 0, "greater than or equal to 1"),
        (f"{SERVICE}/load/peak_requests_per_s", 0, SMALLEST),
        (f"{SERVICE}/load/peak_requests_per_s", 1e308, "less than or equal to"),
        (f"{SERVICE}/output_tokens_mean", 0, "greater than or equal to 1"),
        (f"{SERVICE}/time_zone", "Mars/Olympus", "time zone"),
        (f"{SERVICE}/demand_profile", [1.0] * 23, "at least 24 items"),
        (f"{SERVICE}/demand_profile", [1.0] * 25, "24 or 168"),
        (f"{SERVICE}/demand_profile", [0] * 24, "without any load"),
        (f"{SERVICE}/demand_profile", {"length": 1e100}, "valid list"),
        (f"{RULE}/method/price_per_gpu_hour", "-1", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", "0", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", "0.000000", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", "NaN", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", "1e999", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", "6,88", "6.88"),
        (f"{RULE}/method/price_per_gpu_hour", 6.88, "string"),
        (
            f"{RULE}/method",
            {"kind": "own", "power_usage_effectiveness": 0.9},
            "greater than or equal to 1",
        ),
        ("/scenario/training_runs", {"length": 1e100}, "valid list"),
        ("/scenario/procurement", [], "at least 1 item"),
        ("/scenario/pooling", {}, "kind"),
        ("/scenario/assumption_overrides", {"utilisation": 1e308}, "less than or equal to"),
        ("/catalog_release", "v3", "pattern"),
        ("/name", "", "at least 1 character"),
        ("/name", "x" * 201, "at most 200 characters"),
        ("/name", "x" * 10_000, "at most 200 characters"),
        ("/name", "a\x00b", "pattern"),
        (f"{RUN}/name", "a\x00b", "pattern"),
        ("/name", 5, "string"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_value_out_of_bounds_is_422_with_its_place_and_bound(refused, pointer, value, words):
    problem = refused(changed(pointer, value), 422)
    assert problem["type"] == "/problems/validation"
    inside = {
        f"{RULE}/method": "/power_usage_effectiveness",
        "/scenario/assumption_overrides": "/utilisation",
    }
    assert_error(problem, pointer + inside.get(pointer, ""), words)


@pytest.mark.parametrize(
    "path",
    [
        ("layer_groups", 0, "count"),
        ("layer_groups", 0, "attention", "num_attention_heads"),
        ("layer_groups", 0, "attention", "num_key_value_heads"),
        ("layer_groups", 0, "attention", "head_dim"),
        ("hidden_size",),
        ("vocab_size",),
    ],
    ids=lambda path: path[-1],
)
@pytest.mark.parametrize("size", [0, -8])
def test_an_inline_architecture_without_heads_or_layers_is_422(refused, path, size):
    problem = refused(with_architecture(path, size), 422)
    pointer = f"{RUN}/architecture/" + "/".join(map(str, path))
    assert_error(problem, pointer, "greater than or equal to 1")


def test_an_inline_architecture_that_is_no_object_is_422(refused):
    problem = refused(changed(f"{RUN}/architecture", 5), 422)
    [error] = problem["errors"]
    assert error["pointer"] == f"{RUN}/architecture"


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        (f"{RUN}/architecture", "no-such-architecture"),
        (f"{RUN}/gpu", "no-such-gpu"),
        (f"{SERVICE}/architecture", "no-such-architecture"),
        (f"{SERVICE}/gpu", "no-such-gpu"),
        (f"{SERVICE}/weight_format", "fp3"),
        (f"{SERVICE}/kv_cache_format", "fp3"),
        (f"{SERVICE}/engine", "no-such-engine"),
        (f"{RULE}/gpu", "no-such-gpu"),
        (f"{RULE}/site", "no-such-site"),
    ],
)
def test_a_key_that_the_catalog_does_not_hold_is_422_with_its_place(refused, pointer, value):
    problem = refused(changed(pointer, value), 422)
    assert problem["type"] == "/problems/unknown-key"
    assert_error(problem, pointer, value)


@pytest.mark.parametrize(
    ("pointer", "items"),
    [
        ("/scenario/training_runs", 60_000),
        ("/scenario/serving_services", 60_000),
        ("/scenario/procurement", 60_000),
        (f"{SERVICE}/demand_profile", 300_000),
    ],
)
def test_a_list_longer_than_published_is_422(refused, pointer, items):
    item = b"1" if pointer.endswith("profile") else b'{"name":1}'
    body = raw(pointer, "[" + ",".join([item.decode()] * items) + "]")
    assert_error(refused(body, 422), pointer, "at most")


@pytest.mark.parametrize("items", [1_000_000, 5_000_000])
def test_a_body_over_the_limit_is_413(refused, items):
    body = raw(f"{SERVICE}/demand_profile", "[" + ",".join(["1"] * items) + "]")
    problem = refused(body, 413)
    assert problem["type"] == "/problems/body-too-large"
    assert "1,048,576 bytes" in problem["detail"]


def test_a_key_given_twice_is_400_with_its_place(refused):
    body = json.dumps(GOOD).replace('"gpu_count": 512', '"gpu_count": 8, "gpu_count": -8').encode()
    problem = refused(body, 400)
    assert_error(problem, f"{RUN}/sizing/gpu_count", "more than once")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "too deep"),
        (b'{"a":' * 100_000, "too deep"),
        (b"9" * 5000, "thousand digits"),
        (b'{"name": "\\ud800"}', "see errors"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_json_is_400(refused, body, words):
    problem = refused(body, 400)
    assert problem["type"] == "/problems/malformed-body"
    assert words in problem["detail"]


@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"x"', b"true"])
def test_json_that_is_no_object_is_422(refused, body):
    [error] = refused(body, 422)["errors"]
    assert error["pointer"] == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/msgpack"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json; charset=\xff"},
        {"Content-Type": "application/json; charset="},
        {"Content-Type": "application/json; charset"},
        {"Content-Type": 'application/json; charset="'},
        {"Content-Type": "application/json; charset=utf-8; charset=latin-1"},
        {"Content-Type": "application/json; a=b; CharSet = latin-1"},
        {"Content-Type": "application/json, text/plain"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity, gzip"},
    ],
    ids=str,
)
def test_a_body_that_is_not_plain_json_is_415(refused, headers):
    raw_headers = {name: value.encode("latin-1") for name, value in headers.items()}
    problem = refused(GOOD, 415, **raw_headers)
    assert problem["type"] == "/problems/unsupported-media-type"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/json; version=1 ; charset=utf-8",
        "application/json;",
    ],
)
def test_json_in_utf_8_is_read_however_its_media_type_is_written(client, content_type):
    body = json.dumps(changed("/name", "")).encode()
    response = client.post("/v1/plans", content=body, headers={"Content-Type": content_type})
    assert response.status_code == 422  # the body was read: its empty name is refused


def test_the_last_month_that_there_is_may_end_a_horizon(client):
    body = changed("/scenario/horizon", {"start_month": "2099-01", "month_count": 12})
    body["scenario"]["training_runs"] = []
    service = body["scenario"]["serving_services"][0]
    service["first_month"] = service["last_month"] = "2099-12"
    response = client.post("/v1/plans", json=body)
    assert response.status_code == 201, response.text[:500]
    assert response.json()["months"][-1]["month"] == "2099-12"


@pytest.mark.parametrize(
    ("growth", "pointer"),
    [(0.5, f"{SERVICE}/growth_per_month_fraction"), (0, "/scenario/horizon")],
)
def test_an_amount_of_too_many_digits_names_its_workload_month_and_place(refused, growth, pointer):
    """64 GPUs for 744 hours at nearly 10^12 USD: some 5 x 10^16 USD."""
    body = changed(f"{RULE}/method/price_per_gpu_hour", "999999999999")
    body["scenario"]["training_runs"] = []
    body["scenario"]["serving_services"][0]["growth_per_month_fraction"] = growth
    problem = refused(body, 422)
    assert_error(problem, pointer, "twelve digits")
    assert "gpu_rental for workload 'assistant' in 2027-01" in problem["detail"]


def test_an_inline_gpu_may_not_take_the_key_by_which_rules_mean_every_gpu(refused):
    gpu = {
        "key": "any",
        "name": "mine",
        "memory_gb": 80,
        "memory_bandwidth_gb_per_s": 3350,
        "peak_tflops": {"bf16": 989},
    }
    problem = refused(changed(f"{RUN}/gpu", gpu), 422)
    assert_error(problem, f"{RUN}/gpu/key", "every GPU")


@pytest.mark.parametrize("key", ["x" * 256, "", "\xe4", "a\tb"])
def test_an_idempotency_key_out_of_its_bounds_is_422(refused, key):
    problem = refused(GOOD, 422, **{"Idempotency-Key": key.encode("latin-1")})
    [error] = problem["errors"]
    assert error["parameter"] == "Idempotency-Key"


def test_a_second_line_of_a_header_is_not_passed_over(client):
    """Whichever line a reader takes, the caller may mean the other."""
    good = [("Content-Type", "application/json")]
    encoded = [*good, ("Content-Encoding", "identity"), ("Content-Encoding", "gzip")]
    assert client.post("/v1/plans", json=GOOD, headers=encoded).status_code == 415
    named = [*good, ("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    before = client.get("/v1/plans", params={"limit": 1}).json()
    refused = client.post("/v1/plans", json=GOOD, headers=named)
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/malformed-request")
    assert refused.json()["errors"][0]["parameter"] == "Idempotency-Key"
    assert client.get("/v1/plans", params={"limit": 1}).json() == before
