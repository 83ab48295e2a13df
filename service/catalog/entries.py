"""Strict schema of the catalog's files on hardware, architectures, sites and assumptions.

A fact carries its unit in the file, and the unit is part of the schema: a figure in GiB cannot
stand where GB is meant. Sources, the day of the last check and whether a fact was found in a second
place are given once for a file, once for an entry, or for one fact; the nearest one counts.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import AssumptionName, AssumptionTopic
from service.core.hardware import GpuClass, NumberFormat
from service.core.snapshot import AliasKind
from service.core.value import (
    Count,
    CountOrZero,
    Flag,
    IsoDate,
    Key,
    LongText,
    NonNegative,
    Number,
    Positive,
    PositiveFraction,
    Text,
)

UnitT = TypeVar("UnitT", bound=str)
Source = Annotated[LongText, Field(pattern=r"\S")]
Sources = Annotated[list[Source], Field(min_length=1)]


class Strict(BaseModel):
    """Part of a catalog file: unknown fields, infinities and NaN are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Sourced(Strict):
    """Where facts come from; each field falls back to the one around it."""

    sources: Sources | None = None
    """Documents or data sets that state the facts: title and place."""
    checked: IsoDate | None = None
    """Day on which the facts were last compared with their sources."""
    verified: bool | None = None
    """False when the facts rest on memory or on one weak source."""


class SourcedEntry(Sourced):
    """An entry that can name single fields as unverified."""

    unverified_fields: list[Text] = Field(default_factory=list)
    """Fields that rest on memory or on one weak source while the others do not."""


class Fact(Strict, Generic[UnitT]):
    """One figure with its unit."""

    value: NonNegative
    """The figure."""
    unit: UnitT
    """Its unit; each field takes one unit alone."""
    source: Source | None = None
    """Where this figure comes from, when not from the entry's sources."""
    verified: bool | None = None
    """False when this figure rests on memory or on one weak source."""
    note: LongText | None = None
    """What to know about the figure."""


class PeakFacts(Strict):
    """Dense peak rates of the matrix unit (FP32: the vector unit); absent: no such mode.

    INT8 counts operations in the same unit. Rates with structured sparsity are refused.
    """

    unit: Literal["TFLOPS"]
    """Unit of all rates: 10^12 operations per second, a multiply-add counting two."""
    fp32: Positive | None = None
    """FP32 vector rate."""
    tf32: Positive | None = None
    """TF32 dense rate."""
    bf16: Positive | None = None
    """BF16 dense rate."""
    fp16: Positive | None = None
    """FP16 dense rate with FP32 accumulate."""
    fp8: Positive | None = None
    """FP8 dense rate."""
    fp6: Positive | None = None
    """FP6 dense rate."""
    fp4: Positive | None = None
    """FP4 dense rate."""
    int8: Positive | None = None
    """INT8 dense rate."""
    unusual_ratios: dict[Literal["fp8", "fp4", "int8"], Source] = Field(default_factory=dict)
    """Rates that do not stand in the usual ratio to BF16, each with the reason why it is right."""


class GpuEntry(SourcedEntry):
    """One accelerator as sold: part, form factor and memory together."""

    key: Key
    """Stable key, never used again for another part."""
    name: Text
    """Trade name."""
    vendor: Text
    """Who makes it."""
    gpu_class: GpuClass
    """Generation whose measured constants apply."""
    memory: Fact[Literal["GB"]]
    """Marketing figure of the memory."""
    memory_kind: Literal["hbm", "gddr", "lpddr", "sram"]
    """Kind of memory."""
    memory_reported: Fact[Literal["MiB"]] | None = None
    """Memory that the driver reports."""
    memory_cuda: Fact[Literal["MiB"]] | None = None
    """Memory that programs can address."""
    memory_bandwidth: Fact[Literal["GB/s"]]
    """Memory bandwidth."""
    peaks: PeakFacts
    """Dense peak rates."""
    scale_up_link: Text = "none"
    """Name of the link between GPUs of one scale-up domain."""
    scale_up_bandwidth_per_direction: Fact[Literal["GB/s"]] | None = None
    """Bandwidth of that link per GPU in one direction: half of what data sheets print."""
    scale_up_domain_gpu_count: Count = 1
    """GPUs that share the scale-up link."""
    pcie_bandwidth_per_direction: Fact[Literal["GB/s"]] | None = None
    """Host link in one direction."""
    thermal_design_power: Fact[Literal["W"]] | None = None
    """Board or module limit."""
    node_gpu_count: Count
    """GPUs of the usual node."""
    mig_instance_count: CountOrZero = 0
    """Hardware partitions of one GPU; 0 when it has none."""
    inference_only: Flag = False
    """True for a part that is sold to serve, for which its vendor offers no training."""
    note: LongText | None = None
    """What to know about the part."""


class NodeEntry(SourcedEntry):
    """A server (or rack) that holds one kind of GPU."""

    key: Key
    """Stable key."""
    name: Text
    """Trade name."""
    gpu: Key
    """Key of the GPU that it holds."""
    gpu_count: Count
    """GPUs in it."""
    maximum_power: Fact[Literal["kW"]] | None = None
    """Highest power draw of the whole node."""
    power_basis: Literal["published", "memory", "rule"] = "rule"
    """How the power figure is known."""
    scale_out_bandwidth_per_gpu: Fact[Literal["Gbit/s"]] | None = None
    """Network bandwidth per GPU between nodes, one direction."""
    host_memory: Fact[Literal["GiB"]] | None = None
    """Memory of the host processors of the whole node."""
    note: LongText | None = None
    """What to know about the node."""


class CoreEntry(SourcedEntry):
    """An entry whose fields are those of the core value itself: sizes and counts without a unit."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_provenance(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "provenance" in fields:
            raise ValueError("give sources, checked and verified instead of provenance")
        return fields


class FormatEntry(NumberFormat, CoreEntry):
    """A number format of weights, caches or matrix units."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_derived(cls, fields: Any) -> Any:
        derived = {"element_bytes", "native_gpus"}.intersection(fields)
        if derived:
            raise ValueError(f"{', '.join(sorted(derived))}: follows from the rest, leave it out")
        return fields


class ArchitectureEntry(ModelArchitecture, CoreEntry):
    """A model architecture as layer groups; its parameter count is summed from them."""

    key: Key
    """Stable key."""


class SiteEntry(SourcedEntry):
    """A place where owned nodes stand."""

    key: Key
    """Stable key."""
    name: Text
    """Where it is."""
    power_price: Fact[Literal["USD/kWh", "EUR/kWh", "GBP/kWh"]]
    """Electricity tariff; its unit names the currency."""
    power_usage_effectiveness: Fact[Literal["1"]]
    """Facility energy over IT energy."""
    carbon: Fact[Literal["g/kWh"]] | None = None
    """Grid intensity in grams of CO2 equivalent."""
    renewable_fraction: PositiveFraction | None = None
    """Share bought from renewable sources, where stated."""
    note: LongText | None = None
    """What to know about the site."""


class AssumptionEntry(SourcedEntry):
    """One constant of the planners: typical value between its 10th and 90th percentile."""

    name: AssumptionName
    """Name with its unit as suffix, qualifiers after points, most general first."""
    value: Number
    """Typical value."""
    low: Number
    """10th percentile."""
    high: Number
    """90th percentile."""
    unit: Text
    """Unit of the three values; "1" for a plain ratio."""
    kind: Literal["published", "measured", "fitted", "judgement", "rule"] | None = None
    """How it is known; falls back to the file's."""
    note: LongText | None = None
    """What it means, and for "fitted" the data set, method and date."""


class AliasEntry(SourcedEntry):
    """Other spellings of one key, or names that stand for no single entry."""

    target: Key | None = None
    """Key that the names stand for; absent when they name no single entry, on purpose."""
    names: Annotated[list[Text], Field(min_length=1)]
    """Spellings; case, spaces, dashes and underscores do not matter."""
    note: LongText | None = None
    """What is assumed where the names are ambiguous."""


class GpuFile(Sourced):
    """A file under `gpus/`."""

    gpus: list[GpuEntry]
    """Accelerators."""


class NodeFile(Sourced):
    """A file under `nodes/`."""

    nodes: list[NodeEntry]
    """Servers and racks."""


class FormatFile(Sourced):
    """The file `formats.yaml`."""

    formats: list[FormatEntry]
    """Number formats."""


class ArchitectureFile(Sourced):
    """A file under `architectures/`."""

    architectures: list[ArchitectureEntry]
    """Model architectures."""


class SiteFile(Sourced):
    """A file under `sites/`."""

    sites: list[SiteEntry]
    """Places."""


class AssumptionFile(Sourced):
    """A file under `assumptions/`, one topic each."""

    topic: AssumptionTopic
    """What the constants are about."""
    kind: Literal["published", "measured", "fitted", "judgement", "rule"] | None = None
    """How the constants are known where an entry says nothing else."""
    assumptions: list[AssumptionEntry]
    """Constants."""


class AliasFile(Sourced):
    """A file under `aliases/`."""

    kind: AliasKind
    """What the names stand for."""
    aliases: list[AliasEntry]
    """Names."""
