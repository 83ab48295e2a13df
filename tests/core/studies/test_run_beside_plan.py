"""A run by itself and the same run in a plan have one GPU count, one set of hours, one amount."""

from dataclasses import replace
from decimal import Decimal

import pytest

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from service.core.studies.runs import TrainingRunQuestion
from service.core.studies.training_run import estimate_training_run
from tests.core.training_runs import by, on, snapshot

RUN = {
    "name": "run",
    "architecture": "llama-3.1-8b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**10,
    "sequence_length_tokens": 4096,
    "global_batch_tokens": 192 * 4096,
    "start_date": "2027-01-01",
}
STEADY = {
    "architecture": None,
    "speed": {"kind": "measured", "tokens_per_s_per_gpu": 1000},
    "reliability": {"failures_per_1000_node_days": 0, "checkpoint_save_s": 0},
}


def a_run(*, price="2.00", question=None, **fields):
    asked = {"run": RUN | fields, "price_per_gpu_hour": price} | (question or {})
    return estimate_training_run(TrainingRunQuestion.model_validate(asked), snapshot())


def a_plan(*, price="2.00", catalog=None, **fields):
    method = {"kind": "rent", "price_per_gpu_hour": price}
    scenario = {
        "horizon": {"start_month": "2027-01", "month_count": 3},
        "training_runs": [RUN | fields],
        "pooling": {"kind": "separate"},
        "procurement": [{"pool": "any", "gpu": "any", "method": method}],
    }
    return estimate_fleet(Scenario.model_validate(scenario), snapshot=catalog or snapshot())[0]


SIZINGS = [
    by("2027-01-04"),
    by("2027-01-10"),
    {"kind": "budget", "amount": "800"},
    {"kind": "tokens", "gpu_count": 12, "amount": "800"},
    {"kind": "tokens", "gpu_count": 16, "finish_date": "2027-01-10"},
    on(12),
]


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("price", ["2.00", None])
def test_a_run_is_solved_for_as_a_plan_solves_for_it(sizing, price):
    tokens = None if sizing["kind"] == "tokens" else 10**10
    found = a_run(sizing=sizing, training_tokens=tokens, price=price)
    plan = a_plan(sizing=sizing, training_tokens=tokens, price=price)
    [planned] = plan.training_runs
    assert found.gpu_count == planned.gpu_count
    assert found.training_tokens == planned.training_tokens
    assert found.gpu_hours == pytest.approx(planned.gpu_hours, abs=1e-6)
    # What the plan rents, in whole instances; rounding is to the cent of each line.
    [pool] = plan.pools
    assert found.gpu_count_in_whole_nodes == pool.gpu_count
    assert found.amount_in_whole_nodes == pytest.approx(plan.totals.amount, abs=Decimal("0.02"))


def test_a_solved_count_fills_its_nodes():
    # 3 GPUs would end it by the 4th of January, too, and 8 would be paid for.
    found = a_run(sizing=by("2027-01-04"))
    assert (found.gpu_count, found.gpu_count_in_whole_nodes) == (8, 8)
    assert found.amount == found.amount_in_whole_nodes


def test_an_amount_pays_for_whole_nodes():
    # 800 at 2 pay for 400 GPU-hours, those of 16 GPUs for 25 h, of which 12 GPUs train:
    # 12 x 1,000 token/s x 25 h x 3,600 s are 1.08e9 tokens, less the cents that rounding may take.
    sizing = {"kind": "tokens", "gpu_count": 12, "amount": "800"}
    found = a_run(sizing=sizing, training_tokens=None, **STEADY)
    assert found.training_tokens == pytest.approx(1.08e9, rel=1e-4)
    assert found.gpu_hours == pytest.approx(300, rel=1e-4)
    assert Decimal(799) < found.amount_in_whole_nodes <= Decimal(800)


def test_a_budget_pays_for_whole_nodes():
    # 4.32e9 tokens on 12 GPUs take 100 h; 16 GPUs for 100 h at 2 are 3,200: 1,600 buy half.
    found = a_run(
        sizing=on(12), training_tokens=4_320_000_000, question={"budget": "1600"}, **STEADY
    )
    assert found.tokens_within_budget == pytest.approx(2.16e9)


def test_racks_are_paid_by_the_instance_that_has_the_price():
    # Listed in instances of 4 of a rack of 72: 512 GPUs are 128 of these. At a price that is given,
    # racks: 8 x 72 = 576.
    fields = {"gpu": "gb200-nvl72", "architecture": "llama-3.1-70b", "sizing": on(512)}
    fields |= {"global_batch_tokens": 512 * 4096, "training_tokens": 10**11}
    for price, count in ((None, 512), ("2.00", 576)):
        found, [pool] = a_run(price=price, **fields), a_plan(price=price, **fields).pools
        assert found.gpu_count_in_whole_nodes == pool.gpu_count == count


def test_a_count_is_found_where_no_legal_one_fills_racks():
    # A batch of 512 sequences and a split of 1 divide over powers of two alone, none of which is a
    # multiple of 72: the last rack is then not full.
    layout = {"kind": "given", "sharding": "zero_3", "recompute": "full"}
    fields = {"gpu": "gb200-nvl72", "global_batch_tokens": 512 * 4096, "layout": layout}
    found = a_run(sizing=by("2027-01-04"), **fields)
    assert found.feasible
    assert found.gpu_count & (found.gpu_count - 1) == 0
    assert found.gpu_count_in_whole_nodes == 72


def test_a_price_holds_for_the_runs_own_gpu_alone():
    after = {
        "gpu": "a100-sxm4-80gb",
        "name": "tuned",
        "after": "run",
        "training_tokens": 1_440_000_000,
        "sizing": on(16),
        **{key: value for key, value in STEADY.items() if key != "architecture"},
    }
    stages = [after, after | {"name": "again", "gpu": RUN["gpu"]}]
    asked = {"stages": stages, "ranked_gpus": ["a100-sxm4-80gb", RUN["gpu"]]}
    found = a_run(sizing=on(8), price="40", question=asked)
    # 1.44e9 tokens at 1,000 token/s are 400 GPU-hours, at 40 USD 16,000; no A100 is listed at half.
    assert [one.gpu_hours for one in found.stages] == pytest.approx([400, 400])
    assert found.stages[1].amount == Decimal("16000.00")
    assert found.stages[0].amount < Decimal(8000)
    ranked = {one.gpu: one.amount for one in found.ranking}
    assert ranked[RUN["gpu"]] == found.amount_in_whole_nodes
    assert ranked["a100-sxm4-80gb"] / Decimal(found.gpu_hours) < 40


def test_the_nearest_count_that_works_is_named_for_one_that_is_given():
    # 16 bytes for each of 13.02e9 weights are 208 GB: on two cards of 80 GB no, on four 52 GB each.
    fields = {"architecture": "llama-2-13b", "gpu": "a100-sxm4-80gb"}
    fields |= {"global_batch_tokens": 64 * 4096}
    [reason] = a_run(sizing=on(2), **fields).infeasibilities
    assert reason.code == "memory"
    assert reason.nearest_fix.startswith("4 GPUs")
    assert a_run(sizing=on(4), **fields).feasible


LARGE = {"architecture": "llama-3.1-70b", "sequence_length_tokens": 8192, "training_tokens": 10**12}
LARGE |= {"global_batch_tokens": 4_194_304, "start_date": "2027-01-10"}
WARNED = ("deadline_may_be_missed", "implausible_measurement", "published_runs_book_more")


def without(*names):
    """A catalog from before these assumptions."""
    held = snapshot().assumptions.items()
    kept = {key: one for key, one in held if not key.startswith(names)}
    return replace(snapshot(), assumptions=kept)


def warned(found):
    return {one.code: one.message for one in found.advisories if one.code in WARNED}


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"sizing": by("2027-03-31")}, {"deadline_may_be_missed", "published_runs_book_more"}),
        # 0.85 of the peak is far above what any published run of this kind reached (0.60).
        (
            {"sizing": on(512), "speed": {"kind": "mfu", "mfu_fraction": 0.85}},
            {"implausible_measurement"},
        ),
        # 0.40 was measured of such runs many times; a given speed holds what runs book.
        ({"sizing": on(512), "speed": {"kind": "mfu", "mfu_fraction": 0.40}}, set()),
        ({"sizing": on(512), "run_multiplier": 2.0}, set()),
    ],
)
def test_a_plan_warns_of_a_run_as_the_run_alone_does(fields, codes):
    alone = a_run(price="2.40", **LARGE | fields)
    plan = a_plan(price="2.40", **LARGE | fields)
    assert set(warned(alone)) == codes
    assert warned(plan) == warned(alone)


def test_a_date_that_is_missed_at_worst_is_late_by_the_high_end_of_the_band():
    plan = a_plan(price="2.40", **LARGE, sizing=by("2027-03-31"))
    [run] = plan.training_runs
    # 10 January to the end of 31 March: 22 + 28 + 31 days of 24 hours.
    late = run.wall_clock_hours.high - 81 * 24
    assert f"misses it by {late:,.1f} h" in warned(plan)["deadline_may_be_missed"]


def test_the_multiplier_that_is_named_counts_what_such_runs_book():
    message = warned(a_run(**LARGE, sizing=on(512)))["published_runs_book_more"]
    named = float(message.split("run_multiplier of ")[1].split(" counts")[0])
    once, booked = (
        a_run(**LARGE, sizing=on(512), run_multiplier=factor).gpu_hours for factor in (1, named)
    )
    wanted = a_run(**LARGE, sizing=on(512)).booked_gpu_hours.value
    assert once < wanted
    assert booked == pytest.approx(wanted, rel=0.005)
    assert not warned(a_plan(**LARGE, sizing=on(512), run_multiplier=named))


def test_a_shared_pool_names_no_count_for_a_date_and_still_warns():
    scenario = {
        "horizon": {"start_month": "2027-01", "month_count": 6},
        "training_runs": [RUN | LARGE | {"sizing": by("2027-03-31")}],
        "pooling": {"kind": "shared"},
        "procurement": [{"pool": "any", "gpu": "any", "method": {"kind": "rent"}}],
    }
    plan = estimate_fleet(Scenario.model_validate(scenario), snapshot=snapshot())[0]
    message = warned(plan)["deadline_may_be_missed"]
    assert "GPUs" not in message
    assert "training_tokens would hold" in message


def test_a_plan_says_what_decoding_a_coded_base_adds_as_the_run_does():
    fields = {"adapter": {"kind": "qlora", "rank": 16}, "sizing": on(8)}
    told = [
        [one.message for one in found.advisories if one.code == "decoding_not_counted"]
        for found in (a_run(**fields), a_plan(**fields))
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 1


def test_an_older_catalog_plans_without_what_it_does_not_know():
    older = without("training_booked_mfu_fraction", "qlora_decoding_s_per_parameter")
    plan = a_plan(**LARGE, sizing=on(512), catalog=older)
    assert plan.feasible
    assert not warned(plan)
    coded = {"adapter": {"kind": "qlora", "rank": 16}, "sizing": on(8)}
    assert "decoding_not_counted" not in {
        one.code for one in a_plan(**coded, catalog=older).advisories
    }
