"""The collections of a catalog release as tables; columns are only ever appended."""

from collections import Counter
from typing import Any

from service.core.architecture.model import ModelArchitecture
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, Site
from service.core.prices import CostFact, PurchasePrice, RentalPrice, TokenPrice
from service.exports.table import Cell, Column, fields, joined

PROVENANCE: tuple[Column[Any], ...] = (
    Column("sources", lambda entry: joined(entry.provenance.sources)),
    Column("checked", lambda entry: entry.provenance.checked),
    Column("verified", lambda entry: entry.provenance.verified),
    Column("unverified_fields", lambda entry: joined(entry.provenance.unverified_fields)),
)


def _peak(precision: str) -> Column[Gpu]:
    def cell(gpu: Gpu) -> Cell:
        rate: float | None = getattr(gpu.peak_tflops, precision)
        return rate

    return Column(f"peak_{precision}_tflops", cell)


GPU_COLUMNS: tuple[Column[Gpu], ...] = (
    *fields(
        "key",
        "name",
        "vendor",
        "gpu_class",
        "memory_gb",
        "memory_kind",
        "memory_reported_mib",
        "memory_cuda_mib",
        "memory_bandwidth_gb_per_s",
    ),
    *(_peak(precision) for precision in ("fp32", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4")),
    Column("peak_int8_tops", lambda gpu: gpu.peak_tflops.int8),
    *fields(
        "scale_up_link",
        "scale_up_gb_per_s_per_direction",
        "scale_up_domain_gpu_count",
        "pcie_gb_per_s_per_direction",
        "thermal_design_power_w",
        "node_gpu_count",
    ),
    *PROVENANCE,
    *fields("mig_instance_count", "note", "inference_only"),
)
NODE_COLUMNS: tuple[Column[Node], ...] = (
    *fields(
        "key",
        "name",
        "gpu",
        "gpu_count",
        "maximum_power_kw",
        "power_basis",
        "scale_out_gbit_per_s_per_gpu",
    ),
    *PROVENANCE,
    *fields("note"),
)


def _layers(architecture: ModelArchitecture) -> str:
    """Layers by kind, such as "48 x mla + mixture; 1 x mla + dense"."""
    kinds: Counter[str] = Counter()
    for group in architecture.layer_groups:
        kinds[f"{group.attention.kind} + {group.feed_forward.kind}"] += group.count
    return joined(f"{count} x {kind}" for kind, count in kinds.items())


ARCHITECTURE_COLUMNS: tuple[Column[ModelArchitecture], ...] = (
    *fields("key", "name", "hidden_size", "vocab_size", "tie_word_embeddings", "num_hidden_layers"),
    Column("layers", _layers),
    *fields(
        "parameter_count",
        "active_parameter_count",
        "parameter_count_basis",
        "published_parameter_count",
        "published_active_parameter_count",
        "count_note",
        "max_context_tokens",
        "native_format",
        "released",
        "licence",
    ),
    *PROVENANCE,
)


def _rental(name: str) -> Column[RentalPrice | PurchasePrice]:
    def cell(price: RentalPrice | PurchasePrice) -> Cell:
        return getattr(price, name) if isinstance(price, RentalPrice) else None

    return Column(name, cell)


def _purchase(name: str, field: str) -> Column[RentalPrice | PurchasePrice]:
    def cell(price: RentalPrice | PurchasePrice) -> Cell:
        return getattr(price, field) if isinstance(price, PurchasePrice) else None

    return Column(name, cell)


PRICE_COLUMNS: tuple[Column[RentalPrice | PurchasePrice], ...] = (
    Column("kind", lambda price: "rental" if isinstance(price, RentalPrice) else "purchase"),
    *fields("key", "gpu"),
    _rental("provider"),
    _rental("region"),
    _rental("instance_type"),
    _rental("gpu_count"),
    _rental("commitment"),
    _rental("price_per_gpu_hour"),
    _rental("host_price_per_gpu_hour"),
    _rental("billing_basis"),
    _rental("quality"),
    _purchase("purchase_price_per_gpu_low", "low"),
    _purchase("purchase_price_per_gpu", "typical"),
    _purchase("purchase_price_per_gpu_high", "high"),
    _purchase("purchase_includes", "includes"),
    *fields("currency", "valid_from", "valid_to", "note"),
    *PROVENANCE,
)
TOKEN_PRICE_COLUMNS: tuple[Column[TokenPrice], ...] = (
    *fields(
        "key",
        "provider",
        "listed_as",
        "model_name",
        "architecture",
        "variant",
        "input_price_per_million_tokens",
        "output_price_per_million_tokens",
        "cached_input_price_per_million_tokens",
        "currency",
        "context_tokens",
        "quality",
        "valid_from",
        "valid_to",
        "note",
    ),
    *PROVENANCE,
)
COST_FACT_COLUMNS: tuple[Column[CostFact], ...] = (
    *fields("key", "topic", "name", "place", "low", "typical", "high", "unit", "of", "year"),
    Column("assumptions", lambda fact: joined(fact.assumptions)),
    *fields("note"),
    *PROVENANCE,
)
ASSUMPTION_COLUMNS: tuple[Column[Assumption], ...] = (
    *fields("name", "topic", "value", "low", "high", "unit", "kind", "note"),
    *PROVENANCE,
)
SITE_COLUMNS: tuple[Column[Site], ...] = (
    *fields(
        "key",
        "name",
        "power_price_per_kwh",
        "currency",
        "power_usage_effectiveness",
        "carbon_g_per_kwh",
        "renewable_fraction",
    ),
    *PROVENANCE,
    *fields("note"),
)
FORMAT_COLUMNS: tuple[Column[NumberFormat], ...] = (
    *fields(
        "key",
        "name",
        "bits",
        "exponent_bits",
        "mantissa_bits",
        "largest_value",
        "scale_bits",
        "scale_block_elements",
        "bytes_per_element",
        "compute_precision",
        "weight_only",
        "minimum_compute_fallback",
    ),
    *PROVENANCE,
    *fields("smallest_normal_value", "smallest_value"),
    Column("vendors", lambda each: joined(each.vendors or ())),
    Column("native_gpus", lambda each: joined(each.native_gpus)),
)
RELEASE_COLUMNS: tuple[Column[Any], ...] = fields(
    "version", "digest", "published_at", "retired_at", "notes"
)
