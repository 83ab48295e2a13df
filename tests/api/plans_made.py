"""Plans of the published example, made through the service."""

import copy
import json
from pathlib import Path

import httpx

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi" / "examples"
EXAMPLE = json.loads((EXAMPLES / "create_plan.request.json").read_text())


def request(name="a plan", **scenario):
    """The example with another name and, if given, other parts of its scenario."""
    body = copy.deepcopy(EXAMPLE)
    body["name"] = name
    body["scenario"].update(scenario)
    return body


def create(client, body, **headers):
    response = client.post("/v1/plans", json=body, headers=headers)
    assert response.status_code == 201, response.text
    return response


def httpx_client(url):
    return httpx.Client(base_url=url, timeout=30)


def created(url, body):
    with httpx_client(url) as client:
        return create(client, body).json()
