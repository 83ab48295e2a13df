"""One replica of a service: what it serves, and how it lies on its GPUs."""

import pytest

from tests.core.serving_plans import plan, recorded, refusal


def test_a_measured_capacity_passes_through_without_an_architecture(snapshot):
    capacity = {"kind": "measured", "units_per_s_per_replica": 4.0, "gpu_count_per_replica": 4}
    answer, quantities, assumptions = recorded(
        snapshot,
        capacity=capacity,
        architecture=None,
        weight_format=None,
        unit_name="image",
        input_tokens_mean=None,
        output_tokens_mean=None,
        sequence_tokens_p95=None,
    )
    rate = answer.units_per_s_per_replica
    assert (rate.low, rate.value, rate.high) == (4.0, 4.0, 4.0)
    assert answer.gpu_count_per_replica == 4
    assert answer.layout is None
    assert answer.memory is None
    assert quantities["units_per_s_per_replica"].value == 4.0
    assert assumptions == set()


def test_an_answer_holds_the_objectives_and_its_numbers_agree_with_one_another(snapshot):
    objectives = {"ttft_p95_s": 2.0, "tpot_mean_s": 0.05}
    answer, quantities, _ = recorded(snapshot, objectives=objectives)
    value = {name: quantity.value for name, quantity in quantities.items()}
    assert answer.tpot_mean_s.value <= 0.05
    assert answer.ttft_p95_s.value <= 2.0
    running = answer.concurrency_per_replica
    # TPOT = t_d + (n - 1)/O·t_p, and n/(O·t_d + n·t_p) requests a second.
    step, prompt = value["decode_step_s"], value["prefill_share_s"]
    assert answer.tpot_mean_s.value == pytest.approx(step + (running - 1) / 400 * prompt)
    rate = running / (400 * step + running * prompt)
    assert answer.units_per_s_per_replica.value == pytest.approx(rate)
    assert value["output_tokens_per_s_per_replica"] == pytest.approx(400 * rate)
    # 80 layers · 2·8·128 elements / TP, 1 byte each.
    ranks = answer.layout.tensor_parallel
    assert value["kv_cache_bytes_per_token"] == 80 * 2048 / ranks
    # 0.90 of what CUDA gives is divided among weights, engine and cache.
    memory = answer.memory
    assert memory.weights + memory.overhead + memory.kv_cache == pytest.approx(
        0.9 * memory.available
    )
    assert memory.available == pytest.approx(81_090 / 1024)
    tokens = answer.kv_cache_tokens_per_replica
    assert tokens % 16 == 0
    assert tokens == pytest.approx(memory.kv_cache * 2**30 / (80 * 2048 / ranks), abs=16)


def test_one_more_request_would_break_a_limit(snapshot):
    answer = plan(snapshot, objectives={"tpot_mean_s": 0.05})
    tighter = plan(snapshot, objectives={"tpot_mean_s": answer.tpot_mean_s.value})
    assert tighter.concurrency_per_replica == answer.concurrency_per_replica
    slightly = plan(snapshot, objectives={"tpot_mean_s": answer.tpot_mean_s.value * 0.999})
    same = slightly.layout == answer.layout
    assert slightly.concurrency_per_replica == answer.concurrency_per_replica - 1 or not same


def test_every_published_number_is_a_quantity_with_its_formula_and_inputs(snapshot):
    _, quantities, _ = recorded(snapshot)
    assert {
        "weight_bytes_per_gpu",
        "engine_overhead_bytes_per_gpu",
        "kv_pool_bytes_per_gpu",
        "kv_cache_bytes_per_token",
        "kv_cache_bytes_per_sequence",
        "kv_cache_tokens_per_replica",
        "concurrency_at_mean_length",
        "concurrency_at_p95_length",
        "concurrency_per_replica",
        "gpu_count_per_replica",
        "decode_step_s",
        "prefill_s",
        "prefill_share_s",
        "tpot_mean_s",
        "ttft_p95_s",
        "service_time_s",
        "units_per_s_per_replica",
        "output_tokens_per_s_per_replica",
        "ridge_flop_per_byte",
        "decode_intensity_flop_per_byte",
        "prefill_intensity_flop_per_byte",
        "decode_attainable_flop_per_s",
        "prefill_attainable_flop_per_s",
    } == set(quantities)
    ranged = ("tpot_mean_s", "ttft_p95_s", "units_per_s_per_replica", "kv_pool_bytes_per_gpu")
    for name in ranged:
        quantity = quantities[name]
        assert quantity.low < quantity.value < quantity.high
        assert quantity.inputs
    # FP8 on an H100: 1,978.9 TFLOPS over 3,350 GB/s; decode lies below it, prefill above.
    ridge = quantities["ridge_flop_per_byte"].value
    assert ridge == pytest.approx(1978.9e12 / 3.35e12)
    assert quantities["decode_intensity_flop_per_byte"].value < ridge
    assert quantities["prefill_intensity_flop_per_byte"].value > ridge


def test_only_what_an_answer_stands_on_is_listed_as_assumed(snapshot):
    _, _, dense = recorded(snapshot, architecture="llama-3.1-8b", weight_format="bf16")
    for unused in ("expert", "all_reduce", "link", "pipeline", "latent", "weight_only", "tp_many"):
        assert not [name for name in dense if unused in name]
    assert "engine_overhead_gib.vllm-0_18.tp_one" in dense
    _, _, mixture = recorded(snapshot, architecture="deepseek-v3", gpu="b200-sxm-180gb")
    assert "latent_attention_compute_fraction" in mixture
    assert "all_reduce_latency_us.scale_up" in mixture
    assert "all_reduce_latency_us.pcie" not in mixture


def test_an_engine_that_is_not_named_takes_the_general_constants(snapshot):
    _, _, assumptions = recorded(snapshot, engine=None)
    assert not [name for name in assumptions if "vllm" in name]
    assert "host_layer_us" in assumptions


def test_a_given_value_takes_its_band_with_it(snapshot):
    wide = plan(snapshot).tpot_mean_s
    names = [n for n in snapshot.assumptions if snapshot.assumptions[n].topic == "serving"]
    given = {name: snapshot.assumptions[name].value for name in names}
    exact = plan(snapshot, overrides=given).tpot_mean_s
    assert (exact.low, exact.value, exact.high) == pytest.approx((wide.value,) * 3)
    assert wide.low < wide.value < wide.high


def test_a_model_that_fits_one_gpu_takes_one(snapshot):
    answer = plan(snapshot, architecture="llama-3.1-8b", weight_format="bf16")
    assert answer.gpu_count_per_replica == 1


def test_stages_are_used_where_tensor_parallelism_is_not_enough(snapshot):
    # 405B in 16 bit is 811.6 GB: 94 GiB on each of 8 GPUs, which have 79.
    answer, quantities, _ = recorded(snapshot, architecture="llama-3.1-405b", weight_format="bf16")
    ranks, stages = answer.layout.tensor_parallel, answer.layout.pipeline_parallel
    assert ranks * stages == answer.gpu_count_per_replica == 16
    assert stages > 1
    # The fullest of 2 or 4 stages holds 63 or 32 of 126 layers, and 2 · 128,256 · 16,384 bytes of
    # either embedding or head; both are part of the 811.6 GB.
    layers, head = {2: 63, 4: 32}[stages], 4.203e9
    weights = ((811.6e9 - 2 * head) * layers / 126 + head) / ranks
    assert answer.memory.weights == pytest.approx(weights / 2**30, rel=0.002)
    # 2·8·128 elements of one byte over the ranks.
    assert quantities["kv_cache_bytes_per_token"].value == layers * 2048 / ranks
    # microsoft/vidur#18: every micro-batch in flight keeps its cache on each stage, so the stage's
    # pool holds all running requests: 1,500 + 0.55·400 tokens each, in blocks of 16.
    running = answer.concurrency_per_replica
    assert running * 1728 * layers * 2048 / ranks <= answer.memory.kv_cache * 2**30


def test_all_experts_count_in_memory(snapshot):
    # 671e9 parameters in 8 bit need 8 GPUs of 180 GB less the engine's share, not 37e9 on one.
    answer = plan(snapshot, architecture="deepseek-v3", gpu="b200-sxm-180gb")
    assert answer.memory.weights * answer.gpu_count_per_replica * 2**30 > 671e9


def test_window_layers_and_fixed_states_hold_more_long_sequences(snapshot):
    # Gemma 3 27B: 10 of 62 layers see everything, the others the last 1,024 tokens.
    whole = {"architecture": "gemma-3-27b", "weight_format": "fp8", "kv_cache_format": "bf16"}
    long = {"input_tokens_mean": 30000, "sequence_tokens_p95": 64000}
    answer, quantities, _ = recorded(snapshot, **whole, **long)
    token = quantities["kv_cache_bytes_per_token"].value
    sequence = quantities["kv_cache_bytes_per_sequence"].value
    assert sequence < 0.25 * token * 30400
    assert answer.concurrency_per_replica >= 1


def test_the_card_that_a_simulator_overfilled(snapshot):
    # casys-kaist/LLMServingSim PR#59: an RTX 4090 holds 41,408 tokens beside Llama 3.1 8B; weights
    # and utilisation alone leave 54,400.
    card = snapshot.gpu("rtx-4090-24gb")
    alone = card.model_copy(update={"pcie_gb_per_s_per_direction": None})
    answer = plan(
        snapshot,
        architecture="llama-3.1-8b",
        gpu=alone,
        weight_format="bf16",
        kv_cache_format="bf16",
        engine="vllm-0.8",
    )
    assert answer.kv_cache_tokens_per_replica == pytest.approx(41_408, rel=0.03)


# Degenerate shapes


def test_no_prompt_and_one_token_divide_nothing_by_zero(snapshot):
    answer, quantities, _ = recorded(
        snapshot, input_tokens_mean=0, output_tokens_mean=1, sequence_tokens_p95=None
    )
    assert 0 < answer.units_per_s_per_replica.value < 1e6
    # A request of one token has no gap between tokens.
    assert answer.tpot_mean_s is None
    assert quantities["tpot_mean_s"].value is None
    assert answer.ttft_p95_s.value > 0


def test_a_request_of_one_token_cannot_miss_a_pace(snapshot):
    answer = plan(snapshot, output_tokens_mean=1, objectives={"tpot_mean_s": 1e-9})
    assert answer.tpot_mean_s is None


def test_full_utilisation_has_no_first_token_time(snapshot):
    full = {"target_utilization_fraction": 1.0, "spare_fraction": 0.0}
    answer, quantities, _ = recorded(snapshot, headroom=full)
    assert answer.ttft_p95_s is None
    assert quantities["ttft_p95_s"].value is None
    reason = refusal(snapshot, headroom=full, objectives={"ttft_p95_s": 5.0})
    assert reason.code == "ttft"
    assert reason.needed is None
    assert "target_utilization_fraction" in reason.nearest_fix


def test_a_fuller_fleet_waits_longer(snapshot):
    wait = [
        plan(snapshot, headroom={"target_utilization_fraction": u}).ttft_p95_s.value
        for u in (0.5, 0.8, 0.99)
    ]
    assert wait == sorted(wait)
    assert wait[0] < wait[-1]


def test_a_draft_model_takes_its_cache_out_of_every_replica(snapshot):
    # A token takes 81,920 B of the served model and 8,192 B of the draft on each of 4 GPUs, and
    # the weights of the draft, 2 B each, are gone from the pool.
    layout = {"layout": {"tensor_parallel": 4}}
    alone, quantities, _ = recorded(snapshot, replica=layout, kv_cache_format="bf16")
    draft = layout | {"draft_architecture": "llama-3.2-1b"}
    beside, drafted, _ = recorded(snapshot, replica=draft, kv_cache_format="bf16")
    weights = 2 * snapshot.architecture("llama-3.2-1b").parameter_count / 4
    pool = quantities["kv_pool_bytes_per_gpu"].value
    assert drafted["kv_pool_bytes_per_gpu"].value == pytest.approx(pool - weights)
    share = 81_920 / (81_920 + 8_192) * (pool - weights) / pool
    assert beside.kv_cache_tokens_per_replica == pytest.approx(
        alone.kv_cache_tokens_per_replica * share, rel=1e-3
    )
    length = quantities["kv_cache_bytes_per_sequence"].value / 81_920
    assert drafted["draft_kv_cache_bytes_per_sequence"].value == length * 8_192
