"""Every operation against its description: what is sent and answered is generated from it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from service.access.scopes import Scope
from service.api.openapi import build_spec

DESCRIBED = schemathesis.openapi.from_dict(build_spec(is_open=True))
DESCRIBED_WITH_KEYS = schemathesis.openapi.from_dict(build_spec())
DESCRIBED_WITH_KEYS.config.phases.coverage.enabled = False  # thousands of bodies, once is enough


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
