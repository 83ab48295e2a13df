"""The catalog resolved to plain values for one release and one as-of date."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar, cast, get_args

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption, engine_and_version, engines_named
from service.core.errors import UnknownKey
from service.core.hardware import Gpu, Node, NumberFormat, Site
from service.core.prices import CostFact, PriceBook, PurchasePrice, RentalPrice, TokenPrice
from service.core.value import Key, LongText, Provenance, Text, Value


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


Entry = TypeVar("Entry", bound=_Keyed)


class ReleaseRef(Value):
    """A catalog release, named so that it can be found again and checked."""

    version: Text
    """Calendar version, such as "2026.11.1"."""
    digest: Text
    """SHA-256 over the release's content."""


AliasKind = Literal["gpu", "architecture", "engine", "format"]


class Alias(Value):
    """Another spelling of a catalog key, as data sheets, clouds and benchmarks write it."""

    kind: AliasKind
    """What it names."""
    name: Text
    """The spelling; case, spaces, dashes and underscores do not matter."""
    target: Key | None = None
    """Key that it stands for; null when it names no single entry, on purpose."""
    note: LongText | None = None
    """What is assumed where the name is ambiguous."""
    provenance: Provenance = Provenance()
    """Where the spelling is from."""


def plain_name(name: str) -> str:
    """A name as spellings are compared: without case, spaces, dashes and underscores."""
    return name.lower().translate(_SEPARATORS)


_SEPARATORS = str.maketrans("", "", " \t-_")


def key_named(
    kind: AliasKind, name: str, keys: Iterable[str], aliases: Mapping[tuple[AliasKind, str], Alias]
) -> str | None:
    """Return the key that a name stands for; None when it is unknown or names none on purpose."""
    plain = plain_name(name)
    alias = aliases.get((kind, plain))
    if alias is not None:
        return alias.target
    return next((key for key in keys if plain_name(key) == plain), None)


def by_spelling(aliases: Iterable[Alias]) -> Mapping[tuple[AliasKind, str], Alias]:
    """Aliases by kind and plain name."""
    return MappingProxyType({(alias.kind, plain_name(alias.name)): alias for alias in aliases})


def _likest(name: str, keys: Iterable[str]) -> str | None:
    """The key that is most like a name, or else the shortest that begins with it."""
    known = list(keys)
    written = name.lower().rsplit("/", 1)[-1]
    like = get_close_matches(written, known, n=1)
    begun = [key for key in known if plain_name(key).startswith(plain_name(written))]
    return next(iter(like), min(begun, key=len, default=None) if written else None)


def engine_families(assumptions: Iterable[str]) -> set[str]:
    """Engines without their versions, from the names of assumptions."""
    found = (engine_and_version(each) for each in engines_named(assumptions))
    return {pair[0] for pair in found if pair}


def _by_key(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    return MappingProxyType({entry.key: entry for entry in entries})


@dataclass(frozen=True)
class CatalogSnapshot:
    """Plain values of one release as they hold on one day; never modified after it is built."""

    release: ReleaseRef
    as_of_date: date
    gpus: Mapping[str, Gpu]
    nodes: Mapping[str, Node]
    architectures: Mapping[str, ModelArchitecture]
    formats: Mapping[str, NumberFormat]
    sites: Mapping[str, Site]
    assumptions: Mapping[str, Assumption]
    rental_prices: tuple[RentalPrice, ...]
    """Rental prices in force on the as-of date."""
    purchase_prices: tuple[PurchasePrice, ...]
    """Purchase prices in force on the as-of date."""
    token_prices: tuple[TokenPrice, ...]
    """Prices of hosted tokens in force on the as-of date."""
    cost_facts: Mapping[str, CostFact]
    """Cost facts of the as-of date's year and those before it."""
    aliases: Mapping[tuple[AliasKind, str], Alias]
    """Other spellings of keys, by kind and plain name."""
    price_book: PriceBook | None = None
    """Prices that the asking team has negotiated; they stand above those of the catalog."""

    @classmethod
    def build(
        cls,
        *,
        release: ReleaseRef,
        as_of_date: date,
        gpus: Iterable[Gpu] = (),
        nodes: Iterable[Node] = (),
        architectures: Iterable[ModelArchitecture] = (),
        formats: Iterable[NumberFormat] = (),
        sites: Iterable[Site] = (),
        assumptions: Iterable[Assumption] = (),
        rental_prices: Iterable[RentalPrice] = (),
        purchase_prices: Iterable[PurchasePrice] = (),
        token_prices: Iterable[TokenPrice] = (),
        cost_facts: Iterable[CostFact] = (),
        aliases: Iterable[Alias] = (),
    ) -> "CatalogSnapshot":
        """Index entries by key and keep the prices that hold on the as-of date."""
        return cls(
            release=release,
            as_of_date=as_of_date,
            gpus=_by_key(gpus),
            nodes=_by_key(nodes),
            architectures=_by_key(architectures),
            formats=_by_key(formats),
            sites=_by_key(sites),
            assumptions=MappingProxyType({a.name: a for a in assumptions}),
            rental_prices=tuple(p for p in rental_prices if p.holds_on(as_of_date)),
            purchase_prices=tuple(p for p in purchase_prices if p.holds_on(as_of_date)),
            token_prices=tuple(p for p in token_prices if p.holds_on(as_of_date)),
            cost_facts=_by_key(fact for fact in cost_facts if fact.holds_on(as_of_date)),
            aliases=by_spelling(aliases),
        )

    def _find(self, kind: str, entries: Mapping[str, Entry], key: str, pointer: str) -> Entry:
        try:
            return entries[key]
        except KeyError:
            raise self.unknown(kind, key, entries, pointer=pointer) from None

    def unknown(
        self, kind: str, key: str, keys: Iterable[str], *, pointer: str, known: str = ""
    ) -> UnknownKey:
        """Make the refusal of a key that names the nearest one, by spelling or by likeness."""
        nearest, alias = self._spelled(kind, key), None
        if nearest is not None:
            alias = self.aliases.get((cast("AliasKind", kind), plain_name(key)))
        else:
            nearest = _likest(key, keys)
        note = alias.note if alias is not None else None
        hints = (f"the nearest is {nearest!r}" if nearest else None, note, known)
        hint = "; ".join(filter(None, hints))
        return UnknownKey(kind, key, release=self.release.version, pointer=pointer, hint=hint)

    def _spelled(self, kind: str, key: str) -> str | None:
        """The key that a spelling stands for; an engine in the version that is asked for."""
        if kind not in get_args(AliasKind):
            return None
        if kind != "engine":
            return self.key_of(cast("AliasKind", kind), key)
        name, version = engine_and_version(key) or (key, ())
        family = self.key_of("engine", name)
        pairs = [(each, engine_and_version(each)) for each in engines_named(self.assumptions)]
        held = [(each, pair[1]) for each, pair in pairs if pair and pair[0] == family]
        if not held:
            return None
        if version and version >= held[0][1]:
            return f"{family}-{'.'.join(map(str, version))}"
        return held[0][0] if version else held[-1][0]

    def gpu(self, ref: str | Gpu, *, pointer: str = "") -> Gpu:
        """Return a GPU by key, or the one described in the request as it is. Raises UnknownKey."""
        return ref if isinstance(ref, Gpu) else self._find("gpu", self.gpus, ref, pointer)

    def architecture(self, ref: str | ModelArchitecture, *, pointer: str = "") -> ModelArchitecture:
        """Return an architecture by key, or the one described in the request. Raises UnknownKey."""
        if isinstance(ref, ModelArchitecture):
            return ref
        return self._find("architecture", self.architectures, ref, pointer)

    def number_format(self, key: str, *, pointer: str = "") -> NumberFormat:
        """Return a number format: an unknown one is an error, never 16 bit. Raises UnknownKey."""
        return self._find("format", self.formats, key, pointer)

    def site(self, key: str, *, pointer: str = "") -> Site:
        """Return a site. Raises UnknownKey."""
        return self._find("site", self.sites, key, pointer)

    def key_of(self, kind: AliasKind, name: str) -> str | None:
        """Return the key that a name stands for, in whatever spelling; None when it is unknown.

        The key of an engine is its name without a version.
        A name that stands for no single entry on purpose ("24 GB card") is unknown, too.
        """
        keys: dict[AliasKind, Iterable[str]] = {
            "gpu": self.gpus,
            "architecture": self.architectures,
            "engine": engine_families(self.assumptions),
            "format": self.formats,
        }
        return key_named(kind, name, keys[kind], self.aliases)

    def token_price(self, key: str, *, pointer: str = "") -> TokenPrice:
        """Return the price of hosted tokens of a key that holds on the day. Raises UnknownKey."""
        return self._find("token price", _by_key(self.token_prices), key, pointer)

    def token_prices_of(self, architecture: str) -> tuple[TokenPrice, ...]:
        """Return what is asked for tokens of an architecture, the odd and unverified ones too."""
        return tuple(p for p in self.token_prices if p.architecture == architecture)

    def node_of(self, gpu: Gpu) -> Node | None:
        """Return the usual node of a GPU: the one with the GPU's own node size, else any."""
        nodes = [node for node in self.nodes.values() if node.gpu == gpu.key]
        exact = [node for node in nodes if node.gpu_count == gpu.node_gpu_count]
        return next(iter(exact or nodes), None)

    def assumption(self, name: str, *qualifiers: str) -> Assumption | None:
        """Return the most specific assumption of that name, None when there is none at all.

        `assumption("a", "x", "y")` looks for a.x.y, then a.x, then a.
        """
        for length in range(len(qualifiers), -1, -1):
            found = self.assumptions.get(".".join((name, *qualifiers[:length])))
            if found is not None:
                return found
        return None
