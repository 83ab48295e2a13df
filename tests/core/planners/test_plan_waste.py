"""What failures waste of a large run, through a whole plan, at two checkpoint intervals."""

import pytest

from service.core.planners.plan import estimate_fleet
from service.core.scenarios.scenario import Scenario
from tests.pool_builders import snapshot

GPUS = 16_384
# Llama 3, arXiv 2407.21783, section 3.3.4: 419 unexpected stops in 54 days on 2,048 servers.
PER_DAY = 419 / 54


def quantities(checkpoint_interval_s):
    document = {
        "horizon": {"start_month": "2027-01", "month_count": 3},
        "training_runs": [
            {
                "name": "pretrain",
                "gpu": "h100-sxm5-80gb",
                "training_tokens": 10**12,
                "sizing": {"kind": "gpu_count", "gpu_count": GPUS},
                "speed": {"kind": "measured", "tokens_per_s_per_gpu": 100},
                "reliability": {
                    "failures_per_1000_node_days": PER_DAY / 2.048,
                    "checkpoint_interval_s": checkpoint_interval_s,
                    "checkpoint_save_s": 0,
                    "restart_s": 600,
                },
            }
        ],
        "pooling": {"kind": "separate"},
        "procurement": [{"method": {"kind": "rent", "price_per_gpu_hour": "2"}}],
    }
    found, _ = estimate_fleet(Scenario.model_validate(document), snapshot=snapshot())
    return {each.name: each.value for each in found.quantities if each.scope == "run:pretrain"}


@pytest.mark.parametrize(
    ("interval_s", "per_failure", "per_day", "share"),
    [
        # (15 + 10) min · 16,384 GPUs = 6,826.7 GPU-hours, 7.759 times a day, of 393,216.
        (1800, 6826.667, 52_969.9, 0.134709),
        # (5 + 10) min: 4,096 GPU-hours.
        (600, 4096.0, 31_781.9, 0.080825),
    ],
)
def test_a_plan_says_what_failures_waste(interval_s, per_failure, per_day, share):
    found = quantities(interval_s)
    assert found["failures_per_day"] == pytest.approx(PER_DAY)
    assert found["lost_s_per_failure"] / 3600 * GPUS == pytest.approx(per_failure, rel=1e-6)
    assert found["wasted_gpu_hours_per_day"] == pytest.approx(per_day, rel=1e-5)
    assert 1 - found["goodput_fraction"] == pytest.approx(share, rel=1e-5)
