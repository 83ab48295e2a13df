"""The project's own catalog as one snapshot, for planners of money."""

from datetime import date
from pathlib import Path

from service.catalog.resolve import snapshot_from_folder

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
SNAPSHOT = snapshot_from_folder(CATALOG, date(2026, 11, 29))
