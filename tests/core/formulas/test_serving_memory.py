"""Cache, weights and pool: shapes broadcast, and no change has the wrong sign."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas.serving_memory import (
    fullest_stage_fraction,
    kv_cache_bytes_per_sequence,
    kv_cache_bytes_per_token,
    kv_cache_tokens_per_replica,
    kv_pool_bytes_per_gpu,
    sequences_that_fit,
    weight_bytes_per_gpu,
)

LLAMA = {
    "layer_count": [80],
    "cache_elements_per_token": [2048],
    "cache_shard_count": [8],
}


def sequence_bytes(tokens, *, tensor_parallel=1, span=np.inf, block=16, state=0):
    return kv_cache_bytes_per_sequence(
        sequence_tokens=tokens,
        block_tokens=block,
        span_tokens=[span],
        state_bytes=[state],
        tensor_parallel=tensor_parallel,
        bytes_per_element=2,
        **LLAMA,
    )


def test_an_array_of_layouts_gives_what_each_layout_gives_alone():
    degrees = np.array([1, 2, 4, 8, 16])
    together = kv_cache_bytes_per_token(tensor_parallel=degrees, bytes_per_element=1, **LLAMA)
    alone = [
        float(kv_cache_bytes_per_token(tensor_parallel=int(t), bytes_per_element=1, **LLAMA))
        for t in degrees
    ]
    assert together.tolist() == alone == [163840, 81920, 40960, 20480, 20480]


def test_a_fixed_state_is_charged_once_and_divided_over_ranks():
    # 80 layers of 4 MB of state, whatever the length; the two GPUs of a pair hold half each.
    only_state = {**LLAMA, "cache_elements_per_token": [0]}
    one, two = (
        float(
            kv_cache_bytes_per_sequence(
                sequence_tokens=tokens,
                block_tokens=16,
                span_tokens=[np.inf],
                state_bytes=[4e6],
                tensor_parallel=ranks,
                bytes_per_element=2,
                **only_state,
            )
        )
        for tokens, ranks in ((100, 1), (1_000_000, 2))
    )
    assert (one, two) == (320e6, 160e6)


def test_a_window_never_charges_more_than_its_span():
    # 80 layers · 2,048 elements · 2 B · 1,024 tokens.
    assert float(sequence_bytes(100_000, span=1024)) == 80 * 2048 * 2 * 1024


def test_what_takes_no_memory_is_unbounded():
    assert np.isinf(sequences_that_fit(pool_bytes=1e9, bytes_per_sequence=0.0))
    assert np.isinf(
        kv_cache_tokens_per_replica(pool_bytes=1e9, bytes_per_token=0.0, block_tokens=16)
    )


def test_a_model_that_does_not_fit_leaves_no_pool_rather_than_a_negative_one():
    pool = kv_pool_bytes_per_gpu(
        available_bytes=24e9,
        memory_utilization_fraction=0.9,
        weight_bytes=140e9,
        overhead_bytes=1e9,
        free_memory_fraction=1.0,
    )
    assert float(pool) == 0.0


def test_an_engine_that_takes_a_share_of_what_is_free():
    # 0.90 · (80 − 16 − 3) = 54.9.
    pool = kv_pool_bytes_per_gpu(
        available_bytes=80,
        memory_utilization_fraction=1.0,
        weight_bytes=16,
        overhead_bytes=3,
        free_memory_fraction=0.9,
    )
    assert float(pool) == pytest.approx(54.9)


def test_copied_weights_are_on_every_rank_and_only_layers_are_cut_into_stages():
    # 16 of 61 layers: 16/61 · (610/8 + 61) + 80/8 = 36 + 10.
    share = fullest_stage_fraction(num_hidden_layers=61, pipeline_parallel=4)
    found = weight_bytes_per_gpu(
        divided_layer_bytes=610,
        copied_layer_bytes=61,
        outside_layer_bytes=80,
        stage_fraction=share,
        tensor_parallel=8,
    )
    assert float(found) == pytest.approx(46.0)


@given(
    tokens=st.floats(1, 1e6),
    more=st.floats(0, 1e6),
    ranks=st.sampled_from((1, 2, 4, 8, 16)),
    pool=st.floats(1e9, 1e11),
)
def test_longer_context_never_raises_concurrency(tokens, more, ranks, pool):
    short, long = (
        sequences_that_fit(
            pool_bytes=pool, bytes_per_sequence=sequence_bytes(length, tensor_parallel=ranks)
        )
        for length in (tokens, tokens + more)
    )
    assert long <= short


@given(tokens=st.floats(1, 1e6), span=st.integers(1, 100_000), ranks=st.integers(1, 64))
def test_a_narrower_span_or_more_ranks_never_take_more(tokens, span, ranks):
    whole = sequence_bytes(tokens)
    assert sequence_bytes(tokens, span=span) <= whole
    assert sequence_bytes(tokens, tensor_parallel=ranks) <= whole
