"""Checks of sense, beyond form: one function each, in one list."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from service.catalog.entries import AliasFile, ArchitectureEntry, GpuEntry
from service.catalog.files import CatalogFolder, Located
from service.catalog.findings import Finding
from service.catalog.price_checks import PRICE_CHECKS
from service.core.architecture.model import ModelArchitecture
from service.core.hardware import Gpu, PeakRates
from service.core.snapshot import engine_families, plain_name

Check = Callable[[CatalogFolder], Iterator[Finding]]

USUAL_RATIOS = {"fp8": 2.0, "fp4": 4.0, "int8": 2.0}
"""Dense rate over that of 16 bit: half the bits, twice the rate."""
RATIO_TOLERANCE = 0.05
MAX_UNUSUAL_SHARE = 2.1
"""Most that an exception may explain, over the usual ratio: parts for the desktop halve their
16-bit rate alone. What is above counts sparsity on top, as twice the FP4 of Blackwell Ultra."""
GENERATIONS = (
    ("volta", "ampere", "hopper", "blackwell"),
    ("turing", "ada"),
)
"""Classes of one line of parts, each of which computes faster than the one before."""
REPORTED_SHARES = (0.85, 1.01)
"""Share of the nominal memory, read as GiB, that a driver can report."""
PARAMETER_TOLERANCE = 0.01
MAX_PUBLISHED = 12
"""Most entries whose layers are not described: no planner that reads layers can use one."""


def check_folder(folder: CatalogFolder) -> list[Finding]:
    """Run every check; an empty list means that the catalog can be published."""
    return [finding for check in CHECKS for finding in check(folder)]


def keys_are_unique(folder: CatalogFolder) -> Iterator[Finding]:
    """No two entries of one kind share a key."""
    kinds: tuple[tuple[str, tuple[Located[Any], ...]], ...] = (
        ("gpu", folder.gpus),
        ("node", folder.nodes),
        ("format", folder.formats),
        ("architecture", folder.architectures),
        ("site", folder.sites),
        ("assumption", folder.assumptions),
        ("cost fact", folder.costs),
    )
    for kind, entries in kinds:
        name = "name" if kind == "assumption" else "key"
        seen: dict[str, Located[Any]] = {}
        for located in entries:
            key = getattr(located.entry, name)
            first = seen.setdefault(key, located)
            if first is not located:
                place = first.finding("", name)
                message = f"{kind} {key!r} stands in {place.file}:{place.line} already"
                yield located.finding(message, name)


def sixteen_bit_rate(gpu: GpuEntry) -> float | None:
    """Dense rate of the 16-bit formats. [TFLOPS]"""
    return max(filter(None, (gpu.peaks.bf16, gpu.peaks.fp16)), default=None)


def peaks_are_dense(folder: CatalogFolder) -> Iterator[Finding]:
    """Narrow formats stand in the usual ratio to 16 bit, or the entry says why not.

    A headline rate that counts 2:4 sparsity is twice too high: FP8 at four times BF16.
    """
    for located in folder.gpus:
        peaks, base = located.entry.peaks, sixteen_bit_rate(located.entry)
        for name, usual in USUAL_RATIOS.items():
            rate: float | None = getattr(peaks, name)
            if rate is None or base is None:
                continue
            share = rate / base / usual
            is_usual = abs(share - 1) <= RATIO_TOLERANCE
            if is_usual or (name in peaks.unusual_ratios and share <= MAX_UNUSUAL_SHARE):
                continue
            yield located.finding(
                f"{name} is {rate / base:.2f} times 16 bit instead of {usual:.0f}: a rate with "
                "sparsity? If it is right, say why in unusual_ratios, which may explain up to "
                f"{MAX_UNUSUAL_SHARE * usual:g} times",
                "peaks",
                name,
            )


def unusual_ratios_are_needed(folder: CatalogFolder) -> Iterator[Finding]:
    """An exception does not outlive its reason."""
    for located in folder.gpus:
        peaks, base = located.entry.peaks, sixteen_bit_rate(located.entry)
        for name in peaks.unusual_ratios:
            rate: float | None = getattr(peaks, name)
            usual = rate and base and abs(rate / base / USUAL_RATIOS[name] - 1) <= RATIO_TOLERANCE
            if rate is None or usual:
                message = f"{name} has the usual ratio, or no rate: remove the exception"
                yield located.finding(message, "peaks", "unusual_ratios", name)


def generations_rise(folder: CatalogFolder) -> Iterator[Finding]:
    """No part computes as fast as the fastest part of a later generation."""
    fastest: dict[str, float] = defaultdict(float)
    for located in folder.gpus:
        rate = sixteen_bit_rate(located.entry) or 0.0
        fastest[located.entry.gpu_class] = max(fastest[located.entry.gpu_class], rate)
    for line in GENERATIONS:
        for located in folder.gpus:
            if located.entry.gpu_class not in line:
                continue
            later = line[line.index(located.entry.gpu_class) + 1 :]
            rate = sixteen_bit_rate(located.entry) or 0.0
            for name in later:
                if 0 < fastest[name] <= rate:
                    yield located.finding(
                        f"{rate:g} TFLOPS at 16 bit is not below the fastest part of the later "
                        f"class {name}, {fastest[name]:g}",
                        "peaks",
                    )


def reported_memory_fits_nominal(folder: CatalogFolder) -> Iterator[Finding]:
    """What programs see is a little less than the nominal figure: MiB, GB and GiB are not mixed."""
    low, high = REPORTED_SHARES
    for located in folder.gpus:
        nominal_mib = located.entry.memory.value * 1024
        for name in ("memory_reported", "memory_cuda"):
            fact = getattr(located.entry, name)
            if fact is not None and not low <= fact.value / nominal_mib <= high:
                yield located.finding(
                    f"{fact.value:g} MiB is {fact.value / nominal_mib:.2f} of the nominal "
                    f"{located.entry.memory.value:g} GB; between {low} and {high} is plausible",
                    name,
                )


def nodes_hold_known_gpus(folder: CatalogFolder) -> Iterator[Finding]:
    """Every node names a GPU of the catalog."""
    known = {located.entry.key for located in folder.gpus}
    for located in folder.nodes:
        if located.entry.gpu not in known:
            yield located.finding(f"unknown gpu {located.entry.gpu!r}", "gpu")


def nodes_draw_more_than_their_gpus(folder: CatalogFolder) -> Iterator[Finding]:
    """The maximum of a node is at least that of its GPUs alone."""
    limits = {gpu.entry.key: gpu.entry.thermal_design_power for gpu in folder.gpus}
    for located in folder.nodes:
        power, limit = located.entry.maximum_power, limits.get(located.entry.gpu)
        if power is None or limit is None:
            continue
        gpus_kw = located.entry.gpu_count * limit.value / 1000
        if power.value < gpus_kw:
            yield located.finding(
                f"{power.value:g} kW is below {located.entry.gpu_count} x {limit.value:g} W = "
                f"{gpus_kw:g} kW of the GPUs alone",
                "maximum_power",
            )


def _mismatch(architecture: ArchitectureEntry) -> float:
    published = architecture.published_parameter_count
    if published is None or not architecture.has_layers:
        return 0.0
    return architecture.parameter_count / published - 1


def parameter_counts_meet_published(folder: CatalogFolder) -> Iterator[Finding]:
    """The sum over the layers is within 1 % of the published total, or the entry says why not."""
    for located in folder.architectures:
        mismatch = _mismatch(located.entry)
        if abs(mismatch) > PARAMETER_TOLERANCE and located.entry.count_note is None:
            yield located.finding(
                f"the layers hold {located.entry.parameter_count:,} parameters, {mismatch:+.1%} "
                "against the published total; mend the layers or explain it in count_note",
                "published_parameter_count",
            )


def few_rest_on_published_counts(folder: CatalogFolder) -> Iterator[Finding]:
    """Layers are described but for a few entries."""
    published = [each for each in folder.architectures if not each.entry.has_layers]
    for located in published[MAX_PUBLISHED:]:
        yield located.finding(
            f"one of {len(published)} entries that rest on published counts; at most "
            f"{MAX_PUBLISHED} may: describe the layers",
            "parameter_count_basis",
        )


def native_formats_are_known(folder: CatalogFolder) -> Iterator[Finding]:
    """Every architecture's weights are published in a format of the catalog."""
    known = {located.entry.key for located in folder.formats}
    for located in folder.architectures:
        if located.entry.native_format not in known:
            message = f"unknown format {located.entry.native_format!r}"
            yield located.finding(message, "native_format")


def unverified_fields_exist(folder: CatalogFolder) -> Iterator[Finding]:
    """A field that is said to be unverified is a field of the core value."""
    gpu_fields = {*Gpu.model_fields, *(f"peak_tflops.{name}" for name in PeakRates.model_fields)}
    pairs: Iterable[tuple[tuple[Located[Any], ...], set[str]]] = (
        (folder.gpus, gpu_fields),
        (folder.architectures, set(ModelArchitecture.model_fields)),
    )
    for entries, names in pairs:
        for located in entries:
            for index, name in enumerate(located.entry.unverified_fields):
                if name not in names:
                    yield located.finding(f"no field {name!r}", "unverified_fields", index)


def facilities_use_at_least_what_they_serve(folder: CatalogFolder) -> Iterator[Finding]:
    """A power usage effectiveness below 1 would make energy."""
    for located in folder.sites:
        if located.entry.power_usage_effectiveness.value < 1:
            yield located.finding("below 1", "power_usage_effectiveness")


def cost_facts_name_known_assumptions(folder: CatalogFolder) -> Iterator[Finding]:
    """An assumption that is said to rest on a fact is one of the catalog."""
    known = {located.entry.name for located in folder.assumptions}
    for located in folder.costs:
        for index, name in enumerate(located.entry.assumptions):
            if name not in known:
                yield located.finding(f"unknown assumption {name!r}", "assumptions", index)


def cost_facts_are_not_of_the_future(folder: CatalogFolder) -> Iterator[Finding]:
    """No fact holds for a year after the one in which it was checked."""
    for located in folder.costs:
        if located.checked is not None and located.entry.year > located.checked.year:
            message = f"{located.entry.year} is after the last check, {located.checked.year}"
            yield located.finding(message, "year")


def aliases_are_clear(folder: CatalogFolder) -> Iterator[Finding]:
    """Every alias names an entry that exists, and no name stands for two."""
    keys: dict[str, set[str]] = {
        "gpu": {located.entry.key for located in folder.gpus},
        "architecture": {located.entry.key for located in folder.architectures},
        "engine": engine_families(located.entry.name for located in folder.assumptions),
        "format": {located.entry.key for located in folder.formats},
    }
    known = {(kind, plain_name(key)): key for kind in keys for key in keys[kind]}
    for located in folder.aliases:
        kind, target = cast("AliasFile", located.parents[0]).kind, located.entry.target
        if target is not None and target not in keys[kind]:
            yield located.finding(f"unknown {kind} {target!r}", "target")
        for index, name in enumerate(located.entry.names):
            first = known.setdefault((kind, plain_name(name)), name)
            if first is not name:
                yield located.finding(f"{name!r} is {first!r} already", "names", index)


CHECKS: tuple[Check, ...] = (
    aliases_are_clear,
    keys_are_unique,
    peaks_are_dense,
    unusual_ratios_are_needed,
    generations_rise,
    reported_memory_fits_nominal,
    nodes_hold_known_gpus,
    nodes_draw_more_than_their_gpus,
    parameter_counts_meet_published,
    few_rest_on_published_counts,
    native_formats_are_known,
    unverified_fields_exist,
    facilities_use_at_least_what_they_serve,
    cost_facts_name_known_assumptions,
    cost_facts_are_not_of_the_future,
    *PRICE_CHECKS,
)
"""Every check that a catalog must pass."""
