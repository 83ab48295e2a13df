"""Architectures of rows whose model is not in the catalog: from the sizes that a row carries."""

import json
from typing import Any

from service.core.architecture.model import ModelArchitecture
from service.core.snapshot import CatalogSnapshot

NEEDED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")


def architecture_of(name: str, sizes: str, snapshot: CatalogSnapshot) -> ModelArchitecture | None:
    """The catalog's architecture of that name, else one from the row's sizes, else None."""
    key = snapshot.key_of("architecture", name) if name else None
    if key is not None and snapshot.architectures[key].has_layers:
        return snapshot.architectures[key]
    try:
        described = json.loads(sizes) if sizes else {}
        if any(not described.get(field) for field in NEEDED):
            return None
        return ModelArchitecture.model_validate(_document(name, described))
    except (ValueError, TypeError, AttributeError):  # sizes that are none, or of no architecture
        return None


def _document(name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name or "not named",
        "hidden_size": sizes["hidden"],
        "vocab_size": sizes["vocab"],
        "tie_word_embeddings": bool(sizes.get("tied", False)),
        "layer_groups": _groups(sizes),
    }


def _groups(sizes: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers by kind of mixing, and by kind of feed-forward block where both kinds exist."""
    layers = sizes["layers"]
    dense_count = sizes.get("dense_layers") or (0 if sizes.get("experts") else layers)
    dense_count = min(dense_count, layers)
    groups = []
    for count, block in ((dense_count, _dense(sizes)), (layers - dense_count, _mixture(sizes))):
        groups += [
            {"count": part, "attention": mixing, "feed_forward": block}
            for part, mixing in _mixings(sizes, count)
            if part > 0
        ]
    return groups


def _dense(sizes: dict[str, Any]) -> dict[str, Any]:
    if not sizes.get("ffn"):
        return {"kind": "none"}
    gated = bool(sizes.get("gated", True))
    return {"kind": "dense", "intermediate_size": sizes["ffn"], "gated": gated}


def _mixture(sizes: dict[str, Any]) -> dict[str, Any]:
    if not sizes.get("experts"):
        return _dense(sizes)
    shared = sizes.get("shared_ffn") or 0
    return {
        "kind": "mixture",
        "num_experts": sizes["experts"],
        "num_experts_per_token": sizes.get("experts_active") or 1,
        "moe_intermediate_size": sizes.get("moe_ffn") or sizes.get("ffn") or sizes["hidden"],
        "num_shared_experts": int(shared > 0),
        "shared_intermediate_size": shared,
        "gated": bool(sizes.get("gated", True)),
    }


def _mixings(sizes: dict[str, Any], count: int) -> list[tuple[int, dict[str, Any]]]:
    """How many of `count` layers mix in which way, in the shares of the whole."""
    share = count / sizes["layers"]
    linear = round(share * (sizes.get("linear_layers") or 0))
    window = round(share * (sizes.get("sliding_layers") or 0))
    if sizes.get("sliding_window") and not sizes.get("sliding_layers"):
        window = count
    full = max(count - linear - window, 0)
    return [
        (full, _full(sizes)),
        (window, _full(sizes) | {"kind": "window", "window_tokens": sizes.get("sliding_window")}),
        (linear, {"kind": "opaque", "layer_parameter_count": sizes.get("linear_params") or 0}),
    ]


def _full(sizes: dict[str, Any]) -> dict[str, Any]:
    if sizes.get("kv_lora"):
        return {
            "kind": "latent",
            "num_attention_heads": sizes["heads"],
            "q_lora_rank": sizes.get("q_lora") or 0,
            "kv_lora_rank": sizes["kv_lora"],
            "qk_nope_head_dim": sizes.get("nope_dim") or sizes["head_dim"],
            "qk_rope_head_dim": sizes.get("rope_dim") or 64,
            "v_head_dim": sizes.get("v_dim") or sizes["head_dim"],
        }
    return {
        "kind": "full",
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
        "query_gate": bool(sizes.get("attn_gate", False)),
    }
