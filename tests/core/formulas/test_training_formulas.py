"""Training formulas take arrays as they take numbers, and keep to their special cases."""

import inspect
import itertools

import numpy as np
import pytest

from service.core.formulas import (
    communication,
    flops,
    reliability,
    training_memory,
    training_time,
)

PART = {
    "parameter_count": [7e9, 70e9],
    "bytes_per_parameter": [2, 12],
    "shard_count": [8, 64],
    "expert_parameter_count": [0, 1e9],
    "expert_shard_count": [1, 4],
}
LIVE = {
    "live_bytes": [1e9, 2e9],
    "shard_count": [8, 64],
    "expert_live_bytes": [0, 1e9],
    "expert_shard_count": [1, 4],
    "own_on_host": [False, True],
}
ARGUMENTS = {
    "buffer_factor": [1.0, 1.5],
    "checkpoint_write_s": [0.0, 60.0],
    "days": [54, 90],
    "deviation": [-1.28, 1.28],
    "event_count": [0, 419],
    "incident_count": [3, 419],
    "own_on_host": [False, True],
    "activations": [3, 4],
    "active_parameter_count": [8e9, 405e9],
    "attention_forward_flops_per_token": [1e9, 3e9],
    "booked_tokens_per_s_per_gpu": [400, 900],
    "buffer_bytes": [1e9, 2e9],
    "bytes_per_logit": [4, 8],
    "bytes_per_parameter": [2, 12],
    "bytes_per_s": [50e9, 450e9],
    "checkpoint_bytes": [1e12, 2e12],
    "checkpoint_interval_s": [600, 1800],
    "checkpoint_save_s": [0, 60],
    "chunk_layer_count": [10, 20],
    "chunk_tokens": [8192, 1024],
    "chunks_in_flight": [1, 4],
    "communication_s": [1.0, 3.0],
    "context_parallel": [1, 4],
    "executed_flops_per_token": [5e11, 6e11],
    "expert_live_bytes": [0, 1e9],
    "expert_parameter_count": [0, 1e9],
    "expert_shard_count": [1, 4],
    "experts_per_token": [1, 8],
    "exponent": [1.6, 4.0],
    "exposed_exchange_s": [0.0, 0.2],
    "failures_per_1000_node_days": [2, 7],
    "failures_per_day": [0.25, 8.0],
    "first_s": [1.0, 3.0],
    "fixed_bytes": [2e9, 3e9],
    "flops_per_token": [4e11, 5e11],
    "fragmentation_fraction": [0.05, 0.08],
    "full_recompute": [False, True],
    "full_speed_tokens_per_gpu": [8192, 8192],
    "global_batch_tokens": [4e6, 16e6],
    "goodput_fraction": [0.9, 0.99],
    "gpu_count": [12, 512],
    "gpus_per_server": [8, 8],
    "gradient_bytes": [1e9, 2e9],
    "gradient_bytes_per_parameter": [2, 4],
    "gradients": [1, 2],
    "growth_per_doubling": [0.0, 0.012],
    "hidden_size": [4096, 8192],
    "inner_bytes": [1e5, 2e5],
    "input_width": [4096, 8192],
    "is_sharded": [False, True],
    "kept_bytes_per_token": [1e5, 2e5],
    "key_value_width": [2048, 4096],
    "latency_s": [0, 2e-5],
    "layer_count": [80, 126],
    "link_fraction": [0.8, 1.0],
    "live_bytes": [1e9, 2e9],
    "logits": [1, 0],
    "logits_bytes": [0, 1e9],
    "matmul_active_parameter_count": [7e9, 400e9],
    "mean_time_to_failure_s": [20, 1e5],
    "message_count": [0, 10],
    "micro_batch_count": [2, 64],
    "micro_batch_s": [0.5, 1.5],
    "micro_batch_sequences": [1, 4],
    "micro_batch_tokens": [8192, 4096],
    "near_rank_count": [1, 8],
    "node_count": [1, 64],
    "num_attention_heads": [0, 96],
    "optimizer": [6, 12],
    "optimizer_bytes_per_parameter": [12, 8],
    "optimizer_s": [0.01, 0.1],
    "offloaded_bytes": [1e9, 2e9],
    "other_bytes": [1e9, 2e9],
    "other_fraction": [0.95, 1.0],
    "output_width": [4096, 1024],
    "out_fraction": [0.0, 0.05],
    "overhead": [2, 3],
    "overlappable_s": [2.0, 2.0],
    "parameter_count": [7e9, 70e9],
    "peak_flop_per_s": [312e12, 989e12],
    "peak_fraction": [0.4, 0.5],
    "pipeline_parallel": [1, 8],
    "preemptions_per_day": [0.0, 2.0],
    "rank": [16, 64],
    "rank_count": [1, 16],
    "rebuilt_bytes_per_token": [0, 3e5],
    "repair_hours": [12.0, 24.0],
    "replica_count": [15, 20],
    "residual_bytes": [3e4, 6e4],
    "restart_s": [600, 1200],
    "routed_hidden_width": [1e5, 2e5],
    "run_multiplier": [1.0, 1.5],
    "score_bytes": [0, 1e5],
    "score_flops_per_pair": [16384, 32768],
    "second_s": [2.0, 0.5],
    "sent_bytes": [1e9, 2e9],
    "sequence_parallel": [False, True],
    "sequence_tokens": [2048, 8192],
    "shard_count": [8, 64],
    "slowdown_factor": [1.0, 1.1],
    "span_tokens": [4096, 4096],
    "spot_interruptions_per_1000_node_days": [0.0, 10.0],
    "stage_index": [0, 0],
    "steady_hours": [100.0, 1160.638],
    "storage_bytes_per_s": [58e9, 2e12],
    "straggler_factor": [1.0, 1.1],
    "tensor_parallel": [1, 8],
    "tokens": [4096, 8192],
    "tokens_per_gpu": [2048, 16384],
    "tokens_per_s_per_gpu": [400.0, 935.0],
    "training_tokens": [1e12, 2e12],
    "virtual_pipeline_stages": [1, 3],
    "visible_tokens": [2048, 4096],
    "vocab_size": [32000, 128256],
    "wall_clock_hours": [100.0, 1000.0],
    "weight_bytes": [1e9, 2e9],
    "weight_bytes_per_parameter": [2, 4],
    "weight_gradient_fraction": [0.0, 1.0],
    "weights": [1, 2],
    "writer_bytes_per_s": [12.5e9, 12.5e9],
    "writer_count": [2, 512],
    "zero_stage": [1, 3],
    "zone_count": [2, 3],
    # Parts of the sum, each in bytes.
}
# Takes a list; takes one probability for all counts, and its inner sum.
NOT_BY_ELEMENT = {"root_sum_square_factor", "node_count_with_spares", "_spares"}
MODULES = (communication, flops, reliability, training_memory, training_time)
FORMULAS = [
    pytest.param(function, id=f"{module.__name__.rsplit('.', 1)[-1]}.{name}")
    for module in MODULES
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and name not in NOT_BY_ELEMENT
]


def arguments_of(function):
    """Two values for each argument, also of those that a part of the state passes on."""
    passed_on = {"part": PART, "live": LIVE}
    arguments = {}
    for name in inspect.signature(function).parameters:
        arguments |= passed_on.get(name) or {name: ARGUMENTS[name]}
    return arguments


@pytest.mark.parametrize("function", FORMULAS)
def test_a_formula_gives_for_arrays_what_it_gives_for_each_element(function):
    arguments = arguments_of(function)
    together = function(**{name: np.array(values) for name, values in arguments.items()})
    one_by_one = [function(**{n: values[i] for n, values in arguments.items()}) for i in (0, 1)]
    assert np.shape(together) == (2,)
    assert together == pytest.approx(np.array(one_by_one, dtype=float), rel=1e-12)


@pytest.mark.parametrize("function", FORMULAS)
def test_a_formula_broadcasts_one_argument_against_the_others(function):
    arguments = arguments_of(function)
    first = {name: values[0] for name, values in arguments.items()}
    varied, values = next(iter(arguments.items()))
    together = function(**{**first, varied: np.array(values)})
    assert together == pytest.approx(
        np.array([function(**{**first, varied: value}) for value in values], dtype=float), rel=1e-12
    )


def test_a_window_as_long_as_the_sequence_is_full_causal_attention():
    assert flops.visible_tokens(sequence_tokens=4096, span_tokens=4096) == 2048
    assert flops.visible_tokens(sequence_tokens=4096, span_tokens=10**9) == 2048


def test_a_window_counts_the_ones_of_a_banded_triangle():
    # Row i of the mask has min(i + 1, w) ones; the convention drops half of a row's own one.
    sequence, window = 4096, 512
    ones = sum(min(row + 1, window) for row in range(sequence))
    counted = sequence * flops.visible_tokens(sequence_tokens=sequence, span_tokens=window)
    assert ones - counted == window / 2


def test_a_save_longer_than_two_times_to_failure_is_taken_once_between_failures():
    interval = reliability.daly_checkpoint_interval_s(
        checkpoint_save_s=7200, mean_time_to_failure_s=3600
    )
    assert interval == 3600


def test_the_optimal_interval_loses_less_than_its_neighbours():
    save, mttf = 60.0, 11_134.8
    best = reliability.daly_checkpoint_interval_s(
        checkpoint_save_s=save, mean_time_to_failure_s=mttf
    )
    kept = [
        reliability.goodput_fraction(
            failures_per_day=86400 / mttf,
            checkpoint_interval_s=interval,
            restart_s=300,
            checkpoint_save_s=save,
        )
        for interval in (best / 2, best, best * 2)
    ]
    assert kept[1] > max(kept[0], kept[2])


def test_one_rank_sends_nothing():
    assert communication.ring_all_reduce_bytes(buffer_bytes=1e9, rank_count=1) == 0
    assert (
        communication.data_parallel_bytes_per_step(
            weight_bytes=1e9, gradient_bytes=1e9, rank_count=1, zero_stage=3
        )
        == 0
    )


def test_experts_are_shared_by_the_group_that_holds_the_same_ones():
    # 8 GPUs, 4-way expert parallelism: 1e9 expert weights a GPU, on 2 GPUs each; 12 bytes.
    held = training_memory.optimizer_bytes(
        parameter_count=4e9,
        expert_parameter_count=1e9,
        bytes_per_parameter=12,
        zero_stage=1,
        shard_count=8,
        expert_shard_count=2,
    )
    assert held == 12 * (4e9 / 8 + 1e9 / 2)


def test_the_rebuilt_layer_takes_the_place_of_the_logits():
    shared = {
        "kept_bytes_per_token": 10,
        "rebuilt_bytes_per_token": 100,
        "micro_batch_tokens": 1,
        "chunk_layer_count": 2,
        "chunks_in_flight": 1,
    }
    assert training_memory.activation_bytes(**shared) == 120
    assert training_memory.activation_bytes(**shared, logits_bytes=60) == 60
    assert training_memory.activation_bytes(**shared, logits_bytes=500) == 20


@pytest.mark.parametrize(("stages", "chunks"), list(itertools.product((1, 2, 8), (1, 3))))
def test_earlier_stages_hold_at_least_as_many_chunks(stages, chunks):
    held = [
        training_time.chunks_in_flight(
            pipeline_parallel=stages,
            virtual_pipeline_stages=chunks,
            micro_batch_count=64,
            stage_index=stage,
        )
        for stage in range(stages)
    ]
    assert held == sorted(held, reverse=True)
    assert held[-1] == (chunks - 1) * stages + 1


def test_independent_factors_add_as_squares_of_their_logarithms():
    # exp(sqrt(ln²2 + ln²2)) = 2^sqrt(2).
    assert training_time.root_sum_square_factor(factors=[2, 2]) == pytest.approx(2**2**0.5)
    assert training_time.root_sum_square_factor(factors=[1, 3, 1]) == pytest.approx(3)
