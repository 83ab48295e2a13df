"""Stored plans of every version of their shape, read as the current one.

Reads send the stored bytes as they are. Only a plan that is run again is parsed, and only here. A
new shape of `Plan` gets the next version, a step below that turns the version before it into it,
and a frozen plan of the old shape among the tests.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from service.core.plans import SCHEMA_VERSION, Plan

STEPS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By version: turns a document of that version into one of the next."""


def read_plan(body: bytes, schema_version: int) -> Plan:
    """Read a stored plan of any version.

    Raises:
        LookupError: if it was written by a later release of the service than this one.
    """
    if schema_version > SCHEMA_VERSION:
        raise LookupError(f"plans of version {schema_version} are newer than this service")
    document = json.loads(body)
    for version in range(schema_version, SCHEMA_VERSION):
        document = STEPS[version](document)
    return Plan.model_validate(document)
