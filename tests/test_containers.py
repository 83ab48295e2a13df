"""The container files are sound, and give the process that serves no more than it needs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parent.parent
HADOLINT = Path(sys.executable).with_name("hadolint")
SERVICES = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["services"]


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
