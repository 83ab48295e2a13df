from typing import Annotated

import httpx
import pytest
from litestar import Litestar, Request, Response, get
from litestar.params import FromPath, HeaderParameter, QueryParameter

from service.api.pages import Cursor, Limit, decode_cursor, encode_cursor, next_link
from service.api.problems import EXCEPTION_HANDLERS, ProblemError


@pytest.mark.parametrize("position", [7, "0193f0c2-0000-7000-8000-000000000000", "a:b"])
def test_a_cursor_leads_back_to_where_the_page_ended(position):
    cursor = encode_cursor("plans", position)
    assert decode_cursor("plans", cursor, type(position)) == position
    assert "=" not in cursor


def test_no_cursor_is_the_first_page():
    assert decode_cursor("plans", None, int) is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "7",
        "\x00",
        "ä",
        "a" * 199,
        encode_cursor("lines", 7),
        encode_cursor("plans", "seven"),
        encode_cursor("plans", 7) + "=",
    ],
)
def test_a_cursor_of_nothing_or_of_another_collection_is_refused(cursor):
    with pytest.raises(ProblemError) as caught:
        decode_cursor("plans", cursor, int)
    assert caught.value.kind.status == 422
    assert caught.value.errors[0].parameter == "cursor"


@get("/things/{number:int}")
async def list_things(
    request: Request,
    number: FromPath[int],
    limit: Limit = 10,
    cursor: Cursor = None,
    word: Annotated[str | None, QueryParameter(name="the_word", pattern="^[a-z]+$")] = None,
    key: Annotated[str | None, HeaderParameter(name="The-Key", max_length=3)] = None,
) -> Response[list[int]]:
    found = encode_cursor("things", number + limit)
    return Response([limit], headers=next_link(request, found if cursor is None else None))


@pytest.fixture
async def things():
    app = Litestar([list_things], exception_handlers=EXCEPTION_HANDLERS, logging_config=None)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.anyio
async def test_the_link_asks_the_same_question_one_page_on(things):
    first = await things.get("/things/5?limit=3&the_word=a")
    address = first.links["next"]["url"]
    assert address.startswith("/things/5?cursor=")
    assert address.endswith("&limit=3&the_word=a")
    last = await things.get(address)
    assert last.status_code == 200
    assert "link" not in last.headers


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "headers", "parameter", "words"),
    [
        ("limit=0", {}, "limit", ">= 1"),
        ("limit=201", {}, "limit", "<= 200"),
        ("limit=many", {}, "limit", "int"),
        ("limit=1.5", {}, "limit", "int"),
        ("limit=", {}, "limit", "int"),
        ("the_word=A", {}, "the_word", "^[a-z]+$"),
        ("cursor=" + "a" * 201, {}, "cursor", "200"),
        ("", {"The-Key": "abcd"}, "The-Key", "3"),
    ],
)
async def test_a_parameter_out_of_its_bounds_is_422_with_its_name_and_bound(
    things, query, headers, parameter, words
):
    response = await things.get(f"/things/5?{query}", headers=headers)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["parameter"] == parameter
    assert words in error["detail"]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/things/x", "/things/1.5", "/things/"])
async def test_a_name_in_the_address_that_cannot_exist_is_404(things, path):
    response = await things.get(path)
    assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")
