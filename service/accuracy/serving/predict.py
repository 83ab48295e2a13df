"""What the estimate says of one resolved row, with each constant a number or an array.

A row is predicted by its test as it was run: clients that always keep a request open, requests
that all wait at the start, arrivals at random, or the most that stays within latency limits.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from service.accuracy.serving.cells import Unpredictable, fraction, positive, text
from service.accuracy.serving.rows import ServingRow, limits_s
from service.core.recorder import Recorder
from service.core.replica.constants import memory_constants, serving_constants
from service.core.replica.lookup import Lookup
from service.core.replica.passes import Traffic
from service.core.replica.search import Footprint, room_of
from service.core.replica.shape import Layout
from service.core.replica.speed import Speed, SteadyState
from service.core.units import BYTES_PER_GIB

ITERATIONS = 12
"""Rounds in which arrivals and running requests settle; each halves what is left."""
BISECTIONS = 16
FINITE_TAIL = 0.24
"""Extra time of a run of N requests of one length, for each full batch in N (fitted).

Tables of one engine alone have such runs; tuned submissions repeat their requests for minutes.
"""
QUEUED_DECODE_FACTOR = 1.31
"""Decode time of a run that starts with every request queued and ends when the longest does."""
TPOT_SHARE = 0.87
"""Share of a pace limit at the 99th percentile that the mean pace uses."""
FIRST_TOKEN_QUEUE = 3.4
"""Prompts that one waits behind at the 99th percentile when prompts take half of the time."""
POISSON_STEPS = 0.73
"""Decode steps between an arrival at random and the start of its prompt."""
NO_ROOM = "weights leave no room for a cache"
OFFLINE_SHARE = 0.94
"""Most that a server within limits reaches of the throughput without any."""


@dataclass(frozen=True)
class Prediction:
    """Computes one row's quantities on demand."""

    case: ServingRow
    look: Lookup
    recorder: Recorder

    @cached_property
    def traffic(self) -> Traffic:
        """Lengths of the row's requests."""
        total = self.case.input_tokens + self.case.output_tokens
        return Traffic(self.case.input_tokens, self.case.output_tokens, total, 0.8)

    @cached_property
    def footprint(self) -> Footprint:
        """Memory of the row's replica."""
        shape, layout = self.case.shape, self.case.layout
        needs = shape.needs((layout.tensor_parallel,), has_stages=layout.pipeline_parallel > 1)
        memory = memory_constants(self.look, shape.gpu, needs)
        return Footprint(shape, memory, self.traffic)

    @cached_property
    def speed(self) -> Speed:
        """Speed of the row's replica."""
        shape, layout = self.case.shape, self.case.layout
        groups = (int(layout.expert_ranks),) if layout.data_parallel > 1 else ()
        needs = shape.needs(
            (layout.tensor_parallel,),
            has_stages=layout.pipeline_parallel > 1,
            expert_ranks=groups,
        )
        constants = serving_constants(self.look, shape.gpu, needs)
        return Speed(shape, constants, self.traffic, self.recorder)

    @cached_property
    def most_running(self) -> Any:
        """Requests that the replica can run at once."""
        room = room_of(self.footprint, self.case.layout, self.recorder)
        if np.all(room.running_limit <= 0) and not self.case.is_alone:
            raise Unpredictable(NO_ROOM)
        engine = self.footprint.memory.running_requests_maximum * self.case.layout.data_parallel
        return np.maximum(np.minimum(np.floor(room.running_limit), engine), 1.0)

    def state(self, running: Any) -> SteadyState:
        """The steady state with this many requests running."""
        return self.speed.without_waiting(self.case.layout, running)

    @cached_property
    def running(self) -> Any:
        """Requests that ran at once in the row's test."""
        batch = self.case.batch
        if batch == "given":
            return np.minimum(self.case.requests, self.most_running)
        if batch == "arrivals":
            return self._running_at_arrivals()
        if batch == "latency limit":
            return self._running_within_limits()
        return self.most_running

    def _running_at_arrivals(self) -> Any:
        """Little's law in a test that ends: B = N·L/(N/λ + L), L the time of one request."""
        rate, count = self.case.requests, test_requests(self.case)
        running: Any = np.ones_like(self.most_running)
        for _ in range(ITERATIONS):
            state = self.state(running)
            time = state.prefill_s + self.case.output_tokens * state.tpot_mean_s
            found = count * time / (count / rate + time)
            running = np.sqrt(running * np.clip(found, 1.0, self.most_running))
        return running

    def _running_within_limits(self) -> Any:
        """Most requests whose mean pace and queue of prompts keep the limits at the 99th %."""
        first_s, pace_s = limits_s(self.case.row)
        low: Any = np.ones_like(self.most_running)
        high = np.array(self.most_running, dtype=float)
        for _ in range(BISECTIONS):
            middle = np.sqrt(low * high)
            state = self.state(middle)
            prompt = state.prefill_share_s
            busy = state.units_per_s * prompt
            free = first_s - prompt
            held = (state.tpot_mean_s <= TPOT_SHARE * pace_s) & (
                busy <= np.maximum(free, 0) / (np.maximum(free, 0) + FIRST_TOKEN_QUEUE * prompt)
            )
            low, high = np.where(held, middle, low), np.where(held, high, middle)
        return low

    @property
    def units_per_s(self) -> Any:
        """Requests that one replica completed per second over the row's whole test."""
        case, running = self.case, self.running
        state = self.state(running)
        output = case.output_tokens
        if case.row["kind"] == "offline_throughput" and case.batch == "given":
            is_static = "static batch" in case.row["note"]
            tail = 1.0 if is_static else QUEUED_DECODE_FACTOR
            cycle = tail * output * state.decode_step_s + self.prompts_s(running)
            waves = np.maximum(case.requests / running, 1.0)
            return case.requests / (cycle * waves)
        if case.batch == "latency limit":
            offline = self.state(self.most_running).units_per_s
            return np.minimum(state.units_per_s, OFFLINE_SHARE * offline)
        if case.batch == "arrivals":
            time = state.prefill_s + output * state.tpot_mean_s
            count = test_requests(case)
            return np.minimum(count / (count / case.requests + time), state.units_per_s)
        if case.batch == "engine" and case.family == "tensorrt-llm":
            return state.units_per_s / (1 + FINITE_TAIL * running / test_requests(case))
        return state.units_per_s

    def prompts_s(self, count: Any) -> Any:
        """Time of that many prompts one after the other, as many together as an engine takes."""
        layout, most = self.case.layout, self.speed.constants.engine.chunk_tokens_maximum
        tokens = np.maximum(count * self.case.input_tokens, 1.0)
        chunk = np.minimum(tokens, most)
        once = self.speed.chunk(layout, chunk, layout.data_parallel).seconds
        attention = count * self.speed.prompt_attention(layout).seconds
        return (tokens / chunk * once + attention) / layout.data_parallel

    @property
    def tpot_s(self) -> Any:
        """Mean time between tokens."""
        return self.state(self.running).tpot_mean_s

    @property
    def first_token_s(self) -> Any:
        """Time to first token: alone, behind a burst, or among clients that keep requests open."""
        case, running = self.case, self.running
        state = self.state(running)
        if case.is_alone:
            return state.prefill_s
        engine = self.speed.constants.engine
        if case.batch != "given":
            return state.prefill_s + self._wait_at_random_s(state)
        prompt = state.prefill_share_s
        if "start together" in case.row["note"]:
            wait: Any = self.prompts_s(case.requests) / 2
        else:
            busy = np.minimum(state.units_per_s * prompt, 0.95)
            wait = prompt * busy / (2 * (1 - busy))
            wait = wait + engine.loaded_ttft_slope * (running - 1) * prompt
        excess = np.maximum(case.requests - running, 0) / running
        wait = wait + excess * case.output_tokens * state.tpot_mean_s
        wait = wait + engine.steps_waited * state.decode_step_s + engine.loaded_request_s
        return state.prefill_s + wait

    def _wait_at_random_s(self, state: SteadyState) -> Any:
        """Wait of arrivals at random: for a step and for prompts; it grows to the test's end.

        Prompts that arrive faster than they are passed pile up over the N requests of a test.
        """
        case, prompt = self.case, state.prefill_share_s
        rate = state.units_per_s if case.batch == "latency limit" else case.requests
        busy = np.minimum(rate * prompt, 0.9)
        queue = prompt * busy / (2 * (1 - busy))
        piled = test_requests(case) / 2 * np.maximum(prompt - 1 / rate, 0.0)
        return POISSON_STEPS * state.decode_step_s + np.maximum(queue, piled)

    def pool_bytes(self) -> Any:
        """Memory of one GPU for the cache, at the utilisation that the row states."""
        stated = fraction(self.case.row, "gpu_memory_utilization")
        footprint, layout = self.footprint, self.case.layout
        room = room_of(footprint, layout, self.recorder)
        usual = footprint.memory.utilization_fraction
        share = usual if stated is None or np.all(usual == 1) else stated
        difference = (share - usual) * self.case.shape.available_bytes
        pool = room.pool_bytes + footprint.memory.free_fraction * difference
        if np.all(pool <= 0):
            raise Unpredictable(NO_ROOM)
        return np.maximum(pool, 1.0)

    def pool_tokens(self, length: float | None) -> Any:
        """Tokens of sequences of this length that fit; of a first token where no length is said."""
        shape, layout, memory = self.case.shape, self.case.layout, self.footprint.memory
        length = memory.block_tokens if length is None else length
        whole = shape.sequence_bytes_per_gpu(self.recorder, memory, layout, length)
        per_token = whole / length
        return self.pool_bytes() / per_token * layout.data_parallel

    def weights_gib(self) -> Any:
        """Weights on one GPU."""
        found = self.case.shape.weight_bytes_per_gpu(self.recorder, self.case.layout)
        return found / BYTES_PER_GIB


def test_requests(case: ServingRow) -> float:
    """Requests of the row's whole test, where the table's procedure is known."""
    total = case.input_tokens + case.output_tokens
    if case.batch == "arrivals":
        return 1000.0 if "1000 prompts" in case.row["note"] else 200.0
    if total <= 256:
        return 30_000.0
    if case.input_tokens >= 20_000:
        return 1000.0
    return 1500.0 if case.output_tokens > 2048 else 3000.0


def predicted(case: ServingRow, look: Lookup, recorder: Recorder) -> Any:
    """The row's measured quantity as the estimate has it, in the row's own unit.

    Raises:
        Unpredictable: If no estimate answers what was measured.
    """
    metric, row = text(case.row, "measured_metric"), case.row
    found = Prediction(case, look, recorder)
    if metric in _DIRECT:
        return _DIRECT[metric](found)
    rate = _RATE.fullmatch(metric)
    if rate is not None:
        per = "gpu" if rate["per"] == "_per_gpu" else row["per"]
        scale = {"gpu": 1 / case.layout.gpu_count, "replica": 1.0}.get(per, case.replica_count)
        return found.units_per_s * _units(case, rate["what"]) * scale
    time = _TIME.fullmatch(metric)
    if time is not None:
        seconds = found.first_token_s if time["what"] == "ttft" else found.tpot_s
        return seconds * (1e3 if time["unit"] == "ms" else 1.0)
    if metric.startswith("usd_per_million"):
        return _cost(case, found, metric)
    raise Unpredictable(f"no estimate of {metric or 'what is not named'}")


_RATE = re.compile(
    r"(?P<what>output_tokens|input_tokens|total_tokens|requests)_per_s(?P<per>_per_gpu)?"
)
_TIME = re.compile(r"(?P<what>tpot|itl|ttft)_(?P<unit>ms|s)(_(mean|median|p\d\d))?")


def _units(case: ServingRow, what: str) -> float:
    """How many of what is counted one request makes."""
    read, written = case.input_tokens, case.output_tokens
    made = {"output_tokens": written, "input_tokens": read, "total_tokens": read + written}
    return made.get(what, 1.0)


def _whole_request_ms(found: Prediction) -> Any:
    """All tokens of a static batch: every prompt, then every step."""
    case, running = found.case, found.running
    state = found.state(running)
    steps = max(case.output_tokens - 1, 1) * state.decode_step_s
    return 1e3 * (found.prompts_s(running) + steps)


def _cost(case: ServingRow, found: Prediction, metric: str) -> Any:
    price = positive(case.row, "usd_per_gpu_hour")
    if price is None:
        raise Unpredictable("price of a GPU-hour not stated")
    if "lengths" in case.assumed:
        raise Unpredictable("lengths not stated")
    tokens = case.output_tokens + (case.input_tokens if "total" in metric else 0.0)
    rate = found.units_per_s * tokens * 3600
    return 1e6 * price * case.layout.gpu_count / rate


def _sequences(found: Prediction) -> Any:
    length = positive(found.case.row, "max_model_len")
    if length is None:
        raise Unpredictable("length of a sequence not stated")
    return found.pool_tokens(length) / length


def _device_memory_gb(found: Prediction) -> Any:
    """What a device holds: an engine's share, or weights and the cache of a static batch."""
    case = found.case
    if fraction(case.row, "gpu_memory_utilization"):
        raise Unpredictable("an allocation by setting, not a need")
    length = case.input_tokens + case.output_tokens
    shape, layout = case.shape, case.layout
    cache = shape.sequence_bytes_per_gpu(found.recorder, found.footprint.memory, layout, length)
    rows = case.requests if case.batch == "given" else 1
    held = found.weights_gib() + cache * rows / BYTES_PER_GIB
    return held + found.footprint.memory.overhead_bytes(layout.tensor_parallel) / BYTES_PER_GIB


_DIRECT = {
    "decode_tokens_per_s_bs1": lambda found: 1 / found.state(1.0).decode_step_s,
    "decode_tokens_per_s": lambda found: found.running / found.state(found.running).decode_step_s,
    "output_tokens_per_s_per_user": lambda found: 1 / found.tpot_s,
    "kv_bytes_per_token": lambda found: found.case.shape.token_bytes_per_gpu(
        found.recorder, Layout(1, 1)
    ),
    "e2e_latency_ms": _whole_request_ms,
    "e2e_latency_ms_mean": _whole_request_ms,
    "prefill_tokens_per_s": lambda found: found.case.input_tokens / found.first_token_s,
    "gpu_kv_cache_tokens": lambda found: found.pool_tokens(
        positive(found.case.row, "max_model_len")
    ),
    "max_concurrency_at_max_model_len": _sequences,
    "kv_pool_gib_per_gpu": lambda found: found.pool_bytes() / BYTES_PER_GIB,
    "model_load_gib_per_gpu": lambda found: found.weights_gib(),
    "peak_device_memory_gb": _device_memory_gb,
}
