"""Cells as text, text made harmless, and files that an independent reader reads back."""

import csv
import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.exports.table import (
    BYTE_ORDER_MARK,
    Column,
    CsvForm,
    cell_text,
    constants,
    csv_bytes,
    csv_stream,
    fields,
    guard,
    number_text,
)

SELF = (Column("cell", lambda row: row),)
# Characters that a spreadsheet takes for the start of a formula, and their full-width forms.
FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"]  # noqa: RUF001

# Space, no-break space, ideographic space, line separator, byte-order mark, soft hyphen, zero-width
# space, joiner, right-to-left override, vertical tab.
UNSEEN = [" ", "\xa0", "\u3000", "\u2028", "\ufeff", "\xad", "\u200b", "\u200d", "\u202e", "\v"]


def read(content):
    """Rows as Python's own reader sees them: RFC 4180 with its defaults."""
    return list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))


def unguarded(text):
    """What an import does: takes away the one apostrophe that was added."""
    return text[1:] if text.startswith("'") and guard(text[1:]) == text else text


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (0.1 + 0.2, "0.3"),  # binary: 0.30000000000000004
        (-0.02, "-0.02"),
        (22.5, "22.5"),
        (744.0, "744"),
        (-0.0, "0"),
        (0.0, "0"),
        (8.4664e23, "846640000000000000000000"),
        (1.1289e12, "1128900000000"),
        (1.5e-7, "0.00000015"),
        (1158607.252881, "1158607.252881"),
        (1 / 3, "0.333333333333333"),  # 15 digits
        (9007199254740993, "9007199254740993"),  # whole numbers keep every digit
        (Decimal("-12.50"), "-12.50"),
        (Decimal("7971217.90"), "7971217.90"),
        (Decimal("3.80928E+5"), "380928"),
        (Decimal("0.00000080000"), "0.00000080000"),
        (True, "true"),
        (False, "false"),
        (None, ""),
        (date(2026, 11, 29), "2026-11-29"),
        (datetime(2027, 1, 1, tzinfo=UTC), "2027-01-01T00:00:00Z"),
        (datetime(2027, 1, 1, 9, tzinfo=timezone(timedelta(hours=9))), "2027-01-01T00:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("plain", "plain"),
    ],
)
def test_a_cell_is_written_plainly(cell, text):
    assert cell_text(cell) == text


@given(st.floats(-1e300, 1e300))
def test_a_float_has_no_exponent_and_keeps_fifteen_digits(number):
    text = number_text(number)
    assert set(text) <= set("-0123456789.")
    assert float(text) == pytest.approx(number, rel=1e-14, abs=0)


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_text_that_starts_like_a_formula_gets_an_apostrophe(start):
    assert guard(f"{start}1+1") == f"'{start}1+1"


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝"])  # noqa: RUF001
def test_a_formula_behind_what_is_not_seen_gets_an_apostrophe(unseen, start):
    """Spreadsheets trim spaces and marks from a cell before they read it."""
    for text in (f"{unseen}{start}1+1", f"{unseen} {unseen}{start}1+1", f"'{unseen}{start}1+1"):
        assert guard(text) == f"'{text}"


@pytest.mark.parametrize(
    ("number", "text"), [(-0.02, "-0.02"), (Decimal("-1250.00"), "-1250.00"), (-3, "-3")]
)
def test_a_negative_number_stays_a_number(number, text):
    assert read(csv_bytes(SELF, [number])) == [["cell"], [text]]


@pytest.mark.parametrize("text", ["1+1", "a=b", "'quoted'", "", "–5", "№ 1", " 1+1", "\ufeff1"])
def test_harmless_text_stays_as_it_is(text):
    assert guard(text) == text


@given(st.text() | st.text("'=+-@\t\r\n＝x \ufeff\u200b", max_size=6))  # noqa: RUF001
def test_guarding_can_be_taken_back_and_leaves_no_formula(text):
    guarded = guard(text)
    assert unguarded(guarded) == text
    assert not guarded.lstrip("".join(UNSEEN)).startswith(tuple(FORMULA_STARTS))


HOSTILE_NAMES = [
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "\tleading tab",
    'a "quote", a comma; and\na line\r\nand another\rend',
    "\u202egnp.txt",  # right-to-left override
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467",  # joined by zero-width joiners
    "Café",
    "Cafe\u0301",  # the same after NFC, kept apart
    " leading and trailing ",
    "'",
    "'=1",
    "x" * 10_000,
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_comes_back_as_it_was(name):
    header, row = read(csv_bytes(SELF, [name]))
    assert header == ["cell"]
    assert [unguarded(cell) for cell in row] == [name]


def test_lines_end_in_cr_lf_and_only_cells_that_need_it_are_quoted():
    columns = (Column("a", lambda row: row[0]), Column("b", lambda row: row[1]))
    content = csv_bytes(columns, [("x", 1), ('say "x"', None), ("1,5", 2.5)])
    assert content == b'a,b\r\nx,1\r\n"say ""x""",\r\n"1,5",2.5\r\n'


def test_text_is_utf_8_with_a_byte_order_mark_on_request_alone():
    assert csv_bytes(SELF, ["ü€"]).decode("utf-8") == "cell\r\nü€\r\n"
    marked = csv_bytes(SELF, ["ü€"], form=CsvForm(byte_order_mark=True))
    assert marked == BYTE_ORDER_MARK + csv_bytes(SELF, ["ü€"])
    assert marked.decode("utf-8-sig") == "cell\r\nü€\r\n"


def test_a_cell_of_an_unforeseen_type_is_an_error():
    with pytest.raises(TypeError, match="bytes"):
        cell_text(b"bytes")


def test_a_subclass_is_written_as_its_base():
    class DriversId(UUID):
        pass

    assert cell_text(DriversId(int=1)) == "00000000-0000-0000-0000-000000000001"
    assert cell_text(np.float64(0.1) + np.float64(0.2)) == "0.3"


def test_fields_and_constants_name_their_columns():
    columns = (*fields("real", "imag"), *constants(unit="V"))
    assert csv_bytes(columns, [1 + 2j]) == b"real,imag,unit\r\n1,2,V\r\n"


async def batches(*groups):
    for group in groups:
        yield group


@pytest.mark.parametrize("form", [CsvForm(), CsvForm(byte_order_mark=True, decimal_comma=True)])
async def test_a_stream_gives_the_same_bytes_as_the_whole(form):
    rows = batches(["a", "=b"], [], [1.5])
    chunks = [chunk async for chunk in csv_stream(SELF, rows, form=form)]
    whole = b"".join(chunks)
    assert whole == csv_bytes(SELF, ["a", "=b", 1.5], form=form)
    # At most one mark, and none before a later batch (azure-sdk-for-net#34129).
    assert whole.count(BYTE_ORDER_MARK) == form.byte_order_mark
    assert whole.startswith(BYTE_ORDER_MARK) == form.byte_order_mark


def test_the_other_form_has_semicolons_and_decimal_commas_in_numbers_alone():
    columns = (Column("a", lambda row: row[0]), Column("b", lambda row: row[1]))
    rows = [("1.5", 1.5), ("x;y", Decimal("-12.50")), ("a,b", 744)]
    content = csv_bytes(columns, rows, form=CsvForm(decimal_comma=True))
    assert content == b'a;b\r\n1.5;1,5\r\n"x;y";-12,50\r\na,b;744\r\n'


def test_an_unknown_value_is_spelled_as_the_form_says():
    assert csv_bytes(SELF, [None], form=CsvForm(null="NULL")) == b"cell\r\nNULL\r\n"


async def test_a_stream_of_nothing_is_a_header():
    assert [chunk async for chunk in csv_stream(SELF, batches())] == [b"cell\r\n"]
