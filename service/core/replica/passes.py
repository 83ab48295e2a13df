"""Work and time of a replica's passes: weights, experts, attention, links and starting kernels.

Everything broadcasts: one call serves a single layout, a sweep of layouts by concurrency, or one
layout with every constant varied in turn.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.formulas import communication, roofline, serving_latency
from service.core.formulas.communication import ELEMENT_BYTES
from service.core.formulas.flops import (
    attention_forward_flops_per_token,
    visible_tokens,
    visible_tokens_in_chunks,
)
from service.core.recorder import Recorder
from service.core.replica.constants import KernelConstants, ServingConstants
from service.core.replica.shape import Device, Layout, ReplicaShape


@dataclass(frozen=True)
class Traffic:
    """What one request asks for, and how full replicas are planned to be."""

    input_tokens_mean: float
    output_tokens_mean: float
    sequence_tokens_p95: float
    utilization_fraction: float
    """Demand over the capacity of the replicas that are held."""
    cached_prompt_fraction: float = 0.0
    """Share of each prompt whose cache is held already, from its start on."""

    @property
    def computed_prompt_tokens(self) -> float:
        """Prompt tokens that are passed through the layers. [token]"""
        return self.input_tokens_mean * (1.0 - self.cached_prompt_fraction)

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
class Passes:
    """Work and time of each pass of one shape under one set of constants."""

    shape: ReplicaShape
    constants: ServingConstants
    traffic: Traffic
    recorder: Recorder
    devices: Device | None = None
    """Many GPUs instead of the shape's own."""

    @property
    def device(self) -> Device:
        """The GPUs: those given, or the shape's own."""
        return self.devices or self.shape.device

    def _product(
        self, kernel: KernelConstants, *, flops: Any, moved_bytes: Any, calls: int, wide: bool
    ) -> Pass:
        device = self.device
        seconds = roofline.kernel_time_s(
            flops=flops,
            moved_bytes=moved_bytes,
            peak_flop_per_s=device.wide_peak_flop_per_s if wide else device.layer_peak_flop_per_s,
            bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
            compute_fraction=kernel.compute_fraction,
            bandwidth_fraction=kernel.bandwidth_fraction,
            overlap_exponent=kernel.overlap_exponent,
            fixed_s=calls * kernel.fixed_s,
        )
        return Pass(seconds, flops, moved_bytes)

    def layers(self, layout: Layout, tokens: Any) -> Pass:
        """Matrix products of all layers outside routed experts."""
        shape, engine = self.shape, self.constants.engine
        parameters = shape.layer_parameters_per_gpu(layout.tensor_parallel)
        widened = tokens / (tokens + engine.weight_only_half_tokens)
        extra = 0.0 if shape.has_wide_layers else engine.weight_only_extra_bytes * widened
        return self._product(
            self.constants.dense,
            flops=2 * tokens * parameters,
            moved_bytes=parameters * (shape.layer_bytes + extra),
            calls=shape.kernel_count,
            wide=shape.has_wide_layers,
        )

    def head(self, layout: Layout, tokens: Any) -> Pass:
        """Output head of decoded tokens, in 16 bit."""
        parameters = self.shape.architecture.head_parameter_count / layout.tensor_parallel
        return self._product(
            self.constants.wide,
            flops=2 * tokens * parameters,
            moved_bytes=parameters * self.shape.wide_bytes,
            calls=1,
            wide=True,
        )

    def experts(self, layout: Layout, tokens: Any) -> Pass:
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
                num_experts=experts,
                num_experts_per_token=chosen,
                tokens=roofline.independent_tokens(
                    tokens=tokens, independent_fraction=constants.independent_fraction
                ),
            )
            computed = tokens * chosen + constants.padding_tokens * touched
            share = count * parameters / layout.expert_ranks
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

    def _link_s(self, ranks: Any, sent_bytes: Any, *, latency_share: Any = 1.0) -> Any:
        """One message of every rank, over the scale-up link where it joins all ranks. [s]"""
        device = self.device
        is_within, is_many = ranks <= device.scale_up_gpu_count, ranks > 1
        total: Any = 0.0
        for link, rate, is_used in (
            (self.constants.scale_up, device.scale_up_bytes_per_s, is_within & is_many),
            (self.constants.pcie, device.pcie_bytes_per_s, ~is_within & is_many),
        ):
            if link is None:
                continue
            seconds = communication.transfer_s(
                sent_bytes=sent_bytes,
                bytes_per_s=rate,
                link_fraction=link.bandwidth_fraction,
                message_count=is_many * latency_share * link.hop_share(ranks),
                latency_s=link.latency_s,
            )
            total = total + np.where(is_used, seconds, 0.0)
        return total

    def collectives_s(self, layout: Layout, tokens: Any) -> Any:
        """All-reduces of one pass over the tokens of one rank, and the exchange of experts. [s]"""
        shape, ranks = self.shape, np.asarray(layout.tensor_parallel)
        reduced = communication.ring_all_reduce_bytes(
            buffer_bytes=tokens * shape.architecture.hidden_size * ELEMENT_BYTES, rank_count=ranks
        )
        total = shape.collective_count * self._link_s(ranks, reduced)
        return total + self._exchange_s(layout, tokens)

    def _exchange_s(self, layout: Layout, tokens: Any) -> Any:
        """Tokens to the experts of other ranks and back, where ranks hold their own tokens. [s]"""
        rows, exchange = self.shape.experts, self.constants.exchange
        if rows is None or exchange is None:
            return 0.0
        ranks = np.asarray(layout.expert_ranks)
        chosen = np.minimum(np.max(rows.experts_per_token), ranks)
        width = self.shape.architecture.hidden_size * exchange.bytes_per_element
        away = communication.ring_share(rank_count=ranks)
        sent = tokens / layout.tensor_parallel * chosen * width * away
        seconds = exchange.latency_s + self._link_s(ranks, sent, latency_share=0.0)
        return np.where(np.asarray(layout.data_parallel) > 1, np.sum(rows.layer_count), 0) * seconds

    def decode_attention(self, layout: Layout, sequences: Any, tokens_each: int = 1) -> Pass:
        """Attention of the new tokens of each sequence over its cache, which is read once."""
        rows, constants = self.shape.cache, self.constants.attention
        ranks = np.asarray(layout.tensor_parallel)[..., None]
        context = self.traffic.context_tokens_mean
        read = np.minimum(context, rows.read_tokens)
        cached = rows.elements / np.minimum(rows.shards, ranks) * read
        cached = cached * self.shape.kv_format.bytes_per_element + 2 * rows.state_bytes / ranks
        moved = sequences * np.sum(rows.layer_count * cached, axis=-1)
        queries = sequences * tokens_each
        bound, done = (
            queries * np.sum(rows.layer_count * pair_flops * read / ranks, axis=-1)
            for pair_flops in (
                rows.decode_pair_flops,
                np.maximum(rows.pair_flops, rows.decode_pair_flops),
            )
        )
        bandwidth = constants.decode_bandwidth_fraction * self.device.bandwidth_bytes_per_s
        memory_s = moved / bandwidth
        compute_s = bound / (constants.latent_compute_fraction * self.device.wide_peak_flop_per_s)
        fixed_s = self.shape.mixing_layer_count * constants.decode_fixed_s
        fixed_s = fixed_s + self.shape.indexed_layer_count * constants.index_layer_s
        return Pass(fixed_s + np.maximum(memory_s, compute_s), done, moved)

    def prompt_attention(self, layout: Layout) -> Pass:
        """Causal attention of one prompt: its end sees all of it, its cached start is done.

        Of s²/2 pairs those of the cached start, (h·s)²/2, were computed before.
        """
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
        asked = asked * (1.0 - self.traffic.cached_prompt_fraction**2)
        flops = asked * np.sum(rows.layer_count * per_token) / layout.tensor_parallel
        rising = tokens / (tokens + constants.prefill_half_tokens)
        rate = constants.prefill_compute_fraction * rising * self.device.wide_peak_flop_per_s
        return Pass(flops / rate, flops, np.zeros_like(flops))

    def device_s(self, layout: Layout, tokens: Any) -> Any:
        """Matrix products and collectives of one pass over the tokens of one rank. [s]"""
        return (
            self.layers(layout, tokens).seconds
            + self.experts(layout, tokens * layout.data_parallel).seconds
            + self.collectives_s(layout, tokens)
        )

    def chunk(self, layout: Layout, tokens: Any, rank_count: Any) -> Pass:
        """Prompt tokens through all layers: computed, or waiting for the host to start kernels.

        `rank_count` ranks have that many tokens each at once; the experts see all of them.
        """
        engine = self.constants.engine
        work = self.layers(layout, tokens).plus(self.experts(layout, tokens * rank_count))
        is_split = np.asarray(layout.tensor_parallel) > 1
        factor = np.where(is_split, engine.launch_tensor_parallel_factor, 1.0)
        launch = self.shape.architecture.num_hidden_layers * engine.launch_layer_s * factor
        device = work.seconds * engine.prefill_slowdown + self.collectives_s(layout, tokens)
        seconds = serving_latency.launch_bound_s(device_s=device, launch_s=launch)
        return replace(work, seconds=seconds)
