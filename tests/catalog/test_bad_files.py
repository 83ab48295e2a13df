"""Each bad file is refused at the line that is marked, for the reason that is meant.

A file replaces its kind in a small catalog that is otherwise good; its name begins with the kind.
"""

from pathlib import Path

import pytest

from service.catalog.files import read_folder
from service.catalog.findings import InvalidCatalog
from service.catalog.publish import read_checked
from service.cli import main
from service.settings import PROJECT_ROOT

BAD = Path(__file__).parent / "bad"
MARK = "# BAD"
GOOD = {
    "gpus/good.yaml": """
checked: 2026-11-29
sources: [data sheet]
gpus:
  - key: part-80gb
    name: Part
    vendor: Maker
    gpu_class: hopper
    memory: {value: 80, unit: GB}
    memory_kind: hbm
    memory_bandwidth: {value: 3350, unit: GB/s}
    peaks: {unit: TFLOPS, bf16: 1000, fp8: 2000}
    thermal_design_power: {value: 700, unit: W}
    node_gpu_count: 8
""",
    "formats.yaml": """
checked: 2026-11-29
sources: [standard]
formats:
  - key: bf16
    name: bfloat16
    bits: 16
    exponent_bits: 8
    mantissa_bits: 7
    largest_value: 3.3895313892515355e+38
    compute_precision: bf16
""",
    "aliases/models.yaml": """
kind: architecture
checked: 2026-11-29
sources: [names of models]
aliases:
  - names: [Some Model]
""",
}
PLACES = {
    "gpu": "gpus/good.yaml",
    "node": "nodes/bad.yaml",
    "format": "formats.yaml",
    "architecture": "architectures/bad.yaml",
    "site": "sites/bad.yaml",
    "assumption": "assumptions/bad.yaml",
    "rental": "prices/rental/bad.yaml",
    "purchase": "prices/purchase.yaml",
    "alias": "aliases/bad.yaml",
    "token": "prices/tokens/bad.yaml",
    "cost": "costs/bad.yaml",
}
REASONS = {
    "gpu_sparse_peak": "fp8 is 4.00 times 16 bit",
    # 30,000 / 2,500 = 12, more than twice the usual 4.
    "gpu_sparse_peak_explained_away": "fp4 is 12.00 times 16 bit",
    "gpu_blank_source": "String should match pattern",
    "gpu_impossible_day": "day is out of range",
    "gpu_alias_within_itself": "holds itself by an alias",
    "gpu_needless_exception": "has the usual ratio",
    "gpu_without_source": "no source",
    "gpu_without_check_day": "no day of the last check",
    "gpu_duplicate_mapping_key": "key 'vendor' stands here twice; first on line 6",
    "gpu_duplicate_entry_key": "gpu 'part-80gb' stands in gpus/good.yaml:4 already",
    "gpu_wrong_unit": "Input should be 'GB'",
    "gpu_unknown_field": "colour: Extra inputs are not permitted",
    "gpu_missing_field": "name: Field required",
    "gpu_text_for_number": "must be a number",
    "gpu_memory_in_gb_instead_of_mib": "1.04 of the nominal 80 GB",
    "gpu_generations_do_not_rise": "later class hopper",
    "gpu_sexagesimal": "'55:50' is no plain number",
    "gpu_unknown_unverified_field": "no field 'colour'",
    "gpu_not_yaml": "not YAML",
    "node_below_its_gpus": "5.5 kW is below 8 x 700 W = 5.6 kW",
    "node_of_unknown_gpu": "unknown gpu 'part-90gb'",
    # 8,030,261,248 / 8,200,000,000 = 0.9793
    "architecture_count_mismatch": "8,030,261,248 parameters, -2.1%",
    "architecture_without_layers_too_often": "one of 13 entries that rest on published counts",
    "architecture_unknown_format": "unknown format 'fp7'",
    "architecture_unknown_kind": "Input tag 'fuller'",
    "architecture_with_provenance": "instead of provenance",
    "format_without_bits": "greater than or equal to 1",
    "site_makes_energy": "below 1",
    "site_wrong_unit": "Input should be 'USD/kWh'",
    "assumption_outside_its_range": "low <= value <= high does not hold",
    "rental_price_zero": "must be above zero",
    "rental_price_negative": "must be above zero",
    "rental_spot_above_on_demand": "spot 0.86 is not below on-demand 0.43",
    "rental_falls_with_count": "8 GPUs for 4.0 an hour, not more than 1 for 14",
    "rental_same_for_every_count": "not more than 1 for 0.79",
    "rental_instance_price_per_gpu": "a price of the whole instance in a field per GPU",
    "rental_far_above_the_others": "times the median of part-80gb",
    "rental_dates_overlap": "prices/rental/bad.yaml:12 holds too",
    "rental_ends_before_it_begins": "ends before it begins",
    "rental_unknown_gpu": "unknown gpu 'part-90gb'",
    "rental_unknown_instance": "instance 'ten' is not in the file's list",
    "rental_key_taken": "is that of prices/rental/bad.yaml:11",
    "rental_wrong_unit": "String should match pattern",
    "purchase_range_not_ordered": "low <= typical <= high does not hold",
    "purchase_dates_overlap": "an earlier entry holds too",
    "purchase_of_unknown_gpu": "unknown gpu 'part-90gb'",
    "purchase_wrong_unit": "String should match pattern",
    "token_price_zero": "must be above zero",
    "token_price_negative": "must be above zero",
    "token_without_source": "no source",
    "token_wrong_unit": "String should match pattern",
    "token_unknown_model": "'some-modle' is no architecture and no alias of one",
    "token_listed_twice": "prices/tokens/bad.yaml:8 holds too",
    "token_dates_overlap": "prices/tokens/bad.yaml:8 holds too",
    "token_ends_before_it_begins": "ends before it begins",
    "token_cached_above_input": "cached input 0.6 is above input 0.5",
    "token_output_below_input": "output 0.5 is below input 1.5",
    # The median of 1.5, 1.5, 1.5 and 0.0015 is 1.5.
    "token_per_thousand": "output 0.0015 is 0.001 times the median",
    "cost_wrong_unit": "Input should be '1'",
    "cost_without_source": "no source",
    "cost_without_figure": "at least one of low, typical and high",
    "cost_range_not_ordered": "low <= typical <= high does not hold",
    "cost_percent_for_fraction": "a fraction of at most 1, never percent",
    "cost_negative": "greater than or equal to 0",
    "cost_duplicate_key": "cost fact 'storage.a' stands in costs/bad.yaml:5 already",
    "cost_of_unknown_assumption": "unknown assumption 'disk_price_usd_per_tb'",
    "cost_after_its_check": "2027 is after the last check, 2026",
    "alias_of_unknown_gpu": "unknown gpu 'part-90gb'",
    "alias_of_unknown_engine": "unknown engine 'triton'",
    "alias_of_two_gpus": "'PART 80GB' is 'part-80gb' already",
}


def write(folder, place, text):
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    for place, text in GOOD.items():
        write(tmp_path, place, text)
    return tmp_path


def marked_lines(text):
    return {number for number, line in enumerate(text.splitlines(), 1) if MARK in line}


@pytest.mark.parametrize("name", REASONS)
def test_a_bad_file_is_refused_at_its_line(folder, name):
    text = (BAD / f"{name}.yaml").read_text(encoding="utf-8")
    place = PLACES[name.split("_", maxsplit=1)[0]]
    write(folder, place, text)
    with pytest.raises(InvalidCatalog) as caught:
        read_checked(folder)
    assert {finding.file for finding in caught.value.findings} == {place}
    assert {finding.line for finding in caught.value.findings} == marked_lines(text)
    assert REASONS[name] in str(caught.value)


def test_the_catalog_around_the_bad_files_is_good(folder):
    assert read_checked(folder).gpus


def test_every_bad_file_has_its_test():
    assert {path.stem for path in BAD.glob("*.yaml")} == set(REASONS)


def test_a_file_in_no_known_place_is_refused(folder):
    write(folder, "gpu/part.yaml", GOOD["gpus/good.yaml"])
    with pytest.raises(InvalidCatalog, match=r"gpu/part\.yaml:1: no kind of catalog file"):
        read_checked(folder)


def test_faults_of_all_files_are_named_at_once(folder):
    for name in ("node_of_unknown_gpu", "site_makes_energy"):
        text = (BAD / f"{name}.yaml").read_text(encoding="utf-8")
        write(folder, PLACES[name.split("_", maxsplit=1)[0]], text)
    with pytest.raises(InvalidCatalog) as caught:
        read_checked(folder)
    assert [finding.file for finding in caught.value.findings] == [
        "nodes/bad.yaml",
        "sites/bad.yaml",
    ]


def test_the_command_prints_file_and_line_and_fails(folder, capsys):
    text = (BAD / "gpu_sparse_peak.yaml").read_text(encoding="utf-8")
    write(folder, "gpus/good.yaml", text)
    assert main(["catalog", "check", str(folder)]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("gpus/good.yaml:14: fp8 is 4.00 times 16 bit")
    assert printed.err == "gpuplan: 1 fault\n"


def test_the_command_passes_the_catalog_itself(capsys):
    assert main(["catalog", "check"]) == 0
    assert "no fault" in capsys.readouterr().out


def test_what_is_right_though_unusual_is_listed_with_its_reason():
    """Blackwell Ultra computes FP4 at six times 16 bit, dense: 15 against 2.5 PFLOPS."""
    listed = {
        (located.entry.key, name): why
        for located in read_folder(PROJECT_ROOT / "catalog").gpus
        for name, why in located.entry.peaks.unusual_ratios.items()
    }
    assert {("b300-sxm-288gb", "fp4"), ("gb300-nvl72", "fp4")} <= set(listed)
    assert all(listed.values())
