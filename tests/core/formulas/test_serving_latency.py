"""Steady state: slots, rates and times are consistent with one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas.serving_latency import (
    copies_apart,
    launch_bound_s,
    prefill_chunk_tokens,
    prefill_share_s,
    replicas_for_slots,
    service_time_s,
    speculative_speedup,
    speculative_tokens_per_step,
    tpot_mean_s,
    units_per_s_per_replica,
)

SECONDS = st.floats(1e-4, 1.0)
REQUESTS = st.integers(1, 1024)
TOKENS = st.floats(1, 1e5)


def steady(step, prompt, running, output):
    tpot = tpot_mean_s(
        decode_step_s=step,
        prefill_share_s=prompt,
        running_requests=running,
        output_tokens_mean=output,
    )
    rate = units_per_s_per_replica(
        running_requests=running,
        output_tokens_mean=output,
        decode_step_s=step,
        prefill_share_s=prompt,
    )
    service = service_time_s(prefill_share_s=prompt, tpot_mean_s=tpot, output_tokens_mean=output)
    return float(tpot), float(rate), float(service)


@given(step=SECONDS, prompt=SECONDS, running=REQUESTS, output=TOKENS)
def test_running_requests_are_rate_times_time_in_service(step, prompt, running, output):
    # Little's law: n = λ·S.
    _, rate, service = steady(step, prompt, running, output)
    assert rate * service == pytest.approx(running)


@given(step=SECONDS, prompt=SECONDS, running=REQUESTS, output=TOKENS)
def test_more_requests_serve_more_and_pace_each_more_slowly(step, prompt, running, output):
    tpot, rate, _ = steady(step, prompt, running, output)
    slower, higher, _ = steady(step, prompt, running + 1, output)
    assert slower >= tpot
    assert higher >= rate


def test_one_request_sees_the_bare_step():
    assert steady(0.02, 0.5, 1, 100)[0] == 0.02


def test_slots_and_rates_ask_for_the_same_replicas():
    # 100 requests a second on replicas of 4.444 a second are 22.5, so 23.
    _, rate, service = steady(0.02, 0.1, 32, 200)
    found = replicas_for_slots(arrival_rate_per_s=100, service_time_s=service, running_requests=32)
    assert float(found) == np.ceil(100 / rate) == 23


@pytest.mark.parametrize(
    ("prompt", "answer", "running", "tokens"),
    [
        (1000, 100, 1, 1000),  # a prompt comes alone: 0.01 of one a step
        (128, 128, 64, 128),  # half a prompt a step
        (128, 64, 64, 128),  # one prompt a step
        (128, 16, 64, 512),  # four prompts a step
        (20000, 100, 64, 8192),  # cut at the engine's limit
    ],
)
def test_prompts_pass_together_as_they_arrive(prompt, answer, running, tokens):
    found = prefill_chunk_tokens(
        input_tokens_mean=prompt,
        output_tokens_mean=answer,
        running_requests=running,
        chunk_tokens_maximum=8192,
    )
    assert float(found) == tokens


def test_pipeline_stages_share_the_time_of_prompts():
    one, four = (
        prefill_share_s(
            input_tokens_mean=1000,
            chunk_tokens=1000,
            chunk_s=0.1,
            attention_s=0.02,
            pipeline_parallel=stages,
        )
        for stages in (1, 4)
    )
    assert (one, four) == (pytest.approx(0.12), pytest.approx(0.03))


@given(device=SECONDS, launch=SECONDS)
def test_a_pass_takes_at_least_the_longer_of_computing_and_launching(device, launch):
    found = float(launch_bound_s(device_s=device, launch_s=launch))
    assert max(device, launch) <= found * (1 + 1e-12)
    assert found <= 2**0.25 * max(device, launch) * (1 + 1e-12)


def test_a_draft_that_is_never_accepted_only_costs():
    assert float(speculative_tokens_per_step(acceptance_fraction=0.0, draft_tokens=4)) == 1.0
    # 1 / (4 · 0.05 + 1)
    assert float(
        speculative_speedup(acceptance_fraction=0.0, draft_tokens=4, draft_cost_fraction=0.05)
    ) == pytest.approx(1 / 1.2)


@pytest.mark.parametrize(
    ("gain", "group"),
    # One maker keeps 0.9 readers busy. 1 and 1 serve 0.9 / 2 = 0.45 for each copy; of up to 8 each,
    # 7 and 8 serve 7 / 15 = 0.467, 1.037 times as much.
    [(1.0, (7, 8)), (1.036, (7, 8)), (1.04, (1, 1))],
)
def test_a_larger_group_of_copies_must_gain_enough(gain, group):
    assert copies_apart(readers_per_maker=0.9, least_gain_factor=gain) == group
