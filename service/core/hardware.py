"""Accelerators, the nodes they stand in, and the number formats they compute in."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from service.core.units import (
    BITS_PER_BYTE,
    BYTES_PER_GB,
    BYTES_PER_GIB,
    BYTES_PER_MIB,
    FLOP_PER_S_PER_TFLOPS,
)
from service.core.value import (
    Count,
    CountOrZero,
    Flag,
    Key,
    LongText,
    NonNegative,
    Positive,
    PositiveFraction,
    Provenance,
    Text,
    Value,
)

GpuClass = Literal[
    "volta",
    "turing",
    "ampere",
    "ampere_workstation",
    "ada",
    "hopper",
    "blackwell",
    "blackwell_workstation",
    "cdna",
    "tpu",
    "gaudi",
    "trainium",
    "other",
]
"""Generation whose measured constants apply."""
ComputePrecision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8"]
"""Input type of the matrix unit whose dense peak counts."""


def _is_no_wildcard(key: str) -> str:
    if key == "any":
        raise ValueError('may not be "any", by which procurement rules mean every GPU')
    return key


class PeakRates(Value):
    """Dense peak rates of the matrix unit in TFLOPS; null where the chip has no such mode.

    Rates with structured sparsity are never used. FP32 is the vector unit.
    """

    fp32: Positive | None = None
    """FP32 vector rate in TFLOPS."""
    tf32: Positive | None = None
    """TF32 dense rate in TFLOPS."""
    bf16: Positive | None = None
    """BF16 dense rate in TFLOPS."""
    fp16: Positive | None = None
    """FP16 dense rate with FP32 accumulate in TFLOPS."""
    fp8: Positive | None = None
    """FP8 dense rate in TFLOPS."""
    fp6: Positive | None = None
    """FP6 dense rate in TFLOPS."""
    fp4: Positive | None = None
    """FP4 dense rate in TFLOPS."""
    int8: Positive | None = None
    """INT8 dense rate in TOPS."""


class Gpu(Value):
    """One accelerator as sold: part, form factor and memory together."""

    key: Annotated[Key, AfterValidator(_is_no_wildcard)] = "inline"
    """Stable key; "inline" when the GPU is described in a request. Never "any", by which
    procurement rules mean every GPU."""
    name: Text
    """Trade name."""
    vendor: Text = "unknown"
    """Who makes it."""
    gpu_class: GpuClass = "other"
    """Generation whose measured constants apply; "other" has none of its own."""
    memory_gb: Positive
    """Marketing figure of the memory in GB, an identifier rather than a size."""
    memory_kind: Literal["hbm", "gddr", "lpddr", "sram"] = "hbm"
    """Kind of memory: decides the usable share where nobody published it."""
    memory_reported_mib: Positive | None = None
    """Memory that the driver reports in MiB."""
    memory_cuda_mib: Positive | None = None
    """Memory that programs can address in MiB; planning uses this one."""
    memory_bandwidth_gb_per_s: Positive
    """Memory bandwidth in GB/s (10^9 bytes)."""
    peak_tflops: PeakRates
    """Dense peak rates."""
    scale_up_link: Text = "none"
    """Name of the link between GPUs of one scale-up domain."""
    scale_up_gb_per_s_per_direction: NonNegative = 0.0
    """Bandwidth of that link per GPU in one direction, GB/s; 0 when there is none."""
    scale_up_domain_gpu_count: Count = 1
    """GPUs that share the scale-up link."""
    pcie_gb_per_s_per_direction: Positive | None = None
    """Host link in one direction, GB/s."""
    thermal_design_power_w: Positive | None = None
    """Board or module limit in W."""
    node_gpu_count: Count = 8
    """GPUs of the usual node: the unit that is bought or rented where nothing else is said."""
    mig_instance_count: CountOrZero = 0
    """Hardware partitions of one GPU that serve apart from each other; 0 when it has none."""
    inference_only: Flag = False
    """True for a part that is sold to serve, for which its vendor offers no training."""
    note: LongText | None = None
    """What to know about the part."""
    provenance: Provenance = Provenance()
    """Where these facts come from."""

    def peak_flop_per_s(self, precision: ComputePrecision) -> float | None:
        """Dense peak of a precision. [FLOP/s], None when the chip has no such mode.

        BF16 and FP16 stand in for each other where only one is published: the rates are equal on
        every part that has both.
        """
        rates = self.peak_tflops
        value = getattr(rates, precision)
        if value is None and precision == "bf16":
            value = rates.fp16
        if value is None and precision == "fp16":
            value = rates.bf16
        return None if value is None else float(value) * FLOP_PER_S_PER_TFLOPS

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth. [B/s]"""
        return self.memory_bandwidth_gb_per_s * BYTES_PER_GB

    @property
    def scale_up_bytes_per_s(self) -> float:
        """Scale-up bandwidth per GPU in one direction. [B/s]"""
        return self.scale_up_gb_per_s_per_direction * BYTES_PER_GB

    def available_memory_bytes(self, *, hbm_fraction: float, gddr_fraction: float) -> float:
        """Memory that programs can address. [B]

        The measured figure where there is one, else the driver's, else the nominal one in GiB
        times the usable share of its kind (an assumption of the catalog).
        """
        if self.memory_cuda_mib is not None:
            return self.memory_cuda_mib * BYTES_PER_MIB
        if self.memory_reported_mib is not None:
            return self.memory_reported_mib * BYTES_PER_MIB
        usable = gddr_fraction if self.memory_kind == "gddr" else hbm_fraction
        return self.memory_gb * BYTES_PER_GIB * usable


class Node(Value):
    """A server (or rack) that holds one kind of GPU."""

    key: Key
    """Stable key."""
    name: Text
    """Trade name."""
    gpu: Key
    """Key of the GPU that it holds."""
    gpu_count: Count
    """GPUs in it."""
    maximum_power_kw: Positive | None = None
    """Highest power draw of the whole node in kW, not what it draws on average."""
    power_basis: Literal["published", "memory", "rule"] = "rule"
    """How the power figure is known; a rule is an estimate."""
    scale_out_gbit_per_s_per_gpu: Positive | None = None
    """Network bandwidth per GPU between nodes in Gbit/s, one direction."""
    host_memory_gib: Positive | None = None
    """Memory of the host processors of the whole node in GiB."""
    note: LongText | None = None
    """What to know about the node."""
    provenance: Provenance = Provenance()
    """Where these facts come from."""


class NumberFormat(Value):
    """A number format that weights, caches or matrix units use."""

    key: Key
    """Stable key, such as "fp8" or "mxfp4"."""
    name: Text
    """Full name."""
    bits: Count
    """Bits of one element without scales."""
    exponent_bits: CountOrZero
    """Bits of the exponent; 0 for integers."""
    mantissa_bits: CountOrZero
    """Bits of the mantissa without the hidden one; value bits for integers."""
    largest_value: Annotated[float, Field(gt=0, le=4e38)]
    """Largest finite magnitude."""
    smallest_normal_value: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Smallest positive normal number; null for integers, whose steps are even."""
    smallest_value: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Smallest positive number, subnormal ones included; 1 for integers."""
    scale_bits: CountOrZero = 0
    """Bits of one block scale; 0 without block scales."""
    scale_block_elements: Count = 1
    """Elements that share one scale."""
    compute_precision: ComputePrecision
    """Mode of the matrix unit that serves weights of this format where it exists."""
    weight_only: Flag = False
    """True when kernels widen the weights to 16 bit before they compute."""
    minimum_compute_fallback: ComputePrecision = "bf16"
    """Mode used on chips that lack `compute_precision`."""
    vendors: tuple[Text, ...] | None = None
    """Vendors whose matrix units take it; null for a format of no vendor's own."""
    element_bytes: Positive | None = None
    """Bytes of one element with its share of the block scale; filled in when a release is made."""
    native_gpus: tuple[Key, ...] = ()
    """GPUs of the release whose matrix unit multiplies it as it is; filled in then, too."""
    provenance: Provenance = Provenance()
    """Where these facts come from."""

    def is_native_on(self, gpu: Gpu) -> bool:
        """True when the matrix unit of a GPU multiplies such numbers as they are."""
        is_taken = self.vendors is None or gpu.vendor in self.vendors
        has_mode = gpu.peak_flop_per_s(self.compute_precision) is not None
        return has_mode and is_taken and not self.weight_only

    @property
    def bytes_per_element(self) -> float:
        """Bytes of one element with its share of the block scale. [B]"""
        return (self.bits + self.scale_bits / self.scale_block_elements) / BITS_PER_BYTE


class Site(Value):
    """A place where owned nodes stand."""

    key: Key
    """Stable key."""
    name: Text
    """Where it is."""
    power_price_per_kwh: Positive
    """Electricity tariff per kWh in the site's currency."""
    currency: Text = "USD"
    """Currency of the tariff."""
    power_usage_effectiveness: Positive
    """Facility energy over IT energy, at least 1."""
    carbon_g_per_kwh: NonNegative | None = None
    """Grid intensity in g CO2e per kWh."""
    renewable_fraction: PositiveFraction | None = None
    """Share bought from renewable sources, where stated."""
    note: LongText | None = None
    """What to know about the site."""
    provenance: Provenance = Provenance()
    """Where these facts come from."""
