"""What a request says about failures and saves, with the catalog's assumptions for the rest."""

from statistics import NormalDist

from service.core.assumptions import AssumptionUsed
from service.core.errors import InvalidScenario
from service.core.factors import Factor, positive
from service.core.failures.model import NEVER, FailureModel, Writing, exactly
from service.core.formulas import reliability
from service.core.hardware import Gpu
from service.core.recorder import Recorder
from service.core.scenarios.reliability import ObservedIncidents, Reliability
from service.core.scenarios.training_run import TrainingRun

DEVIATIONS = NormalDist().inv_cdf(0.9)
"""Standard deviations from the mean to the 90th percentile."""


def failure_model(
    run: TrainingRun,
    gpu: Gpu,
    recorder: Recorder,
    *,
    checkpoint_bytes: float | None = None,
    pointer: str = "",
) -> FailureModel:
    """What the request says about failures, and the catalog's assumptions for the rest.

    Args:
        run: The run as it was asked for.
        gpu: What it runs on.
        recorder: Looks assumptions up and remembers them.
        checkpoint_bytes: Size of one checkpoint; None where no architecture is known.
        pointer: JSON pointer of the run in the request.

    Raises:
        InvalidScenario: If a save cannot end before the next begins, or if what a rule or a
            bandwidth needs is missing.
    """
    given = run.reliability
    pointer = f"{pointer}/reliability"
    _check_saves(given, pointer)
    server = int(positive(recorder, "failure_server_gpu_count").value)
    gpus_per_server = max(1, min(gpu.node_gpu_count, server))
    writing = _writing(given, gpu, checkpoint_bytes, pointer)
    model = FailureModel(
        failures_per_1000_node_days=_rate(given, gpus_per_server, recorder),
        checkpoint_interval_s=_interval(given, recorder),
        checkpoint_save_s=_save(given, recorder),
        checkpoint_write_s=_write(given, recorder),
        restart_s=_given_or(given.restart_s, recorder, "restart_s"),
        gpus_per_server=gpus_per_server,
        other_fraction=factor_of(positive(recorder, "end_to_end_other_fraction"))
        if run.speed.kind == "estimated"
        else exactly(1.0),
        spot_interruptions_per_1000_node_days=given.spot_interruptions_per_1000_node_days,
        preemptions_per_day=given.preemptions_per_day,
        interval_rule=given.checkpoint_interval,
        saves=given.saves,
        writing=writing,
        observed=given.observed_incidents,
    )
    _check(model, pointer)
    return model


def _rate(given: Reliability, gpus_per_server: int, recorder: Recorder) -> Factor:
    if given.observed_incidents is not None:
        return observed_rate(given.observed_incidents, gpus_per_server)
    name = "failures_per_1000_node_days"
    return _given_or(given.failures_per_1000_node_days, recorder, name)


def observed_rate(seen: ObservedIncidents, gpus_per_server: int) -> Factor:
    """Failures per 1,000 node-days of incidents that were counted, with their Poisson range."""
    nodes = reliability.server_count(gpu_count=seen.gpu_count, gpus_per_server=gpus_per_server)
    count = seen.incident_count
    counts = (
        count,
        *(
            reliability.poisson_mean_bound(event_count=count, deviation=each)
            for each in (-DEVIATIONS, DEVIATIONS)
        ),
    )
    rates = (
        reliability.NODE_DAYS
        * float(
            reliability.observed_failures_per_node_day(
                incident_count=each, node_count=nodes, days=seen.days
            )
        )
        for each in counts
    )
    return Factor(*rates)


def _interval(given: Reliability, recorder: Recorder) -> Factor | None:
    if given.checkpoint_interval != "seconds":
        return None
    seconds = given.checkpoint_interval_s
    if seconds is not None:
        return exactly(seconds)
    return factor_of(positive(recorder, "checkpoint_interval_s"))


def _save(given: Reliability, recorder: Recorder) -> Factor | None:
    if given.saves == "asynchronous":
        name = ("checkpoint_save_s", "asynchronous")
        return _given_or(given.checkpoint_save_s, recorder, *name)
    if given.checkpoint_storage is not None:
        return None
    return _given_or(given.checkpoint_save_s, recorder, "checkpoint_save_s")


def _write(given: Reliability, recorder: Recorder) -> Factor | None:
    if given.saves == "blocking":
        return exactly(0.0)
    if given.checkpoint_storage is not None:
        return None
    return _given_or(given.write_within_s, recorder, "checkpoint_write_s")


def _writing(
    given: Reliability, gpu: Gpu, checkpoint_bytes: float | None, pointer: str
) -> Writing | None:
    storage = given.checkpoint_storage
    if storage is None:
        return None
    if checkpoint_bytes is None:
        raise InvalidScenario(
            "the seconds of a save follow from the size of a checkpoint: name an architecture",
            pointer=f"{pointer}/checkpoint_storage",
        )
    return Writing(
        checkpoint_bytes=checkpoint_bytes,
        store_gb_per_s=storage.store_gb_per_s or NEVER,
        node_gb_per_s=storage.node_gb_per_s or NEVER,
        gpus_per_node=gpu.node_gpu_count,
    )


def _check_saves(given: Reliability, pointer: str) -> None:
    """The seconds of a save are given once, and only where there is such a save."""
    asynchronous = given.saves == "asynchronous"
    if given.write_within_s is not None and not asynchronous:
        raise InvalidScenario(
            "write_within_s is the write beside the run: it needs saves of asynchronous",
            pointer=f"{pointer}/write_within_s",
        )
    name = "write_within_s" if asynchronous else "checkpoint_save_s"
    if given.checkpoint_storage is not None and getattr(given, name) is not None:
        raise InvalidScenario(
            f"{name} follows from checkpoint_storage: give one of them",
            pointer=f"{pointer}/checkpoint_storage",
        )


def _check(model: FailureModel, pointer: str) -> None:
    """What no number of GPUs mends: a rule without an optimum, and saves that overlap."""
    if model.interval_rule != "seconds":
        _check_rule(model, pointer)
    interval, save, write = (
        model.checkpoint_interval_s,
        model.checkpoint_save_s,
        model.checkpoint_write_s,
    )
    if model.saves == "blocking" or interval is None or save is None or write is None:
        return
    least = save.value + write.value
    if least <= interval.value:
        return
    raise InvalidScenario(
        f"a save takes {least:.10g} s and must end before the next one begins, "
        f"{interval.value:.10g} s later: checkpoint_interval_s must be at least {least:.10g}",
        pointer=f"{pointer}/checkpoint_interval_s",
    )


def _check_rule(model: FailureModel, pointer: str) -> None:
    at = f"{pointer}/checkpoint_interval"
    if model.stops_per_day(1).value <= 0:
        raise InvalidScenario(
            "without failures no interval wastes least: give checkpoint_interval_s", pointer=at
        )
    save = model.checkpoint_save_s
    if model.saves == "blocking" and save is not None and save.value <= 0:
        raise InvalidScenario(
            "without a time for which a save stops the run, a shorter interval always wastes less: "
            "give checkpoint_save_s above zero, checkpoint_storage, or checkpoint_interval_s",
            pointer=at,
        )


def _given_or(given: float | None, recorder: Recorder, name: str, *qualifiers: str) -> Factor:
    if given is not None:
        return exactly(given)
    used = recorder.assume(name, *qualifiers)
    if used.low < 0:
        raise InvalidScenario(f"{used.name} must not be below zero", pointer=used.override_at)
    return factor_of(used)


def factor_of(used: AssumptionUsed) -> Factor:
    """An assumption with its range."""
    return Factor(used.value, used.low, used.high)
