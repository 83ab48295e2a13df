"""How fast a kernel can run: compute, memory and fixed time, and the experts that it reads."""

from typing import Any

import numpy as np

from service.core.registry import quantity

ROOFLINE = "Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, figure 1"


@quantity(
    "ridge_flop_per_byte",
    unit="FLOP/B",
    per="gpu",
    formula="dense peak / memory bandwidth",
    sources=(ROOFLINE,),
)
def ridge_flop_per_byte(*, peak_flop_per_s: Any, bandwidth_bytes_per_s: Any) -> Any:
    """Intensity above which a kernel is bound by compute. [FLOP/B]

    Examples:
        H100 SXM in bf16:

        >>> round(ridge_flop_per_byte(peak_flop_per_s=989e12, bandwidth_bytes_per_s=3.35e12), 4)
        295.2239
    """
    return peak_flop_per_s / bandwidth_bytes_per_s


def attainable_flop_per_s(
    *, intensity_flop_per_byte: Any, peak_flop_per_s: Any, bandwidth_bytes_per_s: Any
) -> Any:
    """Rate that a kernel of this intensity can reach at best. [FLOP/s]

    min(peak, intensity · bandwidth).

    References:
        Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, figure 1.

    Examples:
        >>> float(attainable_flop_per_s(intensity_flop_per_byte=15, peak_flop_per_s=989e12,
        ...                             bandwidth_bytes_per_s=3.35e12)) / 1e12
        50.25
    """
    return np.minimum(peak_flop_per_s, intensity_flop_per_byte * bandwidth_bytes_per_s)


def roofline_bound(*, intensity_flop_per_byte: Any, ridge_flop_per_byte: Any) -> Any:
    """What limits a kernel of this intensity: "memory" below the ridge, else "compute".

    References:
        Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, figure 1.

    Examples:
        >>> str(roofline_bound(intensity_flop_per_byte=15, ridge_flop_per_byte=295.2))
        'memory'
    """
    memory = np.asarray(intensity_flop_per_byte) < ridge_flop_per_byte
    return np.where(memory, "memory", "compute")


def kernel_time_s(
    *,
    flops: Any,
    moved_bytes: Any,
    peak_flop_per_s: Any,
    bandwidth_bytes_per_s: Any,
    compute_fraction: Any,
    bandwidth_fraction: Any,
    overlap_exponent: Any,
    fixed_s: Any,
) -> Any:
    """Time of kernels that share one ratio of work to bytes. [s]

    t0 + ((F/(e_f·peak))^p + (B/(e_b·bandwidth))^p)^(1/p): a roofline whose corner is rounded. p
    says how well compute and memory overlap: 1 adds the two times, infinity takes the larger.
    Kernels with the same F/B may be added up before the call, since the root is homogeneous.

    References:
        Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, for the two limits; the rounded
        corner is a p-norm fitted to kernel timings.

    Examples:
        At the ridge both limits take 1 s; with p = 1 they add, with p = 2 they take √2.

        >>> at_ridge = dict(flops=1e12, moved_bytes=1e12, peak_flop_per_s=1e12,
        ...     bandwidth_bytes_per_s=1e12, compute_fraction=1.0, bandwidth_fraction=1.0, fixed_s=0)
        >>> [round(float(kernel_time_s(overlap_exponent=p, **at_ridge)), 4) for p in (1.0, 2.0)]
        [2.0, 1.4142]
    """
    compute_s = flops / (compute_fraction * np.asarray(peak_flop_per_s))
    memory_s = moved_bytes / (bandwidth_fraction * np.asarray(bandwidth_bytes_per_s))
    longer = np.maximum(compute_s, memory_s)
    ratio = np.minimum(compute_s, memory_s) / np.maximum(longer, np.finfo(float).tiny)
    return fixed_s + longer * (1.0 + ratio**overlap_exponent) ** (1.0 / overlap_exponent)


def experts_touched(*, num_experts: Any, num_experts_per_token: Any, tokens: Any) -> Any:
    """Distinct experts that a batch of tokens passes in one layer, on average. [count]

    E·(1 − (1 − k/E)^n): each token picks k of E experts uniformly and independently.

    Special cases:
        E = 0 (no experts) gives 0. Uniform routing overstates: real tokens share experts.

    Examples:
        >>> [round(float(experts_touched(num_experts=e, num_experts_per_token=k, tokens=n)), 1)
        ...     for e, k, n in ((256, 8, 32), (128, 4, 16))]
        [163.3, 51.0]
    """
    experts = np.asarray(num_experts, dtype=float)
    missed = 1.0 - np.asarray(num_experts_per_token) / np.maximum(experts, 1.0)
    return experts * (1.0 - missed ** np.asarray(tokens, dtype=float))


def independent_tokens(*, tokens: Any, independent_fraction: Any) -> Any:
    """Tokens that would touch as many experts if each picked its own at random. [token]

    1 + f·(n − 1): tokens of related text share experts, the first one touches all of its own.

    Special cases:
        Less than one token (a share of a batch) stays as it is.

    Examples:
        >>> [float(independent_tokens(tokens=n, independent_fraction=0.5)) for n in (1, 33)]
        [1.0, 17.0]
    """
    return np.minimum(tokens, 1.0 + independent_fraction * (np.asarray(tokens) - 1.0))


def pass_count(*, weight_gradient_fraction: Any, repeated_forward_fraction: Any) -> Any:
    """How often the forward work of a matrix is done in one step. [count]

    2 + w + r: once forward, once for the gradient of the inputs, w times for the gradient of the
    weights (1, or 0 for adapters), and r times again where the backward pass recomputes it.

    References:
        Kaplan et al., arXiv 2001.08361, section 2.1; Korthikanti et al., arXiv 2205.05198,
        section 5.

    Examples:
        >>> pass_count(weight_gradient_fraction=1.0, repeated_forward_fraction=1.0)
        4.0
    """
    return 2.0 + weight_gradient_fraction + repeated_forward_fraction


def flash_attention_s(
    *,
    forward_flops: Any,
    backward_forward_ratio: Any,
    repeated_forward_fraction: Any,
    peak_flop_per_s: Any,
    peak_fraction: Any,
) -> Any:
    """Attention whose scores are never stored, forward and backward. [s]

    F·(1 + r + b)/(e·peak): b forwards for one backward pass, because 2.5 times the FLOPs run at 0.8
    of the efficiency, and r more where the forward pass is repeated.

    References:
        Dao, arXiv 2307.08691, section 4.1: the backward pass does 2.5 times the FLOPs.

    Examples:
        >>> flash_attention_s(forward_flops=1e12, backward_forward_ratio=3.1, peak_flop_per_s=1e15,
        ...     repeated_forward_fraction=1.0, peak_fraction=0.5)
        0.0102
    """
    forwards = 1.0 + repeated_forward_fraction + backward_forward_ratio
    return forward_flops * forwards / (peak_fraction * peak_flop_per_s)


def stored_attention_s(
    *,
    causal_forward_flops: Any,
    score_count: Any,
    bytes_per_score: Any,
    repeated_forward_fraction: Any,
    peak_flop_per_s: Any,
    peak_fraction: Any,
    bandwidth_bytes_per_s: Any,
    bandwidth_fraction: Any,
) -> Any:
    """Attention that writes its scores to memory and reads them back. [s]

    2·F·(3 + r)/(e·peak) + S·b·(1 + r/3)/(e_b·bandwidth): the products over all keys, masked or not,
    and b bytes for each score over softmax, mask and dropout, forward and backward.

    References:
        Korthikanti et al., arXiv 2205.05198, section 4.1 for what is stored.

    Examples:
        >>> round(stored_attention_s(causal_forward_flops=1e12, score_count=1e9, bytes_per_score=33,
        ...     repeated_forward_fraction=0.0, peak_flop_per_s=1e15, peak_fraction=0.5,
        ...     bandwidth_bytes_per_s=1e12, bandwidth_fraction=1.0), 3)
        0.045
    """
    passes = 3.0 + repeated_forward_fraction
    products = 2.0 * causal_forward_flops * passes / (peak_fraction * peak_flop_per_s)
    moved = score_count * bytes_per_score * passes / 3.0
    return products + moved / (bandwidth_fraction * bandwidth_bytes_per_s)


def streamed_s(*, moved_bytes: Any, bandwidth_bytes_per_s: Any, bandwidth_fraction: Any) -> Any:
    """Time of kernels that only read and write memory. [s]

    B/(e_b·bandwidth).

    References:
        Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, the memory limit.

    Examples:
        >>> streamed_s(moved_bytes=8e11, bandwidth_bytes_per_s=1e12, bandwidth_fraction=0.8)
        1.0
    """
    return moved_bytes / (bandwidth_fraction * bandwidth_bytes_per_s)


def grouped_fraction(*, rows_per_expert: Any, half_speed_rows: Any) -> Any:
    """Share of a matrix kernel's rate that a grouped kernel reaches with so many rows. [1]

    R/(R + R_half).

    Examples:
        >>> grouped_fraction(rows_per_expert=1200, half_speed_rows=400)
        0.75
    """
    return rows_per_expert / (rows_per_expert + half_speed_rows)
