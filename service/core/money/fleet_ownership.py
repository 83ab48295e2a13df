"""What a fleet costs to own: what is bought, what it takes to run, and how that compares to rent.

No dates: a year has 8,760 hours and a month 730. Each amount is rounded once, from floats.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from service.core.answers import recorder_for, shared_fields
from service.core.costs.owning import assume_within, owned_terms
from service.core.costs.terms import Ownership, Rental
from service.core.formulas.finance import (
    annuity_per_year,
    break_even_month,
    break_even_utilization_fraction,
    capital_recovery_fraction_per_year,
)
from service.core.formulas.power import carbon_kg, facility_energy_kwh, it_power_kw
from service.core.hardware import Site
from service.core.money.fleet_ownership_types import (
    CostPart,
    OwnershipAnswer,
    OwnershipCost,
    OwnershipQuestion,
    RentComparison,
)
from service.core.planners.procurement import no_price, rented_terms
from service.core.pricing import UnitPrice, amounts_of, money, printed, total
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.snapshot import CatalogSnapshot
from service.core.units import HOURS_PER_YEAR, MONTHS_PER_YEAR

for _name, _unit, _formula in (
    ("ownership_cost_per_gpu_hour", "currency/gpu_hour", "equivalent annual cost / GPUs / 8760"),
    ("ownership_cost_per_used_gpu_hour", "currency/gpu_hour", "cost per GPU-hour / used share"),
    (
        "break_even_utilization_fraction",
        "1",
        "cost per idle GPU-hour / (rent per GPU-hour - what power an hour of use adds)",
    ),
    ("break_even_months", "count", "purchase / (rent of a month - running cost of a month)"),
    ("discount_rate_fraction", "1", "yearly rate at which later payments count less"),
):
    define_quantity(_name, unit=_unit, per="pool", formula=_formula)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Fleet:
    question: OwnershipQuestion
    owned: Ownership
    discount_rate: float
    site: Site | None

    @property
    def years(self) -> float:
        return self.owned.useful_life_months / MONTHS_PER_YEAR

    @property
    def hours(self) -> float:
        """GPU-hours of a year."""
        return self.question.gpu_count * HOURS_PER_YEAR

    def power_kw(self, load: float) -> float:
        return float(
            it_power_kw(
                gpu_count=self.question.gpu_count,
                node_power_kw=self.owned.node_power_kw,
                node_gpu_count=self.owned.node_gpu_count,
                power_load_fraction=load,
            )
        )

    @property
    def energy_kwh(self) -> float:
        """Energy of a year, GPUs at the mean of what they draw used and idle."""
        idle, used = self.owned.idle_power_fraction, self.question.utilization_fraction
        return self._energy_kwh(idle + used * (self.owned.power_load_fraction - idle))

    @property
    def power_of_use_per_gpu_hour(self) -> float:
        """What an hour of use costs in power beyond an idle one."""
        idle, load = (
            self._energy_kwh(share)
            for share in (self.owned.idle_power_fraction, self.owned.power_load_fraction)
        )
        return (load - idle) / self.hours * float(self.owned.kwh.value)

    def _energy_kwh(self, load: float) -> float:
        return float(
            facility_energy_kwh(
                it_power_kw=self.power_kw(load),
                power_usage_effectiveness=self.owned.power_usage_effectiveness,
                hours=HOURS_PER_YEAR,
            )
        )

    @property
    def carbon_g_per_kwh(self) -> float | None:
        given = self.question.carbon_g_per_kwh
        return given if given is not None or self.site is None else self.site.carbon_g_per_kwh

    @property
    def carbon_kg(self) -> float | None:
        """Carbon of a year; None where the intensity is not known."""
        carbon = self.carbon_g_per_kwh
        if carbon is None:
            return None
        return float(carbon_kg(energy_kwh=self.energy_kwh, carbon_g_per_kwh=carbon))


def estimate_ownership(question: OwnershipQuestion, snapshot: CatalogSnapshot) -> OwnershipAnswer:
    """Cost a fleet that is bought and run, and compare it with rent.

    Raises:
        CoreError: If the question names what the release does not hold.
    """
    recorder = recorder_for(question, snapshot)
    gpu = snapshot.gpu(question.gpu, pointer="/gpu")
    site = None if question.site is None else snapshot.site(question.site, pointer="/site")
    owned = owned_terms(
        question.method, gpu=gpu, site=site, currency=question.currency, recorder=recorder
    )
    rented = rented_terms(question.rent, gpu=gpu, currency=question.currency, recorder=recorder)
    missing = tuple(
        no_price(f"{limit} {gpu.key}", terms)
        for limit, terms in (("cost of owning", owned), ("rent of", rented))
        if isinstance(terms, str)
    )
    cost, comparison, years = None, None, None
    if isinstance(owned, Ownership):
        rate = assume_within(recorder, "discount_rate_per_year_fraction", 0, 1).value
        recorder.note("discount_rate_fraction", rate)
        fleet = _Fleet(question, owned, rate, site)
        with amounts_of(f"an amount of the {question.gpu_count} GPUs", pointer="/gpu_count"):
            cost, years = _cost(fleet), fleet.years
            _note_cost(cost, recorder)
            if isinstance(rented, Rental):
                comparison = _compare(fleet, cost, rented, recorder)
        if isinstance(rented, Rental):
            recorder.rest_on_price(rented.gpu_hour.source, verified=rented.is_verified)
    return OwnershipAnswer(
        **shared_fields(recorder, infeasibilities=missing),
        gpu_count=question.gpu_count,
        currency=question.currency,
        useful_life_years=years,
        ownership=cost,
        rent=comparison,
    )


def _part(name: str, price: UnitPrice, unit: str, quantity: float) -> CostPart:
    units, unit_price = printed(quantity), price.printed
    return CostPart(
        name=name,
        unit_price=unit_price,
        unit=unit,
        quantity=units,
        amount=money(units * unit_price),
        price_source=price.source,
        price_verified=price.verified,
    )


def _given(amount: Decimal) -> UnitPrice:
    return UnitPrice(amount, "given in the request")


def _capex(fleet: _Fleet) -> Iterator[CostPart]:
    asked = fleet.question
    for name, price in (
        ("gpu_and_server", fleet.owned.purchase),
        ("network", fleet.owned.network),
        ("storage", fleet.owned.storage),
        ("installation", fleet.owned.installation),
    ):
        if price.value:
            yield _part(name, price, "gpu", asked.gpu_count)


def _opex(fleet: _Fleet, capex: Decimal) -> Iterator[CostPart]:
    owned, asked = fleet.owned, fleet.question.method
    gpu_months = fleet.question.gpu_count * MONTHS_PER_YEAR
    kw_months = fleet.power_kw(1.0) * MONTHS_PER_YEAR
    if owned.lease_gpu_month is not None:
        yield _part("lease", owned.lease_gpu_month, "gpu_month", gpu_months)
    yield _part("power", owned.kwh, "kWh", fleet.energy_kwh)
    yield _part("facility", owned.colocation_kw_month, "kW_month", kw_months)
    yield _part("staff", owned.staff_gpu_month, "gpu_month", gpu_months)
    yield _part("support", owned.support_gpu_month, "gpu_month", gpu_months)
    for name, share in (
        ("spares", asked.spare_fraction_per_year),
        ("insurance", asked.insurance_fraction_per_year),
        ("property_tax", asked.property_tax_fraction_per_year),
    ):
        if share:
            yield _part(name, _given(capex), "share_of_purchase", share)


def _cost(fleet: _Fleet) -> OwnershipCost:
    capex = tuple(_capex(fleet))
    bought = total(part.amount for part in capex)
    opex = tuple(_opex(fleet, bought))
    running = total(part.amount for part in opex)
    hardware = total(part.amount for part in capex if part.name == "gpu_and_server")
    residual = money(float(hardware) * fleet.owned.residual_fraction)
    sunk, years = fleet.owned.is_owned_already, fleet.years
    depreciation = float(bought - residual) / years
    annuity = float(
        annuity_per_year(
            purchase_price=float(bought),
            residual_fraction=float(residual / bought) if bought else 0.0,
            discount_rate_per_year_fraction=fleet.discount_rate,
            useful_life_years=years,
        )
    )
    yearly = annuity + float(running)
    return OwnershipCost(
        capex=capex,
        capex_amount=bought,
        residual_amount=residual,
        opex_per_year=opex,
        opex_amount_per_year=running,
        depreciation_per_year=money(depreciation),
        annuity_per_year=money(annuity),
        equivalent_annual_cost=money(yearly),
        net_present_cost=money(_present_cost(fleet, yearly)),
        total_cost=money(float(bought - residual) + float(running) * years),
        cost_per_gpu_hour=printed(yearly / fleet.hours),
        cost_per_used_gpu_hour=printed(yearly / fleet.hours / fleet.question.utilization_fraction),
        sunk_amount=bought if sunk else Decimal("0.00"),
        avoidable_cost_per_gpu_hour=printed((float(running) if sunk else yearly) / fleet.hours),
        accrual_cost_per_gpu_hour=printed((depreciation + float(running)) / fleet.hours),
        energy_kwh_per_year=fleet.energy_kwh,
        carbon_kg_per_year=fleet.carbon_kg,
    )


def _present_cost(fleet: _Fleet, yearly: float) -> float:
    """Cost today of the useful life: what its equivalent annual cost is worth."""
    recovery = capital_recovery_fraction_per_year(
        discount_rate_per_year_fraction=fleet.discount_rate, useful_life_years=fleet.years
    )
    return yearly / float(recovery)


def _note_cost(cost: OwnershipCost, recorder: Recorder) -> None:
    for part in (*cost.capex, *cost.opex_per_year):
        recorder.rest_on_price(part.price_source, verified=part.price_verified)
    recorder.note("ownership_cost_per_gpu_hour", float(cost.cost_per_gpu_hour))
    recorder.note("ownership_cost_per_used_gpu_hour", float(cost.cost_per_used_gpu_hour))


def _break_even_utilization(fleet: _Fleet, cost: OwnershipCost, price: float) -> float | None:
    """Share of hours at which rent costs what owning does, whose power grows with use."""
    added = fleet.power_of_use_per_gpu_hour
    if price <= added:
        return None
    avoidable = float(cost.avoidable_cost_per_gpu_hour)
    return float(
        break_even_utilization_fraction(
            ownership_cost_per_gpu_hour=avoidable - added * fleet.question.utilization_fraction,
            rental_price_per_gpu_hour=price - added,
        )
    )


def _compare(
    fleet: _Fleet, cost: OwnershipCost, rented: Rental, recorder: Recorder
) -> RentComparison:
    price = rented.all_in
    used_hours = fleet.hours * fleet.question.utilization_fraction
    rent_per_year = float(price) * used_hours
    fraction = _break_even_utilization(fleet, cost, float(price))
    months = float(
        break_even_month(
            purchase_price=float(cost.capex_amount - cost.sunk_amount),
            running_cost_per_month=float(cost.opex_amount_per_year) / MONTHS_PER_YEAR,
            rental_cost_per_month=rent_per_year / MONTHS_PER_YEAR,
        )
    )
    reached = months if isfinite(months) and months <= fleet.owned.useful_life_months else None
    recorder.note("break_even_utilization_fraction", fraction)
    recorder.note("break_even_months", reached)
    return RentComparison(
        price_per_gpu_hour=printed(price),
        price_source=rented.gpu_hour.source,
        price_verified=rented.is_verified,
        amount_per_year=money(rent_per_year),
        break_even_utilization_fraction=fraction,
        break_even_months=reached,
    )
