"""A plan: an estimate with identity, never changed after it is made; and plans side by side."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field, field_serializer

from service.core.assumptions import AssumptionUsed
from service.core.estimates import (
    Advisory,
    ExistingUse,
    Infeasibility,
    PlanMonth,
    PlanTotals,
    PoolSize,
    Scope,
    ServingServiceEstimate,
    TrainingRunEstimate,
)
from service.core.prices import PriceBookUsed
from service.core.scenarios.scenario import Scenario
from service.core.snapshot import ReleaseRef
from service.core.units import Per, Unit
from service.core.value import Currency, IsoDate, Text, Value

SCHEMA_VERSION: Final = 1
ReleaseChoice = Annotated[str, Field(pattern=r"^(latest|[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,4})$")]
"""A release's version, or "latest"."""


class PlanRequest(Value):
    """What is sent to make a plan."""

    name: Text
    """Name of the plan; need not be unique."""
    catalog_release: ReleaseChoice = "latest"
    """Release whose facts are used; comes back resolved."""
    as_of_date: IsoDate | None = None
    """Day whose prices are used; today (UTC) when null; comes back resolved."""
    scenario: Scenario
    """The question."""


class ReplanRequest(Value):
    """What is sent to run a stored plan's scenario again; the plan itself stays as it is."""

    name: Text | None = None
    """Name of the new plan; the old plan's when null."""
    catalog_release: ReleaseChoice = "latest"
    """Release whose facts are used; comes back resolved."""
    as_of_date: IsoDate | None = None
    """Day whose prices are used; today (UTC) when null; comes back resolved."""


class PlanLinks(Value):
    """Where the rest of a plan is."""

    lines: str
    """Priced lines."""
    quantities: str
    """Numbers that the plan stands on."""


class Plan(Value):
    """A stored answer."""

    id: UUID
    """Identity; later plans have larger ids."""
    schema_version: Literal[1]
    """Version of this document's shape."""
    name: Text
    """Name as sent."""
    created_at: datetime
    """When it was made, UTC."""
    team: Text
    """Team that owns it."""
    catalog_release: ReleaseRef
    """Release that was used."""
    as_of_date: IsoDate
    """Day whose prices were used."""
    engine_version: Text
    """Version of the program that computed it."""
    derived_from: UUID | None
    """Plan that this one is a re-run of."""
    scenario: Scenario
    """The question, as sent."""
    request_digest: Text
    """SHA-256 over the request's canonical JSON."""
    feasible: bool
    """False when anything ran out."""
    infeasibilities: tuple[Infeasibility, ...]
    """What ran out, by how much, and what would work."""
    advisories: tuple[Advisory, ...]
    """What a reader should know beside the numbers."""
    totals: PlanTotals | None
    """Totals; null when infeasible."""
    existing: ExistingUse | None = None
    """Use of GPUs that are owned already; null without any, or when infeasible."""
    pools: tuple[PoolSize, ...]
    """Pools of equal GPUs."""
    training_runs: tuple[TrainingRunEstimate, ...]
    """Answer for each run that could be estimated."""
    serving_services: tuple[ServingServiceEstimate, ...]
    """Answer for each service that could be estimated."""
    months: tuple[PlanMonth, ...]
    """Totals by month."""
    assumptions: tuple[AssumptionUsed, ...]
    """Every assumption that was used, once each."""
    price_book: PriceBookUsed | None = None
    """The team's price book as it was, with the rows that are used; null where none is named."""
    line_count: int
    """Number of priced lines."""
    links: PlanLinks
    """Where lines and quantities are."""

    @field_serializer("scenario")
    def _as_sent(self, scenario: Scenario) -> dict[str, Any]:
        return scenario.model_dump(mode="json", exclude_unset=True)


class PlanSummary(Value):
    """One plan in a list, or beside others."""

    id: UUID
    """Identity."""
    name: Text
    """Name as sent."""
    created_at: datetime
    """When it was made, UTC."""
    catalog_release: Text
    """Version of the release that was used."""
    catalog_release_retired_at: datetime | None = None
    """When that release was retired; null while it is not."""
    as_of_date: IsoDate
    """Day whose prices were used."""
    engine_version: Text
    """Version of the program that computed it."""
    derived_from: UUID | None
    """Plan that this one is a re-run of."""
    feasible: bool
    """False when anything ran out."""
    currency: Currency
    """Currency of all its amounts."""
    totals: PlanTotals | None
    """Totals; null when infeasible."""


class ComparedValue(Value):
    """One quantity in one plan, against the baseline."""

    plan_id: UUID
    """Plan."""
    value: float | None
    """Value in that plan; null when the plan has no such quantity."""
    difference: float | None
    """Value minus the baseline's."""
    relative_difference_fraction: float | None
    """Difference over the baseline's value; null when that is 0 or missing."""


class ComparedQuantity(Value):
    """One quantity of all compared plans."""

    scope: Scope
    """plan, pool:NAME, run:NAME or service:NAME."""
    name: Text
    """Published name."""
    unit: Unit
    """Unit of the values."""
    per: Per
    """What one value belongs to."""
    baseline_value: float | None
    """Value in the baseline."""
    values: tuple[ComparedValue, ...]
    """The other plans, in the order asked for."""


class PlanComparison(Value):
    """Two or more plans aligned on scope and quantity name."""

    baseline_id: UUID
    """Plan that the others are compared with."""
    plans: tuple[PlanSummary, ...]
    """All compared plans, baseline first."""
    quantities: tuple[ComparedQuantity, ...]
    """Quantities of any of the plans."""
