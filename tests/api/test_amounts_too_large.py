"""Single estimates refuse an amount of more than twelve digits by name, at a field to change."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "openapi/examples"
DEAREST = "999999999999"
STAGE = {
    "name": "second",
    "gpu": "h100-sxm5-80gb",
    "training_tokens": 10**10,
    "sizing": {"kind": "gpu_count", "gpu_count": 8},
    # 10^10 tokens at 10 a second and GPU: some 280,000 GPU-hours, 2.8 x 10^17 USD.
    "speed": {"kind": "measured", "tokens_per_s_per_gpu": 10},
    "after": "first",
}
# One step of 8,192 tokens: 0.2 GPU-hours.
FIRST = STAGE | {"name": "first", "training_tokens": 1, "global_batch_tokens": 8192, "after": None}


@pytest.mark.parametrize(
    ("kind", "changes", "pointer", "named"),
    [
        # 16,384 GPUs lose tens of thousands of GPU-hours a day.
        ("goodput", {"price_per_gpu_hour": DEAREST}, "/price_per_gpu_hour", "lost in a day"),
        # 30 million GPU-hours.
        ("training_run", {"price_per_gpu_hour": DEAREST}, "/price_per_gpu_hour", "pretrain-405b"),
        # One token costs 10^12 x 1 / 36,000 USD, the run after it too much.
        (
            "training_run",
            {"price_per_gpu_hour": DEAREST, "run": FIRST, "stages": [STAGE]},
            "/price_per_gpu_hour",
            "'second'",
        ),
        # 10^9 GPUs at 30,000 USD are 3 x 10^13.
        ("ownership", {"gpu_count": 10**9}, "/gpu_count", "1000000000 GPUs"),
    ],
)
def test_an_amount_of_too_many_digits_is_refused_by_name(client, kind, changes, pointer, named):
    asked = json.loads((EXAMPLES / f"estimate_{kind}.request.json").read_text()) | changes
    response = client.post(f"/v1/estimates/{kind.replace('_', '-')}", json=asked)
    assert response.status_code == 422, response.text[:500]
    [error] = response.json()["errors"]
    assert error["pointer"] == pointer
    assert named in error["detail"]
    assert "twelve digits" in error["detail"]
