"""A real Postgres for every test that asks for one: one server a run, one database a test.

DATABASE_URL (or DATABASE_MIGRATION_URL beside it), there with the role of a superuser,
replaces the server that the run would start itself.
"""

import contextlib
import fcntl
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from service.db.embedded import SUPERUSER_ROLE, VOLATILE_SETTINGS, EmbeddedPostgres
from service.db.migrate import migrate
from service.db.session import make_engine
from service.settings import Settings

NEEDED_MEMORY_BYTES = 2 * 2**30
MEMORY_FOLDER = Path("/dev/shm")
FOLDER_PREFIX = "gpuplan-test-"
SETTLED_S = 60.0


@dataclass(frozen=True)
class Database:
    """A migrated database, and its address for each of the two roles."""

    owner_url: str
    service_url: str


@dataclass(frozen=True)
class Server:
    """A server on which tests may make databases, and the roles and the template made there."""

    admin_url: str
    template: str
    owner: str
    service: str
    password: str

    def url(self, role, database):
        replaced = {"user": role, "password": self.password, "dbname": database}
        return to_url({**conninfo_to_dict(self.admin_url), **replaced})

    def execute(self, statement, *names):
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def database(self, name):
        return Database(self.url(self.owner, name), self.url(self.service, name))

    @contextmanager
    def clone(self, *, template=None) -> Iterator[Database]:
        """A database of its own for the length of the block."""
        name = f"{self.template}_{secrets.token_hex(6)}"
        statement = "CREATE DATABASE {} TEMPLATE {} OWNER {}"
        self.execute(statement, name, template or self.template, self.owner)
        try:
            yield self.database(name)
        finally:
            self.execute("DROP DATABASE {} WITH (FORCE)", name)


def to_url(address):
    """An address in the form that both drivers take; a socket folder goes where a host cannot."""
    user, password, name = (quote(address.pop(key)) for key in ("user", "password", "dbname"))
    return f"postgresql://{user}:{password}@/{name}?{urlencode(address)}"


def remove_leftovers(folder):
    """Remove servers' folders of runs that were killed: their locks are free and not new."""
    for lock in folder.glob(f"{FOLDER_PREFIX}*/lock"):
        with contextlib.suppress(OSError), lock.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - lock.stat().st_mtime > SETTLED_S:
                shutil.rmtree(lock.parent)


def throw_away_folder():
    """On memory where there is enough of it: a clone then takes a third of the time."""
    enough = MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free > NEEDED_MEMORY_BYTES
    parent = MEMORY_FOLDER if enough else Path(tempfile.gettempdir())
    remove_leftovers(parent)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    folder.chmod(0o711)  # for root, the server runs as another user
    return folder


@contextmanager
def started_server() -> Iterator[str]:
    """The address of a server for its superuser: the one named by the environment, or our own."""
    settings = Settings.from_environment()
    if settings.migration_url is not None:
        yield settings.migration_url
        return
    folder = throw_away_folder()
    server = EmbeddedPostgres(folder, programs=settings.pg_bindir, settings=VOLATILE_SETTINGS)
    try:
        with server:
            yield server.url(SUPERUSER_ROLE, "postgres")
    finally:
        shutil.rmtree(folder)


@contextmanager
def prepared_server() -> Iterator[Server]:
    """A server with the two roles and a template database, migrated once."""
    with started_server() as admin_url:
        prefix = f"gpuplan_test_{secrets.token_hex(4)}"
        server = Server(
            admin_url, prefix, f"{prefix}_owner", f"{prefix}_service", secrets.token_hex(16)
        )
        roles = [server.owner, server.service]
        try:
            for role in roles:
                server.execute(f"CREATE ROLE {{}} LOGIN PASSWORD '{server.password}'", role)
            server.execute("GRANT {} TO CURRENT_USER", server.owner)  # to make databases for it
            server.execute("CREATE DATABASE {} OWNER {}", server.template, server.owner)
            template = server.database(server.template)
            migrate(template.owner_url, template.service_url)
            yield server
        finally:
            server.execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", server.template)
            for role in roles:
                server.execute("DROP ROLE IF EXISTS {}", role)


SERVER = pytest.StashKey[Server]()


settings.register_profile(
    "project",
    deadline=None,  # how long one example takes says more about the machine than about the code
    derandomize=True,  # the same examples for everybody; new ones are drawn by hand
    database=None,
)
settings.load_profile("project")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """With several workers, the one process that starts them also starts the one server."""
    config = node.config
    if SERVER not in config.stash:
        context = prepared_server()
        config.stash[SERVER] = context.__enter__()
        config.add_cleanup(lambda: context.__exit__(None, None, None))
    node.workerinput["server"] = asdict(config.stash[SERVER])


@pytest.fixture
def open_folder():
    """A folder that every user can pass through, as pytest's own temporary folders are not."""
    folder = throw_away_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def server(request):
    """The one server of the run, started when it is first needed unless workers share it."""
    shared = getattr(request.config, "workerinput", {}).get("server")
    if shared is not None:
        yield Server(**shared)
        return
    with prepared_server() as own:
        yield own


@pytest.fixture
def database(server):
    """A migrated database for one test, for whatever commits."""
    with server.clone() as clone:
        yield clone


@pytest.fixture(scope="session")
def shared_database(server):
    """A migrated database for tests that only add rows and do not count those of others."""
    with server.clone() as clone:
        yield clone


@pytest.fixture
def engine(database):
    """The service's own engine, as the role that serves, on a database for one test."""
    return make_engine(database.service_url, pooled=False)


@pytest.fixture
def shared_engine(shared_database):
    """The service's own engine on the shared database."""
    return make_engine(shared_database.service_url, pooled=False)


@pytest.fixture(scope="session")
def anyio_backend():
    """Async tests run on asyncio, as the service does."""
    return "asyncio"
