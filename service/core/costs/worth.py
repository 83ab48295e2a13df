"""What a plan costs as a whole: today, a year, an hour, a token; and its carbon."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from service.core.costs.owned import Purchase, book_value
from service.core.costs.owning import assume_within
from service.core.costs.terms import Ownership, ResolvedProcurement
from service.core.estimates import (
    CostLine,
    PoolSize,
    ServingServiceEstimate,
    TrainingRunEstimate,
)
from service.core.formulas.finance import (
    capital_recovery_fraction_per_year,
    effective_cost_per_gpu_hour,
    net_present_value,
)
from service.core.formulas.power import carbon_kg
from service.core.pricing import total
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.scenarios.procurement import PoolKind
from service.core.units import MONTHS_PER_YEAR, TOKENS_PER_MILLION

PoolKey = tuple[PoolKind, str]
"""A pool and the key of its GPU."""

for _name, _unit, _per, _formula in (
    (
        "plan_net_present_cost",
        "currency",
        "plan",
        "sum of cash of each month / (1 + r)^(months / 12), less the book value at the end",
    ),
    (
        "plan_equivalent_annual_cost",
        "currency",
        "plan",
        "net present cost x r / (1 - (1 + r)^-years)",
    ),
    (
        "plan_book_value_at_end",
        "currency",
        "plan",
        "what is bought less its depreciation, and what is prepaid, when the plan ends",
    ),
    ("plan_energy_kwh", "kWh", "plan", "energy of all owned pools"),
    (
        "plan_carbon_kg",
        "kg",
        "plan",
        "sum over pools of energy x carbon of the site; unknown where that of any pool is",
    ),
    (
        "cost_per_available_gpu_hour",
        "currency/gpu_hour",
        "pool",
        "cost of the pool over the GPU-hours that are held",
    ),
    ("run_amount", "currency", "run", "sum of the lines that the run causes"),
    ("service_amount", "currency", "service", "sum of the lines that the service causes"),
    (
        "service_cost_per_million_tokens",
        "currency/million_token",
        "service",
        "amount / tokens read and written x 10^6",
    ),
    (
        "service_cost_per_million_output_tokens",
        "currency/million_token",
        "service",
        "amount / tokens written x 10^6",
    ),
    (
        "service_cost_per_million_input_tokens",
        "currency/million_token",
        "service",
        "amount / tokens read x 10^6",
    ),
):
    define_quantity(_name, unit=_unit, per=_per, formula=_formula)  # type: ignore[arg-type]


def note_worth(
    lines: Sequence[CostLine],
    *,
    months: Sequence[str],
    owned: Mapping[PoolKey, tuple[Ownership, Sequence[Purchase]]],
    recorder: Recorder,
) -> None:
    """Remember what all payments are worth today, and how much that is a year.

    Cash of a month counts at its beginning. What is still worth something when the plan ends counts
    then: what is owned by its book value, a term that is paid in advance by what is left of it.
    """
    scope = recorder.within("plan")
    rate = assume_within(scope, "discount_rate_per_year_fraction", 0, 1).value
    by_month: dict[str, list[Decimal]] = {}
    for line in lines:
        by_month.setdefault(line.month, []).append(line.cash_amount)
    cash = [float(total(by_month.get(month, ()))) for month in months]
    left = sum(
        (book_value(terms, bought, len(months)) for terms, bought in owned.values()),
        start=_prepaid(lines),
    )
    present = float(
        net_present_value(
            cash_flows=[*cash, -float(left)],
            discount_rate_per_period_fraction=(1 + rate) ** (1 / MONTHS_PER_YEAR) - 1,
        )
    )
    recovery = capital_recovery_fraction_per_year(
        discount_rate_per_year_fraction=rate, useful_life_years=len(months) / MONTHS_PER_YEAR
    )
    scope.note("plan_book_value_at_end", float(left))
    scope.note("plan_net_present_cost", present)
    scope.note("plan_equivalent_annual_cost", present * float(recovery))


def _prepaid(lines: Iterable[CostLine]) -> Decimal:
    """Rent that is paid in the plan for hours beyond it."""
    rented = (line for line in lines if line.category in {"gpu_rental", "host_rental"})
    return total(line.cash_amount - line.amount for line in rented)


def note_pools(
    lines: Sequence[CostLine],
    pools: Sequence[PoolSize],
    procurement: Mapping[PoolKey, ResolvedProcurement],
    recorder: Recorder,
) -> tuple[str, ...]:
    """Remember what held hours cost, and the carbon of energy; why that is not known.

    Returns:
        Pools whose carbon is not known, each with the reason; empty where no pool is owned.
    """
    unknown: list[str] = []
    carbon: float | None = 0.0
    energy = 0.0
    for pool in pools:
        key = (pool.name, pool.gpu)
        of_pool = [line for line in lines if (line.pool, line.gpu) == key]
        alone = sum(each.name == pool.name for each in pools) == 1
        scope = recorder.within(f"pool:{pool.name if alone else f'{pool.name}:{pool.gpu}'}")
        if pool.allocated_gpu_hours > 0:
            cost = float(total(line.amount for line in of_pool))
            hour = effective_cost_per_gpu_hour(cost=cost, used_gpu_hours=pool.allocated_gpu_hours)
            scope.note("cost_per_available_gpu_hour", float(hour))
        kwh = float(sum(line.quantity for line in of_pool if line.category == "power"))
        found, why = _carbon(kwh, procurement.get(key), recorder)
        scope.note("carbon_kg", found)
        energy += kwh
        carbon = None if carbon is None or found is None else carbon + found
        unknown += [] if why is None else [f"{pool.name} on {pool.gpu}: {why}"]
    recorder.within("plan").note("plan_energy_kwh", energy)
    recorder.within("plan").note("plan_carbon_kg", carbon)
    is_any_owned = any(isinstance(each.terms, Ownership) for each in procurement.values())
    return tuple(unknown) if is_any_owned else ()


def _carbon(
    kwh: float, found: ResolvedProcurement | None, recorder: Recorder
) -> tuple[float | None, str | None]:
    """Carbon of a pool's energy, or why it is not known: unknown is not zero."""
    if found is None:
        return None, "bought from a provider, whose energy is not known"
    if not isinstance(found.terms, Ownership):
        return None, "rented, the energy of the provider is not known"
    if found.site is None:
        return None, "owned at no site of the catalog"
    intensity = recorder.snapshot.site(found.site).carbon_g_per_kwh
    if intensity is None:
        return None, f"the carbon of site {found.site} is not known"
    return float(carbon_kg(energy_kwh=kwh, carbon_g_per_kwh=intensity)), None


def note_workloads(
    runs: Iterable[TrainingRunEstimate],
    services: Iterable[ServingServiceEstimate],
    tokens: Mapping[str, Mapping[str, float | None]],
    recorder: Recorder,
) -> None:
    """Remember what each run costs, and each service and its tokens, unrounded.

    Args:
        runs: Runs of the answer.
        services: Services of the answer.
        tokens: Tokens of each service by the cost that is counted over them.
        recorder: Keeps the quantities.
    """
    for scope, name, amount in (*_of_runs(runs), *_of_services(services, tokens)):
        if amount is not None:
            recorder.within(scope).note(name, float(amount))


def _of_runs(runs: Iterable[TrainingRunEstimate]) -> Iterator[tuple[str, str, Decimal | None]]:
    for run in runs:
        yield f"run:{run.name}", "run_amount", run.amount


def _of_services(
    services: Iterable[ServingServiceEstimate], tokens: Mapping[str, Mapping[str, float | None]]
) -> Iterator[tuple[str, str, Decimal | float | None]]:
    for service in services:
        scope = f"service:{service.name}"
        yield scope, "service_amount", service.amount
        for name, count in tokens[service.name].items():
            # Cents, as in the answer, say little of small models: 0.0037 would be 0.00.
            if getattr(service, name) is not None and service.amount is not None and count:
                yield scope, f"service_{name}", float(service.amount) / count * TOKENS_PER_MILLION
