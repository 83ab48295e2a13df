import re

import pytest

from tests.api.pages import all_items, rows_of

RELEASES = "/v1/catalog/releases"
COLLECTIONS = [
    "gpus",
    "nodes",
    "architectures",
    "prices",
    "token-prices",
    "cost-facts",
    "assumptions",
    "sites",
    "formats",
]


@pytest.fixture(params=COLLECTIONS)
def collection(request):
    return request.param


def key_of(entry):
    return entry["key"] if "key" in entry else entry["name"]


def kind_of(collection):
    return collection.replace("-", "_")


def test_the_published_release_is_listed_and_is_the_latest(client):
    [release] = all_items(client, RELEASES)
    assert re.fullmatch(r"[0-9]{4}\.[0-9]{1,2}\.1", release["version"])
    assert release["digest"].startswith("sha256:")
    latest = client.get(f"{RELEASES}/latest").json()
    assert latest.items() >= release.items()
    assert client.get(f"{RELEASES}/{release['version']}").json() == latest
    assert latest["entry_counts"].keys() >= {kind_of(each) for each in COLLECTIONS}
    assert min(latest["entry_counts"].values()) > 0


def test_pages_of_any_size_hold_every_entry_once_and_in_order(client, collection):
    path = f"{RELEASES}/latest/{collection}"
    count = client.get(f"{RELEASES}/latest").json()["entry_counts"][kind_of(collection)]
    largest = all_items(client, path, limit=200)
    keys = [key_of(entry) for entry in largest]
    assert len(keys) == len(set(keys)) == count
    assert all_items(client, path, limit=min(200, max(1, count // 3))) == largest


def test_a_page_names_its_release_and_the_next_one_stays_in_it(client):
    response = client.get(f"{RELEASES}/latest/gpus", params={"limit": 1})
    version = client.get(f"{RELEASES}/latest").json()["version"]
    assert response.json()["catalog_release"]["version"] == version
    assert response.links["next"]["url"].startswith(f"{RELEASES}/{version}/gpus?cursor=")


def test_a_single_entry_is_the_one_of_the_list(client, collection):
    for entry in client.get(f"{RELEASES}/latest/{collection}?limit=3").json()["items"]:
        response = client.get(f"{RELEASES}/latest/{collection}/{key_of(entry)}")
        assert (response.status_code, response.json()) == (200, entry)


def test_a_table_has_a_row_for_every_entry(client, collection):
    entries = all_items(client, f"{RELEASES}/latest/{collection}", limit=200)
    response = client.get(f"{RELEASES}/latest/{collection}.csv")
    rows = rows_of(response)
    assert [row.get("key") or row["name"] for row in rows] == [key_of(each) for each in entries]
    version = client.get(f"{RELEASES}/latest").json()["version"]
    assert f'filename="{collection}-{version}.csv"' in response.headers["content-disposition"]


def test_the_table_of_releases_has_a_row_for_each(client):
    [row] = rows_of(client.get(f"{RELEASES}.csv"))
    assert row["version"] == client.get(f"{RELEASES}/latest").json()["version"]


def test_a_byte_order_mark_comes_on_request_alone(client, collection):
    path = f"{RELEASES}/latest/{collection}.csv"
    plain, marked = (client.get(path, params=query) for query in ({}, {"byte_order_mark": True}))
    assert marked.content == b"\xef\xbb\xbf" + plain.content
    assert not plain.content.startswith(b"\xef\xbb\xbf")


def test_a_gpu_is_answered_as_its_file_says(client):
    """The H100's data sheet: 80 GB, 3.35 TB/s, 989.4 TFLOPS in BF16 without sparsity."""
    gpu = client.get(f"{RELEASES}/latest/gpus/h100-sxm5-80gb").json()
    assert (gpu["memory_gb"], gpu["memory_bandwidth_gb_per_s"]) == (80, 3350)
    assert gpu["peak_tflops"]["bf16"] == pytest.approx(989.4, abs=0.1)
    assert gpu["provenance"]["sources"]


@pytest.mark.parametrize(
    "path",
    [
        "/2020.1.1",
        "/2020.1.1/gpus",
        "/2020.1.1/gpus.csv",
        "/2020.1.1/gpus/h100-sxm5-80gb",
        "/v3",
        "/%00",
        "/latest/gpus/no-such-gpu",
        "/latest/gpus/H100",
        "/latest/gpus/%00",
        "/latest/gpus/a%20b",
        "/latest/nothing",
        "/latest/gpus.xml",
    ],
)
def test_what_a_release_does_not_hold_is_404(client, path):
    response = client.get(f"{RELEASES}{path}")
    assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "cursor=x", "cursor=Z3B1czp4", "cursor=bm9kZXM6MQ", "limit=many"],
)
def test_a_parameter_out_of_its_bounds_is_422(client, query):
    response = client.get(f"{RELEASES}/latest/gpus?{query}")
    assert response.status_code == 422
    assert response.json()["errors"][0]["parameter"] == query.partition("=")[0]


def test_an_unchanged_collection_is_not_sent_again(client, collection):
    path = f"{RELEASES}/latest/{collection}"
    tag = client.get(path).headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_prices_say_their_kind_and_are_amounts_of_text(client):
    prices = all_items(client, f"{RELEASES}/latest/prices", limit=200)
    assert {price["kind"] for price in prices} == {"rental", "purchase"}
    for price in prices:
        amount = price.get("price_per_gpu_hour") or price["typical"]
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount)


def test_a_price_of_tokens_is_answered_as_its_file_says(client):
    """gpt-oss-120b at Groq in two price maps: 0.15 read, 0.60 written, 0.075 cached."""
    path = f"{RELEASES}/latest/token-prices"
    [price] = [
        each
        for each in all_items(client, path, limit=200)
        if (each["provider"], each["architecture"]) == ("groq", "gpt-oss-120b")
    ]
    assert client.get(f"{path}/{price['key']}").json() == price
    assert price["input_price_per_million_tokens"] == "0.15"
    assert price["output_price_per_million_tokens"] == "0.6"
    assert price["cached_input_price_per_million_tokens"] == "0.075"
    assert (price["currency"], price["quality"]) == ("USD", "listed")
    assert price["provenance"]["verified"] is True


def test_every_gpu_that_a_price_or_a_node_names_is_there(client):
    gpus = {key_of(gpu) for gpu in all_items(client, f"{RELEASES}/latest/gpus")}
    for collection in ("nodes", "prices"):
        named = {each["gpu"] for each in all_items(client, f"{RELEASES}/latest/{collection}")}
        assert named <= gpus
