"""What optimisations save on one kind of GPU, and how throughput and interactivity trade there."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from service.core.estimates import Infeasibility
from service.core.hardware import Gpu
from service.core.planners.serving_question import compute_factor_of, resolve_shape
from service.core.pricing import money
from service.core.replica.search import Objectives, choice_at, meets
from service.core.replica.shape import ReplicaShape
from service.core.scenarios.replica_settings import ReplicaSettings, Speculation
from service.core.serving.size_case import Sizing
from service.core.serving.size_options import Sized, layout_of
from service.core.serving.size_types import Effect, FrontierPoint, PowerCapCost, SizeOption
from service.core.units import HOURS_PER_MONTH

FRONTIER_COLUMNS = 20
Frontier = tuple[FrontierPoint, ...]


def frontier_of(sizing: Sizing, sized: Sized) -> Frontier:
    """Layouts and batches that no other beats in both throughput and interactivity."""
    free = Objectives(np.inf, np.inf)
    many = sizing.sweep([sized.shape], objectives=free, columns=FRONTIER_COLUMNS)
    found = many.of(0, sized.reach)
    gpus = found.layout.gpu_count[:, None] * found.state.copies
    pace = 1 / found.state.tpot_mean_s
    output = found.state.units_per_s * sizing.traffic.output_tokens_mean / gpus
    best, points = 0.0, []
    for flat in np.argsort(-pace, axis=None):
        row, column = np.unravel_index(int(flat), pace.shape)
        if output[row, column] <= best:
            continue
        best = float(output[row, column])
        choice = choice_at(found, int(row), int(column))
        points.append(
            FrontierPoint(
                tokens_per_s_per_user=float(pace[row, column]),
                output_tokens_per_s_per_gpu=best,
                layout=layout_of(choice),
                running_requests=choice.concurrency,
            )
        )
    return tuple(points)


def effects_of(sizing: Sizing, option: SizeOption, sized: Sized) -> tuple[Effect, ...]:
    """Each optimisation on its own, then all of them: factors multiplied, and capped."""
    base = sized.gpus_per_unit
    factors = [
        (name, None if found is None else found / base, note)
        for name, found, note in _changes(sizing, sized)
    ]
    lines = [_effect(option, *factor) for factor in factors]
    most = sizing.look.exact("optimisation_saving_maximum_fraction")
    together = max(float(np.prod([line.cost_factor for line in lines] or [1.0])), 1 - most)
    note = f"factors multiplied; no more than {most:.0%} is taken to be saved"
    return (*lines, _effect(option, "all", together, note))


def power_cap_of(sizing: Sizing, sized: Sized) -> PowerCapCost | None:
    """What the cap takes in speed, and saves in energy."""
    held = sizing.service.replica
    if held.power_cap_fraction >= 1:
        return None
    free = held.model_copy(update={"power_cap_fraction": 1.0})
    capped = sized.gpus_per_unit
    uncapped = _gpus_per_unit(sizing, sized, sized.shape, free)
    if uncapped is None:
        return None
    load = sizing.recorder.assume("power_load_fraction").value
    drawn = min(load, held.power_cap_fraction) / load
    return PowerCapCost(
        power_cap_fraction=held.power_cap_fraction,
        compute_rate_fraction=compute_factor_of(held, sizing.recorder),
        units_per_s_fraction=uncapped / capped,
        energy_per_token_fraction=drawn * capped / uncapped,
    )


def _changes(sizing: Sizing, sized: Sized) -> Iterator[tuple[Any, float | None, str]]:
    """GPUs for a unit of load after each change that is asked for; None where it does not serve."""
    asked, held, gpu = sizing.question.optimisations, sizing.service.replica, sized.shape.gpu
    for field in ("weight_format", "kv_cache_format"):
        name, now = getattr(asked, field), getattr(sizing.question, field)
        formats = sizing.recorder.snapshot.formats
        if name is not None and formats[name].bits < formats[now].bits:
            shape = _changed_shape(sizing, gpu, {field: name})
            yield field, _gpus_per_unit(sizing, sized, shape), f"{now} to {name}"
    if asked.prefix_cache_hit_fraction > held.prefix_cache_hit_fraction:
        hit = {"prefix_cache_hit_fraction": asked.prefix_cache_hit_fraction}
        note = f"{asked.prefix_cache_hit_fraction:.0%} of each prompt held already"
        changed = held.model_copy(update=hit)
        yield "prefix_cache", _gpus_per_unit(sizing, sized, sized.shape, changed), note
    if asked.speculation is not None and held.speculation is None:
        draft = Speculation(
            draft_tokens=asked.speculation.draft_tokens,
            acceptance_fraction=asked.speculation.acceptance_fraction,
            draft_cost_fraction=sizing.look.exact("draft_cost_fraction"),
        )
        changed = held.model_copy(update={"speculation": draft})
        note = f"{draft.draft_tokens} tokens drafted before each check"
        yield "speculation", _gpus_per_unit(sizing, sized, sized.shape, changed), note
    if asked.distilled_architecture is not None:
        shape = _changed_shape(sizing, gpu, {"architecture": asked.distilled_architecture})
        name = shape.architecture.name if isinstance(shape, ReplicaShape) else "not servable"
        yield "distilled_model", _gpus_per_unit(sizing, sized, shape), name


def _changed_shape(
    sizing: Sizing, gpu: Gpu, change: dict[str, Any]
) -> ReplicaShape | Infeasibility:
    changed = sizing.service.model_copy(update=change)
    return resolve_shape(changed, gpu, sizing.recorder, "/optimisations")


def _effect(option: SizeOption, name: Any, factor: float | None, note: str) -> Effect:
    """A line; a change that costs more, or does not fit, is not made and saves nothing."""
    if factor is None:
        factor, note = 1.0, f"{note}: does not fit or misses the objectives"
    elif factor > 1:
        factor, note = 1.0, f"{note}: would cost {factor:.2f} times as much, so not made"
    saved = float(option.amount_per_hour) * HOURS_PER_MONTH * (1 - factor)
    return Effect(name=name, cost_factor=factor, saved_per_month=money(saved), note=note)


def _gpus_per_unit(
    sizing: Sizing,
    sized: Sized,
    shape: ReplicaShape | Infeasibility,
    settings: ReplicaSettings | None = None,
) -> float | None:
    """GPUs for one request a second, before whole replicas and instances: what a change moves.

    None where the change does not serve within the objectives.
    """
    if isinstance(shape, Infeasibility):
        return None
    many = sizing.sweep([shape], settings=settings, reaches=[(sized.reach,)])
    best = many.best_of(0, sized.reach)
    gpus = best.layout.gpu_count * np.broadcast_to(best.state.copies, best.running.shape)[:, 0]
    each = gpus / best.state.units_per_s[:, 0]
    each = each[meets(best.state, sizing.objectives)[:, 0]]
    return float(each.min()) if each.size else None
