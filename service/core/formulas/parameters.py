"""Parameter counts of the parts of a transformer, summed by the architecture type.

All counts are numbers of scalar weights. Sizes may be numpy arrays; they broadcast.
"""

from typing import Any


def attention_parameter_count(
    *,
    hidden_size: Any,
    num_attention_heads: Any,
    num_key_value_heads: Any,
    head_dim: Any,
    value_head_dim: Any,
) -> Any:
    """Weights of query, key, value and output projections of one layer. [count]

    h · (H·d + H_kv·d + H_kv·d_v) + H·d_v·h, with H_kv = H for multi-head attention and 1 for
    multi-query attention. A head's width is given, never hidden size over heads.

    References:
        Ainslie et al., GQA, arXiv 2305.13245, section 2; Vaswani et al., arXiv 1706.03762, 3.2.2.

    Examples:
        Llama 3.1 8B, one layer: 4096·(32 + 2·8)·128 + 32·128·4096 = 41,943,040.

        >>> attention_parameter_count(hidden_size=4096, num_attention_heads=32,
        ...     num_key_value_heads=8, head_dim=128, value_head_dim=128)
        41943040
    """
    query = num_attention_heads * head_dim
    key_value = num_key_value_heads * (head_dim + value_head_dim)
    output = num_attention_heads * value_head_dim
    return hidden_size * (query + key_value + output)


def latent_attention_parameter_count(
    *,
    hidden_size: Any,
    num_attention_heads: Any,
    q_lora_rank: Any,
    kv_lora_rank: Any,
    qk_nope_head_dim: Any,
    qk_rope_head_dim: Any,
    v_head_dim: Any,
) -> Any:
    """Weights of one multi-head latent attention layer, without norms. [count]

    Queries go through a rank-r_q bottleneck (or straight when r_q is 0), keys and values through a
    shared rank-r_kv one with a separate rotary part:
    q = h·r_q + r_q·H·(d_nope + d_rope), kv = h·(r_kv + d_rope) + r_kv·H·(d_nope + d_v),
    out = H·d_v·h.

    References:
        DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C.

    Special cases:
        q_lora_rank 0 means that queries are projected directly: h·H·(d_nope + d_rope).

    Examples:
        DeepSeek-V3, one layer: 7168·1536 + 1536·128·192 + 7168·576 + 512·128·256 + 128·128·7168.

        >>> latent_attention_parameter_count(hidden_size=7168, num_attention_heads=128,
        ...     q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        ...     v_head_dim=128)
        187105280
    """
    query_width = num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)
    direct = q_lora_rank == 0
    query = (hidden_size + query_width) * q_lora_rank + direct * hidden_size * query_width
    key_value = hidden_size * (kv_lora_rank + qk_rope_head_dim)
    key_value += kv_lora_rank * num_attention_heads * (qk_nope_head_dim + v_head_dim)
    return query + key_value + num_attention_heads * v_head_dim * hidden_size


def gated_delta_parameter_count(
    *,
    hidden_size: Any,
    num_key_heads: Any,
    key_head_dim: Any,
    num_value_heads: Any,
    value_head_dim: Any,
    conv_kernel: Any,
) -> Any:
    """Weights of one gated linear-attention layer with a short convolution. [count]

    Projections of query, key, value and output gate, two gates per value head, a depth-wise
    convolution over query, key and value, and the output projection:
    h·(2·H_k·d_k + 2·H_v·d_v + 2·H_v) + c·(2·H_k·d_k + H_v·d_v) + H_v·d_v·h.

    References:
        Yang et al., Gated Delta Networks, arXiv 2412.06464, section 3.3.

    Examples:
        >>> gated_delta_parameter_count(hidden_size=2048, num_key_heads=16, key_head_dim=128,
        ...     num_value_heads=32, value_head_dim=128, conv_kernel=4)
        33718272
    """
    keys = num_key_heads * key_head_dim
    values = num_value_heads * value_head_dim
    projections = hidden_size * (2 * keys + 2 * values + 2 * num_value_heads)
    return projections + conv_kernel * (2 * keys + values) + values * hidden_size


def state_space_parameter_count(
    *,
    hidden_size: Any,
    num_heads: Any,
    head_dim: Any,
    state_size: Any,
    num_groups: Any,
    conv_kernel: Any,
) -> Any:
    """Weights of one Mamba-2 layer, without norms and biases. [count]

    Input projection to gate, values, the two state matrices and step sizes, a depth-wise
    convolution, output projection, with d = heads·head_dim:
    h·(2·d + 2·G·N + heads) + c·(d + 2·G·N) + d·h.

    References:
        Dao and Gu, Transformers are SSMs, arXiv 2405.21060, section 7.

    Examples:
        >>> state_space_parameter_count(hidden_size=2688, num_heads=64, head_dim=64,
        ...     state_size=128, num_groups=8, conv_kernel=4)
        38731776
    """
    inner = num_heads * head_dim
    states = 2 * num_groups * state_size
    projection = hidden_size * (2 * inner + states + num_heads)
    return projection + conv_kernel * (inner + states) + inner * hidden_size


def feed_forward_parameter_count(
    *, hidden_size: Any, intermediate_size: Any, matrix_count: Any
) -> Any:
    """Weights of one feed-forward block: three matrices when gated, two when plain. [count]

    References:
        Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202, equation 6.

    Examples:
        Llama 3.1 8B: 3·4096·14336 = 176,160,768.

        >>> feed_forward_parameter_count(
        ...     hidden_size=4096, intermediate_size=14336, matrix_count=3)
        176160768
    """
    return matrix_count * hidden_size * intermediate_size


def embedding_parameter_count(
    *, vocab_size: Any, hidden_size: Any, tie_word_embeddings: Any
) -> Any:
    """Weights of input embedding and output head: one matrix when tied, two when not. [count]

    References:
        Press and Wolf, arXiv 1608.05859, section 2.

    Examples:
        GPT-2: 50257·768 once.

        >>> embedding_parameter_count(vocab_size=50257, hidden_size=768, tie_word_embeddings=1)
        38597376
    """
    return vocab_size * hidden_size * (2 - tie_word_embeddings)


def adapter_parameter_count(*, rank: Any, input_width: Any, output_width: Any) -> Any:
    """Weights of a low-rank adapter beside one matrix. [count]

    r·(in + out).

    References:
        Hu et al., LoRA, arXiv 2106.09685, section 4.1.

    Examples:
        >>> adapter_parameter_count(rank=16, input_width=4096, output_width=4096)
        131072
    """
    return rank * (input_width + output_width)
