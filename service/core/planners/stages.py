"""Runs in sequence: which follows which, and the order in which they can be planned."""

from collections.abc import Mapping, Sequence

from service.core.errors import InvalidScenario
from service.core.scenarios.training_run import TrainingRun


def order_of_stages(
    runs: Sequence[TrainingRun], *, pointers: Sequence[str], shared: bool = False
) -> tuple[int, ...]:
    """Numbers of the runs, each after the one that it follows; else in the order of the request.

    Args:
        runs: Runs with unique names.
        pointers: JSON pointer of each run in the request.
        shared: True where runs share pools: then a run follows only one on the same GPU, because
            when a run ends is known only once its whole pool is planned.

    Raises:
        InvalidScenario: If a run follows a name that no run has, or itself by way of others; if it
            names a start_date, too; or if it shares no pool with the one that it follows.
    """
    numbers = {run.name: number for number, run in enumerate(runs)}
    for number, run in enumerate(runs):
        fault = _fault(run, runs, numbers, shared=shared)
        if fault is not None:
            raise InvalidScenario(fault, pointer=f"{pointers[number]}/after")
    order: list[int] = []
    left = list(range(len(runs)))
    while left:
        placed = {runs[number].name for number in order}
        ready = [n for n in left if runs[n].after is None or runs[n].after in placed]
        if not ready:
            ring = ", ".join(repr(runs[number].name) for number in left)
            raise InvalidScenario(
                f"these runs wait for one another: {ring}", pointer=f"{pointers[left[0]]}/after"
            )
        order += ready
        left = [number for number in left if number not in ready]
    return tuple(order)


def _fault(
    run: TrainingRun, runs: Sequence[TrainingRun], numbers: Mapping[str, int], *, shared: bool
) -> str | None:
    """What is wrong with the run that one follows."""
    if run.after is None:
        return None
    if run.start_date is not None:
        return "give either start_date or after: a run starts on a day or when another ends"
    if run.after not in numbers:
        known = ", ".join(repr(name) for name in numbers if name != run.name) or "none"
        return f"no training run is called {run.after!r}; the others are: {known}"[:2000]
    followed = runs[numbers[run.after]]
    if shared and followed.gpu != run.gpu:
        return (
            f"{run.after!r} runs on another GPU: in shared pooling a run follows only one of its "
            "own pool; use separate pooling, or give a start_date"
        )
    return None
