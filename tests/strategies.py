"""Scenarios that a planner must answer, drawn over the whole range of what people ask."""

from hypothesis import strategies as st

GPUS = ("h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm-141gb", "l40s-48gb")
TRAINED = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-32b")
SERVED = ("llama-3.1-8b", "llama-3.3-70b", "gpt-oss-20b", "deepseek-v3", "gemma-3-27b")
PRESETS = ("flat", "office_assistant", "consumer_evening", "global_app")
RENT = {"method": {"kind": "rent", "price_per_gpu_hour": "2.50"}}
OWN = {
    "method": {
        "kind": "own",
        "purchase_price_per_gpu": "30000",
        "useful_life_years": 4,
        "residual_fraction": 0.1,
        "power_price_per_kwh": "0.08",
        "power_usage_effectiveness": 1.25,
        "node_power_kw": 10.2,
    }
}


def profiles():
    """Presets, and days with hours of no load at all."""
    hours = st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=24, max_size=24)
    return st.one_of(st.sampled_from(PRESETS), hours.filter(any))


def speeds():
    """Estimated, or given in each of the ways that a run's speed can be known."""
    return st.one_of(
        st.just({"kind": "estimated"}),
        st.floats(0.1, 0.6).map(lambda mfu: {"kind": "mfu", "mfu_fraction": mfu}),
        st.floats(10, 300).map(lambda speed: {"kind": "measured", "tokens_per_s_per_gpu": speed}),
    )


@st.composite
def training_runs(draw, name, *, gpus=GPUS):
    """A run that ends within a year or says why not."""
    return {
        "name": name,
        "architecture": draw(st.sampled_from(TRAINED)),
        "gpu": draw(st.sampled_from(gpus)),
        "training_tokens": draw(st.integers(10**9, 3 * 10**11)),
        "sequence_length_tokens": draw(st.sampled_from((2048, 8192))),
        "speed": draw(speeds()),
        "sizing": {"kind": "gpu_count", "gpu_count": 8 * 2 ** draw(st.integers(0, 6))},
        "elastic": draw(st.booleans()),
    }


@st.composite
def serving_services(draw, name, *, gpus=GPUS):
    """A service with estimated or measured replicas."""
    measured = st.fixed_dictionaries(
        {
            "kind": st.just("measured"),
            "units_per_s_per_replica": st.floats(0.5, 50),
            "gpu_count_per_replica": st.sampled_from((1, 2, 4, 8)),
        }
    )
    return {
        "name": name,
        "architecture": draw(st.sampled_from(SERVED)),
        "gpu": draw(st.sampled_from(gpus)),
        "weight_format": draw(st.sampled_from(("bf16", "fp8"))),
        "load": {"kind": "peak_requests", "peak_requests_per_s": draw(st.floats(0.1, 300))},
        "input_tokens_mean": draw(st.integers(1, 4000)),
        "output_tokens_mean": draw(st.integers(1, 1000)),
        "demand_profile": draw(profiles()),
        "growth_per_month_fraction": draw(st.sampled_from((0.0, 0.05, -0.1))),
        "capacity": draw(st.one_of(st.just({"kind": "estimated"}), measured)),
    }


def prices():
    """Prices of up to six decimals, so that amounts have cents to round."""
    return st.integers(1, 9_999_999).map(lambda millionths: f"{millionths / 10**6:.6f}")


def rents(**facts):
    return st.fixed_dictionaries(
        {
            "kind": st.just("rent"),
            "price_per_gpu_hour": prices(),
            **{name: st.just(value) for name, value in facts.items()},
        }
    )


def mixes():
    """Part committed, given or by what pays, paid upfront or not; the rest on demand."""
    return st.fixed_dictionaries(
        {
            "kind": st.just("mix"),
            "committed": st.sampled_from(("committed_1yr", "committed_3yr")).flatmap(
                lambda commitment: rents(commitment=commitment)
            ),
            "rest": rents(),
            "committed_gpu_count": st.sampled_from((None, 0, 8, 64)),
            "paid_upfront": st.booleans(),
        }
    )


def ownerships():
    """Bought at once or as needed, leased, or there already, with all that is paid beside."""
    bought = st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in OWN["method"].items()},
            "useful_life_years": st.sampled_from((1, 4)),
            "storage_price_per_gpu": st.sampled_from(("0", "123.456789")),
            "installation_price_per_gpu": st.sampled_from(("0", "99.99")),
            "insurance_fraction_per_year": st.sampled_from((0, 0.013)),
            "with_interest": st.booleans(),
        }
    )
    ways = st.sampled_from(
        (
            {},
            {"purchases": "as_needed"},
            {"purchases": "as_needed", "purchase_lead_month_count": 2},
            {"is_owned_already": True, "purchase_month": "2025-05"},
            {"lease_price_per_gpu_month": "777.77"},
        )
    )
    return st.builds(lambda method, way: method | way, bought, ways)


def procurements():
    """Rules of every kind: rent, spot, a mix, ownership, and tokens in the place of GPUs."""
    for_gpus = st.one_of(rents(), rents(commitment="spot"), mixes(), ownerships())
    hosted = st.builds(
        lambda read, written: {
            "pool": "serving",
            "method": {
                "kind": "hosted",
                "input_price_per_million_tokens": read,
                "output_price_per_million_tokens": written,
            },
        },
        prices(),
        prices(),
    )
    one = hosted | st.builds(lambda rule: rule | {"service": "service 0"}, hosted)
    before = st.one_of(st.just([]), st.just([]), one.map(lambda rule: [rule]))
    return st.builds(lambda rules, method: [*rules, {"method": method}], before, for_gpus)


@st.composite
def scenarios(draw, *, pooling=None, gpus=GPUS, procurement=None):
    """One to four workloads, either pooling, rented or owned unless procured otherwise."""
    run_count = draw(st.integers(0, 2))
    service_count = draw(st.integers(0 if run_count else 1, 2))
    kind = pooling or draw(st.sampled_from(("separate", "shared")))
    return {
        "horizon": {"start_month": "2027-01", "month_count": draw(st.sampled_from((3, 12)))},
        "training_runs": [draw(training_runs(f"run {i}", gpus=gpus)) for i in range(run_count)],
        "serving_services": [
            draw(serving_services(f"service {i}", gpus=gpus)) for i in range(service_count)
        ],
        "pooling": {"kind": kind},
        "procurement": _for(
            service_count,
            draw(
                st.sampled_from((RENT, OWN)).map(lambda rule: [rule])
                if procurement is None
                else procurement
            ),
        ),
    }


def _for(service_count, rules):
    """Rules less those for a service that is not there."""
    return [rule for rule in rules if service_count or "service" not in rule]
