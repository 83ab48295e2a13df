"""Pure answers of the planners: numbers with ranges, or the stated reason why there are none."""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from service.core.estimates.held import ExistingUse as ExistingUse
from service.core.estimates.held import HeadroomCause as HeadroomCause
from service.core.estimates.held import HeadroomPart as HeadroomPart
from service.core.estimates.held import PoolSize as PoolSize
from service.core.estimates.held import ServingCounts as ServingCounts
from service.core.estimates.lines import CostCategory as CostCategory
from service.core.estimates.lines import CostLine as CostLine
from service.core.estimates.lines import PurchaseKind as PurchaseKind
from service.core.estimates.lines import Use as Use
from service.core.estimates.lines import WorkloadKind as WorkloadKind
from service.core.parallelism import ParallelLayout
from service.core.prices import PriceBookUsed
from service.core.units import Per, Unit
from service.core.value import NO_NUL, Amount, Currency, LongText, Month, Text, Value

Verdict = Literal["green", "amber", "red"]
"""Memory use against what programs can address: below 80 %, below 95 %, above."""
InfeasibilityCode = Literal[
    "memory",
    "context",
    "no_price",
    "ttft",
    "tpot",
    "deadline",
    "budget",
    "layout",
    "format",
    "fleet",
    "no_constants",
]
"""What ran out."""
AdvisoryCode = Literal[
    "training_sized_from_serving",
    "activations_outgrow_state",
    "serving_judged_by_utilization",
    "serving_overtakes_training",
    "no_price_change_assumed",
    "unverified_facts",
    "wide_band",
    "stale_price",
    "no_objectives",
    "short_trace",
    "hosted_break_even",
    "speed_models_disagree",
    "implausible_measurement",
    "price_unknown",
    "deadline_may_be_missed",
    "decoding_not_counted",
    "carbon_unknown",
    "memory_not_checked",
    "memory_may_not_fit",
    "published_runs_book_more",
]
"""Closed list of what a reader should know beside the numbers."""


Scope = Annotated[str, Field(min_length=1, max_length=300, pattern=NO_NUL)]
"""plan, pool:NAME, run:NAME or service:NAME; longer than the longest name."""


class Range(Value):
    """An uncertain number: typical value between its 10th and 90th percentile."""

    value: float
    """Typical value."""
    low: float
    """10th percentile."""
    high: float
    """90th percentile."""

    @classmethod
    def exactly(cls, value: float) -> Self:
        """A number without uncertainty."""
        return cls(value=value, low=value, high=value)


class Quantity(Value):
    """One number that an answer stands on, with everything needed to recompute it."""

    scope: Scope
    """plan, pool:NAME, run:NAME or service:NAME."""
    name: Text
    """Published name; its unit is part of the name or stands beside it."""
    value: float | None
    """Typical value; null when it is unbounded."""
    low: float | None
    """10th percentile; equal to the value where it is exact or no range is stated."""
    high: float | None
    """90th percentile; equal to the value where it is exact or no range is stated."""
    unit: Unit
    """Unit of the three values."""
    per: Per
    """What one value belongs to."""
    formula: LongText
    """Equation that made it."""
    inputs: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Numbers that went in, by the names of the formula."""
    sources: tuple[LongText, ...] = ()
    """References of the equation."""


class Infeasibility(Value):
    """What ran out, by how much, and the nearest thing that works."""

    workload: Text | None
    """Name of the run or service; null when the whole plan is meant."""
    code: InfeasibilityCode
    """What ran out."""
    limit: Text
    """Name of the limit that was hit."""
    needed: float | None
    """What was needed; null where the limit is not a number."""
    available: float | None
    """What there was; null where the limit is not a number."""
    unit: Text | None
    """Unit of both."""
    nearest_fix: LongText
    """Smallest change that makes it work, with numbers."""


class Advisory(Value):
    """Something that a reader should know beside the numbers."""

    code: AdvisoryCode
    """What it is about."""
    workload: Text | None
    """Name of the run or service; null when the whole plan is meant."""
    message: LongText
    """What it means for this plan."""


class TrainingMemory(Value):
    """Memory of the fullest GPU of a run in GiB."""

    weights: float
    """Weights that compute uses."""
    gradients: float
    """Gradients."""
    optimizer: float
    """Master copy and moments."""
    activations: float
    """Kept for the backward pass."""
    logits: float
    """Outputs over the vocabulary, in the precision of the loss."""
    overhead: float
    """Context, collectives, fragmentation."""
    total: float
    """Sum of the parts."""
    total_low: float | None = None
    """10th percentile of the peaks that such runs were measured at; null in plans that were made
    before it was told."""
    total_high: float | None = None
    """90th percentile of the same."""
    available: float
    """What programs can address."""
    verdict: Verdict
    """Total against available: green below 80 %, amber below 95 %, red above. Of measured runs
    nine in ten peak below the estimate over 0.80, so a green one fits; about six in ten below the
    estimate over 0.95: at the upper end of amber measure a step first."""


class ServingMemory(Value):
    """Memory of one GPU of a replica in GiB."""

    weights: float
    """Weights."""
    kv_cache: float
    """Pool that is left for the cache."""
    overhead: float
    """Context, activations of prefill, engine."""
    available: float
    """What programs can address."""


SpeedBasis = Literal["mechanism", "table", "mfu", "hfu", "measured"]
"""What a training speed rests on: the terms of a step, a table of shares of the peak where their
constants are not known, or what was given."""


class TrainingRunEstimate(Value):
    """What one run needs."""

    name: Text
    """Name of the run."""
    training_tokens: int | None = None
    """Tokens that it trains on, as given or solved for; null in plans that were made before it was
    told."""
    start_date: date | None = None
    """Day on which it starts; null in plans that were made before it was told."""
    gpu_count: int
    """GPUs that the run takes when it has them to itself; in a shared pool it takes more or fewer
    from hour to hour."""
    layout: ParallelLayout | None
    """How the model is spread; null when the architecture was not given."""
    memory_gib_per_gpu: TrainingMemory | None
    """Memory of the fullest GPU; null when the layers of the architecture are not known."""
    model_flops: float | None
    """FLOP of the whole run by `mfu_convention`; null when the architecture was not given."""
    mfu_fraction: float | None
    """Model FLOPs over the dense peak of the compute precision."""
    mfu_convention: Literal["6P", "4P"]
    """Which FLOPs the numerator counts: 6 a parameter and token, 4 where adapters leave the
    parameters frozen, whose gradients are not computed."""
    speed_basis: SpeedBasis | None = None
    """What the speed rests on; null in plans that were made before it was told."""
    steady_hours: float
    """Hours on `gpu_count` GPUs at steady speed without any failure, times the run multiplier."""
    goodput_fraction: float
    """Share of the time on GPUs of its own that makes progress; redo after preemptions in a shared
    pool is not in it but in the pool's `redo_gpu_hours`."""
    wall_clock_hours: Range
    """Hours from start to finish, in a shared pool with the hours in which the run stands.

    Of a run that would outlive the horizon, what it would take: on GPUs of its own, or in a fleet
    of a given size at its mean pace within the horizon, at most to the end of the year 2100."""
    wall_clock_days: float
    """The same in days."""
    finish_date: date
    """Day on which the run ends, or would end if the horizon were long enough."""
    gpu_hours: float
    """GPU-hours that the run holds: `gpu_count` times wall clock on GPUs of its own; in a shared
    pool the sum over its hours of the GPUs that it takes, redo after preemptions included."""
    checkpoint_bytes: float | None
    """Size of one full checkpoint."""
    amount: Amount | None
    """Cost of the run over the horizon: its own lines, and its part of those in nobody's name
    (`workload` null), split by the GPUs that each workload holds at its peak. The amounts of all
    runs and services are together `totals.amount`; null in an infeasible plan."""


class ServingServiceEstimate(Value):
    """What one service needs."""

    name: Text
    """Name of the service."""
    layout: ParallelLayout | None
    """How a replica is spread; null when capacity was measured."""
    gpu_count_per_replica: int
    """GPUs of one replica."""
    units_per_s_per_replica: float
    """What one replica serves at full utilisation."""
    needed_replica_count_peak: int
    """Replicas that the busiest hour needs."""
    held_replica_count: int
    """Replicas with their spare."""
    headroom: tuple[HeadroomPart, ...] = ()
    """What is held above the need in the busiest hour, by cause: the parts and the need are
    together what is held."""
    gpu_count: int
    """GPUs of the service, rounded up to whole instances or nodes when it has its own pool."""
    memory_gib_per_gpu: ServingMemory | None
    """Memory of one GPU; null when capacity was measured."""
    kv_cache_tokens_per_replica: int | None
    """Tokens that fit into the cache of one replica."""
    concurrency_per_replica: int | None
    """Requests that run at once on one replica."""
    ttft_p95_s: Range | None
    """95th percentile of the time to first token."""
    tpot_mean_s: Range | None
    """Mean time per output token."""
    amount: Amount | None
    """Cost of the service over the horizon: its own lines, and its part of those in nobody's name
    (`workload` null), split by the GPUs that each workload holds at its peak. The amounts of all
    runs and services are together `totals.amount`; null in an infeasible plan."""
    cost_per_million_tokens: Amount | None
    """Cost over all tokens, prompt and answer together."""
    cost_per_million_output_tokens: Amount | None
    """The same cost over the answer's tokens only."""
    cost_per_million_input_tokens: Amount | None = None
    """The same cost over the prompt's tokens only."""
    hosted_by: Text | None = None
    """Provider whose tokens are bought in place of GPUs; then every count of GPUs is 0."""


class PlanMonth(Value):
    """Totals of one month."""

    month: Month
    """Calendar month."""
    hours: int
    """Its length."""
    training_gpu_count: int
    """Most GPUs that training holds in it, in an owned pool of its own all of them."""
    serving_gpu_count: int
    """Most GPUs that serving holds in it, in an owned pool of its own all of them."""
    gpu_hours: float
    """GPU-hours that are paid for."""
    amount: Amount
    """Sum of its lines."""


class PlanTotals(Value):
    """Totals of a plan: sums of the rounded lines."""

    peak_gpu_count: int
    """Most GPUs held at once."""
    gpu_hours: float
    """GPU-hours that are paid for."""
    amount: Amount
    """Accrual view."""
    cash_amount: Amount
    """Cash view."""
    currency: Currency
    """Currency of all amounts."""
    training_amount: Amount
    """Part of `amount` that training causes: the sum of its runs."""
    serving_amount: Amount
    """Part of `amount` that serving causes: the sum of its services."""


class FleetEstimate(Value):
    """The whole answer to a scenario, before it becomes a plan."""

    feasible: bool
    """False when anything ran out."""
    infeasibilities: tuple[Infeasibility, ...]
    """What ran out."""
    advisories: tuple[Advisory, ...]
    """What a reader should know."""
    totals: PlanTotals | None
    """Totals; null when infeasible."""
    existing: ExistingUse | None = None
    """Use of existing GPUs; null without any, or when infeasible."""
    pools: tuple[PoolSize, ...]
    """Pools; empty when infeasible."""
    training_runs: tuple[TrainingRunEstimate, ...]
    """Runs that could be estimated."""
    serving_services: tuple[ServingServiceEstimate, ...]
    """Services that could be estimated."""
    months: tuple[PlanMonth, ...]
    """Totals by month; empty when infeasible."""
    lines: Annotated[tuple[CostLine, ...], Field(repr=False)]
    """Priced lines; empty when infeasible."""
    quantities: Annotated[tuple[Quantity, ...], Field(repr=False)]
    """Numbers that the answer stands on."""
    price_book: PriceBookUsed | None = None
    """The team's price book, with the rows that are used; null where the scenario names none."""
