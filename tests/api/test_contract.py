"""Every operation against its description: what is sent and answered is generated from it."""

import re
from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from service.access.scopes import Scope
from service.api.openapi import build_spec

DESCRIBED = schemathesis.openapi.from_dict(build_spec(is_open=True))
DESCRIBED_WITH_KEYS = schemathesis.openapi.from_dict(build_spec())
DESCRIBED_WITH_KEYS.config.phases.coverage.enabled = False  # thousands of bodies, once is enough

INSIDE = re.compile(r"(.*?\w*(?:architecture|gpu)(?: -> |' value: ))(.+)")
"""Where a body describes an architecture or a GPU, and what a case covers inside it."""
told, covered = Counter(), Counter()


@DESCRIBED.hook
def filter_case(context, case):
    """Cover the inside of an architecture and of a GPU once in each operation.

    Bodies hold them in each run, stage and service, and nothing bounds the number of cases of the
    coverage phase: covered in every place they are two of three bodies.
    """
    found = INSIDE.match(getattr(case.meta.phase.data, "description", None) or "")
    if found is None:
        return True
    operation, (place, inside) = case.operation.label, found.groups()
    told[operation, place, inside] += 1  # more than one: the kinds of one field are told alike
    if told[operation, place, inside] <= covered[operation, inside]:
        return False
    covered[operation, inside] += 1
    return True


@DESCRIBED.parametrize()
@settings(
    derandomize=True,  # the same cases every time; others with `--hypothesis-seed`
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_to_its_description(case, server_url):
    case.call_and_validate(base_url=server_url)


@pytest.fixture(scope="session")
def secret(keyed):
    return keyed.make_key("red", *Scope).secret


@DESCRIBED_WITH_KEYS.parametrize()
@settings(
    derandomize=True,
    max_examples=5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_that_declares_a_key_lets_nobody_in_without_one(case, keyed, secret):
    """Each answer that succeeds is asked for again without the key, and with a wrong one."""
    case.call_and_validate(base_url=keyed.url, headers={"Authorization": f"Bearer {secret}"})
