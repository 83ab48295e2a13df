"""Memory of one GPU in training, part by part. [B]

Arguments may be numpy arrays; they broadcast. Shards are those of the data-parallel group that
shares a part; tensor, pipeline and expert parallelism divide the parameters before that.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity

_RAJBHANDARI = "Rajbhandari et al., ZeRO, arXiv 1910.02054, section 5"
_KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, section 4"
_ZHAO = "Zhao et al., FSDP, arXiv 2304.11277, section 3.2"
_NARAYANAN = "Narayanan et al., arXiv 2104.04473, section 2.2"


def sharded_bytes(
    *,
    parameter_count: Any,
    bytes_per_parameter: Any,
    is_sharded: Any,
    shard_count: Any,
    expert_parameter_count: Any = 0,
    expert_shard_count: Any = 1,
) -> Any:
    """Bytes of one part of the training state on one GPU. [B]

    b·(P/n + P_e/n_e) where the part is sharded, else b·(P + P_e). Routed experts P_e are shared by
    a smaller group: the GPUs that hold the same experts.

    References:
        Rajbhandari et al., arXiv 1910.02054, section 5.

    Examples:
        Moments and master weights of 7.5B parameters over 64 GPUs.

        >>> float(sharded_bytes(parameter_count=7.5e9, bytes_per_parameter=12, is_sharded=True,
        ...                     shard_count=64))
        1406250000.0
    """
    shards = np.where(is_sharded, shard_count, 1)[()]
    expert_shards = np.where(is_sharded, expert_shard_count, 1)[()]
    held = parameter_count / shards + expert_parameter_count / expert_shards
    return held * bytes_per_parameter


@quantity(
    "training_weight_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="parameters · weight bytes, over the data-parallel group with ZeRO-3",
    sources=(_RAJBHANDARI,),
)
def weight_bytes(*, zero_stage: Any, **part: Any) -> Any:
    """Weights that compute uses. [B]

    Examples:
        >>> float(weight_bytes(parameter_count=7.5e9, bytes_per_parameter=2, zero_stage=2,
        ...                    shard_count=64))
        15000000000.0
    """
    return sharded_bytes(is_sharded=np.asarray(zero_stage) >= 3, **part)


@quantity(
    "training_gradient_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="parameters · gradient bytes, over the data-parallel group from ZeRO-2 on",
    sources=(_RAJBHANDARI,),
)
def gradient_bytes(*, zero_stage: Any, **part: Any) -> Any:
    """Gradients. [B]

    Examples:
        >>> float(gradient_bytes(parameter_count=7.5e9, bytes_per_parameter=2, zero_stage=2,
        ...                      shard_count=64))
        234375000.0
    """
    return sharded_bytes(is_sharded=np.asarray(zero_stage) >= 2, **part)


@quantity(
    "training_optimizer_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="parameters · (master + moment bytes), over the data-parallel group from ZeRO-1 on",
    sources=(_RAJBHANDARI,),
)
def optimizer_bytes(*, zero_stage: Any, **part: Any) -> Any:
    """Master copy and moments. [B]

    Examples:
        >>> float(optimizer_bytes(parameter_count=7.5e9, bytes_per_parameter=12, zero_stage=0,
        ...                       shard_count=64))
        90000000000.0
    """
    return sharded_bytes(is_sharded=np.asarray(zero_stage) >= 1, **part)


def training_state_bytes(
    *,
    parameter_count: Any,
    weight_bytes_per_parameter: Any,
    gradient_bytes_per_parameter: Any,
    optimizer_bytes_per_parameter: Any,
    zero_stage: Any = 0,
    shard_count: Any = 1,
) -> Any:
    """Weights, gradients and optimizer on one GPU. [B]

    16·P unsharded for 16-bit mixed Adam; 4P + 12P/N, 2P + 14P/N and 16P/N for stages 1 to 3.

    References:
        Rajbhandari et al., arXiv 1910.02054, section 5 and figure 1.

    Examples:
        7.5B parameters on 64 GPUs: 31.4 GB with stage 1.

        >>> float(training_state_bytes(parameter_count=7.5e9, weight_bytes_per_parameter=2,
        ...     gradient_bytes_per_parameter=2, optimizer_bytes_per_parameter=12, zero_stage=1,
        ...     shard_count=64)) / 1e9
        31.40625
    """
    shared = {
        "parameter_count": parameter_count,
        "zero_stage": zero_stage,
        "shard_count": shard_count,
    }
    return (
        weight_bytes(bytes_per_parameter=weight_bytes_per_parameter, **shared)
        + gradient_bytes(bytes_per_parameter=gradient_bytes_per_parameter, **shared)
        + optimizer_bytes(bytes_per_parameter=optimizer_bytes_per_parameter, **shared)
    )


def borrowed_bytes(
    *,
    live_bytes: Any,
    shard_count: Any,
    expert_live_bytes: Any = 0.0,
    expert_shard_count: Any = 1,
    own_on_host: Any = False,
) -> Any:
    """What a GPU holds for a while beside the share that it keeps. [B]

    (N - 1)/N of what is whole at once: its own share is counted with the shards, unless that one is
    kept on the host.

    References:
        Zhao et al., arXiv 2304.11277, section 3.2.

    Examples:
        >>> float(borrowed_bytes(live_bytes=8e9, shard_count=8))
        7000000000.0
        >>> float(borrowed_bytes(live_bytes=8e9, shard_count=8, own_on_host=True))
        8000000000.0
    """
    own = np.where(own_on_host, 0.0, 1.0)[()]
    common = live_bytes * (shard_count - own) / shard_count
    return common + expert_live_bytes * (expert_shard_count - own) / expert_shard_count


@quantity(
    "training_gathered_weight_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="bytes of the weights held whole at once · (N-1)/N with ZeRO-3, else 0; all of them "
    "where the GPU's own share is kept on the host",
    sources=(_ZHAO,),
)
def gathered_weight_bytes(*, zero_stage: Any, **live: Any) -> Any:
    """Weights held beside the GPU's own share while layers are computed. [B]

    Examples:
        >>> float(gathered_weight_bytes(live_bytes=8e9, shard_count=8, zero_stage=3))
        7000000000.0
    """
    return np.where(np.asarray(zero_stage) >= 3, borrowed_bytes(**live), 0.0)[()]


@quantity(
    "training_unreduced_gradient_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="bytes of the gradients held whole until they are reduced · (N-1)/N from ZeRO-2 on, "
    "else 0; all of them where the GPU's own share goes to the host",
    sources=(_ZHAO,),
)
def unreduced_gradient_bytes(*, zero_stage: Any, **live: Any) -> Any:
    """Gradients beside the GPU's own share, until they are reduced. [B]

    Examples:
        >>> float(unreduced_gradient_bytes(live_bytes=1e9, shard_count=4, zero_stage=2))
        750000000.0
    """
    return np.where(np.asarray(zero_stage) >= 2, borrowed_bytes(**live), 0.0)[()]


def activation_bytes_per_token(
    *,
    residual_bytes: Any,
    inner_bytes: Any,
    score_bytes: Any = 0.0,
    tensor_parallel: Any = 1,
    sequence_parallel: Any = True,
) -> Any:
    """What one layer keeps of one token for the backward pass. [B]

    r / (t with sequence parallelism, else 1) + (i + s) / t: tensor parallelism divides what lies
    between its two collectives (i: queries, keys, values, inner widths) and stored scores s; norms
    and their inputs (r) only with sequence parallelism.

    References:
        Korthikanti et al., arXiv 2205.05198, section 4.

    Examples:
        Llama 3.1 8B: 8·4096 around, 2·(2·32 + 2·8)·128 + 6·14336 inside.

        >>> float(activation_bytes_per_token(residual_bytes=32768, inner_bytes=20480 + 86016))
        139264.0
    """
    around = np.where(np.asarray(sequence_parallel), tensor_parallel, 1)[()]
    return residual_bytes / around + (inner_bytes + score_bytes) / tensor_parallel


def textbook_activation_bytes_per_layer(
    *,
    sequence_tokens: Any,
    micro_batch_sequences: Any,
    hidden_size: Any,
    tensor_parallel: Any = 1,
    sequence_parallel: Any = True,
    num_attention_heads: Any = 0,
) -> Any:
    """What one plain 16-bit layer keeps, by the textbook count. [B]

    s·b·h·(10 + 24/t) with tensor parallelism alone, 34·s·b·h/t with sequence parallelism too; and
    5·a·s²·b/t where attention scores are stored (a = 0 where they are not).

    References:
        Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4.

    Special cases:
        Holds for four-fold plain feed-forward blocks, multi-head attention and dropout; gated
        blocks, grouped heads and experts need `activation_bytes_per_token`.

    Examples:
        >>> float(textbook_activation_bytes_per_layer(sequence_tokens=8192,
        ...     micro_batch_sequences=1, hidden_size=4096))
        1140850688.0
    """
    around = np.where(np.asarray(sequence_parallel), tensor_parallel, 1)[()]
    width = micro_batch_sequences * sequence_tokens * hidden_size
    scores = 5.0 * num_attention_heads * sequence_tokens**2 * micro_batch_sequences
    return width * (10.0 / around + 24.0 / tensor_parallel) + scores / tensor_parallel


@quantity(
    "training_activation_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="bytes per token and layer (the layer's input alone under full recompute) · tokens · "
    "layers of a chunk · chunks in flight, + one whole layer where it is recomputed and no logits "
    "leave room for it",
    sources=(_KORTHIKANTI, _NARAYANAN),
)
def activation_bytes(
    *,
    kept_bytes_per_token: Any,
    rebuilt_bytes_per_token: Any,
    micro_batch_tokens: Any,
    chunk_layer_count: Any,
    chunks_in_flight: Any,
    logits_bytes: Any = 0.0,
) -> Any:
    """What one GPU keeps for the backward pass. [B]

    n·(k·l·c + w), k bytes a token and layer kept, l layers of a chunk, c chunks in flight, w bytes
    a token of the layer that is rebuilt (0 without recompute). The rebuilt layer comes after the
    logits are gone, so only what exceeds them adds to the peak.

    References:
        Korthikanti et al., arXiv 2205.05198, sections 4 and 5.

    Examples:
        Full recompute of 32 layers of width 4096: inputs and one layer of the textbook count.

        >>> float(activation_bytes(kept_bytes_per_token=2 * 4096, micro_batch_tokens=8192,
        ...     rebuilt_bytes_per_token=34 * 4096, chunk_layer_count=32, chunks_in_flight=1))
        3288334336.0
    """
    kept = kept_bytes_per_token * chunk_layer_count * chunks_in_flight * micro_batch_tokens
    rebuilt = rebuilt_bytes_per_token * micro_batch_tokens
    return kept + np.maximum(0.0, rebuilt - logits_bytes)


@quantity(
    "training_logits_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="tokens · vocabulary / tensor parallel · bytes per logit",
)
def logits_bytes(
    *, tokens: Any, vocab_size: Any, bytes_per_logit: Any, tensor_parallel: Any = 1
) -> Any:
    """Outputs over the vocabulary, in all copies that the loss makes. [B]

    n·V/t·b: 4 bytes for one FP32 copy, 6 with the 16-bit one beside it, 8 and more with gradients.

    Examples:
        Llama 3.1 8B, 32,768 tokens, one FP32 copy: 15.66 GiB.

        >>> round(logits_bytes(tokens=32768, vocab_size=128256, bytes_per_logit=4) / 2**30, 2)
        15.66
    """
    return tokens * vocab_size * bytes_per_logit / tensor_parallel


@quantity(
    "training_overhead_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="fragmentation share · everything else + fixed bytes of context and collectives",
)
def overhead_bytes(*, other_bytes: Any, fragmentation_fraction: Any, fixed_bytes: Any) -> Any:
    """What the allocator loses, the CUDA context and the buffers of collectives. [B]

    Examples:
        >>> overhead_bytes(other_bytes=40e9, fragmentation_fraction=0.05, fixed_bytes=3e9)
        5000000000.0
    """
    return other_bytes * fragmentation_fraction + fixed_bytes


@quantity(
    "training_memory_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="weights + gradients + optimizer + activations + logits + overhead",
)
def memory_bytes(
    *, weights: Any, gradients: Any, optimizer: Any, activations: Any, logits: Any, overhead: Any
) -> Any:
    """Everything on the fullest GPU. [B]

    Examples:
        >>> memory_bytes(weights=2, gradients=2, optimizer=12, activations=5, logits=1, overhead=3)
        25
    """
    return weights + gradients + optimizer + activations + logits + overhead


@quantity(
    "training_host_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="bytes of state that left the GPU · buffer factor",
    sources=("deepspeedai/DeepSpeed#4527: 18 bytes a parameter times 1.5",),
)
def host_bytes(*, offloaded_bytes: Any, buffer_factor: Any) -> Any:
    """Host memory that one GPU's offloaded state takes. [B]

    Pinned copies and buffers stand beside the state itself.

    Examples:
        All 18 bytes of 6.805B parameters, over all GPUs: 171.1 GiB.

        >>> round(host_bytes(offloaded_bytes=18 * 6805e6, buffer_factor=1.5) / 2**30, 1)
        171.1
    """
    return offloaded_bytes * buffer_factor
