"""A small scenario and its answer, from which the tests of plans and exports make theirs.

January of the contract's example: 512 GPUs train and 64 serve for 744 hours at 6.88 per GPU-hour.
  training        512 x 744 = 380,928 h x 6.88 = 2,620,784.64
  serving, used              22,196 h x 6.88 =   152,708.48
  serving, idle              25,420 h x 6.88 =   174,889.60   (22,196 + 25,420 = 64 x 744)
  together                  428,544 h x 6.88 = 2,948,382.72
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from service.core.assumptions import AssumptionUsed
from service.core.estimates import (
    Advisory,
    CostLine,
    FleetEstimate,
    Infeasibility,
    PlanTotals,
    Quantity,
)
from service.core.plans import PlanRequest, PlanSummary
from service.core.snapshot import CatalogSnapshot, ReleaseRef

RELEASE = ReleaseRef(version="2026.11.1", digest="sha256:one")
NEWER = ReleaseRef(version="2026.11.2", digest="sha256:two")
DAY = date(2026, 11, 29)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
JANUARY_AMOUNT = Decimal("2948382.72")
JANUARY_GPU_HOURS = Decimal(428_544)

REQUEST = {
    "name": "2027 base case",
    "scenario": {
        "horizon": {"start_month": "2027-01", "month_count": 1},
        "serving_services": [
            {
                "name": "assistant",
                "gpu": "h100-sxm5-80gb",
                "load": {"kind": "peak_requests", "peak_requests_per_s": 40},
                "capacity": {
                    "kind": "measured",
                    "units_per_s_per_replica": 4.0,
                    "gpu_count_per_replica": 4,
                },
            }
        ],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "6.88"}}],
    },
}
ASSUMPTIONS = (
    AssumptionUsed(
        name="spare_fraction",
        value=0.1,
        low=0.1,
        high=0.1,
        unit="1",
        source="house rule",
        verified=True,
        override_at="/scenario/assumption_overrides/spare_fraction",
    ),
)


def request(**changed):
    return PlanRequest.model_validate({**REQUEST, **changed})


def line(number=1, **changed):
    """The contract's first line, with other values where the test says so."""
    values = {
        "line_number": number,
        "month": "2027-01",
        "charge_period_start": datetime(2027, 1, 1, tzinfo=UTC),
        "charge_period_end": datetime(2027, 2, 1, tzinfo=UTC),
        "pool": "training",
        "workload_kind": "training",
        "workload": "pretrain-70b",
        "use": "used",
        "category": "gpu_rental",
        "gpu": "h100-sxm5-80gb",
        "provider": None,
        "region": None,
        "site": None,
        "purchase_kind": "negotiated",
        "quantity": Decimal(380_928),
        "unit": "gpu_hour",
        "unit_price": Decimal("6.88"),
        "amount": Decimal("2620784.64"),
        "cash_amount": Decimal("2620784.64"),
        "currency": "USD",
        "gpu_count": 512,
        "formula": "gpu_count x hours",
        "price_source": "given in the request",
        "price_as_of_date": None,
        "price_verified": True,
        **changed,
    }
    return CostLine(**values)


def serving_line(number, **changed):
    return line(
        number,
        **{
            "pool": "serving",
            "workload_kind": "serving",
            "workload": "assistant",
            "gpu_count": 64,
            **changed,
        },
    )


def money(text):
    return {"amount": Decimal(text), "cash_amount": Decimal(text)}


JANUARY = (
    line(1),
    serving_line(2, quantity=Decimal(22_196), **money("152708.48")),
    serving_line(3, quantity=Decimal(25_420), use="idle", **money("174889.60")),
)


def quantity(scope="plan", name="gpu_hours", value=1.0, **changed):
    values = {
        "scope": scope,
        "name": name,
        "value": value,
        "low": value,
        "high": value,
        "unit": "gpu_hour",
        "per": "plan",
        "formula": "sum over pools",
        "inputs": {},
        "sources": ("house rule",),
        **changed,
    }
    return Quantity(**values)


QUANTITIES = (
    quantity("service:assistant", "replica_count", 13.0, unit="count", per="service"),
    quantity(
        "service:assistant",
        "ttft_p95_s",
        1.5,
        low=1.2,
        high=2.25,
        unit="s",
        per="service",
        inputs={"queue_s": 0.5, "profile": [0.25, 1.0], "engine": "vllm"},
    ),
    quantity("pool:serving", "cost_per_hour", None, unit="currency", per="pool", sources=()),
)


def estimate(lines=JANUARY, quantities=QUANTITIES, *, currency="USD"):
    """A feasible answer whose totals are the sums of its lines."""
    amount = sum((one.amount for one in lines), Decimal("0.00"))
    training = sum((one.amount for one in lines if one.pool == "training"), Decimal("0.00"))
    return FleetEstimate(
        feasible=True,
        infeasibilities=(),
        advisories=(Advisory(code="no_objectives", workload="assistant", message="no objective"),),
        totals=PlanTotals(
            peak_gpu_count=576,
            gpu_hours=float(sum(one.quantity for one in lines)),
            amount=amount,
            cash_amount=sum((one.cash_amount for one in lines), Decimal("0.00")),
            currency=currency,
            training_amount=training,
            serving_amount=amount - training,
        ),
        pools=(),
        training_runs=(),
        serving_services=(),
        months=(),
        lines=lines,
        quantities=quantities,
    )


INFEASIBLE = FleetEstimate(
    feasible=False,
    infeasibilities=(
        Infeasibility(
            workload="assistant",
            code="memory",
            limit="GPU memory",
            needed=141.0,
            available=79.6,
            unit="GiB",
            nearest_fix="two GPUs a replica",
        ),
    ),
    advisories=(),
    totals=None,
    pools=(),
    training_runs=(),
    serving_services=(),
    months=(),
    lines=(),
    quantities=(),
)


def summary(number=1, **changed):
    """A plan as it stands in a list."""
    values = {
        "id": UUID(int=number),
        "name": "2027 base case",
        "created_at": NOON,
        "catalog_release": RELEASE.version,
        "as_of_date": DAY,
        "engine_version": "0.1.0",
        "derived_from": None,
        "feasible": True,
        "currency": "USD",
        "totals": estimate().totals,
        **changed,
    }
    return PlanSummary(**values)


def snapshot(release=RELEASE, as_of_date=DAY):
    return CatalogSnapshot.build(release=release, as_of_date=as_of_date)
