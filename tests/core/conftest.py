"""The catalog of the repository as one snapshot, for whatever plans with it."""

from datetime import date
from pathlib import Path

import pytest

from service.catalog.resolve import snapshot_from_folder

CATALOG = Path(__file__).resolve().parents[2] / "catalog"


@pytest.fixture(scope="session")
def snapshot():
    """The catalog as it stands on one day; nothing may change it."""
    return snapshot_from_folder(CATALOG, date(2026, 11, 29))
