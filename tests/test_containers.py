"""The container files are sound, and give the process that serves no more than it needs."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from tests.image_steps import build

CHECKOUT = Path(__file__).resolve().parent.parent
HADOLINT = Path(sys.executable).with_name("hadolint")
SERVICES = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["services"]


COMPOSE = shutil.which("docker-compose")
PASSWORDS = {"GPUPLAN_OWNER_PASSWORD": "owner", "GPUPLAN_SERVICE_PASSWORD": "service"}
READY_LIMIT_S = 50


@pytest.mark.skipif(not HADOLINT.exists(), reason="the extra `lint` is not installed")
def test_the_image_file_passes_its_linter():
    checked = subprocess.run(
        [HADOLINT, CHECKOUT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_image_runs_as_a_numeric_user_that_is_not_root():
    users = re.findall(r"^USER (\d+):(\d+)$", (CHECKOUT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(users) == 1
    assert "0" not in users[0]


def test_the_service_knows_the_restricted_role_alone():
    environment = SERVICES["service"]["environment"]
    assert list(environment) == ["DATABASE_URL"]
    assert environment["DATABASE_URL"].startswith("postgresql://gpuplan_service:")


def test_migration_runs_once_between_database_and_service():
    assert SERVICES["migrate"]["command"] == ["migrate"]
    assert SERVICES["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    completed = {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["service"]["depends_on"] == completed


def test_only_this_machine_reaches_the_published_port():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def compose(folder, text, environment):
    (folder / "docker-compose.yml").write_text(text, encoding="utf-8")
    return subprocess.run(
        [COMPOSE, "config"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(COMPOSE is None, reason="Debian's docker-compose is not installed")
def test_compose_takes_its_file_and_refuses_a_slip_of_the_pen_in_it(tmp_path):
    text = (CHECKOUT / "docker-compose.yml").read_text(encoding="utf-8")
    taken = compose(tmp_path, text, PASSWORDS)
    assert taken.returncode == 0, taken.stderr
    assert set(yaml.safe_load(taken.stdout)["services"]) == {"database", "migrate", "service"}
    assert compose(tmp_path, text.replace("depends_on", "depend_on"), PASSWORDS).returncode != 0
    asked = compose(tmp_path, text, {})
    assert asked.returncode != 0
    assert "set a password" in asked.stderr


@pytest.fixture
def empty_database(server):
    with server.clone(template="template0") as database:
        yield database


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answer_of(url, process):
    until = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(URLError, ConnectionError), urlopen(url, timeout=5) as response:
            return response.status
        time.sleep(0.1)
    return None


def test_the_steps_of_the_image_make_what_its_services_need(tmp_path, empty_database):
    """As the compose file orders it: migrate once with the owner's role, then serve."""
    image = build(tmp_path, borrow=True)
    serving = {**image.environment, "DATABASE_URL": empty_database.service_url}
    migrating = {**serving, "DATABASE_MIGRATION_URL": empty_database.owner_url}
    command = image.command(*SERVICES["migrate"]["command"])
    subprocess.run(command, cwd=image.folder, env=migrating, check=True, timeout=READY_LIMIT_S)
    where = [sys.executable, "-c", "import service; print(service.__file__)"]
    where[0] = str(tmp_path / "python" / "bin" / "python")
    found = subprocess.run(where, cwd=tmp_path, env=serving, capture_output=True, check=True)
    assert found.stdout.decode().startswith(str(image.folder))  # not the checkout's

    port = str(free_port())
    command = [port if each == "8000" else each for each in image.command()]
    assert "0.0.0.0" in command
    process = subprocess.Popen(command, cwd=image.folder, env=serving)
    try:
        assert answer_of(f"http://127.0.0.1:{port}/health/ready", process) == 200
        asked = [each.replace(":8000/", f":{port}/") for each in image.health_command]
        subprocess.run(asked, env=serving, check=True, timeout=READY_LIMIT_S)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=READY_LIMIT_S) == 0
