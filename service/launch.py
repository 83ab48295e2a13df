"""Starts what one machine needs to serve: database, catalog, workers; and stops it again."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from service.catalog.findings import InvalidCatalog
from service.catalog.publish import publish_folder
from service.db.embedded import (
    OWNER_ROLE,
    SERVICE_ROLE,
    EmbeddedPostgres,
    default_data_folder,
    end_with_parent,
    running_url,
)
from service.db.migrate import migrate
from service.settings import (
    DEFAULT_TEAM,
    PROJECT_ROOT,
    AccessMode,
    Settings,
    worker_environment,
)

START_LIMIT_S = 120.0
DRAIN_LIMIT_S = 30
POLL_INTERVAL_S = 0.1
EXAMPLE_REQUEST = PROJECT_ROOT / "openapi" / "examples" / "create_plan.request.json"

ACCESS_LINES: dict[AccessMode, str] = {
    "open": f"open: whoever reaches this address acts as team {DEFAULT_TEAM!r} with all scopes",
    "keys": "each request needs an API key; `gpuplan key create` makes one",
}


class LaunchError(Exception):
    """The service cannot be started, or ended by itself; the message says why."""


@dataclass(frozen=True)
class ServeOptions:
    """What `gpuplan serve` is asked for."""

    host: str
    port: int
    worker_count: int
    data_folder: Path | None


@dataclass(frozen=True)
class Databases:
    """The addresses of the database for the two roles; the embedded server, if it is ours."""

    service_url: str
    owner_url: str
    embedded: EmbeddedPostgres | None


def serve(options: ServeOptions, settings: Settings) -> None:
    """Serve until told to stop, then let requests end and stop what was started.

    Raises:
        DatabaseError: the database cannot be started, reached or migrated.
        LaunchError: the port is taken, the catalog is wrong, or a part ended by itself.
    """
    stop = _Stop()
    with contextlib.ExitStack() as stack:
        port = _usable_port(options.host, options.port)
        databases = stack.enter_context(_databases(options.data_folder, settings))
        migrate(databases.owner_url, databases.service_url)
        _publish_catalog(databases.service_url)
        metrics_folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuplan-metrics-"))
        access_mode = settings.access_mode or _default_access_mode(options.host, databases)
        environment = worker_environment(databases.service_url, metrics_folder, access_mode)
        workers = stack.enter_context(_workers(options, port, environment))
        _wait_until_ready(options.host, port, workers, stop)
        if not stop.requested:
            _greet(_address(options.host, port), access_mode)
        _wait_while_well(workers, databases.embedded, stop)


class _Stop:
    """Whether a signal asked to stop. It is looked at between steps and while waiting.

    An exception raised by a signal's handler would be lost where Python runs the handler inside a
    callback that may not raise, and the service would serve on.
    """

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request)

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True


class _Workers:
    """The processes that serve: one that leads, in a process group with those it starts."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.are_ready = False

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process that leads; none while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """Let requests end where any can be under way, then leave no process of the group."""
        if self.are_ready:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * DRAIN_LIMIT_S)
        # A worker that is still starting heeds no request to end, and has nothing to lose.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _usable_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Workers share a port, so none of them notices a taken one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise LaunchError(f"cannot serve on {host} port {port}: {error.strerror}.") from error


@contextlib.contextmanager
def _databases(data_folder: Path | None, settings: Settings) -> Iterator[Databases]:
    if settings.database_url is not None:
        owner_url = settings.migration_url or settings.database_url
        yield Databases(settings.database_url, owner_url, None)
        return
    folder = data_folder or default_data_folder(PROJECT_ROOT)
    with EmbeddedPostgres(folder, programs=settings.pg_bindir) as server:
        yield Databases(server.url(SERVICE_ROLE), server.url(OWNER_ROLE), server)


@contextlib.contextmanager
def owner_url(data_folder: Path | None, settings: Settings) -> Iterator[str]:
    """The address of the database for the role that owns it, reachable within the block.

    An embedded server that serves now is used as it is; else it is started for the block.

    Raises:
        DatabaseError: the database cannot be started or migrated.
    """
    if settings.migration_url is None:
        running = running_url(data_folder or default_data_folder(PROJECT_ROOT), OWNER_ROLE)
        if running is not None:
            yield running
            return
    with _databases(data_folder, settings) as databases:
        if databases.embedded is not None:
            migrate(databases.owner_url, databases.service_url)
        yield databases.owner_url


def _default_access_mode(host: str, databases: Databases) -> AccessMode:
    """Open where nobody but this machine's users reaches a database that is nobody else's."""
    addresses = [found[4][0] for found in socket.getaddrinfo(host, None)]
    is_loopback = all(ipaddress.ip_address(each).is_loopback for each in addresses)
    return "open" if databases.embedded is not None and is_loopback else "keys"


def _publish_catalog(url: str) -> None:
    """Publish the files of the checkout, unless the database has this content already."""
    try:
        publication = publish_folder(url, PROJECT_ROOT / "catalog", now=datetime.now(UTC))
    except InvalidCatalog as error:
        raise LaunchError(f"the catalog is not published:\n{error}") from error
    print(f"gpuplan: {publication}", flush=True)


@contextlib.contextmanager
def _workers(options: ServeOptions, port: int, environment: dict[str, str]) -> Iterator[_Workers]:
    arguments = {
        "interface": "asgi",
        "host": options.host,
        "port": port,
        "workers": options.worker_count,
        "workers-kill-timeout": DRAIN_LIMIT_S,
        "log-level": "warning",
    }
    flags = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    flags.append("--respawn-failed-workers")  # else the end of one worker ends all
    process = subprocess.Popen(
        [sys.executable, "-m", "granian", *flags, "--factory", "service.app:create_app"],
        cwd=PROJECT_ROOT,
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal reaches this process, which passes it on
        preexec_fn=end_with_parent(signal.SIGTERM),  # noqa: PLW1509  it calls only into the kernel
    )
    workers = _Workers(process)
    try:
        yield workers
    finally:
        workers.end()


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _wait_until_ready(host: str, port: int, workers: _Workers, stop: _Stop) -> None:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  not bound here
    deadline = time.monotonic() + START_LIMIT_S
    while not stop.requested and not workers.are_ready:
        if workers.exit_code is not None:
            raise LaunchError(f"the workers did not start (exit code {workers.exit_code}).")
        if time.monotonic() > deadline:
            raise LaunchError(f"the workers were not ready in {START_LIMIT_S:.0f} s.")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(reachable, port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/health/ready", headers={"Host": "localhost"})
                workers.are_ready = connection.getresponse().status == http.HTTPStatus.OK
        time.sleep(POLL_INTERVAL_S)


def _greet(address: str, access_mode: AccessMode) -> None:
    print(f"gpuplan: serving on {address}")
    print(f"gpuplan: {ACCESS_LINES[access_mode]}")
    print(f"gpuplan: documentation at {address}/docs")
    key = "" if access_mode == "open" else "-H 'Authorization: Bearer KEY' "
    print(
        f"gpuplan: try  curl -s {address}/v1/plans {key}-H 'Content-Type: application/json' "
        f"--data-binary @{shlex.quote(str(EXAMPLE_REQUEST))}",
        flush=True,
    )


def _wait_while_well(workers: _Workers, embedded: EmbeddedPostgres | None, stop: _Stop) -> None:
    while not stop.requested:
        if workers.exit_code is not None:
            raise LaunchError(f"the workers ended by themselves (exit code {workers.exit_code}).")
        if embedded is not None and embedded.has_ended:
            raise LaunchError("the database ended by itself; its log is in the data folder.")
        time.sleep(POLL_INTERVAL_S)
