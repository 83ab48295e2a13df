"""Single questions about training: memory, a whole run, the network, failures."""

from __future__ import annotations

from datetime import UTC, datetime

from litestar import post
from litestar.params import JSONBody

from service.api.dependencies import SessionOpener
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.studies import (
    communication,
    goodput,
    training_layouts,
    training_memory,
    training_run,
)
from service.core.studies.communication import CommunicationAnswer, CommunicationQuestion
from service.core.studies.goodput import GoodputAnswer, GoodputQuestion
from service.core.studies.run_answer import TrainingRunAnswer
from service.core.studies.runs import TrainingQuestion, TrainingRunQuestion
from service.core.studies.training_layouts import TrainingLayoutsAnswer
from service.core.studies.training_memory import TrainingMemoryAnswer
from service.plans.estimate import answer_estimate


@post(
    "/v1/estimates/training-memory",
    operation_id="estimate_training_memory",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_training_memory(
    data: JSONBody[TrainingQuestion], open_session: SessionOpener
) -> TrainingMemoryAnswer:
    """Count the memory of one GPU by part, and say what would make it fit."""
    return await answer_estimate(
        open_session,
        data,
        training_memory.estimate_training_memory,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/training-layouts",
    operation_id="estimate_training_layouts",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_training_layouts(
    data: JSONBody[TrainingQuestion], open_session: SessionOpener
) -> TrainingLayoutsAnswer:
    """Search all layouts of a run, and say why the obvious ones fail.

    A `layout` that the run names is not looked at: `training-memory` judges that one.
    """
    return await answer_estimate(
        open_session,
        data,
        training_layouts.estimate_training_layouts,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/training-run",
    operation_id="estimate_training_run",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_training_run(
    data: JSONBody[TrainingRunQuestion], open_session: SessionOpener
) -> TrainingRunAnswer:
    """Estimate speed, hours, dollars and energy of one run, and rank other GPUs for it."""
    return await answer_estimate(
        open_session,
        data,
        training_run.estimate_training_run,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/communication",
    operation_id="estimate_communication",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_communication(
    data: JSONBody[CommunicationQuestion], open_session: SessionOpener
) -> CommunicationAnswer:
    """Count what a training step sends over which link, and how speed scales with GPUs."""
    return await answer_estimate(
        open_session,
        data,
        communication.estimate_communication,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )


@post(
    "/v1/estimates/goodput",
    operation_id="estimate_goodput",
    tags=["estimates"],
    status_code=200,
    responses=problem_responses(413, 415, 422),
)
async def estimate_goodput(
    data: JSONBody[GoodputQuestion], open_session: SessionOpener
) -> GoodputAnswer:
    """Count what failures and checkpoints cost, and which interval and spares are best."""
    return await answer_estimate(
        open_session,
        data,
        goodput.estimate_goodput,
        now=datetime.now(UTC),
        load_snapshot=load_snapshot,
    )
