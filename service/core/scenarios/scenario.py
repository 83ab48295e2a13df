"""The question: what must run, how the fleet is shared, how it is bought, over which months."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from service.core.assumptions import AssumptionName
from service.core.formulas.calendar import month_index, month_of
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
    def months(self) -> tuple[str, ...]:
        """All months in order."""
        first = month_index(self.start_month)
        return tuple(month_of(first + offset) for offset in range(self.month_count))


class SeparatePooling(Value):
    """Training and serving each have a pool of their own."""

    kind: Literal["separate"]
    """Kind of pooling."""


class SharedPooling(Value):
    """Serving takes what each hour needs, training the rest."""

    kind: Literal["shared"]
    """Kind of pooling."""
    fleet_gpu_count: Count | None = None
    """Size of the fleet; null asks for the smallest that serves every hour and ends each run."""


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
    assumption_overrides: Annotated[
        dict[AssumptionName, Number], Field(max_length=200, default_factory=dict)
    ]
    """Other values for named assumptions of the catalog."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [run.name for run in self.training_runs]
        names += [service.name for service in self.serving_services]
        if not names:
            raise ValueError("at least one training run or serving service is needed")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"workload names are not unique: {', '.join(map(repr, repeated))}")
        for service in self.serving_services:
            first = service.first_month or self.horizon.start_month
            last = service.last_month or self.horizon.last_month
            if not self.horizon.start_month <= first <= last <= self.horizon.last_month:
                raise ValueError(f"{service.name!r}: first_month..last_month is not in the horizon")
        return self
