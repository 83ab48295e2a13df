"""The API description, generated: paths by Litestar, components by pydantic.

Litestar's own components lack discriminators, closed objects and bounds, so pydantic's replace
them; what is served and what is committed as `openapi/v1.yaml` is one text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Contact, License, Tag
from litestar.routes import HTTPRoute
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from service import __version__
from service.api.access import SCHEME, SCOPES, SECURITY_SCHEMES
from service.api.problems import PROBLEM_MEDIA_TYPE, ProblemKind
from service.api.routes import ROUTE_HANDLERS
from service.exports.yaml_text import yaml_text

Spec = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
METHODS = ("get", "post", "put", "patch", "delete")

TAGS = (
    Tag(name="health", description="Whether the process lives and can answer."),
    Tag(name="catalog", description="Facts, prices and assumptions, release by release."),
    Tag(name="plans", description="Scenarios and their stored answers."),
    Tag(name="price books", description="What a team has negotiated."),
    Tag(name="estimates", description="Single questions, answered and not kept."),
    Tag(name="comparisons", description="Plans side by side."),
    Tag(name="description", description="What the service can be asked."),
)


BOUNDS = {
    "ge": ("minimum", max),
    "gt": ("exclusiveMinimum", max),
    "le": ("maximum", min),
    "lt": ("exclusiveMaximum", min),
}
"""JSON Schema's keyword for each of pydantic's bounds, and which of two bounds is the tighter."""


def _looser(schema: JsonSchemaValue, inclusive: str, exclusive: str) -> str:
    """Tell which of two bounds on one side says nothing that the other does not."""
    tighter = max if inclusive == "minimum" else min
    is_exclusive_tighter = tighter(schema[inclusive], schema[exclusive]) == schema[exclusive]
    return inclusive if is_exclusive_tighter else exclusive


class _ComponentSchema(GenerateJsonSchema):
    """pydantic's JSON Schema in the form that client generators take best."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Write a nullable scalar as `type: [x, "null"]`; generators stumble over `anyOf`."""
        inner = self.generate_inner(schema["schema"])
        if not isinstance(inner.get("type"), str) or "$ref" in inner:
            return super().nullable_schema(schema)
        nullable = {**inner, "type": [inner["type"], "null"]}
        if "enum" in inner:
            nullable["enum"] = [*inner["enum"], None]
        return nullable

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave out defaults that some generators cannot read.

        `default: null` makes such a field required, and an object where null is taken as well
        makes them drop the schema; the field's description tells it then.
        """
        described = super().default_schema(schema)
        is_nullable = {"type": "null"} in described.get("anyOf", ())
        default = described.get("default", ...)
        if default is None or (is_nullable and isinstance(default, dict)):
            del described["default"]
        return described

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Close an object whose keys follow a pattern: other keys are refused."""
        described = super().dict_schema(schema)
        if "patternProperties" in described:
            described["additionalProperties"] = False
        return described

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Publish bounds that are set on top of a validator, which pydantic leaves unnamed."""
        described = super().generate_inner(schema)
        for bound, (keyword, tighter) in BOUNDS.items():
            if bound in described:
                limit = described.pop(bound)
                described[keyword] = tighter(limit, described.get(keyword, limit))
        for inclusive, exclusive in (
            ("minimum", "exclusiveMinimum"),
            ("maximum", "exclusiveMaximum"),
        ):
            if inclusive in described and exclusive in described:
                del described[_looser(described, inclusive, exclusive)]
        return described

    def field_title_should_be_set(self, schema: object) -> bool:
        """Leave out titles, which only repeat the field's name."""
        return False


def _handlers(app: Litestar) -> Iterator[HTTPRouteHandler]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema():
                    yield handler


def _answered(annotation: Any) -> Any:
    """Look into `Response[T]`: stored bytes are sent as they are, and are still a T."""
    return get_args(annotation)[0] if get_origin(annotation) is Response else annotation


def _models(app: Litestar) -> set[type[BaseModel]]:
    found: set[Any] = set()
    for handler in _handlers(app):
        signature = handler.parsed_fn_signature
        found.add(_answered(signature.return_type.annotation))
        found.update(answer.data_container for answer in (handler.responses or {}).values())
        if "data" in signature.parameters:
            found.add(signature.parameters["data"].annotation)
    return {each for each in found if isinstance(each, type) and issubclass(each, BaseModel)}


def _components(app: Litestar) -> dict[str, Any]:
    """Describe every value once: what goes in and what comes out have one schema."""
    models = sorted(_models(app), key=lambda model: model.__name__)
    _, schema = models_json_schema(
        [(model, "validation") for model in models],
        ref_template="#/components/schemas/{model}",
        schema_generator=_ComponentSchema,
    )
    components: dict[str, Any] = dict(sorted(schema["$defs"].items()))
    for union in components.values():
        for reference in union.get("discriminator", {}).get("mapping", {}).values():
            _require_tag(components[reference.rpartition("/")[2]], union)
    return components


def _require_tag(member: dict[str, Any], union: dict[str, Any]) -> None:
    """A member of a union is told by its tag, so the tag is due even where it has a default."""
    tag = union["discriminator"]["propertyName"]
    member["properties"][tag].pop("default", None)
    member["required"] = [tag, *(name for name in member.get("required", ()) if name != tag)]


def _operations(spec: Spec) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in spec["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def _whole(bound: float) -> float:
    return int(bound) if float(bound).is_integer() else bound


def _tidy_parameter(parameter: dict[str, Any]) -> None:
    """Write an optional parameter as its plain type: a query cannot carry null."""
    for name in ("deprecated", "allowEmptyValue", "allowReserved"):
        if parameter.get(name) is False:
            del parameter[name]
    schema = parameter["schema"]
    schema.pop("description", None)
    for branch in schema.pop("oneOf", ()):
        if branch != {"type": "null"}:
            parameter["schema"] = branch | parameter["schema"]
    if schema.get("default", ...) is None:
        del schema["default"]
    for bound in schema.keys() & {"minimum", "maximum"}:
        schema[bound] = _whole(schema[bound])


def _problem_response(status: str, description: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": description,
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status in PROBLEM_HEADERS:
        response["headers"] = PROBLEM_HEADERS[status]
    return response


def _named(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Refer to a union by its name, where Litestar writes out its members."""
    for name, component in components["schemas"].items():
        if "oneOf" in schema and component.get("oneOf") == schema["oneOf"]:
            return {"$ref": f"#/components/schemas/{name}"}
    return schema


def _tidy_responses(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Describe a problem once for all operations: every refusal has one shape."""
    responses = operation["responses"]
    for status, response in responses.items():
        if status >= "400":
            name = f"Problem{status}"
            problem = _problem_response(status, response["description"])
            components["responses"].setdefault(name, problem)
            responses[status] = {"$ref": f"#/components/responses/{name}"}
            continue
        response["description"] = f"{operation['summary']}."
        for media_type, content in response.get("content", {}).items():
            content["schema"] = TEXT_SCHEMAS.get(media_type, _named(content["schema"], components))
        for header in response.get("headers", {}).values():
            header.pop("deprecated", None)
            header.setdefault("schema", {"type": "string"})


TEXT_SCHEMAS: dict[str, Any] = {
    "application/yaml": {"type": "object"},
    "text/csv": {"type": "string"},
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": {},
}
"""What is in a text that Litestar sends without looking into it."""
CHALLENGE = {
    "WWW-Authenticate": {
        "description": "What the address asks for (RFC 6750).",
        "schema": {"type": "string"},
    }
}
PROBLEM_HEADERS = {
    "401": CHALLENGE,
    "403": CHALLENGE,
    "503": {
        "Retry-After": {
            "description": "Seconds to wait before the next try.",
            "schema": {"type": "string"},
        }
    },
}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "Entity tags that the caller has; 304 when the answer has not changed.",
    "schema": {"type": "string"},
}
ENTITY_TAG = {
    "description": "Entity tag of the answer; an answer sent in pieces has none.",
    "schema": {"type": "string"},
}


def _add_entity_tags(method: str, operation: dict[str, Any]) -> None:
    """Describe what the edge does for every read."""
    for status in ("200", "201"):
        response = operation["responses"].get(status)
        if response and (method == "get" or status == "201"):
            response.setdefault("headers", {})["ETag"] = ENTITY_TAG
    if method == "get":
        operation.setdefault("parameters", []).append(
            {"$ref": "#/components/parameters/IfNoneMatch"}
        )
        operation["responses"]["304"] = {"description": "The caller has the current answer."}


def _add_access(spec: Spec, app: Litestar, *, is_open: bool) -> None:
    """Describe what an address that asks for a key needs, and what it says without it."""
    asked = {handler.operation_id: handler.opt.get(SCOPES) for handler in _handlers(app)}
    for _, _, operation in _operations(spec):
        scopes = asked[operation["operationId"]]
        if scopes is not None:
            operation["security"] = [*([{}] if is_open else []), {SCHEME: list(scopes)}]
            for kind in (ProblemKind.UNAUTHENTICATED, ProblemKind.MISSING_SCOPE):
                operation["responses"][str(kind.status)] = {"description": f"{kind.title}."}


def _add_example(operation: dict[str, Any]) -> None:
    """Show the example that is sent in tests, so that the page offers a request that works."""
    path = EXAMPLES / f"{operation['operationId']}.request.json"
    example = json.loads(path.read_text(encoding="utf-8"))
    for content in operation["requestBody"]["content"].values():
        content["example"] = example.get("body", example)


def _tidy_operation(method: str, operation: dict[str, Any], components: dict[str, Any]) -> None:
    operation["summary"] = operation["description"].partition("\n")[0].rstrip(".")
    operation.pop("deprecated", None)
    for parameter in operation.get("parameters", ()):
        _tidy_parameter(parameter)
    _tidy_responses(operation, components)
    _add_entity_tags(method, operation)
    if "requestBody" in operation:
        _add_example(operation)
    operation["responses"] = dict(sorted(operation["responses"].items()))


def build_spec(*, is_open: bool = False) -> Spec:
    """Describe every address as an OpenAPI 3.1 document.

    Args:
        is_open: describe a service in open mode, which takes requests without a key as well.
    """
    config = OpenAPIConfig(
        title="gpuplan",
        version=__version__,
        description=(
            "GPU capacity planning and total cost of ownership: what must run goes in; GPUs,"
            " GPU hours and money come out, kept as a plan.\n\nMoney is a decimal string with its"
            " currency beside it. Refusals are problem documents (RFC 9457). A request body is at"
            " most 1,048,576 bytes unless the operator set another limit."
        ),
        contact=Contact(name="The maintainers of gpuplan"),
        license=License(name="All rights reserved", identifier="LicenseRef-All-Rights-Reserved"),
        tags=list(TAGS),
        use_handler_docstrings=True,
    )
    app = Litestar(ROUTE_HANDLERS, openapi_config=config, logging_config=None)
    described = app.openapi_schema.to_schema()
    spec: Spec = {name: described[name] for name in ("openapi", "info", "servers", "tags")}
    spec["security"] = []  # what asks for a key says so itself
    spec["paths"] = dict(sorted(described["paths"].items()))
    spec["components"] = {
        "schemas": _components(app),
        "parameters": {"IfNoneMatch": IF_NONE_MATCH},
        "responses": {},
        "securitySchemes": SECURITY_SCHEMES,
    }
    _add_access(spec, app, is_open=is_open)
    for _, method, operation in _operations(spec):
        _tidy_operation(method, operation, spec["components"])
    return spec


def query_parameters(spec: Spec) -> dict[str, dict[str, Any]]:
    """Name the query parameters of each operation with their schemas, by operation id."""
    return {
        operation["operationId"]: {
            parameter["name"]: parameter["schema"]
            for parameter in operation.get("parameters", ())
            if parameter.get("in") == "query"
        }
        for _, _, operation in _operations(spec)
    }


def to_yaml(spec: Spec) -> str:
    """Write a description as YAML, the same text every time."""
    return yaml_text(spec)


def write_spec(path: Path) -> None:
    """Write the description to a file."""
    path.write_text(to_yaml(build_spec()), encoding="utf-8")
