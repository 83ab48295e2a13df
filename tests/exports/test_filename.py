"""Names of downloads: whole in `filename*`, harmless everywhere."""

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.exports.filename import content_disposition

SHAPE = re.compile(r"attachment; filename=\"([ -~]+)\"; filename\*=UTF-8''([!-~]+)")


def names(header):
    """The ASCII name and the full one, as a client reads them."""
    shadow, encoded = SHAPE.fullmatch(header).groups()
    return shadow, unquote(encoded)


@pytest.mark.parametrize(
    ("name", "shadow", "full"),
    [
        ("2027 base case", "2027 base case-lines.csv", "2027 base case-lines.csv"),
        ("Zürich", "Zurich-lines.csv", "Zürich-lines.csv"),
        ("計画", "plan-lines.csv", "計画-lines.csv"),
        ("../../etc/passwd", "_.._etc_passwd-lines.csv", "_.._etc_passwd-lines.csv"),
        ('a"b\\c', "a_b_c-lines.csv", "a_b_c-lines.csv"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie_ x-lines.csv", "aSet-Cookie_ x-lines.csv"),
        ("\u202egnp", "gnp-lines.csv", "gnp-lines.csv"),
        ("..", "plan-lines.csv", "plan-lines.csv"),
        ("\t", "plan-lines.csv", "plan-lines.csv"),
        ("50%41", "50_41-lines.csv", "50_41-lines.csv"),
    ],
)
def test_a_download_is_named_after_the_plan(name, shadow, full):
    assert names(content_disposition(name, "lines")) == (shadow, full)


@given(st.text(min_size=1, max_size=200))
def test_any_name_makes_one_safe_header(name):
    shadow, full = names(content_disposition(name, "lines"))
    for offered in (shadow, full):
        assert offered.endswith("-lines.csv")
        assert not set(offered) & set('<>:"/\\|?*%\r\n\t\x00')
        assert not offered.startswith(".")
        assert len(offered.encode()) <= 255
