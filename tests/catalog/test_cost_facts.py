"""Cost facts: all that were collected are somewhere, and each is used as what it is."""

import re
from datetime import date

import pytest

from service.catalog.files import read_folder
from service.catalog.resolve import snapshot_from_folder
from service.settings import PROJECT_ROOT

CATALOG = PROJECT_ROOT / "catalog"
FOLDER = read_folder(CATALOG)
SNAPSHOT = snapshot_from_folder(CATALOG, date(2026, 11, 29))


def numbers_after(words):
    text = " ".join((CATALOG / "README.md").read_text(encoding="utf-8").split())
    found = re.search(words, text)
    assert found, words
    return [int(each) for each in found.groups()]


def test_every_fact_that_was_collected_is_held_or_left_out_with_a_reason():
    """94 on operating cost and 170 on power and capital were collected."""
    [collected] = numbers_after(r"that were collected: (\d+)\.")
    [in_costs] = numbers_after(r"`costs/` holds (\d+)")
    in_sites, tariffs, grids = numbers_after(
        r"`sites/` holds (\d+) as tariffs \((\d+)\) and grid intensities \((\d+)\)"
    )
    [left_out] = numbers_after(r"left out: (\d+), a remark without a figure")
    assert collected == 94 + 170 == in_costs + in_sites + left_out
    assert in_costs == len(FOLDER.costs)
    assert tariffs == len(FOLDER.sites)
    assert grids == sum(each.entry.carbon is not None for each in FOLDER.sites)
    assert in_sites == tariffs + grids


def test_every_fact_says_where_it_comes_from_and_when_it_was_checked():
    for fact in SNAPSHOT.cost_facts.values():
        assert fact.provenance.sources
        assert fact.provenance.checked == date(2026, 11, 29)


@pytest.mark.parametrize(
    ("key", "low", "typical", "high", "unit", "verified"),
    [
        # (Switches + optics of 1,024 GPUs) / 1,024, from two sources.
        ("network.ndr-fabric-switches-and-optics-per-gpu.2026", 1700, 2300, 4250, "USD/gpu", True),
        # 3, 5 and 8 % of the list price a year, from memory.
        (
            "support.oem-hardware-support-with-parts-next-business.2025",
            0.03,
            0.05,
            0.08,
            "1/year",
            False,
        ),
        # 15, 17.5 and 20 million USD per MW, from one page.
        ("capital.ai-data-centre-construction.us.2026", 15000, 17500, 20000, "USD/kW", False),
        # CoreWeave asks nothing for traffic: a real zero, on its own page.
        ("network.egress-internet.coreweave.2026", None, 0, None, "USD/GB", True),
    ],
)
def test_a_fact_keeps_its_figures_in_the_unit_of_its_name(key, low, typical, high, unit, verified):
    fact = SNAPSHOT.cost_facts[key]
    assert (fact.low, fact.typical, fact.high) == (low, typical, high)
    assert (fact.unit, fact.provenance.verified) == (unit, verified)


def test_a_fact_leads_to_the_assumption_that_rests_on_it():
    """The fabric's 2,300 (1,700 to 4,250) USD a GPU are the assumption's own values."""
    fact = SNAPSHOT.cost_facts["network.ndr-fabric-switches-and-optics-per-gpu.2026"]
    [name] = fact.assumptions
    used = SNAPSHOT.assumptions[name]
    assert (used.low, used.value, used.high) == (fact.low, fact.typical, fact.high)


def test_a_fact_of_a_later_year_is_not_known_before_it():
    before = snapshot_from_folder(CATALOG, date(2025, 12, 31)).cost_facts
    assert {fact.year for fact in before.values()} == {2018, 2020, 2021, 2022, 2023, 2024, 2025}
    assert 2026 in {fact.year for fact in SNAPSHOT.cost_facts.values()}
