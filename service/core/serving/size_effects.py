"""What optimisations save on one kind of GPU, and how throughput and interactivity trade there."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from service.core.estimates import Infeasibility
from service.core.formulas import serving_latency
from service.core.planners.serving import resolve_shape
from service.core.replica.constants import serving_constants
from service.core.replica.many import sweep_many
from service.core.replica.passes import Traffic
from service.core.replica.search import Choice, Objectives, Sweep, cheapest
from service.core.replica.shape import ReplicaShape
from service.core.replica.speed import Speed
from service.core.serving.questions import ReplicaLayout
from service.core.serving.size_types import Effect, FrontierPoint, SizeOption
from service.core.units import HOURS_PER_YEAR, MONTHS_PER_YEAR

if TYPE_CHECKING:
    from service.core.serving.size import Sizing

Frontier = tuple[FrontierPoint, ...]
HOURS_PER_MONTH = HOURS_PER_YEAR / MONTHS_PER_YEAR
CENT = Decimal("0.01")


def frontier_of(sizing: Sizing, shape: ReplicaShape) -> Frontier:
    """Layouts and batches that no other beats in both throughput and interactivity."""
    many = sweep_many(
        [shape],
        look=sizing.look,
        traffic=sizing.traffic,
        objectives=Objectives(np.inf, np.inf),
        compute_factor=sizing.compute_factor,
        rounds=1,
    )
    found = many.of(0)
    gpus = found.layout.gpu_count[:, None]
    pace = 1 / found.state.tpot_mean_s
    output = found.state.units_per_s * sizing.traffic.output_tokens_mean / gpus
    order = np.argsort(-pace, axis=None)
    best, points = 0.0, []
    for flat in order:
        row, column = np.unravel_index(int(flat), pace.shape)
        if output[row, column] <= best:
            continue
        best = float(output[row, column])
        points.append(
            FrontierPoint(
                tokens_per_s_per_user=float(pace[row, column]),
                output_tokens_per_s_per_gpu=best,
                layout=ReplicaLayout(
                    tensor_parallel=int(found.layout.tensor_parallel[row]),
                    pipeline_parallel=int(found.layout.pipeline_parallel[row]),
                    attention_data_parallel=int(found.layout.data_parallel[row]),
                ),
                running_requests=int(found.running[row, column]),
            )
        )
    return tuple(points)


def effects_of(
    sizing: Sizing, option: SizeOption, shape: ReplicaShape, choice: Choice
) -> tuple[Effect, ...]:
    """Each optimisation on its own, then all of them: factors multiplied, and capped."""
    asked = sizing.question.optimisations
    base = _gpus_per_unit(sizing, shape, sizing.traffic)
    factors: list[tuple[Any, float | None, str]] = []
    for field in ("weight_format", "kv_cache_format"):
        name = getattr(asked, field)
        held = getattr(sizing.question, field)
        formats = sizing.recorder.snapshot.formats
        if name is not None and formats[name].bits < formats[held].bits:
            changed = sizing.service.model_copy(update={field: name})
            found = resolve_shape(changed, shape.gpu, sizing.recorder, "")
            factors.append(
                (field, _ratio(sizing, found, sizing.traffic, base), f"{held} to {name}")
            )
    if asked.prefix_cache_hit_fraction > 0:
        cached = replace(sizing.traffic, cached_prompt_fraction=asked.prefix_cache_hit_fraction)
        note = f"{asked.prefix_cache_hit_fraction:.0%} of each prompt held already"
        factors.append(("prefix_cache", _ratio(sizing, shape, cached, base), note))
    if asked.speculation is not None:
        note = f"{asked.speculation.draft_tokens} tokens drafted before each check"
        factors.append(("speculation", _speculation_factor(sizing, shape, choice), note))
    if asked.distilled_architecture is not None:
        changed = sizing.service.model_copy(update={"architecture": asked.distilled_architecture})
        found = resolve_shape(changed, shape.gpu, sizing.recorder, "")
        name = found.architecture.name if isinstance(found, ReplicaShape) else "not servable"
        factors.append(("distilled_model", _ratio(sizing, found, sizing.traffic, base), name))
    lines = [_effect(option, *factor) for factor in factors]
    most = sizing.look.exact("optimisation_saving_maximum_fraction")
    together = max(float(np.prod([line.cost_factor for line in lines] or [1.0])), 1 - most)
    note = f"factors multiplied; no more than {most:.0%} is taken to be saved"
    return (*lines, _effect(option, "all", together, note))


def _effect(option: SizeOption, name: Any, factor: float | None, note: str) -> Effect:
    """A line; a change that costs more, or does not fit, is not made and saves nothing."""
    if factor is None:
        factor, note = 1.0, f"{note}: does not fit or misses the objectives"
    elif factor > 1:
        factor, note = 1.0, f"{note}: would cost {factor:.2f} times as much, so not made"
    saved = float(option.amount_per_hour) * HOURS_PER_MONTH * (1 - factor)
    amount = Decimal(saved).quantize(CENT)
    return Effect(name=name, cost_factor=factor, saved_per_month=amount, note=note)


def _ratio(
    sizing: Sizing, shape: ReplicaShape | Infeasibility, traffic: Traffic, base: float | None
) -> float | None:
    if isinstance(shape, Infeasibility) or base is None:
        return None
    found = _gpus_per_unit(sizing, shape, traffic)
    return None if found is None else found / base


def _best(sizing: Sizing, shape: ReplicaShape, traffic: Traffic) -> tuple[Sweep, Choice | None]:
    many = sweep_many(
        [shape],
        look=sizing.look,
        traffic=traffic,
        objectives=sizing.objectives,
        compute_factor=sizing.compute_factor,
    )
    found = many.of(0)
    if found.running.shape[0] == 0:
        return found, None
    return found, cheapest(found, sizing.objectives, 1)


def _gpus_per_unit(sizing: Sizing, shape: ReplicaShape, traffic: Traffic) -> float | None:
    """GPUs for one request a second, before whole replicas and instances: what a change moves."""
    found, choice = _best(sizing, shape, traffic)
    if choice is None:
        return None
    gpus = found.layout.gpu_count
    rows = np.flatnonzero(
        (found.layout.tensor_parallel == choice.tensor_parallel)
        & (found.layout.pipeline_parallel == choice.pipeline_parallel)
        & (found.layout.data_parallel == choice.data_parallel)
    )
    column = int(np.argmin(np.abs(found.running[rows[0]] - choice.running)))
    return float(gpus[rows[0]] / found.state.units_per_s[rows[0], column])


def _speculation_factor(sizing: Sizing, shape: ReplicaShape, choice: Choice) -> float:
    """Cycle of a slot with drafts over that without, at the chosen batch.

    Checking passes more tokens through the weights: it pays while memory is the limit.
    """
    asked = sizing.question.optimisations.speculation
    if asked is None:
        return 1.0
    constants = serving_constants(sizing.look, shape.gpu, choice.needs(shape))
    speed = Speed(shape, constants, sizing.traffic, sizing.recorder)
    layout, n = choice.layout, float(choice.running)
    state = speed.without_waiting(layout, n)
    batch = n / (choice.pipeline_parallel * choice.data_parallel)
    wider = batch * (asked.draft_tokens + 1)
    checked = speed.device_s(layout, wider) - speed.device_s(layout, batch)
    share = sizing.look.exact("draft_cost_fraction")
    drafted = asked.draft_tokens * share * state.decode_step_s
    tokens = serving_latency.speculative_tokens_per_step(
        acceptance_fraction=asked.acceptance_fraction, draft_tokens=asked.draft_tokens
    )
    step = (state.decode_step_s + checked + drafted) / tokens
    output, prompts = sizing.traffic.output_tokens_mean, n * state.prefill_share_s
    return float((output * step + prompts) / (output * state.decode_step_s + prompts))
