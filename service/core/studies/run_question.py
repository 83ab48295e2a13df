"""What is asked of one training run."""

from typing import Annotated, ClassVar

from pydantic import Field

from service.core.answers import PricedQuestion
from service.core.scenarios.training_run import TrainingRun
from service.core.studies.run_published import PublishedRun
from service.core.studies.runs import TrainingQuestion
from service.core.value import EntryName, Positive, Price


class TrainingRunQuestion(TrainingQuestion, PricedQuestion):
    """One training run, and what it may cost."""

    asked_less: ClassVar[str] = (
        "fewer ranked_gpus, published_runs or stages, for a gpu_count instead of a date or an "
        "amount, or give a layout"
    )
    price_per_gpu_hour: Price | None = None
    """Price of a GPU-hour in USD; the cheapest listed on-demand price when null."""
    budget: Price | None = None
    """USD that may be spent: the answer says how many tokens they buy. To be given a GPU count for
    an amount, ask for it in `run.sizing`."""
    reported_gpu_hours: Positive | None = None
    """GPU-hours that a publisher reports, to be set beside the estimate."""
    ranked_gpus: Annotated[tuple[EntryName, ...], Field(max_length=100)] = ()
    """GPUs of the catalog that the same run is tried on."""
    stages: Annotated[tuple[TrainingRun, ...], Field(max_length=20)] = ()
    """Runs that follow this one or one another, each naming in `after` which: fine-tuning, or
    reinforcement learning at a measured speed."""
    published_runs: Annotated[tuple[PublishedRun, ...], Field(max_length=20)] = ()
    """Runs that were reported somewhere, to be set beside their estimates."""
