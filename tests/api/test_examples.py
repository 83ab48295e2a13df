import json

import httpx
import jsonschema_rs
import pytest
import yaml

from tests.api.examples import (
    EXAMPLES,
    OPERATIONS,
    PUBLISHED_AT,
    SPEC,
    request_of,
    response_path,
    run_all,
    settled,
    success_of,
    suffix_of,
    table_of,
)


@pytest.fixture(scope="module")
def answers(server, serve, publish, tmp_path_factory):
    """What a server of its own answers to every example, in order."""
    folder = tmp_path_factory.mktemp("examples")
    with server.clone() as database:
        publish(database, PUBLISHED_AT)
        with serve(database, folder) as url, httpx.Client(base_url=url, timeout=60) as client:
            yield run_all(client)


@pytest.fixture(params=sorted(OPERATIONS))
def operation_id(request):
    return request.param


def validator(schema):
    return jsonschema_rs.Draft202012Validator({**schema, "components": SPEC["components"]})


def about(value):
    """A document whose floats have room for the rounding of another machine."""
    if isinstance(value, dict):
        return {name: about(each) for name, each in value.items()}
    if isinstance(value, list):
        return [about(each) for each in value]
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def test_every_operation_has_its_pair_and_no_pair_is_left_over():
    requests = {path.name.partition(".")[0] for path in EXAMPLES.glob("*.request.json")}
    responses = {path.name.partition(".")[0] for path in EXAMPLES.glob("*.response.*")}
    assert requests == responses == set(OPERATIONS)


def test_an_example_request_fits_its_description(operation_id):
    _, _, operation = OPERATIONS[operation_id]
    given = request_of(operation_id)
    if "requestBody" in operation:
        body = given.get("body", given)
        validator(operation["requestBody"]["content"]["application/json"]["schema"]).validate(body)
    else:
        known = {parameter.get("name") for parameter in operation.get("parameters", ())}
        assert set(given) <= known


def test_an_example_response_fits_its_description(operation_id):
    text = response_path(operation_id).read_text(encoding="utf-8")
    if suffix_of(operation_id) == "json":
        schema = success_of(operation_id)["content"]["application/json"]["schema"]
        validator(schema).validate(json.loads(text))
    elif suffix_of(operation_id) == "yaml":
        schema = success_of(operation_id)["content"]["application/yaml"]["schema"]
        validator(schema).validate(yaml.safe_load(text))
    else:
        assert table_of(text)[1]


def test_the_service_answers_an_example_as_it_is_written(operation_id, answers):
    """After a wanted change: python -m tests.api.examples, and a look at the diff."""
    written = response_path(operation_id).read_bytes().decode("utf-8")
    if suffix_of(operation_id) == "json":
        assert settled(json.loads(answers[operation_id])) == about(json.loads(written))
    elif suffix_of(operation_id) == "yaml":
        assert answers[operation_id] == written
    else:
        assert table_of(answers[operation_id]) == table_of(written)
