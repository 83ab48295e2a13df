"""How every pool of a plan is paid for: by its rule, and first with what is owned already."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.core.costs.existing import ExistingLot, taken_from
from service.core.costs.owning import owned_terms
from service.core.costs.spending import Spending
from service.core.costs.terms import Ownership, Rental, ResolvedProcurement
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility
from service.core.formulas.calendar import month_index
from service.core.hardware import Gpu
from service.core.planners.ownership import PoolKey, PriceChange
from service.core.planners.procurement import no_price, resolve_procurement
from service.core.pooling.workloads import PoolUse
from service.core.pricing import UnitPrice
from service.core.recorder import GIVEN, Recorder
from service.core.scenarios.existing import ExistingGpus
from service.core.scenarios.procurement import OwnMethod, PoolKind, ProcurementRule
from service.core.scenarios.scenario import Scenario


@dataclass(frozen=True)
class Buying:
    """How each pool and GPU is paid for, resolved once; remembers what could not be."""

    scenario: Scenario
    recorder: Recorder
    resolved: dict[PoolKey, ResolvedProcurement] = field(default_factory=dict)
    refused: dict[PoolKey, Infeasibility] = field(default_factory=dict)

    def of(self, pool: PoolKind, gpu: Gpu) -> ResolvedProcurement | None:
        """Return how a GPU of a pool is paid for, None when no rule or price can be used."""
        key = (pool, gpu.key)
        if key not in self.resolved and key not in self.refused:
            found = resolve_procurement(
                self.scenario.procurement,
                pool=pool,
                gpu=gpu,
                currency=self.scenario.currency,
                recorder=self.recorder,
                pointer="/scenario/procurement",
            )
            if isinstance(found, Infeasibility):
                self.refused[key] = found
            else:
                self.resolved[key] = found
        return self.resolved.get(key)

    def gpu_multiple(self, pool: PoolKind, gpu: Gpu) -> int:
        """GPUs that are rented or bought at once. [count]"""
        found = self.of(pool, gpu)
        return gpu.node_gpu_count if found is None else found.gpu_multiple

    def site_of(self, pool: PoolKind, gpu: Gpu) -> str | None:
        """Site of owned nodes."""
        found = self.of(pool, gpu)
        return None if found is None else found.site

    def spending(self, pool: PoolKind, gpu: Gpu, pointer: str) -> Spending | None:
        """What GPUs of a pool cost by the hour; None when no rule or price can be used.

        Raises:
            InvalidScenario: If they have no price by the hour: what is bought, committed for a term
                or shared costs the same however long a run holds it.
        """
        found = self.of(pool, gpu)
        if found is None:
            return None
        terms, pooling = found.terms, self.scenario.pooling
        is_alone = pooling.kind == "separate" and pooling.fleet_gpu_count is None
        if not is_alone or self.scenario.existing_gpus or not isinstance(terms, Rental):
            raise InvalidScenario(
                "an amount sizes a run only in a pool of its own whose GPUs are rented by the "
                "hour: elsewhere its cost depends on what else the pool does; give gpu_count or "
                "finish_date",
                pointer=f"{pointer}/sizing/amount",
            )
        change = PriceChange.assumed(self.recorder.off(), self.scenario.horizon.start_month)

        def price_in(month: str) -> float:
            prices = [terms.gpu_hour] + ([] if terms.host_hour is None else [terms.host_hour])
            hour = sum(change.at(price, month, terms.commitment).value for price in prices)
            return float(hour) * (1.0 + terms.redo_fraction)

        return Spending(price_in, found.gpu_multiple)

    def is_owned(self, pool: PoolKind, gpu: Gpu) -> bool:
        """True when the GPUs are bought, and so paid for over the whole horizon."""
        found = self.of(pool, gpu)
        return found is not None and isinstance(found.terms, Ownership)

    def existing(
        self, uses: Sequence[PoolUse]
    ) -> tuple[dict[PoolKey, list[ExistingLot]], tuple[Infeasibility, ...]]:
        """Lots of the existing GPUs that each pool uses, and what is not known of their cost."""
        found: dict[PoolKey, list[ExistingLot]] = {}
        missing: list[Infeasibility] = []
        used: dict[str, int] = {}
        for use in sorted(uses, key=lambda use: use.kind != "serving"):
            if not use.existing_gpu_count:
                continue
            lots = list(self._lots(use))
            missing += [lot for lot in lots if isinstance(lot, Infeasibility)]
            known = [lot for lot in lots if isinstance(lot, ExistingLot)]
            _, left = taken_from(known, used.get(use.gpu.key, 0))
            found[use.kind, use.gpu.key], _ = taken_from(left, use.existing_gpu_count)
            used[use.gpu.key] = used.get(use.gpu.key, 0) + use.existing_gpu_count
        return found, tuple({lack.limit: lack for lack in missing}.values())

    def _lots(self, use: PoolUse) -> Iterator[ExistingLot | Infeasibility]:
        site = self.site_of(use.kind, use.gpu)
        for index, lot in enumerate(self.scenario.existing_gpus):
            if lot.serves(use.gpu.key, site):
                yield self._lot(lot, use, f"/scenario/existing_gpus/{index}")

    def _lot(self, lot: ExistingGpus, use: PoolUse, pointer: str) -> ExistingLot | Infeasibility:
        """What a lot costs; its running like what the pool's rule owns, else by the catalog."""
        method, snapshot = lot.method or self._own_method(use), self.recorder.snapshot
        key = lot.site or self.site_of(use.kind, use.gpu)
        terms = owned_terms(
            method,
            gpu=use.gpu,
            site=None if key is None else snapshot.site(key, pointer=f"{pointer}/site"),
            currency=self.scenario.currency,
            recorder=self.recorder,
        )
        if isinstance(terms, str):
            return no_price(f"cost of existing {use.gpu.key}", f"{pointer}/method: {terms}")
        remaining = lot.remaining_life_months
        if remaining is None and lot.purchase_date is not None:
            age = month_index(self.scenario.horizon.start_month)
            age -= month_index(f"{lot.purchase_date:%Y-%m}")
            remaining = max(1, terms.useful_life_months - age)
        return ExistingLot(
            gpu_count=lot.gpu_count,
            running=terms,
            book_value=UnitPrice(lot.book_value_per_gpu, GIVEN),
            remaining_life_months=remaining or 1,
            site=key,
        )

    def _own_method(self, use: PoolUse) -> OwnMethod:
        """The method of the pool's rule where that owns, else what the catalog knows."""
        for rule in self.scenario.procurement:
            if _matches(rule, use):
                if rule.method.kind == "own":
                    return rule.method.model_copy(update={"lease_price_per_gpu_month": None})
                break
        return OwnMethod(kind="own")


def _matches(rule: ProcurementRule, use: PoolUse) -> bool:
    return rule.pool in {"any", use.kind} and rule.gpu in {"any", use.gpu.key}
