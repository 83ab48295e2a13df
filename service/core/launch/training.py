"""How a run of a plan is started, and what its log should show."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

from service.core.estimates import Quantity, TrainingRunEstimate
from service.core.formulas.training_time import training_step_count
from service.core.launch.answer import ExpectedValue, LogValueName, WorkloadLaunch
from service.core.launch.line import NotLaunchable, Started, line_fields
from service.core.launch.megatron import megatron
from service.core.launch.torchrun import RunToStart, processes_per_node
from service.core.launch.torchtitan import torchtitan
from service.core.parallelism import ParallelLayout
from service.core.parallelism.axes import RECOMPUTES, SHARDINGS, LayoutAxes
from service.core.scenarios.stacks import SoftwareStack, stack_of
from service.core.scenarios.training_run import TrainingRun
from service.core.snapshot import CatalogSnapshot
from service.core.units import FLOP_PER_S_PER_TFLOPS

PROGRAMS: Final = {
    "vendor_tuned": megatron,
    "megatron_2021": megatron,
    "pytorch_fsdp": torchtitan,
    "pytorch_eager": torchtitan,
}
"""Program of each software stack that has one which takes a layout by its options."""
LOGGED: Final[tuple[str, ...]] = (
    "training_step_s",
    "training_tokens_per_s_per_gpu",
    "training_flops_per_token",
    "training_flops_per_token_with_attention",
    "training_mfu_fraction",
)
"""Quantities of a run from which the log's numbers follow."""
TFLOPS: Final[tuple[tuple[LogValueName, str, str], ...]] = (
    ("model_tflops_per_gpu", "training_flops_per_token", "6 FLOP per weight and token"),
    (
        "model_tflops_with_attention_per_gpu",
        "training_flops_per_token_with_attention",
        "weights and causal attention; a tool that counts whole squares shows more",
    ),
)
"""Rates by what they count."""
SHARED_NOTE: Final = (
    "In a shared pool the run takes more or fewer whole copies from hour to hour; the line and the "
    "numbers are those of the GPUs that it takes when it has them to itself."
)


def launch_run(
    asked: TrainingRun,
    estimate: TrainingRunEstimate,
    quantities: Mapping[str, Quantity],
    snapshot: CatalogSnapshot,
    *,
    is_shared: bool,
) -> WorkloadLaunch:
    """How a run is started and watched.

    Args:
        asked: The run as the plan's request has it.
        estimate: Its answer.
        quantities: Those of `LOGGED` that the plan holds of the run, by name.
        snapshot: The catalog that the plan was made with.
        is_shared: True when serving takes GPUs of the run's pool.
    """
    node_gpu_count = snapshot.gpu(asked.gpu).node_gpu_count
    per_node = processes_per_node(estimate.gpu_count, node_gpu_count)
    notes = (SHARED_NOTE,) if is_shared else ()
    return WorkloadLaunch(
        **line_fields(lambda: _started(asked, estimate, snapshot), *notes),
        workload=asked.name,
        workload_kind="training",
        node_count=estimate.gpu_count // per_node,
        gpu_count_per_node=per_node,
        replica_count=1,
        layout=estimate.layout,
        expected=tuple(_expected(estimate, quantities)),
        alerts=(),
    )


def _started(
    asked: TrainingRun, estimate: TrainingRunEstimate, snapshot: CatalogSnapshot
) -> Started:
    layout = estimate.layout
    if layout is None or asked.architecture is None:
        raise NotLaunchable(
            "the plan knows no layout of this run: its architecture is not described by layers"
        )
    if asked.adapter is not None:
        raise NotLaunchable("no line is written for adapters, which trainers configure by files")
    stack = _stack(asked, layout)
    if stack not in PROGRAMS:
        raise NotLaunchable(f"no line is written for the software stack {stack}")
    return PROGRAMS[stack](
        RunToStart(
            asked=asked,
            layout=layout,
            gpu_count=estimate.gpu_count,
            node_gpu_count=snapshot.gpu(asked.gpu).node_gpu_count,
            layer_count=snapshot.architecture(asked.architecture).num_hidden_layers,
            step_count=ceil(
                training_step_count(
                    training_tokens=asked.training_tokens,
                    global_batch_tokens=asked.global_batch_tokens,
                )
            ),
        )
    )


def _stack(asked: TrainingRun, layout: ParallelLayout) -> SoftwareStack:
    """The stack that was asked for, or the one that the estimate took for such a layout."""
    named = asked.speed.software_stack if asked.speed.kind == "estimated" else None
    axes = LayoutAxes(
        tensor=layout.tensor_parallel,
        pipeline=layout.pipeline_parallel,
        virtual=layout.virtual_pipeline_stages,
        context=layout.context_parallel,
        expert=layout.expert_parallel,
        data=layout.data_parallel,
        sharding=SHARDINGS.index(layout.sharding),
        micro_batch_sequences=layout.micro_batch_sequences,
        micro_batch_count=layout.micro_batch_count,
        recompute=RECOMPUTES.index(layout.recompute),
        sequence_parallel=layout.sequence_parallel,
    )
    return named or stack_of(bool(axes.is_vendor_tuned))


def _expected(
    estimate: TrainingRunEstimate, quantities: Mapping[str, Quantity]
) -> Iterator[ExpectedValue]:
    step, pace = quantities.get("training_step_s"), quantities.get("training_tokens_per_s_per_gpu")
    if step is not None and step.value is not None and pace is not None and pace.value:
        yield ExpectedValue(
            name="step_time_s",
            value=step.value,
            # A step takes as much longer as fewer tokens pass.
            low=step.value * pace.value / (pace.high or pace.value),
            high=step.value * pace.value / (pace.low or pace.value),
            unit="s",
            shown_as="time of one optimizer step",
        )
    if pace is not None:
        meaning = "tokens per second and GPU"
        yield from _value("tokens_per_s_per_gpu", pace, 1.0, "token/s", meaning)
        for name, flops, counted in TFLOPS:
            per_token = quantities.get(flops)
            if per_token is not None and per_token.value is not None:
                factor = per_token.value / FLOP_PER_S_PER_TFLOPS
                yield from _value(name, pace, factor, "TFLOPS", f"TFLOP/s per GPU: {counted}")
    mfu = quantities.get("training_mfu_fraction")
    if mfu is not None:
        meaning = "model FLOPs (6 per weight and token) over the dense peak"
        yield from _value("mfu_fraction", mfu, 1.0, "1", meaning)
    if estimate.memory_gib_per_gpu is not None:
        total = estimate.memory_gib_per_gpu.total
        yield ExpectedValue(
            name="memory_gib_per_gpu",
            value=total,
            low=total,
            high=total,
            unit="GiB",
            shown_as="memory in use on the fullest GPU, context and collectives included",
        )


def _value(
    name: LogValueName, quantity: Quantity, factor: float, unit: str, shown_as: str
) -> Iterator[ExpectedValue]:
    if quantity.value is None or quantity.low is None or quantity.high is None:
        return
    yield ExpectedValue.model_validate(
        {
            "name": name,
            "value": quantity.value * factor,
            "low": quantity.low * factor,
            "high": quantity.high * factor,
            "unit": unit,
            "shown_as": shown_as,
        }
    )
