"""Services whose tokens are bought: paid by tokens, without GPUs, beside GPUs of their own."""

from datetime import date
from decimal import Decimal

import pytest
from pydantic import ValidationError

from service.core.errors import InvalidScenario
from service.core.formulas.demand import hosting_break_even_tokens_per_day
from service.core.planners.plan import estimate_fleet
from service.core.scenarios.procurement import ProcurementRule
from service.core.scenarios.scenario import Scenario
from tests.core.planners.test_plan_laws import snapshot

CHAT = {
    "name": "chat",
    "architecture": "llama-3.3-70b",
    "gpu": "h100-sxm5-80gb",
    "weight_format": "fp8",
    "load": {"kind": "daily_tokens", "tokens_per_day": 1e9},
    "input_tokens_mean": 1500,
    "output_tokens_mean": 500,
    "capacity": {
        "kind": "measured",
        "units_per_s_per_replica": 10,
        "gpu_count_per_replica": 8,
    },
    "headroom": {"target_utilization_fraction": 1.0, "spare_fraction": 0.0},
}
PRICED = {
    "kind": "hosted",
    "provider": "acme",
    "input_price_per_million_tokens": "0.60",
    "output_price_per_million_tokens": "2.40",
}
RENT = {"method": {"kind": "rent", "price_per_gpu_hour": "2.00", "gpu_count_per_instance": 8}}


def plan(method=None, *, services=(CHAT,), rules=(RENT,), month_count=2, **facts):
    hosted = {"pool": "serving", "method": PRICED if method is None else method}
    document = {
        "horizon": {"start_month": "2027-01", "month_count": month_count},
        "serving_services": list(services),
        "pooling": {"kind": "separate"},
        "procurement": [hosted, *rules],
        **facts,
    }
    return estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())[0]


def quantity(answer, name, scope="service:chat"):
    [found] = [q for q in answer.quantities if (q.scope, q.name) == (scope, name)]
    return found.value


def break_even(**changed):
    given = {
        "hosted_price_per_million_tokens": 1.0,
        "cost_per_gpu_hour": 2.0,
        "tokens_per_s_per_replica": 10_000,
        "gpu_count_per_replica": 8,
        "gpu_count_per_instance": 8,
        "spare_fraction": 0.0,
        "spare_replica_count": 0,
        "minimum_replica_count": 1,
    }
    return float(hosting_break_even_tokens_per_day(**given | changed))


def test_tokens_are_paid_by_what_is_read_and_written():
    # 10^9 tokens a day, three quarters of them read: 31 x 750 = 23,250 and 28 x 750 = 21,000
    # million read, a third of that written; 0.60 and 2.40 a million.
    answer = plan()
    lines = [
        (line.month, line.quantity, line.unit, line.unit_price, line.amount)
        for line in answer.lines
    ]
    assert lines == [
        ("2027-01", 23250, "million_input_tokens", Decimal("0.6"), Decimal("13950.00")),
        ("2027-01", 7750, "million_output_tokens", Decimal("2.4"), Decimal("18600.00")),
        ("2027-02", 21000, "million_input_tokens", Decimal("0.6"), Decimal("12600.00")),
        ("2027-02", 7000, "million_output_tokens", Decimal("2.4"), Decimal("16800.00")),
    ]
    assert answer.totals.amount == answer.totals.serving_amount == Decimal("61950.00")
    assert {(line.category, line.purchase_kind, line.provider) for line in answer.lines} == {
        ("hosted_tokens", "hosted", "acme")
    }


def test_a_million_tokens_cost_what_the_prices_say():
    # (3 x 0.60 + 2.40) / 4 = 1.05 over all; over what is written four times, over what is read 4/3.
    [service] = plan().serving_services
    assert service.cost_per_million_tokens == Decimal("1.05")
    assert service.cost_per_million_output_tokens == Decimal("4.20")
    assert service.cost_per_million_input_tokens == Decimal("1.40")


CACHING = {name: value for name, value in CHAT.items() if name != "capacity"} | {
    "replica": {"prefix_cache_hit_fraction": 0.4}
}


def test_what_the_cache_holds_of_prompts_is_paid_at_its_own_price():
    # Of 23,250 million tokens read in January 40 % are cached: 9,300 at 0.06, 13,950 at 0.60.
    answer = plan(PRICED | {"cached_input_price_per_million_tokens": "0.06"}, services=[CACHING])
    january = {
        line.unit: (line.quantity, line.amount) for line in answer.lines if line.month == "2027-01"
    }
    assert january == {
        "million_input_tokens": (13950, Decimal("8370.00")),
        "million_cached_input_tokens": (9300, Decimal("558.00")),
        "million_output_tokens": (7750, Decimal("18600.00")),
    }
    # (0.75 x (0.6 x 0.60 + 0.4 x 0.06) + 0.25 x 2.40) = 0.888 a million.
    assert quantity(answer, "hosted_price_per_million_tokens") == pytest.approx(0.888)
    [service] = answer.serving_services
    assert service.cost_per_million_tokens == Decimal("0.89")


def test_without_a_price_of_cached_input_all_input_has_one():
    assert plan(services=[CACHING]).totals.amount == plan().totals.amount


def test_the_cheapest_price_is_that_at_the_service_s_share_of_cached_input():
    answer = plan(
        {"kind": "hosted"}, services=[CACHING | {"replica": {"prefix_cache_hit_fraction": 0.9}}]
    )
    prices = []
    for row in snapshot().token_prices_of("llama-3.3-70b"):
        read, written = row.input_price_per_million_tokens, row.output_price_per_million_tokens
        cached = row.cached_input_price_per_million_tokens or read
        if row.quality in {"listed", "third_party"}:
            prices.append(0.75 * (0.1 * float(read) + 0.9 * float(cached)) + 0.25 * float(written))
    assert quantity(answer, "hosted_price_per_million_tokens") == pytest.approx(min(prices))


def test_a_price_of_cached_input_stands_with_those_of_input_and_output():
    with pytest.raises(ValidationError, match="with that of cached input"):
        plan({"kind": "hosted", "cached_input_price_per_million_tokens": "0.06"})


def test_no_gpu_is_held():
    answer = plan()
    [service], [pool] = answer.serving_services, answer.pools
    assert (service.hosted_by, service.gpu_count, service.held_replica_count) == ("acme", 0, 0)
    assert (pool.name, pool.gpu_count, pool.allocated_gpu_hours) == ("serving", 0, 0)
    assert (answer.totals.peak_gpu_count, answer.totals.gpu_hours) == (0, 0)
    assert {line.gpu for line in answer.lines} == {None}
    assert [month.amount for month in answer.months] == [Decimal("32550.00"), Decimal("29400.00")]


def test_tokens_grow_with_the_load_and_end_with_the_service():
    growing = CHAT | {"growth_per_month_fraction": 0.5, "last_month": "2027-02"}
    answer = plan(services=[growing], month_count=3)
    read = [line.quantity for line in answer.lines if line.unit == "million_input_tokens"]
    assert read == [23250, 31500]  # 28 x 750 x 1.5


def test_the_cheapest_usable_price_for_the_mix_is_taken_and_named():
    answer = plan({"kind": "hosted"})
    usable = [
        (p.input_price_per_million_tokens * 3 + p.output_price_per_million_tokens, p.provider)
        for p in snapshot().token_prices_of("llama-3.3-70b")
        if p.quality in {"listed", "third_party"}
    ]
    assert {line.provider for line in answer.lines} == {min(usable)[1]}
    assert all(line.price_source and line.price_as_of_date for line in answer.lines)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"provider": "nobody"}, "provider bedrock, listed_as"),
        ({"provider": "bedrock", "listed_as": "gpt-0"}, "provider bedrock, listed_as"),
        # A marketplace's least price and a suspect one are left out by name.
        ({"provider": "openrouter"}, "the least price of a marketplace"),
        ({"provider": "vertex-ai", "listed_as": "meta/llama-3.1-405b-instruct-maas"}, "suspect"),
    ],
)
def test_a_price_that_may_not_be_used_is_refused_with_what_there_is(method, says):
    answer = plan({"kind": "hosted", **method})
    [reason] = answer.infeasibilities
    assert (reason.code, reason.workload) == ("no_price", "chat")
    assert says in reason.nearest_fix
    assert (answer.totals, answer.lines) == (None, ())


def test_the_fix_that_is_named_works():
    refused = plan({"kind": "hosted", "provider": "nobody"})
    assert "provider bedrock, listed_as 'meta.llama3-3-70b-instruct-v1:0': 0.72 in, 0.72 out" in (
        refused.infeasibilities[0].nearest_fix
    )
    mended = plan(
        {
            "kind": "hosted",
            "provider": "bedrock",
            "listed_as": "meta.llama3-3-70b-instruct-v1:0",
        }
    )
    assert {line.unit_price for line in mended.lines} == {Decimal("0.72")}


def test_prices_in_another_currency_are_refused():
    assert not plan({"kind": "hosted"}, currency="EUR").feasible
    priced = plan(currency="EUR")
    assert priced.feasible
    assert {line.currency for line in priced.lines} == {"EUR"}


def test_gpus_of_its_own_are_compared_at_the_same_load():
    # Flat 10^9 tokens a day of 2,000 are 5.787 units/s: one replica of 8 GPUs does it. It costs
    # 8 x 2.00 x 1,416 h = 22,656 and 384 a day, the price of 384 / 1.05 = 365.71 million tokens.
    answer = plan()
    assert quantity(answer, "self_hosted_amount") == pytest.approx(22656.0)
    assert quantity(answer, "hosted_amount") == pytest.approx(61950.0)
    tokens = quantity(answer, "hosting_break_even_tokens_per_day")
    assert tokens == pytest.approx(384 / 1.05 * 1e6)
    [advisory] = [each for each in answer.advisories if each.code == "hosted_break_even"]
    assert advisory.workload == "chat"
    assert "365,714,286 tokens a day" in advisory.message


def test_at_the_break_even_load_both_cost_the_same():
    tokens = quantity(plan(), "hosting_break_even_tokens_per_day")
    service = CHAT | {"load": {"kind": "daily_tokens", "tokens_per_day": tokens}}
    hosted = plan(services=[service])
    assert float(hosted.totals.amount) == pytest.approx(
        quantity(hosted, "self_hosted_amount"), rel=1e-6
    )


def test_a_replica_that_serves_too_few_tokens_never_pays():
    # 384 a day buys 384 million tokens at 1.00: a replica has to serve 4,444.4 a second.
    assert break_even(tokens_per_s_per_replica=4_445) == pytest.approx(384e6)
    assert break_even(tokens_per_s_per_replica=4_444) == float("inf")


def test_spares_pay_where_enough_replicas_share_them():
    # With one spare, n replicas cost (n + 1) 384 and have to serve as much: from n = 2 at 6,667.
    assert break_even(spare_replica_count=1, tokens_per_s_per_replica=8_889) == pytest.approx(768e6)
    assert break_even(spare_replica_count=1, tokens_per_s_per_replica=6_667) == pytest.approx(
        1152e6
    )


def test_a_model_that_fits_no_gpu_is_hosted_and_the_comparison_says_why():
    huge = {name: value for name, value in CHAT.items() if name != "capacity"} | {
        "gpu": "l40s-48gb",
        "architecture": "deepseek-v3",
    }
    answer = plan(services=[huge])
    [advisory] = [each for each in answer.advisories if each.code == "hosted_break_even"]
    assert answer.feasible
    assert "cannot be compared" in advisory.message or "would cost" in advisory.message


def test_a_rule_may_be_for_one_service_alone():
    other = CHAT | {"name": "search"}
    rules = [
        {"pool": "serving", "service": "chat", "method": PRICED},
        RENT,
    ]
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 1},
        "serving_services": [other, CHAT],
        "pooling": {"kind": "separate"},
        "procurement": rules,
    }
    answer, _ = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())
    assert [(s.name, s.hosted_by) for s in answer.serving_services] == [
        ("search", None),
        ("chat", "acme"),
    ]
    assert [pool.gpu_count for pool in answer.pools] == [8]
    amounts = {service.name: service.amount for service in answer.serving_services}
    assert amounts == {"search": Decimal("11904.00"), "chat": Decimal("32550.00")}
    assert sum(amounts.values()) == answer.totals.amount


@pytest.mark.parametrize("pooling", ["separate", "shared"])
def test_training_keeps_its_gpus_beside_hosted_tokens(pooling):
    run = {
        "name": "tune",
        "architecture": "llama-3.1-8b",
        "gpu": "h100-sxm5-80gb",
        "training_tokens": 10**9,
        "sizing": {"kind": "gpu_count", "gpu_count": 8},
        "speed": {"kind": "mfu", "mfu_fraction": 0.4},
    }
    answer = plan(training_runs=[run], pooling={"kind": pooling})
    assert answer.feasible
    assert answer.totals.serving_amount == Decimal("61950.00")
    assert answer.totals.training_amount > 0
    assert sum(line.amount for line in answer.lines) == answer.totals.amount


@pytest.mark.parametrize(
    "rule",
    [
        {"method": PRICED},  # for any pool: runs cannot be hosted
        {"pool": "training", "method": PRICED},
        {"pool": "serving", "method": PRICED | {"output_price_per_million_tokens": None}},
        {"pool": "serving", "method": PRICED | {"input_price_per_million_tokens": "0"}},
        {"service": "chat", "method": RENT["method"]},
    ],
)
def test_a_hosted_rule_that_cannot_be_is_refused(rule):
    with pytest.raises(ValidationError):
        ProcurementRule.model_validate(rule)


def test_a_rule_for_a_service_that_is_not_there_is_refused():
    with pytest.raises(InvalidScenario, match="no service is named"):
        plan(rules=({"pool": "serving", "service": "chta", "method": PRICED},))


def test_a_price_change_applies_to_tokens_as_well():
    answer = plan(
        month_count=1,
        assumption_overrides={"price_change_per_year_fraction": -0.5},
    )
    months = (date(2027, 1, 1).year - 2026) * 12 + 1 - 11  # from the month of the as-of date
    assert answer.lines[0].unit_price == Decimal(str(round(0.6 * 0.5 ** (months / 12), 6)))
