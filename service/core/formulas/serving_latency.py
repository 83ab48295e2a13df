"""Speed of a serving replica: prompts, decode steps, and what they do to one another."""

from typing import Any

import numpy as np

from service.core.registry import quantity

DISAGGREGATION = "DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677"
COPIES_MAXIMUM = 8
INTERFERENCE = "Agrawal et al., Sarathi, arXiv 2308.16369 and 2403.02310"


@quantity(
    "decode_step_s",
    unit="s",
    per="replica",
    formula="(weights + attention + collectives + host) · (1 + loss · (PP − 1))",
    sources=("Pope et al., Efficiently Scaling Transformer Inference, arXiv 2211.05102",),
)
def decode_step_s(
    *,
    weights_s: Any,
    attention_s: Any,
    collectives_s: Any,
    host_s: Any,
    stage_loss_fraction: Any,
    pipeline_parallel: Any,
) -> Any:
    """Time in which every running sequence gets one more token. [s]

    Micro-batches fill the pipeline stages in turn, so the parts are those of all layers at the
    micro-batch's size; each further stage loses a small share to imbalance and hand-over.

    Examples:
        >>> round(decode_step_s(weights_s=0.010, attention_s=0.004, collectives_s=0.002,
        ...     host_s=0.002, stage_loss_fraction=0.035, pipeline_parallel=1), 4)
        0.018
    """
    whole = weights_s + attention_s + collectives_s + host_s
    return whole * (1.0 + stage_loss_fraction * (pipeline_parallel - 1))


def prefill_chunk_tokens(
    *,
    input_tokens_mean: Any,
    output_tokens_mean: Any,
    running_requests: Any,
    chunk_tokens_maximum: Any,
) -> Any:
    """Prompt tokens that pass through the weights together in steady state. [token]

    min(chunk limit, max(I, n·I/O)): in one decode step n/O requests end and as many prompts take
    their place, so several short prompts share one reading of the weights; a long prompt is cut
    at the engine's limit.

    References:
        Agrawal et al., Sarathi-Serve, arXiv 2403.02310, section 4.1, for chunks.

    Special cases:
        At least one token, so that a request without a prompt divides nothing by zero.

    Examples:
        256 running requests of 1,000 + 100 tokens: 2.56 prompts a step.

        >>> float(prefill_chunk_tokens(input_tokens_mean=1000, output_tokens_mean=100,
        ...     running_requests=256, chunk_tokens_maximum=8192))
        2560.0
    """
    arriving = np.asarray(running_requests) * input_tokens_mean / output_tokens_mean
    tokens = np.minimum(np.maximum(input_tokens_mean, arriving), chunk_tokens_maximum)
    return np.maximum(tokens, 1.0)


def joining_fraction(
    *,
    input_tokens_mean: Any,
    output_tokens_mean: Any,
    running_requests: Any,
    chunk_tokens: Any,
) -> Any:
    """Share of chunks that find a decode step to join. [1]

    min(1, O·chunk/(n·I)): while a request decodes O tokens, n prompts of I/chunk chunks each
    arrive, and one chunk joins a step; the chunks beyond that pass alone.

    References:
        Agrawal et al., Sarathi-Serve, arXiv 2403.02310, section 4.1, for one chunk a step.

    Special cases:
        1 without a prompt.

    Examples:
        64 requests of 8,000 + 10 tokens in chunks of 8,000: 10 steps for 64 chunks.

        >>> float(joining_fraction(input_tokens_mean=8000, output_tokens_mean=10,
        ...                        running_requests=64, chunk_tokens=8000))
        0.15625
    """
    tiny = np.finfo(float).tiny
    arriving = np.maximum(np.asarray(running_requests) * input_tokens_mean, tiny)
    return np.minimum(1.0, output_tokens_mean * chunk_tokens / arriving)


@quantity(
    "prefill_share_s",
    unit="s",
    per="replica",
    formula="I / chunk · chunk time + attention of the prompt, over PP stages",
    sources=(INTERFERENCE,),
)
def prefill_share_s(
    *,
    input_tokens_mean: Any,
    chunk_tokens: Any,
    chunk_s: Any,
    attention_s: Any,
    pipeline_parallel: Any,
) -> Any:
    """Time that one prompt takes from the decode steps of all others in steady state. [s]

    With PP stages, as many prompts are on their way at once, so each takes its share.

    Special cases:
        0 for requests without a prompt.

    Examples:
        >>> prefill_share_s(input_tokens_mean=1000, chunk_tokens=2000, chunk_s=0.08,
        ...                 attention_s=0.002, pipeline_parallel=1)
        0.042
    """
    return (input_tokens_mean / chunk_tokens * chunk_s + attention_s) / pipeline_parallel


@quantity(
    "prefill_s",
    unit="s",
    per="replica",
    formula="chunks · chunk time + attention of the prompt + fixed time of a request",
)
def prefill_s(*, chunk_count: Any, chunk_s: Any, attention_s: Any, request_s: Any) -> Any:
    """Time to first token of one request on an idle replica. [s]

    Examples:
        >>> round(prefill_s(chunk_count=1, chunk_s=0.08, attention_s=0.002, request_s=0.017), 3)
        0.099
    """
    return chunk_count * chunk_s + attention_s + request_s


def launch_bound_s(*, device_s: Any, launch_s: Any) -> Any:
    """Time of a pass that is either computed or launched. [s]

    (device⁴ + launch⁴)^¼: near the longer of the two. Outside captured graphs the host starts
    every kernel, and short prompts wait for it.

    References:
        A p-norm fitted to published times to first token of short prompts.

    Examples:
        >>> [round(float(launch_bound_s(device_s=d, launch_s=5.0)), 2) for d in (1.0, 50.0)]
        [5.0, 50.0]
    """
    longer = np.maximum(np.maximum(device_s, launch_s), np.finfo(float).tiny)
    ratio = np.minimum(device_s, launch_s) / longer
    return longer * (1.0 + ratio**4) ** 0.25


@quantity(
    "tpot_mean_s",
    unit="s",
    per="replica",
    formula="t_d + (n − 1)/O · t_p",
    sources=(INTERFERENCE,),
)
def tpot_mean_s(
    *,
    decode_step_s: Any,
    prefill_share_s: Any,
    running_requests: Any,
    output_tokens_mean: Any,
) -> Any:
    """Mean time between a request's tokens after its first one. [s]

    While a request decodes, each of the other n − 1 slots starts a prompt once in O tokens, and
    that prompt's time is taken from everybody's steps. A request's own prompt is part of its time
    to first token, not of this mean.

    Special cases:
        One running request sees the bare decode step.

    Examples:
        32 requests, 20 ms steps, prompts of 100 ms, answers of 200 tokens: 20 + 31/200·100 ms.

        >>> round(float(tpot_mean_s(decode_step_s=0.020, prefill_share_s=0.100,
        ...                         running_requests=32, output_tokens_mean=200)), 4)
        0.0355
    """
    others = np.maximum(running_requests - 1, 0)
    return decode_step_s + others / output_tokens_mean * prefill_share_s


@quantity(
    "service_time_s",
    unit="s",
    per="replica",
    formula="t_p + O · TPOT",
)
def service_time_s(*, prefill_share_s: Any, tpot_mean_s: Any, output_tokens_mean: Any) -> Any:
    """Time for which one request holds its slot. [s]

    Its own prompt, then O tokens at the mean pace: t_p + O·TPOT = O·t_d + n·t_p.

    Examples:
        >>> round(service_time_s(prefill_share_s=0.1, tpot_mean_s=0.0355,
        ...                      output_tokens_mean=200), 2)
        7.2
    """
    return prefill_share_s + output_tokens_mean * tpot_mean_s


@quantity(
    "units_per_s_per_replica",
    unit="unit/s",
    per="replica",
    formula="n / (O · t_d + n · t_p); prompts apart: min(copies / t_p, copies · n / (O · t_d))",
    sources=(INTERFERENCE, DISAGGREGATION),
)
def units_per_s_per_replica(
    *,
    running_requests: Any,
    output_tokens_mean: Any,
    decode_step_s: Any,
    prefill_share_s: Any,
) -> Any:
    """Requests that a replica with n full slots completes per second. [unit/s]

    Each slot's cycle takes O decode steps and the prompts of all n slots.

    Special cases:
        Without a prompt (t_p = 0) the rate is n/(O·t_d): bounded by the step, never infinite.

    Examples:
        >>> round(units_per_s_per_replica(running_requests=32, output_tokens_mean=200,
        ...                               decode_step_s=0.020, prefill_share_s=0.100), 4)
        4.4444
    """
    cycle = output_tokens_mean * decode_step_s + running_requests * prefill_share_s
    return running_requests / cycle


@quantity(
    "ttft_p95_s",
    unit="s",
    per="replica",
    formula="prefill + steps waited + wait for the prompts ahead + wait for a slot",
    sources=("Allen, Probability, Statistics and Queueing Theory, 1990, section 5.2.6",),
)
def ttft_p95_s(
    *, prefill_s: Any, steps_s: Any, prompt_queue_p95_s: Any, slot_queue_p95_s: Any
) -> Any:
    """95th percentile of the time to first token at the planned utilisation. [s]

    The two waits are each a 95th percentile; their sum is at least that of the whole, so the
    figure errs on the safe side. A burst above the planned load comes on top.

    Examples:
        >>> ttft_p95_s(prefill_s=0.1, steps_s=0.04, prompt_queue_p95_s=0.2, slot_queue_p95_s=0.0)
        0.34
    """
    return prefill_s + steps_s + prompt_queue_p95_s + slot_queue_p95_s


def replicas_for_slots(
    *, arrival_rate_per_s: Any, service_time_s: Any, running_requests: Any
) -> Any:
    """Replicas that hold all requests in flight. [count]

    ⌈λ·S/n⌉ by Little's law; S itself depends on n.

    References:
        Little, Operations Research 9(3), 1961.

    Examples:
        10 requests a second that each take 7.2 s need 72 slots: three replicas of 32.

        >>> float(replicas_for_slots(arrival_rate_per_s=10, service_time_s=7.2,
        ...                          running_requests=32))
        3.0
    """
    return np.ceil(arrival_rate_per_s * np.asarray(service_time_s) / running_requests)


def speculative_tokens_per_step(*, acceptance_fraction: Any, draft_tokens: Any) -> Any:
    """Tokens that one step yields when a draft model proposes and the target checks. [token]

    (1 − β^(γ+1))/(1 − β), β the chance that a drafted token is accepted, γ tokens drafted.

    References:
        Leviathan, Kalman, Matias, arXiv 2211.17192, equation 1.

    Special cases:
        β = 1 accepts every draft: γ + 1.

    Examples:
        >>> [round(float(speculative_tokens_per_step(acceptance_fraction=b, draft_tokens=4)), 2)
        ...     for b in (0.8, 1.0)]
        [3.36, 5.0]
    """
    beta = np.asarray(acceptance_fraction, dtype=float)
    series = (1 - beta ** (draft_tokens + 1)) / np.where(beta < 1, 1 - beta, 1.0)
    return np.where(beta < 1, series, draft_tokens + 1)


@quantity(
    "speculative_token_s",
    unit="s",
    per="replica",
    formula="(checking step + γ · c · plain step) / tokens of a step",
    sources=("Leviathan, Kalman, Matias, arXiv 2211.17192",),
)
def speculative_token_s(
    *,
    decode_step_s: Any,
    checking_step_s: Any,
    draft_tokens: Any,
    draft_cost_fraction: Any,
    tokens_per_step: Any,
) -> Any:
    """Time for each token of a sequence when a draft proposes and the served model checks. [s]

    The checking step passes γ + 1 tokens of every sequence through the weights: as long as the
    plain step while memory is the limit, longer once compute is. c is the time of one drafted
    token over the plain step.

    Examples:
        A check no slower than the 20 ms step, 4 drafted at 5 % each, 3.36 tokens of a step.

        >>> round(speculative_token_s(decode_step_s=0.020, checking_step_s=0.020, draft_tokens=4,
        ...     draft_cost_fraction=0.05, tokens_per_step=3.36) * 1e3, 3)
        7.143
    """
    drafted = draft_tokens * draft_cost_fraction * decode_step_s
    return (checking_step_s + drafted) / tokens_per_step


def copies_apart(*, readers_per_maker: Any, least_gain_factor: float) -> tuple[Any, Any]:
    """Copies that read prompts and copies that make answers, in the best whole ratio. [count]

    Of 1 to 8 copies each, x readers and y makers serve min(x, y·r) where one maker keeps r readers
    busy; a larger group wins where it serves more for each copy by the least gain: small groups
    leave less idle.

    References:
        Zhong et al., DistServe, arXiv 2401.09670, section 4, for sizing the two apart.

    Examples:
        >>> [tuple(float(n) for n in copies_apart(readers_per_maker=r, least_gain_factor=1.05))
        ...     for r in (1.0, 0.5, 3.0)]
        [(1.0, 1.0), (1.0, 2.0), (3.0, 1.0)]
    """
    ratio = np.asarray(readers_per_maker, dtype=float)
    counts = range(1, COPIES_MAXIMUM + 1)
    groups = sorted(((x, y) for x in counts for y in counts), key=sum)
    best, readers, makers = np.zeros(ratio.shape), np.ones(ratio.shape), np.ones(ratio.shape)
    for x, y in groups:
        served = np.minimum(x, y * ratio) / (x + y)
        is_better = served > best * least_gain_factor
        best = np.where(is_better, served, best)
        readers = np.where(is_better, x, readers)
        makers = np.where(is_better, y, makers)
    return readers, makers


def speculative_speedup(
    *, acceptance_fraction: Any, draft_tokens: Any, draft_cost_fraction: Any
) -> Any:
    """How much faster decode gets with a draft model, while it is bound by memory. [1]

    Tokens per step / (γ·c + 1), c the draft's step time over the target's.

    References:
        Leviathan, Kalman, Matias, arXiv 2211.17192, theorem 3.8.

    Examples:
        >>> round(float(speculative_speedup(acceptance_fraction=0.8, draft_tokens=4,
        ...                                 draft_cost_fraction=0.05)), 2)
        2.8
    """
    tokens = speculative_tokens_per_step(
        acceptance_fraction=acceptance_fraction, draft_tokens=draft_tokens
    )
    return tokens / (draft_tokens * draft_cost_fraction + 1)
