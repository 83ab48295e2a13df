import re

import pytest

pytestmark = pytest.mark.anyio


async def test_the_page_is_made_of_parts_that_the_service_sends(bare_client):
    page = await bare_client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    parts = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert set(parts) - {"data:,"} == {
        "/docs/swagger-ui.css",
        "/docs/swagger-ui-bundle.js",
        "/docs/docs.js",
    }
    for part in set(parts) - {"data:,"}:
        response = await bare_client.get(part)
        assert response.status_code == 200
        assert len(response.content) > 100


async def test_the_page_names_no_outside_address(bare_client):
    for part in ("/docs", "/docs/docs.js"):
        assert not re.search(r"//[a-z]", (await bare_client.get(part)).text)
    style = (await bare_client.get("/docs/swagger-ui.css")).text
    assert re.findall(r"""url\((?!["']?(?:data:|#))[^)]*""", style) == []


async def test_the_browser_is_told_to_load_nothing_from_elsewhere(bare_client):
    for part in ("/docs", "/docs/docs.js", "/docs/swagger-ui-bundle.js"):
        policy = (await bare_client.get(part)).headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "http" not in policy


async def test_the_page_reads_the_served_description(bare_client):
    script = (await bare_client.get("/docs/docs.js")).text
    assert 'url: "/v1/openapi.yaml"' in script
    assert "validatorUrl: null" in script
    assert (await bare_client.get("/v1/openapi.yaml")).status_code == 200
