"""Every published advisory code, raised where it should be and silent where it should not."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import get_args

import pytest

from service.core import answers
from service.core.advice import advisories, run_advisories
from service.core.answers import unverified_facts
from service.core.assumptions import Assumption
from service.core.estimates import (
    AdvisoryCode,
    CostLine,
    PoolSize,
    Range,
    TrainingMemory,
    TrainingRunEstimate,
)
from service.core.hardware import Gpu, PeakRates
from service.core.recorder import Recorder
from service.core.scenarios.serving_service import ServingService
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import Provenance

GIB = 2**30
GPU = Gpu(name="80 GB part", memory_gb=80, memory_bandwidth_gb_per_s=3350, peak_tflops=PeakRates())
NO_CHANGE = Assumption(
    name="price_change_per_year_fraction",
    topic="finance",
    value=0.0,
    low=-0.3,
    high=0.1,
    unit="1",
    provenance=Provenance(sources=("test",)),
)


def recorder(*assumptions, **overrides):
    snapshot = CatalogSnapshot.build(
        release=ReleaseRef(version="2026.11.1", digest="sha256:0"),
        as_of_date=date(2026, 11, 29),
        assumptions=assumptions,
    )
    return Recorder(snapshot, overrides=overrides)


def line(**changes):
    start = datetime(2027, 1, 1, tzinfo=UTC)
    fields = {
        "line_number": 1,
        "month": "2027-01",
        "charge_period_start": start,
        "charge_period_end": start,
        "pool": "serving",
        "workload_kind": "serving",
        "workload": "chat",
        "use": "used",
        "category": "gpu_rental",
        "gpu": "inline",
        "provider": None,
        "region": None,
        "site": None,
        "purchase_kind": "on_demand",
        "quantity": Decimal("1.000000"),
        "unit": "gpu_hour",
        "unit_price": Decimal("2.00"),
        "amount": Decimal("2.00"),
        "cash_amount": Decimal("2.00"),
        "currency": "USD",
        "gpu_count": 8,
        "formula": "hours",
        "price_source": "a price list",
        "price_as_of_date": date(2026, 11, 1),
        "price_verified": True,
    }
    return CostLine(**(fields | changes))


def run_facts(gpu_count, *, llama_70b, memory=None):
    run = TrainingRun(
        name="run",
        architecture=llama_70b,
        gpu=GPU,
        training_tokens=10**12,
        sizing={"kind": "gpu_count", "gpu_count": gpu_count},
    )
    return advisories.RunFacts(run, llama_70b, GPU, 79.18 * GIB, memory)


@pytest.fixture
def llama_70b():
    from service.core.architecture.attention import FullAttention
    from service.core.architecture.model import DenseFeedForward, LayerGroup, ModelArchitecture

    attention = FullAttention(num_attention_heads=64, num_key_value_heads=8, head_dim=128)
    return ModelArchitecture(
        name="70B",
        hidden_size=8192,
        vocab_size=128256,
        tie_word_embeddings=False,
        layer_groups=(
            LayerGroup(
                count=80,
                attention=attention,
                feed_forward=DenseFeedForward(intermediate_size=28672),
            ),
        ),
    )


# 70.55e9 parameters: weights 2 B = 131.4 GiB, state 16 B = 1051 GiB; a GPU gives 79.18 GiB.
@pytest.mark.parametrize(
    ("gpu_count", "raised"),
    [(1, False), (2, True), (13, True), (14, False)],  # 13·79.18 = 1029, 14·79.18 = 1108
)
def test_training_on_a_fleet_that_only_serving_fits_is_pointed_out(gpu_count, raised, llama_70b):
    found = advisories.training_sized_from_serving(run_facts(gpu_count, llama_70b=llama_70b))
    assert (found is not None) == raised
    assert not raised or found.code == "training_sized_from_serving"


def test_activations_above_the_state_are_pointed_out(llama_70b):
    def facts(activations):
        memory = TrainingMemory(
            weights=2,
            gradients=2,
            optimizer=12,
            activations=activations,
            logits=1,
            overhead=1,
            total=18 + activations,
            available=79,
            verdict="green",
        )
        estimate = TrainingRunEstimate.model_construct(memory_gib_per_gpu=memory)
        return run_facts(512, llama_70b=llama_70b, memory=estimate)

    # The state is 2 + 2 + 12 = 16 GiB.
    found = advisories.activations_outgrow_state(facts(16.1))
    assert found is not None
    assert found.code == "activations_outgrow_state"
    assert advisories.activations_outgrow_state(facts(16)) is None


def test_memory_whose_high_end_exceeds_the_card_is_pointed_out():
    def memory(high):
        held = dict.fromkeys(("weights", "gradients", "optimizer", "activations"), 17.0)
        return TrainingMemory(
            **held,
            logits=1,
            overhead=1,
            total=70,
            total_low=64,
            total_high=high,
            available=79,
            verdict="amber",
        )

    found = advisories.memory_may_not_fit("run", memory(79.1))
    assert found is not None
    assert found.code == "memory_may_not_fit"
    assert "64.0 and 79.1" in found.message
    assert advisories.memory_may_not_fit("run", memory(79)) is None
    assert advisories.memory_may_not_fit("run", None) is None


def test_low_use_of_a_serving_pool_is_explained_and_high_use_is_not():
    def pool(used):
        return PoolSize(
            name="serving",
            gpu="inline",
            site=None,
            gpu_count=8,
            node_count=1,
            allocated_gpu_hours=100,
            used_gpu_hours=used,
            idle_gpu_hours=100 - used,
            mean_over_peak_fraction=0.5,
            preempted_gpu_count_per_day=0,
        )

    low = advisories.serving_judged_by_utilization(pool(59), threshold=0.6)
    assert low is not None
    assert low.code == "serving_judged_by_utilization"
    assert advisories.serving_judged_by_utilization(pool(60), threshold=0.6) is None


def test_the_month_in_which_serving_overtakes_training_is_named():
    months = ("2027-01", "2027-02", "2027-03")
    # Cumulative: training 100, 100, 100; serving 40, 80, 120.
    found = advisories.serving_overtakes_training(months, (100, 0, 0), (40, 40, 40))
    assert found is not None
    assert found.code == "serving_overtakes_training"
    assert "2027-03" in found.message
    assert advisories.serving_overtakes_training(months, (200, 0, 0), (40, 40, 40)) is None
    assert advisories.serving_overtakes_training(months, (0, 0, 0), (40, 40, 40)) is None


def test_a_flat_price_is_said_and_a_given_change_is_not():
    said = advisories.no_price_change_assumed(recorder(NO_CHANGE))
    assert said is not None
    assert said.code == "no_price_change_assumed"
    changed = recorder(NO_CHANGE, price_change_per_year_fraction=-0.1)
    assert advisories.no_price_change_assumed(changed) is None


def test_facts_from_memory_are_named():
    weak = recorder()
    weak.rest_on("h100", Provenance(unverified_fields=("scale_up_domain_gpu_count", "memory_gb")))
    weak.rest_on("site", Provenance(unverified_fields=("tariff", "carbon")), "tariff")
    weak.rest_on("phi", Provenance(verified=False))
    weak.rest_on("node", Provenance(verified=False, unverified_fields=("network",)), "power")
    weak.rest_on_price("a price list", verified=False)
    weak.off().rest_on("swept", Provenance(verified=False))
    found = unverified_facts(weak.unverified())
    assert found is not None
    assert found.code == "unverified_facts"
    listed = found.message.partition(": ")[2]
    assert listed == (
        "h100.memory_gb; h100.scale_up_domain_gpu_count; node.power; phi; price: a price list; "
        "site.tariff"
    )


def test_facts_from_two_sources_are_not_named():
    sound = recorder()
    sound.rest_on("x", Provenance())
    sound.rest_on_price("a price list", verified=True)
    assert unverified_facts(sound.unverified()) is None


def test_a_band_wider_than_two_is_pointed_out():
    found = advisories.wide_band("run", "hours", Range(value=10, low=5, high=10.1))
    assert found is not None
    assert found.code == "wide_band"
    assert advisories.wide_band("run", "hours", Range(value=10, low=5, high=10)) is None


def test_a_price_older_than_a_year_is_pointed_out():
    as_of = date(2026, 11, 29)
    old = advisories.stale_price([line(price_as_of_date=date(2025, 11, 28))], as_of_date=as_of)
    assert old is not None
    assert old.code == "stale_price"
    assert (
        advisories.stale_price([line(price_as_of_date=date(2025, 11, 29))], as_of_date=as_of)
        is None
    )


def test_a_service_without_objectives_is_pointed_out():
    fields = {
        "name": "chat",
        "gpu": GPU,
        "load": {"kind": "peak_requests", "peak_requests_per_s": 1},
        "capacity": {
            "kind": "measured",
            "units_per_s_per_replica": 1,
            "gpu_count_per_replica": 1,
        },
    }
    found = advisories.no_objectives(ServingService(**fields))
    assert found is not None
    assert found.code == "no_objectives"
    held = ServingService(**fields, objectives={"ttft_p95_s": 2})
    assert advisories.no_objectives(held) is None


def test_two_speeds_far_apart_are_told_from_two_near_ones():
    # 935 against 1,496 is a factor of 1.6 to the digit; the table above the terms counts as much.
    far = advisories.speed_models_disagree("pretrain", 935, 1497, threshold=1.6)
    assert far is not None
    assert (far.code, far.workload) == ("speed_models_disagree", "pretrain")
    assert "935" in far.message
    assert advisories.speed_models_disagree("pretrain", 1497, 935, threshold=1.6) is not None
    assert advisories.speed_models_disagree("pretrain", 935, 1496, threshold=1.6) is None
    assert advisories.speed_models_disagree("pretrain", 935, None, threshold=1.6) is None


def test_a_reported_number_outside_of_the_band_is_implausible():
    band = Range(value=900, low=750, high=1000)
    found = advisories.implausible_measurement("pretrain", "a speed", 2100, band)
    assert found is not None
    assert (found.code, found.workload) == ("implausible_measurement", "pretrain")
    # 80 % are 1.2816 standard deviations to either side, 99 % are 2.5758: the ends to the power
    # 2.0099 about the value. 900 · (750 / 900)^2.0099 = 623.9, 900 · (1000 / 900)^2.0099 = 1112.3.
    assert "624 to 1,112, where 99 of 100" in found.message.replace("623.9", "624")
    assert "eight of ten: 750 to 1,000" in found.message
    for likely in (625, 750, 1000, 1112):
        assert advisories.implausible_measurement("pretrain", "a speed", likely, band) is None
    for unlikely in (623, 1113):
        assert advisories.implausible_measurement("pretrain", "a speed", unlikely, band)


def test_hours_that_such_runs_book_beyond_the_counted_ones_are_told_with_the_factor_for_them():
    # 1,300 booked over 1,000 counted are 1.3; with a multiplier of 1.1 in them it is to be 1.43.
    booked = Range(value=1300, low=1100, high=2100)
    counted = {"booked": booked, "run_multiplier": 1.1}
    found = run_advisories.published_runs_book_more("pretrain", priced_gpu_hours=1000, **counted)
    assert (found.code, found.workload) == ("published_runs_book_more", "pretrain")
    for part in ("1,000 GPU-hours", "1.30 times", "1,300", "1,100 and 2,100", "multiplier of 1.43"):
        assert part in found.message
    for enough in (1299, 1300, 1500):
        said = run_advisories.published_runs_book_more("p", priced_gpu_hours=enough, **counted)
        assert said is None


def test_every_published_code_has_its_function():
    places = (advisories, run_advisories, answers)
    functions = {name for place in places for name in vars(place)}
    assert set(get_args(AdvisoryCode)) <= functions
