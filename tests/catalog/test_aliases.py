"""Names as price lists, drivers and benchmark records write them lead to one key, or to none."""

from datetime import date

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.core.assumptions import engines_named
from service.settings import PROJECT_ROOT

SNAPSHOT = snapshot_from_folder(PROJECT_ROOT / "catalog", date(2026, 11, 29))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100-sxm5-80gb", "h100-sxm5-80gb"),
        ("H100-SXM", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("nvidia_h100_80gb_hbm3", "h100-sxm5-80gb"),
        ("p5", "h100-sxm5-80gb"),
        ("H100-PCIe-80GB", "h100-pcie-80gb"),
        ("H100-NVL-94GB", "h100-nvl-94gb"),
        ("A100-SXM-80GB", "a100-sxm4-80gb"),
        ("A100-SXM-40GB", "a100-sxm4-40gb"),
        ("B200-SXM", "b200-sxm-180gb"),
        ("GB200", "gb200-nvl72"),
        ("MI300X", "mi300x-192gb"),
        ("L40S", "l40s-48gb"),
        ("L40", "l40-48gb"),
        ("A10G", "a10g-24gb"),
        ("A10", "a10-24gb"),
        ("RTX-PRO-6000-BSE", "rtx-pro-6000-server-96gb"),
        ("TPU-v6e", "tpu-v6e"),
    ],
)
def test_a_gpu_is_found_by_any_of_its_names(name, key):
    assert SNAPSHOT.key_of("gpu", name) == key


@pytest.mark.parametrize("name", ["any", "24 GB card", "80GB-class", "no such part"])
def test_what_names_no_single_part_stands_for_none(name):
    assert SNAPSHOT.key_of("gpu", name) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("Nemotron-3 Nano 30B", "nemotron-3-nano-30b-a3b"),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b"),
    ],
)
def test_an_architecture_is_found_by_any_of_its_names(name, key):
    assert SNAPSHOT.key_of("architecture", name) == key


def test_an_ambiguous_name_says_what_is_assumed():
    assert "Ambiguous" in SNAPSHOT.aliases["gpu", "a100"].note


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("vLLM", "vllm"),
        ("vllm-ascend", "vllm"),
        ("TRT-LLM", "tensorrt-llm"),
        ("TensorRT LLM", "tensorrt-llm"),
        ("SGLang", "sglang"),
        ("llama.cpp", "llama-cpp"),
        ("TGI", "transformers"),
        ("deepseek-internal", None),
        ("no such engine", None),
    ],
)
def test_an_engine_is_found_by_any_of_its_names(name, key):
    assert SNAPSHOT.key_of("engine", name) == key


@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        ("gpu", "h100-sxm", "the nearest is 'h100-sxm5-80gb'"),
        ("gpu", "h100-sxm5-80g", "the nearest is 'h100-sxm5-80gb'"),
        ("gpu", "a100", "the nearest is 'a100-sxm4-40gb'; Ambiguous"),
        ("architecture", "llama3.1-70b", "the nearest is 'llama-3.1-70b'"),
        ("architecture", "mistral-7b", "the nearest is 'mistral-7b-v0.3'; Ambiguous"),
        ("format", "nvfp-4", "the nearest is 'nvfp4'"),
        ("format", "FP8_E4M3", "the nearest is 'fp8'"),
        ("format", "AWQ", "the nearest is 'int4-group-128'"),
        # TensorRT-LLM has constants from 0.9 on, vLLM from 0.2 to 0.20 and later.
        ("engine", "trtllm-1.0", "the nearest is 'tensorrt-llm-1.0'"),
        ("engine", "trtllm-0.5", "the nearest is 'tensorrt-llm-0.9'"),
        ("engine", "vllm", "the nearest is 'vllm-0.20'"),
        ("engine", "vlm-0.18", "the nearest is 'vllm-0.18'"),
    ],
)
def test_the_refusal_of_a_key_names_the_nearest_one(kind, key, hint):
    keys = {
        "gpu": SNAPSHOT.gpus,
        "architecture": SNAPSHOT.architectures,
        "format": SNAPSHOT.formats,
        "engine": engines_named(SNAPSHOT.assumptions),
    }[kind]
    refusal = SNAPSHOT.unknown(kind, key, keys, pointer="/key")
    assert hint in refusal.message
    assert refusal.pointer == "/key"


def test_what_is_like_nothing_has_no_nearest_key():
    refusal = SNAPSHOT.unknown("gpu", "zzzzzzzz", SNAPSHOT.gpus, pointer="/gpu")
    assert refusal.message.endswith("has no gpu 'zzzzzzzz'")
