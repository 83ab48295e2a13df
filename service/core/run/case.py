"""A training run resolved against the catalog: the models that answer for it, or why none can."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.core.architecture.model import ModelArchitecture
from service.core.errors import InvalidScenario
from service.core.estimates import Infeasibility, InfeasibilityCode
from service.core.factors import positive
from service.core.failures.model import FailureModel
from service.core.failures.resolve import failure_model
from service.core.hardware import Gpu
from service.core.parallelism import GivenLayout
from service.core.parallelism.axes import RECOMPUTES, LayoutAxes
from service.core.parallelism.rules import LayoutRules, given_degrees
from service.core.recorder import Recorder
from service.core.run.mechanism import mechanism_of
from service.core.run.memory import MemoryModel
from service.core.run.network import NetworkModel, Traffic, scale_out_bytes_per_s
from service.core.run.parts import (
    adapter_parameter_count,
    attention_forward_flops_per_token,
    model_parts,
    state_bytes,
)
from service.core.run.speed import ModelWork, SpeedModel
from service.core.scenarios.reliability import checkpoint_bytes_per_parameter
from service.core.scenarios.stacks import STACKS
from service.core.scenarios.training_run import TrainingRun
from service.core.scenarios.training_state import STATE_RECIPES
from service.core.snapshot import CatalogSnapshot
from service.core.units import BYTES_PER_GIB


@dataclass(frozen=True)
class HostNeed:
    """Host memory that offloaded state takes, for one layout or many. [B]"""

    per_gpu: Any
    per_node: Any
    available: float | None
    """Of one node; None where the catalog does not know it."""


@dataclass(frozen=True)
class LayoutModels:
    """What judges a layout: legality, memory and network of one model on one kind of GPU."""

    rules: LayoutRules
    degrees: LayoutAxes
    """Splits of the model that are considered: all sensible ones, or the one that was named."""
    memory: MemoryModel
    network: NetworkModel
    host_bytes: float | None = None
    """Memory of the host of a node, where the catalog knows it."""

    def host_need(self, axes: LayoutAxes, recorder: Recorder) -> HostNeed:
        """What one layout or many keep in the memory of a host. [B]"""
        per_gpu = self.memory.terms(axes, recorder).host
        neighbours = np.minimum(self.memory.gpu.node_gpu_count, axes.gpu_count)
        return HostNeed(per_gpu, per_gpu * neighbours, self.host_bytes)


@dataclass(frozen=True)
class StateFloor:
    """What a run holds at the least where only its parameters are known, all GPUs together. [B]"""

    on_gpus: float
    on_hosts: float
    """Where state is offloaded."""


@dataclass(frozen=True)
class RunCase:
    """One run with everything that its answer is made from."""

    run: TrainingRun
    gpu: Gpu
    architecture: ModelArchitecture | None
    speed: SpeedModel | None
    """None when no architecture is given: the speed is then measured."""
    layouts: LayoutModels | None
    """None when the layers are not known."""
    floor: StateFloor | None
    """None when the layers are known, and so a layout's memory, or not even the parameters."""
    host_bytes: float | None
    """Memory of the host of a node, where the catalog knows it."""
    failures: FailureModel
    recorder: Recorder
    gpu_multiple: int
    pointer: str

    @property
    def given_layout(self) -> GivenLayout | None:
        """The layout that the request names."""
        return self.run.layout if isinstance(self.run.layout, GivenLayout) else None

    @property
    def checkpoint_parameters(self) -> tuple[int, float] | None:
        """Trained parameters, and the bytes that a checkpoint keeps of each."""
        return checkpoint_parameters(self.run, self.architecture)

    def traffic(self, axes: LayoutAxes, rate: float, recorder: Recorder) -> Traffic | None:
        """One step on the network, by the terms of the step where the speed rests on them."""
        mechanism = None if self.speed is None else self.speed.mechanism
        if mechanism is not None:
            return mechanism.traffic(axes, recorder)
        return None if self.layouts is None else self.layouts.network.traffic(axes, rate, recorder)

    def with_batch(self, sequences: int) -> "RunCase":
        """The same run with a global batch of so many sequences."""
        tokens = sequences * self.run.sequence_length_tokens
        run = self.run.model_copy(update={"global_batch_tokens": tokens})
        layouts = self.layouts
        if layouts is not None:
            layouts = replace(
                layouts,
                rules=replace(layouts.rules, batch_sequences=sequences),
                network=replace(layouts.network, run=run),
            )
        return replace(self, run=run, layouts=layouts)

    def refusal(
        self,
        code: InfeasibilityCode,
        limit: str,
        fix: str,
        *,
        needed: float | None = None,
        available: float | None = None,
        unit: str | None = None,
    ) -> Infeasibility:
        """Why this run has no answer."""
        return Infeasibility(
            workload=self.run.name,
            code=code,
            limit=limit,
            needed=None if needed is None else float(needed),
            available=None if available is None else float(available),
            unit=unit,
            nearest_fix=fix[:2000],
        )


def trained_parameter_count(run: TrainingRun, architecture: ModelArchitecture) -> int:
    """Weights that training changes: all, with trained towers, or the adapter's. [count]"""
    if run.adapter is not None and architecture.has_layers:
        return adapter_parameter_count(architecture, run.adapter.rank)
    towers = sum(tower.parameter_count for tower in architecture.towers if tower.trained)
    return architecture.parameter_count + towers


def checkpoint_parameters(
    run: TrainingRun, architecture: ModelArchitecture | None
) -> tuple[int, float] | None:
    """Trained parameters, and the bytes that a checkpoint keeps of each."""
    if architecture is None:
        return None
    width = checkpoint_bytes_per_parameter(
        STATE_RECIPES[run.state_recipe], run.reliability.checkpoint_content
    )
    return trained_parameter_count(run, architecture), width


def failures_of(
    run: TrainingRun,
    gpu: Gpu,
    architecture: ModelArchitecture | None,
    recorder: Recorder,
    pointer: str,
) -> FailureModel:
    """How the run fails and saves.

    Raises:
        InvalidScenario: If its fields contradict one another.
    """
    kept = checkpoint_parameters(run, architecture)
    return failure_model(
        run,
        gpu,
        recorder,
        checkpoint_bytes=None if kept is None else kept[0] * kept[1],
        pointer=pointer,
    )


def resolve(
    run: TrainingRun,
    *,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    gpu_multiple: int,
    pointer: str,
    instance_gpu_count: int | None = None,
) -> RunCase:
    """Look up what a run names and build the models that answer for it.

    Args:
        run: The run as it was asked for.
        snapshot: The catalog on the as-of date.
        recorder: Looks assumptions up and keeps quantities.
        gpu_multiple: A solved GPU count is a multiple of it.
        pointer: JSON pointer of the run in the request.
        instance_gpu_count: GPUs that are rented or bought at once; those of the usual node when
            None.

    Raises:
        UnknownKey: If the GPU or the architecture is not in the catalog.
        InvalidScenario: If fields contradict one another.
    """
    gpu = snapshot.gpu(run.gpu, pointer=f"{pointer}/gpu")
    architecture = None
    if run.architecture is not None:
        architecture = snapshot.architecture(run.architecture, pointer=f"{pointer}/architecture")
    layouts = None
    if architecture is not None and architecture.has_layers:
        layouts = _layouts(
            run,
            gpu,
            architecture,
            snapshot=snapshot,
            recorder=recorder,
            instance_gpu_count=instance_gpu_count or gpu.node_gpu_count,
            pointer=pointer,
        )
    else:
        _check_without_layers(run, pointer)
    return RunCase(
        run=run,
        gpu=gpu,
        architecture=architecture,
        speed=None if architecture is None else _speed(run, gpu, architecture, recorder),
        layouts=layouts,
        floor=_state_floor(run, architecture, recorder),
        host_bytes=_host_bytes(gpu, snapshot),
        failures=failures_of(run, gpu, architecture, recorder, pointer),
        recorder=recorder,
        gpu_multiple=gpu_multiple,
        pointer=pointer,
    )


def _speed(
    run: TrainingRun, gpu: Gpu, architecture: ModelArchitecture, recorder: Recorder
) -> SpeedModel:
    mechanism = None
    if architecture.has_layers:
        mechanism = mechanism_of(run, gpu, architecture, recorder)
    return SpeedModel(run, gpu, _work(run, architecture), mechanism)


def _state_floor(
    run: TrainingRun, architecture: ModelArchitecture | None, recorder: Recorder
) -> StateFloor | None:
    """State of all parameters, each held once; whole gradients may follow the optimizer."""
    if architecture is None or architecture.has_layers:
        return None
    state = state_bytes(run, architecture, recorder)
    count = trained_parameter_count(run, architecture)
    kept = {"none": state.total, "optimizer": state.weight, "optimizer_and_parameters": 0.0}
    left = state.total - kept[run.offload]
    buffers = recorder.assume("offload_host_buffer_factor").value if left else 1.0
    return StateFloor(count * kept[run.offload], count * left * buffers)


def _check_experts(run: TrainingRun, architecture: ModelArchitecture, pointer: str) -> None:
    given = run.layout if isinstance(run.layout, GivenLayout) else None
    if given is not None and given.expert_tensor_parallel and not architecture.expert_counts:
        raise InvalidScenario(
            "expert_tensor_parallel splits routed experts, of which this architecture has none",
            pointer=f"{pointer}/expert_tensor_parallel",
        )


def _check_without_layers(run: TrainingRun, pointer: str) -> None:
    if run.layout.kind == "given":
        raise InvalidScenario(
            "a layout can be checked only for an architecture that is described by its layers",
            pointer=f"{pointer}/layout",
        )
    if run.speed.kind == "estimated":
        raise InvalidScenario(
            "an estimate of the speed needs an architecture that is described by its layers; give "
            "an MFU, an HFU or a measured speed",
            pointer=f"{pointer}/speed",
        )
    if run.adapter is not None and run.architecture is not None:
        raise InvalidScenario(
            "an adapter is sized from the layers, which this architecture does not describe",
            pointer=f"{pointer}/adapter",
        )


def _work(run: TrainingRun, architecture: ModelArchitecture) -> ModelWork:
    return ModelWork(
        active_parameter_count=architecture.active_parameter_count,
        matmul_active_parameter_count=architecture.matmul_active_parameter_count,
        attention_forward_flops_per_token=attention_forward_flops_per_token(
            architecture, run.sequence_length_tokens
        ),
        weight_gradient_fraction=1.0 if run.adapter is None else 0.0,
        hidden_size=architecture.hidden_size,
        layer_count=max(1, architecture.num_hidden_layers),
        is_mixture=architecture.is_mixture,
    )


def _layouts(
    run: TrainingRun,
    gpu: Gpu,
    architecture: ModelArchitecture,
    *,
    snapshot: CatalogSnapshot,
    recorder: Recorder,
    instance_gpu_count: int,
    pointer: str,
) -> LayoutModels:
    rules = _rules(
        run,
        gpu,
        architecture,
        recorder=recorder,
        instance_gpu_count=instance_gpu_count,
        pointer=f"{pointer}/layout",
    )
    given = run.layout if isinstance(run.layout, GivenLayout) else None
    shared: dict[str, Any] = {
        "run": run,
        "parts": model_parts(architecture, run.sequence_length_tokens),
        "state": state_bytes(run, architecture, recorder),
        "gpu": gpu,
    }
    named = run.speed.software_stack if run.speed.kind == "estimated" else None
    scale_out = scale_out_bytes_per_s(gpu, snapshot, recorder)
    return LayoutModels(
        rules=rules,
        degrees=rules.degrees() if given is None else given_degrees(given),
        memory=MemoryModel(**shared, named_stack=named, loss=run.loss),
        network=NetworkModel(
            **shared,
            scale_out_bytes_per_s=scale_out,
            experts_per_token=architecture.experts_per_token,
        ),
        host_bytes=_host_bytes(gpu, snapshot),
    )


def _host_bytes(gpu: Gpu, snapshot: CatalogSnapshot) -> float | None:
    node = snapshot.node_of(gpu)
    if node is None or node.host_memory_gib is None:
        return None
    return node.host_memory_gib * BYTES_PER_GIB * gpu.node_gpu_count / node.gpu_count


def _rules(
    run: TrainingRun,
    gpu: Gpu,
    architecture: ModelArchitecture,
    *,
    recorder: Recorder,
    instance_gpu_count: int,
    pointer: str,
) -> LayoutRules:
    _check_experts(run, architecture, pointer)
    named = run.speed.software_stack if run.speed.kind == "estimated" else None
    stored = named is not None and STACKS[named].attention == "stored"
    return LayoutRules(
        head_counts=architecture.head_counts,
        key_value_head_counts=tuple(
            sorted({g.attention.cache_shard_count for g in architecture.layer_groups})
        ),
        expert_counts=architecture.expert_counts,
        layer_count=architecture.num_hidden_layers,
        sequence_tokens=run.sequence_length_tokens,
        batch_sequences=max(1, run.global_batch_tokens // run.sequence_length_tokens),
        scale_up_gpu_count=gpu.scale_up_domain_gpu_count,
        instance_gpu_count=instance_gpu_count,
        offloads_weights=run.offload == "optimizer_and_parameters",
        imbalance_factor=positive(recorder.off(), "auto_layout_imbalance_factor").value,
        context_tokens=positive(recorder.off(), "auto_layout_context_tokens").value,
        # Without stored scores there is nothing that recomputing them alone would save.
        recomputes=tuple(
            index for index, name in enumerate(RECOMPUTES) if name != "selective" or stored
        ),
        pointer=pointer,
    )
