"""How all workloads of a plan are started and watched."""

from collections.abc import Iterable

from service.core.errors import NotWritable
from service.core.estimates import Quantity
from service.core.launch.alerts import CACHED
from service.core.launch.answer import LaunchSheet
from service.core.launch.serving import RATE, launch_service
from service.core.launch.training import LOGGED, launch_run
from service.core.plans import Plan
from service.core.recorder import Recorder
from service.core.snapshot import CatalogSnapshot

QUANTITIES = (*LOGGED, *CACHED, RATE)
"""Names of the quantities of a plan that its sheet needs."""


def launch_sheet(
    plan: Plan, quantities: Iterable[Quantity], snapshot: CatalogSnapshot
) -> LaunchSheet:
    """Write how a plan's workloads are started, what they should show and when to worry.

    Args:
        plan: A feasible plan.
        quantities: Those of `QUANTITIES` that the plan holds.
        snapshot: The catalog that it was made with.

    Raises:
        NotWritable: The plan is infeasible.
    """
    if not plan.feasible:
        raise NotWritable("the plan is infeasible, so there is nothing to start")
    scopes: dict[str, dict[str, Quantity]] = {}
    for quantity in quantities:
        scopes.setdefault(quantity.scope, {})[quantity.name] = quantity
    scenario = plan.scenario
    recorder = Recorder(snapshot, overrides=dict(scenario.assumption_overrides))
    runs = {each.name: each for each in plan.training_runs}
    services = {each.name: each for each in plan.serving_services}
    shared = {pool.gpu for pool in plan.pools if pool.name == "shared"}
    return LaunchSheet(
        plan_id=plan.id,
        plan_name=plan.name,
        workloads=(
            *(
                launch_run(
                    run,
                    runs[run.name],
                    scopes.get(f"run:{run.name}", {}),
                    snapshot,
                    is_shared=snapshot.gpu(run.gpu).key in shared,
                )
                for run in scenario.training_runs
            ),
            *(
                launch_service(
                    service,
                    services[service.name],
                    scopes.get(f"service:{service.name}", {}),
                    recorder,
                )
                for service in scenario.serving_services
                if services[service.name].hosted_by is None  # else the provider runs it
            ),
        ),
    )
