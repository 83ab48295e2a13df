"""The example pairs of `openapi/examples`: sent to a live server, and written anew by

    .venv/bin/python -m tests.api.examples

An operation with a body has it as its request; for the others the request names parameters. Ids in
the examples are fixed names for whatever ids the server gives; times and digests are the server's.
"""

import csv
import io
import json
import re
import tempfile
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

import httpx

from service.api.openapi import build_spec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "openapi" / "examples"
PUBLISHED_AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
FIXED_IDS = {
    "create_plan": "019ad000-0000-7000-8000-000000000001",
    "create_replan": "019ad000-0000-7000-8000-000000000002",
}
TABLE_ROWS = 6
# What differs from run to run, and what stands for it.
SETTLED = {
    **dict.fromkeys(("created_at", "changed_at", "retired_at"), "2026-11-29T13:00:00.000000Z"),
    "digest": f"sha256:{'0' * 64}",
}
# The answer of the first is openapi/v1.yaml itself, that of the second no text, of the third none.
UNPAIRED = {"get_openapi", "export_plan_workbook", "delete_price_book"}
SPEC = build_spec()
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, item in SPEC["paths"].items()
    for method, operation in item.items()
    if operation["operationId"] not in UNPAIRED
}
# What makes things comes first, so that the others can read it.
ORDER = sorted(OPERATIONS, key=lambda each: (not each.startswith("create_"), each))


def request_of(operation_id):
    return json.loads((EXAMPLES / f"{operation_id}.request.json").read_text(encoding="utf-8"))


def suffix_of(operation_id):
    [media_type] = success_of(operation_id)["content"]
    return {"application/json": "json", "application/yaml": "yaml", "text/csv": "csv"}[media_type]


def response_path(operation_id):
    return EXAMPLES / f"{operation_id}.response.{suffix_of(operation_id)}"


def success_of(operation_id):
    _, _, operation = OPERATIONS[operation_id]
    [status] = [status for status in operation["responses"] if status.startswith("2")]
    return {"status": int(status), **operation["responses"][status]}


def send(client, operation_id, ids):
    """Send an example with the server's ids in place of the fixed ones."""
    method, path, operation = OPERATIONS[operation_id]
    text = json.dumps(request_of(operation_id))
    for name, fixed in FIXED_IDS.items():
        text = text.replace(fixed, ids.get(name, fixed))
    given = json.loads(text)
    body = given.pop("body", None) if "{" in path and "requestBody" in operation else None
    if "requestBody" in operation and body is None:
        body, given = given, {}
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", given.pop(name))
    headers = {name: given.pop(name) for name in header_parameters(operation) & given.keys()}
    query = f"?{urlencode(given)}" if given else ""
    return client.request(method, f"{path}{query}", json=body, headers=headers)


def header_parameters(operation):
    named = operation.get("parameters", ())
    return {each["name"] for each in named if each.get("in") == "header"}


def run_all(client):
    """Send every example; the answers are texts in which the fixed ids stand."""
    ids, answers = {}, {}
    for operation_id in ORDER:
        response = send(client, operation_id, ids)
        assert response.status_code == success_of(operation_id)["status"], (
            operation_id,
            response.text,
        )
        if operation_id in FIXED_IDS:
            ids[operation_id] = response.json()["id"]
        text = response.content.decode("utf-8")
        for name, given in ids.items():
            text = text.replace(given, FIXED_IDS[name])
        answers[operation_id] = text
    return answers


def settled(document):
    """A document with fixed values for what differs from run to run."""
    if isinstance(document, dict):
        return {
            name: settled(each) if each in (None, "") else SETTLED.get(name, settled(each))
            for name, each in document.items()
        }
    return [settled(each) for each in document] if isinstance(document, list) else document


def table_of(text):
    """The columns and the first rows of a table."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return rows.fieldnames, [settled(row) for row in islice(rows, TABLE_ROWS)]


def as_written(operation_id, text):
    if suffix_of(operation_id) == "json":
        return json.dumps(settled(json.loads(text)), indent=2, ensure_ascii=False) + "\n"
    if suffix_of(operation_id) == "yaml":
        return text
    columns, rows = table_of(text)
    shown = io.StringIO(newline="")
    writer = csv.DictWriter(shown, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return shown.getvalue()


def write_all():
    from tests.api.conftest import publish_at, serving
    from tests.conftest import prepared_server

    with prepared_server() as server, server.clone() as database:
        publish_at(database, PUBLISHED_AT)
        with tempfile.TemporaryDirectory() as folder, serving(database, Path(folder)) as url:
            answers = run_all(httpx.Client(base_url=url, timeout=60))
    for operation_id, text in answers.items():
        path = response_path(operation_id)
        path.write_text(as_written(operation_id, text), encoding="utf-8", newline="")


if __name__ == "__main__":
    write_all()
