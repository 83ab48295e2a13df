"""The columns of each table, frozen in name and order: programs read them by position, too."""

import csv
import io
from decimal import Decimal
from uuid import UUID

import pytest

from service.core.architecture.attention import FullAttention
from service.core.architecture.model import (
    DenseFeedForward,
    LayerGroup,
    MixtureFeedForward,
    ModelArchitecture,
)
from service.core.assumptions import Assumption
from service.core.hardware import Gpu, Node, NumberFormat, PeakRates, Site
from service.core.plans import ComparedQuantity, ComparedValue, PlanComparison
from service.core.prices import PurchasePrice, RentalPrice
from service.core.value import Provenance
from service.exports import catalog
from service.exports.comparison import COMPARISON_COLUMNS, comparison_rows
from service.exports.plan_lines import plan_line_columns
from service.exports.plan_quantities import plan_quantity_columns
from service.exports.plans import PLAN_COLUMNS
from service.exports.table import csv_bytes
from tests.plans.examples import JANUARY, JANUARY_AMOUNT, QUANTITIES, line, summary

PLAN = summary()
KNOWN = Provenance(
    sources=("data sheet", "price list"),
    checked="2026-11-01",
    verified=False,
    unverified_fields=("name",),
)
PROVENANCE = "sources,checked,verified,unverified_fields"

FROZEN = {
    "lines": (
        plan_line_columns(PLAN),
        (
            "line_number,month,charge_period_start,charge_period_end,pool,workload_kind,workload,use,"
            "category,gpu,provider,region,site,purchase_kind,quantity,unit,unit_price,amount,"
            "cash_amount,currency,gpu_count,formula,price_source,price_as_of_date,price_verified,"
            "plan_id,plan_name,catalog_release,engine_version"
        ),
    ),
    "quantities": (
        plan_quantity_columns(PLAN),
        (
            "scope,name,value,low,high,unit,per,formula,sources,inputs,currency,plan_id,plan_name,"
            "catalog_release,engine_version"
        ),
    ),
    "plans": (
        PLAN_COLUMNS,
        (
            "id,name,created_at,catalog_release,as_of_date,engine_version,derived_from,feasible,"
            "peak_gpu_count,gpu_hours,amount,cash_amount,training_amount,serving_amount,currency,"
            "catalog_release_retired_at"
        ),
    ),
    "comparison": (
        COMPARISON_COLUMNS,
        (
            "scope,name,unit,per,baseline_plan_id,baseline_plan_name,baseline_value,plan_id,plan_name,"
            "value,difference,relative_difference_fraction,currency"
        ),
    ),
    "gpus": (
        catalog.GPU_COLUMNS,
        "key,name,vendor,gpu_class,memory_gb,memory_kind,memory_reported_mib,memory_cuda_mib,"
        "memory_bandwidth_gb_per_s,peak_fp32_tflops,peak_tf32_tflops,peak_bf16_tflops,"
        "peak_fp16_tflops,peak_fp8_tflops,peak_fp6_tflops,peak_fp4_tflops,peak_int8_tops,"
        "scale_up_link,scale_up_gb_per_s_per_direction,scale_up_domain_gpu_count,"
        "pcie_gb_per_s_per_direction,thermal_design_power_w,node_gpu_count,"
        + PROVENANCE
        + ",mig_instance_count,note,inference_only",
    ),
    "nodes": (
        catalog.NODE_COLUMNS,
        "key,name,gpu,gpu_count,maximum_power_kw,power_basis,scale_out_gbit_per_s_per_gpu,"
        + PROVENANCE
        + ",note",
    ),
    "architectures": (
        catalog.ARCHITECTURE_COLUMNS,
        "key,name,hidden_size,vocab_size,tie_word_embeddings,num_hidden_layers,layers,"
        "parameter_count,active_parameter_count,parameter_count_basis,published_parameter_count,"
        "published_active_parameter_count,count_note,max_context_tokens,native_format,released,"
        "licence," + PROVENANCE,
    ),
    "prices": (
        catalog.PRICE_COLUMNS,
        "kind,key,gpu,provider,region,instance_type,gpu_count,commitment,price_per_gpu_hour,"
        "host_price_per_gpu_hour,billing_basis,quality,purchase_price_per_gpu_low,"
        "purchase_price_per_gpu,purchase_price_per_gpu_high,purchase_includes,currency,valid_from,"
        "valid_to,note," + PROVENANCE,
    ),
    "assumptions": (
        catalog.ASSUMPTION_COLUMNS,
        "name,topic,value,low,high,unit,kind,note," + PROVENANCE,
    ),
    "sites": (
        catalog.SITE_COLUMNS,
        "key,name,power_price_per_kwh,currency,power_usage_effectiveness,carbon_g_per_kwh,"
        "renewable_fraction," + PROVENANCE + ",note",
    ),
    "formats": (
        catalog.FORMAT_COLUMNS,
        "key,name,bits,exponent_bits,mantissa_bits,largest_value,scale_bits,scale_block_elements,"
        "bytes_per_element,compute_precision,weight_only,minimum_compute_fallback,"
        + PROVENANCE
        + ",smallest_normal_value,smallest_value,vendors,native_gpus",
    ),
}


@pytest.mark.parametrize("table", FROZEN)
def test_columns_keep_their_names_and_order(table):
    columns, header = FROZEN[table]
    assert csv_bytes(columns, []).decode() == header + "\r\n"


def read(columns, rows):
    content = csv_bytes(columns, rows).decode()
    return list(csv.DictReader(io.StringIO(content, newline=""), strict=True))


def test_lines_summed_by_another_reader_give_the_total():
    rows = read(plan_line_columns(PLAN), JANUARY)
    assert sum(Decimal(row["amount"]) for row in rows) == JANUARY_AMOUNT
    products = [Decimal(row["quantity"]) * Decimal(row["unit_price"]) for row in rows]
    assert products == [Decimal(row["amount"]) for row in rows]


def test_the_first_line_is_the_one_of_the_contract():
    (row,) = read(plan_line_columns(PLAN), JANUARY[:1])
    assert row == {
        "line_number": "1",
        "month": "2027-01",
        "charge_period_start": "2027-01-01T00:00:00Z",
        "charge_period_end": "2027-02-01T00:00:00Z",
        "pool": "training",
        "workload_kind": "training",
        "workload": "pretrain-70b",
        "use": "used",
        "category": "gpu_rental",
        "gpu": "h100-sxm5-80gb",
        "provider": "",
        "region": "",
        "site": "",
        "purchase_kind": "negotiated",
        "quantity": "380928",
        "unit": "gpu_hour",
        "unit_price": "6.88",
        "amount": "2620784.64",
        "cash_amount": "2620784.64",
        "currency": "USD",
        "gpu_count": "512",
        "formula": "gpu_count x hours",
        "price_source": "given in the request",
        "price_as_of_date": "",
        "price_verified": "true",
        "plan_id": str(PLAN.id),
        "plan_name": "2027 base case",
        "catalog_release": "2026.11.1",
        "engine_version": "0.1.0",
    }


def test_a_credit_stays_a_number_beside_a_guarded_name():
    credit = line(category="credit", workload="=1+1", amount=Decimal("-12.50"))
    (row,) = read(plan_line_columns(summary(name="@SUM(1)")), [credit])
    assert (row["amount"], row["workload"], row["plan_name"]) == ("-12.50", "'=1+1", "'@SUM(1)")


def test_a_quantity_shows_what_went_into_it():
    _, ttft, unbounded = read(plan_quantity_columns(PLAN), QUANTITIES)
    assert (ttft["value"], ttft["low"], ttft["high"], ttft["unit"]) == ("1.5", "1.2", "2.25", "s")
    assert ttft["inputs"] == "queue_s = 0.5; profile = [0.25, 1]; engine = vllm"
    assert (unbounded["value"], unbounded["sources"]) == ("", "")


def test_an_infeasible_plan_has_empty_totals():
    feasible, infeasible = read(PLAN_COLUMNS, [PLAN, summary(2, feasible=False, totals=None)])
    assert (feasible["amount"], feasible["training_amount"]) == ("2948382.72", "2620784.64")
    assert (infeasible["amount"], infeasible["currency"]) == ("", "USD")


def test_a_comparison_has_one_row_for_each_quantity_and_plan():
    others = [
        ComparedValue(
            plan_id=UUID(int=2),
            value=8.0,
            difference=-2.0,
            relative_difference_fraction=-0.2,
        ),
        ComparedValue(
            plan_id=UUID(int=3), value=None, difference=None, relative_difference_fraction=None
        ),
    ]
    comparison = PlanComparison(
        baseline_id=PLAN.id,
        plans=(PLAN, summary(2, name="cheaper"), summary(3)),
        quantities=(
            ComparedQuantity(
                scope="plan",
                name="amount",
                unit="currency",
                per="plan",
                baseline_value=10.0,
                values=tuple(others),
            ),
        ),
    )
    cheaper, missing = read(COMPARISON_COLUMNS, comparison_rows(comparison))
    assert cheaper["plan_name"] == "cheaper"
    assert cheaper["baseline_plan_id"] == str(PLAN.id)
    shown = ("baseline_value", "value", "difference", "relative_difference_fraction")
    assert [cheaper[name] for name in shown] == ["10", "8", "-2", "-0.2"]
    assert [missing[name] for name in shown] == ["10", "", "", ""]


def layer_group(count, feed_forward):
    attention = FullAttention(num_attention_heads=8, num_key_value_heads=8, head_dim=64)
    return LayerGroup(count=count, attention=attention, feed_forward=feed_forward)


EXPERTS = MixtureFeedForward(num_experts=8, num_experts_per_token=2, moe_intermediate_size=128)
ENTRIES = {
    "gpus": Gpu(
        key="h100",
        name="H100",
        memory_gb=80,
        memory_bandwidth_gb_per_s=3350,
        peak_tflops=PeakRates(bf16=989.4, int8=1979),
        provenance=KNOWN,
    ),
    "nodes": Node(key="hgx", name="HGX", gpu="h100", gpu_count=8, provenance=KNOWN),
    "architectures": ModelArchitecture(
        key="tiny",
        name="Tiny",
        hidden_size=512,
        vocab_size=1000,
        tie_word_embeddings=True,
        layer_groups=(
            layer_group(1, DenseFeedForward(intermediate_size=1024)),
            layer_group(2, EXPERTS),
            layer_group(3, EXPERTS),
        ),
        provenance=KNOWN,
    ),
    "assumptions": Assumption(
        name="spare_fraction",
        topic="serving",
        value=0.1,
        low=0.0,
        high=0.2,
        unit="1",
        provenance=KNOWN,
    ),
    "sites": Site(
        key="iceland",
        name="Iceland",
        power_price_per_kwh=0.05,
        power_usage_effectiveness=1.1,
        provenance=KNOWN,
    ),
    "formats": NumberFormat(
        key="mxfp4",
        name="MXFP4",
        bits=4,
        exponent_bits=2,
        mantissa_bits=1,
        largest_value=6,
        scale_bits=8,
        scale_block_elements=32,
        compute_precision="fp4",
        provenance=KNOWN,
    ),
}


@pytest.mark.parametrize("table", ENTRIES)
def test_a_catalog_row_says_where_its_facts_come_from(table):
    (row,) = read(FROZEN[table][0], [ENTRIES[table]])
    assert row["name"] == ENTRIES[table].name
    assert [row[name] for name in PROVENANCE.split(",")] == [
        "data sheet; price list",
        "2026-11-01",
        "false",
        "name",
    ]


def test_catalog_rows_hold_their_figures():
    (gpu,) = read(catalog.GPU_COLUMNS, [ENTRIES["gpus"]])
    shown = ("memory_gb", "peak_bf16_tflops", "peak_int8_tops", "peak_fp4_tflops")
    assert [gpu[name] for name in shown] == ["80", "989.4", "1979", ""]
    (tiny,) = read(catalog.ARCHITECTURE_COLUMNS, [ENTRIES["architectures"]])
    assert (tiny["layers"], tiny["num_hidden_layers"]) == (
        "1 x full + dense; 5 x full + mixture",
        "6",
    )
    (mxfp4,) = read(catalog.FORMAT_COLUMNS, [ENTRIES["formats"]])
    assert mxfp4["bytes_per_element"] == "0.53125"  # (4 + 8 / 32) bits over 8


def test_both_kinds_of_price_share_a_table():
    rental = RentalPrice(
        key="aws-p5",
        provider="aws",
        region="us-east-1",
        instance_type="p5.48xlarge",
        gpu="h100",
        gpu_count=8,
        commitment="on_demand",
        price_per_gpu_hour="6.88",
        valid_from="2026-01-01",
    )
    purchase = PurchasePrice(
        key="h100-street",
        gpu="h100",
        low="25000",
        typical="30000",
        high="40000",
        valid_from="2026-01-01",
    )
    rented, bought = read(catalog.PRICE_COLUMNS, [rental, purchase])
    assert (rented["kind"], rented["price_per_gpu_hour"]) == ("rental", "6.88")
    assert (rented["purchase_price_per_gpu"], rented["valid_to"]) == ("", "")
    assert (bought["kind"], bought["purchase_price_per_gpu"]) == ("purchase", "30000")
    assert (bought["provider"], bought["price_per_gpu_hour"]) == ("", "")
