"""Runs that were reported somewhere: taken like the run itself, its days, prices and refusals."""

from dataclasses import replace
from datetime import date

import pytest

from service.core.errors import InvalidScenario
from service.core.studies.runs import TrainingRunQuestion
from service.core.studies.training_run import estimate_training_run
from tests.core.training_questions import RUN, a_run
from tests.core.training_runs import snapshot

PAGE = RUN | {"name": "page"}
BUDGET = {"kind": "budget", "amount": "500000"}


def compared(question=None, **changes):
    published = [{"run": PAGE | changes, "gpu_hours": 100_000}]
    return a_run(question={"published_runs": published} | (question or {}))


@pytest.mark.parametrize(
    ("run", "published", "pointer"),
    [
        ({"start_date": "2100-01-01"}, {}, "/run/start_date"),
        ({}, {"start_date": "2100-06-01"}, "/published_runs/0/run/start_date"),
    ],
)
def test_a_start_beyond_the_last_month_is_refused_where_it_is_said(run, published, pointer):
    with pytest.raises(InvalidScenario, match="2099-12-31") as refused:
        a_run(question={"published_runs": [{"run": PAGE | published, "days": 1}]}, **run)
    assert refused.value.pointer == pointer


def test_a_catalog_beyond_the_last_month_starts_no_run():
    question = TrainingRunQuestion.model_validate({"run": RUN, "as_of_date": "2100-12-31"})
    late = replace(snapshot(), as_of_date=date(2100, 12, 31))
    with pytest.raises(InvalidScenario, match="2099-12-31") as refused:
        estimate_training_run(question, late)
    assert refused.value.pointer == "/as_of_date"


def test_the_last_day_of_the_last_month_is_a_start():
    # 1e9 tokens on 64 GPUs take minutes: they end before the last day that a date can name.
    found = a_run(start_date="2099-12-31", training_tokens=10**9)
    assert f"{found.finish_date}" == "2099-12-31"


@pytest.mark.parametrize("question", [{}, {"price_per_gpu_hour": "2.50"}])
def test_a_budget_of_a_compared_run_is_priced_as_the_run_itself(question):
    [row] = compared(question, sizing=BUDGET).published_runs
    assert row.infeasibility is None
    alone = a_run(question=question, sizing=BUDGET)
    assert row.predicted == alone.compared_gpu_hours


def test_a_compared_run_follows_no_other():
    with pytest.raises(InvalidScenario, match="follows no other") as refused:
        compared(after="run")
    assert refused.value.pointer == "/published_runs/0/run/after"
