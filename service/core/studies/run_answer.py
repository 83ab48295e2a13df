"""What is said of one training run."""

from datetime import date
from typing import Literal

from service.core.answers import EstimateAnswer
from service.core.estimates import Range, SpeedBasis, TrainingMemory
from service.core.parallelism import ParallelLayout
from service.core.studies.run_published import ComparedRun
from service.core.studies.run_ranking import RankedGpu
from service.core.studies.run_stages import AllRuns, StageEstimate
from service.core.value import Amount, Value


class StepTime(Value):
    """Where the time of one step goes, in seconds; the parts add up to the step."""

    compute: float
    """Matrices, attention, memory passes and experts."""
    launch: float
    """What launching kernels adds."""
    exposed_network: float
    """Exchanges that computation does not hide."""
    bubble: float
    """Pipeline stages that wait."""
    optimizer: float
    """Update of the weights."""


class TrainingRunAnswer(EstimateAnswer):
    """What one run needs."""

    gpu_count: int | None
    """GPUs of the run."""
    gpu_count_in_whole_nodes: int | None
    """GPUs of the whole instances that hold them: those that have the price, whole nodes where it
    is given. This is what a plan pays for, and a count that is solved for fills them."""
    training_tokens: int | None
    """Tokens that it trains on, as given or solved for."""
    step_count: float | None
    """Optimizer steps."""
    layout: ParallelLayout | None
    """How the model is spread."""
    memory_gib_per_gpu: TrainingMemory | None
    """Memory of the fullest GPU."""
    speed_basis: SpeedBasis | None
    """What the speed rests on."""
    tokens_per_s_per_gpu: Range | None
    """Speed, with the band of what was held out of its fit."""
    table_tokens_per_s_per_gpu: float | None
    """What the table of shares of the peak says of the same layout; null where it answers itself,
    holds nothing, or the speed was given."""
    step_s: StepTime | None
    """Where the time of a step goes; null when the speed is not estimated by its terms."""
    model_flops: float | None
    """FLOP of the whole run by `mfu_convention`."""
    model_flops_with_attention: float | None
    """FLOP of the whole run by the other convention: weights that are multiplied, and causal
    attention; null where the layers are not known."""
    mfu_convention: Literal["6P", "4P"]
    """Which FLOPs `mfu_fraction` counts: 6 a parameter and token, 4 where adapters leave the
    parameters frozen, whose gradients are not computed."""
    mfu_fraction: float | None
    """Model FLOPs over the dense peak of the compute precision, recompute ignored."""
    mfu_with_attention_fraction: float | None
    """The same of the FLOPs with attention."""
    hfu_fraction: float | None
    """Executed FLOPs over the same peak, recompute counted."""
    run_multiplier: float
    """Experiment factor: ablations and failed runs, already in all hours."""
    steady_hours: float | None
    """Hours at steady speed."""
    goodput_fraction: float | None
    """Share of the time that makes progress."""
    wall_clock_hours: Range | None
    """Hours from start to finish."""
    wall_clock_days: float | None
    """The same in days."""
    finish_date: date | None
    """Day on which it ends."""
    gpu_hours: float | None
    """GPUs times wall clock."""
    booked_gpu_hours: Range | None
    """GPU-hours that published runs of this kind book; null without an estimated speed."""
    energy_kwh: float | None
    """Energy of the GPUs at their power limit; null where the limit is not known."""
    facility_energy_kwh: float | None
    """Energy that a hall meters for it in kWh: GPU-hours · highest draw of a node / its GPUs ·
    `power_load_fraction` · `power_usage_effectiveness`; null where no draw of a node is known."""
    amount: Amount | None
    """USD of the run's own GPU-hours; null where no price is given or listed."""
    amount_in_whole_nodes: Amount | None
    """USD that are paid: the same hours of `gpu_count_in_whole_nodes` GPUs."""
    tokens_within_budget: float | None
    """Tokens that the budget buys of this run alone, in whole nodes: stages cost more; null without
    budget or price."""
    compared_gpu_hours: Range | None
    """GPU-hours that a report is held against: `booked_gpu_hours`, restarts and idle time in them,
    or as low as the run alone, since some reports leave these out."""
    reported_over_estimate: float | None
    """Reported GPU-hours over `compared_gpu_hours`."""
    ranking: tuple[RankedGpu, ...]
    """The same run on other GPUs: by dollars, those without a price by days, failing ones last."""
    stages: tuple[StageEstimate, ...]
    """Stages that can be had, in the order in which they run."""
    all_runs: AllRuns | None
    """The run and all stages together; null where one of them cannot be had."""
    published_runs: tuple[ComparedRun, ...]
    """Reported numbers beside their estimates."""
