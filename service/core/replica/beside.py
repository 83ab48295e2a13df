"""What a replica loads beside the served model: adapters, and a draft model with its own cache."""

from dataclasses import dataclass
from typing import Any

from service.core.architecture.model import ModelArchitecture
from service.core.formulas import serving_memory
from service.core.recorder import Recorder
from service.core.registry import define_quantity
from service.core.replica.shape import ReplicaShape

DRAFTING = "Leviathan, Kalman, Matias, arXiv 2211.17192"
define_quantity(
    "draft_and_adapter_bytes_per_gpu",
    unit="B",
    per="gpu",
    formula=(
        "bytes of a weight · (weights of the draft model + of adapters) / TP, taken out of the pool"
    ),
)
define_quantity(
    "draft_kv_cache_bytes_per_sequence",
    unit="B",
    per="gpu",
    formula=(
        "the draft model's own cache of the same tokens in the same format, heads over TP: each "
        "sequence takes it beside the served model's"
    ),
    sources=(DRAFTING,),
)


@dataclass(frozen=True)
class Beside:
    """Draft model and adapters of one replica, divided over tensor parallelism."""

    weight_bytes: float = 0.0
    """Weights of both. [B]"""
    draft: ModelArchitecture | None = None
    """The draft model, whose cache grows with every sequence; None without one."""

    def bytes_per_gpu(self, tensor_parallel: Any) -> float:
        """Weights of both on one GPU. [B]"""
        return float(self.weight_bytes / tensor_parallel)

    def record(
        self, recorder: Recorder, tensor_parallel: Any, draft_sequence_bytes_per_gpu: Any
    ) -> None:
        """Publish what stands beside the served model."""
        recorder.note("draft_and_adapter_bytes_per_gpu", self.bytes_per_gpu(tensor_parallel))
        if self.draft is not None:
            recorder.note("draft_kv_cache_bytes_per_sequence", float(draft_sequence_bytes_per_gpu))


NOTHING_BESIDE = Beside()


def draft_sequence_bytes(
    draft: ReplicaShape, tensor_parallel: Any, tokens: Any, block_tokens: float
) -> Any:
    """Cache of one sequence of a draft model on one GPU, which holds all its layers. [B]"""
    rows = draft.cache
    return serving_memory.kv_cache_bytes_per_sequence(
        sequence_tokens=tokens,
        block_tokens=block_tokens,
        layer_count=rows.layer_count,
        cache_elements_per_token=rows.elements,
        cache_shard_count=rows.shards,
        span_tokens=rows.span_tokens,
        state_bytes=rows.state_bytes,
        tensor_parallel=tensor_parallel,
        bytes_per_element=draft.kv_format.bytes_per_element,
    )
