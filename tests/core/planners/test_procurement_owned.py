"""Which figures an owned GPU is paid for with, and which are missing by name."""

from datetime import date
from decimal import Decimal

from service.core.costs.terms import Ownership
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot
from service.core.value import Provenance
from tests.core.planners.test_procurement import (
    ASSUMED,
    OHIO,
    bought,
    own,
    recorder,
    resolve,
    rules,
)


def test_an_owned_gpu_takes_what_is_given():
    terms = own(
        recorder(),
        purchase_price_per_gpu="40000",
        network_price_per_gpu="0",
        useful_life_years=4,
        residual_fraction=0.2,
        power_price_per_kwh="0.05",
        power_usage_effectiveness=1.1,
        node_power_kw=12.0,
        power_load_fraction=0.5,
        idle_power_fraction=0.2,
        colocation_price_per_kw_month="0",
        staff_price_per_gpu_month="7",
        support_fraction_per_year=0.12,
    )
    assert terms == Ownership(
        purchase=terms.purchase,
        network=terms.network,
        useful_life_months=48,
        residual_fraction=0.2,
        node_power_kw=12.0,
        node_gpu_count=8,
        power_load_fraction=0.5,
        idle_power_fraction=0.2,
        power_usage_effectiveness=1.1,
        kwh=terms.kwh,
        colocation_kw_month=terms.colocation_kw_month,
        staff_gpu_month=terms.staff_gpu_month,
        support_gpu_month=terms.support_gpu_month,
    )
    prices = [terms.purchase, terms.network, terms.kwh, terms.staff_gpu_month]
    assert [price.value for price in prices] == [40000, 0, Decimal("0.05"), 7]
    assert terms.support_gpu_month.value == 400  # 40,000 x 12 % / 12
    assert all(price.source == "given in the request" for price in prices)


def test_what_is_not_given_of_owning_comes_from_the_catalog_and_is_remembered():
    catalog = recorder(purchases=[bought()])
    terms = own(catalog)
    assert terms.purchase.value == 30000
    assert terms.purchase.as_of_date == date(2026, 1, 1)
    assert (terms.useful_life_months, terms.residual_fraction) == (60, 0.1)
    assert (terms.node_power_kw, terms.node_gpu_count) == (10.2, 8)
    assert terms.kwh.value == Decimal("0.08")
    assert terms.support_gpu_month.value == 125  # 30,000 x 5 % / 12
    used = {assumption.name for assumption in catalog.assumptions()}
    assert used == set(ASSUMED) - {"server_price_usd_per_gpu", "spot_redo_fraction"}


def test_the_price_of_the_gpu_alone_takes_the_server_on_top():
    alone, whole = bought(key="h100.gpu", includes="gpu"), bought(typical="33000")
    assert own(recorder(purchases=[alone])).purchase.value == 38750
    assert own(recorder(purchases=[alone, whole])).purchase.value == 33000


def test_a_site_gives_tariff_and_effectiveness_and_the_request_stands_above_it():
    catalog = recorder(purchases=[bought()])
    terms = own(catalog, site="ohio")
    assert (terms.kwh.value, terms.power_usage_effectiveness) == (Decimal("0.079"), 1.2)
    assert terms.kwh.source == "ohio: EIA"
    given = own(catalog, site="ohio", power_price_per_kwh="0.05", power_usage_effectiveness=1.0)
    assert (given.kwh.value, given.power_usage_effectiveness) == (Decimal("0.05"), 1.0)
    found = resolve(rules({"kind": "own"}, site="ohio"), catalog)
    assert (found.site, found.gpu_multiple) == ("ohio", 8)


def test_a_tariff_that_rests_on_memory_is_flagged():
    weak = OHIO.model_copy(
        update={"provenance": Provenance(unverified_fields=("power_price_per_kwh",))}
    )
    catalog = recorder(purchases=[bought()])
    snapshot = CatalogSnapshot(**{**vars(catalog.snapshot), "sites": {"ohio": weak}})
    assert not own(Recorder(snapshot), site="ohio").kwh.verified


def test_facts_that_are_missing_to_own_are_named_and_never_zero():
    refused = own(recorder(nodes=()))
    assert refused.code == "no_price"
    assert "purchase_price_per_gpu (the catalog has none)" in refused.nearest_fix
    assert "node_power_kw (no node of h100 has one" in refused.nearest_fix


def test_owning_in_another_currency_asks_for_every_price_by_name():
    refused = own(recorder(purchases=[bought()]), currency="EUR", site="ohio")
    for name in (
        "purchase_price_per_gpu (the catalog's is in USD)",
        "network_price_per_gpu (network_price_usd_per_gpu is in USD)",
        "power_price_per_kwh (of site ohio it is in USD)",
        "colocation_price_per_kw_month",
        "staff_price_per_gpu_month",
    ):
        assert name in refused.nearest_fix
    # The other way round: 1,500 dollars and 500 euros are not 2,000 of either (midday-ai#353).
    assert "in EUR" in own(recorder(purchases=[bought()]), site="frankfurt").nearest_fix
