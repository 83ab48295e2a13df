"""Memory of one GPU of a serving replica: weights, engine, and the pool left for the cache.

Layer groups lie along the last axis of the arrays that describe them; the result sums over it.
Every other argument may be a number or an array; they broadcast.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity

PAGED_ATTENTION = "Kwon et al., PagedAttention, arXiv 2309.06180, section 4"


def _per_group(value: Any) -> Any:
    """Gives a number or array of layouts the axis of layer groups."""
    return np.asarray(value)[..., None]


@quantity(
    "kv_cache_bytes_per_token",
    unit="B/token",
    per="gpu",
    formula="sum over layer groups of layers · cached elements / min(shards, TP) · bytes",
    sources=(
        "Ainslie et al., GQA, arXiv 2305.13245, section 2",
        "DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.1",
    ),
)
def kv_cache_bytes_per_token(
    *,
    layer_count: Any,
    cache_elements_per_token: Any,
    cache_shard_count: Any,
    tensor_parallel: Any,
    bytes_per_element: Any,
) -> Any:
    """Cache that one GPU adds for a sequence's first tokens, over all layers. [B/token]

    Σ_g L_g · e_g / min(H_g, TP) · b with e the cached elements of a token in one layer (2·H_kv·d
    for grouped queries, r_kv + d_rope for latent attention) and H the ranks that can share them:
    the KV heads, or 1 for the joint latent vector. Beyond H, tensor parallelism copies heads.

    Special cases:
        Layers with a fixed state (linear attention, state space) cache nothing per token: e = 0.

    Examples:
        Llama 3.1 8B in 16 bit: 32 · 2·8·128 · 2 B on one GPU, an eighth of it on 8 GPUs and no
        less on 32.

        >>> [float(kv_cache_bytes_per_token(layer_count=[32], cache_elements_per_token=[2048],
        ...     cache_shard_count=[8], tensor_parallel=tp, bytes_per_element=2))
        ...     for tp in (1, 8, 32)]
        [131072.0, 16384.0, 16384.0]
    """
    shards = np.minimum(cache_shard_count, _per_group(tensor_parallel))
    elements = np.asarray(layer_count) * np.asarray(cache_elements_per_token) / shards
    return np.sum(elements, axis=-1) * bytes_per_element


@quantity(
    "kv_cache_bytes_per_sequence",
    unit="B",
    per="gpu",
    formula=(
        "sum over layer groups of layers · (elements / min(shards, TP) · bytes · "
        "min(tokens rounded up to blocks, span) + state bytes / TP)"
    ),
    sources=(PAGED_ATTENTION,),
)
def kv_cache_bytes_per_sequence(
    *,
    sequence_tokens: Any,
    block_tokens: Any,
    layer_count: Any,
    cache_elements_per_token: Any,
    cache_shard_count: Any,
    span_tokens: Any,
    state_bytes: Any,
    tensor_parallel: Any,
    bytes_per_element: Any,
) -> Any:
    """Cache that one GPU holds for one whole sequence. [B]

    A sequence takes whole blocks of tokens; layers with a window or chunks keep at most their
    span; layers with a fixed state keep that state whatever the length, divided over TP.

    Special cases:
        span_tokens = inf is full attention, and also an engine that keeps full pages for window
        layers.

    Examples:
        15,049 tokens in blocks of 128 take 118 blocks (Mistral Small, 163,840 B a token).

        >>> float(kv_cache_bytes_per_sequence(sequence_tokens=15049, block_tokens=128,
        ...     layer_count=[40], cache_elements_per_token=[2048], cache_shard_count=[8],
        ...     span_tokens=[np.inf], state_bytes=[0], tensor_parallel=1, bytes_per_element=2)
        ...     / 163840 / 128)
        118.0
    """
    blocks = np.ceil(np.asarray(sequence_tokens) / block_tokens) * block_tokens
    held = np.minimum(_per_group(blocks), span_tokens)
    ranks = _per_group(tensor_parallel)
    shards = np.minimum(cache_shard_count, ranks)
    cached = np.asarray(cache_elements_per_token) / shards * _per_group(bytes_per_element) * held
    return np.sum(np.asarray(layer_count) * (cached + np.asarray(state_bytes) / ranks), axis=-1)


def fullest_stage_fraction(*, num_hidden_layers: Any, pipeline_parallel: Any) -> Any:
    """Share of all layers that the fullest pipeline stage holds. [1]

    ⌈L/PP⌉/L: the stage with the most layers runs out of memory first, so it decides.

    References:
        Narayanan et al., arXiv 2104.04473, section 2.2.

    Examples:
        >>> float(fullest_stage_fraction(num_hidden_layers=61, pipeline_parallel=4)) * 61
        16.0
    """
    return np.ceil(np.asarray(num_hidden_layers) / pipeline_parallel) / num_hidden_layers


@quantity(
    "weight_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="share of layers on the fullest stage · (divided / TP + copied) + outside layers / TP",
    sources=("Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3",),
)
def weight_bytes_per_gpu(
    *,
    divided_layer_bytes: Any,
    copied_layer_bytes: Any,
    outside_layer_bytes: Any,
    stage_fraction: Any,
    tensor_parallel: Any,
) -> Any:
    """Weights on one GPU of the fullest pipeline stage. [B]

    Tensor parallelism divides projections, experts, embeddings and towers; it copies what every
    rank needs whole: routers, the down-projections of latent attention, key and value heads
    beyond their number. All experts live in memory, whichever are touched.

    Examples:
        Llama 3.3 70B in 16 bit on 4 GPUs, embeddings outside the layers: 32.89 GiB in the
        engine's log.

        >>> embedding = 2 * 128256 * 8192 * 2
        >>> float(round(weight_bytes_per_gpu(divided_layer_bytes=2 * 70553706496 - embedding,
        ...     copied_layer_bytes=0, outside_layer_bytes=embedding, stage_fraction=1,
        ...     tensor_parallel=4) / 2**30, 2))
        32.85
    """
    layers = divided_layer_bytes / np.asarray(tensor_parallel) + copied_layer_bytes
    return stage_fraction * layers + outside_layer_bytes / np.asarray(tensor_parallel)


@quantity(
    "engine_overhead_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="fixed + per vocabulary entry · vocabulary + extra of the GPU class",
)
def engine_overhead_bytes_per_gpu(
    *, fixed_bytes: Any, bytes_per_vocabulary_entry: Any, vocab_size: Any, class_bytes: Any
) -> Any:
    """What an engine keeps beside weights and cache: context, prefill working memory. [B]

    Engines reserve the peak of a profiling run; where that run samples, it grows with the
    vocabulary. It does not grow with the context.

    Examples:
        >>> float(engine_overhead_bytes_per_gpu(fixed_bytes=5e8, bytes_per_vocabulary_entry=39e3,
        ...     vocab_size=128256, class_bytes=0)) / 1e9
        5.501984
    """
    return fixed_bytes + bytes_per_vocabulary_entry * np.asarray(vocab_size) + class_bytes


@quantity(
    "kv_pool_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula="free share · (utilisation · available memory − weights − overhead), at least 0",
    sources=(PAGED_ATTENTION, "llm-d-incubation/llm-d-planner, empirical vLLM memory results"),
)
def kv_pool_bytes_per_gpu(
    *,
    available_bytes: Any,
    memory_utilization_fraction: Any,
    weight_bytes: Any,
    overhead_bytes: Any,
    free_memory_fraction: Any,
) -> Any:
    """Memory of one GPU that is left for the cache. [B]

    One family of engines takes a share of the whole memory and subtracts weights and overhead
    (free share 1); another takes a share of what is free after them (utilisation 1).

    Special cases:
        0 where weights and overhead do not fit.

    Examples:
        Measured on an H100 with Llama 3.1 8B: 0.90·79.18 − 14.99 − 4.89 = 51.38 GiB.

        >>> float(round(kv_pool_bytes_per_gpu(available_bytes=79.18,
        ...     memory_utilization_fraction=0.9, weight_bytes=14.99, overhead_bytes=4.89,
        ...     free_memory_fraction=1), 2))
        51.38
    """
    free = memory_utilization_fraction * np.asarray(available_bytes) - weight_bytes
    return np.maximum(free_memory_fraction * (free - overhead_bytes), 0.0)


@quantity(
    "kv_cache_tokens_per_replica",
    unit="token",
    per="replica",
    formula="whole blocks in the pool of one GPU · tokens of a block",
    sources=(PAGED_ATTENTION,),
)
def kv_cache_tokens_per_replica(*, pool_bytes: Any, bytes_per_token: Any, block_tokens: Any) -> Any:
    """Tokens that a pool holds in whole blocks. [token]

    ⌊pool / (bytes per token · block)⌋ · block: the pool rounds down where a sequence rounds up.
    Every GPU of a replica holds its part of each token, so one GPU's pool and bytes decide.

    Special cases:
        Unbounded (inf) where a token takes no memory.

    Examples:
        28.20 GiB at 163,840 B a token in blocks of 128: 1,443.8 blocks, so 1,443.

        >>> float(kv_cache_tokens_per_replica(pool_bytes=28.20 * 2**30, bytes_per_token=163840,
        ...                                   block_tokens=128)) / 128
        1443.0
    """
    with np.errstate(divide="ignore"):
        blocks = np.asarray(pool_bytes) / np.asarray(bytes_per_token * block_tokens)
    return np.floor(blocks) * block_tokens


@quantity(
    "concurrency_at_mean_length",
    unit="count",
    per="replica",
    formula="⌊pool / bytes of a sequence of mean length⌋",
)
def sequences_that_fit(*, pool_bytes: Any, bytes_per_sequence: Any) -> Any:
    """Whole sequences that a pool holds at once. [count]

    Special cases:
        Unbounded (inf) where a sequence takes no memory.

    Examples:
        Qwen3 32B on one H100, pool 4.45 GiB: one sequence of 16,000 tokens, none of 32,000.

        >>> [float(sequences_that_fit(pool_bytes=4.45 * 2**30, bytes_per_sequence=262144 * n))
        ...     for n in (16000, 32000)]
        [1.0, 0.0]
    """
    with np.errstate(divide="ignore"):
        return np.floor(np.asarray(pool_bytes) / np.asarray(bytes_per_sequence))
