"""Names of engines and versions as benchmark records write them, as the catalog knows them."""

import re

CURRENT = {"vllm": "0.18", "sglang": "0.5", "tensorrt-llm": "1.0"}
"""Version that stands for "not stated"."""
FAMILIES = (
    ("mlperf", "mlperf-submission"),
    ("trtllm", "tensorrt-llm"),
    ("trt-llm", "tensorrt-llm"),
    ("tensorrt-llm", "tensorrt-llm"),
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("pegainfer", "compiled"),
    ("llama.cpp", "llama-cpp"),
    ("ollama", "llama-cpp"),
    ("gpt-fast", "compiled"),
    ("mlc", "compiled"),
    ("turbomind", "compiled"),
    ("lmdeploy", "compiled"),
    ("fastertransformer", "compiled"),
    ("autoawq", "compiled"),
    ("transformers", "transformers"),
    ("tgi", "transformers"),
    ("text-generation-inference", "transformers"),
)
"""Parts of names in records, most telling first, and the family they belong to."""
FIXED = {"mlperf-submission": "1", "llama-cpp": "1", "compiled": "1", "transformers": "4"}
OLD = re.compile(r"\b(2023|2024)\b")
ANY_DIGIT = re.compile(r"(\.\d)x")
"""A version with its last digit left open stands for the middle of them."""
VERSION = re.compile(r"(?<![\d.])v?(\d+(?:\.\d+)+)")


def engine_of(engine: str, version: str) -> str | None:
    """The engine with its version as the catalog names them; None when it is none of them.

    A year before 2025 stands for the generation before 0.8 of vLLM; an unnamed version for the
    current one.
    """
    named = f"{engine} {version}".lower()
    if not engine.strip():
        return None
    family = next((family for part, family in FAMILIES if part in named), None)
    if family is None:
        return None
    if family in FIXED:
        return f"{family}-{FIXED[family]}"
    if "nim" in engine.lower():
        return f"{family}-0.20"
    found = VERSION.search(ANY_DIGIT.sub(r"\g<1>2", version))
    if found:
        return f"{family}-{found[1]}"
    if family == "vllm" and OLD.search(version):
        return "vllm-0.6"
    return f"{family}-{CURRENT[family]}"
