"""What starts the workloads of a plan, and the numbers by which to see how they run."""

from typing import Literal
from uuid import UUID

from service.core.parallelism import ParallelLayout
from service.core.units import Unit
from service.core.value import LongText, Text, Value

LogValueName = Literal[
    "step_time_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "model_tflops_with_attention_per_gpu",
    "mfu_fraction",
    "memory_gib_per_gpu",
    "units_per_s_per_replica",
    "concurrency_per_replica",
    "tpot_mean_s",
]
"""What a log or a dashboard shows of a workload."""
AlertName = Literal["time_to_first_token", "waiting_requests", "kv_cache_use"]
"""What is watched."""


class ShellVariable(Value):
    """A part of a line that the plan cannot know; set it before the line is run."""

    name: Text
    """Name of the environment variable."""
    meaning: LongText
    """What to set it to."""


class ExpectedValue(Value):
    """A number that the log should show once the workload runs steadily."""

    name: LogValueName
    """What is shown."""
    value: float
    """Typical value."""
    low: float
    """10th percentile: below it something is wrong, or the plan was."""
    high: float
    """90th percentile."""
    unit: Unit | Literal["TFLOPS"]
    """Unit of the three values."""
    shown_as: LongText
    """Where the tool shows it, and what it counts."""


class AlertRule(Value):
    """When to worry: a threshold from the plan's own numbers."""

    name: AlertName
    """What is watched."""
    threshold: float
    """Value above which the alert fires."""
    unit: Unit
    """Unit of the threshold."""
    reason: LongText
    """From which numbers of the plan the threshold follows."""
    metric: Text | None
    """Metric of the engine's version; null where none is documented."""
    metric_source: LongText | None
    """Where the metric is documented."""
    expression: str | None
    """The alert in PromQL."""


class WorkloadLaunch(Value):
    """How one workload is started and watched."""

    workload: Text
    """Name of the run or service."""
    workload_kind: Literal["training", "serving"]
    """Which of the two it is."""
    tool: Text | None
    """Program that is started, with the version whose options are used; null without a line."""
    source: LongText | None
    """Where those options are documented."""
    command: str | None
    """Line for a POSIX shell: once on each node of a run, once on each node of every replica."""
    not_written_because: LongText | None
    """Why there is no line."""
    variables: tuple[ShellVariable, ...]
    """What to set before the line is run."""
    node_count: int
    """Nodes of the run, or of one replica."""
    gpu_count_per_node: int
    """GPUs that the line uses on each of them."""
    replica_count: int
    """Times the whole is started: 1 for a run, the held replicas of a service."""
    layout: ParallelLayout | None
    """The plan's layout, which the line asks for; null where it is not known."""
    expected: tuple[ExpectedValue, ...]
    """What log and dashboard should show."""
    alerts: tuple[AlertRule, ...]
    """When to worry; of services."""
    notes: tuple[LongText, ...]
    """What to know before it is run."""


class LaunchSheet(Value):
    """How the workloads of a plan are started and watched."""

    plan_id: UUID
    """The plan."""
    plan_name: Text
    """Its name."""
    workloads: tuple[WorkloadLaunch, ...]
    """Runs, then services, in the order of the request."""
