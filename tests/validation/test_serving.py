"""Published serving results against the estimate.

A sanity check, not a score: each estimate lies within a factor of 1.6 of what was measured, and
the geometric mean of the errors within 1.25. What is left over all published rows is in the catalog
as `*_residual_factor`.
"""

import csv
from dataclasses import dataclass
from datetime import date
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from service.catalog.resolve import snapshot_from_folder
from service.core.planners.serving import _resolve_shape
from service.core.recorder import Recorder
from service.core.replica.constants import (
    ServingConstants,
    memory_constants,
    serving_constants,
)
from service.core.replica.lookup import Lookup, engine_qualifiers
from service.core.replica.passes import Traffic
from service.core.replica.search import Footprint, Room, engine_limit, room_of, sequence_capacity
from service.core.replica.shape import Layout
from service.core.replica.speed import Speed
from service.core.scenarios.scenario import ServingService

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/validation/serving.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
WITHIN = 1.6
MEAN_WITHIN = 1.25


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_from_folder(ROOT / "catalog", date(2026, 11, 29))


@dataclass(frozen=True)
class Replica:
    """A row's replica at its own layout."""

    footprint: Footprint
    constants: ServingConstants
    layout: Layout
    room: Room
    recorder: Recorder


def resolve(row, snapshot, *, overrides=None):
    service = ServingService(
        name="measured",
        architecture=row["architecture"],
        gpu=row["gpu"],
        weight_format=row["weight_format"],
        kv_cache_format=row["kv_cache_format"],
        load={"kind": "peak_requests", "peak_requests_per_s": 1},
        input_tokens_mean=float(row["input_tokens"]),
        output_tokens_mean=float(row["output_tokens"]),
    )
    recorder = Recorder(snapshot, overrides=overrides or {}).off()
    shape = _resolve_shape(service, snapshot.gpu(row["gpu"]), recorder, "")
    ranks = int(row["tensor_parallel"])
    look = Lookup(recorder, engine_qualifiers(snapshot, row["engine"], pointer=""))
    needs = shape.needs((ranks,), has_stages=False)
    traffic = Traffic(
        service.input_tokens_mean, service.output_tokens_mean, service.tokens_per_unit, 0.8
    )
    footprint = Footprint(shape, memory_constants(look, shape.gpu, needs), traffic)
    layout = Layout(ranks, 1)
    room = room_of(footprint, layout, recorder)
    constants = serving_constants(look, shape.gpu, needs)
    return Replica(footprint, constants, layout, room, recorder)


def estimate(row, snapshot):
    """The row's quantity at its own layout and number of requests."""
    replica = resolve(row, snapshot)
    footprint = replica.footprint
    asked = row["running_requests"]
    most = engine_limit(footprint.memory) if asked == "max" else float(asked)
    speed = Speed(footprint.shape, replica.constants, footprint.traffic, replica.recorder)
    state = speed.at(replica.layout, np.floor(min(most, float(replica.room.running_limit))))
    if row["quantity"] == "tpot":
        return float(state.tpot_mean_s)
    return float(state.units_per_s) * footprint.traffic.output_tokens_mean


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_an_estimate_is_near_what_was_measured(row, snapshot):
    ratio = estimate(row, snapshot) / float(row["measured"])
    assert 1 / WITHIN <= ratio <= WITHIN


def test_estimates_are_nearer_on_the_whole(snapshot):
    errors = [abs(log(estimate(row, snapshot) / float(row["measured"]))) for row in ROWS]
    assert exp(float(np.mean(errors))) <= MEAN_WITHIN


# ashishkamra/vllm-memory-estimator, validation_db.json @8b0e21d1: start-up logs of vLLM at a
# utilisation of 0.92.
@pytest.mark.parametrize(
    ("architecture", "gpu", "ranks", "engine", "weights", "cache", "logged_tokens"),
    [
        ("llama-3.3-70b", "h200-sxm-141gb", 4, "vllm-0.11.2", "bf16", "bf16", 1_182_608),
        ("llama-3.3-70b", "h200-sxm-141gb", 4, "vllm-0.18", "fp8", "fp8", 2_819_616),
        ("llama-3.3-70b", "h200-sxm-141gb", 4, "vllm-0.20", "bf16", "bf16", 1_188_336),
        ("llama-3.3-70b", "mi300x-192gb", 1, "vllm-0.18", "bf16", "bf16", 137_232),
        ("qwen3-235b-a22b", "h200-sxm-141gb", 4, "vllm-0.11.2", "fp8", "bf16", 1_475_472),
        ("minimax-m2.5", "h200-sxm-141gb", 8, "vllm-0.18", "fp8", "bf16", 3_266_480),
        ("deepseek-r1", "b200-sxm-180gb", 8, "vllm-0.18", "fp8", "bf16", 1_219_648),
    ],
)
def test_the_pool_holds_the_tokens_that_engines_log(
    snapshot, architecture, gpu, ranks, engine, weights, cache, logged_tokens
):
    row = {"architecture": architecture, "gpu": gpu, "engine": engine, "tensor_parallel": ranks}
    row |= {"weight_format": weights, "kv_cache_format": cache}
    row |= {"input_tokens": 4000, "output_tokens": 96}
    replica = resolve(row, snapshot, overrides={"memory_utilization_fraction": 0.92})
    tokens, _ = sequence_capacity(
        replica.footprint, replica.layout, replica.room.pool_bytes, replica.recorder
    )
    assert tokens == pytest.approx(logged_tokens, rel=0.03)
