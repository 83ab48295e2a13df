"""What would let a run end that failures and saves never let end: numbers that were tried."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from service.core.estimates import Infeasibility
from service.core.failures.model import NEVER, FailureModel, exactly
from service.core.value import LARGEST, SMALLEST

ENOUGH_GOODPUT = (0.5, 0.1, 0.01)
"""Shares of the time that a named change leaves; the largest that any single change reaches."""
SHARES = (*(0.9**step for step in range(1, 67)), *(10.0**-step for step in range(3, 40)))
"""Shares of a value that are tried: in small steps at first."""
MOST_COUNTS = 200
MOST_TRIALS = 8
"""GPU counts of which it is asked whether the run can have them."""
SHORTEST_INTERVAL_S = 1.0
DIGITS = 3
NO_FIX = "fewer or shorter stops"

Change = tuple[str, FailureModel]
"""What a request would say, and the model of it."""


def fixes(
    model: FailureModel,
    gpu_count: int,
    counts: Iterable[int] = (),
    *,
    is_usable: Callable[[int], bool] = bool,
) -> str:
    """Changes of which each alone lets the run end, as a request would say them.

    Args:
        model: How the run fails on so many GPUs.
        gpu_count: GPUs on which it never ends.
        counts: Smaller GPU counts that may be named, the largest first.
        is_usable: Whether the run can have so many GPUs, asked of few of them.
    """
    listed = list(counts)
    listed = listed[:: max(1, len(listed) // MOST_COUNTS)]
    for enough in ENOUGH_GOODPUT:
        fewer = (count for count in listed if model.goodput(count) >= enough)
        count = next(filter(is_usable, islice(fewer, MOST_TRIALS)), None)
        named = [
            None if count is None else f"gpu_count {count:,}",
            *(
                _first(changes(model, gpu_count), gpu_count, enough)
                for changes in (_shorter_restarts, _other_intervals, _shorter_saves)
            ),
        ]
        if any(named):
            return " or ".join(text for text in named if text)
    return _first(_fewer_stops(model, gpu_count), gpu_count, ENOUGH_GOODPUT[0]) or NO_FIX


def never_ends(
    model: FailureModel,
    gpu_count: int,
    counts: Iterable[int] = (),
    *,
    workload: str | None = None,
    is_usable: Callable[[int], bool] = bool,
) -> Infeasibility:
    """Why a run never ends on so many GPUs, and what would let it."""
    overlap = model.saves_overlap(gpu_count)
    goodput = model.goodput(gpu_count)
    return Infeasibility(
        workload=workload,
        code="deadline",
        limit="time from one save to the next" if overlap else "time left between failures",
        needed=model.least_interval_s(gpu_count) if overlap else 1.0 - goodput,
        available=float(model.interval_s(gpu_count).value) if overlap else 1.0,
        unit="s" if overlap else "share of the time",
        nearest_fix=fixes(model, gpu_count, counts, is_usable=is_usable),
    )


def smaller_counts(model: FailureModel, gpu_count: int) -> Iterator[int]:
    """Whole servers below a number of GPUs, the largest first."""
    servers = model.server_count(gpu_count) - 1
    while servers >= 1:
        yield int(servers) * model.gpus_per_server
        servers = min(servers - 1, int(servers * 0.97))


def _first(changes: Iterator[Change], gpu_count: int, enough: float) -> str | None:
    """The mildest change that leaves enough of the time."""
    return next((text for text, each in changes if each.goodput(gpu_count) >= enough), None)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _said(name: str, value: float) -> str:
    return f"{name} {value:.10g}"


def _lower(value: float) -> Iterator[float]:
    """Values from just below one down to nothing."""
    yield from (_rounded(value * share) for share in SHARES)
    yield 0.0


def _shorter_restarts(model: FailureModel, _: int) -> Iterator[Change]:
    if model.restart_s.value > 0:
        for seconds in _lower(float(model.restart_s.value)):
            yield _said("restart_s", seconds), replace(model, restart_s=exactly(seconds))


def _other_intervals(model: FailureModel, gpu_count: int) -> Iterator[Change]:
    """Intervals that a save leaves, the nearest first."""
    if model.checkpoint_interval_s is None:
        return
    now = model.interval_s(gpu_count).value
    least = max(model.least_interval_s(gpu_count), SHORTEST_INTERVAL_S)
    for share in SHARES:
        for seconds in (now * share, now / share):
            if least <= _rounded(seconds) <= LARGEST:
                yield _with_interval(model, _rounded(seconds))


def _with_interval(model: FailureModel, seconds: float) -> Change:
    other = replace(model, checkpoint_interval_s=exactly(seconds))
    return _said("checkpoint_interval_s", seconds), other


def _shorter_saves(model: FailureModel, _: int) -> Iterator[Change]:
    """A shorter stop or write, by seconds or by the bandwidth that they follow from."""
    if model.writing is not None:
        yield from _more_bandwidth(model)
        return
    save, write = model.checkpoint_save_s, model.checkpoint_write_s
    if save is not None and save.value > 0:
        # By a rule, saves that cost nothing have no best interval.
        by_rule = model.checkpoint_interval_s is None
        for seconds in filter(None if by_rule else lambda _: True, _lower(float(save.value))):
            other = replace(model, checkpoint_save_s=exactly(seconds))
            yield _said("checkpoint_save_s", seconds), other
    if write is not None and write.value > 0:
        for seconds in filter(None, _lower(float(write.value))):
            yield (
                _said("write_within_s", seconds),
                replace(model, checkpoint_write_s=exactly(seconds)),
            )


def _more_bandwidth(model: FailureModel) -> Iterator[Change]:
    writing = model.writing
    if writing is None:
        return
    for share in SHARES:
        store, node = (
            _rounded(each / share) for each in (writing.store_gb_per_s, writing.node_gb_per_s)
        )
        named = {"store_gb_per_s": store, "node_gb_per_s": node}
        said = [_said(name, value) for name, value in named.items() if value < NEVER]
        more = replace(writing, store_gb_per_s=store, node_gb_per_s=node)
        if any(LARGEST < value < NEVER for value in named.values()):
            return
        yield f"checkpoint_storage of {' and '.join(said)}", replace(model, writing=more)


def _scaled(rate: float, share: float) -> float:
    """A share of a rate, as small as a request may name one."""
    return max(_rounded(rate * share), SMALLEST) if rate else 0.0


def _fewer_stops(model: FailureModel, gpu_count: int) -> Iterator[Change]:
    """Rates of everything that stops the run, all in proportion, at their best interval."""
    for share in SHARES:
        rate = _scaled(model.failures_per_1000_node_days.value, share)
        spot = _scaled(model.spot_interruptions_per_1000_node_days, share)
        taken = _scaled(model.preemptions_per_day, share)
        named = {
            "failures_per_1000_node_days": rate,
            "spot_interruptions_per_1000_node_days": spot,
            "preemptions_per_day": taken,
        }
        said = [_said(name, value) for name, value in named.items() if value > 0]
        if model.observed is not None and rate > 0:
            said[0] += " instead of observed_incidents"
        fewer = replace(
            model,
            failures_per_1000_node_days=exactly(rate),
            spot_interruptions_per_1000_node_days=spot,
            preemptions_per_day=taken,
        )
        if not said:
            return
        yield " with ".join(said), fewer
        seconds = max(
            fewer.rule_s(gpu_count, "young") or 0.0, 1.01 * fewer.least_interval_s(gpu_count)
        )
        if 0 < seconds <= LARGEST and model.checkpoint_interval_s is not None:
            text, better = _with_interval(fewer, _rounded(seconds))
            yield " with ".join([*said, text]), better
