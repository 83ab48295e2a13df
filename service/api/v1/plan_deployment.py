"""A plan as what runs it: objects for a cluster, and lines that start its workloads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Response, get
from litestar.params import FromPath

from service.api.dependencies import SessionOpener
from service.api.downloads import DISPOSITION_HEADER
from service.api.problems import problem_responses
from service.catalog.snapshots import load_snapshot
from service.core.launch.answer import LaunchSheet
from service.core.launch.sheet import QUANTITIES, launch_sheet
from service.core.plans import Plan
from service.core.snapshot import CatalogSnapshot
from service.exports import kubernetes
from service.exports.filename import content_disposition
from service.plans import read
from service.plans.beside import run_beside_the_loop
from service.plans.repository import Session


async def _plan_and_catalog(session: Session, plan_id: UUID) -> tuple[Plan, CatalogSnapshot]:
    """A plan, and the release that it was made with."""
    plan = await read.read_plan(session, plan_id)
    version = plan.catalog_release.version
    return plan, await load_snapshot(session, version, plan.as_of_date)


@get(
    "/v1/plans/{plan_id:uuid}/kubernetes.yaml",
    operation_id="export_plan_kubernetes",
    tags=["plans"],
    media_type=kubernetes.MEDIA_TYPE,
    responses=problem_responses(404, 409),
    response_headers=[DISPOSITION_HEADER],
)
async def export_plan_kubernetes(
    plan_id: FromPath[UUID], open_session: SessionOpener
) -> Response[Any]:
    """Export a plan's pools as Kubernetes objects.

    They are priorities, and Kueue's flavors, queues and quotas: the GPUs of the pools. What shares
    a pool shares a cohort: serving lends what is idle and takes it back. An infeasible plan has no
    pools to write: 409.
    """
    async with open_session() as session:
        plan, snapshot = await _plan_and_catalog(session, plan_id)
    content = await run_beside_the_loop(kubernetes.kubernetes_yaml, plan, snapshot)
    disposition = content_disposition(plan.name, "kubernetes", suffix="yaml")
    return Response(
        content, media_type=kubernetes.MEDIA_TYPE, headers={"Content-Disposition": disposition}
    )


@get(
    "/v1/plans/{plan_id:uuid}/launch",
    operation_id="get_plan_launch",
    tags=["plans"],
    responses=problem_responses(404, 409),
)
async def get_plan_launch(plan_id: FromPath[UUID], open_session: SessionOpener) -> LaunchSheet:
    """Read how a plan's workloads are started and watched.

    Each run and service has the line that starts it with the plan's layout, what its log should
    show, and alerts whose thresholds are the plan's own numbers. What no line is written for says
    why. An infeasible plan has nothing to start: 409.
    """
    async with open_session() as session:
        plan, snapshot = await _plan_and_catalog(session, plan_id)
        quantities = await read.named_quantities(session, plan_id, QUANTITIES)
    return await run_beside_the_loop(launch_sheet, plan, quantities, snapshot)
