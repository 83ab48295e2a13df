"""The Postgres that comes with the package: one server over one data folder, one owner."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from service.db import binaries
from service.db.binaries import Account
from service.db.errors import DatabaseError

OWNER_ROLE = "gpuplan_owner"
SERVICE_ROLE = "gpuplan_service"
SUPERUSER_ROLE = "postgres"
DATABASE_NAME = "gpuplan"

START_LIMIT_S = 120.0  # recovery after a crash replays up to a checkpoint's worth of log
STOP_LIMIT_S = 30.0
POLL_INTERVAL_S = 0.02
SOCKET_NAME = ".s.PGSQL.5432"
ZOMBIE = "Z"
"""State of a process that has ended and that nobody has asked about (proc(5), stat)."""
SOCKET_PATH_LIMIT_BYTES = 107  # sockaddr_un holds 108 with the closing NUL
ROOT_UID = 0
PR_SET_PDEATHSIG = 1
SERVER_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}

VOLATILE_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
}
"""For throw-away servers: nothing survives a crash of the machine."""


def default_data_folder(checkout: Path) -> Path:
    """Where the data of a checkout is kept when nobody says otherwise.

    Beside the code; for root with a checkout that the server's account cannot enter (in root's
    own home), in the system's state folder.
    """
    beside = checkout / ".state" / "postgres"
    account = _server_account(beside)
    if account.is_current or binaries.closed_folder(beside, account) is None:
        return beside
    digest = sha256(os.fsencode(checkout)).hexdigest()[:8]
    return binaries.SYSTEM_STATE / f"{checkout.name}-{digest}"


def _server_account(cluster: Path) -> Account:
    """PostgreSQL refuses to run as root: there, the owner of the data, or `nobody` for new data."""
    if os.geteuid() != ROOT_UID:
        return Account(os.geteuid(), os.getegid())
    if cluster.exists() and cluster.stat().st_uid != ROOT_UID:
        return Account(cluster.stat().st_uid, cluster.stat().st_gid)
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


class EmbeddedPostgres:
    """A PostgreSQL server of this process over a data folder.

    The server listens on a Unix socket only, in a folder closed to other users, and ends with this
    process, however that ends. Start it from the main thread: the kernel ties the server's life to
    the thread that started it.
    """

    def __init__(
        self,
        data_folder: Path,
        *,
        programs: str | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._folder = data_folder.absolute()
        self._cluster = self._folder / "cluster"
        self._log = self._folder / "postgres.log"
        self._settings = settings or {}
        self._account = _server_account(self._cluster)
        # None leaves a process with our own user and groups.
        self._uid = None if self._account.is_current else self._account.uid
        self._gid = None if self._account.is_current else self._account.gid
        self._extra_groups: list[int] | None = None if self._account.is_current else []
        self._programs = binaries.find_programs(programs)
        self._sockets = self._folder / "sockets"
        self._lock: int | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        if self._server is None:
            raise DatabaseError("the embedded server is not running.")
        return self._server.pid

    @property
    def has_ended(self) -> bool:
        """Whether the server is not running (any more)."""
        return self._server is None or self._server.poll() is not None

    def url(self, role: str, database: str = DATABASE_NAME) -> str:
        """The address of a database for a role, in the form that every driver takes."""
        return _socket_url(self._sockets, role, database)

    def start(self) -> None:
        """Start the server, making its data first where there is none, and wait until it is ready.

        Raises:
            DatabaseError: another process owns the data, or the server did not start.
        """
        self._prepare_folder()
        self._lock = _take_lock(self._folder / "lock", self._folder)
        try:
            self._programs = binaries.reachable_programs(self._programs, self._account)
            self._make_cluster()
            self._make_socket_folder()
            self._forget_dead_server()
            self._launch()
            self._make_database()
        except OSError as error:
            self.stop()
            raise DatabaseError(f"cannot start the database in {self._folder}: {error}.") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server without waiting for its clients; does nothing if it is not running."""
        if self._server is not None:
            for signal_number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                if self._server.poll() is None:
                    self._server.send_signal(signal_number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(STOP_LIMIT_S)
                    break
            self._server = None
        if self._sockets.parent != self._folder:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _prepare_folder(self) -> None:
        try:
            binaries.open_folder(self._folder)
        except OSError as error:
            raise DatabaseError(f"cannot make the data folder {self._folder}: {error}.") from error
        closed = binaries.closed_folder(self._folder, self._account)
        if closed is not None:
            name = pwd.getpwuid(self._account.uid).pw_name
            raise DatabaseError(
                f"the database runs as {name!r}, who cannot enter {closed}. Choose a data folder "
                f"outside of it, such as {binaries.SYSTEM_STATE / 'data'}."
            )

    def _make_cluster(self) -> None:
        major = binaries.server_major(self._programs)
        version_file = self._cluster / "PG_VERSION"
        if version_file.exists():
            found = version_file.read_text(encoding="ascii").strip()
            if found != str(major):
                raise DatabaseError(
                    f"{self._cluster} was made by PostgreSQL {found}, the server here is {major}. "
                    f"Dump it with pg_dump of {found}, restore it into a new data folder, or set "
                    f"PG_BINDIR to the programs of {found}."
                )
            return
        # Made under another name first: an interrupted initdb must not be taken for a cluster.
        unfinished = self._folder / "cluster.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._make_own_folder(unfinished)
        locale = ["--locale=C.UTF-8"]
        if major >= 17:
            locale.append("--locale-provider=builtin")  # sorts alike on every system
        made = subprocess.run(
            [
                *(self._programs / "initdb", "--pgdata", unfinished, "--username", SUPERUSER_ROLE),
                *("--encoding=UTF8", "--data-checksums", *locale),
                *("--auth-local=trust", "--auth-host=scram-sha-256"),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=SERVER_ENVIRONMENT,
            user=self._uid,
            group=self._gid,
            extra_groups=self._extra_groups,
        )
        if made.returncode != 0:
            raise DatabaseError(f"initdb failed: {made.stderr.strip()}")
        unfinished.rename(self._cluster)

    def _make_socket_folder(self) -> None:
        self._sockets = self._folder / "sockets"
        if len(os.fsencode(self._sockets / SOCKET_NAME)) > SOCKET_PATH_LIMIT_BYTES:
            self._sockets = Path(tempfile.mkdtemp(prefix="gpuplan-"))
        self._make_own_folder(self._sockets)

    def _forget_dead_server(self) -> None:
        """Remove the pid files of a server that ended and whose parent has not taken notice yet.

        PostgreSQL takes such a zombie for a live server and refuses to start. The lock of the data
        is ours, and every process of a server of ours held it: none of them runs any more.
        """
        for file in (self._cluster / "postmaster.pid", self._sockets / f"{SOCKET_NAME}.lock"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
                pid = file.read_text(encoding="utf-8").split()[0]
                status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
                if status.rpartition(")")[2].split()[0] == ZOMBIE:
                    file.unlink()

    def _make_own_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not self._account.is_current:
            os.chown(folder, self._account.uid, self._account.gid)

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "timezone": "UTC",
            "log_timezone": "UTC",
            # In the data folder: a server that is killed leaves nothing in the system's own memory.
            "dynamic_shared_memory_type": "mmap",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        lock = self._lock
        assert lock is not None  # noqa: S101  start() took it
        self._log.touch(mode=0o600)  # errors in it may quote data
        with self._log.open("ab") as log:
            # postgres itself, not pg_ctl: a dead child is reaped at once, while a zombie left to
            # process 1 would pass for a live server and keep the next one from starting.
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._cluster, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C in the terminal must reach the service alone.
                start_new_session=True,
                pass_fds=(lock,),  # the data stays locked until the last server process has ended
                preexec_fn=end_with_parent(signal.SIGINT),  # noqa: PLW1509  it calls only into the kernel
                cwd="/",
                env=SERVER_ENVIRONMENT,
                user=self._uid,
                group=self._gid,
                extra_groups=self._extra_groups,
            )
        self._wait_until_ready(self._server)

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        pid_file = self._cluster / "postmaster.pid"
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if server.poll() is not None:
                raise DatabaseError(f"the database did not start: {self._log_tail()}")
            with contextlib.suppress(FileNotFoundError):
                lines = pid_file.read_text(encoding="utf-8").splitlines()
                # A file left by a crash also says ready, but names another process.
                if len(lines) >= 8 and lines[0] == str(server.pid) and lines[7].strip() == "ready":
                    return
            time.sleep(POLL_INTERVAL_S)
        raise DatabaseError(
            f"the database was not ready in {START_LIMIT_S:.0f} s: {self._log_tail()}"
        )

    def _log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-5:]) + f" (whole log: {self._log})"

    def _make_database(self) -> None:
        with psycopg.connect(self.url(SUPERUSER_ROLE, "postgres"), autocommit=True) as connection:
            roles = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
            for role in (OWNER_ROLE, SERVICE_ROLE):
                if role not in roles:
                    connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            databases = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
            if DATABASE_NAME not in databases:
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(
                        sql.Identifier(DATABASE_NAME), sql.Identifier(OWNER_ROLE)
                    )
                )


def _socket_url(sockets: Path, role: str, database: str) -> str:
    return f"postgresql://{role}@/{database}?host={quote(str(sockets), safe='')}&port=5432"


def running_url(data_folder: Path, role: str) -> str | None:
    """The address of the server that another process runs over a data folder; None without one."""
    pid_file = data_folder.absolute() / "cluster" / "postmaster.pid"
    try:
        lines = pid_file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    # The first folder of sockets stands in line 5. A file left by a crash names no live process.
    if len(lines) < 8 or lines[7].strip() != "ready" or not _is_alive(lines[0]):
        return None
    return _socket_url(Path(lines[4]), role, DATABASE_NAME)


def _take_lock(path: Path, folder: Path) -> int:
    """Lock the data folder; wait only while the server of an owner that has left is stopping."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + STOP_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace")
            if _is_alive(owner) or time.monotonic() > deadline:
                os.close(descriptor)
                raise DatabaseError(
                    f"the data folder {folder} is in use by process {owner or 'unknown'}. "
                    "Stop that one, or choose another data folder."
                ) from None
            time.sleep(POLL_INTERVAL_S)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _is_alive(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_with_parent(signal_number: int) -> Callable[[], None] | None:
    """What a started process runs first: ask for a signal when this process ends by any means."""
    if sys.platform != "linux":
        return None
    parent_pid = os.getpid()
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork, where loading is not safe

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent_pid:  # it ended before the request
            os._exit(1)

    return prepare
