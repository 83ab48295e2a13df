"""Laws that the answer to any scenario obeys, whatever the numbers."""

from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.catalog.resolve import snapshot_from_folder
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests import strategies

CATALOG = Path(__file__).parents[3] / "catalog"
AS_OF = date(2026, 11, 29)
laws = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@cache
def snapshot(copy=1):
    """One of two snapshots that are read apart, so that a change of the first one shows."""
    return snapshot_from_folder(CATALOG, AS_OF)


def estimate(document):
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())


@laws
@given(document=strategies.scenarios())
def test_the_same_scenario_has_the_same_answer(document):
    assert estimate(document) == estimate(document)


@laws
@given(document=strategies.scenarios())
def test_the_snapshot_is_never_modified(document):
    estimate(document)
    assert snapshot() == snapshot(copy=2)


@laws
@given(document=strategies.scenarios())
def test_infeasible_means_reasons_and_no_money(document):
    answer, _ = estimate(document)
    assert answer.feasible == (not answer.infeasibilities)
    assert (answer.totals is None) == (not answer.feasible)
    assert bool(answer.lines) == answer.feasible
    for reason in answer.infeasibilities:
        assert reason.nearest_fix


@laws
@given(document=strategies.scenarios())
def test_lines_sum_to_totals_months_and_workloads_to_the_cent(document):
    answer, _ = estimate(document)
    if not answer.feasible:
        return
    assert sum(line.amount for line in answer.lines) == answer.totals.amount
    assert sum(line.cash_amount for line in answer.lines) == answer.totals.cash_amount
    assert sum(month.amount for month in answer.months) == answer.totals.amount
    parts = answer.totals.training_amount + answer.totals.serving_amount
    assert parts == answer.totals.amount
    trained = sum(run.amount for run in answer.training_runs)
    served = sum(service.amount for service in answer.serving_services)
    assert (trained, served) == (answer.totals.training_amount, answer.totals.serving_amount)
    assert all(line.amount >= 0 for line in answer.lines)
    assert [line.line_number for line in answer.lines] == list(range(1, len(answer.lines) + 1))


@laws
@given(document=strategies.scenarios())
def test_each_line_is_its_printed_quantity_times_its_printed_price(document):
    answer, _ = estimate(document)
    for line in answer.lines:
        exact = line.quantity * line.unit_price
        assert abs(line.amount - exact) <= Decimal("0.01")


@laws
@given(document=strategies.scenarios())
def test_pools_are_whole_instances_and_their_hours_balance(document):
    answer, _ = estimate(document)
    for pool in answer.pools:
        assert pool.gpu_count % 8 == 0  # every GPU drawn here stands in nodes of 8
        assert pool.node_count * 8 == pool.gpu_count
        spent = pool.used_gpu_hours + pool.idle_gpu_hours + pool.redo_gpu_hours
        assert pool.allocated_gpu_hours == pytest.approx(spent, rel=1e-9, abs=1e-4)
        assert 0 <= pool.mean_over_peak_fraction <= 1 + 1e-9


@laws
@given(document=strategies.scenarios(), factor=st.floats(1.0, 4.0))
def test_more_load_never_needs_fewer_gpus(document, factor):
    more = {
        **document,
        "serving_services": [
            service
            | {
                "load": {
                    "kind": "peak_requests",
                    "peak_requests_per_s": service["load"]["peak_requests_per_s"] * factor,
                }
            }
            for service in document["serving_services"]
        ],
    }
    before, _ = estimate(document)
    after, _ = estimate(more)
    if before.feasible and after.feasible:
        assert after.totals.peak_gpu_count >= before.totals.peak_gpu_count


@laws
@given(document=strategies.scenarios(pooling="separate", gpus=("h100-sxm5-80gb",)))
def test_sharing_never_needs_more_gpus_than_separate_pools(document):
    separate, _ = estimate(document)
    shared, _ = estimate({**document, "pooling": {"kind": "shared"}})
    if separate.feasible:
        assert shared.feasible
        assert shared.totals.peak_gpu_count <= sum(pool.gpu_count for pool in separate.pools)
