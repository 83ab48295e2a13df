"""A question of size, resolved: its load, traffic and engine, and what each GPU is rented at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from service.core.costs.negotiated import NegotiatedOffer
from service.core.costs.offers import explain_missing_offer, offers_by_size
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.hours.service_demand import (
    busiest_and_mean_units_per_s,
    held_replicas_at_peak,
)
from service.core.planners.serving_question import (
    beside_of,
    compute_factor_of,
    objectives_of,
    traffic_of,
)
from service.core.prices import RentalPrice
from service.core.recorder import Recorder
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.many import ManyReplicas, Reaches, sweep_many
from service.core.replica.passes import Traffic
from service.core.replica.search import Objectives
from service.core.replica.shape import ReplicaShape
from service.core.replica.speed import COPIES_GAIN
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.replica_settings import ReplicaSettings
from service.core.scenarios.serving_service import ServingService
from service.core.serving.questions import as_service
from service.core.serving.size_types import ServingSizeQuestion
from service.core.snapshot import CatalogSnapshot

CURRENCY = "USD"
LONGEST_SOURCE = 200
"""Characters of a short text: a note of a price book may be longer."""


@dataclass(frozen=True)
class Offer:
    """What one GPU costs for an hour, and how many are rented at once."""

    price: Decimal
    gpu_multiple: int
    source: str
    verified: bool = True


@dataclass(frozen=True)
class Sizing:
    """A question with everything resolved that all GPUs share."""

    question: ServingSizeQuestion
    service: ServingService
    traffic: Traffic
    objectives: Objectives
    look: Lookup
    peak: float
    mean: float

    @property
    def recorder(self) -> Recorder:
        """Gives assumptions without remembering them."""
        return self.look.recorder

    def held(self, rate: Any) -> Any:
        """Replicas held at the peak by replicas of these capacities. [count]"""
        return held_replicas_at_peak(self.service, rate, month_count=1, recorder=self.recorder)

    def sweep(
        self,
        shapes: Sequence[ReplicaShape],
        *,
        settings: ReplicaSettings | None = None,
        objectives: Objectives | None = None,
        reaches: Reaches | None = None,
        columns: int | None = None,
    ) -> ManyReplicas:
        """Every legal layout on these GPUs, as the question says it or with other settings."""
        said = settings or self.service.replica
        traffic = self.traffic
        if settings is not None:
            changed = self.service.model_copy(update={"replica": said})
            traffic = traffic_of(changed, self.recorder, "")
        return sweep_many(
            shapes,
            look=self.look,
            traffic=traffic,
            objectives=objectives or self.objectives,
            settings=said,
            compute_factor=compute_factor_of(said, self.recorder),
            beside=beside_of(said, self.recorder, ""),
            reaches=reaches,
            columns=columns,
        )


def resolve_sizing(question: ServingSizeQuestion, gpu: Gpu, recorder: Recorder) -> Sizing:
    """Resolve what all GPUs share.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    service = as_service(
        question,
        gpu,
        settings=question.settings,
        objectives=question.objectives,
        headroom=question.headroom,
        load=question.load,
        demand_profile=question.demand_profile,
    )
    engine: Mapping[str, str] = {}
    if question.engine is not None:
        engine = engine_qualifiers(recorder.snapshot, question.engine, pointer="/engine")
    _check_keys(question, recorder.snapshot)
    compute_factor_of(question.settings, recorder)
    beside_of(question.settings, recorder, "")
    if question.settings.disaggregation is not None:
        recorder.assume(COPIES_GAIN)
    peak, mean = busiest_and_mean_units_per_s(service, recorder)
    return Sizing(
        question=question,
        service=service,
        traffic=traffic_of(service, recorder, ""),
        objectives=objectives_of(service),
        look=Lookup(recorder.off(), engine),
        peak=peak,
        mean=mean,
    )


def _check_keys(question: ServingSizeQuestion, snapshot: CatalogSnapshot) -> None:
    """Refuse keys that the catalog does not hold, also where nothing comes to use them."""
    for key in question.prices_per_gpu_hour:
        snapshot.gpu(key, pointer=f"/prices_per_gpu_hour/{key}")
    asked = question.optimisations
    for field in ("weight_format", "kv_cache_format"):
        name = getattr(asked, field)
        if name is not None:
            snapshot.number_format(name, pointer=f"/optimisations/{field}")
    if asked.distilled_architecture is not None:
        pointer = "/optimisations/distilled_architecture"
        distilled = snapshot.architecture(asked.distilled_architecture, pointer=pointer)
        if not distilled.has_layers:
            raise InvalidScenario(
                f"{distilled.name} is known by its published totals alone", pointer=pointer
            )


def rows_by_gpu(snapshot: CatalogSnapshot) -> Mapping[str, list[RentalPrice]]:
    """Rental prices of each GPU."""
    rows: dict[str, list[RentalPrice]] = {}
    for row in snapshot.rental_prices:
        rows.setdefault(row.gpu, []).append(row)
    return rows


def offers_of(
    question: ServingSizeQuestion, gpu: Gpu, rows: Sequence[RentalPrice], snapshot: CatalogSnapshot
) -> tuple[Offer, ...] | Infeasibility:
    """The cheapest usable offer of each size of instance, or why there is none."""
    given = question.prices_per_gpu_hour.get(gpu.key)
    if given is not None:
        return (Offer(given, gpu.node_gpu_count, "given in the request"),)
    method = RentMethod(kind="rent", commitment=question.commitment)
    found = offers_by_size(method, gpu=gpu, listed=rows, currency=CURRENCY, snapshot=snapshot)
    if found:
        return tuple(
            Offer(
                row.price_per_gpu_hour + (row.host_price_per_gpu_hour or Decimal(0)),
                row.gpu_count,
                row.described[:LONGEST_SOURCE]
                if isinstance(row, NegotiatedOffer)
                else f"{row.provider} {row.instance_type} {row.region}",
                row.provenance.verified,
            )
            for row in found
        )
    return Infeasibility(
        workload=None,
        code="no_price",
        limit=f"price of {gpu.name}",
        needed=None,
        available=None,
        unit=None,
        nearest_fix=explain_missing_offer(method, gpu=gpu, currency=CURRENCY, snapshot=snapshot),
    )
