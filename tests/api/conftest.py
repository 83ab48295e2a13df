import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from service.access.keys import create_key
from service.access.repository import owner_transaction
from service.app import configure_logging, create_app
from service.catalog.publish import publish_folder
from service.db.embedded import end_with_parent
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 60
STOP_LIMIT_S = 20


@pytest.fixture(scope="session", autouse=True)
def logging():
    """The service's own log; the default one draws each error for seconds."""
    configure_logging()


@pytest.fixture(scope="session")
def bare_app():
    """The application without a database: for what is answered before any handler needs one."""
    return create_app(Settings(allowed_hosts=("plans.example.org",), access_mode="open"))


@pytest.fixture
async def bare_client(bare_app):
    transport = httpx.ASGITransport(bare_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(url, process, log):
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health/ready").status_code == 200:
                return
        time.sleep(0.05)
    pytest.fail(f"the server did not become ready:\n{log.read_text()}")


@contextlib.contextmanager
def serving(database, folder, *, workers=1, **environment):
    """The service as it runs for its users, behind granian; always stopped."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "service.app:create_app", "--factory"]
    command += ["--interface", "asgi", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": database.service_url,
                "ACCESS_MODE": "open",
                **environment,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            # Also when the tests themselves are killed; it calls only into the kernel.
            preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def serve():
    """Starts a live server over a database, for the length of a block."""
    return serving


def publish_at(database, now):
    publish_folder(database.service_url, ROOT / "catalog", now=now)


@pytest.fixture(scope="session")
def publish():
    """Publishes the project's catalog into a database, at a given time."""
    return publish_at


@pytest.fixture(scope="session")
def published(server):
    """Name of a database in which the project's catalog is published, to be cloned."""
    with server.clone() as database:
        publish_at(database, datetime.now(UTC))
        yield conninfo_to_dict(database.service_url)["dbname"]


@pytest.fixture(scope="session")
def server_url(server, published, tmp_path_factory):
    """Address of a live server over a database with the project's catalog."""
    folder = tmp_path_factory.mktemp("server")
    with server.clone(template=published) as database, serving(database, folder) as url:
        yield url


@dataclass(frozen=True)
class KeyedService:
    """A live server that asks for keys, and the database in which they are made."""

    url: str
    database: Any

    def in_transaction(self, work):
        async def run():
            async with owner_transaction(self.database.owner_url) as connection:
                return await work(connection)

        return asyncio.run(run())

    def make_key(self, team, *scopes, now=None, **changed):
        values = {"name": "test", "now": now or datetime.now(UTC), **changed}
        return self.in_transaction(
            lambda connection: create_key(connection, team=team, scopes=scopes, **values)
        )

    def client(self, secret=None):
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)


@pytest.fixture(scope="session")
def keyed(server, published, tmp_path_factory):
    """A live server over a database with the project's catalog that asks for keys."""
    folder = tmp_path_factory.mktemp("keyed")
    with (
        server.clone(template=published) as database,
        serving(database, folder, ACCESS_MODE="keys") as url,
    ):
        yield KeyedService(url, database)


@pytest.fixture
def client(server_url):
    """A client of the live server."""
    with httpx.Client(base_url=server_url, timeout=30) as client:
        yield client
