"""Speed of features that no published row isolates, against arithmetic worked beside each test.

Kernels and links are taken as perfect here: time is work over peak plus bytes over bandwidth, with
no fixed times and no host, so that every number follows from sizes that stand in model cards.
"""

from dataclasses import replace

import pytest

from service.core.recorder import Recorder
from service.core.replica.constants import (
    AttentionConstants,
    EngineConstants,
    ExchangeConstants,
    ExpertConstants,
    KernelConstants,
    LinkConstants,
    ResidualFactors,
    ServingConstants,
)
from service.core.replica.passes import Traffic
from service.core.replica.shape import Layout, ReplicaShape
from service.core.replica.speed import Speed
from service.core.scenarios.replica_settings import Disaggregation, ReplicaSettings, Speculation

PEAK, PEAK_FP8 = 989.4e12, 1978.9e12
"""H100 SXM data sheet: dense, in 16 and in 8 bit. [FLOP/s]"""
BANDWIDTH = 3.35e12
"""Its memory. [B/s]"""
LINK = 450e9
"""NVLink of one GPU in one direction. [B/s]"""
EXACT = 1e-9

# Llama 3.3 70B: 80 layers, hidden 8192, 8 KV heads of 128, feed-forward 28672, vocabulary 128256.
LAYER = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192  # with two norms
WEIGHTS = 80 * LAYER
HEAD = 128_256 * 8192
TOKEN_BYTES = 80 * 2 * 8 * 128 * 2  # keys and values in 16 bit: 327,680 B

NOTHING = dict.fromkeys(EngineConstants.__dataclass_fields__, 0.0)
ENGINE = EngineConstants(
    **NOTHING
    | {
        "launch_tensor_parallel_factor": 1.0,
        "chunk_tokens_maximum": 8192.0,
        "prefill_slowdown": 1.0,
        "weight_only_half_tokens": 1.0,
        "arrival_squared_variation": 1.0,
        "other_rank_fraction": 0.0,
    }
)
KERNEL = KernelConstants(0.0, 1.0, 1.0, 1.0)
EXPERTS = ExpertConstants(KERNEL, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0)
ATTENTION = AttentionConstants(0.0, 1.0, 1.0, 1.0, 0.0, 0.0)
PERFECT = LinkConstants(0.0, 1.0, 0.0)
CONSTANTS = ServingConstants(
    dense=KERNEL,
    wide=KERNEL,
    experts=EXPERTS,
    attention=ATTENTION,
    scale_up=PERFECT,
    pcie=None,
    exchange=ExchangeConstants(latency_s=10e-6, bytes_per_element=3.0),
    engine=ENGINE,
    residual=ResidualFactors(1.0, 1.0, 1.0, 1.0, 1.0),
)


def speed_of(snapshot, architecture, settings, *, weights="bf16", traffic=(1500, 400)):
    gpu = snapshot.gpu("h100-sxm5-80gb")
    shape = ReplicaShape(
        architecture=snapshot.architecture(architecture),
        gpu=gpu,
        weight_format=snapshot.number_format(weights),
        kv_format=snapshot.number_format("bf16"),
        available_bytes=gpu.available_memory_bytes(hbm_fraction=1, gddr_fraction=1),
        expert_width_multiple=1.0,
        index_bytes_per_element=1.0,
        weight_precision=weights,
    )
    asked = Traffic(*traffic, 2 * sum(traffic), 0.5)
    recorder = Recorder(snapshot).off()
    return Speed(shape, CONSTANTS, asked, recorder, settings=settings)


def step_s(sequences, tokens_each):
    """One pass over 1,500 + 400/2 tokens of context: weights and head once, the cache once."""
    tokens = sequences * tokens_each
    work = 2 * tokens * (WEIGHTS + HEAD) / PEAK
    read = 2 * (WEIGHTS + HEAD) / BANDWIDTH
    return work + read + sequences * 1700 * TOKEN_BYTES / BANDWIDTH


def test_a_draft_of_four_tokens_by_hand(snapshot):
    # 16 requests. A plain step is 46.1 ms: weights and head of 139 GB take 41.5 ms, 2.2 TFLOP take
    # 2.2 ms, the cache of 16 · 1,700 tokens takes 2.7 ms. A check of five tokens each has five
    # times the work and the same bytes: 55.1 ms. Four drafts at 5 % of a step cost 9.3 ms. At an
    # acceptance of 0.8 a step yields 1 + 0.8 + 0.64 + 0.512 + 0.4096 = 3.3616 tokens.
    draft = Speculation(draft_tokens=4, acceptance_fraction=0.8, draft_cost_fraction=0.05)
    speed = speed_of(snapshot, "llama-3.3-70b", ReplicaSettings(speculation=draft))
    found = speed.without_waiting(Layout(1, 1), 16.0)
    plain, check = step_s(16, 1), step_s(16, 5)
    assert (plain, check) == pytest.approx((0.0465, 0.0555), rel=0.01)
    by_hand = (check + 4 * 0.05 * plain) / (1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert found.tokens_per_pass == pytest.approx(3.3616)
    assert found.decode_step_s == pytest.approx(by_hand, rel=EXACT)


def test_prompts_and_answers_apart_by_hand(snapshot):
    # A copy that reads prompts alone takes 1,500 tokens at once, and n/O = 0.04 prompts arrive in
    # a step of 16 requests, so a chunk is one prompt: 205 TFLOP of weights in 207.6 ms, one
    # reading of them in 40.9 ms, 1,500²/2 pairs of 80 · 4 · 64 · 128 FLOP in 3 ms: 251 ms, or
    # 3.98 a second. A copy that makes answers ends 16/(400 · 46.5 ms) = 0.86 a second. One reader
    # keeps 4.6 makers busy: 1 to 4 serves min(1, 4/4.6)/5 = 0.173 of a reader for each copy, 1 to 5
    # serves 1/6 = 0.167, and no larger group 5 % more.
    apart = ReplicaSettings(disaggregation=Disaggregation(transfer_gb_per_s=100))
    speed = speed_of(snapshot, "llama-3.3-70b", apart)
    found = speed.without_waiting(Layout(1, 1), 16.0)
    pairs = 1500 * 1500 / 2 * 80 * 4 * 64 * 128
    prompt = 2 * 1500 * WEIGHTS / PEAK + 2 * WEIGHTS / BANDWIDTH + pairs / PEAK
    assert prompt == pytest.approx(0.251, rel=0.01)
    assert found.prefill_share_s == pytest.approx(prompt, rel=EXACT)
    answers = 16 / (400 * step_s(16, 1))
    assert (1 / prompt) / answers == pytest.approx(4.6, rel=0.02)
    assert (found.prefill_copies, found.decode_copies) == (1, 4)
    assert found.units_per_s == pytest.approx(min(1 / prompt, 4 * answers), rel=EXACT)
    # The cache of a prompt, 1,500 · 327,680 B = 491.5 MB, takes 4.9 ms at 100 GB/s.
    assert found.transfer_s == pytest.approx(1500 * TOKEN_BYTES / 100e9, rel=EXACT)
    # Nothing stops the steps of a copy that makes answers.
    assert found.tpot_mean_s == pytest.approx(step_s(16, 1), rel=EXACT)


def test_experts_over_ranks_with_sequences_of_their_own_by_hand(snapshot):
    # Qwen3 235B in fp8 on 8 ranks with 8 requests each: 94 layers, hidden 4096, 64 heads and
    # 4 KV heads of 128, 128 experts of width 1536, 8 a token.
    speed = speed_of(snapshot, "qwen3-235b-a22b", ReplicaSettings(), weights="fp8")
    layout, each, ranks = Layout(1, 1, 8), 8, 8
    tokens = each * ranks
    expert = 3 * 4096 * 1536
    # 64 tokens touch 128 · (1 − (1 − 8/128)^64) = 125.94 experts, of which a rank holds an eighth:
    # 27.9 GB of weights in 8.3 ms, and 64 · 8 / 8 products of its own in 1.2 ms.
    touched = 128 * (1 - (1 - 8 / 128) ** tokens)
    assert touched == pytest.approx(125.94, abs=0.01)
    moved = 94 * touched * expert / ranks
    assert moved == pytest.approx(27.9e9, rel=0.01)
    experts = moved / BANDWIDTH + 2 * tokens * 8 * 94 * expert / ranks / PEAK_FP8
    assert speed.experts(layout, float(tokens)).seconds == pytest.approx(experts, rel=EXACT)
    # To 8 of 8 ranks and back: 8 tokens · 8 · 4,096 · 3 B, 7/8 of which leave: 0.69 MB, 1.5 µs
    # beside 10 µs of latency in each of 94 layers: 1.08 ms.
    exchange = 94 * (10e-6 + each * 8 * 4096 * 3 * 7 / 8 / LINK)
    assert exchange == pytest.approx(1.08e-3, rel=0.01)
    assert float(speed.collectives_s(layout, float(each))) == pytest.approx(exchange, rel=EXACT)
    # Attention: each rank has all of its weights and the cache of its own 8 sequences alone.
    cache = each * 1700 * 94 * 2 * 4 * 128 * 2
    read = float(speed.decode_attention(layout, float(each)).moved_bytes)
    assert read == pytest.approx(cache, rel=EXACT)
    alone = speed.shape.layer_parameter_count
    dense = float(speed.layers(layout, float(each)).moved_bytes)
    assert dense == pytest.approx(alone, rel=EXACT)
    # q and o: 2 · 4096 · 8192, k and v: 2 · 4096 · 512, a router of 128 and small norms.
    assert alone == pytest.approx(94 * (2 * 4096 * 8192 + 2 * 4096 * 512 + 4096 * 128), rel=1e-3)
    # The step is their sum, with a head in 16 bit.
    head = 151_936 * 4096
    whole = experts + exchange + alone / BANDWIDTH + 2 * each * alone / PEAK_FP8 + cache / BANDWIDTH
    whole += 2 * head / BANDWIDTH + 2 * each * head / PEAK
    found = speed.without_waiting(layout, float(tokens))
    assert float(found.decode_step_s) == pytest.approx(whole, rel=EXACT)


def test_chunks_beyond_the_steps_pass_alone_by_hand(snapshot):
    # 8,192 + 8 tokens at 32 requests in chunks of 8,192: 32 chunks arrive while a request makes 8
    # steps, so a quarter joins a step and saves one reading of the weights; the others read them.
    speed = speed_of(snapshot, "llama-3.3-70b", ReplicaSettings(), traffic=(8192, 8))
    engine = replace(ENGINE, prefill_in_step_fraction=1.0)
    speed = replace(speed, constants=replace(CONSTANTS, engine=engine))
    found = speed.without_waiting(Layout(1, 1), 32.0)
    work = 2 * 8192 * WEIGHTS / PEAK
    reading = 2 * WEIGHTS / BANDWIDTH
    pairs = 8192 * 8192 / 2 * 80 * 4 * 64 * 128 / PEAK
    by_hand = 0.25 * work + 0.75 * (work + reading) + pairs
    assert float(found.prefill_share_s) == pytest.approx(by_hand, rel=EXACT)
