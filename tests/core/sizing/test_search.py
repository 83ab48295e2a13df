"""The search for a GPU count agrees with trying all of them, and tries few."""

import pytest

from service.core.run.choice import Choice, choose
from service.core.sizing import search
from service.core.sizing.search import fitting, hours_of, in_time, quickest, smallest_in_time
from service.core.sizing.solve import solvable_counts
from tests.core.training_runs import case_of, given, on

RUNS = [
    {"gpu": "h100-sxm5-80gb", "architecture": "llama-3.1-8b", "sequence_length_tokens": 4096},
    {"gpu": "l4-24gb", "architecture": "llama-3.1-8b", "sequence_length_tokens": 4096},
    {"gpu": "gb200-nvl72", "architecture": "llama-3.1-70b"},
    {"gpu": "a100-sxm4-40gb", "architecture": "mixtral-8x7b"},
]


def counted(monkeypatch):
    tried = []
    monkeypatch.setattr(search, "fitting", lambda *a, **k: tried.append(a[1]) or fitting(*a, **k))
    return tried


@pytest.mark.parametrize("fields", RUNS)
@pytest.mark.parametrize("hours", [300, 1500, 20_000])
def test_the_smallest_count_in_time_is_that_of_trying_all(fields, hours, monkeypatch):
    case = case_of(**fields, training_tokens=2 * 10**12, global_batch_tokens=960 * 8192)
    counts = solvable_counts(case)
    ceiling = case.speed.ceiling_rate(case.recorder.off())
    tried = counted(monkeypatch)
    found = smallest_in_time(case, counts, hours, ceiling)
    wanted = None
    for count in counts:
        one = choose(case, count)
        if isinstance(one, Choice) and in_time(case, one, hours):
            wanted = count
            break
    assert (found and found.gpu_count) == wanted
    assert len(tried) < len(counts)


@pytest.mark.parametrize("fields", RUNS)
@pytest.mark.parametrize("count", [8, 64, 480, 1920])
def test_the_fastest_layout_that_fits_is_the_one_that_is_chosen(fields, count):
    case = case_of(**fields, global_batch_tokens=960 * 8192)
    found, chosen = fitting(case, count), choose(case, count)
    if not isinstance(chosen, Choice):
        assert found is None
        return
    assert found.rate == pytest.approx(chosen.rate, rel=1e-9)
    assert fitting(case, count, least_rate=found.rate * 1.001) is None


def test_a_named_layout_is_searched_for_as_it_is_named():
    layout = given(tensor_parallel=8, sharding="zero_1", recompute="full")
    case = case_of(architecture="llama-3.1-8b", layout=layout)
    assert fitting(case, 12) is None
    assert fitting(case, 16).rate == pytest.approx(choose(case, 16).rate)


def test_the_quickest_count_is_found_without_trying_the_slow_ones(monkeypatch):
    case = case_of(architecture="llama-3.1-8b", sizing=on(8))
    counts = solvable_counts(case)
    ceiling = case.speed.ceiling_rate(case.recorder.off())
    tried = counted(monkeypatch)
    found = quickest(case, counts, ceiling)
    hours = [
        hours_of(case, one) for one in (choose(case, n) for n in counts) if type(one) is Choice
    ]
    assert hours_of(case, found) == pytest.approx(min(hours))
    assert len(tried) < len(counts) / 2
