"""A power cap takes speed, and lowers the energy of GPUs that are owned."""

import pytest

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario

OWNED = {
    "kind": "own",
    "purchase_price_per_gpu": "30000",
    "node_power_kw": 10,
    "power_load_fraction": 0.8,
    "idle_power_fraction": 0.4,
    "power_usage_effectiveness": 1.2,
    "power_price_per_kwh": "0.10",
}


def plan(snapshot, cap):
    scenario = Scenario(
        horizon={"start_month": "2027-01", "month_count": 1},
        serving_services=[
            {
                "name": "assistant",
                "architecture": "llama-3.1-8b",
                "gpu": "h100-sxm5-80gb",
                "weight_format": "fp8",
                "load": {"kind": "peak_requests", "peak_requests_per_s": 500},
                "input_tokens_mean": 1000,
                "output_tokens_mean": 200,
                "demand_profile": "consumer_evening",
                "replica": {"power_cap_fraction": cap},
            }
        ],
        pooling={"kind": "separate"},
        procurement=[{"method": OWNED}],
    )
    estimate, _ = estimate_fleet(scenario, snapshot=snapshot)
    [pool] = estimate.pools
    energy = [line for line in estimate.lines if line.category == "power"]
    return pool, energy


@pytest.mark.parametrize(
    ("cap", "busy", "idle"), [(1.0, 0.8, 0.4), (0.9, 0.8, 0.4), (0.5, 0.5, 0.4), (0.3, 0.3, 0.3)]
)
def test_owned_gpus_draw_no_more_than_their_cap(snapshot, cap, busy, idle):
    pool, energy = plan(snapshot, cap)
    drawn = busy * pool.used_gpu_hours + idle * pool.idle_gpu_hours
    # Nodes of 10 kW with 8 GPUs, and 0.2 kWh for the cooling of each.
    kwh = sum(float(line.quantity) for line in energy)
    assert kwh == pytest.approx(drawn * 10 / 8 * 1.2, rel=1e-6)
    named = [f"capped {cap:g}" in line.formula for line in energy]
    assert all(named) if cap < 0.8 else not any(named)


def test_a_cap_saves_energy_although_it_takes_more_gpu_hours(snapshot):
    (free, whole), (capped, less) = plan(snapshot, 1.0), plan(snapshot, 0.5)
    assert capped.used_gpu_hours > free.used_gpu_hours
    assert sum(line.quantity for line in less) < sum(line.quantity for line in whole)
