"""Architecture of a published row: the catalog's, or one made of the published shape."""

from collections.abc import Mapping
from typing import Any

from service.core.architecture.attention import FullAttention
from service.core.architecture.model import (
    DenseFeedForward,
    LayerGroup,
    MixtureFeedForward,
    ModelArchitecture,
)
from service.core.snapshot import CatalogSnapshot

LAYER_SHAPE = 120_000
"""Parameters per cube of the number of layers, where only a parameter count is known."""
HEAD_DIM = 128
PLAIN_VOCABULARY = 50_304


def architecture_of(
    model: str, shape: Mapping[str, Any], snapshot: CatalogSnapshot
) -> ModelArchitecture | None:
    """The architecture of a row, or None when a mixture's shape is not known.

    The catalog's own entry is used where the published shape agrees with it: it also describes
    latent attention, hybrid layers and leading dense layers.
    """
    key = snapshot.key_of("architecture", model)
    known = snapshot.architectures.get(key) if key else None
    if known is not None and known.has_layers and _agrees(known, shape):
        return known
    if shape.get("layers"):
        return _described(model, shape)
    total = shape.get("params_total")
    if not total or (shape.get("params_active") or total) != total:
        return None
    return _from_count(model, float(total))


def _agrees(known: ModelArchitecture, shape: Mapping[str, Any]) -> bool:
    layers, hidden = shape.get("layers"), shape.get("hidden")
    if not layers:
        total = shape.get("params_total")
        return total is None or abs(known.parameter_count / float(total) - 1) < 0.05
    same = known.num_hidden_layers == layers and known.hidden_size == hidden
    return same and (not shape.get("vocab") or known.vocab_size == shape["vocab"])


def _described(model: str, shape: Mapping[str, Any]) -> ModelArchitecture:
    """An architecture of the published numbers; gates and tied heads are told from the total."""
    gated = (bool(shape["glu"]),) if "glu" in shape else (False, True)
    tied = [bool(shape.get("tied"))] if shape.get("tied") or shape.get("untied") else [False, True]
    options = [_built(model, shape, gate, tie) for gate in gated for tie in tied]
    total = float(shape.get("params_total") or options[0].parameter_count)
    return min(options, key=lambda option: abs(option.parameter_count - total))


def _built(model: str, shape: Mapping[str, Any], gated: bool, tied: bool) -> ModelArchitecture:
    heads = shape.get("heads") or max(1, shape["hidden"] // HEAD_DIM)
    attention = FullAttention(
        num_attention_heads=heads,
        num_key_value_heads=shape.get("kv_heads") or heads,
        head_dim=max(1, shape.get("head_dim") or shape["hidden"] // heads),
    )
    inner = shape.get("ffn") or 4 * shape["hidden"]
    block: DenseFeedForward | MixtureFeedForward = DenseFeedForward(
        intermediate_size=inner, gated=gated
    )
    if shape.get("experts"):
        shared = shape.get("shared_experts") or 0
        block = MixtureFeedForward(
            num_experts=shape["experts"],
            num_experts_per_token=shape.get("active_experts") or 1,
            moe_intermediate_size=inner,
            num_shared_experts=shared,
            shared_intermediate_size=inner if shared else 0,
            gated=gated,
        )
    return ModelArchitecture(
        name=model,
        hidden_size=shape["hidden"],
        vocab_size=shape.get("vocab") or PLAIN_VOCABULARY,
        tie_word_embeddings=tied,
        layer_groups=(LayerGroup(count=shape["layers"], attention=attention, feed_forward=block),),
    )


def _from_count(model: str, total: float) -> ModelArchitecture:
    """A dense shape of so many parameters: L = (P / 120,000)^(1/3), 12·L·h² = P."""
    layers = max(1, round((total / LAYER_SHAPE) ** (1 / 3)))
    hidden = max(HEAD_DIM, round((total / (12 * layers)) ** 0.5 / HEAD_DIM) * HEAD_DIM)
    shape = {"layers": layers, "hidden": hidden, "heads": hidden // HEAD_DIM, "ffn": 4 * hidden}
    return _built(model, shape, False, True)
