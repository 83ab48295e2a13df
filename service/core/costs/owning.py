"""What owning a GPU costs, part by part: as given, of the site, or of the catalog.

What is not known is named, and no number stands for it.
"""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from service.core.assumptions import AssumptionUsed
from service.core.costs.terms import NOTHING, Ownership
from service.core.errors import InvalidScenario
from service.core.formulas.finance import annuity_per_year, straight_line_charge_per_month
from service.core.hardware import Gpu, Node, Site
from service.core.prices import PurchasePrice
from service.core.pricing import UnitPrice
from service.core.recorder import GIVEN, Recorder
from service.core.scenarios.procurement import OwnMethod
from service.core.units import MONTHS_PER_YEAR
from service.core.value import Provenance

ASSUMED_CURRENCY = "USD"
"""Currency of the prices among the catalog's assumptions, as their names say."""
LONGEST_TEXT = 2000
LARGEST_PRICE = 1e9


def assume_within(recorder: Recorder, name: str, lowest: float, highest: float) -> AssumptionUsed:
    """Return an assumption that lies within its bounds.

    Raises:
        InvalidScenario: If an override lies outside.
    """
    used = recorder.assume(name)
    if not lowest <= used.value <= highest:
        raise InvalidScenario(
            f"{name} must be from {lowest:g} to {highest:g}", pointer=used.override_at
        )
    return used


def source_of(key: str, provenance: Provenance) -> str:
    """Name of a price and where it is from."""
    return f"{key}: {'; '.join(provenance.sources)}"[:LONGEST_TEXT]


@dataclass(frozen=True)
class _OwnedFacts:
    """Looks up what owning costs in the plan's currency; remembers what is not known by name."""

    method: OwnMethod
    gpu: Gpu
    site: Site | None
    currency: str
    recorder: Recorder
    missing: list[str] = field(default_factory=list)

    def unknown(self, name: str, why: str) -> UnitPrice:
        """No number, so that nothing can be priced with it by mistake."""
        self.missing.append(f"{name} ({why})")
        return UnitPrice(Decimal("NaN"), why)

    def ratio(self, name: str, lowest: float, highest: float) -> float:
        """A plain figure of the request, else the catalog's assumption."""
        given = getattr(self.method, name)
        found = assume_within(self.recorder, name, lowest, highest) if given is None else None
        return float(given if found is None else found.value)

    def price(self, name: str) -> UnitPrice:
        """A price of the request, else the catalog's assumption."""
        given = getattr(self.method, name)
        assumption = name.replace("_price_per_", f"_price_{ASSUMED_CURRENCY.lower()}_per_")
        return self._assumed(name, assumption) if given is None else UnitPrice(given, GIVEN)

    def _assumed(self, name: str, assumption: str) -> UnitPrice:
        if self.currency != ASSUMED_CURRENCY:
            return self.unknown(name, f"{assumption} is in {ASSUMED_CURRENCY}")
        used = assume_within(self.recorder, assumption, 0, LARGEST_PRICE)
        source = f"{used.name}: {used.source}"[:LONGEST_TEXT]
        return UnitPrice(Decimal(repr(used.value)), source, verified=used.verified)

    def kwh(self) -> UnitPrice:
        """Electricity tariff: of the request, else of the site, else of the assumptions."""
        name, site = "power_price_per_kwh", self.site
        if site is None or self.method.power_price_per_kwh is not None:
            return self.price(name)
        if site.currency != self.currency:
            return self.unknown(name, f"of site {site.key} it is in {site.currency}")
        tariff, facts = Decimal(repr(site.power_price_per_kwh)), site.provenance
        verified = facts.verified and name not in facts.unverified_fields
        return UnitPrice(tariff, source_of(site.key, facts), facts.checked, verified)

    def power_usage_effectiveness(self) -> float:
        """Facility energy over IT energy: of the request, else of the site, else assumed."""
        name, site = "power_usage_effectiveness", self.site
        if site is None or self.method.power_usage_effectiveness is not None:
            return self.ratio(name, 1, 5)
        self.recorder.rest_on(site.key, site.provenance, name)
        return site.power_usage_effectiveness

    def node_power_kw(self, node: Node | None) -> float:
        """Highest draw of a node: of the request, else of the catalog's node."""
        known = self.method.node_power_kw
        if known is None and node is not None:
            known = node.maximum_power_kw
            self.recorder.rest_on(node.key, node.provenance, "maximum_power_kw")
        if known is None:
            self.unknown("node_power_kw", f"no node of {self.gpu.key} has one in the catalog")
        return known or float("nan")

    def purchase(self) -> UnitPrice:
        """One GPU with its share of the server; where the catalog has the GPU alone, both."""
        name = "purchase_price_per_gpu"
        if self.method.lease_price_per_gpu_month is not None:
            return UnitPrice(Decimal(0), "leased")
        if self.method.purchase_price_per_gpu is not None:
            return self.price(name)
        rows = [row for row in self.recorder.snapshot.purchase_prices if row.gpu == self.gpu.key]
        usable = [row for row in rows if row.currency == self.currency]
        if not usable:
            currencies = ", ".join(sorted({row.currency for row in rows}))
            why = f"the catalog's is in {currencies}" if rows else "the catalog has none"
            return self.unknown(name, why)
        row = max(usable, key=_completeness)
        source = source_of(row.key, row.provenance)
        price = UnitPrice(row.typical, source, row.valid_from, row.provenance.verified)
        if row.includes == "node_share":
            return price
        server = self._assumed(name, "server_price_usd_per_gpu")
        return UnitPrice(
            price.value + server.value,
            f"{source} + {server.source}"[:LONGEST_TEXT],
            price.as_of_date,
            price.verified and server.verified,
        )

    def support_gpu_month(self, purchase: UnitPrice) -> UnitPrice:
        """A twelfth of the yearly share of the purchase price."""
        name, share = "support_fraction_per_year", self.ratio("support_fraction_per_year", 0, 1)
        is_given = self.method.support_fraction_per_year is not None
        return UnitPrice(
            purchase.value * Decimal(repr(share)) / MONTHS_PER_YEAR,
            f"{name} of {purchase.source}"[:LONGEST_TEXT],
            purchase.as_of_date,
            purchase.verified and (is_given or self.recorder.assume(name).verified),
        )

    def of_purchase(
        self, purchase: UnitPrice, network: UnitPrice, residual_fraction: float, years: float
    ) -> dict[str, UnitPrice]:
        """What else is bought for a GPU, and what a month takes as a share of all of it."""
        method = self.method
        storage = _asked_for(method.storage_price_per_gpu, GIVEN)
        installation = _asked_for(method.installation_price_per_gpu, GIVEN)
        lasting = purchase.value, network.value, storage.value, installation.value
        bought = sum(lasting, start=Decimal(0))
        shares = {
            "spares_gpu_month": method.spare_fraction_per_year,
            "insurance_gpu_month": method.insurance_fraction_per_year,
            "tax_gpu_month": method.property_tax_fraction_per_year,
        }
        return {
            "storage": storage,
            "installation": installation,
            "interest_gpu_month": self._interest(purchase, bought, residual_fraction, years),
        } | {
            name: _asked_for(
                bought * Decimal(repr(share)) / MONTHS_PER_YEAR,
                f"{share:g} a year of {bought:f}, {GIVEN}",
            )
            for name, share in shares.items()
        }

    def _interest(
        self, purchase: UnitPrice, bought: Decimal, residual_fraction: float, years: float
    ) -> UnitPrice:
        """Annuity of a month less the straight-line depreciation of a month."""
        if not self.method.with_interest or not bought.is_finite() or not bought:
            return NOTHING
        rate = assume_within(self.recorder, "discount_rate_per_year_fraction", 0, 1)
        left = residual_fraction * float(purchase.value / bought)
        annuity = annuity_per_year(
            purchase_price=float(bought),
            residual_fraction=left,
            discount_rate_per_year_fraction=rate.value,
            useful_life_years=years,
        )
        monthly = annuity / MONTHS_PER_YEAR - straight_line_charge_per_month(
            purchase_price=float(bought),
            residual_fraction=left,
            useful_life_months=years * MONTHS_PER_YEAR,
        )
        return UnitPrice(
            Decimal(repr(float(monthly))),
            f"{rate.name} {rate.value:g}: {rate.source}"[:LONGEST_TEXT],
            verified=rate.verified,
        )


def _asked_for(value: Decimal, source: str) -> UnitPrice:
    return UnitPrice(value, source) if value else NOTHING


def _completeness(row: PurchasePrice) -> tuple[bool, date, str]:
    """Prices with the server's share before those without, then the newest."""
    return row.includes == "node_share", row.valid_from, row.key


def owned_terms(
    method: OwnMethod, *, gpu: Gpu, site: Site | None, currency: str, recorder: Recorder
) -> Ownership | str:
    """What owning a GPU costs, part by part, or which figures to give.

    Raises:
        CoreError: If an override is out of its bounds.
    """
    return owned_at_once(method, gpu=gpu, site=site, currency=currency, recorder=recorder)[0]


def owned_at_once(
    method: OwnMethod, *, gpu: Gpu, site: Site | None, currency: str, recorder: Recorder
) -> tuple[Ownership | str, int]:
    """What owning a GPU costs, or which figures to give; and the GPUs that are bought at once.

    Raises:
        CoreError: If an override is out of its bounds.
    """
    return _own(_OwnedFacts(method, gpu, site, currency, recorder))


def _own(facts: _OwnedFacts) -> tuple[Ownership | str, int]:
    """Terms and GPUs bought at once, or which figures to give."""
    node = facts.recorder.snapshot.node_of(facts.gpu)
    node_gpu_count = facts.gpu.node_gpu_count if node is None else node.gpu_count
    purchase, lease = facts.purchase(), facts.method.lease_price_per_gpu_month
    network, years = facts.price("network_price_per_gpu"), facts.ratio("useful_life_years", 1, 15)
    residual_fraction = facts.ratio("residual_fraction", 0, 1)
    owned = Ownership(
        purchase=purchase,
        network=network,
        useful_life_months=round(MONTHS_PER_YEAR * years),
        residual_fraction=residual_fraction,
        node_power_kw=facts.node_power_kw(node),
        node_gpu_count=node_gpu_count,
        power_load_fraction=facts.ratio("power_load_fraction", 0, 1),
        idle_power_fraction=facts.ratio("idle_power_fraction", 0, 1),
        power_usage_effectiveness=facts.power_usage_effectiveness(),
        kwh=facts.kwh(),
        colocation_kw_month=facts.price("colocation_price_per_kw_month"),
        staff_gpu_month=facts.price("staff_price_per_gpu_month"),
        support_gpu_month=facts.support_gpu_month(purchase),
        lease_gpu_month=None if lease is None else UnitPrice(lease, GIVEN),
        is_owned_already=facts.method.is_owned_already,
        purchase_month=facts.method.purchase_month,
        is_bought_as_needed=facts.method.purchases == "as_needed",
        purchase_lead_months=facts.method.purchase_lead_month_count,
        **facts.of_purchase(purchase, network, residual_fraction, years),
    )
    if facts.missing:
        return f"give in the method what is not known: {'; '.join(facts.missing)}.", 0
    return owned, node_gpu_count
