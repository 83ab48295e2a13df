"""Bytes that parallel training sends, and the time they take.

Bytes are what one GPU sends. Arguments may be numpy arrays; they broadcast.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity

ELEMENT_BYTES = 2.0
"""Activations and their gradients travel in 16 bit."""
LARGEST_SERVER_GPU_COUNT = 16
"""GPUs of the largest server that is one host. A scale-up link that joins more of them spans hosts,
and so the instances that are rented: a rack. No fact of a GPU: its nodes are servers and racks
alike."""
_THAKUR = "Thakur et al., IJHPCA 19(1), 2005; Patarasuk and Yuan, JPDC 69(2), 2009"
_KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, section 4.2"
_NARAYANAN = "Narayanan et al., arXiv 2104.04473, section 3"


def ring_share(*, rank_count: Any) -> Any:
    """Share of a buffer that one rank sends in a ring all-gather or reduce-scatter. [1]

    (N - 1) / N: everything but its own part.

    References:
        Thakur et al., IJHPCA 19(1), 2005, section 4; Patarasuk and Yuan, JPDC 69(2), 2009.

    Special cases:
        One rank sends nothing.

    Examples:
        >>> ring_share(rank_count=16)
        0.9375
    """
    return (rank_count - 1.0) / rank_count


def ring_all_reduce_bytes(*, buffer_bytes: Any, rank_count: Any) -> Any:
    """Bytes that one rank sends in a ring all-reduce. [B]

    2·(N - 1)/N · bytes: a reduce-scatter and an all-gather.

    References:
        Patarasuk and Yuan, JPDC 69(2), 2009.

    Examples:
        16 GB of gradients over 16 ranks: 30 GB.

        >>> ring_all_reduce_bytes(buffer_bytes=16e9, rank_count=16)
        30000000000.0
    """
    return 2.0 * ring_share(rank_count=rank_count) * buffer_bytes


def transfer_s(
    *,
    sent_bytes: Any,
    bytes_per_s: Any,
    link_fraction: Any = 1.0,
    message_count: Any = 0.0,
    latency_s: Any = 0.0,
) -> Any:
    """Time to send bytes over a link. [s]

    messages · latency + bytes / (share of the link that is reached · bandwidth).

    References:
        Thakur et al., IJHPCA 19(1), 2005, section 3 (latency and bandwidth model).

    Examples:
        32 GB over 400 Gbit/s.

        >>> transfer_s(sent_bytes=32e9, bytes_per_s=50e9)
        0.64
    """
    return message_count * latency_s + sent_bytes / (link_fraction * bytes_per_s)


@quantity(
    "data_parallel_bytes_per_step",
    unit="B",
    per="gpu",
    formula="(N-1)/N · (gradient bytes · reductions + weight bytes · gathers); reductions 1, or "
    "one per micro-batch from ZeRO-2 on; gathers 1, one per micro-batch with ZeRO-2, two with "
    "ZeRO-3; under hybrid sharding N of a node, and an all-reduce of a shard between nodes",
    sources=("Rajbhandari et al., ZeRO, arXiv 1910.02054, section 7", _THAKUR),
)
def data_parallel_bytes_per_step(
    *,
    weight_bytes: Any,
    gradient_bytes: Any,
    rank_count: Any,
    zero_stage: Any,
    micro_batch_count: Any = 1,
) -> Any:
    """Bytes of gradient reduction and weight gathering of one step. [B]

    Stages 0 and 1 send as much: an all-reduce is a reduce-scatter and an all-gather. From stage 2
    on no rank keeps whole gradients, so every micro-batch is reduced, and weights gathered for it
    are let go after it; with stage 3 every micro-batch gathers them twice: 3 units against 2, the
    1.5-fold of plain data parallelism.

    References:
        Rajbhandari et al., arXiv 1910.02054, section 7.

    Examples:
        >>> plain, zero_3 = (data_parallel_bytes_per_step(weight_bytes=2e9, gradient_bytes=2e9,
        ...                      rank_count=8, zero_stage=stage) for stage in (0, 3))
        >>> float(zero_3 / plain)
        1.5
    """
    reductions = np.where(np.asarray(zero_stage) >= 2, micro_batch_count, 1)[()]
    stage = np.asarray(zero_stage)
    gathers = np.where(stage >= 2, np.maximum(1, stage - 1) * micro_batch_count, 1)[()]
    sent = gradient_bytes * reductions + weight_bytes * gathers
    return ring_share(rank_count=rank_count) * sent


@quantity(
    "tensor_parallel_bytes_per_step",
    unit="B",
    per="gpu",
    formula="(4, or 6 under full recompute; 1/2 more under sequence parallelism) all-reduces of "
    "tokens · hidden · 2 B per layer",
    sources=(_KORTHIKANTI, _NARAYANAN),
)
def tensor_parallel_bytes_per_step(
    *,
    tokens: Any,
    hidden_size: Any,
    layer_count: Any,
    tensor_parallel: Any,
    full_recompute: Any,
    sequence_parallel: Any = False,
) -> Any:
    """Bytes of the all-reduces inside the layers of one step. [B]

    Two all-reduces a layer forward, two backward, two more where the forward pass is repeated.
    With sequence parallelism each is a reduce-scatter and an all-gather of the same bytes, and the
    backward pass gathers an input again, of which a rank kept only its part: half an all-reduce.
    Half of the forward pass repeated is a `full_recompute` of 0.5.

    References:
        Narayanan et al., arXiv 2104.04473, section 3.2; Korthikanti et al., arXiv 2205.05198,
        section 4.2.2.

    Examples:
        >>> float(tensor_parallel_bytes_per_step(tokens=8192, hidden_size=8192, layer_count=80,
        ...                                      tensor_parallel=8, full_recompute=False))
        75161927680.0
    """
    count = 4.0 + 2.0 * full_recompute + 0.5 * np.asarray(sequence_parallel)
    buffer = tokens * hidden_size * ELEMENT_BYTES
    one = ring_all_reduce_bytes(buffer_bytes=buffer, rank_count=tensor_parallel)
    return count * layer_count * one


@quantity(
    "pipeline_parallel_bytes_per_step",
    unit="B",
    per="gpu",
    formula="2 · chunks per stage · tokens · hidden · 2 B / tensor parallel, 0 for one stage",
    sources=(_NARAYANAN,),
)
def pipeline_parallel_bytes_per_step(
    *,
    tokens: Any,
    hidden_size: Any,
    tensor_parallel: Any,
    pipeline_parallel: Any,
    virtual_pipeline_stages: Any,
) -> Any:
    """Bytes that a stage hands to its neighbours in one step. [B]

    Activations forward and their gradients backward, for every chunk that a stage holds; the ranks
    of a tensor-parallel group each send their part.

    References:
        Narayanan et al., arXiv 2104.04473, sections 2.2 and 4.1.

    Examples:
        >>> float(pipeline_parallel_bytes_per_step(tokens=8192, hidden_size=8192, tensor_parallel=8,
        ...     pipeline_parallel=4, virtual_pipeline_stages=2))
        67108864.0
    """
    handed = 2.0 * virtual_pipeline_stages * tokens * hidden_size * ELEMENT_BYTES
    return np.where(np.asarray(pipeline_parallel) > 1, handed / tensor_parallel, 0.0)[()]


@quantity(
    "context_parallel_bytes_per_step",
    unit="B",
    per="gpu",
    formula="3 · (c-1) · tokens of one rank · elements of keys and values · 2 B / tensor parallel",
    sources=("Liu et al., Ring Attention, arXiv 2310.01889, section 3",),
)
def context_parallel_bytes_per_step(
    *, tokens: Any, key_value_width: Any, tensor_parallel: Any, context_parallel: Any
) -> Any:
    """Bytes of keys and values that go round the ring in one step. [B]

    Each rank passes every block of the others on: c - 1 times its own block forward, twice that
    backward (keys and values again, and their gradients). The width is summed over all layers.

    References:
        Liu et al., arXiv 2310.01889, section 3.

    Examples:
        >>> context_parallel_bytes_per_step(tokens=8192, key_value_width=80 * 2048,
        ...                                 tensor_parallel=8, context_parallel=2)
        1006632960.0
    """
    block = tokens * key_value_width * ELEMENT_BYTES / tensor_parallel
    return 3.0 * (context_parallel - 1) * block


@quantity(
    "expert_parallel_bytes_per_step",
    unit="B",
    per="gpu",
    formula="4 · ((r-1)/r + merged share that leaves) · tokens · experts per token · hidden · 2 B "
    "/ tensor parallel, per layer; r ranks of the group in a node",
    sources=("Lepikhin et al., GShard, arXiv 2006.16668, section 3",),
)
def expert_parallel_bytes_per_step(
    *,
    tokens: Any,
    routed_hidden_width: Any,
    tensor_parallel: Any,
    near_rank_count: Any,
    node_count: Any = 1,
    experts_per_token: Any = 1,
) -> Any:
    """Bytes of the all-to-all exchanges of one step. [B]

    Tokens go to their experts and back, forward and backward: four exchanges. Inside a node each
    row goes to its expert's rank, but for the share of a rank's own experts; to other nodes the
    copies of a token travel once. The width is experts per token times hidden size, summed over all
    layers with experts.

    References:
        Lepikhin et al., arXiv 2006.16668, section 3.

    Examples:
        >>> float(expert_parallel_bytes_per_step(tokens=4096, routed_hidden_width=58 * 8 * 7168,
        ...                                      tensor_parallel=1, near_rank_count=8))
        95361695744.0
    """
    rows = tokens * routed_hidden_width * ELEMENT_BYTES / tensor_parallel
    leaving = merged_node_share(node_count=node_count, experts_per_token=experts_per_token)
    return 4.0 * (ring_share(rank_count=near_rank_count) + leaving) * rows


def exposed_s(*, communication_s: Any, overlappable_s: Any) -> Any:
    """Time of communication that no computation hides. [s]

    max(0, communication - what it may hide behind).

    Examples:
        >>> float(exposed_s(communication_s=1.5, overlappable_s=1.0))
        0.5
    """
    return np.maximum(0.0, communication_s - overlappable_s)


def joined_s(*, first_s: Any, second_s: Any, exponent: Any) -> Any:
    """Time of two things that run beside one another, each in the other's way. [s]

    (a^p + b^p)^(1/p): p = 1 adds the two times, infinity takes the longer.

    Examples:
        >>> float(joined_s(first_s=3.0, second_s=4.0, exponent=2.0))
        5.0
    """
    longer = np.maximum(first_s, second_s)
    ratio = np.minimum(first_s, second_s) / np.maximum(longer, np.finfo(float).tiny)
    return longer * (1.0 + ratio**exponent) ** (1.0 / exponent)


def merged_node_share(*, node_count: Any, experts_per_token: Any) -> Any:
    """Rows that leave the node, when copies for one node travel once, per routed row. [1]

    (N - 1)·(1 - (1 - 1/N)^k)/k: of N nodes a token's k experts touch N·(1 - (1 - 1/N)^k), all but
    the share of its own.

    References:
        DeepSeek-AI, DeepSeek-V3, arXiv 2412.19437, section 3.2.2 (tokens travel once to a node).

    Special cases:
        One node: nothing leaves.

    Examples:
        Two nodes, one expert: half of the rows leave.

        >>> float(merged_node_share(node_count=2, experts_per_token=1))
        0.5
    """
    nodes = np.maximum(1.0, node_count)
    touched = 1.0 - (1.0 - 1.0 / nodes) ** experts_per_token
    return (nodes - 1.0) * touched / experts_per_token


@quantity(
    "training_straggler_factor",
    unit="1",
    per="run",
    formula="exp(growth · max(0, log2(GPUs / 256)))",
)
def straggler_factor(*, gpu_count: Any, growth_per_doubling: Any) -> Any:
    """What waiting for the slowest of many GPUs adds to a step. [1]

    exp(g·max(0, log2(N/256))).

    Examples:
        >>> round(float(straggler_factor(gpu_count=1024, growth_per_doubling=0.012)), 4)
        1.0243
    """
    return np.exp(growth_per_doubling * np.maximum(0.0, np.log2(np.asarray(gpu_count) / 256.0)))
