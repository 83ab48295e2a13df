"""Every architecture's parameters are summed from its layers and meet what was published."""

from datetime import date

import pytest

from service.catalog.resolve import snapshot_from_folder
from service.settings import PROJECT_ROOT

SNAPSHOT = snapshot_from_folder(PROJECT_ROOT / "catalog", date(2026, 11, 29))
COMPUTED = [a for a in SNAPSHOT.architectures.values() if a.has_layers]
UNEXPLAINED = [a for a in COMPUTED if a.published_parameter_count and a.count_note is None]


@pytest.mark.parametrize(
    ("key", "total_billions"),
    [
        # Counted by building each model without weights (transformers 5.24) from its config.
        ("gpt-2-124m", 0.1244),
        ("gpt-3-175b", 174.6043),
        ("llama-3.1-8b", 8.0303),
        ("llama-3.1-405b", 405.8534),
        ("qwen3-32b", 32.7621),
        ("mixtral-8x7b", 46.7028),
        ("qwen3-30b-a3b", 30.5321),
        ("deepseek-v3", 671.0264),
        ("gemma-3-27b", 27.0093),
        ("gpt-oss-20b", 20.9148),
        ("gpt-oss-120b", 116.8292),
        ("qwen3.5-35b-a3b", 34.6606),
        ("nemotron-3-nano-30b-a3b", 31.5779),
        ("llama-3.3-nemotron-super-49b", 49.8671),
        ("llama-4-scout", 107.7699),
    ],
)
def test_each_kind_of_architecture_is_counted_as_its_built_model(key, total_billions):
    count = SNAPSHOT.architecture(key).parameter_count
    assert count == pytest.approx(total_billions * 1e9, rel=5e-4)


@pytest.mark.parametrize(
    ("key", "active_billions"),
    [("mixtral-8x7b", 12.9), ("deepseek-v3", 37.0), ("nemotron-3-nano-30b-a3b", 3.6)],
)
def test_active_parameters_meet_the_published_ones(key, active_billions):
    # Publishers round, and count the input embedding or not (0.9 B of DeepSeek-V3's 37.6 B).
    count = SNAPSHOT.architecture(key).active_parameter_count
    assert count == pytest.approx(active_billions * 1e9, rel=0.02)


@pytest.mark.parametrize("architecture", UNEXPLAINED, ids=lambda a: a.key)
def test_a_total_meets_the_published_one_unless_the_entry_explains_it(architecture):
    published = architecture.published_parameter_count
    assert architecture.parameter_count == pytest.approx(published, rel=0.01)


def test_few_architectures_rest_on_published_counts():
    assert len(SNAPSHOT.architectures) - len(COMPUTED) <= 12


@pytest.mark.parametrize(
    ("key", "full_bytes", "window_bytes"),
    [
        # Bytes of cache per token at 16 bit: full layers, and window layers within their window.
        ("llama-3.1-405b", 126 * 2 * 8 * 128 * 2, 0),
        ("gemma-3-27b", 10 * 2 * 16 * 128 * 2, 52 * 2 * 16 * 128 * 2),
        ("gpt-oss-20b", 12 * 2 * 8 * 64 * 2, 12 * 2 * 8 * 64 * 2),
        ("deepseek-v3", 61 * (512 + 64) * 2, 0),
        ("qwen3.5-35b-a3b", 10 * 2 * 2 * 256 * 2, 0),
        ("llama-3.3-nemotron-super-49b", 49 * 2 * 8 * 128 * 2, 0),
        ("gemma-4-31b", 10 * 4 * 512 * 2, 50 * 2 * 16 * 256 * 2),
    ],
)
def test_cache_of_a_token_is_summed_by_kind_of_layer(key, full_bytes, window_bytes):
    groups = SNAPSHOT.architecture(key).layer_groups

    def cached(*, windowed):
        return sum(
            2 * group.count * group.attention.cache_elements_per_token
            for group in groups
            if (group.attention.span_tokens is not None) == windowed
        )

    assert (cached(windowed=False), cached(windowed=True)) == (full_bytes, window_bytes)
