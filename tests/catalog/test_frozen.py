"""Entries as they were stored by earlier versions are read for ever.

A release never changes, so a core type may gain a field with a default, and nothing else. When a
stored form has to change its meaning, freeze a second file beside the first and teach the reader.
"""

import json
from pathlib import Path

import pytest

from service.catalog.content import KINDS, from_document, to_document

STORED = json.loads((Path(__file__).parent / "frozen" / "entries_1.json").read_text("utf-8"))


def is_kept(stored, read):
    """True when everything that was stored is read again; new fields may stand beside it."""
    if isinstance(stored, dict):
        return all(name in read and is_kept(value, read[name]) for name, value in stored.items())
    if isinstance(stored, list):
        return len(stored) == len(read) and all(map(is_kept, stored, read))
    return stored == read


def test_every_kind_is_frozen():
    assert set(STORED) == set(KINDS)
    assert all(STORED.values())


@pytest.mark.parametrize("kind", STORED)
def test_what_was_stored_is_read_again(kind):
    for document in STORED[kind]:
        assert is_kept(document, to_document(from_document(kind, document)))
