"""Single questions about serving: memory, speed, rooflines, and the cheapest size for a load."""

from __future__ import annotations

from datetime import UTC, datetime

from litestar import post
from litestar.params import JSONBody

from service.api.dependencies import SessionOpener
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.serving import memory, performance, roofline, size
from service.core.serving.memory import ServingMemoryAnswer, ServingMemoryQuestion
from service.core.serving.performance import (
    ServingPerformanceAnswer,
    ServingPerformanceQuestion,
)
from service.core.serving.roofline import RooflineAnswer, RooflineQuestion
from service.core.serving.size_types import ServingSizeAnswer, ServingSizeQuestion
from service.plans.estimate import answer_estimate


@post(
    "/v1/estimates/serving-memory",
    operation_id="estimate_serving_memory",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_serving_memory(
    data: JSONBody[ServingMemoryQuestion], open_session: SessionOpener
) -> ServingMemoryAnswer:
    """Divide the memory of a GPU between weights, engine and cache."""
    return await answer_estimate(
        open_session,
        data,
        memory.estimate_serving_memory,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/serving-performance",
    operation_id="estimate_serving_performance",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_serving_performance(
    data: JSONBody[ServingPerformanceQuestion], open_session: SessionOpener
) -> ServingPerformanceAnswer:
    """Say the pace, throughput and time to first token of a replica."""
    return await answer_estimate(
        open_session,
        data,
        performance.estimate_serving_performance,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/roofline",
    operation_id="estimate_roofline",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_roofline(
    data: JSONBody[RooflineQuestion], open_session: SessionOpener
) -> RooflineAnswer:
    """Place phases and kernels on the rooflines of GPUs, ready to plot."""
    return await answer_estimate(
        open_session,
        data,
        roofline.estimate_roofline,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/serving-size",
    operation_id="estimate_serving_size",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_serving_size(
    data: JSONBody[ServingSizeQuestion], open_session: SessionOpener
) -> ServingSizeAnswer:
    """Rank kinds of GPU by the cost of a million tokens at a load."""
    return await answer_estimate(
        open_session,
        data,
        size.estimate_serving_size,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )
