"""Files that others write: names spelled otherwise, cells left out, and rows that are wrong."""

from datetime import date
from functools import cache
from math import isfinite
from pathlib import Path

import pytest

from service.accuracy import training_names as names
from service.accuracy.files import EXTRA
from service.accuracy.training import score_training
from service.accuracy.training_cases import prepare
from service.accuracy.training_rows import training_row
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from tests.accuracy.training_records import LLAMA_8B, LLAMA_70B, PLAIN, record

MEMORY = {
    "kind": "memory",
    "measured_metric": "peak_memory_per_gpu",
    "measured_value": "40",
    "unit": "GiB",
}
HOURS = {"kind": "run_hours", "measured_metric": "gpu_hours", "tokens": "1e12"}


@cache
def snapshot():
    return snapshot_from_folder(Path(__file__).resolve().parents[2] / "catalog", date(2026, 11, 29))


def scored(*records):
    return score_training(records, snapshot())


def predicted(**cells):
    [row] = scored(record(**cells)).scored
    return row.predicted


def reason(**cells):
    [row] = scored(record(**cells)).unpredicted
    return row.reason


def warning(*records):
    return scored(*records).warnings.get("1")


@pytest.mark.parametrize(
    ("text", "value"),
    [("4,096", 4096), ("1.4T", 1.4e12), ("2e12", 2e12), ("8 B", 8e9), ("n/a", None), ("1-4", None)],
)
def test_numbers_are_read_as_they_are_written(text, value):
    assert names.number(text) == value


def test_thousands_of_tokens_in_a_sequence_are_binary():
    assert (names.sequence("8k"), names.sequence("4096")) == (8192, 4096)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("TP8 PP4", {"tp": 8, "pp": 4}),
        ('{"tensor_parallel": "2", "DP": 4}', {"tp": 2, "dp": 4}),
        ('{"zero": "stage 3"}', {"zero": 3}),
        ('{"fsdp": "NO_SHARD"}', {"zero": 0, "fsdp": None}),
        ('{"fsdp": true}', {"fsdp": "full_shard"}),
        ('{"method": "LoRA", "targets": ["q", "v"]}', {"method": "lora", "targets": "q,v"}),
        ("null", {}),
    ],
)
def test_layouts_are_read_under_their_usual_names(text, layout):
    assert names.layout(text) == layout


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Full (all layers)", "full"),
        ("gradient checkpointing", "full"),
        ("off", "none"),
        ("selective", "selective"),
        ("selective (core_attn)", "core"),
        ("every 2nd layer", "half"),
        ("not stated", "unstated"),
    ],
)
def test_recompute_is_read_by_its_words(text, meant):
    assert names.recompute(text) == meant


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100", "h100-sxm5-80gb"),
        ("H100-94GB-NVL", "h100-nvl-94gb"),
        ("A100 40GB PCIe", "a100-pcie-40gb"),
        ("H800-80GB", "h800-sxm5-80gb"),
        ("TPU v6e (Trillium)", "tpu-v6e"),
        ("B200-192GB", "b200-sxm-180gb"),
        ("A100-64GB", None),
        ("24 GB card", None),
        ("any", None),
    ],
)
def test_gpus_are_known_by_their_words_in_any_order(name, key):
    assert names.gpu_key(name, snapshot()) == key


@pytest.mark.parametrize("kind", [{}, MEMORY, HOURS], ids=["speed", "memory", "hours"])
@pytest.mark.parametrize("cell", sorted(set(PLAIN) - {"id", "kind", "measured_metric"}))
def test_no_row_is_lost_for_a_cell_that_is_left_out(kind, cell):
    cells = {**kind, cell: ""}
    found = scored(record(**cells))
    assert len(found.scored) + len(found.unpredicted) == 1
    assert all(isfinite(row.predicted) and row.predicted > 0 for row in found.scored)
    assert all(row.reason for row in found.unpredicted)


@pytest.mark.parametrize(
    "cells",
    [
        {"arch": "{broken", "model": "Llama 3.1 8B"},
        {"arch": {"layers": 32}, "model": "Llama 3.1 8B"},
        {"arch": {"num_layers": "32", "hidden_size": "4096", "params": "7e9"}},
        {"arch": {**LLAMA_8B, "heads": 0, "vocab": None}},
        {"parallelism": "[2, 4]"},
        {"parallelism": {"tp": 0, "dp": "auto"}},
        {"seq_len": "N/A", "micro_batch": "0", "gpu_count": "8x8"},
        {"source": "repo huggingface/optimum-habana", "gpu": "Gaudi 2"},
    ],
)
def test_odd_cells_cost_no_prediction(cells):
    assert predicted(**cells) > 0


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"gpu": "A100-64GB"}, "no GPU of the catalog is called 'A100-64GB'"),
        ({"measured_value": "n/a"}, "nothing was measured: 'n/a'"),
        ({"measured_metric": "loss"}, "no estimate of loss"),
        ({"parallelism": {"tp": 3, "dp": 8}}, "illegal layout: sizes multiply to 24, not to 8"),
        ({"precision": "float32"}, "no training_gemm_fraction.hopper"),
        ({"measured_value": "1e400"}, "measured value not usable"),
        ({"measured_value": "9" * 400}, "measured value not usable"),
        ({"measured_value": "1e-320"}, "measured value not usable"),
        ({"tokens": "1e400"}, "tokens not usable"),
        ({"tokens": "9" * 400}, "tokens not usable"),
        ({"arch": '{"hidden": 1e400}'}, "its cells cannot be used: OverflowError"),
        ({"parallelism": "[" * 100_000}, "its cells cannot be used: RecursionError"),
        ({EXTRA: "beyond"}, "more cells than columns"),
    ],
)
def test_what_is_not_predicted_says_why(cells, said):
    assert reason(**cells).startswith(said)


@pytest.mark.parametrize("name", ["", " ", "a\0b"])
def test_a_row_without_a_name_costs_only_itself(name):
    found = scored(record(id="first"), record(id=name))
    assert [row.id for row in found.scored] == ["first"]
    [row] = found.unpredicted
    assert (row.id, row.reason) == ("row 2", "its id is empty or holds what cannot be printed")


def test_numbers_that_no_check_can_use_are_a_doubt_of_their_row_alone():
    note = "q=A; 1.2.3 TFLOP/s at 40 % MFU"
    found = scored(record(), record(id="2", note=note))
    assert len(found.scored) == 2
    assert found.warnings["2"] == "its cells cannot be used: ValueError"


def test_a_row_without_columns_is_named_by_its_number():
    [row] = scored({"kind": "mfu"}).unpredicted
    assert (row.id, row.kind) == ("row 1", "mfu")


def test_one_speed_in_other_units_is_one_estimate():
    # 8 GPUs, sequences of 4096 tokens, 128 of them a step
    rate = predicted()
    assert predicted(measured_metric="tokens_per_s") == pytest.approx(8 * rate)
    assert predicted(measured_metric="samples_per_s") == pytest.approx(8 * rate / 4096)
    assert predicted(measured_metric="step_time_ms") == pytest.approx(1e3 * 128 * 4096 / (8 * rate))


def test_smaller_optimizers_and_the_host_take_less_of_the_gpu():
    layout = {"zero": 3, "dp": 8}
    usual = predicted(**MEMORY, parallelism=layout)
    # 8 GPUs share 8.03e9 weights: moments in 8 bit instead of FP32 save 6 B each
    eight_bit = predicted(**MEMORY, parallelism=layout | {"optimizer": "adamw_8bit"})
    saved = 6 * 8.03e9 / 8 / 2**30
    assert usual - eight_bit == pytest.approx(saved, rel=0.1)
    assert predicted(**MEMORY, parallelism=layout | {"offload": "cpu"}) < usual - saved


def test_attention_stores_its_scores_before_flash_attention():
    # arXiv 2205.14135; papers of 2021 are older, those of 2023 are not
    old = predicted(source="arXiv 2104.00001", recompute="full")
    new = predicted(source="arXiv 2309.00001", recompute="full")
    assert old < 0.8 * new


def test_a_speed_whose_measures_contradict_one_another_is_doubted():
    # 249 TFLOP/s at 64.05 % MFU is of a peak of 389; a TPU v5p has 459, and 918 in 8 bit
    cells = {"gpu": "TPUv5p", "measured_metric": "mfu_pct", "measured_value": "64.05"}
    assert warning(record(**cells, note="q=A; 2.49e+02 TFLOP/s")).startswith("its TFLOP/s and MFU")
    said = warning(record(**cells, note="q=A; 294 TFLOP/s"))  # 294 / 0.6405 = 459
    assert said is None or not said.startswith("its TFLOP/s")


def test_a_layout_that_no_setting_makes_fit_is_doubted():
    # ZeRO-2 over 16 GPUs: 2 · 69e9 + 14 · 69e9 / 16 = 198 GB, an H200 has 141
    layout = {"arch": LLAMA_70B, "gpu": "H200", "gpu_count": "16", "recompute": "full"}
    assert warning(record(**layout, parallelism={"zero": 2, "dp": 16})) == (
        "its sizes do not fit the GPU"
    )
    said = warning(record(**layout, parallelism={"zero": 3, "dp": 16}))
    assert said != "its sizes do not fit the GPU"


def test_a_number_that_is_printed_twice_is_one_observation():
    first = record(id="0", **HOURS, measured_value="7000000")
    assert warning(first, record(**HOURS, measured_value="7000000")) == "repeats 0"
    assert warning(first, record(**HOURS, measured_value="6400000")) != "repeats 0"


@pytest.mark.parametrize(("note", "loss"), [("transformers", "plain"), ("Megatron-LM", None)])
def test_a_vendors_own_loss_holds_whoever_starts_the_run(note, loss):
    # one repository starts both; the second brings its loss over divided vocabularies
    cells = {"source": "repo modelscope/ms-swift: docs", "parallelism": {"zero": 1, "dp": 8}}
    row = training_row(record(**cells, note=f"q=A; {note}"))
    assert prepare(row, Recorder(snapshot()).off()).loss == loss


def test_a_layout_of_plain_pytorch_that_needs_recompute_is_timed_with_it():
    # MosaicML on MPT-7B: 1e12 tokens in 9.5 days on 440 A100 of 40 GB, 1,760 sequences a step.
    # 4 sequences of 32 layers keep 32·4096 bytes a token and layer: 32 GiB, and no logits yet.
    mpt = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 50432, "glu": 0}
    cells = {**HOURS, "arch": mpt, "model": "MPT 7B (blog)", "gpu": "A100-40GB-SXM"}
    cells |= {"gpu_count": "440", "seq_len": "2048", "micro_batch": "4", "global_batch": "1760"}
    cells |= {"parallelism": {"fsdp": "full_shard", "dp": 440}, "measured_value": "100320"}
    unstated = predicted(**cells, recompute="")
    assert unstated == predicted(**cells, recompute="full")
    assert unstated > predicted(**cells, recompute="none")
    assert unstated == pytest.approx(440 * 9.5 * 24, rel=0.15)
