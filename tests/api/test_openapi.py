import re
from pathlib import Path

import httpx
import pytest
import yaml

from service.api.openapi import build_spec, to_yaml
from service.api.problems import ProblemKind
from service.app import create_app
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SPEC = build_spec()
SCHEMAS = SPEC["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: operation
    for item in SPEC["paths"].values()
    for operation in item.values()
}
# JSON Schema draft 2020-12, and OpenAPI 3.1's discriminator.
SCHEMA_KEYWORDS = {
    *("$ref", "additionalProperties", "anyOf", "const", "default", "description", "discriminator"),
    *("enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems", "maxLength"),
    *("maxProperties", "maximum", "minItems", "minLength", "minimum", "oneOf", "pattern"),
    *("patternProperties", "prefixItems", "properties", "propertyNames", "required", "title"),
    *("type", "uniqueItems"),
}


def subschemas(schema):
    """Every schema inside a schema, itself first; names of properties are no keywords."""
    yield schema
    for keyword in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(keyword), dict):
            yield from subschemas(schema[keyword])
    for keyword in ("anyOf", "oneOf", "prefixItems"):
        for each in schema.get(keyword, ()):
            yield from subschemas(each)
    for keyword in ("properties", "patternProperties"):
        for each in schema.get(keyword, {}).values():
            yield from subschemas(each)


def nodes(document):
    yield document
    children = document.values() if isinstance(document, dict) else document
    if isinstance(document, dict | list):
        for child in children:
            yield from nodes(child)


@pytest.fixture(params=sorted(SCHEMAS))
def component(request):
    return SCHEMAS[request.param]


@pytest.fixture(params=sorted(OPERATIONS))
def operation(request):
    return OPERATIONS[request.param]


def test_the_committed_description_is_the_generated_one():
    committed = (ROOT / "openapi" / "v1.yaml").read_text(encoding="utf-8")
    assert committed == to_yaml(SPEC), "run ./dev openapi write and review the diff"


@pytest.mark.anyio
async def test_the_served_description_is_the_committed_one():
    transport = httpx.ASGITransport(create_app(Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get("/v1/openapi.yaml")
    assert response.headers["content-type"] == "application/yaml"
    assert response.content == (ROOT / "openapi" / "v1.yaml").read_bytes()


@pytest.mark.anyio
async def test_an_open_service_describes_keys_as_optional_and_all_else_alike(bare_client):
    served = yaml.safe_load((await bare_client.get("/v1/openapi.yaml")).content)
    for path, item in served["paths"].items():
        for method, operation in item.items():
            asked = SPEC["paths"][path][method].get("security")
            assert operation.pop("security", None) == (asked and [{}, *asked])
            if asked:
                operation["security"] = asked
    assert served == SPEC


def test_the_description_is_yaml_that_reads_back_the_same():
    assert yaml.safe_load(to_yaml(SPEC)) == SPEC


def test_every_reference_leads_somewhere():
    for node in nodes(SPEC):
        if isinstance(node, dict) and isinstance(node.get("$ref"), str):
            place = SPEC
            for name in node["$ref"].removeprefix("#/").split("/"):
                place = place[name]


def test_components_use_keywords_of_json_schema_alone(component):
    for schema in subschemas(component):
        assert set(schema) <= SCHEMA_KEYWORDS


def test_objects_refuse_unknown_fields(component):
    for schema in subschemas(component):
        if "properties" in schema or "patternProperties" in schema:
            assert schema["additionalProperties"] is False


def test_unions_of_objects_name_their_discriminator(component):
    for schema in subschemas(component):
        objects = [each for each in schema.get("oneOf", ()) if is_tagged(each)]
        if len(objects) > 1:
            assert schema["discriminator"]["propertyName"] == "kind"
            assert len(schema["discriminator"]["mapping"]) == len(schema["oneOf"])


def is_tagged(schema):
    target = SCHEMAS.get(schema.get("$ref", "").rpartition("/")[2], {})
    return "kind" in target.get("properties", {})


def test_every_field_is_described(component):
    for schema in subschemas(component):
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), name


def test_money_is_text_without_a_format(component):
    """With `format: decimal` some generated clients send it as a JSON number."""
    for schema in subschemas(component):
        assert schema.get("format") in {None, "date", "date-time", "uuid"}


def test_no_value_has_one_schema_going_in_and_another_coming_out():
    assert [name for name in SCHEMAS if name.endswith(("-Input", "-Output"))] == []


def test_operation_ids_are_snake_case_and_unique(operation):
    ids = [each["operationId"] for item in SPEC["paths"].values() for each in item.values()]
    assert ids.count(operation["operationId"]) == 1
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"])


def test_operations_have_a_summary_and_one_tag_that_is_described(operation):
    assert re.fullmatch(r"[A-Z].{5,80}[^.]", operation["summary"])
    [tag] = operation["tags"]
    assert tag in {each["name"] for each in SPEC["tags"]}


def test_refusals_are_problem_documents_and_declared(operation):
    refusals = {status: each for status, each in operation["responses"].items() if status >= "400"}
    assert {"400", "421", "500", "503"} <= set(refusals)
    if "requestBody" in operation:
        assert {"413", "415", "422"} <= set(refusals)
    for status, response in refusals.items():
        assert response == {"$ref": f"#/components/responses/Problem{status}"}
        shared = SPEC["components"]["responses"][f"Problem{status}"]
        assert list(shared["content"]) == ["application/problem+json"]


def test_every_header_has_a_schema():
    for node in nodes(SPEC):
        if isinstance(node, dict):
            for header in node.get("headers", {}).values():
                assert header["schema"]["type"] == "string"


@pytest.mark.parametrize("kind", list(ProblemKind), ids=lambda kind: kind.uri)
def test_the_readme_explains_every_problem(kind):
    readme = (ROOT / "openapi" / "README.md").read_text(encoding="utf-8")
    assert f"| `{kind.uri}` | {kind.status} |" in readme


def test_the_readme_explains_no_problem_that_does_not_exist():
    readme = (ROOT / "openapi" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(/problems/[a-z-]+)`", readme, re.MULTILINE)
    assert named == [kind.uri for kind in ProblemKind]
