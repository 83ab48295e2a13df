"""The question: what must run, how the fleet is shared, how it is bought, over which months."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.assumptions import AssumptionName
from service.core.formulas.calendar import first_day, last_day, month_index, month_of
from service.core.scenarios.existing import ExistingGpus
from service.core.scenarios.procurement import ProcurementRule
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun
from service.core.value import (
    LAST_MONTH,
    Count,
    Currency,
    Key,
    Month,
    Number,
    Value,
)


class Horizon(Value):
    """The months that a plan covers, with their real lengths; the last is 2099-12 at most."""

    start_month: Month
    """First month."""
    month_count: Annotated[Count, Field(le=120)]
    """Months in all; the last of them may be 2099-12 at most."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last_month > LAST_MONTH:
            raise ValueError(f"the last month would be {self.last_month}, beyond {LAST_MONTH}")
        return self

    @property
    def last_month(self) -> str:
        """Last month of the horizon."""
        return month_of(month_index(self.start_month) + self.month_count - 1)

    @property
    def first_day(self) -> date:
        """First day of the horizon."""
        return first_day(self.start_month)

    @property
    def last_day(self) -> date:
        """Last day of the horizon."""
        return last_day(self.last_month)

    @property
    def months(self) -> tuple[str, ...]:
        """All months in order."""
        first = month_index(self.start_month)
        return tuple(month_of(first + offset) for offset in range(self.month_count))


def days_of_service(service: ServingService, horizon: Horizon) -> tuple[date, date]:
    """First and last day of a service; where it names none, those of the horizon."""
    first = service.launch_date or first_day(service.first_month or horizon.start_month)
    last = service.retirement_date or last_day(service.last_month or horizon.last_month)
    return first, last


def months_of_service(service: ServingService, horizon: Horizon) -> int:
    """Months in which a service is there, those at its ends counted whole. [count]"""
    first, last = days_of_service(service, horizon)
    return month_index(f"{last:%Y-%m}") - month_index(f"{first:%Y-%m}") + 1


def check_workloads(
    horizon: Horizon, runs: Sequence[TrainingRun], services: Sequence[ServingService]
) -> None:
    """Refuse no work, names that are not unique, and services outside the horizon.

    Raises:
        ValueError: With a sentence for whoever asked.
    """
    names = [run.name for run in runs] + [service.name for service in services]
    if not names:
        raise ValueError("at least one training run or serving service is needed")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"workload names are not unique: {', '.join(map(repr, repeated))}")
    for service in services:
        first, last = days_of_service(service, horizon)
        if not horizon.first_day <= first <= last <= horizon.last_day:
            raise ValueError(
                f"{service.name!r}: its first and last month or day of service are not in the "
                "horizon"
            )


def check_existing(horizon: Horizon, lots: Sequence[ExistingGpus]) -> None:
    """Refuse GPUs that are owned already but bought later.

    Raises:
        ValueError: With a sentence for whoever asked.
    """
    for lot in lots:
        if lot.purchase_date is not None and lot.purchase_date > horizon.first_day:
            raise ValueError(
                f"existing_gpus: {lot.purchase_date} is after the first day of the horizon"
            )


class SeparatePooling(Value):
    """Training and serving each have a pool of their own."""

    kind: Literal["separate"]
    """Kind of pooling."""
    fleet_gpu_count: Count | None = None
    """Size of the fleet, rounded up to whole instances: serving holds its peak, and runs queue for
    the rest of it; null gives each run GPUs of its own."""


class SharedPooling(Value):
    """Serving takes what each hour needs, training the rest."""

    kind: Literal["shared"]
    """Kind of pooling."""
    fleet_gpu_count: Count | None = None
    """Size of the fleet, rounded up to whole instances; null asks for the smallest that serves
    every hour and ends each run."""


Pooling = TypeAliasType(
    "Pooling", Annotated[SeparatePooling | SharedPooling, Field(discriminator="kind")]
)
"""How training and serving share GPUs."""


class Scenario(Value):
    """The whole question of a plan."""

    horizon: Horizon
    """Months that the plan covers."""
    currency: Currency = "USD"
    """Currency of all amounts; prices in another one are refused."""
    training_runs: Annotated[tuple[TrainingRun, ...], Field(max_length=50)] = ()
    """Runs to train."""
    serving_services: Annotated[tuple[ServingService, ...], Field(max_length=50)] = ()
    """Services to run."""
    pooling: Pooling
    """How the two share GPUs."""
    procurement: Annotated[tuple[ProcurementRule, ...], Field(min_length=1, max_length=50)]
    """How GPUs are paid for: the first rule that matches a pool and GPU holds."""
    price_book: Key | None = None
    """Price book of the team whose negotiated prices stand above the catalog's; null takes none."""
    existing_gpus: Annotated[tuple[ExistingGpus, ...], Field(max_length=50)] = ()
    """GPUs that are owned already: used first, in this order, and in pools apart by serving before
    training; the rules above pay for what a plan adds. What no pool needs is left out. Lines split
    what a pool's hours did, idle ones included, over both in proportion to their hours."""
    assumption_overrides: Annotated[
        dict[AssumptionName, Number], Field(max_length=200, default_factory=dict)
    ]
    """Other values for named assumptions of the catalog."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_workloads(self.horizon, self.training_runs, self.serving_services)
        check_existing(self.horizon, self.existing_gpus)
        return self
