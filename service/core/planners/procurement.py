"""How each pool and GPU is paid for: the first rule that matches, and a price that may be used.

Unknown is not zero: what has no usable price is refused by name, with the offers that were left
out and why.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from service.core.assumptions import AssumptionUsed
from service.core.costs.terms import CommitmentMix, Ownership, Rental
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu, Node, Site
from service.core.planners.offers import cheapest_offer, explain_missing_offer, rented_at_once
from service.core.prices import PurchasePrice, RentalPrice
from service.core.pricing import UnitPrice
from service.core.recorder import GIVEN, Recorder
from service.core.scenarios.procurement import (
    MixMethod,
    OwnMethod,
    PoolKind,
    ProcurementRule,
    RentMethod,
)
from service.core.snapshot import CatalogSnapshot
from service.core.units import MONTHS_PER_YEAR
from service.core.value import Provenance

ASSUMED_CURRENCY = "USD"
"""Currency of the prices among the catalog's assumptions, as their names say."""
LONGEST_TEXT = 2000
LARGEST_PRICE = 1e9


@dataclass(frozen=True)
class ResolvedProcurement:
    """How the GPUs of one pool are paid for."""

    pool: PoolKind
    gpu: Gpu
    gpu_multiple: int
    """GPUs that are rented or bought at once."""
    terms: Rental | CommitmentMix | Ownership
    site: str | None
    """Site of owned nodes."""


def check_procurement_rules(
    rules: Sequence[ProcurementRule],
    *,
    gpu_keys: Collection[str],
    snapshot: CatalogSnapshot,
    pointer: str,
) -> None:
    """Refuse keys that nothing has: a misspelt rule would match nothing, and the next one hold.

    Args:
        rules: Rules of the scenario.
        gpu_keys: Keys of the scenario's GPUs, inline ones too.
        snapshot: Catalog.
        pointer: JSON pointer of the rules.

    Raises:
        UnknownKey: If a rule names a GPU or site that neither catalog nor scenario holds.
    """
    for index, rule in enumerate(rules):
        if rule.gpu != "any" and rule.gpu not in gpu_keys:
            snapshot.gpu(rule.gpu, pointer=f"{pointer}/{index}/gpu")
        if rule.site is not None:
            snapshot.site(rule.site, pointer=f"{pointer}/{index}/site")


def resolve_procurement(
    rules: Sequence[ProcurementRule],
    *,
    pool: PoolKind,
    gpu: Gpu,
    currency: str,
    recorder: Recorder,
    pointer: str,
) -> ResolvedProcurement | Infeasibility:
    """Find how the GPUs of a pool are paid for; the first rule that matches holds.

    Args:
        rules: Rules of the scenario, in order.
        pool: Pool that is paid for.
        gpu: GPU of the pool.
        currency: Currency of the plan; prices in another one are refused, never converted.
        recorder: Catalog and assumptions.
        pointer: JSON pointer of the rules.

    Returns:
        The terms, or why there are none: no rule matches, or no price may be used.

    Raises:
        CoreError: If the rule names an unknown site or an override is out of its bounds.
    """
    for index, rule in enumerate(rules):
        if rule.pool in {"any", pool} and rule.gpu in {"any", gpu.key}:
            return _resolve(
                rule,
                pool=pool,
                gpu=gpu,
                currency=currency,
                recorder=recorder,
                pointer=f"{pointer}/{index}",
            )
    return no_price(
        f"procurement rule for {gpu.key} in the {pool} pool",
        f'Add a procurement rule for pool "{pool}" or "any" and gpu "{gpu.key}" or "any": '
        f"none of the {len(rules)} given matches.",
    )


def _resolve(
    rule: ProcurementRule,
    *,
    pool: PoolKind,
    gpu: Gpu,
    currency: str,
    recorder: Recorder,
    pointer: str,
) -> ResolvedProcurement | Infeasibility:
    snapshot, site = recorder.snapshot, None
    if rule.site is not None:
        site = snapshot.site(rule.site, pointer=f"{pointer}/site")
    terms: Rental | CommitmentMix | Ownership | str
    if rule.method.kind == "own":
        terms, multiple = _own(_OwnedFacts(rule.method, gpu, site, currency, recorder))
    elif rule.method.kind == "mix":
        terms, multiple = _mix(rule.method, gpu, currency, recorder)
    else:
        terms, multiple = _rent(rule.method, gpu, currency, recorder)
    if isinstance(terms, str):
        return no_price(f"price of {gpu.key} in the {pool} pool", f"{pointer}: {terms}")
    owned_at = rule.site if isinstance(terms, Ownership) else None
    return ResolvedProcurement(pool, gpu, multiple, terms, owned_at)


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


def no_price(limit: str, nearest_fix: str) -> Infeasibility:
    """Say that a price is not known, and what to give."""
    return Infeasibility(
        workload=None,
        code="no_price",
        limit=limit,
        needed=None,
        available=None,
        unit=None,
        nearest_fix=nearest_fix[:LONGEST_TEXT],
    )


def _source(key: str, provenance: Provenance) -> str:
    return f"{key}: {'; '.join(provenance.sources)}"[:LONGEST_TEXT]


def _mix(
    method: MixMethod, gpu: Gpu, currency: str, recorder: Recorder
) -> tuple[CommitmentMix | str, int]:
    """Terms of a commitment and of what goes beyond it, or what to do about a missing price."""
    committed, multiple = _rent(method.committed, gpu, currency, recorder)
    rest, multiple_of_rest = _rent(method.rest, gpu, currency, recorder)
    if isinstance(committed, str):
        return f"committed: {committed}", 0
    if isinstance(rest, str):
        return f"rest: {rest}", 0
    mix = CommitmentMix(
        committed=committed,
        rest=rest,
        committed_gpu_count=method.committed_gpu_count,
        committed_gpu_multiple=multiple,
        paid_upfront=method.paid_upfront,
    )
    return mix, multiple_of_rest


def _rent(
    method: RentMethod, gpu: Gpu, currency: str, recorder: Recorder
) -> tuple[Rental | str, int]:
    """Terms and GPUs rented at once, or what to do about a missing price."""
    snapshot, redo = recorder.snapshot, 0.0
    if method.commitment == "spot":
        given = method.redo_fraction
        assumed = assume_within(recorder, "spot_redo_fraction", 0, 1) if given is None else None
        redo = given or 0.0 if assumed is None else assumed.value
    if method.price_per_gpu_hour is not None:
        price = UnitPrice(method.price_per_gpu_hour, GIVEN)
        rental = Rental(
            method.provider, method.region, method.commitment, price, redo_fraction=redo
        )
        return rental, rented_at_once(method, gpu=gpu, snapshot=snapshot)
    offer = cheapest_offer(method, gpu=gpu, currency=currency, snapshot=snapshot)
    if offer is None:
        return explain_missing_offer(method, gpu=gpu, currency=currency, snapshot=snapshot), 0
    return _rental(offer, redo), method.gpu_count_per_instance or offer.gpu_count


def _rental(offer: RentalPrice, redo_fraction: float) -> Rental:
    def unit_price(value: Decimal) -> UnitPrice:
        return UnitPrice(
            value,
            _source(offer.key, offer.provenance),
            offer.valid_from,
            offer.quality != "memory" and offer.provenance.verified,
        )

    host = offer.host_price_per_gpu_hour
    return Rental(
        provider=offer.provider,
        region=offer.region,
        commitment=offer.commitment,
        gpu_hour=unit_price(offer.price_per_gpu_hour),
        host_hour=None if host is None else unit_price(host),
        redo_fraction=redo_fraction,
    )


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
        return UnitPrice(tariff, _source(site.key, facts), facts.checked, verified)

    def power_usage_effectiveness(self) -> float:
        """Facility energy over IT energy: of the request, else of the site, else assumed."""
        name, site = "power_usage_effectiveness", self.site
        if site is None or self.method.power_usage_effectiveness is not None:
            return self.ratio(name, 1, 5)
        return site.power_usage_effectiveness

    def node_power_kw(self, node: Node | None) -> float:
        """Highest draw of a node: of the request, else of the catalog's node."""
        known = self.method.node_power_kw or (None if node is None else node.maximum_power_kw)
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
        source = _source(row.key, row.provenance)
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
    return _own(_OwnedFacts(method, gpu, site, currency, recorder))[0]


def rented_terms(
    method: RentMethod, *, gpu: Gpu, currency: str, recorder: Recorder
) -> Rental | str:
    """What renting a GPU costs, or what to do about a missing price."""
    return _rent(method, gpu, currency, recorder)[0]


def _own(facts: _OwnedFacts) -> tuple[Ownership | str, int]:
    """Terms and GPUs bought at once, or which figures to give."""
    node = facts.recorder.snapshot.node_of(facts.gpu)
    node_gpu_count = facts.gpu.node_gpu_count if node is None else node.gpu_count
    purchase, lease = facts.purchase(), facts.method.lease_price_per_gpu_month
    owned = Ownership(
        purchase=purchase,
        network=facts.price("network_price_per_gpu"),
        useful_life_months=round(MONTHS_PER_YEAR * facts.ratio("useful_life_years", 1, 15)),
        residual_fraction=facts.ratio("residual_fraction", 0, 1),
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
    )
    if facts.missing:
        return f"give in the method what is not known: {'; '.join(facts.missing)}.", 0
    return owned, node_gpu_count
