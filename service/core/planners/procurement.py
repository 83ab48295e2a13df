"""How each pool and GPU is paid for: the first rule that matches, and a price that may be used.

Unknown is not zero: what has no usable price is refused by name, with the offers that were left
out and why.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal

from service.core.costs.negotiated import NegotiatedOffer
from service.core.costs.offers import cheapest_offer, explain_missing_offer, rented_at_once
from service.core.costs.owning import LONGEST_TEXT, assume_within, owned_at_once, source_of
from service.core.costs.terms import CommitmentMix, Ownership, Rental, ResolvedProcurement
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.prices import RentalPrice
from service.core.pricing import UnitPrice
from service.core.recorder import GIVEN, Recorder
from service.core.scenarios.procurement import (
    MixMethod,
    PoolKind,
    ProcurementRule,
    RentMethod,
)
from service.core.snapshot import CatalogSnapshot


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
        if rule.method.kind != "hosted" and rule.matches(pool, gpu.key):
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
        terms, multiple = owned_at_once(
            rule.method, gpu=gpu, site=site, currency=currency, recorder=recorder
        )
    elif rule.method.kind == "mix":
        terms, multiple = _mix(rule.method, gpu, currency, recorder)
    elif rule.method.kind == "rent":
        terms, multiple = _rent(rule.method, gpu, currency, recorder)
    else:
        raise InvalidScenario("hosted tokens pay for no GPUs", pointer=f"{pointer}/method")
    if isinstance(terms, str):
        return no_price(f"price of {gpu.key} in the {pool} pool", f"{pointer}: {terms}")
    owned_at = rule.site if isinstance(terms, Ownership) else None
    return ResolvedProcurement(pool, gpu, multiple, terms, owned_at)


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
    if isinstance(offer, NegotiatedOffer) and method.instance_type is not None:
        located = method.model_copy(update={"provider": offer.provider})
        return _rental(offer, redo), rented_at_once(located, gpu=gpu, snapshot=snapshot)
    return _rental(offer, redo), method.gpu_count_per_instance or offer.gpu_count


def _rental(offer: RentalPrice, redo_fraction: float) -> Rental:
    row = offer.row if isinstance(offer, NegotiatedOffer) else None
    source = (
        offer.described
        if isinstance(offer, NegotiatedOffer)
        else source_of(offer.key, offer.provenance)
    )

    def unit_price(value: Decimal) -> UnitPrice:
        return UnitPrice(
            value,
            source,
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
        negotiated=row,
    )


def rented_terms(
    method: RentMethod, *, gpu: Gpu, currency: str, recorder: Recorder
) -> Rental | str:
    """What renting a GPU costs, or what to do about a missing price."""
    return _rent(method, gpu, currency, recorder)[0]
