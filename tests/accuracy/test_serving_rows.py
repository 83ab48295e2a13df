"""Rows of serving results as benchmarks write them: resolved, or refused by a reason."""

from datetime import date

import numpy as np
import pytest

from service.accuracy.files import EXTRA, read_rows
from service.accuracy.serving.engines import engine_of
from service.accuracy.serving.rows import resolved
from service.accuracy.serving.score import score_roofline, score_serving
from service.catalog.resolve import snapshot_from_folder
from service.core.recorder import Recorder
from service.settings import PROJECT_ROOT

SNAPSHOT = snapshot_from_folder(PROJECT_ROOT / "catalog", date(2026, 11, 29))
COLUMNS = tuple(read_rows(PROJECT_ROOT / "tests" / "validation" / "serving.csv")[0])
USUAL = {
    "id": "1",
    "kind": "tpot",
    "model": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "gpu_count": "1",
    "tp": "1",
    "engine": "vllm",
    "engine_version": "0.18.0",
    "weight_precision": "bf16",
    "isl": "1024",
    "osl": "512",
    "concurrency_or_batch": "16",
    "measured_metric": "tpot_ms",
    "measured_value": "10",
    "unit": "ms",
    "per": "replica",
    "quality": "A",
    "group": "one",
}
POOL = {
    "kind": "kv_capacity",
    "measured_metric": "gpu_kv_cache_tokens",
    "concurrency_or_batch": "",
}


def row(**changed):
    return dict.fromkeys(COLUMNS, "") | USUAL | changed


def case(**changed):
    return resolved(row(**changed), SNAPSHOT, Recorder(SNAPSHOT).off())


def predicted(**changed):
    score = score_serving([row(**changed)], SNAPSHOT)
    assert not score.unpredicted, score.unpredicted
    return score.scored[0]


def reason(**changed):
    score = score_serving([row(**changed)], SNAPSHOT)
    assert not score.scored, score.scored
    return score.unpredicted[0].reason


@pytest.mark.parametrize(
    ("written", "bits"),
    [
        *((text, 16) for text in ("BF16", "float16", "half")),
        *((text, 8) for text in ("FP8", "fp8_e4m3", "fp8?", "W8A8")),
        *((text, 4) for text in ("AWQ", "GPTQ-Int4", "w4a16_awq", "Q4_K_M", "NVFP4", "FP4")),
    ],
)
def test_a_weight_format_is_known_in_any_spelling(written, bits):
    assert case(weight_precision=written).shape.weight_format.bits == bits


@pytest.mark.parametrize(
    ("written", "bits"), [("FP8", 8), ("fp8_e5m2", 8), ("int8", 8), ("float16", 16), ("bf16", 16)]
)
def test_a_cache_format_is_known_in_any_spelling(written, bits):
    assert case(weight_precision="fp8", kv_precision=written).shape.kv_format.bits == bits


def test_an_unknown_format_is_named_and_not_taken_as_16_bit():
    assert reason(weight_precision="q2_k") == "weight format not known"
    assert reason(kv_precision="fp5") == "cache format not known"


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        # Older than every version that was measured: the oldest of these.
        ("vllm", "0.1.4", "vllm-0.2"),
        ("sglang", "v0.3.0", "sglang-0.4"),
        ("trtllm", "0.7.1", "tensorrt-llm-0.9"),
        # What runs below the engine has versions, too; containers have a year and a month.
        ("vllm", "ROCm 6.4.1", "vllm-0.18"),
        ("vllm", "rocm6.3.1_vllm_0.8.5_20250521", "vllm-0.8.5"),
        ("trtllm", "24.08", "tensorrt-llm-0.10"),
        ("trtllm", "25.10", "tensorrt-llm-1.0"),
        ("vllm", "V0", "vllm-0.6"),
        ("vllm v0.6.3", "", "vllm-0.6.3"),
        ("NIM (vLLM)", "1.8", "vllm-1.8"),
        ("NVIDIA NIM", "", "tensorrt-llm-0.20"),
        ("exllamav2", "0.0.11", "compiled-1"),
        ("KTransformers", "0.3", None),
        ("", "0.18", None),
    ],
)
def test_an_engine_stands_for_a_generation_that_was_measured(engine, version, expected):
    assert engine_of(engine, version, SNAPSHOT) == expected
    if expected is not None:
        assert predicted(engine=engine, engine_version=version).predicted > 0


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("V100-SXM-32GB", "v100-sxm2-32gb"),
        ("H100-SXM-80GB", "h100-sxm5-80gb"),
        ("B200-192GB", "b200-sxm-180gb"),
        ("TPU v6e Trillium", "tpu-v6e"),
    ],
)
def test_a_gpu_is_known_by_a_name_with_its_memory(name, key):
    assert case(gpu=name).shape.gpu.key == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-r1"),
        ("DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b"),
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", "qwen2.5-14b"),
        ("Kimi-K2-Thinking", "kimi-k2"),
    ],
)
def test_a_release_of_the_same_shape_is_known(name, key):
    assert case(model=name, gpu="B300", tp="8", gpu_count="8").shape.architecture.key == key


@pytest.mark.parametrize(
    ("column", "written"),
    [
        *(("tp", text) for text in ("nan", "inf", "-1", "4x2", "2.5")),
        *((name, "9" * 400) for name in ("tp", "pp", "ep", "dp")),
        ("tp", "9" * 5000),
        *(("gpu_count", text) for text in ("nan", "inf", "-8")),
        *(("isl", text) for text in ("nan", "inf", "-5", "~512", "1k")),
        ("request_rate_qps", "-1"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(column, written):
    changed = {"concurrency_or_batch": ""} if column == "request_rate_qps" else {}
    assert reason(**changed, **{column: written}) == f"{column} cannot be read"


@pytest.mark.parametrize("rate", ["0", "nan"])
def test_a_rate_without_requests_is_no_load(rate):
    found = reason(concurrency_or_batch="", request_rate_qps=rate)
    assert found == "request_rate_qps cannot be read"


def test_a_number_may_have_thousands_and_a_degree_its_column():
    assert case(isl="1,024").input_tokens == 1024
    assert case(tp="TP8", gpu_count="8").layout.tensor_parallel == 8


@pytest.mark.parametrize("written", ["", "nan", "0", "-3", "n/a", "fast"])
def test_a_row_without_a_measured_value_is_not_scored(written):
    assert "measured" in reason(measured_value=written)


@pytest.mark.parametrize("written", ["1e-320", "1e300"])
def test_a_measured_value_beyond_all_measurement_is_not_compared(written):
    assert reason(measured_value=written) == "measured value not usable"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"quality": "D"}, "quality is none of A, B and C"),
        ({"quality": "good"}, "quality is none of A, B and C"),
        ({EXTRA: "beyond"}, "more cells than columns"),
    ],
)
def test_no_row_vanishes_without_a_reason(cells, said):
    assert reason(**cells) == said
    assert not score_roofline([row(**cells)], SNAPSHOT).scored


def test_words_that_nobody_foresaw_cost_their_own_row_only():
    odd = row(id="2", note="TPOT<=1.2.3ms", concurrency_or_batch="SLA")
    score = score_serving([row(), odd], SNAPSHOT)
    assert [each.id for each in score.scored] == ["1"]
    assert [each.reason for each in score.unpredicted] == ["its cells cannot be used: ValueError"]


@pytest.mark.parametrize("written", ["{", "null", "[]", '{"layers": "32", "hidden": "big"}'])
def test_sizes_that_are_none_make_no_architecture(written):
    assert reason(model="Mystery-9B", arch=written) == "architecture not known"


def test_utilisation_may_be_a_percentage():
    one = predicted(**POOL, gpu_memory_utilization="0.9").predicted
    assert predicted(**POOL, gpu_memory_utilization="90%").predicted == pytest.approx(one)
    assert reason(**POOL, gpu_memory_utilization="-1") == "gpu_memory_utilization cannot be read"


def test_weights_without_room_for_a_cache_have_no_pool():
    # 405 billion weights of two bytes are 756 GiB, a GPU has 80.
    assert reason(**POOL, model="Llama-3.1-405B") == "weights leave no room for a cache"


def test_seconds_totals_and_rates_of_users_follow_from_what_is_estimated():
    pace = predicted().predicted
    assert predicted(measured_metric="tpot_s").predicted == pytest.approx(pace / 1000)
    user = predicted(measured_metric="output_tokens_per_s_per_user").predicted
    assert user == pytest.approx(1000 / pace)
    written = predicted(measured_metric="output_tokens_per_s").predicted
    total = predicted(measured_metric="total_tokens_per_s").predicted
    assert total == pytest.approx(written * (1024 + 512) / 512)


def test_bytes_of_a_token_are_exact():
    # 32 layers of 8 heads of 128 numbers, keys and values, two bytes each.
    found = predicted(**POOL | {"measured_metric": "kv_bytes_per_token"})
    assert found.predicted == 32 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("gpu", sorted(SNAPSHOT.gpus))
def test_every_gpu_is_predicted_within_its_roofline_or_refused(gpu):
    for format_ in ("bf16", "fp8", "int4", "fp4"):
        score = score_serving(
            [row(gpu=gpu, weight_precision=format_, concurrency_or_batch="1")], SNAPSHOT
        )
        if score.unpredicted:
            assert score.unpredicted[0].reason
            continue
        found, shape = score.scored[0], case(gpu=gpu, weight_precision=format_).shape
        bytes_read = shape.layer_parameter_count * shape.layer_bytes
        least_ms = 1e3 * bytes_read / shape.gpu.memory_bandwidth_bytes_per_s
        assert least_ms < found.predicted
        assert found.low <= found.predicted <= found.high


@pytest.mark.parametrize("batch", ["1", "16", "max", "SLA-limited"])
@pytest.mark.parametrize("model", ["Llama-3.1-8B", "gpt-oss-20b", "Qwen3-30B-A3B"])
def test_tokens_stay_below_the_peak_of_the_matrix_units(model, batch):
    found = predicted(
        model=model,
        gpu="H200",
        kind="offline_throughput",
        measured_metric="total_tokens_per_s",
        concurrency_or_batch=batch,
        osl="64",
    )
    shape = case(model=model, gpu="H200").shape
    whole = shape.architecture
    work = 2 * (whole.active_parameter_count - whole.vocab_size * whole.hidden_size)
    assert 0 < found.predicted * work < shape.gpu.peak_flop_per_s("bf16")
    assert np.isfinite(found.high)


def test_the_floor_says_nothing_of_weights_that_leave_no_room():
    # 405e9 weights of 2 bytes are 810 GB, beside which a card of 80 GB holds no request
    assert not score_roofline([row(model="Llama-3.1-405B")], SNAPSHOT).scored
    assert len(score_roofline([row()], SNAPSHOT).scored) == 1


def test_a_tuned_submission_is_the_same_whatever_engine_is_named_below_it():
    # It repeats its requests for minutes: no run of a few thousand ends while it is measured.
    submission = {
        "kind": "offline_throughput",
        "measured_metric": "output_tokens_per_s",
        "engine_version": "MLPerf v6.0",
        "concurrency_or_batch": "max",
    }
    named = predicted(**submission, engine="trtllm").predicted
    assert predicted(**submission, engine="MLPerf submission").predicted == named
