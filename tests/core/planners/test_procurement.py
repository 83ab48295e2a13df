"""Which price a pool is paid at, and which prices are never used."""

from datetime import date
from decimal import Decimal

import pytest
from pydantic import ValidationError

from service.core.assumptions import Assumption
from service.core.costs.terms import Rental
from service.core.errors import InvalidScenario, UnknownKey
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu, Node, PeakRates, Site
from service.core.planners.procurement import (
    check_procurement_rules,
    resolve_procurement,
)
from service.core.prices import PurchasePrice, RentalPrice
from service.core.recorder import Recorder
from service.core.scenarios.procurement import ProcurementRule
from service.core.snapshot import CatalogSnapshot, ReleaseRef
from service.core.value import Provenance

AS_OF = date(2026, 11, 29)
H100 = Gpu(
    key="h100",
    name="H100",
    memory_gb=80,
    memory_bandwidth_gb_per_s=3350,
    peak_tflops=PeakRates(bf16=989),
)
NODE = Node(key="hgx", name="HGX", gpu="h100", gpu_count=8, maximum_power_kw=10.2)
ASSUMED = {
    "spot_redo_fraction": 0.05,
    "useful_life_years": 5,
    "residual_fraction": 0.1,
    "server_price_usd_per_gpu": 8750,
    "network_price_usd_per_gpu": 2300,
    "support_fraction_per_year": 0.05,
    "staff_price_usd_per_gpu_month": 100,
    "power_load_fraction": 0.8,
    "idle_power_fraction": 0.3,
    "power_usage_effectiveness": 1.4,
    "power_price_usd_per_kwh": 0.08,
    "colocation_price_usd_per_kw_month": 195,
}
FRANKFURT = Site(
    key="frankfurt",
    name="Frankfurt",
    power_price_per_kwh=0.19,
    currency="EUR",
    power_usage_effectiveness=1.3,
)
OHIO = Site(
    key="ohio",
    name="Ohio",
    power_price_per_kwh=0.079,
    power_usage_effectiveness=1.2,
    provenance=Provenance(sources=("EIA",), checked=AS_OF),
)


def offer(provider="aws", price="6.88", **facts):
    facts = {
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "gpu": "h100",
        "gpu_count": 8,
        "commitment": "on_demand",
        "valid_from": date(2026, 2, 1),
        **facts,
    }
    key = f"{provider}.{facts['region']}.{facts['instance_type'].lower()}.{facts['commitment']}"
    return RentalPrice(
        key=facts.pop("key", key), provider=provider, price_per_gpu_hour=price, **facts
    )


def bought(**facts):
    facts = {"key": "h100.node", "gpu": "h100", "includes": "node_share", **facts}
    return PurchasePrice(
        **{"low": "25000", "typical": "30000", "high": "35000", "valid_from": date(2026, 1, 1)}
        | facts
    )


def recorder(*offers, purchases=(), nodes=(NODE,), overrides=None):
    snapshot = CatalogSnapshot.build(
        release=ReleaseRef(version="2026.11.1", digest="sha256:0"),
        as_of_date=AS_OF,
        gpus=[H100],
        nodes=nodes,
        sites=[FRANKFURT, OHIO],
        assumptions=[
            Assumption(name=name, topic="finance", value=value, low=value, high=value, unit="1")
            for name, value in ASSUMED.items()
        ],
        rental_prices=offers,
        purchase_prices=purchases,
    )
    return Recorder(snapshot, overrides=overrides or {})


def rules(*methods, **facts):
    return [ProcurementRule.model_validate({"method": method, **facts}) for method in methods]


def resolve(rules_, catalog, *, pool="training", gpu=H100, currency="USD"):
    return resolve_procurement(
        rules_,
        pool=pool,
        gpu=gpu,
        currency=currency,
        recorder=catalog,
        pointer="/scenario/procurement",
    )


def rent(catalog, **method):
    found = resolve(rules({"kind": "rent", **method}), catalog)
    return found if isinstance(found, Infeasibility) else found.terms


def own(catalog, *, site=None, currency="USD", **method):
    found = resolve(rules({"kind": "own", **method}, site=site), catalog, currency=currency)
    return found if isinstance(found, Infeasibility) else found.terms


def test_the_first_rule_that_matches_holds():
    rule_list = [
        *rules({"kind": "rent", "price_per_gpu_hour": "1"}, pool="serving"),
        *rules({"kind": "rent", "price_per_gpu_hour": "2"}, gpu="a100"),
        *rules({"kind": "rent", "price_per_gpu_hour": "3"}, gpu="h100"),
        *rules({"kind": "rent", "price_per_gpu_hour": "4"}),
    ]
    catalog = recorder()
    assert resolve(rule_list, catalog).terms.gpu_hour.value == 3
    assert resolve(rule_list, catalog, pool="serving").terms.gpu_hour.value == 1
    assert resolve(rule_list[:2], catalog, pool="serving").terms.gpu_hour.value == 1


def test_a_pool_without_a_rule_has_no_price():
    found = resolve(rules({"kind": "rent", "price_per_gpu_hour": "1"}, pool="serving"), recorder())
    assert found.code == "no_price"
    assert found.limit == "procurement rule for h100 in the training pool"
    assert "none of the 1 given matches" in found.nearest_fix


def test_a_given_price_wins_over_the_catalog():
    terms = rent(recorder(offer()), provider="aws", price_per_gpu_hour="4.24")
    assert terms == Rental("aws", None, "on_demand", terms.gpu_hour)
    assert terms.gpu_hour.value == Decimal("4.24")
    assert terms.gpu_hour.source == "given in the request"
    assert terms.gpu_hour.verified


def test_the_price_is_looked_up_by_provider_region_instance_and_terms():
    catalog = recorder(
        offer(price="6.88"),
        offer(price="8.60", region="us-west-1"),
        offer(price="7.00", instance_type="p5.4xlarge", gpu_count=1),
        offer(price="2.20", commitment="spot"),
        offer(price="5.00", provider="azure", region="eastus"),
    )
    assert rent(catalog, provider="aws", region="us-west-1").gpu_hour.value == Decimal("8.60")
    assert rent(catalog, provider="aws", region="us-east-1").gpu_hour.value == Decimal("6.88")
    assert rent(catalog, instance_type="p5.4xlarge").gpu_hour.value == Decimal("7.00")
    assert rent(catalog, commitment="spot").gpu_hour.value == Decimal("2.20")


def test_without_a_provider_the_cheapest_offer_is_taken_and_named():
    terms = rent(recorder(offer(), offer(provider="azure", price="5.00", region="eastus")))
    assert (terms.provider, terms.region) == ("azure", "eastus")
    assert terms.gpu_hour.source.startswith("azure.eastus.")
    assert terms.gpu_hour.as_of_date == date(2026, 2, 1)


def test_without_an_instance_whole_nodes_come_before_cheaper_parts_of_one():
    """Tensor parallelism over 1-GPU instances would run on the network between them."""
    catalog = recorder(
        offer(price="6.88"),
        offer(provider="pod", region="any", instance_type="1x", gpu_count=1, price="2.29"),
        offer(provider="half", region="any", instance_type="4x", gpu_count=4, price="2.00"),
    )
    assert rent(catalog).provider == "aws"
    assert rent(catalog, provider="pod").gpu_hour.value == Decimal("2.29")
    assert rent(catalog, instance_type="4x").provider == "half"


def test_a_price_that_holds_everywhere_matches_any_region():
    terms = rent(recorder(offer(provider="lambda", price="4.29", region="any")), region="us-east-1")
    assert terms.gpu_hour.value == Decimal("4.29")


def test_a_price_that_is_not_in_force_is_not_used():
    catalog = recorder(
        offer(price="12.29", valid_from=date(2024, 1, 1), valid_to=date(2025, 5, 31)),
        offer(price="5.00", valid_from=date(2027, 1, 1)),
    )
    assert rent(catalog).code == "no_price"


def test_the_newest_price_of_an_offer_replaces_older_ones():
    catalog = recorder(
        offer(price="3.00", valid_from=date(2024, 1, 1)),
        offer(price="6.88", valid_from=date(2026, 2, 1)),
    )
    assert rent(catalog).gpu_hour.value == Decimal("6.88")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (
            {"billing_basis": "accelerator_only"},
            "accelerator only, the price of its host is not known",
        ),
        ({"quality": "suspect"}, "a suspect price"),
        (
            {"quality": "marketplace_minimum"},
            "the least price of a marketplace, not one that can be counted on",
        ),
        ({"quality": "memory"}, "from memory, used only when its provider is named"),
        ({"currency": "EUR"}, "priced in EUR, the plan in USD"),
    ],
)
def test_a_price_that_may_not_be_used_is_never_the_cheapest_and_is_named(facts, why):
    cheap = offer(provider="cheap", price="0.10", **facts)
    dear = offer(price="6.88", region="us-west-1")
    assert rent(recorder(cheap, dear)).gpu_hour.value == Decimal("6.88")

    refused = rent(recorder(cheap, dear), region="us-east-1")
    assert refused.code == "no_price"
    assert refused.limit == "price of h100 in the training pool"
    assert f"cheap.us-east-1.p5.48xlarge.on_demand ({why})." in refused.nearest_fix
    assert "provider aws, region us-west-1" in refused.nearest_fix
    assert "6.88 USD per GPU-hour" in refused.nearest_fix


def test_a_price_from_memory_is_used_where_its_provider_is_named_and_is_flagged():
    catalog = recorder(offer(provider="nebius", price="2.00", quality="memory"))
    assert not rent(catalog, provider="nebius").gpu_hour.verified
    better = offer(provider="nebius", price="3.00", region="eu", quality="third_party")
    terms = rent(recorder(*catalog.snapshot.rental_prices, better), provider="nebius")
    assert terms.gpu_hour.value == Decimal("3.00")
    assert terms.gpu_hour.verified


def test_a_host_that_is_billed_apart_is_a_price_of_its_own_and_counts():
    apart = offer(
        provider="gcp",
        price="6.00",
        host_price_per_gpu_hour="1.27",
        billing_basis="accelerator_only",
    )
    terms = rent(recorder(apart), provider="gcp")
    assert (terms.gpu_hour.value, terms.host_hour.value) == (Decimal("6.00"), Decimal("1.27"))
    assert rent(recorder(apart, offer(price="6.88"))).provider == "aws"  # 7.27 against 6.88


def test_rented_at_once_is_the_instance():
    catalog = recorder(
        offer(price="6.88", instance_type="p5.4xlarge", gpu_count=1),
        offer(price="6.88"),
        offer(provider="small", price="9.00", region="x", gpu_count=4),
        offer(provider="large", price="9.00", region="x", gpu_count=72),
    )

    def at_once(**method):
        return resolve(rules({"kind": "rent", **method}), catalog).gpu_multiple

    assert at_once() == 8  # at equal prices the usual node
    assert at_once(instance_type="p5.4xlarge") == 1
    assert at_once(gpu_count_per_instance=2) == 2
    # With a price of one's own: the provider's instance, as near to the usual node as it sells.
    assert at_once(price_per_gpu_hour="5", provider="aws") == 8
    assert at_once(price_per_gpu_hour="5", provider="aws", instance_type="p5.4xlarge") == 1
    assert at_once(price_per_gpu_hour="5", provider="small") == 4
    assert at_once(price_per_gpu_hour="5", provider="large") == 72
    assert at_once(price_per_gpu_hour="5", provider="elsewhere") == 8
    assert at_once(price_per_gpu_hour="5") == 8
    assert at_once(price_per_gpu_hour="5", gpu_count_per_instance=16) == 16


def test_without_a_whole_node_the_largest_part_of_one_comes_before_many():
    catalog = recorder(
        offer(provider="pod", region="a", gpu_count=6144, valid_from=date(2026, 1, 1)),
        offer(provider="pod", region="b", gpu_count=4, valid_from=date(2026, 1, 1)),
        offer(provider="pod", region="c", gpu_count=2, valid_from=date(2024, 1, 1)),
    )
    assert resolve(rules({"kind": "rent"}), catalog).gpu_multiple == 4


def test_a_refusal_stays_readable_whatever_its_names():
    long = "x" * 100
    offers = [
        offer(provider=long, region=f"{i}" * 200, key=f"{i:03}" + "k" * 97, quality="suspect")
        for i in range(9)
    ]
    refused = rent(recorder(*offers), provider=long)
    assert len(refused.nearest_fix) <= 2000
    assert refused.nearest_fix.endswith("and 4 more.")


def test_an_override_out_of_its_bounds_is_refused_where_it_stands():
    catalog = recorder(purchases=[bought()], overrides={"power_usage_effectiveness": 0.9})
    with pytest.raises(InvalidScenario) as refusal:
        own(catalog)
    pointer = "/scenario/assumption_overrides/power_usage_effectiveness"
    assert refusal.value.pointer == pointer


def test_rules_with_keys_that_nothing_has_are_refused():
    def check(**facts):
        check_procurement_rules(
            rules({"kind": "rent"}, **facts),
            gpu_keys={"inline"},
            snapshot=recorder().snapshot,
            pointer="/scenario/procurement",
        )

    check(gpu="inline")
    check(gpu="h100", site="ohio")
    with pytest.raises(UnknownKey) as refusal:
        check(gpu="h1000")
    assert refusal.value.pointer == "/scenario/procurement/0/gpu"
    with pytest.raises(UnknownKey) as refusal:
        check(site="atlantis")
    assert refusal.value.pointer == "/scenario/procurement/0/site"
    with pytest.raises(UnknownKey):
        resolve(rules({"kind": "own"}, site="atlantis"), recorder())


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "rent", "price_per_gpu_hour": "0"},
        {"kind": "rent", "price_per_gpu_hour": "-1"},
        {"kind": "own", "purchase_price_per_gpu": "0"},
        {"kind": "own", "network_price_per_gpu": "-1"},
        {"kind": "own", "colocation_price_per_kw_month": "-0.01"},
        {"kind": "own", "power_usage_effectiveness": 0.9},
    ],
)
def test_a_price_that_cannot_be_is_refused(method):
    with pytest.raises(ValidationError):
        rules(method)
