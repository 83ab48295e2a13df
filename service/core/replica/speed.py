"""Steady state of a replica: what n running requests and the prompts among them take."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.formulas import queueing, serving_latency
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.replica.passes import Pass, Passes
from service.core.replica.shape import Layout
from service.core.scenarios.replica_settings import ReplicaSettings
from service.core.units import BYTES_PER_GB

TAIL = 0.95
"""Quantile of the time to first token that is published."""
FREE_DEVIATIONS = 3.0
"""Free slots, in standard deviations of a Poisson load, above which nobody waits for one."""
COPIES_GAIN = "copies_apart_least_gain_factor"
NO_SETTINGS = ReplicaSettings()

_RATIO = "alone: the best whole ratio of at most 8 of a kind"
for _name, _unit, _formula in (
    ("prefill_copies_per_replica", "count", f"copies that read prompts {_RATIO}"),
    ("decode_copies_per_replica", "count", f"copies that make answers {_RATIO}"),
    ("kv_transfer_s", "s", "cache of one prompt / bandwidth between the copies"),
):
    define_quantity(
        _name,
        unit=_unit,  # type: ignore[arg-type]
        per="replica",
        formula=_formula,
        sources=(serving_latency.DISAGGREGATION,),
    )


@dataclass(frozen=True)
class SteadyState:
    """A replica with n requests running."""

    decode_step_s: Any
    prefill_share_s: Any
    prefill_s: Any
    tpot_mean_s: Any
    ttft_p95_s: Any
    units_per_s: Any
    decode: Pass
    prefill: Pass
    tokens_per_pass: Any = 1.0
    """Tokens of one sequence that one pass yields: more than one under speculation."""
    prefill_copies: Any = 0
    """Copies of the layout that read prompts alone; 0 where each copy does both."""
    decode_copies: Any = 1
    """Copies that make answers."""
    transfer_s: Any = 0.0
    """Time in which the cache of one prompt goes from one copy to another."""

    @property
    def copies(self) -> Any:
        """Copies of the layout that make up one replica. [count]"""
        return self.prefill_copies + self.decode_copies

    @property
    def is_finite(self) -> Any:
        """True where sizes are such that floating point holds their times and rates."""
        return (
            np.isfinite(self.tpot_mean_s) & np.isfinite(self.units_per_s) & (self.units_per_s > 0)
        )


@dataclass(frozen=True)
class Speed(Passes):
    """Computes the steady state of one shape under one set of constants."""

    settings: ReplicaSettings = NO_SETTINGS
    """Speculation, and whether prompts and answers have copies of their own."""

    def at(self, layout: Layout, running: Any, slots: Any = None) -> SteadyState:
        """The steady state with this many requests running, of those that the replica can hold.

        A replica that can hold more takes a moment's excess in instead of making it wait.
        """
        state = self.without_waiting(layout, running)
        limit = running if slots is None else np.maximum(slots, running)
        return replace(state, ttft_p95_s=self._ttft(running, limit, state))

    def without_waiting(self, layout: Layout, running: Any) -> SteadyState:
        """The steady state with this many requests running, each on its own at its first token."""
        prompt = self.prompt_attention(layout)
        decode, step = self._decode(layout, running, 1, self.recorder)
        step, tokens = self._speculative(layout, running, step)
        share = self._prefill_share(layout, running, prompt)
        idle = self._prefill(layout, prompt)
        if self.settings.disaggregation is not None:
            state = SteadyState(step, share, idle.seconds, step, idle.seconds, 0.0, decode, idle)
            return self._apart(running, replace(state, tokens_per_pass=tokens))
        tpot = self.recorder.evaluate(
            serving_latency.tpot_mean_s,
            decode_step_s=step,
            prefill_share_s=share,
            running_requests=running,
            output_tokens_mean=self.traffic.output_tokens_mean,
        )
        units = self.recorder.evaluate(
            serving_latency.units_per_s_per_replica,
            running_requests=running,
            output_tokens_mean=self.traffic.output_tokens_mean,
            decode_step_s=step,
            prefill_share_s=share,
        )
        return SteadyState(
            step, share, idle.seconds, tpot, idle.seconds, units, decode, idle, tokens
        )

    def _apart(self, running: Any, state: SteadyState) -> SteadyState:
        """Copies that read prompts and copies that make answers, as many of each as suits."""
        tiny = np.finfo(float).tiny
        prompts = 1.0 / np.maximum(state.prefill_share_s, tiny)
        answers = running / (self.traffic.output_tokens_mean * state.decode_step_s)
        readers, makers = serving_latency.copies_apart(
            readers_per_maker=answers / prompts,
            least_gain_factor=self.recorder.assume(COPIES_GAIN).value,
        )
        rate = np.minimum(readers * prompts, makers * answers)
        transfer = self.shape.sequence_bytes(max(self.traffic.input_tokens_mean, 1.0))
        asked = self.settings.disaggregation
        link = np.inf if asked is None else asked.transfer_gb_per_s * BYTES_PER_GB
        if self.recorder.is_on:
            self.recorder.note("tpot_mean_s", float(state.tpot_mean_s))
            self.recorder.note("units_per_s_per_replica", float(rate))
            self.recorder.note("prefill_copies_per_replica", float(readers))
            self.recorder.note("decode_copies_per_replica", float(makers))
            self.recorder.note("kv_transfer_s", transfer / link)
        return replace(
            state,
            units_per_s=rate,
            prefill_copies=readers,
            decode_copies=makers,
            transfer_s=transfer / link,
        )

    def _decode(
        self, layout: Layout, running: Any, tokens_each: int, recorder: Recorder
    ) -> tuple[Pass, Any]:
        """One pass with this many tokens of every running sequence."""
        together = running / layout.pipeline_parallel
        sequences = together / layout.data_parallel
        batch = sequences * tokens_each
        weights = self.layers(layout, batch).plus(self.experts(layout, together * tokens_each))
        weights = weights.plus(self.head(layout, batch))
        attention = self.decode_attention(layout, sequences, tokens_each)
        step = recorder.evaluate(
            serving_latency.decode_step_s,
            weights_s=weights.seconds + self.sampling_s(batch),
            attention_s=attention.seconds,
            collectives_s=self.collectives_s(layout, batch),
            host_s=self.host_s(layout, running),
            stage_loss_fraction=self.constants.engine.stage_loss_fraction,
            pipeline_parallel=layout.pipeline_parallel,
        )
        return weights.plus(attention), step

    def _speculative(self, layout: Layout, running: Any, step: Any) -> tuple[Any, Any]:
        """Time for each token, and tokens of a pass: one, or what a checked draft yields."""
        asked = self.settings.speculation
        if asked is None:
            return step, 1.0
        _, checking = self._decode(layout, running, asked.draft_tokens + 1, self.recorder.off())
        tokens = serving_latency.speculative_tokens_per_step(
            acceptance_fraction=asked.acceptance_fraction, draft_tokens=asked.draft_tokens
        )
        per_token = self.recorder.evaluate(
            serving_latency.speculative_token_s,
            decode_step_s=step,
            checking_step_s=checking,
            draft_tokens=asked.draft_tokens,
            draft_cost_fraction=asked.draft_cost_fraction,
            tokens_per_step=tokens,
        )
        return per_token, tokens

    def host_s(self, layout: Layout, running: Any) -> Any:
        """Host time of one step: fixed, of each layer, of each sequence a rank sees. [s]"""
        engine = self.constants.engine
        own = running / layout.data_parallel
        handled = own + engine.other_rank_fraction * (running - own)
        layers = self.shape.architecture.num_hidden_layers
        return engine.step_s + layers * engine.layer_s + handled * engine.sequence_s

    @property
    def length_variation(self) -> Any:
        """Squared coefficient of variation of service times, as that of lengths. [1]"""
        traffic = self.traffic
        return queueing.squared_variation_of_lengths(
            p95_over_mean=traffic.sequence_tokens_p95 / max(traffic.sequence_tokens_mean, 1.0)
        )

    def sampling_s(self, batch: Any) -> Any:
        """Passes over the logits of every running sequence. [s]"""
        logits = batch * self.shape.architecture.vocab_size * ELEMENT_BYTES
        bandwidth = self.constants.wide.bandwidth_fraction * self.device.bandwidth_bytes_per_s
        return self.constants.engine.sampling_passes * logits / bandwidth

    def _prefill_share(self, layout: Layout, running: Any, prompt: Pass) -> Any:
        """What a prompt takes from the others' steps: joined to them, or between them.

        Some engines pass prompt tokens through the layers together with decoded ones, so that
        only the added time counts; others stop for each chunk.
        """
        engine, data_ranks = self.constants.engine, layout.data_parallel
        own = running / data_ranks
        prompt_tokens = self.traffic.computed_prompt_tokens
        chunk = serving_latency.prefill_chunk_tokens(
            input_tokens_mean=prompt_tokens,
            output_tokens_mean=self.traffic.output_tokens_mean,
            running_requests=own,
            chunk_tokens_maximum=engine.chunk_tokens_maximum,
        )
        apart = self.chunk(layout, chunk, data_ranks).seconds
        weight = 0.0  # copies that read prompts alone have no decode steps to join
        if self.settings.disaggregation is None:
            weight = engine.prefill_in_step_fraction * serving_latency.joining_fraction(
                input_tokens_mean=prompt_tokens,
                output_tokens_mean=self.traffic.output_tokens_mean,
                running_requests=own,
                chunk_tokens=chunk,
            )
        joined = self._joined_s(layout, own, chunk)
        return self.recorder.evaluate(
            serving_latency.prefill_share_s,
            input_tokens_mean=self.traffic.computed_prompt_tokens,
            chunk_tokens=chunk,
            chunk_s=weight * joined + (1.0 - weight) * apart,
            attention_s=prompt.seconds + engine.prompt_s,
            pipeline_parallel=layout.pipeline_parallel * data_ranks,
        )

    def _joined_s(self, layout: Layout, own: Any, chunk: Any) -> Any:
        """What a chunk adds to the decode step that it joins. [s]

        Kernels of prompts that are slower than those of the class are so by their own work, not
        by that of the step: a quicker step then never makes the chunk longer than it was alone.
        """
        drafted = self.settings.speculation
        each = 1 if drafted is None else drafted.draft_tokens + 1
        batch = each * own / layout.pipeline_parallel
        added = self.device_s(layout, batch + chunk) - self.device_s(layout, batch)
        slower = self.constants.engine.prefill_slowdown - 1.0
        return added + slower * self.device_s(layout, chunk)

    def _prefill(self, layout: Layout, prompt: Pass) -> Pass:
        """One prompt on an idle replica, in chunks of the engine's limit."""
        tokens = max(self.traffic.computed_prompt_tokens, 1.0)
        count = np.ceil(tokens / self.constants.engine.chunk_tokens_maximum)
        work = self.chunk(layout, tokens / count, 1)
        head = self.head(layout, 1)
        seconds = self.recorder.evaluate(
            serving_latency.prefill_s,
            chunk_count=count,
            chunk_s=work.seconds,
            attention_s=prompt.seconds + head.seconds,
            request_s=self.constants.engine.request_s,
        )
        flops, moved = work.flops * count, work.moved_bytes * count
        return Pass(seconds, flops + prompt.flops + head.flops, moved + head.moved_bytes)

    def _ttft(self, running: Any, slots: Any, state: SteadyState) -> Any:
        """95th percentile of the time to first token, each wait at the planned utilisation."""
        engine, traffic = self.constants.engine, self.traffic
        service = self.recorder.evaluate(
            serving_latency.service_time_s,
            prefill_share_s=np.where(state.prefill_copies > 0, 0.0, state.prefill_share_s),
            tpot_mean_s=state.tpot_mean_s,
            output_tokens_mean=traffic.output_tokens_mean,
        )
        if traffic.utilization_fraction >= 1:
            self.recorder.note("ttft_p95_s", None)
            return np.full(np.shape(service), np.inf)
        arrivals = state.units_per_s * traffic.utilization_fraction
        share = np.maximum(state.prefill_share_s, np.finfo(float).tiny)
        readers = np.maximum(state.prefill_copies, 1)  # each with a queue of its own
        coming = arrivals / readers
        prompts = self._queue_p95_s(np.minimum(coming * share, 1.0), 1, coming, share)
        waits = self._wait_probability(running, slots)
        steps = engine.steps_waited * state.decode_step_s * state.tokens_per_pass
        return self.recorder.evaluate(
            serving_latency.ttft_p95_s,
            prefill_s=state.prefill_s + engine.loaded_request_s,
            steps_s=steps + state.transfer_s,
            prompt_queue_p95_s=prompts,
            slot_queue_p95_s=self._queue_p95_s(
                waits, slots, arrivals / state.decode_copies, service
            ),
        )

    def _queue_p95_s(self, waits: Any, servers: Any, arrivals: Any, service: Any) -> Any:
        """Wait for one of these servers; lengths vary as their 95th percentile says. [s]"""
        return queueing.waiting_time_quantile_s(
            wait_probability=waits,
            quantile=TAIL,
            server_count=servers,
            arrival_rate_per_s=arrivals,
            service_time_s=service,
            arrival_squared_variation=self.constants.engine.arrival_squared_variation,
            service_squared_variation=self.length_variation,
        )

    def _wait_probability(self, running: Any, slots: Any) -> Any:
        """Erlang C of the slots at the planned utilisation, where it can reach the tail.

        Further than `FREE_DEVIATIONS` standard deviations below the slots, fewer wait than the
        published quantile leaves out.
        """
        count = np.maximum(np.round(slots), 1)
        load, count = np.broadcast_arrays(running * self.traffic.utilization_fraction, count)
        is_near = count - load < FREE_DEVIATIONS * np.sqrt(count)
        waits = np.zeros(np.shape(load))
        near, busy = count[is_near], load[is_near]
        # One number for each pair of slots and load: sorting numbers is far quicker than pairs.
        _, first, places = np.unique(
            near + busy / (busy.max(initial=0.0) + 1.0), return_index=True, return_inverse=True
        )
        found = queueing.erlang_c(server_count=near[first].astype(int), offered_load=busy[first])
        waits[is_near] = found[np.ravel(places)]
        return waits
