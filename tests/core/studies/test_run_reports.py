"""Reported numbers beside an estimate, and what a reader is told beside a run's own numbers."""

import pytest

from tests.core.training_questions import RUN, a_run
from tests.core.training_runs import by, on

EIGHT = {"training_tokens": 10**10, "sizing": on(8), "global_batch_tokens": 64 * 8192}


def said(found, code):
    return [one.message for one in found.advisories if one.code == code]


def report(run=None, **numbers):
    found = a_run(question={"published_runs": [{"run": RUN | (run or {}), **numbers}]})
    rows = {one.measure: one for one in found.published_runs}
    return rows, said(found, "implausible_measurement"), found


def test_a_report_is_held_against_one_figure_everywhere():
    alone = a_run(**EIGHT)
    booked, own = alone.booked_gpu_hours, alone.wall_clock_hours
    wanted = alone.compared_gpu_hours
    assert wanted.value == booked.value
    assert wanted.low == pytest.approx(min(8 * own.low, booked.low))
    assert wanted.high == pytest.approx(max(8 * own.high, booked.high))
    # 80 % are 1.2816 standard deviations to either side and 99 % are 2.5758: the power 2.0099.
    low, high = (
        wanted.value * (end / wanted.value) ** (2.5758 / 1.2816)
        for end in (wanted.low, wanted.high)
    )
    for hours in (wanted.value, alone.gpu_hours, low * 1.01, low * 0.99, high * 0.99, high * 1.01):
        found = a_run(question={"reported_gpu_hours": hours}, **EIGHT)
        assert found.reported_over_estimate == pytest.approx(hours / booked.value)
        is_outside = not low <= hours <= high
        assert bool(said(found, "implausible_measurement")) == is_outside
        rows, warned, _ = report(EIGHT, gpu_hours=hours, days=hours / 8 / 24)
        assert rows["gpu_hours"].predicted == wanted
        is_within = wanted.low <= hours <= wanted.high
        assert rows["gpu_hours"].is_within_band == is_within
        assert rows["days"].is_within_band == is_within
        assert len(warned) == 2 * is_outside


def test_the_estimate_itself_is_never_implausible():
    for speed in ({"kind": "estimated"}, {"kind": "mfu", "mfu_fraction": 0.4}):
        hours = a_run(speed=speed, **EIGHT).gpu_hours
        found = a_run(question={"reported_gpu_hours": hours}, speed=speed, **EIGHT)
        assert not [each for each in said(found, "implausible_measurement") if "hours" in each]


@pytest.mark.parametrize("kind", ["mfu", "hfu"])
def test_a_given_utilisation_is_named_beside_the_one_that_is_expected(kind):
    found = a_run(speed={"kind": kind, f"{kind}_fraction": 0.08})
    [message] = said(found, "implausible_measurement")
    assert f"speed.{kind}_fraction of 0.08" in message
    expected = getattr(a_run(), f"{kind}_fraction")
    assert f"around {expected:.4g}" in message


def test_a_compared_run_that_does_not_fit_leaves_the_main_run_as_it_is():
    rows, _, found = report({"gpu": "l4-24gb", "sizing": on(1)}, gpu_hours=100)
    assert found.feasible
    assert rows["gpu_hours"].infeasibility.code == "memory"
    assert rows["gpu_hours"].predicted is None


def test_reported_utilisation_and_memory_stand_beside_their_estimates():
    alone = a_run()
    rows, warned, _ = report(
        mfu_fraction=alone.mfu_fraction,
        hfu_fraction=alone.hfu_fraction,
        memory_gib_per_gpu=alone.memory_gib_per_gpu.total,
        tokens_per_s_per_gpu=alone.tokens_per_s_per_gpu.value,
    )
    assert warned == []
    for row in rows.values():
        assert row.reported_over_predicted == pytest.approx(1)
        assert row.is_within_band
        assert row.is_possible


@pytest.mark.parametrize(
    ("measure", "reported", "is_possible"),
    [
        ("mfu_fraction", 1.02, False),
        ("mfu_fraction", 0.1, True),
        ("hfu_fraction", 1.2, False),
        # 989.4e12 / (6 x 8,030,261,248) are 20,535 tokens a second at the dense peak.
        ("tokens_per_s_per_gpu", 20_600, False),
        ("tokens_per_s_per_gpu", 20_400, True),
        # 1e12 tokens at that rate are 13,527 GPU-hours, on 64 GPUs 8.8 days.
        ("gpu_hours", 13_400, False),
        ("gpu_hours", 13_700, True),
        ("days", 8.7, False),
        # The card holds 80 GB, which drivers count as 80 GiB at the most.
        ("memory_gib_per_gpu", 81, False),
        ("memory_gib_per_gpu", 5, True),
    ],
)
def test_what_the_hardware_does_not_allow_is_called_impossible(measure, reported, is_possible):
    rows, warned, _ = report(**{measure: reported})
    assert rows[measure].is_possible == is_possible
    assert not rows[measure].is_within_band
    assert len(warned) == 1
    assert ("cannot be" in warned[0]) == (not is_possible)


def test_frozen_weights_are_counted_by_4p():
    adapter = {"kind": "lora", "rank": 16}
    found = a_run(adapter=adapter, training_tokens=10**9)
    # Forward and the gradients of what flows through, none of the weights: 4 x P x T.
    assert found.model_flops == pytest.approx(4 * 8_030_261_248 * 1e9)
    assert found.mfu_convention == "4P"
    assert a_run().mfu_convention == "6P"
    rate = found.tokens_per_s_per_gpu.value
    assert found.mfu_fraction == pytest.approx(rate * 4 * 8_030_261_248 / 989.4e12)


def test_decoding_of_a_coded_base_is_said_not_to_be_counted():
    found = a_run(adapter={"kind": "qlora", "rank": 16}, training_tokens=10**9, sizing=on(8))
    [message] = said(found, "decoding_not_counted")
    layout = found.layout
    rounds = 4_194_304 / 8192 / (layout.data_parallel * layout.micro_batch_sequences)
    # 15 to 40 ps for each parameter of a GPU's share and each of its micro-batches.
    share = 8_030_261_248 / (layout.tensor_parallel * layout.pipeline_parallel)
    assert f"{15e-12 * share * rounds:,.3g} to {40e-12 * share * rounds:,.3g} s" in message
    plain = a_run(adapter={"kind": "lora", "rank": 16}, training_tokens=10**9, sizing=on(8))
    assert said(plain, "decoding_not_counted") == []


def test_a_budget_without_a_price_says_so():
    found = a_run(gpu="h800-sxm5-80gb", question={"budget": "100000"})
    assert found.amount is None
    assert found.tokens_within_budget is None
    assert "price_per_gpu_hour" in said(found, "price_unknown")[0]
    priced = a_run(gpu="h800-sxm5-80gb", question={"budget": "100000", "price_per_gpu_hour": "2"})
    assert said(priced, "price_unknown") == []


def test_a_date_that_is_met_at_typical_hours_alone_is_said():
    fields = {"start_date": "2027-01-01", "global_batch_tokens": 192 * 4096}
    fields |= {"sequence_length_tokens": 4096, "training_tokens": 10**10}
    for day, hours in (("2027-01-02", 48), ("2027-01-04", 96), ("2027-02-28", 24 * 59)):
        found = a_run(sizing=by(day), **fields)
        late = found.wall_clock_hours.high - hours
        message = said(found, "deadline_may_be_missed")
        assert bool(message) == (late > 0)
        if not message:
            continue
        assert f"misses it by {late:,.1f} h" in message[0]
        held = int(message[0].split(" h. ")[1].split(" GPUs")[0].replace(",", ""))
        assert held > found.gpu_count
        assert a_run(sizing=on(held), **fields).wall_clock_hours.high <= hours


def test_a_hall_meters_more_than_the_gpus_draw():
    found = a_run(**EIGHT)
    # DGX H100: 10.2 kW at most, of which 80 % under load, and a hall at the catalog's PUE.
    pue = next(one.value for one in found.assumptions if one.name == "power_usage_effectiveness")
    hours = found.wall_clock_hours.value
    assert found.facility_energy_kwh == pytest.approx(10.2 * 0.8 * pue * hours)
    assert found.energy_kwh == pytest.approx(8 * 0.7 * hours)


SIZINGS = [on(64), by("2027-06-30"), {"kind": "budget", "amount": "900"}]


@pytest.mark.parametrize("tokens", [1, 4_194_303])
@pytest.mark.parametrize("sizing", SIZINGS)
def test_no_run_is_shorter_than_one_step(tokens, sizing):
    question = {"price_per_gpu_hour": "2"}
    found = a_run(training_tokens=tokens, sizing=sizing, question=question)
    assert found == a_run(training_tokens=4_194_304, sizing=sizing, question=question)
    assert (found.step_count, found.training_tokens) == (1, 4_194_304)
