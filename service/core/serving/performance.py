"""Speed of a serving replica: phases on the roofline, terms, pace, first token, throughput."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, Range
from service.core.formulas import queueing
from service.core.replica.bands import band_factor
from service.core.replica.lookup import Lookup, spread, weakest_assumption, widened
from service.core.replica.passes import Traffic
from service.core.replica.refusals import layout_too_small
from service.core.replica.search import engine_limit
from service.core.replica.speed import Speed, SteadyState
from service.core.scenarios.replica_settings import (
    ReplicaLayout,
    ReplicaSettings,
)
from service.core.serving.case import Case, resolve_case
from service.core.serving.questions import ReplicaQuestion
from service.core.serving.roofline import KernelPoint, phase_points
from service.core.snapshot import CatalogSnapshot
from service.core.value import Count, PositiveFraction, Value

TOKENS_OF_ONE_STEP = 1


class ServingPerformanceQuestion(ReplicaSettings, ReplicaQuestion):
    """How fast a replica is at a number of running requests."""

    running_requests: Annotated[Count, Field(le=8192)] | None = None
    """Requests that run at once; the most that memory and engine hold when null."""
    utilization_fraction: Annotated[PositiveFraction, Field(lt=1)] = 0.8
    """Planned load over capacity: decides the wait before the first token."""
    burst_requests: Annotated[Count, Field(le=1_000_000)] | None = None
    """Requests that arrive at once, for the first token in a burst."""


class Estimated(Range):
    """An uncertain number, and the constant whose own uncertainty moves it most."""

    weakest_assumption: str | None
    """Name of that constant; null where no constant moves it."""


class Term(Value):
    """One part of a phase's time."""

    phase: Literal["decode", "prefill"]
    """Decode: one step of all running requests. Prefill: one prompt on an idle replica."""
    name: Literal[
        "layers", "experts", "head", "attention", "collectives", "sampling", "host", "launch"
    ]
    """What takes the time."""
    seconds: float
    """Its time; kernels that wait for their start are counted under launch."""


class Pools(Value):
    """Prefill and decode apart: what a copy of each does, and how many one replica has of each."""

    prefill_units_per_s_per_copy: float
    """Prompts per second of a copy that does nothing else."""
    decode_units_per_s_per_copy: float
    """Answers per second of a copy that does nothing else."""
    prefill_copies_per_decode_copy: float
    """Copies for prompts that keep each copy for answers busy, not rounded."""
    prefill_copies: int
    """Copies for prompts in one replica."""
    decode_copies: int
    """Copies for answers in one replica."""
    kv_transfer_s: float
    """Time in which the cache of one prompt is sent."""
    ttft_s: float
    """Prompt, transfer and the first step, without waiting."""


class ServingPerformanceAnswer(EstimateAnswer):
    """Speed of one replica; every result with its range and its weakest assumption."""

    layout: ReplicaLayout | None = None
    """Of each copy: as given, or the fewest GPUs that hold the model."""
    gpu_count_per_replica: int | None = None
    """GPUs of the replica, all its copies where prompts and answers have their own."""
    running_requests: int | None = None
    """Requests that run at once on one copy."""
    running_requests_maximum: int | None = None
    """Most that memory and engine hold at once on one copy."""
    roofline: tuple[KernelPoint, ...] = ()
    """Where decode, prefill and their kernels stand on the roofline."""
    terms: tuple[Term, ...] = ()
    """What the time of one decode step and of one prompt is made of."""
    decode_step_s: Estimated | None = None
    """Time in which every running request gets its next token, with nothing else in the way."""
    tpot_mean_s: Estimated | None = None
    """Mean time between tokens, prompts of other requests included."""
    units_per_s: Estimated | None = None
    """Requests per second with all slots full."""
    output_tokens_per_s: Estimated | None = None
    """Answer tokens per second with all slots full."""
    ttft_unloaded_s: Estimated | None = None
    """Time to first token of one request on an idle replica."""
    ttft_mean_s: Estimated | None = None
    """Mean time to first token at the planned utilisation."""
    ttft_p95_s: Estimated | None = None
    """95th percentile of it."""
    ttft_burst_s: Estimated | None = None
    """Time to first token of the last request of a burst; null where none is asked for."""
    pools: Pools | None = None
    """Prefill and decode apart; null where they are together."""


def estimate_serving_performance(
    question: ServingPerformanceQuestion, snapshot: CatalogSnapshot
) -> ServingPerformanceAnswer:
    """Compute the speed of one replica at a number of running requests.

    Raises:
        CoreError: If the question names what the catalog does not hold, or runs more than fits.
    """
    recorder = recorder_for(question, snapshot)
    with np.errstate(all="ignore"):
        case = resolve_case(question, recorder)
        if not isinstance(case, Case):
            return ServingPerformanceAnswer(**shared_fields(recorder, infeasibilities=case))
        traffic = replace(case.traffic, utilization_fraction=question.utilization_fraction)
        room = case.room(recorder)
        most = min(
            float(np.floor(room.running_limit)),
            engine_limit(case.footprint.memory) * case.layout.data_parallel,
        )
        running = question.running_requests or max(int(most), 1)
        if most < 1 or running > most:
            refusal = _too_many(case, running, most)
            return ServingPerformanceAnswer(**shared_fields(recorder, infeasibilities=(refusal,)))
        limit = float(np.floor(room.running_limit))
        return _Timing(question, case, traffic, running, int(most), limit).answer()


def _too_many(case: Case, running: int, most: float) -> Infeasibility:
    """More requests than there is room for, or no room for one."""
    if most < 1:
        return layout_too_small(case.service, case.footprint, case.layout, case.recorder.off())
    return Infeasibility(
        workload=None,
        code="memory",
        limit="requests that memory and engine hold at once",
        needed=running,
        available=most,
        unit="count",
        nearest_fix=f"running_requests of at most {most:.0f}",
    )


@dataclass(frozen=True)
class _Timing:
    """Evaluates a question's numbers once with typical and once with varied constants."""

    question: ServingPerformanceQuestion
    case: Case
    traffic: Traffic
    running: int
    most: int
    cache_limit: float
    """Requests that the cache holds at once."""

    def _state(self, speed: Speed) -> SteadyState:
        return speed.at(self.case.layout, float(self.running), float(self.most))

    def answer(self) -> ServingPerformanceAnswer:
        """All numbers, each with its range."""
        case, layout = self.case, self.case.layout
        look = case.lookup(case.recorder)
        speed = case.speed(look, case.recorder, self.traffic)
        state = self._state(speed)
        varied = look.varied()
        results = self._results(varied)
        return ServingPerformanceAnswer(
            **shared_fields(case.recorder),
            layout=ReplicaLayout(
                tensor_parallel=int(layout.tensor_parallel),
                pipeline_parallel=int(layout.pipeline_parallel),
                attention_data_parallel=int(layout.data_parallel),
            ),
            gpu_count_per_replica=int(layout.gpu_count * state.copies),
            running_requests=self.running,
            running_requests_maximum=self.most,
            roofline=phase_points(speed, layout, self.running),
            terms=self._terms(speed, state),
            pools=self._pools(state),
            **results,
        )

    def _results(self, look: Lookup) -> dict[str, Any]:
        speed = self.case.speed(look, self.case.recorder.off(), self.traffic)
        state = self._state(speed)
        residual = speed.constants.residual
        few = self.running < look.exact("few_sequences_count")
        wider = band_factor(
            look, self.case.shape.gpu, is_tight=few and self.running >= self.cache_limit
        )
        pace = residual.one_stream if self.running == 1 else residual.tpot
        mean_wait = self._mean_wait_s(speed, state)
        found: dict[str, tuple[Any, Any]] = {
            "decode_step_s": (state.decode_step_s, pace),
            "units_per_s": (state.units_per_s, residual.units),
            "output_tokens_per_s": (
                state.units_per_s * self.traffic.output_tokens_mean,
                residual.units,
            ),
            "ttft_unloaded_s": (state.prefill_s, residual.ttft),
            # The tail leaves out waits of fewer than one request in twenty; the mean holds them.
            "ttft_mean_s": (np.minimum(mean_wait, state.ttft_p95_s), residual.loaded_ttft),
            "ttft_p95_s": (state.ttft_p95_s, residual.loaded_ttft),
        }
        if self.traffic.output_tokens_mean > TOKENS_OF_ONE_STEP:
            found["tpot_mean_s"] = (state.tpot_mean_s, pace)
        if self.question.burst_requests is not None:
            readers = np.maximum(state.prefill_copies, 1)
            ahead = (self.question.burst_requests - 1) / readers * state.prefill_share_s
            burst = state.prefill_s + ahead + state.transfer_s
            found["ttft_burst_s"] = (burst, residual.loaded_ttft)
        return {name: _estimated(*pair, look, wider) for name, pair in found.items()}

    def _mean_wait_s(self, speed: Speed, state: SteadyState) -> Any:
        """Prompt, steps and the mean wait for the prompts ahead."""
        engine = speed.constants.engine
        rate = state.units_per_s * self.traffic.utilization_fraction
        rate = rate / np.maximum(state.prefill_copies, 1)
        share = np.maximum(state.prefill_share_s, np.finfo(float).tiny)
        wait = queueing.waiting_time_mean_s(
            wait_probability=np.minimum(rate * share, 1.0),
            server_count=1,
            arrival_rate_per_s=rate,
            service_time_s=share,
            arrival_squared_variation=engine.arrival_squared_variation,
            service_squared_variation=speed.length_variation,
        )
        steps = engine.steps_waited * state.decode_step_s * state.tokens_per_pass
        steps = steps + state.transfer_s
        return state.prefill_s + engine.loaded_request_s + steps + wait

    def _terms(self, speed: Speed, state: SteadyState) -> tuple[Term, ...]:
        layout, engine = self.case.layout, speed.constants.engine
        together = self.running / layout.pipeline_parallel
        batch = together / layout.data_parallel
        tokens = max(self.traffic.computed_prompt_tokens, 1.0)
        count = np.ceil(tokens / engine.chunk_tokens_maximum)
        each = tokens / count
        decode = {
            "layers": speed.layers(layout, batch).seconds,
            "experts": speed.experts(layout, together).seconds,
            "head": speed.head(layout, batch).seconds,
            "attention": speed.decode_attention(layout, batch).seconds,
            "collectives": speed.collectives_s(layout, batch),
            "sampling": speed.sampling_s(batch),
            "host": speed.host_s(layout, self.running),
        }
        prefill = {
            "layers": count * speed.layers(layout, each).seconds,
            "experts": count * speed.experts(layout, each).seconds,
            "head": speed.head(layout, 1).seconds,
            "attention": speed.prompt_attention(layout).seconds,
            "collectives": count * speed.collectives_s(layout, each),
            "host": engine.request_s,
        }
        known = sum(float(seconds) for seconds in prefill.values())
        prefill["launch"] = max(float(state.prefill_s) - known, 0.0)
        return tuple(
            Term(phase=phase, name=name, seconds=float(seconds))  # type: ignore[arg-type]
            for phase, parts in (("decode", decode), ("prefill", prefill))
            for name, seconds in parts.items()
            if float(seconds) > 0
        )

    def _pools(self, state: SteadyState) -> Pools | None:
        if self.question.disaggregation is None:
            return None
        share = max(float(state.prefill_share_s), np.finfo(float).tiny)
        output, step = self.traffic.output_tokens_mean, float(state.decode_step_s)
        decode = self.running / (output * step)
        transfer = float(state.transfer_s)
        return Pools(
            prefill_units_per_s_per_copy=1 / share,
            decode_units_per_s_per_copy=decode,
            prefill_copies_per_decode_copy=decode * share,
            prefill_copies=int(state.prefill_copies),
            decode_copies=int(state.decode_copies),
            kv_transfer_s=transfer,
            ttft_s=float(state.prefill_s) + transfer + step * float(state.tokens_per_pass),
        )


def _estimated(values: Any, residual: Any, look: Lookup, wider: float) -> Estimated:
    """The range that measured results scatter over, and the constant that moves the number most."""
    typical = float(np.atleast_1d(values)[0])
    if not np.isfinite(typical):
        raise InvalidScenario("no finite speed follows from these sizes")
    band = widened(spread(typical * residual), wider)
    places = look.places or {}
    size = 2 * len(places) + 1
    weakest = weakest_assumption(np.broadcast_to(values, (size,)), places)
    return Estimated(value=band.value, low=band.low, high=band.high, weakest_assumption=weakest)
