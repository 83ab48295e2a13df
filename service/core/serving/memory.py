"""Memory of a serving replica: weights by part, cache by token and sequence, what fits at once."""

from dataclasses import replace

import numpy as np

from service.core.answers import EstimateAnswer, recorder_for, shared_fields
from service.core.estimates import Infeasibility, Range, ServingMemory
from service.core.formulas import serving_memory
from service.core.replica.constants import memory_constants
from service.core.replica.lookup import spread
from service.core.replica.refusals import layout_too_small
from service.core.replica.search import Room, legal_tensor_parallel, room_of
from service.core.scenarios.replica_settings import ReplicaLayout
from service.core.serving.case import Case, resolve_case
from service.core.serving.questions import ReplicaQuestion
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB
from service.core.value import Value


class ServingMemoryQuestion(ReplicaQuestion):
    """How much memory a replica takes, and how many sequences it holds."""


class WeightParts(Value):
    """Weights on one GPU of the fullest stage, by part, in GiB."""

    layers: float
    """Layers outside routed experts, routers included."""
    routed_experts: float
    """Routed experts: all of them, whichever are touched."""
    embeddings_and_head: float
    """Embeddings and output head, in 16 bit."""
    towers: float
    """Vision, audio and prediction towers that are served, in 16 bit."""
    draft_and_adapters: float
    """Draft model and adapters."""


class ServingMemoryAnswer(EstimateAnswer):
    """Memory of one replica, on the GPU of its fullest stage."""

    layout: ReplicaLayout | None = None
    """As given, or the fewest GPUs that hold the model; null when nothing does."""
    gpu_count_per_replica: int | None = None
    """GPUs of the replica."""
    legal_tensor_parallel: tuple[int, ...] = ()
    """Degrees of tensor parallelism that the architecture and the GPU's links allow."""
    memory_gib_per_gpu: ServingMemory | None = None
    """Weights, cache, overhead and what programs can address."""
    weights_gib_per_gpu: WeightParts | None = None
    """Weights by part."""
    kv_cache_bytes_per_token_per_gpu: float | None = None
    """Cache of one of a sequence's first tokens on one GPU."""
    kv_cache_bytes_per_token: float | None = None
    """The same without any copies: what the architecture needs over all GPUs."""
    kv_cache_bytes_per_sequence_per_gpu: float | None = None
    """Cache of a sequence of mean length on one GPU, the served model's."""
    draft_kv_cache_bytes_per_sequence_per_gpu: float | None = None
    """What the draft model caches of the same sequence; 0 without one."""
    kv_cache_tokens_per_replica: Range | None = None
    """Tokens that the pool holds; null where a token takes no memory."""
    sequences_at_mean_length: Range | None = None
    """Sequences of mean length that fit at once; null where one takes no memory."""
    sequences_at_p95_length: Range | None = None
    """Sequences at the 95th percentile of lengths that fit at once."""


def estimate_serving_memory(
    question: ServingMemoryQuestion, snapshot: CatalogSnapshot
) -> ServingMemoryAnswer:
    """Divide a GPU's memory between weights, engine and cache.

    Raises:
        CoreError: If the question names what the catalog does not hold.
    """
    recorder = recorder_for(question, snapshot)
    with np.errstate(all="ignore"):
        case = resolve_case(question, recorder)
        if not isinstance(case, Case):
            return ServingMemoryAnswer(**shared_fields(recorder, infeasibilities=case))
        return _answer(case)


def _answer(case: Case) -> ServingMemoryAnswer:
    shape, layout, recorder = case.shape, case.layout, case.recorder
    needs = shape.needs((int(layout.tensor_parallel),), has_stages=layout.pipeline_parallel > 1)
    look = case.lookup(recorder)
    memory_constants(look, shape.gpu, needs)
    room = case.room(recorder)
    length = max(case.traffic.sequence_tokens_mean, 1.0)
    drafted = float(case.footprint.draft_sequence_bytes_per_gpu(layout, length))
    case.footprint.beside.record(recorder, layout.tensor_parallel, drafted)
    per_token = shape.token_bytes_per_gpu(recorder, layout)
    mean = float(case.footprint.sequence_bytes_per_gpu(recorder, layout, length))
    tail = float(room.tail_sequence_bytes)
    pool = _pool_range(case)
    refusals: tuple[Infeasibility, ...] = ()
    if not bool(room.fits):
        refusals = (layout_too_small(case.service, case.footprint, layout, recorder.off()),)
    ranks = int(layout.data_parallel)
    return ServingMemoryAnswer(
        **shared_fields(recorder, infeasibilities=refusals),
        layout=ReplicaLayout(
            tensor_parallel=int(layout.tensor_parallel),
            pipeline_parallel=int(layout.pipeline_parallel),
            attention_data_parallel=ranks,
        ),
        gpu_count_per_replica=int(layout.gpu_count),
        legal_tensor_parallel=legal_tensor_parallel(shape),
        memory_gib_per_gpu=_memory(case, room),
        weights_gib_per_gpu=_parts(case),
        kv_cache_bytes_per_token_per_gpu=float(per_token),
        kv_cache_bytes_per_token=_whole_token_bytes(case),
        kv_cache_bytes_per_sequence_per_gpu=mean - drafted,
        draft_kv_cache_bytes_per_sequence_per_gpu=drafted,
        kv_cache_tokens_per_replica=_count(pool, mean / length, ranks),
        sequences_at_mean_length=_count(pool, mean, ranks, whole=True),
        sequences_at_p95_length=_count(pool, tail, ranks, whole=True),
    )


def _memory(case: Case, room: Room) -> ServingMemory:
    return ServingMemory(
        weights=float(room.weight_bytes) / BYTES_PER_GIB,
        kv_cache=float(room.pool_bytes) / BYTES_PER_GIB,
        overhead=float(room.overhead_bytes) / BYTES_PER_GIB,
        available=case.shape.available_bytes / BYTES_PER_GIB,
    )


def _whole_token_bytes(case: Case) -> float:
    """Cache of a token over all GPUs without copies. [B/token]"""
    cache = case.shape.cache
    return float(
        serving_memory.kv_cache_bytes_per_token(
            layer_count=cache.layer_count,
            cache_elements_per_token=cache.elements,
            cache_shard_count=cache.shards,
            tensor_parallel=1,
            bytes_per_element=case.shape.kv_format.bytes_per_element,
        )
    )


def _pool_range(case: Case) -> Range:
    """The pool, with each constant of memory at its ends, or as far as logs scatter about it."""
    shape, layout = case.shape, case.layout
    needs = shape.needs((int(layout.tensor_parallel),), has_stages=layout.pipeline_parallel > 1)
    quiet = case.recorder.off()
    look = case.lookup(quiet)
    memory_constants(look, shape.gpu, needs)
    is_large = shape.gpu.memory_gb >= look.exact("large_card_memory_gb")
    card, kind = "large_card" if is_large else "small_card", needs.kind
    varied = look.varied()
    memory = memory_constants(varied, shape.gpu, needs)
    room = room_of(replace(case.footprint, memory=memory), layout, quiet)
    constants = spread(np.atleast_1d(room.pool_bytes))
    factor = case.lookup(case.recorder).assumption("kv_pool_residual_factor", card, kind)
    return Range(
        value=constants.value,
        low=min(constants.low, constants.value * factor.low),
        high=max(constants.high, constants.value * factor.high),
    )


def _count(pool: Range, per_item: float, ranks: int, *, whole: bool = False) -> Range | None:
    """How many of these a pool holds, over all ranks with a pool of their own."""
    if per_item <= 0:
        return None
    found = [
        ranks * (np.floor(p / per_item) if whole else p / per_item)
        for p in (pool.value, pool.low, pool.high)
    ]
    return Range(value=float(found[0]), low=float(found[1]), high=float(found[2]))


def _parts(case: Case) -> WeightParts:
    shape, layout = case.shape, case.layout
    whole, ranks = shape.architecture, float(layout.tensor_parallel)
    stage = float(shape.stage_fraction(layout))
    routed = whole.routed_parameter_count * shape.routed_bytes / (ranks * layout.data_parallel)
    embedding = whole.embedding_parameter_count
    if layout.pipeline_parallel > 1:
        embedding = whole.head_parameter_count
    outside = embedding * shape.wide_bytes / ranks
    towers = whole.tower_parameter_count * shape.wide_bytes / ranks
    total = float(shape.weight_bytes_per_gpu(case.recorder.off(), layout))
    return WeightParts(
        layers=(total - stage * routed - outside - towers) / BYTES_PER_GIB,
        routed_experts=stage * routed / BYTES_PER_GIB,
        embeddings_and_head=outside / BYTES_PER_GIB,
        towers=towers / BYTES_PER_GIB,
        draft_and_adapters=case.footprint.beside.bytes_per_gpu(ranks) / BYTES_PER_GIB,
    )
