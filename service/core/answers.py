"""What the question and the answer of every single estimate share; nothing of it is stored."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from service import __version__
from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import AssumptionName, AssumptionUsed
from service.core.estimates import Advisory, Infeasibility, Quantity
from service.core.plans import ReleaseChoice
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import IsoDate, Key, Number, Provenance, Text, Value

ENTRY_FIELDS = {
    "gpu": "gpus",
    "gpus": "gpus",
    "ranked_gpus": "gpus",
    "architecture": "architectures",
    "site": "sites",
    "weight_format": "formats",
    "kv_cache_format": "formats",
}
"""Field of a question that names entries -> the entries of the snapshot that it names."""


DESCRIPTIVE_FIELDS = {
    "published_parameter_count",
    "published_active_parameter_count",
    "released",
    "licence",
}
"""Fields of an architecture that are only compared or shown where its layers are known."""


class EstimateQuestion(Value):
    """Fields that every question has beside its own."""

    asked_less: ClassVar[str] = "fewer candidates, or give layouts and speeds"
    """What to ask for instead where an answer is not done in time."""
    catalog_release: ReleaseChoice = "latest"
    """Release whose facts are used; comes back resolved."""
    as_of_date: IsoDate | None = None
    """Day whose dated facts are used; today (UTC) when null; comes back resolved."""
    assumption_overrides: Annotated[
        dict[AssumptionName, Number], Field(max_length=200, default_factory=dict)
    ]
    """Other values for named assumptions of the catalog."""


class PricedQuestion(EstimateQuestion):
    """A question whose rented GPUs may have prices that the team has negotiated."""

    price_book: Key | None = None
    """Price book of the team whose negotiated prices stand above the catalog's; null takes none."""


class EstimateAnswer(Value):
    """Fields that every answer has beside its own."""

    catalog_release: ReleaseRef
    """Release that was used."""
    as_of_date: IsoDate
    """Day whose dated facts were used."""
    engine_version: Text
    """Version of the program that computed it."""
    feasible: bool
    """False when anything ran out."""
    infeasibilities: tuple[Infeasibility, ...]
    """What ran out, by how much, and what would work."""
    advisories: tuple[Advisory, ...]
    """What a reader should know beside the numbers."""
    assumptions: tuple[AssumptionUsed, ...]
    """Every assumption that was used, once each."""
    quantities: tuple[Quantity, ...]
    """Numbers that the answer stands on, with their formulas."""


def recorder_for(question: EstimateQuestion, snapshot: CatalogSnapshot) -> Recorder:
    """A recorder over a snapshot with the overrides of a question.

    Raises:
        InvalidScenario: If an override names no assumption of the release.
    """
    recorder = Recorder(
        snapshot,
        overrides=dict(question.assumption_overrides),
        scope="estimate",
        override_pointer="/assumption_overrides",
    )
    for key, provenance in entries_named(question, snapshot):
        recorder.rest_on(key, provenance)
    return recorder


def entries_named(asked: Any, snapshot: CatalogSnapshot) -> Iterator[tuple[str, Provenance]]:
    """Every entry of the catalog that a question names, at any depth, with its provenance."""
    if isinstance(asked, tuple):
        for each in asked:
            yield from entries_named(each, snapshot)
    if not isinstance(asked, BaseModel):
        return
    for field, value in asked:
        if field not in ENTRY_FIELDS:
            yield from entries_named(value, snapshot)
            continue
        entries: Mapping[str, Any] = getattr(snapshot, ENTRY_FIELDS[field])
        for key in value if isinstance(value, tuple) else (value,):
            if isinstance(key, str) and key in entries:
                yield key, _as_used(entries[key])


def _as_used(entry: Any) -> Provenance:
    """Where an entry comes from, without the fields that no planner reads."""
    provenance: Provenance = entry.provenance
    if not isinstance(entry, ModelArchitecture) or not entry.has_layers:
        return provenance
    used = set(provenance.unverified_fields) - DESCRIPTIVE_FIELDS
    return provenance.model_copy(update={"unverified_fields": tuple(sorted(used))})


def unverified_facts(names: Iterable[str]) -> Advisory | None:
    """What an answer uses and rests on memory or on one weak source."""
    listed = "; ".join(sorted(set(names)))
    if not listed:
        return None
    return Advisory(
        code="unverified_facts",
        workload=None,
        message=f"Found in no second place, check before an order: {listed}"[:2000],
    )


def shared_fields(
    recorder: Recorder,
    *,
    infeasibilities: tuple[Infeasibility, ...] = (),
    advisories: tuple[Advisory, ...] = (),
) -> dict[str, Any]:
    """The shared fields of an answer, once everything that it stands on is recorded."""
    unverified = unverified_facts(recorder.unverified())
    return {
        "catalog_release": recorder.snapshot.release,
        "as_of_date": recorder.snapshot.as_of_date,
        "engine_version": __version__,
        "feasible": not infeasibilities,
        "infeasibilities": infeasibilities,
        "advisories": (*advisories, *([unverified] if unverified else ())),
        "assumptions": recorder.assumptions(),
        "quantities": recorder.quantities(),
    }
