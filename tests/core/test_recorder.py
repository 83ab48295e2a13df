"""What a planner looks up and computes is kept, once, and only what makes sense is taken."""

from datetime import date

import pytest

from service.core.assumptions import Assumption
from service.core.errors import InvalidScenario, NoConstants
from service.core.recorder import GIVEN, Recorder, override_bounds
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import Provenance


def assumption(name, low, value, high):
    known = Provenance(sources=("a table",))
    return Assumption(
        name=name, topic="training", low=low, value=value, high=high, unit="1", provenance=known
    )


SNAPSHOT = CatalogSnapshot.build(
    release=ReleaseRef(version="2026.11.1", digest="sha256:0"),
    as_of_date=date(2026, 11, 29),
    assumptions=[
        assumption("speed", 0.2, 0.3, 0.4),
        assumption("speed.hopper", 0.4, 0.5, 0.6),
        assumption("spare", 0.0, 0.1, 0.2),
        assumption("nothing", 0.0, 0.0, 0.0),
        assumption("change", -0.3, 0.0, 0.1),
        assumption("used_fraction.large", 0.0, 0.8, 0.95),
        assumption("bf16_peak_fraction.fp8", 0.6, 0.74, 0.85),
    ],
)


def test_the_most_specific_assumption_is_used_and_remembered_once():
    recorder = Recorder(SNAPSHOT)
    assert recorder.assume("speed", "hopper", "bf16").value == 0.5
    assert recorder.assume("speed", "ada").value == 0.3
    recorder.within("run:a").assume("speed", "hopper")
    assert [used.name for used in recorder.assumptions()] == ["speed", "speed.hopper"]


def test_what_is_looked_up_in_a_sweep_is_not_remembered():
    recorder = Recorder(SNAPSHOT)
    recorder.off().assume("speed")
    assert recorder.assumptions() == ()


def test_an_unknown_constant_is_an_error_and_never_a_guess():
    with pytest.raises(NoConstants):
        Recorder(SNAPSHOT).assume("weight")


def test_a_given_value_is_listed_as_given():
    recorder = Recorder(SNAPSHOT)
    assert recorder.assume_given("spare", 0.5, override_at="/headroom") == 0.5
    assert recorder.assume_given("spare", None, override_at="/headroom") == 0.1
    sources = {used.override_at: used.source == GIVEN for used in recorder.assumptions()}
    assert sources == {"/headroom": True, "/scenario/assumption_overrides/spare": False}


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("speed", 0.2 / 1000, 0.4 * 1000),  # never zero: it divides
        ("spare", 0.0, 200.0),
        ("nothing", 0.0, 1000.0),
        ("change", -300.0, 100.0),
        ("used_fraction.large", 0.0, 1.0),  # a share of a whole
        ("bf16_peak_fraction.fp8", 0.0006, 850.0),  # a share of another precision's peak
    ],
)
def test_an_override_lies_within_a_factor_of_a_thousand(name, lowest, highest):
    assert override_bounds(SNAPSHOT.assumptions[name]) == pytest.approx((lowest, highest))
    for value in (lowest, highest):
        assert Recorder(SNAPSHOT, overrides={name: value}).assume(name).value == value
    for value in (lowest - 1e-6, highest * 1.001, -1e30, 1e30):
        with pytest.raises(InvalidScenario) as refused:
            Recorder(SNAPSHOT, overrides={name: value})
        assert refused.value.pointer == f"/scenario/assumption_overrides/{name}"
