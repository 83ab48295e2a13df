"""Steady state of a replica: what n running requests and the prompts among them take.

Everything broadcasts: one call serves a single layout, a sweep of layouts by concurrency, or one
layout with every constant varied in turn.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.formulas import communication, queueing, roofline, serving_latency
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.formulas.flops import (
    attention_forward_flops_per_token,
    visible_tokens,
    visible_tokens_in_chunks,
)
from service.core.recorder import Recorder
from service.core.replica.constants import KernelConstants, ServingConstants
from service.core.replica.shape import Layout, ReplicaShape
from service.core.units import BYTES_PER_GB

TAIL = 0.95
"""Quantile of the time to first token that is published."""


@dataclass(frozen=True)
class Traffic:
    """What one request asks for, and how full replicas are planned to be."""

    input_tokens_mean: float
    output_tokens_mean: float
    sequence_tokens_p95: float
    utilization_fraction: float
    """Demand over the capacity of the replicas that are held."""

    @property
    def sequence_tokens_mean(self) -> float:
        """Prompt and answer together. [token]"""
        return self.input_tokens_mean + self.output_tokens_mean

    @property
    def context_tokens_mean(self) -> float:
        """Tokens behind a running request, over the length of its answer. [token]"""
        return self.input_tokens_mean + self.output_tokens_mean / 2


@dataclass(frozen=True)
class Pass:
    """Work of one pass through all layers."""

    seconds: Any
    flops: Any
    moved_bytes: Any

    def plus(self, other: "Pass") -> "Pass":
        """Both one after the other."""
        return Pass(
            self.seconds + other.seconds,
            self.flops + other.flops,
            self.moved_bytes + other.moved_bytes,
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

    @property
    def is_finite(self) -> Any:
        """True where sizes are such that floating point holds their times and rates."""
        return (
            np.isfinite(self.tpot_mean_s) & np.isfinite(self.units_per_s) & (self.units_per_s > 0)
        )


@dataclass(frozen=True)
class Speed:
    """Computes the steady state of one shape under one set of constants."""

    shape: ReplicaShape
    constants: ServingConstants
    traffic: Traffic
    recorder: Recorder

    def _product(
        self, kernel: KernelConstants, *, flops: Any, moved_bytes: Any, calls: int, wide: bool
    ) -> Pass:
        gpu = self.shape.gpu
        precision = "bf16" if wide else self.shape.weight_precision
        seconds = roofline.kernel_time_s(
            flops=flops,
            moved_bytes=moved_bytes,
            peak_flop_per_s=gpu.peak_flop_per_s(precision),
            bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
            compute_fraction=kernel.compute_fraction,
            bandwidth_fraction=kernel.bandwidth_fraction,
            overlap_exponent=kernel.overlap_exponent,
            fixed_s=calls * kernel.fixed_s,
        )
        return Pass(seconds, flops, moved_bytes)

    def _layers(self, layout: Layout, tokens: Any) -> Pass:
        """Matrix products of all layers outside routed experts."""
        shape, engine = self.shape, self.constants.engine
        parameters = shape.layer_parameters_per_gpu(layout.tensor_parallel)
        widened = tokens / (tokens + engine.weight_only_half_tokens)
        extra = engine.weight_only_extra_bytes * widened
        return self._product(
            self.constants.dense,
            flops=2 * tokens * parameters,
            moved_bytes=parameters * (shape.layer_bytes + extra),
            calls=shape.kernel_count,
            wide=shape.has_wide_layers,
        )

    def _head(self, layout: Layout, tokens: Any) -> Pass:
        parameters = self.shape.architecture.head_parameter_count / layout.tensor_parallel
        return self._product(
            self.constants.wide,
            flops=2 * tokens * parameters,
            moved_bytes=parameters * self.shape.wide_bytes,
            calls=1,
            wide=True,
        )

    def _experts(self, layout: Layout, tokens: Any) -> Pass:
        """Routed experts of all layers; tiles add rows for each expert that is touched."""
        rows, constants, shape = self.shape.experts, self.constants.experts, self.shape
        if rows is None or constants is None:
            return Pass(0.0, 0.0, 0.0)
        total = Pass(0.0, 0.0, 0.0)
        for index in range(rows.layer_count.size):
            count, experts, chosen, parameters, width = (
                getattr(rows, name)[index] for name in rows.__dataclass_fields__
            )
            touched = roofline.experts_touched(
                num_experts=experts, num_experts_per_token=chosen, tokens=tokens
            )
            computed = tokens * chosen + constants.padding_tokens * touched
            share = count * parameters / layout.tensor_parallel
            rate = constants.relative_fraction * width / (width + constants.width_at_half_speed)
            kernel = replace(
                constants.kernel,
                fixed_s=constants.fixed_s,
                compute_fraction=constants.kernel.compute_fraction * rate,
                bandwidth_fraction=constants.bandwidth_fraction,
                overlap_exponent=constants.overlap_exponent,
            )
            total = total.plus(
                self._product(
                    kernel,
                    flops=2 * computed * share,
                    moved_bytes=touched * share * shape.routed_bytes,
                    calls=int(count),
                    wide=False,
                )
            )
        return total

    def _collectives_s(self, layout: Layout, tokens: Any) -> Any:
        """All-reduces of one pass, over the scale-up link where it joins all ranks. [s]"""
        shape, gpu, ranks = self.shape, self.shape.gpu, np.asarray(layout.tensor_parallel)
        is_within = ranks <= shape.scale_up_gpu_count
        pcie = (gpu.pcie_gb_per_s_per_direction or 0.0) * BYTES_PER_GB
        total: Any = 0.0
        for link, rate, is_used in (
            (self.constants.scale_up, gpu.scale_up_bytes_per_s, is_within),
            (self.constants.pcie, pcie, ~is_within),
        ):
            if link is None:
                continue
            seconds = communication.transfer_s(
                sent_bytes=communication.ring_all_reduce_bytes(
                    buffer_bytes=tokens * shape.architecture.hidden_size * ELEMENT_BYTES,
                    rank_count=ranks,
                ),
                bytes_per_s=rate,
                link_fraction=link.bandwidth_fraction,
                message_count=ranks > 1,
                latency_s=link.latency_s,
            )
            total = total + np.where(is_used, seconds, 0.0)
        return shape.collective_count * total

    def _decode_attention(self, layout: Layout, sequences: Any) -> Pass:
        """Attention of one new token of each sequence over its cache."""
        rows, gpu, constants = self.shape.cache, self.shape.gpu, self.constants.attention
        ranks = np.asarray(layout.tensor_parallel)[..., None]
        context = self.traffic.context_tokens_mean
        read = np.minimum(context, rows.read_tokens)
        cached = rows.elements / np.minimum(rows.shards, ranks) * read
        cached = cached * self.shape.kv_format.bytes_per_element + 2 * rows.state_bytes / ranks
        moved = sequences * np.sum(rows.layer_count * cached, axis=-1)
        pairs = rows.layer_count * rows.decode_pair_flops * read
        flops = sequences * np.sum(pairs / ranks, axis=-1)
        memory_s = moved / (constants.decode_bandwidth_fraction * gpu.memory_bandwidth_bytes_per_s)
        compute_s = flops / (constants.latent_compute_fraction * self._wide_peak)
        fixed_s = self.shape.mixing_layer_count * constants.decode_fixed_s
        return Pass(fixed_s + np.maximum(memory_s, compute_s), flops, moved)

    def _prompt_attention(self, layout: Layout) -> Pass:
        """Causal attention of one whole prompt."""
        rows, constants = self.shape.cache, self.constants.attention
        asked = self.traffic.input_tokens_mean
        tokens = max(asked, 1.0)
        span = np.minimum(rows.span_tokens, rows.read_tokens)
        visible = np.where(
            rows.is_chunked,
            visible_tokens_in_chunks(sequence_tokens=tokens, chunk_tokens=span),
            visible_tokens(sequence_tokens=tokens, span_tokens=span),
        )
        per_token = attention_forward_flops_per_token(
            score_flops_per_pair=rows.pair_flops, visible_tokens=visible
        )
        flops = asked * np.sum(rows.layer_count * per_token) / layout.tensor_parallel
        rising = tokens / (tokens + constants.prefill_half_tokens)
        rate = constants.prefill_compute_fraction * rising * self._wide_peak
        return Pass(flops / rate, flops, np.zeros_like(flops))

    @property
    def _wide_peak(self) -> float:
        return self.shape.gpu.peak_flop_per_s("bf16") or np.inf

    def _chunk(self, layout: Layout, tokens: Any) -> Pass:
        """Prompt tokens through all layers: computed, or waiting for the host to start kernels."""
        engine = self.constants.engine
        work = self._layers(layout, tokens).plus(self._experts(layout, tokens))
        is_split = np.asarray(layout.tensor_parallel) > 1
        factor = np.where(is_split, engine.launch_tensor_parallel_factor, 1.0)
        launch = self.shape.architecture.num_hidden_layers * engine.launch_layer_s * factor
        device = work.seconds + self._collectives_s(layout, tokens)
        seconds = serving_latency.launch_bound_s(device_s=device, launch_s=launch)
        return replace(work, seconds=seconds)

    def at(self, layout: Layout, running: Any) -> SteadyState:
        """The steady state with this many requests running."""
        prompt = self._prompt_attention(layout)
        decode, step = self._decode(layout, running)
        share = self._prefill_share(layout, running, prompt)
        idle = self._prefill(layout, prompt)
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
        without_wait = SteadyState(
            step, share, idle.seconds, tpot, idle.seconds, units, decode, idle
        )
        return replace(without_wait, ttft_p95_s=self._ttft(running, without_wait))

    def _decode(self, layout: Layout, running: Any) -> tuple[Pass, Any]:
        engine = self.constants.engine
        batch = running / layout.pipeline_parallel
        weights = self._layers(layout, batch).plus(self._experts(layout, batch))
        weights = weights.plus(self._head(layout, batch))
        attention = self._decode_attention(layout, batch)
        layers = self.shape.architecture.num_hidden_layers
        step = self.recorder.evaluate(
            serving_latency.decode_step_s,
            weights_s=weights.seconds,
            attention_s=attention.seconds,
            collectives_s=self._collectives_s(layout, batch),
            host_s=engine.step_s + layers * engine.layer_s + running * engine.sequence_s,
            stage_loss_fraction=engine.stage_loss_fraction,
            pipeline_parallel=layout.pipeline_parallel,
        )
        return weights.plus(attention), step

    def _prefill_share(self, layout: Layout, running: Any, prompt: Pass) -> Any:
        chunk = serving_latency.prefill_chunk_tokens(
            input_tokens_mean=self.traffic.input_tokens_mean,
            output_tokens_mean=self.traffic.output_tokens_mean,
            running_requests=running,
            chunk_tokens_maximum=self.constants.engine.chunk_tokens_maximum,
        )
        return self.recorder.evaluate(
            serving_latency.prefill_share_s,
            input_tokens_mean=self.traffic.input_tokens_mean,
            chunk_tokens=chunk,
            chunk_s=self._chunk(layout, chunk).seconds,
            attention_s=prompt.seconds,
            pipeline_parallel=layout.pipeline_parallel,
        )

    def _prefill(self, layout: Layout, prompt: Pass) -> Pass:
        """One prompt on an idle replica, in chunks of the engine's limit."""
        tokens = max(self.traffic.input_tokens_mean, 1.0)
        count = np.ceil(tokens / self.constants.engine.chunk_tokens_maximum)
        work = self._chunk(layout, tokens / count)
        head = self._head(layout, 1)
        seconds = self.recorder.evaluate(
            serving_latency.prefill_s,
            chunk_count=count,
            chunk_s=work.seconds,
            attention_s=prompt.seconds + head.seconds,
            request_s=self.constants.engine.request_s,
        )
        flops, moved = work.flops * count, work.moved_bytes * count
        return Pass(seconds, flops + prompt.flops + head.flops, moved + head.moved_bytes)

    def _ttft(self, running: Any, state: SteadyState) -> Any:
        """95th percentile of the time to first token, each wait at the planned utilisation."""
        engine, traffic = self.constants.engine, self.traffic
        service = self.recorder.evaluate(
            serving_latency.service_time_s,
            prefill_share_s=state.prefill_share_s,
            tpot_mean_s=state.tpot_mean_s,
            output_tokens_mean=traffic.output_tokens_mean,
        )
        if traffic.utilization_fraction >= 1:
            self.recorder.note("ttft_p95_s", None)
            return np.full(np.shape(service), np.inf)
        arrivals = state.units_per_s * traffic.utilization_fraction
        share = np.maximum(state.prefill_share_s, np.finfo(float).tiny)
        prompts = self._queue_p95_s(np.minimum(arrivals * share, 1.0), 1, arrivals, share)
        waits = self._wait_probability(running)
        return self.recorder.evaluate(
            serving_latency.ttft_p95_s,
            prefill_s=state.prefill_s + engine.loaded_request_s,
            steps_s=engine.steps_waited * state.decode_step_s,
            prompt_queue_p95_s=prompts,
            slot_queue_p95_s=self._queue_p95_s(waits, running, arrivals, service),
        )

    def _queue_p95_s(self, waits: Any, servers: Any, arrivals: Any, service: Any) -> Any:
        """Wait for one of these servers; lengths vary as their 95th percentile says. [s]"""
        traffic = self.traffic
        return queueing.waiting_time_quantile_s(
            wait_probability=waits,
            quantile=TAIL,
            server_count=servers,
            arrival_rate_per_s=arrivals,
            service_time_s=service,
            arrival_squared_variation=self.constants.engine.arrival_squared_variation,
            service_squared_variation=queueing.squared_variation_of_lengths(
                p95_over_mean=traffic.sequence_tokens_p95 / traffic.sequence_tokens_mean
            ),
        )

    def _wait_probability(self, running: Any) -> Any:
        """Erlang C of n slots at the planned utilisation, once for each distinct n."""
        counts, places = np.unique(np.round(running).astype(int), return_inverse=True)
        counts = np.maximum(counts, 1)
        waits = queueing.erlang_c(
            server_count=counts, offered_load=counts * self.traffic.utilization_fraction
        )
        return waits[places].reshape(np.shape(running))
