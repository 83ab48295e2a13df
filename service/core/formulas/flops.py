"""Floating-point operations of training, by the two conventions that reports use.

Convention 6P counts two operations a parameter in the forward pass and four in the backward pass,
over all active parameters. The second convention counts only parameters that multiply, and adds
the scores of attention. Both are reported: an MFU means nothing until its numerator is named.
Arguments may be numpy arrays; they broadcast.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity

_KAPLAN = "Kaplan et al., Scaling laws, arXiv 2001.08361, section 2.1"
_KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, appendix A"
_HU = "Hu et al., LoRA, arXiv 2106.09685, section 4.2"


def visible_tokens(*, sequence_tokens: Any, span_tokens: Any) -> Any:
    """Mean number of keys that a query sees under a causal mask. [token]

    s / 2 where the span covers the sequence, else w - w² / (2·s): the first w queries see half a
    window on average, all others a whole one.

    References:
        Counting the ones of a banded lower triangle; the convention drops the diagonal, so full
        attention is s / 2 and not (s + 1) / 2.

    Special cases:
        A span of infinity is full attention.

    Examples:
        >>> float(visible_tokens(sequence_tokens=8192, span_tokens=float("inf")))
        4096.0
        >>> float(visible_tokens(sequence_tokens=8192, span_tokens=4096))
        3072.0
    """
    span = np.minimum(span_tokens, sequence_tokens)
    return span - span * span / (2.0 * sequence_tokens)


def visible_tokens_in_chunks(*, sequence_tokens: Any, chunk_tokens: Any) -> Any:
    """Mean number of keys that a query sees inside a fixed chunk. [token]

    min(s, c) / 2: every chunk is a short causal sequence of its own.

    Examples:
        >>> float(visible_tokens_in_chunks(sequence_tokens=32768, chunk_tokens=8192))
        4096.0
    """
    return np.minimum(sequence_tokens, chunk_tokens) / 2.0


def attention_forward_flops_per_token(*, score_flops_per_pair: Any, visible_tokens: Any) -> Any:
    """Forward work of scores and weighted sum for one token of one layer. [FLOP]

    F · k, with F the work of one query and one key over all heads (4·H·d where keys and values
    are equally wide) and k the mean number of keys a query sees. Training does it three times
    over: once forward, twice backward.

    References:
        Korthikanti et al., arXiv 2205.05198, appendix A (there without the causal half).

    Examples:
        Llama 3.1 8B at 8,192 tokens: 4·32·128·4096.

        >>> attention_forward_flops_per_token(score_flops_per_pair=4 * 32 * 128,
        ...                                   visible_tokens=4096)
        67108864
    """
    return score_flops_per_pair * visible_tokens


@quantity(
    "training_flops_per_token",
    unit="FLOP/token",
    per="token",
    formula="(4 + 2 · share of weights that get a gradient) · active parameters: 6P, adapters 4P",
    sources=(_KAPLAN, _HU),
)
def training_flops_per_token(
    *, active_parameter_count: Any, weight_gradient_fraction: Any = 1.0
) -> Any:
    """Model FLOPs of one token by the 6P convention. [FLOP/token]

    (4 + 2·w)·P: two forward, two for the gradient of inputs, and two for the gradient of weights
    where weights are trained. w is 1 for full training and about 0 for low-rank adapters.

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1; Hu et al., arXiv 2106.09685, section 4.2.

    Examples:
        >>> training_flops_per_token(active_parameter_count=70e9)
        420000000000.0
        >>> training_flops_per_token(active_parameter_count=70e9, weight_gradient_fraction=0.0)
        280000000000.0
    """
    return (4.0 + 2.0 * weight_gradient_fraction) * active_parameter_count


@quantity(
    "training_executed_flops_per_token",
    unit="FLOP/token",
    per="token",
    formula="model FLOPs per token + 2 · active parameters under full recompute: 8P",
    sources=(_KORTHIKANTI,),
)
def training_executed_flops_per_token(
    *, active_parameter_count: Any, full_recompute: Any, weight_gradient_fraction: Any = 1.0
) -> Any:
    """FLOPs that the hardware executes for one token, by the 6P convention. [FLOP/token]

    Model FLOPs and, under full recompute, one more forward pass: 8P instead of 6P. Recomputing the
    core of attention alone adds nothing here, because this convention does not count attention.

    References:
        Korthikanti et al., arXiv 2205.05198, appendix A; Chowdhery et al., arXiv 2204.02311,
        appendix B for the two utilisations.

    Examples:
        >>> training_executed_flops_per_token(active_parameter_count=405e9, full_recompute=True)
        3240000000000.0
    """
    model = training_flops_per_token(
        active_parameter_count=active_parameter_count,
        weight_gradient_fraction=weight_gradient_fraction,
    )
    return model + 2.0 * full_recompute * active_parameter_count


@quantity(
    "training_flops_per_token_with_attention",
    unit="FLOP/token",
    per="token",
    formula="training_flops_per_token over multiplied parameters + 3 · forward attention FLOPs",
    sources=(_KORTHIKANTI, _KAPLAN),
)
def training_flops_per_token_with_attention(
    *,
    matmul_active_parameter_count: Any,
    attention_forward_flops_per_token: Any,
    weight_gradient_fraction: Any = 1.0,
) -> Any:
    """Model FLOPs of one token, attention counted and the embedding lookup not. [FLOP/token]

    (4 + 2·w)·P_matmul + 3·A, with A the forward attention work over all layers. P_matmul leaves
    the input embedding out and keeps the head, tied or not.

    References:
        Korthikanti et al., arXiv 2205.05198, appendix A; Kaplan et al., arXiv 2001.08361, table 1.

    Examples:
        Llama 2 7B at 4,096 tokens without the causal half: 6·6.74e9 + 12·32·4096·4096.

        >>> training_flops_per_token_with_attention(matmul_active_parameter_count=6.74e9,
        ...     attention_forward_flops_per_token=32 * 4 * 4096 * 4096)
        46882450944.0
    """
    weights = training_flops_per_token(
        active_parameter_count=matmul_active_parameter_count,
        weight_gradient_fraction=weight_gradient_fraction,
    )
    return weights + 3.0 * attention_forward_flops_per_token


@quantity(
    "training_model_flops",
    unit="FLOP",
    per="run",
    formula="training_flops_per_token · training tokens",
    sources=(_KAPLAN,),
)
def training_model_flops(*, flops_per_token: Any, training_tokens: Any) -> Any:
    """Model FLOPs of one whole run. [FLOP]

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1.

    Examples:
        Llama 3.1 405B on 15.6e12 tokens: 6PT = 3.79e25.

        >>> f"{training_model_flops(flops_per_token=6 * 405e9, training_tokens=15.6e12):.4e}"
        '3.7908e+25'
    """
    return flops_per_token * training_tokens
