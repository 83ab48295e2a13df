import re
from datetime import date
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from service.catalog.resolve import snapshot_from_folder
from service.exports.dns_names import dns_label, dns_labels
from service.exports.kubernetes import PRODUCTS

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@given(st.lists(st.text(min_size=1, max_size=200), max_size=30), st.sampled_from(["", "gpuplan-"]))
@example(["a.b", f"{dns_label('a.b')}"], "")
@example(["-", "--", "\ud800"], "")
def test_labels_are_legal_and_as_many_as_the_texts(texts, prefix):
    labels = dns_labels(texts, prefix=prefix)
    assert labels.keys() == set(texts)
    assert all(LABEL.fullmatch(label) for label in labels.values())
    assert all(label.startswith(prefix) for label in labels.values())
    assert len(set(labels.values())) == len(labels)


@given(st.from_regex(LABEL, fullmatch=True))
def test_what_is_a_label_stays_as_it_is(text):
    assert dns_labels([text, text.upper()])[text] == text


def test_labels_of_products_are_names_of_the_parts_in_the_catalog():
    """Feature discovery writes the driver's name with dashes; the catalog knows it as an alias."""
    catalog = Path(__file__).resolve().parents[2] / "catalog"
    snapshot = snapshot_from_folder(catalog, date(2026, 11, 29))
    assert {snapshot.key_of("gpu", label): key for key, label in PRODUCTS.items()} == {
        key: key for key in PRODUCTS
    }
