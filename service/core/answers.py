"""What the question and the answer of every single estimate share; nothing of it is stored."""

from typing import Annotated, Any

from pydantic import Field

from service import __version__
from service.core.assumptions import AssumptionName, AssumptionUsed
from service.core.estimates import Advisory, Infeasibility, Quantity
from service.core.plans import ReleaseChoice
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import IsoDate, Number, Text, Value


class EstimateQuestion(Value):
    """Fields that every question has beside its own."""

    catalog_release: ReleaseChoice = "latest"
    """Release whose facts are used; comes back resolved."""
    as_of_date: IsoDate | None = None
    """Day whose dated facts are used; today (UTC) when null; comes back resolved."""
    assumption_overrides: Annotated[
        dict[AssumptionName, Number], Field(max_length=200, default_factory=dict)
    ]
    """Other values for named assumptions of the catalog."""


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
    return Recorder(
        snapshot,
        overrides=dict(question.assumption_overrides),
        scope="estimate",
        override_pointer="/assumption_overrides",
    )


def shared_fields(
    recorder: Recorder,
    *,
    infeasibilities: tuple[Infeasibility, ...] = (),
    advisories: tuple[Advisory, ...] = (),
) -> dict[str, Any]:
    """The shared fields of an answer, once everything that it stands on is recorded."""
    return {
        "catalog_release": recorder.snapshot.release,
        "as_of_date": recorder.snapshot.as_of_date,
        "engine_version": __version__,
        "feasible": not infeasibilities,
        "infeasibilities": infeasibilities,
        "advisories": advisories,
        "assumptions": recorder.assumptions(),
        "quantities": recorder.quantities(),
    }
