"""Commitments, spot, leases and what is owned already, by hand."""

from decimal import Decimal

import numpy as np
import pytest
from pydantic import ValidationError

from service.core.costs.commitment import Commitments
from service.core.costs.terms import CommitmentMix, Rental, ResolvedProcurement
from service.core.planners.ownership import price_fleet
from service.core.pricing import UnitPrice, total
from service.core.recorder import Recorder
from service.core.scenarios.procurement import ProcurementRule
from tests.core.money.money_catalog import SNAPSHOT
from tests.core.planners.test_ownership import H100, hours, owned, pool_size, scenario

YEAR_HOURS = 8760
KEY = ("serving", "h100")


def rental(price, commitment="on_demand", **facts):
    return Rental("aws", "us-east-1", commitment, UnitPrice(Decimal(price), "list"), **facts)


def mix(committed="4", rest="7", count=None, *, multiple=1, upfront=False):
    terms = rental(committed, "committed_1yr")
    return CommitmentMix(terms, rental(rest), count, multiple, upfront)


def priced_lines(terms, uses, *, load=(), month_count=1, pool="serving"):
    found = ResolvedProcurement(pool, H100, 1, terms, None)
    return price_fleet(
        uses,
        procurement={(pool, "h100"): found},
        pools=[pool_size(pool, 64)],
        scenario=scenario(month_count=month_count),
        recorder=Recorder(SNAPSHOT),
        loads={(pool, "h100"): np.array(load)},
    )


def summed(lines, **wanted):
    chosen = [one for one in lines if all(getattr(one, k) == v for k, v in wanted.items())]
    return total(one.amount for one in chosen), total(one.cash_amount for one in chosen)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        ("4.24", 10),  # level 1 - 4.24 / 6.88 = 0.384: below a half, where the load is 10
        ("3.00", 30),  # level 0.564: above a half, where it is 30
        ("6.88", 0),  # no cheaper than on demand: nothing is worth committing
        ("7.50", 0),
    ],
)
def test_what_is_held_often_enough_is_committed(committed, expected):
    load = np.array([10, 30] * (744 // 2))
    terms = mix(committed=committed, rest="6.88")
    assert Commitments.of(terms, load, ["2027-01"]).gpu_count == expected


def test_whole_instances_are_committed():
    """Of a steady 30 GPUs three instances of 8 are 24, and the other 6 are not worth a fourth."""
    terms = mix(multiple=8)
    assert Commitments.of(terms, np.full(744, 30), ["2027-01"]).gpu_count == 24


def test_a_commitment_of_that_quantile_is_the_cheapest():
    """Every other number of GPUs costs more over the load, tried one by one."""
    load = np.array([3, 3, 5, 8, 8, 8, 12, 20] * 93)  # 744 hours

    def cost(count):
        beyond = np.maximum(load - count, 0).sum()
        return 4 * count * load.size + 7 * beyond

    chosen = Commitments.of(mix(), load, ["2027-01"]).gpu_count
    assert cost(chosen) == min(cost(count) for count in range(25))


def test_a_commitment_covers_first_and_the_rest_is_on_demand():
    """24 GPUs for 372 hours, then 8; 16 are committed at 4, the rest costs 7.

    billed     24 x 372 + 8 x 372 = 11,904 GPU-hours
    covered    16 x 372 + 8 x 372 =  8,928 at 4 = 35,712
    unused     16 x 744 - 8,928   =  2,976 at 4 = 11,904
    beyond      8 x 372           =  2,976 at 7 = 20,832
    """
    load = [24] * 372 + [8] * 372
    uses = [hours("2027-01", 8_000), hours("2027-01", 3_904, use="idle")]
    lines = priced_lines(mix(count=16), uses, load=load)
    committed = {"purchase_kind": "committed_1yr"}
    assert summed(lines, **committed, use="used")[0] == Decimal("24000.00")  # 8,000 x 0.75 x 4
    assert summed(lines, **committed, use="idle")[0] == Decimal("11712.00")  # 3,904 x 0.75 x 4
    assert summed(lines, use="unused_commitment")[0] == Decimal("11904.00")
    assert summed(lines, purchase_kind="on_demand")[0] == Decimal("20832.00")
    assert summed(lines)[0] == summed(lines)[1] == Decimal("68448.00")
    (unused,) = [one for one in lines if one.use == "unused_commitment"]
    assert (unused.workload, unused.quantity, unused.gpu_count) == (None, Decimal(2976), 16)


def test_a_commitment_paid_upfront_and_never_used():
    """40.30 an hour for a year: 40.30 x 8,760 = 353,028.00 is paid on the first day.

    All of it comes up as unused, month by month: January 40.30 x 744 = 29,983.20.
    """
    terms = mix(committed="40.30", count=1, upfront=True)
    lines = priced_lines(terms, [], load=[0] * YEAR_HOURS, month_count=12)
    assert {one.use for one in lines} == {"unused_commitment"}
    assert [one.month for one in lines] == [f"2027-{month:02}" for month in range(1, 13)]
    assert summed(lines) == (Decimal("353028.00"), Decimal("353028.00"))
    assert (lines[0].amount, lines[0].cash_amount) == (Decimal("29983.20"), Decimal("353028.00"))
    assert {one.cash_amount for one in lines[1:]} == {Decimal("0.00")}


def test_upfront_cash_is_for_the_whole_term_whatever_the_horizon():
    """A year is paid though one month is planned: 8,760 x 4 against 744 x 4 of cost."""
    lines = priced_lines(mix(count=1, upfront=True), [hours("2027-01", 744)], load=[1] * 744)
    assert summed(lines) == (Decimal("2976.00"), Decimal("35040.00"))


def test_spot_pays_for_the_work_that_is_done_again():
    """5 % of 1,000 GPU-hours at 2.50: 50 hours, 125.00 beside 2,500.00; serving does none again."""
    spot = rental("2.50", "spot", redo_fraction=0.05)
    work = [hours("2027-01", 1000, pool="training", workload="run")]
    lines = priced_lines(spot, work, pool="training")
    assert [(one.use, one.quantity, one.amount) for one in lines] == [
        ("used", Decimal(1000), Decimal("2500.00")),
        ("redo", Decimal(50), Decimal("125.00")),
    ]
    assert [one.use for one in priced_lines(spot, [hours("2027-01", 1000)])] == ["used"]


def test_what_is_owned_already_is_sunk():
    """Depreciation as ever, 30,000 x 0.9 / 48 = 562.50 a GPU; nothing is paid for it."""
    before, after = (
        priced_lines(owned(is_owned_already=flag), [hours("2027-01", 64 * 744)])
        for flag in (False, True)
    )
    assert summed(before, category="hardware") == (Decimal("36000.00"), Decimal("1920000.00"))
    assert summed(after, category="hardware") == (Decimal("36000.00"), Decimal("0.00"))
    assert summed(before, category="power") == summed(after, category="power")


def test_a_lease_takes_the_place_of_the_purchase():
    """64 GPUs at 900.00 a month are 57,600.00, in cash as in cost."""
    none = UnitPrice(Decimal(0), "leased")
    leased = owned(purchase=none, lease_gpu_month=UnitPrice(Decimal(900), "given"))
    lines = priced_lines(leased, [hours("2027-01", 64 * 744)])
    assert summed(lines, category="hardware") == (Decimal("57600.00"), Decimal("57600.00"))


def test_a_mix_names_two_ways_of_renting():
    committed = {"kind": "rent", "commitment": "committed_1yr", "price_per_gpu_hour": "4"}
    method = {"kind": "mix", "committed": committed, "rest": {"kind": "rent"}}
    assert ProcurementRule.model_validate({"method": method}).method.committed_gpu_count is None
    with pytest.raises(ValidationError, match="rest"):
        ProcurementRule.model_validate({"method": {"kind": "mix", "committed": committed}})
