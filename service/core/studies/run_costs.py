"""What one run costs in money and energy, at one price of a GPU-hour."""

from datetime import date
from decimal import Decimal

from service.core.costs.offers import cheapest_offer
from service.core.costs.spending import Spending
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.planners.training import plan_training_run
from service.core.pooling.workloads import RunNeed
from service.core.pricing import amounts_of, cost_of_units
from service.core.recorder import Recorder
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot

WATTS_PER_KW = 1000.0


def price_of(gpu: Gpu, recorder: Recorder, given: Decimal | None = None) -> Decimal | None:
    """USD for one GPU-hour: given, or the cheapest on-demand price that may be used, remembered."""
    if given is not None:
        return given
    method = RentMethod(kind="rent")
    offer = cheapest_offer(method, gpu=gpu, currency="USD", snapshot=recorder.snapshot)
    if offer is None:
        return None
    recorder.rest_on_price(offer.key, verified=offer.provenance.verified)
    return offer.price_per_gpu_hour + (offer.host_price_per_gpu_hour or Decimal(0))


def cost_of(
    price: Decimal | None, gpu_hours: float, run: TrainingRun, *, pointer: str
) -> Decimal | None:
    """USD of so many GPU-hours of a run, to the cent.

    Raises:
        AmountTooLarge: If it has more than twelve digits before the point.
    """
    if price is None:
        return None
    with amounts_of(f"the amount of run {run.name!r}", pointer=pointer):
        return cost_of_units(gpu_hours, price)


def energy_kwh(need: RunNeed) -> float | None:
    """Energy of a run's GPUs at their power limit, None where it is not known. [kWh]"""
    limit = need.gpu.thermal_design_power_w
    return None if limit is None else need.gpu_hours * limit / WATTS_PER_KW


def planned(
    run: TrainingRun,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    *,
    price: Decimal | None,
    pointer: str = "/run",
    followed: RunNeed | None = None,
) -> RunNeed | tuple[Infeasibility, ...]:
    """A run by itself, from its own day, today, or the end of the run that it follows.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    gpu = snapshot.gpu(run.gpu, pointer=f"{pointer}/gpu")
    day: date = run.start_date or snapshot.as_of_date
    return plan_training_run(
        run if followed else run.model_copy(update={"start_date": day}),
        snapshot=snapshot,
        recorder=recorder,
        horizon=Horizon(start_month=f"{day:%Y-%m}", month_count=1),
        gpu_multiple=1,
        instance_gpu_count=gpu.node_gpu_count,
        pointer=pointer,
        start=followed.finish if followed else None,
        spending=None if price is None else _constant(price),
    )


def _constant(price: Decimal) -> Spending:
    hour = float(price)
    return Spending(lambda _: hour)
