"""A plan that is bought in every way at once, for readers of its files.

Tokens from a seller, some from its cache; GPUs that are there already, more of them bought as the
pool grows; a term paid in advance beside spot; and names that a spreadsheet would calculate.
"""

from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from uuid import UUID

from service.catalog.resolve import snapshot_from_folder
from service.core.planners.plan import estimate_fleet
from service.core.plans import PlanRequest, PlanSummary
from service.plans.create import make_plan

CATALOG = Path(__file__).resolve().parents[2] / "catalog"
NAME = "=SUM(1,2)"
SERVICE = {
    "gpu": "h100-sxm5-80gb",
    "load": {"kind": "peak_requests", "peak_requests_per_s": 9},
    "input_tokens_mean": 1500,
    "output_tokens_mean": 333,
    "demand_profile": "office_assistant",
    "capacity": {"kind": "measured", "units_per_s_per_replica": 1, "gpu_count_per_replica": 2},
    "growth_per_month_fraction": 0.4,
}
HOSTED = {
    "kind": "hosted",
    "provider": "acme",
    "input_price_per_million_tokens": "0.61",
    "cached_input_price_per_million_tokens": "0.061",
    "output_price_per_million_tokens": "2.39",
}
GROWING = {"kind": "own", "purchases": "as_needed", "with_interest": True}
PREPAID = {
    "kind": "mix",
    "committed": {
        "kind": "rent",
        "commitment": "committed_1yr",
        "price_per_gpu_hour": "1.234567",
        "gpu_count_per_instance": 8,
    },
    "rest": {"kind": "rent", "commitment": "spot", "price_per_gpu_hour": "0.99"},
    "committed_gpu_count": 24,
    "paid_upfront": True,
}
SCENARIO = {
    "horizon": {"start_month": "2027-02", "month_count": 5},
    "training_runs": [
        {
            "name": "-1+2",
            "architecture": "llama-3.1-8b",
            "gpu": "a100-sxm4-80gb",
            "training_tokens": 10**11,
            "sizing": {"kind": "gpu_count", "gpu_count": 32},
            "speed": {"kind": "mfu", "mfu_fraction": 0.4},
        }
    ],
    "serving_services": [
        SERVICE | {"name": "=1+1"},
        {name: value for name, value in SERVICE.items() if name != "capacity"}
        | {
            "name": "@bought",
            "architecture": "llama-3.3-70b",
            "weight_format": "fp8",
            "replica": {"prefix_cache_hit_fraction": 0.25},
        },
    ],
    "pooling": {"kind": "separate"},
    "procurement": [
        {"pool": "serving", "service": "@bought", "method": HOSTED},
        {"pool": "serving", "method": GROWING},
        {"pool": "training", "method": PREPAID},
    ],
    "existing_gpus": [
        {
            "gpu": "h100-sxm5-80gb",
            "gpu_count": 16,
            "book_value_per_gpu": "9999.99",
            "remaining_life_months": 3,
        }
    ],
}


@cache
def bought_plan():
    """The plan, its row in a list, and its lines."""
    request = PlanRequest.model_validate({"name": NAME, "scenario": SCENARIO})
    snapshot = snapshot_from_folder(CATALOG, date(2026, 11, 29))
    answer, used = estimate_fleet(request.scenario, snapshot=snapshot)
    assert answer.feasible, answer.infeasibilities
    plan = make_plan(
        request,
        answer,
        used,
        snapshot=snapshot,
        plan_id=UUID(int=7),
        team="local",
        now=datetime(2026, 11, 29, 12, tzinfo=UTC),
    )
    same = ("id", "name", "created_at", "as_of_date", "engine_version", "derived_from", "feasible")
    summary = PlanSummary(
        **{name: getattr(plan, name) for name in same},
        catalog_release=plan.catalog_release.version,
        currency="USD",
        totals=plan.totals,
    )
    return plan, summary, answer.lines
