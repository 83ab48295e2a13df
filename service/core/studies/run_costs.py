"""What one run costs in money and energy, at one price of a GPU-hour."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from service.core.costs.offers import cheapest_offer, rented_at_once
from service.core.costs.spending import Spending
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.formulas.calendar import last_day
from service.core.formulas.demand import whole_instances_gpu_count
from service.core.formulas.power import facility_energy_kwh, it_power_kw
from service.core.hardware import Gpu
from service.core.planners.training import plan_training_run
from service.core.pooling.workloads import RunNeed
from service.core.pricing import amounts_of, cost_of_units
from service.core.recorder import Recorder
from service.core.scenarios.procurement import RentMethod
from service.core.scenarios.scenario import Horizon
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.value import LAST_MONTH

WATTS_PER_KW = 1000.0


@dataclass(frozen=True)
class Tariff:
    """What a GPU-hour costs, and how many GPUs are paid for at once."""

    price: Decimal | None
    """USD; None where none is given or listed."""
    gpu_multiple: int
    """GPUs of the instance that has the price; of the usual node where nothing is said."""
    is_given: bool = False
    """True where the request gives the price."""

    def paid_gpu_count(self, gpu_count: int) -> int:
        """GPUs of the whole instances that hold so many. [count]"""
        return int(
            whole_instances_gpu_count(gpu_count=gpu_count, gpu_count_per_instance=self.gpu_multiple)
        )

    def paid_gpu_hours(self, need: RunNeed) -> float:
        """GPU-hours of the whole instances that hold a run. [gpu_hour]"""
        return need.gpu_hours * self.paid_gpu_count(need.gpu_count) / need.gpu_count


def tariff_of(gpu: Gpu, recorder: Recorder, given: Decimal | None = None) -> Tariff:
    """The price that is given, or the cheapest on-demand one that may be used, remembered.

    The GPUs that are paid for at once are those of a plan that rents at the same price.
    """
    method = RentMethod(kind="rent")
    if given is not None:
        at_once = rented_at_once(method, gpu=gpu, snapshot=recorder.snapshot)
        return Tariff(given, at_once, is_given=True)
    offer = cheapest_offer(method, gpu=gpu, currency="USD", snapshot=recorder.snapshot)
    if offer is None:
        return Tariff(None, gpu.node_gpu_count)
    recorder.rest_on_price(offer.key, verified=offer.provenance.verified)
    price = offer.price_per_gpu_hour + (offer.host_price_per_gpu_hour or Decimal(0))
    return Tariff(price, offer.gpu_count)


def own_price(given: Decimal | None, gpu: Gpu, own: Gpu) -> Decimal | None:
    """A price that is given for the GPU of a question holds for no other one."""
    return given if gpu == own else None


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


def facility_kwh(need: RunNeed, recorder: Recorder) -> float | None:
    """Energy of a run's share of its nodes, and of what cools them. [kWh]

    None where the catalog knows no draw of a node.
    """
    node = recorder.snapshot.node_of(need.gpu)
    if node is None or node.maximum_power_kw is None:
        return None
    draw = it_power_kw(
        gpu_count=need.gpu_count,
        node_power_kw=node.maximum_power_kw,
        node_gpu_count=node.gpu_count,
        power_load_fraction=recorder.assume("power_load_fraction").value,
    )
    return float(
        facility_energy_kwh(
            it_power_kw=draw,
            power_usage_effectiveness=recorder.assume("power_usage_effectiveness").value,
            hours=need.wall_clock_hours.value,
        )
    )


def planned(
    run: TrainingRun,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    *,
    tariff: Tariff | None = None,
    pointer: str = "/run",
    followed: RunNeed | None = None,
) -> RunNeed | tuple[Infeasibility, ...]:
    """A run by itself, from its own day, today, or the end of the run that it follows.

    Args:
        run: The run.
        snapshot: The catalog on the as-of date.
        recorder: Takes the quantities of the run under its name.
        tariff: How its GPUs are paid for; in whole nodes, at no known price when None.
        pointer: JSON pointer of the run.
        followed: The run at whose end it starts.

    Raises:
        CoreError: If the run names what the catalog does not hold, or contradicts itself.
    """
    gpu = snapshot.gpu(run.gpu, pointer=f"{pointer}/gpu")
    day = _first_day(run, snapshot, pointer, is_bounded=followed is None)
    tariff = tariff or Tariff(None, gpu.node_gpu_count)
    return plan_training_run(
        run if followed else run.model_copy(update={"start_date": day}),
        snapshot=snapshot,
        recorder=recorder,
        horizon=Horizon(start_month=f"{day:%Y-%m}", month_count=1),
        # Where a count is given, the nearest that works is named, whether or not it fills nodes.
        gpu_multiple=tariff.gpu_multiple if run.given_gpu_count is None else 1,
        instance_gpu_count=tariff.gpu_multiple,
        pointer=pointer,
        start=followed.finish if followed else None,
        spending=_spending(tariff),
    )


def _first_day(
    run: TrainingRun, snapshot: CatalogSnapshot, pointer: str, *, is_bounded: bool
) -> date:
    """Day on which a run starts that follows none.

    Raises:
        InvalidScenario: If it is bounded and lies beyond the last month that is planned.
    """
    day, last = run.start_date or snapshot.as_of_date, last_day(LAST_MONTH)
    if is_bounded and day > last:
        raise InvalidScenario(
            f"a run starts on {last} at the latest, and this one on {day}",
            pointer=f"{pointer}/start_date" if run.start_date else "/as_of_date",
        )
    return min(day, last)


def _spending(tariff: Tariff) -> Spending | None:
    if tariff.price is None:
        return None
    hour = float(tariff.price)
    return Spending(lambda _: hour, tariff.gpu_multiple)
