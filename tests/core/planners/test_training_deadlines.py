"""A date is met by the smallest GPU count that meets it."""

from datetime import date

import pytest

from tests.core.training_runs import (
    MFU_40,
    answer,
    by,
    given,
    need,
    on,
    refusal,
)


@pytest.mark.parametrize("speed", [MFU_40, {"kind": "estimated"}])
@pytest.mark.parametrize("day", ["2027-01-31", "2027-03-31", "2027-12-31"])
def test_a_deadline_is_met_by_the_smallest_usable_count(speed, day):
    found = need(speed=speed, sizing=by(day))
    assert found.gpu_count % 8 == 0
    assert found.finish.date() <= date.fromisoformat(day)
    for fewer in range(found.gpu_count - 8, max(0, found.gpu_count - 65), -8):
        smaller, _ = answer(speed=speed, sizing=on(fewer))
        if not isinstance(smaller, tuple):
            assert smaller.finish.date() > date.fromisoformat(day)


def test_a_deadline_without_architecture_is_met_in_whole_multiples():
    speed = {"kind": "measured", "tokens_per_s_per_gpu": 935}
    found = need(architecture=None, speed=speed, sizing=by("2027-03-31"), gpu_multiple=72)
    assert found.gpu_count % 72 == 0
    fewer = need(architecture=None, speed=speed, sizing=on(found.gpu_count - 72))
    assert found.finish.date() <= date(2027, 3, 31) < fewer.finish.date()


def test_a_named_layout_is_kept_when_the_count_is_solved():
    layout = given(tensor_parallel=8, pipeline_parallel=5)
    found = need(speed=MFU_40, layout=layout, sizing=by("2027-06-30"))
    assert found.gpu_count % 40 == 0
    assert (found.layout.tensor_parallel, found.layout.pipeline_parallel) == (8, 5)


@pytest.mark.parametrize("speed", [MFU_40, {"kind": "estimated"}])
def test_an_impossible_date_names_a_date_and_tokens_that_work(speed):
    reason = refusal(speed=speed, sizing=by("2027-01-01"))
    assert reason.code == "deadline"
    assert reason.needed > reason.available == 24
    day = reason.nearest_fix.split("finish_date ")[1][:10]
    assert need(speed=speed, sizing=by(day)).finish.date() <= date.fromisoformat(day)
    tokens = int(reason.nearest_fix.split("training_tokens ")[1].split(" ")[0].replace(",", ""))
    fewer = need(speed=speed, sizing=by("2027-01-01"), training_tokens=tokens)
    assert fewer.finish.date() <= date(2027, 1, 1)


def test_a_date_before_the_start_is_too_late():
    reason = refusal(speed=MFU_40, sizing=by("2026-06-30"))
    assert (reason.code, reason.available) == ("deadline", 0)
