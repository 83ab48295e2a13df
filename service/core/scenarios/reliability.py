"""How often a training run stops and how it saves, as asked."""

from typing import Literal, Self

from pydantic import model_validator

from service.core.scenarios.training_state import StateRecipe
from service.core.value import Count, CountOrZero, NonNegative, Positive, Value

Saves = Literal["blocking", "asynchronous"]
"""Whether the run stands while a checkpoint is written."""
IntervalRule = Literal["seconds", "young", "daly"]
"""How the time between checkpoints is found."""
CheckpointContent = Literal["all_state", "without_gradients", "master_and_moments", "weights"]
"""What a checkpoint keeps of each weight."""


class ObservedIncidents(Value):
    """Unexpected stops that were counted on GPUs like those of the run."""

    incident_count: CountOrZero
    """Stops."""
    gpu_count: Count
    """GPUs that were watched."""
    days: Positive
    """Days for which they were watched."""


class CheckpointStorage(Value):
    """Bandwidth that writes a checkpoint; the slower of the two decides."""

    store_gb_per_s: Positive | None = None
    """Write bandwidth of the whole store; null sets no limit."""
    node_gb_per_s: Positive | None = None
    """Write bandwidth of one node, all of which write; null sets no limit."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.store_gb_per_s is None and self.node_gb_per_s is None:
            raise ValueError("either store_gb_per_s or node_gb_per_s is needed")
        return self


class Reliability(Value):
    """How often a run fails and what a failure costs; null takes the catalog's assumption."""

    failures_per_1000_node_days: NonNegative | None = None
    """Unexpected stops per 1,000 days of 8-GPU nodes; a larger node counts as several."""
    observed_incidents: ObservedIncidents | None = None
    """Stops that were counted, from which the rate and its range follow; instead of
    `failures_per_1000_node_days`."""
    spot_interruptions_per_1000_node_days: NonNegative = 0.0
    """Interruptions by the provider, beside failures and per the same nodes."""
    preemptions_per_day: NonNegative = 0.0
    """Stops of the whole run because others take its GPUs, beside failures; no node is lost. Those
    that a shared pool of the same plan makes are counted there."""
    checkpoint_interval: IntervalRule = "seconds"
    """`seconds`: as `checkpoint_interval_s` says. `young`, `daly`: the interval of least waste by
    the first-order or the higher-order rule, but no shorter than a save takes."""
    checkpoint_interval_s: Positive | None = None
    """Seconds from the start of one checkpoint to the start of the next."""
    saves: Saves = "blocking"
    """Blocking: the run stands for `checkpoint_save_s` at each save, which is all that a save
    takes. Asynchronous: it goes on while the checkpoint is written, and a failure loses
    `write_within_s` more, because a checkpoint counts once it is written."""
    checkpoint_save_s: NonNegative | None = None
    """Seconds for which saving stops the run; with asynchronous saves those of the copy that is
    written beside it."""
    write_within_s: Positive | None = None
    """Seconds in which an asynchronous save is written."""
    checkpoint_storage: CheckpointStorage | None = None
    """Bandwidth from which the seconds of a save follow: `checkpoint_save_s` of a blocking one,
    `write_within_s` of an asynchronous one, and given instead of it. Needs an architecture."""
    checkpoint_content: CheckpointContent = "all_state"
    """What a checkpoint keeps of each weight: everything of the state recipe (16 bytes by default);
    all but gradients (14); master copy and moments, of which the weights are made again (12), or
    weights and moments where there is no master copy; weights alone (2), after which the optimizer
    starts afresh."""
    restart_s: NonNegative | None = None
    """Seconds from a failure to the next step."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.observed_incidents and self.failures_per_1000_node_days is not None:
            raise ValueError("either failures_per_1000_node_days or observed_incidents, not both")
        if self.checkpoint_interval != "seconds" and self.checkpoint_interval_s is not None:
            raise ValueError("checkpoint_interval_s needs a checkpoint_interval of seconds")
        return self


def checkpoint_bytes_per_parameter(recipe: StateRecipe, content: CheckpointContent) -> float:
    """What a checkpoint keeps of one parameter. [B]"""
    if content == "weights":
        return recipe.weight_bytes
    if content == "without_gradients":
        return recipe.total_bytes - recipe.gradient_bytes
    if content == "master_and_moments":
        return recipe.optimizer_bytes + (0.0 if recipe.master_bytes else recipe.weight_bytes)
    return recipe.total_bytes
