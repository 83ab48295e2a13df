"""What a refusal of an amount or a date names is had when it is asked for, on the GPUs named."""

import re
from datetime import date

import pytest

from tests.core.training_questions import a_run
from tests.core.training_runs import given, on

RUN = {"start_date": "2027-01-01", "training_tokens": 270_370_539_475}
MEASURED = {"architecture": None, "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000}}


def sized(amount=None, finish_date=None, *, price="2.50", **fields):
    kind = "finish_by" if amount is None else "budget"
    named = {"amount": amount, "finish_date": finish_date}
    sizing = {"kind": kind} | {name: value for name, value in named.items() if value is not None}
    return a_run(question={"price_per_gpu_hour": price}, **(RUN | fields | {"sizing": sizing}))


def changes(fix):
    """The changes of a fix, each with the GPUs that it names."""
    for text in fix.split(" or "):
        found = re.findall(r"(amount|finish_date|training_tokens) ([\d,-]+)", text)
        assert found, text
        count = re.search(r"on (\d+) GPUs", text)
        yield dict(found), count and int(count.group(1))


def applied(change, amount, finish_date, fields):
    tokens = change.get("training_tokens")
    more = {} if tokens is None else {"training_tokens": int(tokens.replace(",", ""))}
    amount = change.get("amount", amount)
    return sized(amount, change.get("finish_date", finish_date), **(fields | more)), amount


def test_a_date_and_an_amount_are_both_met_where_some_count_meets_them():
    # 40 GPUs are the fewest that end by then, and cost more than some that end sooner.
    found = sized("20000", "2027-01-10")
    assert found.feasible
    assert float(found.amount_in_whole_nodes) <= 20_000
    assert found.finish_date <= date(2027, 1, 10)


@pytest.mark.parametrize("fields", [{}, MEASURED])
@pytest.mark.parametrize(
    ("amount", "finish_date", "tokens"),
    [
        ("19000", "2027-01-10", 270_370_539_475),
        ("15000", None, 270_370_539_475),
        ("19840", "2027-01-06", 270_370_539_475),
        ("19000", "2027-01-01", 270_370_539_475),
        ("100", "2027-01-02", 10**13),
        ("100", "2027-03-01", 10**11),
        ("100", None, 10**11),
        ("0.05", None, 10**9),
        ("0.05", "2027-01-01", 10**15),
        ("100000", "2026-12-31", 10**11),
        (None, "2027-01-01", 10**14),
        (None, "2026-12-31", 10**11),
    ],
)
def test_every_fix_works_when_it_is_applied(fields, amount, finish_date, tokens):
    fields = fields | {"training_tokens": tokens}
    refused = sized(amount, finish_date, **fields)
    [reason] = refused.infeasibilities
    for change, gpu_count in changes(reason.nearest_fix):
        found, most = applied(change, amount, finish_date, fields)
        assert found.feasible, (change, found.infeasibilities)
        assert gpu_count in (None, found.gpu_count)
        if most is not None:
            assert float(found.amount_in_whole_nodes) <= float(most)
        if "finish_date" in change:
            assert change["finish_date"] > finish_date


def test_an_amount_that_no_request_can_give_is_not_named():
    # 9e15 tokens at 1,000 a second and GPU are 2.5e9 GPU-hours: 2.5e14 at 100,000 each.
    refused = sized("1000000000", price="100000", **MEASURED | {"training_tokens": 9 * 10**15})
    [reason] = refused.infeasibilities
    assert reason.needed > 2.5e14
    assert "amount" not in reason.nearest_fix
    assert "training_tokens" in reason.nearest_fix


def test_a_date_that_no_request_can_give_is_not_named():
    # At 1 token a second and GPU 9e15 tokens are 2.5e12 GPU-hours: 280 years on a million GPUs.
    slow = {"architecture": None, "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1}}
    refused = sized(None, "2027-12-31", **slow | {"training_tokens": 9 * 10**15})
    [reason] = refused.infeasibilities
    assert "finish_date" not in reason.nearest_fix
    assert re.fullmatch(r"training_tokens [\d,]+ by 2027-12-31", reason.nearest_fix)


def test_less_than_a_step_is_no_number_of_tokens_to_name():
    # One step of 4,194,304 tokens takes 4,194 GPU-seconds at 1,000 a second: 2.91 at 2.50 an hour.
    refused = sized("2.50", **MEASURED | {"training_tokens": 10**9})
    assert "training_tokens" not in refused.infeasibilities[0].nearest_fix


def test_another_batch_is_named_with_the_gpus_on_which_the_layout_takes_it():
    # Copies of 8 GPUs take 3 sequences at a time: 512 sequences are no whole number of threes.
    layout = given(tensor_parallel=8, micro_batch_sequences=3)
    refused = sized(None, "2027-03-31", layout=layout)
    fix = refused.infeasibilities[0].nearest_fix.split("; or ")[0]
    batch, count = re.fullmatch(
        r"global_batch_tokens ([\d,]+) \(\d+ sequences\) on (\d+) GPUs", fix
    ).groups()
    tokens = int(batch.replace(",", ""))
    found = a_run(layout=layout, global_batch_tokens=tokens, sizing=on(int(count)))
    assert found.feasible


def test_the_limit_alone_that_one_step_breaks_is_named_with_its_number():
    """64 GPUs at 2.50 USD: an amount of 1 USD pays 22.5 s, and the date is not the reason."""
    sizing = {"kind": "tokens", "gpu_count": 64, "amount": "1", "finish_date": "2027-12-31"}
    fields = {"start_date": "2027-01-01", "global_batch_tokens": 2**27}
    (refused,) = a_run(
        question={"price_per_gpu_hour": "2.50"}, training_tokens=None, sizing=sizing, **fields
    ).infeasibilities
    amount = refused.nearest_fix.split("amount ")[1].split(":")[0]
    assert "finish_date" not in refused.nearest_fix
    wider = sizing | {"amount": amount}
    assert a_run(
        question={"price_per_gpu_hour": "2.50"}, training_tokens=None, sizing=wider, **fields
    ).feasible


def test_a_date_before_the_start_names_the_day_after_one_step():
    sizing = {"kind": "tokens", "gpu_count": 64, "finish_date": "2026-06-30"}
    fields = {"start_date": "2027-01-01"}
    (refused,) = a_run(training_tokens=None, sizing=sizing, **fields).infeasibilities
    day = refused.nearest_fix.split("finish_date ")[1].split(":")[0]
    assert a_run(training_tokens=None, sizing=sizing | {"finish_date": day}, **fields).feasible


def test_the_last_day_of_all_leaves_room_for_tokens():
    """No run may end after 2100-12-31 begins, whatever day is named for it."""
    sizing = {"kind": "tokens", "gpu_count": 16, "finish_date": "2100-12-31"}
    speed = {"kind": "mfu", "mfu_fraction": 0.001}
    found = a_run(training_tokens=None, sizing=sizing, speed=speed, start_date="2027-01-01")
    assert found.feasible
