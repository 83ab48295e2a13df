"""Ranges that are known before a number is evaluated, and inputs that JSON cannot carry."""

import json

import numpy as np

from service.core.estimates import Range
from service.core.formulas.serving_latency import prefill_s
from service.core.formulas.serving_memory import kv_cache_bytes_per_sequence
from service.core.recorder import Recorder

BAND = Range(value=0.1, low=0.05, high=0.3)


def test_a_number_takes_the_range_that_was_named_for_it(snapshot):
    recorder = Recorder(snapshot).ranged({"prefill_s": BAND})
    recorder.evaluate(prefill_s, chunk_count=1, chunk_s=0.1, attention_s=0.0, request_s=0.0)
    (quantity,) = recorder.quantities()
    assert (quantity.low, quantity.value, quantity.high) == (0.05, 0.1, 0.3)


def test_a_range_given_with_the_number_stands_above_a_named_one(snapshot):
    recorder = Recorder(snapshot).ranged({"prefill_s": BAND})
    recorder.note("prefill_s", 0.1, low=0.09, high=0.11)
    (quantity,) = recorder.quantities()
    assert (quantity.low, quantity.high) == (0.09, 0.11)


def test_an_unbounded_input_is_null_in_json(snapshot):
    recorder = Recorder(snapshot)
    recorder.evaluate(
        kv_cache_bytes_per_sequence,
        sequence_tokens=100,
        block_tokens=16,
        layer_count=np.array([2.0]),
        cache_elements_per_token=[8],
        cache_shard_count=[1],
        span_tokens=np.array([np.inf]),
        state_bytes=[0],
        tensor_parallel=1,
        bytes_per_element=2,
    )
    (quantity,) = recorder.quantities()
    assert quantity.inputs["span_tokens"] == [None]
    assert "Infinity" not in json.dumps(quantity.inputs)
