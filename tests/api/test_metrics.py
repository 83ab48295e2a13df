import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.anyio


def request_counts(text):
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "gpuplan_http_requests_total"
    }


async def test_requests_are_counted_by_route_and_never_by_address(bare_client):
    for path in ("/docs/one", "/docs/two", "/v1/three", "/four"):
        await bare_client.get(path)
    await bare_client.request("BREW", "/docs")
    response = await bare_client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    counts = request_counts(response.text)
    assert counts["GET", "/docs/{name}", "404"] >= 2
    assert counts["GET", "unmatched", "404"] >= 2
    assert counts["other", "unmatched", "405"] >= 1
    assert not re.search("one|two|three|four|BREW", response.text)


def test_workers_that_share_a_folder_add_up_their_counts(database, serve, tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    with serve(database, tmp_path, workers=2, PROMETHEUS_MULTIPROC_DIR=str(folder)) as url:
        for _ in range(20):  # each over a connection of its own, so that both workers get some
            assert httpx.get(f"{url}/health/live").status_code == 200
        counts = request_counts(httpx.get(f"{url}/metrics").text)
    assert counts["GET", "/health/live", "200"] == 20
