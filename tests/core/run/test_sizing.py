"""GPU counts for a date: the fix of a missed date works, and no search goes on for ever."""

from datetime import date, timedelta

import pytest

from service.core.planners.plan import estimate_fleet
from service.core.run import sizing
from service.core.scenarios.scenario import Scenario

RUN = {
    "name": "pretrain",
    "architecture": "llama-3.1-70b",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 15 * 10**12,
    "sizing": {"kind": "finish_by", "finish_date": "2027-01-03"},
}
TINY = {
    "key": "tiny",
    "name": "no room for anything",
    "memory_gb": 0.001,
    "memory_bandwidth_gb_per_s": 3000,
    "peak_tflops": {"bf16": 1000},
    "scale_up_gb_per_s_per_direction": 450,
    "scale_up_domain_gpu_count": 8,
    "gpu_class": "hopper",
}


def estimate(snapshot, **changes):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 12},
        "training_runs": [RUN | changes],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2.50"}}],
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot)[0]


def test_the_date_named_for_a_missed_one_is_met_and_is_about_the_earliest(snapshot):
    missed = estimate(snapshot)
    [reason] = missed.infeasibilities
    assert reason.code == "deadline"
    days = reason.needed / 24
    earliest = date(2027, 1, 1) + timedelta(days=days)
    assert f"finish_date {earliest}" in reason.nearest_fix
    applied = estimate(snapshot, sizing={"kind": "finish_by", "finish_date": f"{earliest}"})
    assert applied.feasible
    # No legal count does it in much less: a week earlier is missed as well.
    sooner = {"kind": "finish_by", "finish_date": f"{earliest - timedelta(days=7)}"}
    assert not estimate(snapshot, sizing=sooner).feasible


@pytest.mark.parametrize("memory_gb", [0.001, 1.0])
def test_what_fits_on_no_number_of_gpus_is_found_out_at_once(snapshot, monkeypatch, memory_gb):
    searches = []
    choose = sizing.choose

    def counted(case, gpu_count):
        searches.append(gpu_count)
        return choose(case, gpu_count)

    monkeypatch.setattr(sizing, "choose", counted)
    answer = estimate(snapshot, gpu=TINY | {"memory_gb": memory_gb})
    assert [reason.code for reason in answer.infeasibilities] == ["memory"]
    assert len(searches) <= 1 + sizing.MAX_REFUSALS
