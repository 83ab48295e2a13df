"""Every operation against its description: what is sent and answered is generated from it.

The service is in open mode; `test_access.py` asks every operation for a key.
"""

import schemathesis
from hypothesis import HealthCheck, settings

from service.api.openapi import build_spec

DESCRIBED = schemathesis.openapi.from_dict(build_spec(is_open=True))


@DESCRIBED.parametrize()
@settings(
    derandomize=True,  # the same cases every time; others with `--hypothesis-seed`
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_to_its_description(case, server_url):
    case.call_and_validate(base_url=server_url)
