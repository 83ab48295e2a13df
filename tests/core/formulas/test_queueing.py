"""Waiting: against the recursion of Erlang B and the closed forms of one server."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.formulas.queueing import (
    erlang_c,
    squared_variation_of_lengths,
    waiting_time_quantile_s,
)


def erlang_c_by_recursion(servers, load):
    """C = B/(1 − ρ(1 − B)) with B(k) = a·B(k−1)/(k + a·B(k−1)), B(0) = 1."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


@given(servers=st.integers(1, 3000), utilization=st.floats(0.01, 0.999))
def test_erlang_c_agrees_with_the_recursion(servers, utilization):
    load = servers * utilization
    found = float(erlang_c(server_count=servers, offered_load=load))
    assert found == pytest.approx(erlang_c_by_recursion(servers, load), rel=1e-9, abs=1e-280)


def test_one_server_makes_wait_as_often_as_it_is_busy():
    assert float(erlang_c(server_count=1, offered_load=0.7)) == pytest.approx(0.7)


def test_too_much_load_makes_everybody_wait_and_none_nobody():
    assert erlang_c(server_count=[4, 4, 4], offered_load=[4.0, 9.0, 0.0]).tolist() == [1, 1, 0]


def quantile(probability, *, arrivals, service, servers=1, variation=1.0, at=0.95):
    return float(
        waiting_time_quantile_s(
            wait_probability=probability,
            quantile=at,
            server_count=servers,
            arrival_rate_per_s=arrivals,
            service_time_s=service,
            arrival_squared_variation=1.0,
            service_squared_variation=variation,
        )
    )


def test_one_exponential_server_has_its_textbook_tail():
    # M/M/1: P(wait > t) = ρ·exp(−(μ − λ)·t); with ρ = 0.8 the 95th percentile solves it for 0.05.
    wait = quantile(0.8, arrivals=0.8, service=1.0)
    assert 0.8 * exp(-(1.0 - 0.8) * wait) == pytest.approx(0.05)
    assert wait == pytest.approx(5 * log(16))


def test_constant_service_halves_the_wait():
    assert quantile(0.8, arrivals=0.8, service=1.0, variation=0.0) == pytest.approx(
        quantile(0.8, arrivals=0.8, service=1.0) / 2
    )


def test_nobody_waits_at_a_quantile_that_finds_a_free_server():
    assert quantile(0.04, arrivals=0.8, service=1.0, servers=4) == 0.0


def test_a_full_queue_has_no_bound():
    assert np.isinf(quantile(1.0, arrivals=4.0, service=1.0, servers=4))


def test_the_variation_of_lengths_returns_their_ratio():
    # A log-normal with σ has mean exp(σ²/2) and 95th percentile exp(1.645 σ).
    for sigma in (0.1, 0.5, 1.0):
        ratio = exp(1.6448536269514722 * sigma - sigma**2 / 2)
        found = float(squared_variation_of_lengths(p95_over_mean=ratio))
        assert found == pytest.approx(exp(sigma**2) - 1)


def test_ratios_that_no_log_normal_has_take_the_nearest():
    assert squared_variation_of_lengths(p95_over_mean=0.5) == 0.0
    assert squared_variation_of_lengths(p95_over_mean=50.0) == pytest.approx(
        exp(1.6448536269514722**2) - 1
    )
