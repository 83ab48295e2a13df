"""Rows of published training results as tests write them."""

import json

LLAMA_8B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "vocab": 128256,
    "params_total": 8030261248,
    "params_active": 8030261248,
    "glu": 1,
}
LLAMA_70B = LLAMA_8B | {
    "layers": 80,
    "hidden": 8192,
    "heads": 64,
    "ffn": 28672,
    "vocab": 32000,
    "params_total": 68976653312,
    "params_active": 68976653312,
}
PLAIN = {
    "id": "1",
    "kind": "throughput",
    "model": "Llama-like 8B",
    "arch": LLAMA_8B,
    "tokens": "",
    "seq_len": "4096",
    "micro_batch": "2",
    "global_batch": "128",
    "gpu": "H100-80GB-SXM",
    "gpu_count": "8",
    "precision": "bf16",
    "parallelism": {"fsdp": "full_shard", "dp": 8},
    "recompute": "none",
    "measured_metric": "tokens_per_s_per_gpu",
    "measured_value": "9000",
    "unit": "tokens/s/GPU",
    "source": "repo some/where: README",
    "confidence": "read",
    "note": "q=A; [grp=one]",
}


def record(**cells):
    """A row of eight H100 in plain spelling, with some cells written otherwise."""
    return {
        name: json.dumps(cell) if isinstance(cell, dict) else cell
        for name, cell in (PLAIN | cells).items()
    }
