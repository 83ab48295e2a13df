"""Speed and hours of a training run. Arguments may be numpy arrays; they broadcast.

Every way of knowing the speed (MFU, HFU, a measurement, an estimate) ends in one number, tokens per
second and GPU; hours follow from it alone.
"""

from typing import Any

import numpy as np

from service.core.registry import quantity
from service.core.units import SECONDS_PER_HOUR

_CHOWDHERY = "Chowdhery et al., PaLM, arXiv 2204.02311, appendix B"
_NARAYANAN = "Narayanan et al., arXiv 2104.04473, section 2.2"


@quantity(
    "training_step_count",
    unit="count",
    per="run",
    formula="training tokens / global batch tokens",
)
def training_step_count(*, training_tokens: Any, global_batch_tokens: Any) -> Any:
    """Optimizer steps of a run. [count]

    Examples:
        >>> training_step_count(training_tokens=15.6e12, global_batch_tokens=16e6)
        975000.0
    """
    return training_tokens / global_batch_tokens


@quantity(
    "pipeline_bubble_fraction",
    unit="1",
    per="run",
    formula="(pipeline stages - 1) / (chunks per stage · micro-batches)",
    sources=(_NARAYANAN,),
)
def pipeline_bubble_fraction(
    *, pipeline_parallel: Any, virtual_pipeline_stages: Any, micro_batch_count: Any
) -> Any:
    """Idle time of a 1F1B pipeline as a share of its ideal time. [1]

    (p - 1) / (v·m).

    References:
        Narayanan et al., arXiv 2104.04473, section 2.2.

    Examples:
        >>> round(pipeline_bubble_fraction(pipeline_parallel=8, virtual_pipeline_stages=3,
        ...                                micro_batch_count=64), 4)
        0.0365
    """
    return (pipeline_parallel - 1) / (virtual_pipeline_stages * micro_batch_count)


@quantity(
    "training_booked_gpu_hours",
    unit="gpu_hour",
    per="run",
    formula="√(hours at the estimated speed · hours at the MFU that published runs book)",
    sources=("published training runs whose GPU-hours are known",),
)
def training_booked_gpu_hours(
    *, training_tokens: Any, tokens_per_s_per_gpu: Any, booked_tokens_per_s_per_gpu: Any
) -> Any:
    """GPU-hours that a whole run books, by its speed and by what such runs book. [gpu_hour]

    T/(3600·√(r·r_b)): the geometric mean of two estimates with independent faults. The mechanism
    knows model and GPU; the table knows what runs lose outside their steady steps.

    Examples:
        1e12 tokens at 1,000 token/s and GPU by mechanism and by table.

        >>> round(float(training_booked_gpu_hours(training_tokens=1e12,
        ...     tokens_per_s_per_gpu=1000, booked_tokens_per_s_per_gpu=1000)))
        277778
    """
    rate = np.sqrt(tokens_per_s_per_gpu * np.asarray(booked_tokens_per_s_per_gpu))
    return training_tokens / (rate * SECONDS_PER_HOUR)


def stage_share(*, layer_count: Any, pipeline_parallel: Any) -> Any:
    """Share of all layers that the largest pipeline stage holds. [1]

    ceil(L / p) / L.

    Special cases:
        No layers of a kind: no share.

    Examples:
        >>> float(stage_share(layer_count=126, pipeline_parallel=16)) == 8 / 126
        True
    """
    return np.ceil(layer_count / pipeline_parallel) / np.maximum(layer_count, 1)


def stage_layer_count(*, layer_count: Any, pipeline_parallel: Any, stage_index: Any) -> Any:
    """Layers of one pipeline stage. [count]

    floor(L / p), and one more on each of the first L mod p stages: the last holds the head and is
    given the fewest. Over all stages they add up to L.

    Examples:
        Llama 3.1 405B, 126 layers over 16 stages: 8 on the first 14, 7 on the last two.

        >>> [int(stage_layer_count(layer_count=126, pipeline_parallel=16, stage_index=i))
        ...  for i in (0, 13, 14, 15)]
        [8, 8, 7, 7]
    """
    more = np.less(stage_index, np.mod(layer_count, pipeline_parallel))
    return np.floor_divide(layer_count, pipeline_parallel) + more


def chunks_in_flight(
    *,
    pipeline_parallel: Any,
    virtual_pipeline_stages: Any,
    micro_batch_count: Any,
    stage_index: Any = 0,
) -> Any:
    """Chunks of micro-batches whose activations one stage holds at once. [count]

    Plain 1F1B: min(m, p - i) for stage i. Interleaved: min(m·v, 2·(p - i - 1) + (v - 1)·p + 1),
    each chunk a v-th of a stage, so the first stage holds 1 + (p - 1)/(p·v) of a whole model's
    layers.

    References:
        Narayanan et al., arXiv 2104.04473, section 2.2; Korthikanti et al., arXiv 2205.05198,
        section 4.2.3.

    Examples:
        >>> int(chunks_in_flight(pipeline_parallel=8, virtual_pipeline_stages=1,
        ...                      micro_batch_count=64))
        8
        >>> int(chunks_in_flight(pipeline_parallel=8, virtual_pipeline_stages=3,
        ...                      micro_batch_count=64))
        31
    """
    later = pipeline_parallel - stage_index - 1
    warm_up = 2 * later + (virtual_pipeline_stages - 1) * pipeline_parallel
    held = np.where(np.asarray(virtual_pipeline_stages) > 1, warm_up, later) + 1
    return np.minimum(micro_batch_count * virtual_pipeline_stages, held)


@quantity(
    "pipeline_imbalance_factor",
    unit="1",
    per="run",
    formula="ceil(layers / stages) · stages / layers",
)
def pipeline_imbalance_factor(*, layer_count: Any, pipeline_parallel: Any) -> Any:
    """Time of the stage with most layers over that of an even split. [1]

    ceil(L / p)·p / L: every stage waits for the longest.

    Examples:
        Llama 3.1 405B, 126 layers over 16 stages: 8 layers on the longest.

        >>> round(float(pipeline_imbalance_factor(layer_count=126, pipeline_parallel=16)), 4)
        1.0159
    """
    share = stage_share(layer_count=layer_count, pipeline_parallel=pipeline_parallel)
    return share * pipeline_parallel


@quantity(
    "training_tokens_per_s_per_gpu",
    unit="token/s",
    per="gpu",
    formula="peak · share of the peak / (FLOPs per token · slowdown)",
    sources=(_CHOWDHERY,),
)
def training_tokens_per_s_per_gpu(
    *,
    peak_flop_per_s: Any,
    peak_fraction: Any,
    flops_per_token: Any,
    slowdown_factor: Any = 1.0,
) -> Any:
    """Tokens that one GPU advances in a second. [token/s]

    peak · u / (F · slowdown). With an MFU, F are model FLOPs; with an HFU, executed FLOPs; with an
    estimate, u is a share of the bf16 peak and the slowdown is what that share does not hold:
    pipeline bubble and uneven stages.

    References:
        Chowdhery et al., arXiv 2204.02311, appendix B.

    Examples:
        Llama 3.1 70B at 40 % of an H100's bf16 peak.

        >>> round(training_tokens_per_s_per_gpu(peak_flop_per_s=989.4e12, peak_fraction=0.4,
        ...                                     flops_per_token=6 * 70_553_706_496), 3)
        934.891
    """
    return peak_flop_per_s * peak_fraction / (flops_per_token * slowdown_factor)


@quantity(
    "training_mfu_fraction",
    unit="1",
    per="run",
    formula="tokens/s per GPU · training_flops_per_token / dense peak of the compute precision",
    sources=(_CHOWDHERY,),
)
def training_mfu_fraction(
    *, tokens_per_s_per_gpu: Any, flops_per_token: Any, peak_flop_per_s: Any
) -> Any:
    """Model FLOPs utilisation: useful work over the dense peak. [1]

    References:
        Chowdhery et al., arXiv 2204.02311, appendix B.

    Examples:
        7B at 9,600 tokens/s on an H100, 4,096 tokens, attention counted: 45.5 %.

        >>> round(training_mfu_fraction(tokens_per_s_per_gpu=9600, flops_per_token=4.69e10,
        ...                             peak_flop_per_s=989e12), 3)
        0.455
    """
    return tokens_per_s_per_gpu * flops_per_token / peak_flop_per_s


@quantity(
    "training_hfu_fraction",
    unit="1",
    per="run",
    formula="tokens/s per GPU · training_executed_flops_per_token / dense peak",
    sources=(_CHOWDHERY,),
)
def training_hfu_fraction(
    *, tokens_per_s_per_gpu: Any, executed_flops_per_token: Any, peak_flop_per_s: Any
) -> Any:
    """Hardware FLOPs utilisation: everything executed over the dense peak. [1]

    References:
        Chowdhery et al., arXiv 2204.02311, appendix B.

    Examples:
        Full recompute at 30 % MFU executes a third more.

        >>> round(training_hfu_fraction(tokens_per_s_per_gpu=100, executed_flops_per_token=8e9,
        ...                             peak_flop_per_s=2e12), 3)
        0.4
    """
    return tokens_per_s_per_gpu * executed_flops_per_token / peak_flop_per_s


@quantity(
    "training_steady_hours",
    unit="h",
    per="run",
    formula="run multiplier · training tokens / (tokens/s per GPU · GPUs) / 3600",
)
def training_steady_hours(
    *,
    training_tokens: Any,
    tokens_per_s_per_gpu: Any,
    gpu_count: Any,
    run_multiplier: Any = 1.0,
) -> Any:
    """Hours at steady speed, without failures or anything else that stops a run. [h]

    Examples:
        GPU-hours are the hours of one GPU: 405B on 15.6e12 tokens at 40 % of 989 TFLOPS.

        >>> rate = training_tokens_per_s_per_gpu(peak_flop_per_s=989e12, peak_fraction=0.4,
        ...                                      flops_per_token=6 * 405e9)
        >>> round(training_steady_hours(training_tokens=15.6e12, tokens_per_s_per_gpu=rate,
        ...                             gpu_count=1))
        26617796
    """
    seconds = training_tokens / (tokens_per_s_per_gpu * gpu_count)
    return run_multiplier * seconds / SECONDS_PER_HOUR


@quantity(
    "training_wall_clock_hours",
    unit="h",
    per="run",
    formula="steady hours / (goodput · other), other = 1 where the speed was given",
)
def training_wall_clock_hours(
    *, steady_hours: Any, goodput_fraction: Any, other_fraction: Any = 1.0
) -> Any:
    """Hours from start to finish. [h]

    Start-up, evaluation and slow phases are in `other_fraction`, failures and checkpoints in
    `goodput_fraction`.

    Examples:
        >>> round(training_wall_clock_hours(steady_hours=1160.638, goodput_fraction=0.993778), 2)
        1167.9
    """
    return steady_hours / (goodput_fraction * other_fraction)


@quantity(
    "training_gpu_hours",
    unit="gpu_hour",
    per="run",
    formula="GPUs · wall-clock hours",
)
def training_gpu_hours(*, gpu_count: Any, wall_clock_hours: Any) -> Any:
    """GPU-hours that a run holds from start to finish. [gpu_hour]

    Examples:
        >>> training_gpu_hours(gpu_count=25_000, wall_clock_hours=90 * 24)
        54000000
    """
    return gpu_count * wall_clock_hours


def full_speed_fraction(*, tokens_per_gpu: Any, full_speed_tokens_per_gpu: Any) -> Any:
    """Speed left where gathered weights are used for too few tokens. [1]

    min(1, n / n_full): with fully sharded weights every micro-batch waits for the same bytes,
    however few tokens it has.

    Examples:
        >>> float(full_speed_fraction(tokens_per_gpu=2048, full_speed_tokens_per_gpu=8192))
        0.25
    """
    return np.minimum(1.0, tokens_per_gpu / full_speed_tokens_per_gpu)


def root_sum_square_factor(*, factors: Any) -> Any:
    """Factor that independent uncertain factors make together. [1]

    exp(sqrt(sum of ln(f)²)): deviations of independent factors add as squares of their logarithms.

    References:
        First-order propagation of independent errors, taken on the logarithm of a product.

    Examples:
        >>> round(float(root_sum_square_factor(factors=[1.2, 1.2])), 4)
        1.2941
        >>> float(root_sum_square_factor(factors=[]))
        1.0
    """
    return np.exp(np.sqrt(np.sum(np.log(np.asarray(factors, dtype=float)) ** 2)))


@quantity(
    "training_mechanistic_step_s",
    unit="s",
    per="run",
    formula="(micro-batch · (micro-batches + (stages - 1) / chunks) + exposed gradient exchange + "
    "optimizer) · stragglers",
    sources=("Korthikanti et al., arXiv 2205.05198, sections 4 and 5", _NARAYANAN),
)
def step_s(
    *,
    micro_batch_s: Any,
    micro_batch_count: Any,
    pipeline_parallel: Any,
    virtual_pipeline_stages: Any,
    exposed_exchange_s: Any,
    optimizer_s: Any,
    straggler_factor: Any,
) -> Any:
    """One optimizer step. [s]

    (t·(m + (p - 1)/v) + exchange + optimizer)·stragglers.

    References:
        Narayanan et al., arXiv 2104.04473, section 2.2 for the bubble.

    Examples:
        >>> float(step_s(micro_batch_s=1.0, micro_batch_count=8, pipeline_parallel=4,
        ...     virtual_pipeline_stages=3, exposed_exchange_s=0.5, optimizer_s=0.5,
        ...     straggler_factor=1.0))
        10.0
    """
    slots = micro_batch_count + (pipeline_parallel - 1) / virtual_pipeline_stages
    return (micro_batch_s * slots + exposed_exchange_s + optimizer_s) * straggler_factor
