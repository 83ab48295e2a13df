"""Question and answer of sizing a service over many kinds of GPU."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from service.core.answers import EstimateAnswer, PricedQuestion
from service.core.estimates import Infeasibility, Range
from service.core.prices import Commitment
from service.core.scenarios.demand import DemandProfile, Load
from service.core.scenarios.refs import ArchitectureRef
from service.core.scenarios.replica_settings import ReplicaLayout, ReplicaSettings
from service.core.scenarios.serving_service import Headroom, Objectives, check_busy_moments
from service.core.serving.hosted_types import Hosted
from service.core.serving.questions import ServedModel
from service.core.value import (
    Amount,
    EntryName,
    Fraction,
    Key,
    LongText,
    Price,
    Size,
    Text,
    Value,
)


class SizeSpeculation(Value):
    """A draft whose tokens the served model checks."""

    draft_tokens: Annotated[Size, Field(le=32)] = 3
    """Tokens drafted before each check."""
    acceptance_fraction: Fraction = 0.7
    """Chance that a drafted token is accepted."""


class Optimisations(Value):
    """What could be changed; each is priced as a line."""

    weight_format: EntryName | None = "fp8"
    """Narrower weights to try; none when null."""
    kv_cache_format: EntryName | None = "fp8"
    """Narrower cache to try; none when null."""
    prefix_cache_hit_fraction: Annotated[Fraction, Field(lt=1)] = 0.5
    """Share of prompts that a prefix cache would hold; none when 0."""
    speculation: SizeSpeculation | None = SizeSpeculation()
    """Speculative decoding to try; that of its own defaults when left out, none when null."""
    distilled_architecture: ArchitectureRef | None = None
    """Smaller model that could serve instead; none when null."""


def _of_one_hour(headroom: Headroom) -> Headroom:
    """Refuse causes that a size of one busy hour would silently leave out."""
    for cause in ("failures", "cold_start"):
        if getattr(headroom, cause) is not None:
            raise ValueError(f"{cause} is held in plans and in estimates of pools, not in a size")
    return headroom


class ServingSizeQuestion(ReplicaSettings, ServedModel, PricedQuestion):
    """The cheapest layout, batch and number of replicas for a load, over kinds of GPU."""

    load: Load
    """Demand."""
    demand_profile: DemandProfile = "flat"
    """Shape of the day: turns the peak into a mean and a day's tokens into a peak."""
    objectives: Objectives | None = None
    """Latencies to hold; throughput alone when null."""
    headroom: Annotated[Headroom, AfterValidator(_of_one_hour)] = Headroom()
    """What is held above the need; failures and cold starts hang on a layout and on the hours, so
    they are asked of a plan or of `/v1/estimates/pools`."""
    gpus: Annotated[tuple[EntryName, ...], Field(min_length=1, max_length=200)] | None = None
    """GPUs to compare, by catalog key; all of the catalog when null."""
    commitment: Commitment = "on_demand"
    """Terms of rent."""
    prices_per_gpu_hour: Annotated[dict[Key, Price], Field(max_length=200, default_factory=dict)]
    """Prices of GPUs in USD, by key; the cheapest usable offer of catalog and price book
    otherwise."""
    optimisations: Optimisations = Optimisations()
    """Changes whose effect is priced."""

    @model_validator(mode="after")
    def _check_load(self) -> Self:
        check_busy_moments(self.load, self.headroom)
        return self


class SizeOption(Value):
    """One kind of GPU at its cheapest."""

    gpu: Key
    """The GPU."""
    price_per_gpu_hour: Amount
    """Price that was used, USD."""
    price_source: Text
    """Offer that it comes from."""
    gpu_count_per_instance: int
    """GPUs rented at once; no group that talks in every layer is larger, racks apart."""
    layout: ReplicaLayout
    """How a copy of the model is spread."""
    prefill_copies: int
    """Copies of a replica that read prompts alone; 0 where each copy does both."""
    decode_copies: int
    """Copies of a replica that make answers."""
    gpu_count_per_replica: int
    """GPUs of one replica, all its copies."""
    running_requests: int
    """Requests that one replica runs at once at most."""
    units_per_s_per_replica: Range
    """Requests per second of one full replica."""
    tpot_mean_s: Range | None
    """Mean time between tokens; null for answers of one token, which have none."""
    ttft_p95_s: Range | None
    """95th percentile of the time to first token; null where it has none at this utilisation."""
    held_replica_count: int
    """Replicas held in the busiest hour, spare included."""
    gpu_count: int
    """GPUs of whole instances."""
    amount_per_hour: Amount
    """Cost of an hour, USD."""
    cost_per_million_tokens: float
    """USD for a million tokens, prompt and answer together, at the stated load."""
    cost_per_million_input_tokens: float
    """USD for a million prompt tokens: cost by the time that prompts take."""
    cost_per_million_output_tokens: float
    """USD for a million answer tokens: cost by the time that answers take."""
    joules_per_output_token: float | None
    """Energy of the held GPUs for each answer token; null where no power figure is known."""
    output_tokens_per_s_per_watt: float | None
    """Its inverse: answer tokens per second for each watt."""


class Rejected(Value):
    """A kind of GPU that does not serve, with the first limit that it hits."""

    gpu: Key
    """The GPU."""
    reason: Infeasibility
    """What ran out first, and by how much."""


class FrontierPoint(Value):
    """Throughput that a pace allows."""

    tokens_per_s_per_user: float
    """Interactivity: 1 / mean time between tokens."""
    output_tokens_per_s_per_gpu: float
    """Throughput of one GPU."""
    layout: ReplicaLayout
    """Layout that reaches it."""
    running_requests: int
    """Requests that run at once there."""


class Effect(Value):
    """What one optimisation is worth, on its own."""

    name: Literal[
        "weight_format", "kv_cache_format", "prefix_cache", "speculation", "distilled_model", "all"
    ]
    """What changes; "all" multiplies the others, capped."""
    cost_factor: float
    """Cost of a million tokens with it over that without it."""
    saved_per_month: Amount
    """USD of a mean month at the stated load."""
    note: LongText
    """What was changed, or why nothing was gained."""


class PowerCapCost(Value):
    """What a power cap takes in speed, and saves in energy, on the cheapest GPU."""

    power_cap_fraction: float
    """Power over the limit of the GPU."""
    compute_rate_fraction: float
    """Compute rate under the cap over that without."""
    units_per_s_fraction: float
    """Requests per second of a GPU under the cap over those without, each at its best batch."""
    energy_per_token_fraction: float
    """Energy of a token under the cap over that without."""


class ServingSizeAnswer(EstimateAnswer):
    """GPU types ranked by the cost of a million tokens at the stated load."""

    peak_requests_per_s: float
    """Load of the busiest hour."""
    mean_requests_per_s: float
    """Load of a mean hour."""
    options: tuple[SizeOption, ...]
    """What serves, the cheapest first."""
    rejected: tuple[Rejected, ...]
    """What does not serve, and why."""
    frontier: tuple[FrontierPoint, ...]
    """Throughput against interactivity on the cheapest GPU, best layouts alone."""
    effects: tuple[Effect, ...]
    """What each optimisation saves on the cheapest GPU."""
    power_cap: PowerCapCost | None
    """What the power cap takes and saves; null without a cap."""
    hosted: Hosted
    """Prices of hosted tokens of the same architecture beside the cheapest fleet."""
