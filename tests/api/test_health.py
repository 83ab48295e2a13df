import contextlib

import httpx
import psycopg
import pytest

from service.app import create_app
from service.db.errors import DatabaseError
from service.settings import Settings

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def client_of(url):
    """A client of an application in this process, its database opened and closed."""
    app = create_app(Settings(database_url=url))
    transport = httpx.ASGITransport(app)
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def assert_unavailable(response):
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["type"] == "/problems/unavailable"
    return response.json()["detail"]


async def test_a_served_database_at_the_newest_revision_is_ready(database):
    async with client_of(database.service_url) as client:
        response = await client.get("/health/ready")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_a_database_at_an_old_revision_is_not_ready(database):
    with psycopg.connect(database.owner_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    async with client_of(database.service_url) as client:
        assert "0000" in assert_unavailable(await client.get("/health/ready"))
        assert (await client.get("/health/live")).status_code == 200


async def test_a_lost_database_makes_the_service_live_but_not_ready(server):
    with server.clone() as database:
        connection = client_of(database.service_url)
        client = await connection.__aenter__()
    try:
        for _ in range(2):  # the first try meets a cut connection, the next finds no database
            assert_unavailable(await client.get("/health/ready"))
        assert (await client.get("/health/live")).json() == {"status": "ok"}
    finally:
        await connection.__aexit__(None, None, None)


async def test_the_service_does_not_start_without_a_database_address():
    reason = pytest.RaisesExc(DatabaseError, match="DATABASE_URL is not set")
    with pytest.RaisesGroup(reason):
        async with create_app(Settings()).lifespan():
            pass


def test_the_live_server_is_ready(client):
    assert client.get("/health/ready").json() == {"status": "ok"}
