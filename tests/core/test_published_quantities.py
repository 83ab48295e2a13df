"""Published names of quantities: comparisons and spreadsheets of clients rely on them.

A name in `published_quantities.txt` never changes its unit or what it belongs to, and never goes.
A new one is added to that file in the commit that publishes it.
"""

import importlib
import pkgutil
from pathlib import Path

import service.core
from service.core.registry import all_definitions

PUBLISHED = Path(__file__).parent / "published_quantities.txt"


def registered():
    for found in pkgutil.walk_packages(service.core.__path__, "service.core."):
        importlib.import_module(found.name)
    return [f"{each.name} [{each.unit}] per {each.per}" for each in all_definitions()]


def test_published_quantities_are_the_registered_ones():
    published = PUBLISHED.read_text(encoding="utf-8").splitlines()
    assert sorted(published) == published
    assert registered() == published


def test_every_quantity_says_how_to_recompute_it():
    registered()
    assert [each.name for each in all_definitions() if not each.formula.strip()] == []
